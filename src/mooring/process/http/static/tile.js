// One tile of the map: a node with its pods and stores. State is shape and word before it is colour.

import { chipAt, inside } from "./layout.js";

export const WORDS = { silent: "not ready" };
export const SIGN = { ok: "", reserved: "□", cordoned: "=", leaving: "~", interrupted: "▲", silent: "!" };
const CLASSES = ["other", "on-demand", "spot", "tikv", "tidb", "pd", "daemon"];
const STARTING = 1, MOVING = 2, ENDING = 3;

// A row of the map is an array, since there are many.
export function node(id, row) {
  const [rack, cls, state, words, until, full, cells, names, stores] = row;
  return { id, rack, cls, state, words, until, full, cells, names: names ?? [], stores: stores ?? [] };
}

// Somebody still runs there: what every node has (DaemonSets) stays until it goes.
export function serves(n) { return n.cells.split("").some((letter) => cell(letter).cls !== "daemon"); }
// Red is for what may still be lost: an interrupted node that is empty is calm.
export function inDanger(n) { return n.state === "interrupted" && serves(n); }
// The state in a word, as a tile has room for it.
export function stateWord(n) {
  if (n.state === "interrupted" && !serves(n)) return "empty";
  if (n.state === "leaving" && !serves(n)) return "empty, awaiting removal";
  return WORDS[n.state] ?? n.state;
}

export function cell(letter) {
  const code = letter.charCodeAt(0) - 48;
  return { cls: CLASSES[code >> 2] ?? "other", state: code & 3 };
}

// The colours of the stylesheet, by name; read again when day turns to night.
export function palette(element) {
  const style = getComputedStyle(element);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  const found = { dark: matchMedia("(prefers-color-scheme: dark)").matches };
  for (const name of ["bg", "panel", "ink", "quiet", "line", "need", "need-bg", "good", "warn", "rack", "free", "on-need"]) found[name] = get(name);
  for (const name of CLASSES) {
    found[`c-${name}`] = get(`c-${name}`);
    found[`l-${name}`] = get(`l-${name}`) || found[`c-${name}`]; // lines and outlines
    found[`t-${name}`] = get(`t-${name}`) || (found.dark ? "#0c1116" : "#fff"); // words on it
  }
  found.font = get("sans");
  return found;
}

export function left(until, now) {
  const s = Math.max(0, Math.ceil(until - now));
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
}

export function short(name, cls) {
  const words = name.slice(name.indexOf("/") + 1);
  if (cls === "tikv" || cls === "tidb" || cls === "pd") return words.split("-").slice(-2).join("-");
  return words.replace(/-[a-z0-9]{5,10}-[a-z0-9]{5}$/, "").replace(/-[a-z0-9]{5}$/, "");
}

// Draws at x, y with w × h pixels of the screen. `gauge(store)`: leaders as drawn just now, 0 to 1.
export function drawTile(g, n, x, y, w, h, c, now, gauge, room) {
  const plan = inside(w, h, n.cells.length, n.stores.length, room);
  const radius = n.cls === "spot" ? Math.min(10, Math.min(w, h) * 0.3) : plan.full ? 3 : 1;
  ground(g, n, x, y, w, h, radius, c, plan);
  if (!plan.full && !plan.medium && w < 13) tiny(g, n, x, y, w, h, c);
  else {
    chips(g, n, x, y, plan, c);
    if (plan.name) title(g, n, x, y, w, plan, radius, c, now);
    else sign(g, n, x, y, w, h, c);
  }
  stores(g, n, x, y, w, plan, c, gauge);
  fullness(g, n, x, y, w, h, plan, c);
}

function ground(g, n, x, y, w, h, radius, c, plan) {
  g.beginPath();
  g.roundRect(x + 0.5, y + 0.5, w - 1, h - 1, radius);
  const danger = inDanger(n);
  g.fillStyle = danger ? c["need-bg"] : c.panel;
  g.fill();
  if (n.state === "leaving" || n.state === "silent") hatch(g, x, y, w, h, radius, n.state === "silent", c);
  g.beginPath();
  g.roundRect(x + 0.5, y + 0.5, w - 1, h - 1, radius);
  const strong = plan.full || plan.medium;
  g.lineWidth = danger ? (strong ? 2.5 : 1.5) : n.state === "ok" ? 1 : strong ? 1.5 : 1;
  g.strokeStyle = danger ? c.need : n.state === "ok" ? c.line : c.quiet;
  g.setLineDash(n.state === "reserved" ? [5, 3] : n.state === "silent" ? [1.5, 2.5] : []);
  g.stroke();
  g.setLineDash([]);
  if (n.state === "cordoned" && strong) {
    g.beginPath();
    g.roundRect(x + 3.5, y + 3.5, w - 7, h - 7, Math.max(0, radius - 2));
    g.lineWidth = 1;
    g.stroke();
  }
}

function hatch(g, x, y, w, h, radius, both, c) {
  g.save();
  g.beginPath();
  g.roundRect(x, y, w, h, radius);
  g.clip();
  g.strokeStyle = c.line;
  g.lineWidth = 1.5;
  const step = Math.max(4, Math.min(9, w / 8));
  g.beginPath();
  for (let k = -h; k < w; k += step) {
    g.moveTo(x + k, y + h);
    g.lineTo(x + k + h, y);
    if (both) { g.moveTo(x + k, y); g.lineTo(x + k + h, y + h); }
  }
  g.stroke();
  g.restore();
}

function title(g, n, x, y, w, plan, radius, c, now) {
  const size = plan.large ? 14 : plan.full ? 12 : 9.5;
  const base = y + (plan.large ? 17.5 : plan.full ? 14.5 : 10.5);
  const inset = plan.full ? 8 : 4;
  let room = w - 2 * inset;
  const loud = inDanger(n), calm = n.state === "interrupted" && !loud;
  const mark = calm ? "✓" : SIGN[n.state];
  if (loud) {
    g.fillStyle = c.need;
    g.beginPath();
    g.roundRect(x + 0.5, y + 0.5, w - 1, plan.name - 1, [radius, radius, 0, 0]);
    g.fill();
  }
  const used = n.full >= 0 ? `${n.full} %` : "";
  const right = loud && n.until ? left(n.until, now) : calm && plan.full ? ["empty", n.until ? left(n.until, now) : ""].filter(Boolean).join(" ")
    : plan.full ? (n.state === "ok" ? [n.cls === "spot" ? "spot" : "", used].filter(Boolean).join(" ") : stateWord(n)) : mark;
  if (right) {
    g.font = `${loud ? 700 : 500} ${plan.large ? 12.5 : plan.full ? 11 : 9}px ${c.font}`;
    g.textAlign = "right";
    g.fillStyle = loud ? c["on-need"] : n.state === "ok" ? c.quiet : c.ink;
    let words = loud && plan.full ? `▲ ${right}` : plan.full && mark ? `${mark} ${right}` : right;
    const least = n.state === "ok" ? (n.cls === "spot" ? "spot" : "") : mark; // what stays where room is scarce
    if (!loud && g.measureText(words).width > room - Math.min(room * 0.6, 7 * (n.label ?? n.id).length + 6)) words = least;
    const wide = g.measureText(words).width;
    if (words && wide < room - 14) { g.fillText(words, x + w - inset, base); room -= wide + 6; }
  }
  g.font = `600 ${size}px ${c.font}`;
  g.textAlign = "left";
  g.fillStyle = loud ? c["on-need"] : c.ink;
  g.fillText(fit(g, n.label ?? n.id, room), x + inset, base);
}

// A name that is too long loses its middle.
function fit(g, words, room) {
  if (g.measureText(words).width <= room) return words;
  for (let keep = words.length - 2; keep > 2; keep--) {
    const head = Math.ceil(keep / 2);
    const cut = `${words.slice(0, head)}…${words.slice(words.length - (keep - head))}`;
    if (g.measureText(cut).width <= room) return cut;
  }
  return words.slice(0, 3);
}

function chips(g, n, x, y, plan, c) {
  if (!plan.chip) return;
  const { w, h } = plan.chip;
  const named = w >= 30 && n.names.length === n.cells.length;
  if (named) { g.font = `500 ${h >= 30 ? 13.5 : h >= 25 ? 12.5 : h >= 21 ? 11.5 : h >= 15 ? 10.5 : 9}px ${c.font}`; g.textAlign = "left"; }
  for (let k = 0; k < n.cells.length; k++) {
    const at = chipAt(plan, k);
    const pod = cell(n.cells[k]);
    chip(g, pod, x + at.x, y + at.y, w, h, c, named ? n.names[k] : "", n.state === "silent");
    if (away(n, pod) && w > 6) corner(g, x + at.x + w, y + at.y, Math.min(7, h / 2), c);
  }
}

// It belongs on a node of the other class, and is here since there is, or was, no room.
function away(n, pod) {
  return (pod.cls === "spot" && n.cls === "on-demand") || (pod.cls === "on-demand" && n.cls === "spot");
}

function corner(g, x, y, s, c) {
  g.fillStyle = c.ink;
  g.beginPath();
  g.moveTo(x - s, y);
  g.lineTo(x, y);
  g.lineTo(x, y + s);
  g.fill();
}

function chip(g, pod, x, y, w, h, c, name, faded) {
  const colour = c[`c-${pod.cls}`];
  const radius = w > 12 ? 3 : 1;
  g.globalAlpha = faded ? 0.4 : 1;
  if (w <= 6) {
    g.fillStyle = colour;
    if (pod.state === STARTING || pod.state === ENDING) g.globalAlpha *= 0.4;
    g.fillRect(x, y, w, h);
    if (pod.state === MOVING) { g.fillStyle = c.ink; g.fillRect(x + w / 4, y + h / 4, w / 2, h / 2); }
    g.globalAlpha = 1;
    return;
  }
  g.beginPath();
  g.roundRect(x + 0.5, y + 0.5, w - 1, h - 1, radius);
  g.lineWidth = pod.state === MOVING ? 2 : 1;
  if (pod.state === STARTING) {
    g.setLineDash([2.5, 2]);
    g.strokeStyle = c[`l-${pod.cls}`];
    g.stroke();
    g.setLineDash([]);
  } else if (pod.state === ENDING) {
    g.globalAlpha *= 0.3;
    g.fillStyle = colour;
    g.fill();
    g.globalAlpha = faded ? 0.4 : 1;
    g.strokeStyle = c[`l-${pod.cls}`];
    g.stroke();
    g.beginPath();
    g.moveTo(x + 2, y + h - 2);
    g.lineTo(x + w - 2, y + 2);
    g.stroke();
  } else {
    g.fillStyle = colour;
    g.fill();
    if (pod.state === MOVING) { g.strokeStyle = c.ink; g.stroke(); }
  }
  if (name) {
    g.fillStyle = pod.state === STARTING || pod.state === ENDING ? c.ink : c[`t-${pod.cls}`];
    const arrow = pod.state === MOVING ? "→" : "";
    const inset = h >= 21 ? 7 : w < 40 ? 2.5 : 4, base = y + h / 2 + (h >= 21 ? 4.2 : 3.6);
    g.fillText(fit(g, short(name, pod.cls), w - 2 * inset - (arrow ? 10 : 0)), x + inset, base);
    if (arrow) { g.textAlign = "right"; g.fillText(arrow, x + w - inset + 1, base); g.textAlign = "left"; }
  }
  g.globalAlpha = 1;
}

function stores(g, n, x, y, w, plan, c, gauge) {
  if (!plan.gaugeH) return;
  n.stores.slice(0, plan.full ? 3 : 1).forEach((store, k) => {
    const [, pod, leaders, state] = store;
    const top = y + plan.gaugeY + k * plan.gaugeH;
    let from = x + plan.inset, to = x + w - plan.inset;
    if (plan.full) {
      // With room for it the words stand above the bar, else beside it.
      const high = plan.large, base = top + (high ? 11 : 9);
      const words = state !== "evicting" ? "leaders" : w > 130 ? "leaders leave" : "leaving";
      const label = w > 130 ? `${short(pod, "tikv")} ${words}` : high || w >= 100 ? words : "";
      const number = leaders.toLocaleString("en");
      g.font = `${high ? 600 : 500} ${high ? 11.5 : 10}px ${c.font}`;
      g.textAlign = "right";
      g.fillStyle = c.ink;
      g.fillText(number, to, base);
      const wide = g.measureText(number).width;
      g.font = `500 ${high ? 11 : 10}px ${c.font}`;
      g.fillStyle = c.quiet;
      g.textAlign = "left";
      g.fillText(high ? fit(g, label, to - from - wide - 6) : label, from, base);
      if (!high) {
        from += label ? g.measureText(label).width + 5 : 0;
        to -= Math.max(20, wide + 5);
      }
    }
    const height = plan.large ? 8 : plan.full ? 7 : plan.gaugeH - 2;
    const at = top + (plan.large ? 15 : plan.full ? 2.5 : 0);
    const share = Math.min(1, gauge(store)), colour = state === "Up" || state === "evicting" ? c["c-tikv"] : c.need;
    g.fillStyle = c.free;
    g.beginPath();
    g.roundRect(from, at, to - from, height, 2);
    g.fill();
    g.fillStyle = colour;
    g.beginPath();
    g.roundRect(from, at, (to - from) * share, height, 2);
    g.fill();
    if (state === "evicting") {
      // It empties: arrows that point out of it.
      g.fillStyle = c.ink;
      g.textAlign = "right";
      g.font = `700 ${plan.full ? 11 : 8}px ${c.font}`;
      g.fillText("»", to - 1, at + height - (plan.full ? 0.5 : 0));
    }
  });
}

function fullness(g, n, x, y, w, h, plan, c) {
  if (!plan.full || n.full < 0) return;
  const high = plan.large ? 4 : 3;
  g.fillStyle = c.free;
  g.fillRect(x + 7, y + h - 2 - high, w - 14, high);
  g.fillStyle = n.full >= 90 ? c.warn : c.quiet;
  g.fillRect(x + 7, y + h - 2 - high, ((w - 14) * n.full) / 100, high);
}

// Too small for pods: as high as the node is full, in the colour of its class, quiet enough for news to stand out.
function tiny(g, n, x, y, w, h, c) {
  if (n.state !== "silent") {
    const share = n.full >= 0 ? n.full / 100 : Math.min(1, n.cells.length / 30);
    g.globalAlpha = 0.5;
    g.fillStyle = c[n.cls === "spot" ? "l-spot" : n.cls === "on-demand" ? "c-on-demand" : "c-other"];
    g.fillRect(x + 1.5, y + 1.5 + (h - 3) * (1 - share), w - 3, (h - 3) * share);
    g.globalAlpha = 1;
  }
  sign(g, n, x, y, w, h, c);
}

// Shapes that are told apart at five pixels: a triangle, a bar, a slash, a frame, a cross.
function sign(g, n, x, y, w, h, c) {
  if (n.state === "ok") return;
  const s = Math.min(w, h, 22) * 0.7, cx = x + w / 2, cy = y + h / 2;
  g.strokeStyle = g.fillStyle = inDanger(n) ? c.need : n.state === "interrupted" ? c.quiet : c.ink;
  g.lineWidth = Math.max(1.5, s / 6);
  g.beginPath();
  if (n.state === "interrupted") { g.moveTo(cx, cy - s / 2); g.lineTo(cx + s / 2, cy + s / 2); g.lineTo(cx - s / 2, cy + s / 2); g.fill(); return; }
  if (n.state === "silent") { g.moveTo(cx - s / 2, cy - s / 2); g.lineTo(cx + s / 2, cy + s / 2); g.moveTo(cx + s / 2, cy - s / 2); g.lineTo(cx - s / 2, cy + s / 2); }
  if (n.state === "cordoned") { g.moveTo(cx - s / 2, cy - s / 6); g.lineTo(cx + s / 2, cy - s / 6); g.moveTo(cx - s / 2, cy + s / 4); g.lineTo(cx + s / 2, cy + s / 4); }
  if (n.state === "leaving") { g.moveTo(cx - s / 2, cy + s / 2); g.lineTo(cx + s / 2, cy - s / 2); }
  if (n.state === "reserved") g.rect(cx - s / 2, cy - s / 2, s, s);
  g.stroke();
}

// The text of a tile for screen readers.
export function described(n, now) {
  const parts = [n.id, `rack ${n.rack}`, n.cls, n.state === "ok" ? "ready" : n.words || n.state];
  if (n.state !== "ok" && !serves(n)) parts.push(n.state === "leaving" ? "empty, awaiting removal" : "empty");
  if (n.until) parts.push(`${left(n.until, now)} left`);
  parts.push(`${n.cells.length} ${n.cells.length === 1 ? "pod" : "pods"}`);
  const strays = n.cells.split("").filter((letter) => away(n, cell(letter))).length;
  if (strays) parts.push(`${strays} away from ${strays === 1 ? "its" : "their"} class`);
  if (n.full >= 0) parts.push(`${n.full} percent requested`);
  for (const [, pod, leaders, state] of n.stores) parts.push(`${pod} ${leaders} leaders${state === "Up" ? "" : `, ${state}`}`);
  return parts.join(", ");
}
