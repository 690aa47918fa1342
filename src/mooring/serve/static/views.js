// The columns of the five views: how a row becomes text. Each picture (bar, glyphs) stands beside its numbers.

import { make, text } from "./table.js";

const GLYPH = { held: "▲", refused: "×", runs: "●", waits: "○", "?": "?", trouble: "▲", moving: "~", ok: "·" };

export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  if (s >= 3600) return `${Math.floor(s / 3600)}:${pad(Math.floor((s % 3600) / 60))}:${pad(s % 60)}`;
  return `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

export function clock(at) { return at ? new Date(at * 1000).toISOString().slice(11, 19) : "–"; }

function pad(n) { return String(n).padStart(2, "0"); }

const plain = (key) => (cell, row) => text(cell, row[key] === undefined || row[key] === "" ? "–" : row[key]);

// The line that stands for all nodes with nothing to say has one cell only.
function unlessList(fill) { return (cell, row, s) => (row.list ? text(cell, "") : fill(cell, row, s)); }

function state(cell, row) {
  text(cell, `${GLYPH[row.state] ?? "?"} ${row.state}`);
  cell.dataset.state = row.state;
}

export const COLUMNS = {
  queue: [
    { name: "state", fill: state },
    { name: "op", fill: plain("op") },
    { name: "source", fill: plain("source") },
    { name: "what", cls: "wide", fill: plain("what") },
    { name: "step", cls: "wide", fill: (cell, row) => text(cell, [row.step, row.progress].filter(Boolean).join(", ") || "–") },
    { name: "waits for", cls: "wide", fill: plain("waits") },
    { name: "missing", cls: "num", fill: plain("missing") },
    { name: "held by", fill: (cell, row) => text(cell, (row.by ?? []).join(", ") || "–") },
    { name: "since", cls: "num", fill: (cell, row, s) => text(cell, row.since ? span(s.asOf - row.since) : "–") },
    { name: "deadline", cls: "num", fill: (cell, row, s) => text(cell, row.deadline ? `in ${span(row.deadline - s.asOf)}` : "–") },
  ],
  stores: [
    { name: "store", fill: plain("id") },
    { name: "pod", fill: plain("pod") },
    { name: "node", fill: plain("node") },
    { name: "rack", fill: plain("rack") },
    { name: "", cls: "bar", fill: bar },
    { name: "used/limit", cls: "num", fill: (cell, row) => text(cell, `${row.used ?? 0}/${row.limit ?? "∞"}`) },
    { name: "leaders", cls: "num", fill: (cell, row) => text(cell, (row.leaders ?? 0).toLocaleString("en")) },
    { name: "held by", cls: "wide", fill: held },
  ],
  nodes: [
    { name: "node", cls: "over", fill: (cell, row) => text(cell, row.list ? row.id : `${GLYPH[row.state ?? "ok"] ?? "?"} ${row.id}`) },
    { name: "class", fill: unlessList(plain("cls")) },
    { name: "rack", fill: unlessList(plain("rack")) },
    { name: "pods", cls: "wide", fill: unlessList(pods) },
    { name: "news", cls: "wide", fill: unlessList(news) },
  ],
  racks: [
    { name: "rack", fill: plain("id") },
    { name: "machines", cls: "num", fill: plain("total") },
    { name: "state", fill: rack },
    { name: "", cls: "glyphs", fill: (cell, row) => text(cell, row.glyphs ?? "") },
  ],
  timeline: [
    { name: "time", fill: (cell, row) => text(cell, clock(row.at)) },
    { name: "op", fill: plain("op") },
    { name: "source", fill: plain("source") },
    { name: "what", fill: plain("verb") },
    { name: "about", cls: "wide", fill: plain("about") },
    { name: "because", cls: "wide", fill: (cell, row) => text(cell, [row.text, row.reason && `(${row.reason})`].filter(Boolean).join(" ") || "–") },
  ],
};

// What `why` is asked about when a row is opened.
export function subject(view, row) {
  if (view === "queue") return row.subject;
  if (view === "stores") return `store/${row.id}`;
  if (view === "nodes") return `node/${row.id}`;
  if (view === "timeline") return row.about || row.subject;
  return "";
}

function bar(cell, row) {
  const scale = Math.max(row.limit ?? 0, row.used ?? 0, 1);
  const key = JSON.stringify([row.held, row.reserved, row.limit, row.used]);
  if (cell.key === key) return;
  cell.key = key;
  const bar = make("span", "bar-line");
  bar.setAttribute("aria-hidden", "true");
  let used = 0;
  (row.held ?? []).forEach(([, amount, kind], k) => {
    bar.append(piece(kind === "fact" ? "seg fact" : `seg op${k % 3}`, amount / scale));
    used += amount;
  });
  const reserved = Math.min(row.reserved ?? 0, scale - used);
  if (reserved > 0) bar.append(piece("seg reserved", reserved / scale));
  if (row.limit && row.limit < scale) {
    const tick = make("span", "tick");
    tick.style.left = `${(100 * row.limit) / scale}%`;
    bar.append(tick);
  }
  cell.replaceChildren(bar);
}

function piece(cls, share) {
  const segment = make("span", cls);
  segment.style.width = `${100 * share}%`;
  return segment;
}

function held(cell, row) {
  const parts = (row.held ?? []).map(([who, amount]) => `${who}: ${amount}`);
  if (row.reserved) parts.push(`reserved ${row.reserved}`);
  if (row.waiting?.length) parts.push(`${row.waiting.length} waits (op ${row.waiting.slice(0, 3).join(", ")})`);
  if (row.evicting) parts.push("leaders leave");
  if (row.state && row.state !== "Up") parts.unshift(`store is ${row.state}`);
  text(cell, parts.join(" · ") || "–");
}

function pods(cell, row) {
  const parts = (row.pods ?? []).map(([name, count]) => `${name} ${count}`);
  if (row.more) parts.push(`+${row.more}`);
  text(cell, parts.join("  ") || "–");
}

function news(cell, row, s) {
  const parts = [row.news ?? ""];
  if (row.since) parts.push(`for ${span(s.asOf - row.since)}`);
  if (row.until) parts.push(`${span(row.until - s.asOf)} left`);
  text(cell, parts.filter(Boolean).join(", ") || "–");
}

function rack(cell, row) {
  const parts = [`●${row.ok}`];
  if (row.moving) parts.push(`~${row.moving} on the way`);
  if (row.trouble) parts.push(`▲${row.trouble} trouble`);
  if (row.spare) parts.push(`–${row.spare} spare`);
  text(cell, row.moving || row.trouble ? parts.join(" ") : `${parts.join(" ")}  nothing to see`);
}

const BARS = "▁▂▃▄▅▆▇█";

export function sparkline(counts) {
  const top = Math.max(1, ...counts);
  return counts.map((n) => (n ? BARS[Math.min(7, Math.ceil((7 * n) / top))] : "▁")).join("");
}
