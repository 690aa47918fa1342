// Where each tile of the map goes: racks as boxes in shelves, as large as fits; and what fits on one tile.

const SIZES = [];
for (let size = 4; size <= 300; size *= 1.06) SIZES.push(size);
const WIDER = [1, 1.6, 2.5, 4, 6, 9, 14, 1e9];
const SHAPES = [1, 1.4, 1.9, 2.6];
const KEEPS = 1.25; // another arrangement must be this much better: tiles do not jump for a few pixels

// groups: [{name, ids}] → {tile, gap, pad, head, boxes: [{name, ids, x, y, w, h, cols}]}; `before`: what is shown now.
export function arrange(groups, width, height, before = null) {
  if (!groups.length || width < 20 || height < 20) return null;
  let best = null, same = null;
  const sizes = groups.map((group) => group.ids.length).join();
  for (const factor of WIDER) {
    for (const shape of SHAPES) {
      const fits = largest(groups, width, height, factor, shape);
      if (!fits) continue;
      const found = { ...stretched(fits, width, height), factor, sizes };
      found.worth = Math.min(found.tile.w / (found.tile.w > 60 ? 1.7 : 1.2), found.tile.h) * (found.holes ? 0.7 : 1) * (found.ragged ? 0.8 : 1);
      if (!best || found.worth > best.worth) best = found;
      if (before?.factor === factor && before.sizes === sizes && (!same || found.worth > same.worth)) same = found;
    }
  }
  if (same && best.worth < same.worth * KEEPS) return same;
  return best ?? shelves(groups, width, Infinity, SIZES[0], 2.5, 1);
}

function largest(groups, width, height, factor, shape) {
  let low = 0, high = SIZES.length - 1, found = null;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const fits = shelves(groups, width, height, SIZES[middle], factor, shape);
    if (fits) { found = fits; low = middle + 1; } else high = middle - 1;
  }
  return found;
}

function measures(size, shape) {
  const tile = { w: size, h: size / (size > 30 ? shape : 1) };
  const gap = size > 60 ? 6 : size > 20 ? 3 : size > 9 ? 2 : 1;
  return { tile, gap, pad: size > 60 ? 7 : size > 20 ? 5 : 3, head: size > 60 ? 22 : size > 9 ? 17 : 13, between: size > 60 ? 10 : 6 };
}

function shelves(groups, width, height, size, factor, shape) {
  const { tile, gap, pad, head, between } = measures(size, shape);
  const boxes = [];
  let x = 0, y = 0, shelf = 0, used = 0;
  for (const group of groups) {
    const most = Math.max(1, Math.floor((width - 2 * pad + gap) / (tile.w + gap)));
    const cols = Math.min(most, group.ids.length, Math.max(1, Math.ceil(Math.sqrt(group.ids.length * factor))));
    const lines = Math.ceil(group.ids.length / cols);
    const w = cols * (tile.w + gap) - gap + 2 * pad;
    const h = lines * (tile.h + gap) - gap + 2 * pad + head;
    if (w > width) return null;
    if (x && x + w > width) { x = 0; y += shelf + between; shelf = 0; }
    boxes.push({ ...group, x, y, w, h, cols, lines });
    used = Math.max(used, x + w);
    x += w + between;
    shelf = Math.max(shelf, h);
    if (y + shelf > height) return null;
  }
  return { tile, gap, pad, head, between, boxes, width: used, height: y + shelf, ragged: y > 0 && x - between < used * 0.9, holes: boxes.reduce((sum, box) => sum + box.cols * box.lines - box.ids.length, 0) };
}

// Room that is left goes to the tiles, within reason.
function stretched(found, width, height) {
  const { tile, gap, pad, head, between } = found;
  const lines = new Map();
  for (const box of found.boxes) {
    const line = lines.get(box.y) ?? { cols: 0, fixed: -between, rows: 0 };
    line.cols += box.cols;
    line.fixed += (box.cols - 1) * gap + 2 * pad + between;
    line.rows = Math.max(line.rows, box.lines);
    lines.set(box.y, line);
  }
  const all = [...lines.values()];
  const wide = Math.min(...all.map((line) => (width - line.fixed) / line.cols));
  const fixed = all.reduce((sum, line) => sum + (line.rows - 1) * gap + 2 * pad + head, (all.length - 1) * between);
  const high = (height - fixed) / all.reduce((sum, line) => sum + line.rows, 0);
  const limit = tile.w > 60 ? 2.5 : 1.6;
  const w = Math.max(tile.w, Math.min(wide, tile.w * limit));
  const h = Math.max(tile.h, Math.min(high, tile.h * limit, w * 1.2));
  let y = 0, x = 0, shelf = 0, at = found.boxes[0].y;
  for (const box of found.boxes) {
    if (box.y !== at) { at = box.y; y += shelf + between; x = 0; shelf = 0; }
    const bw = box.cols * (w + gap) - gap + 2 * pad;
    const bh = box.lines * (h + gap) - gap + 2 * pad + head;
    Object.assign(box, { x, w: bw, h: bh, top: y });
    x += bw + between;
    shelf = Math.max(shelf, bh);
  }
  for (const box of found.boxes) box.y = box.top;
  const used = Math.max(...found.boxes.map((box) => box.x + box.w));
  return { ...found, tile: { w, h }, width: used, height: y + shelf };
}

// Where tile number k of a box is.
export function place(found, box, k) {
  const { tile, gap, pad, head } = found;
  return {
    x: box.x + pad + (k % box.cols) * (tile.w + gap),
    y: box.y + head + pad + Math.floor(k / box.cols) * (tile.h + gap),
  };
}

// What stands on a tile of this size on the screen: a name, cells, gauges; the finer, the smaller it is.
const CHIPS = [[150, 30, 5], [120, 25, 4], [94, 21, 4], [74, 17, 3], [60, 15, 3], [46, 14, 3], [30, 11, 2], [15, 11, 2], [11, 11, 2], [8, 8, 2], [6, 6, 1], [4, 4, 1], [3, 3, 1]];

// `room`: cells are so large that this many would fit, so that tiles beside each other have cells of one size.
export function inside(w, h, pods, stores, room = 0) {
  const full = w >= 72 && h >= 50;
  const medium = !full && w >= 30 && h >= 24;
  const large = full && h >= 108;
  const name = large ? 24 : full ? 19 : medium && w >= 50 ? 13 : 0;
  const inset = full ? 7 : medium ? 3 : 1.5;
  const gaugeH = large ? 27 : full ? 14 : medium ? 6 : h >= 12 ? 3 : 0;
  const gauges = Math.min(stores, full ? 3 : 1) * gaugeH;
  const bottom = full ? (h >= 70 ? 6 : 4) : medium ? 3 : 1;
  const area = { x: inset, y: name + (name ? 1 : inset), w: w - 2 * inset, h: h - name - gauges - bottom - (name ? 3 : inset) };
  let chip = null;
  if (pods && area.h >= 3) {
    // A tile with gauges has cells no larger than the others, and smaller ones only if it must.
    const wanted = Math.max(pods, room);
    for (const [cw, ch, gap] of CHIPS) {
      if (!full && cw > 15) continue;
      if (!medium && !full && cw > 6) continue;
      const cols = Math.floor((area.w + gap) / (cw + gap));
      const high = (count) => Math.ceil(count / cols) * (ch + gap) - gap;
      if (cols >= 1 && high(pods) <= area.h && high(wanted) <= area.h + gauges) { chip = { w: cw, h: ch, gap, cols }; break; }
    }
    if (!chip && wanted > pods) return inside(w, h, pods, stores);
    if (chip && chip.w >= 30) chip.w = Math.min(chip.w * 1.35, (area.w + chip.gap) / chip.cols - chip.gap);
  }
  return { full, medium, large, name, inset, area, chip, gaugeH, gaugeY: h - gauges - bottom + (full ? 1 : 0) };
}

export function chipAt(plan, k) {
  const { area, chip } = plan;
  return { x: area.x + (k % chip.cols) * (chip.w + chip.gap), y: area.y + Math.floor(k / chip.cols) * (chip.h + chip.gap) };
}
