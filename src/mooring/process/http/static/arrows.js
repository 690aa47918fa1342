// Moves, drawn above the map from where to where. With reduced motion the same lines stand still.

const TURN_MS = 1500;

export function drawArrows(g, map, now) {
  const { moves, fading, colours: c, still } = map;
  const all = [...moves.values(), ...fading.values()].filter((move) => move.row);
  for (const move of all.slice(0, 300)) {
    const [what, name, from, to, state] = move.row;
    const alpha = move.ended ? Math.max(0, 1 - (now - move.ended) / 1400) : Math.min(1, 0.25 + (now - move.since) / 300);
    const targets = what === "leaders" ? others(map, from, name) : to ? [to] : [];
    const colour = what === "leaders" || what === "region" ? c["c-tikv"] : state === "blocked" ? c.need : c.good;
    const strong = (what === "pod" && all.length < 12) || what === "leaders";
    g.globalAlpha = alpha;
    const a = middle(map, from);
    if (!targets.length && a && what !== "reserve") stub(g, a, colour, state === "blocked", c, now, still);
    for (const target of targets) {
      const b = middle(map, target);
      if (!a || !b || target === from) { if (a || b) ring(g, map.rect(target), colour, now, still); continue; }
      arrow(g, a, b, colour, strong, state, still ? 0.5 : ((now - (move.since ?? now)) % TURN_MS) / TURN_MS, what === "leaders" ? 3 : 1, c);
    }
    g.globalAlpha = 1;
  }
}

// Leaders go to every other store of the same cluster.
function others(map, from, name) {
  const mine = map.nodes.get(from)?.stores.find(([, pod]) => name.endsWith(pod))?.[0];
  if (!mine) return [];
  const cluster = mine.slice(0, mine.lastIndexOf("/"));
  return [...map.nodes.values()].filter((n) => n.id !== from && n.stores.some(([id, , , state]) => id.startsWith(`${cluster}/`) && state === "Up")).map((n) => n.id).slice(0, 12);
}

function middle(map, id) {
  const r = map.rect(id);
  return r ? { x: r.x + r.w / 2, y: r.y + r.h / 2, r: Math.min(r.w, r.h) / 2 } : null;
}

function arrow(g, a, b, colour, strong, state, turn, dots, c) {
  const dx = b.x - a.x, dy = b.y - a.y, long = Math.hypot(dx, dy) || 1;
  const bend = Math.min(46, long * 0.18);
  const m = { x: (a.x + b.x) / 2 - (dy / long) * bend, y: (a.y + b.y) / 2 + (dx / long) * bend - bend * 0.4 };
  // From edge to edge, not from middle to middle.
  const p0 = toward(a, m, a.r * 0.7), p1 = toward(b, m, b.r * 0.75);
  const width = strong ? 2.4 : 1.3;
  for (const [style, wide] of [[c.panel, width + 2.5], [colour, width]]) {
    g.strokeStyle = style;
    g.lineWidth = wide;
    g.lineCap = "round";
    g.beginPath();
    g.moveTo(p0.x, p0.y);
    g.quadraticCurveTo(m.x, m.y, p1.x, p1.y);
    g.stroke();
  }
  const angle = Math.atan2(p1.y - m.y, p1.x - m.x), size = strong ? 8 : 5;
  g.fillStyle = colour;
  g.beginPath();
  g.moveTo(p1.x + Math.cos(angle) * size * 0.6, p1.y + Math.sin(angle) * size * 0.6);
  g.lineTo(p1.x - Math.cos(angle - 0.5) * size, p1.y - Math.sin(angle - 0.5) * size);
  g.lineTo(p1.x - Math.cos(angle + 0.5) * size, p1.y - Math.sin(angle + 0.5) * size);
  g.fill();
  if (state === "done") return;
  for (let k = 0; k < dots; k++) {
    const t = (turn + k / dots) % 1, u = 1 - t;
    const x = u * u * p0.x + 2 * u * t * m.x + t * t * p1.x, y = u * u * p0.y + 2 * u * t * m.y + t * t * p1.y;
    g.beginPath();
    g.arc(x, y, strong ? 4.5 : 3, 0, 7);
    g.fillStyle = c.panel;
    g.fill();
    g.beginPath();
    g.arc(x, y, strong ? 3.2 : 2, 0, 7);
    g.fillStyle = colour;
    g.fill();
  }
}

function toward(from, to, by) {
  const dx = to.x - from.x, dy = to.y - from.y, long = Math.hypot(dx, dy) || 1;
  return { x: from.x + (dx / long) * Math.min(by, long / 3), y: from.y + (dy / long) * Math.min(by, long / 3) };
}

// Nobody knows yet where it goes: a short arrow out of the tile; a bar across it when it is blocked.
function stub(g, a, colour, blocked, c, now, still) {
  const reach = a.r + 10 + (still || blocked ? 0 : 3 * Math.sin(now / 220));
  const x = a.x + reach * 0.5, y = a.y - reach * 0.72;
  for (const [style, wide] of [[c.panel, 5], [colour, 2.4]]) {
    g.strokeStyle = style;
    g.lineWidth = wide;
    g.beginPath();
    g.moveTo(a.x + a.r * 0.3, a.y - a.r * 0.43);
    g.lineTo(x, y);
    if (blocked) { g.moveTo(x - 7, y - 4); g.lineTo(x + 7, y + 6); }
    g.stroke();
  }
  if (blocked) return;
  g.fillStyle = colour;
  g.beginPath();
  g.arc(x, y, 3.5, 0, 7);
  g.fill();
}

function ring(g, r, colour, now, still) {
  if (!r) return;
  const grow = still ? 2 : 2 + 2 * Math.sin(now / 250);
  g.strokeStyle = colour;
  g.lineWidth = 2;
  g.beginPath();
  g.roundRect(r.x - grow, r.y - grow, r.w + 2 * grow, r.h + 2 * grow, 6);
  g.stroke();
}
