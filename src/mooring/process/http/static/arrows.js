// Moves, drawn above the map from where to where: from cell to cell where cells have names, else from tile to tile.
// What moves travels along its line as a small cell; with reduced motion the same lines stand still.

import { cell } from "./tile.js";

const TURN_MS = 1700;
const FADES_MS = 1400;
const MANY = 30;
// Above so many moves of pods at a time, those between the same two racks are one line with their number.
const BUNDLED = 8;
const FEWEST = 2;
// Of a rack's box, the strip above its tiles, where its name stands: lines of bundles run there and between the boxes.
const STRIP = 15;

// Moves of pods by the racks they leave and reach: [those drawn one by one, the bundles]. `rackOf(node)`: "" for none.
export function bundled(all, rackOf) {
  const between = new Map(), single = [];
  const pods = all.filter(({ row }) => row[0] === "pod" && row[3] && row[4] !== "blocked" && row[2] !== row[3]);
  if (pods.length <= BUNDLED) return [all, []];
  for (const move of all) {
    const from = rackOf(move.row[2]), to = rackOf(move.row[3]);
    if (!pods.includes(move) || !from || !to) { single.push(move); continue; }
    const key = `${from}\n${to}`;
    between.set(key, [...(between.get(key) ?? []), move]);
  }
  const bundles = [];
  for (const [key, moves] of between) {
    if (moves.length < FEWEST) { single.push(...moves); continue; }
    const [from, to] = key.split("\n");
    bundles.push({ from, to, moves });
  }
  return [single, bundles];
}

export function drawArrows(g, map, now) {
  const { moves, fading, colours: c, still } = map;
  const every = [...moves.values(), ...fading.values()].filter((move) => move.row).slice(0, 300);
  if (!every.length) return;
  const [all, bundles] = bundled(every, (id) => map.nodes.get(id)?.rack ?? "");
  const many = all.length > MANY, later = [];
  g.save();
  const spared = map.words();
  if (spared) g.clip(spared, "evenodd");
  for (const move of all) {
    const [what, name, from, to, state, progress, came] = move.row;
    const leads = what === "leaders" || what === "region";
    const alpha = move.ended ? Math.max(0, 1 - (now - move.ended) / FADES_MS) : Math.min(1, 0.25 + (now - move.since) / 300);
    const kind = leads ? "tikv" : classOf(map, from, name) ?? classOf(map, to, came) ?? "on-demand";
    const look = { line: state === "blocked" ? c.need : c[`l-${kind}`], fill: c[`c-${kind}`], c, alpha, many, still, ended: Boolean(move.ended), dashed: progress === "PD's own" };
    const turn = ((now - (move.since ?? now)) % TURN_MS) / TURN_MS;
    const targets = what === "leaders" ? others(map, from, name) : to ? [to] : [];
    const a = spot(map, from, name, leads);
    if (!targets.length && a && what !== "reserve" && what !== "node") later.push(() => stub(g, a, look, state === "blocked", now));
    for (const target of targets) {
      const b = spot(map, target, came || (target === from ? name : ""), leads);
      if (!a || !b || target === from) { if (a || b) later.push(() => ring(g, what === "pod" ? b ?? a : map.rect(target), look, now)); continue; }
      line(g, a, b, look);
      if (state !== "done" && !still) later.push(() => travel(g, a, b, look, what === "leaders" ? [turn, (turn + 1 / 3) % 1, (turn + 2 / 3) % 1] : [turn], what !== "pod"));
      else if (what === "pod" && move.ended && b.cell) later.push(() => ring(g, b, look, now));
    }
  }
  g.restore();
  for (const bundle of bundles) drawBundle(g, map, bundle, now);
  for (const draw of later) draw();
  g.globalAlpha = 1;
}

// Where a bundle begins and ends: above or below the middle of its nodes, so that no line crosses a tile or its name.
function ends(map, { from, to, moves }) {
  const a = map.boxOf(from), b = map.boxOf(to);
  const middle = (side) => {
    const found = moves.map((move) => map.rect(move.row[side])).filter(Boolean);
    return found.reduce((sum, r) => sum + r.x + r.w / 2, 0) / found.length;
  };
  if (!a || !b) return [null, null, 0.5];
  const down = b.y > a.y + a.h / 2, up = b.y + b.h / 2 < a.y;
  const point = (x, y) => ({ x, y, w: 0, h: 0, flat: true });
  return [point(middle(2), down ? a.y + a.h + 2 : a.y + STRIP), point(middle(3), up ? b.y + b.h + 2 : b.y + STRIP), down ? 0.35 : up ? 0.65 : 0.5];
}

// One line from rack to rack, as thick as there are moves, with their number; the pods themselves are ringed where they stand.
function drawBundle(g, map, { from, to, moves }, now) {
  const { colours: c, still } = map, [a, b, share] = ends(map, { from, to, moves });
  if (!a || !b) return;
  const [, name, node, target, , , came] = moves[0].row;
  const kind = classOf(map, node, name) ?? classOf(map, target, came) ?? "on-demand";
  const ended = moves.every((move) => move.ended);
  const newest = Math.max(...moves.map((move) => move.ended ?? 0));
  const alpha = ended ? Math.max(0, 1 - (now - newest) / FADES_MS) : 1;
  const p = path(a, b), wide = Math.min(9, 2 + 1.3 * Math.log2(moves.length));
  const look = { line: c[`l-${kind}`], fill: c[`c-${kind}`], c, alpha, many: false, still, ended };
  line(g, a, b, look, wide);
  const since = Math.min(...moves.map((move) => move.since ?? now));
  const turn = ((now - since) % TURN_MS) / TURN_MS;
  if (!ended && !still) travel(g, a, b, look, [turn, (turn + 0.5) % 1], false);
  const words = `${moves.length} pods`, x = on(p, share, "x"), y = on(p, share, "y");
  g.globalAlpha = alpha;
  g.font = `600 12px ${c.font}`;
  const room = g.measureText(words).width + 12;
  g.beginPath();
  g.roundRect(x - room / 2, y - 10, room, 20, 10);
  g.fillStyle = c.panel;
  g.fill();
  g.strokeStyle = look.line;
  g.lineWidth = 1.5;
  g.stroke();
  g.fillStyle = c.ink;
  g.textAlign = "center";
  g.fillText(words, x, y + 4.2);
  g.textAlign = "left";
}

// A point of a curve.
function on(p, t, axis) {
  const u = 1 - t;
  return u * u * u * p[`${axis}0`] + 3 * u * u * t * p[`c${axis}0`] + 3 * u * t * t * p[`c${axis}1`] + t * t * t * p[`${axis}1`];
}

function classOf(map, id, pod) {
  const n = pod && map.nodes.get(id), k = n ? n.names.indexOf(pod) : -1;
  return k >= 0 ? cell(n.cells[k]).cls : undefined;
}

// Leaders go to every other store of the same cluster.
function others(map, from, name) {
  const mine = map.nodes.get(from)?.stores.find(([, pod]) => name.endsWith(pod))?.[0];
  if (!mine) return [];
  const cluster = mine.slice(0, mine.lastIndexOf("/"));
  return [...map.nodes.values()].filter((n) => n.id !== from && n.stores.some(([id, , , state]) => id.startsWith(`${cluster}/`) && state === "Up")).map((n) => n.id).slice(0, 12);
}

// The cell of a pod on a tile, the gauge of a store, or the tile.
function spot(map, id, pod, leads) {
  const r = map.rect(id);
  return r ? (leads ? map.gaugeOf(id, r) : map.cellOf(id, pod, r)) ?? r : null;
}

// It leaves sideways and comes sideways, and goes over what stands in one row with it.
function path(a, b) {
  const way = b.x + b.w / 2 >= a.x + a.w / 2 ? 1 : -1;
  const inset = (r) => (r.cell || r.w > 60 ? 0 : r.w * 0.25);
  const x0 = way > 0 ? a.x + a.w - inset(a) : a.x + inset(a), y0 = a.y + a.h / 2;
  const x1 = way > 0 ? b.x + inset(b) : b.x + b.w - inset(b), y1 = b.y + b.h / 2;
  const far = Math.max(30, Math.min(190, Math.abs(x1 - x0) * 0.4));
  const lift = a.flat ? 0 : Math.max(0, 44 - Math.abs(y1 - y0) * 0.7) * Math.min(1, Math.abs(x1 - x0) / 240);
  return { x0, y0, x1, y1, cx0: x0 + way * far, cy0: y0 - lift, cx1: x1 - way * far, cy1: y1 - lift, way };
}

function line(g, a, b, { line: colour, alpha, many, still, ended, dashed, c }, wide = many ? 1.1 : 1.8) {
  const p = path(a, b);
  const trace = () => { g.beginPath(); g.moveTo(p.x0, p.y0); g.bezierCurveTo(p.cx0, p.cy0, p.cx1, p.cy1, p.x1, p.y1); g.stroke(); };
  g.lineCap = "round";
  if (!many) { g.globalAlpha = alpha * 0.55; g.strokeStyle = c.panel; g.lineWidth = wide + 2; trace(); }
  g.globalAlpha = alpha * (still ? 0.9 : many ? 0.45 : ended ? 0.9 : 0.6);
  g.strokeStyle = g.fillStyle = colour;
  g.lineWidth = wide;
  if (dashed) g.setLineDash([5, 4]);
  trace();
  g.setLineDash([]);
  const size = many ? 5 : 8, angle = Math.atan2(p.y1 - p.cy1, p.x1 - p.cx1);
  g.globalAlpha = alpha;
  g.beginPath();
  g.moveTo(p.x1, p.y1);
  g.lineTo(p.x1 - Math.cos(angle - 0.45) * size, p.y1 - Math.sin(angle - 0.45) * size);
  g.lineTo(p.x1 - Math.cos(angle + 0.45) * size, p.y1 - Math.sin(angle + 0.45) * size);
  g.fill();
}

function travel(g, a, b, { fill, line: edge, alpha, many, c }, turns, small) {
  const p = path(a, b);
  for (const turn of turns) {
    const t = turn * turn * (3 - 2 * turn);
    const w = small ? 7 : many ? 9 : 17, h = small ? 7 : many ? 7 : 11;
    const x = on(p, t, "x") - w / 2, y = on(p, t, "y") - h / 2;
    g.globalAlpha = alpha * Math.min(1, 6 * Math.min(turn, 1 - turn) + 0.2);
    if (many) { g.fillStyle = fill; g.fillRect(x, y, w, h); continue; }
    g.beginPath();
    g.roundRect(x - 1, y - 1, w + 2, h + 2, 4);
    g.fillStyle = c.panel;
    g.fill();
    g.beginPath();
    g.roundRect(x, y, w, h, 3);
    g.fillStyle = fill;
    g.strokeStyle = edge;
    g.lineWidth = 1;
    g.fill();
    g.stroke();
  }
}

// Its target is not known yet: its cell is ringed, with a warning sign when it is blocked; without cells a short
// arrow out of the tile, with a bar in its way.
function stub(g, r, look, blocked, now) {
  const { line: colour, alpha, still, c } = look;
  if (r.cell) {
    ring(g, r, { ...look, still: still || blocked }, now);
    if (!blocked) return;
    g.fillStyle = colour;
    g.strokeStyle = c.panel;
    g.beginPath();
    const x = r.x + r.w - 8, y = r.y + r.h / 2; // where the arrow of a moving cell stands: it does not move
    g.moveTo(x, y - 7);
    g.lineTo(x + 7, y + 6);
    g.lineTo(x - 7, y + 6);
    g.closePath();
    g.fill();
    g.stroke();
    return;
  }
  const x = r.x + r.w * 0.75, y = r.y + r.h / 2;
  const reach = 15 + (still || blocked ? 0 : 3 * Math.sin(now / 220));
  g.globalAlpha = alpha;
  g.lineCap = "round";
  for (const [style, wide] of [[c.panel, 5], [colour, 2.2]]) {
    g.strokeStyle = g.fillStyle = style;
    g.lineWidth = wide;
    g.beginPath();
    g.moveTo(x, y);
    g.lineTo(x + reach, y);
    if (blocked) { g.moveTo(x + reach + 3, y - 7); g.lineTo(x + reach + 3, y + 7); }
    g.stroke();
  }
  if (blocked) return;
  g.beginPath();
  g.moveTo(x + reach + 6, y);
  g.lineTo(x + reach - 1, y - 4);
  g.lineTo(x + reach - 1, y + 4);
  g.fill();
}

function ring(g, r, { line: colour, alpha, still }, now) {
  if (!r) return;
  const grow = still ? 2 : 2.5 + 1.5 * Math.sin(now / 250);
  g.globalAlpha = alpha;
  g.strokeStyle = colour;
  g.lineWidth = 2;
  g.beginPath();
  g.roundRect(r.x - grow, r.y - grow, r.w + 2 * grow, r.h + 2 * grow, 5);
  g.stroke();
}
