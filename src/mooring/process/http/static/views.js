// The columns of the five views: how a row becomes text. Each picture (bar, glyphs) stands beside its numbers.

import { make, text } from "./table.js";

const GLYPH = {
  blocked: "▲", refused: "×", moving: "●", waiting: "○", "?": "?",
  ok: "·", reserved: "□", cordoned: "=", leaving: "~", interrupted: "▲", silent: "!",
  finished: "✓", promoted: "●", queued: "○", canceled: "×", failed: "×", timeout: "×",
};
// As the queue has it: one word for one thing.
const WORD = { promoted: "moving", queued: "waiting", finished: "done", timeout: "failed" };

export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  if (s >= 3600) return `${Math.floor(s / 3600)}:${pad(Math.floor((s % 3600) / 60))}:${pad(s % 60)}`;
  return `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

export function clock(at) { return at ? new Date(at * 1000).toISOString().slice(11, 19) : "–"; }

function pad(n) { return String(n).padStart(2, "0"); }

// What is not there is a dash: quiet, and left out where there is little room.
function put(cell, words) {
  const nothing = words === undefined || words === null || words === "";
  cell.classList.toggle("none", nothing);
  text(cell, nothing ? "–" : words);
}

// Words with the hashes of ReplicaSets set apart: a narrow view leaves them out.
const HASH = /(-[bcdfghjklmnpqrstvwxz2456789]{8,10}-)(?=[bcdfghjklmnpqrstvwxz2456789]{5}\b)/;
function told(words) { return words.split(HASH).map((part, k) => (k % 2 ? make("span", "hash", part) : part)); }

function tell(cell, words) {
  if (!words) { cell.key = null; put(cell, words); return; }
  if (cell.key === words) return;
  cell.key = words;
  cell.classList.remove("none");
  cell.replaceChildren(...told(words));
}

const plain = (key) => (cell, row) => put(cell, row[key]);

// A name too long for its cell loses its middle: both ends tell it from its siblings. The end begins at a joint.
const LONG = 26;
const ENDS = 14;
const named = (key) => (cell, row) => {
  const words = String(row[key] ?? "");
  if (words.length < LONG) { cell.key = null; cell.classList.remove("cut"); put(cell, words); return; }
  if (cell.key === words) return;
  cell.key = words;
  cell.classList.remove("none");
  cell.classList.add("cut");
  const joint = words.slice(-ENDS).search(/[-/ .]/);
  const end = words.length - ENDS + (joint < 0 ? ENDS / 2 : joint);
  const [start, tail] = [make("span"), make("span")];
  const hash = HASH.test(words) ? words.slice(0, end).search(/-[a-z0-9]{8,10}$/) : -1;
  start.append(...(hash < 0 ? [words.slice(0, end)] : [words.slice(0, hash), make("span", "hash", words.slice(hash, end))]));
  tail.append(words.slice(end));
  cell.replaceChildren(start, tail);
};

// A target keeps its sum in sight; a sentence simply ends where the room does.
function waitingOn(cell, row) {
  if (/^\S+ [\d+/]+$/.test(row.waiting_on ?? "")) { named("waiting_on")(cell, row); return; }
  cell.classList.remove("cut");
  tell(cell, row.waiting_on);
}

// The line that stands for all nodes with nothing to say has one cell only.
function unlessList(fill) {
  return (cell, row, s) => {
    cell.classList.toggle("void", Boolean(row.list));
    return row.list ? text(cell, "") : fill(cell, row, s);
  };
}

function state(cell, row) {
  text(cell, `${GLYPH[row.state] ?? "?"} ${row.state}`);
  cell.dataset.state = row.state;
}

// The overview has room for one of both: what it waits for, else how far it has come.
function now(cell, row) {
  const [, count, name] = /^(\d+\/\d+) (.*)$/.exec(row.step ?? "") ?? [];
  if (!count) { waitingOn(cell, row); return; }
  cell.classList.remove("cut");
  tell(cell, `step ${count}: ${row.waiting_on || row.progress || name}`);
}

// Those in the way, each a link to its own why.
function by(cell, row) {
  const names = row.by ?? [];
  const key = names.join("\n");
  if (cell.key === key) return;
  cell.key = key;
  cell.classList.toggle("none", !names.length);
  cell.replaceChildren(...(names.length ? names.flatMap((name, k) => [...(k ? [", "] : []), link(name)]) : ["–"]));
}

function link(name) {
  const op = /^op (\d+)$/.exec(name);
  if (!op) return name;
  const found = make("span", "link", name);
  found.dataset.about = `operator/${op[1]}`;
  return found;
}

export const COLUMNS = {
  queue: [
    { name: "state", cls: "c-first", fill: state },
    { name: "op", cls: "c-op", fill: plain("op") },
    { name: "source", cls: "c-source", fill: plain("source") },
    { name: "what", cls: "c-main", fill: named("what") },
    { name: "step", cls: "c-more c-step", fill: (cell, row) => put(cell, [row.step, row.progress].filter(Boolean).join(", ")) },
    { name: "waiting for", cls: "c-more c-wait", fill: waitingOn },
    { name: "step, waiting for", cls: "c-more c-now", fill: now },
    { name: "missing", cls: "num c-missing", fill: plain("missing") },
    { name: "used by", cls: "c-more c-by", fill: by },
    { name: "since", cls: "num c-last", fill: (cell, row, s) => put(cell, row.since ? span(s.asOf - row.since) : "") },
    { name: "deadline", cls: "num c-deadline", fill: (cell, row, s) => put(cell, row.deadline ? `in ${span(row.deadline - s.asOf)}` : "") },
  ],
  stores: [
    { name: "store", cls: "c-main", fill: named("id") },
    { name: "pod", cls: "c-wide c-pod", fill: named("pod") },
    { name: "node", cls: "c-wide c-node", fill: plain("node") },
    { name: "rack", cls: "c-wide c-rack2", fill: plain("rack") },
    { name: "", label: "use as a bar", cls: "bar", fill: bar },
    { name: "used/limit", cls: "num c-last", fill: (cell, row) => text(cell, `${row.used ?? 0}/${row.limit ?? "∞"}${row.reserved ? ` +${row.reserved} reserved` : ""}`) },
    { name: "leaders", cls: "num c-wide", fill: (cell, row) => text(cell, (row.leaders ?? 0).toLocaleString("en")) },
    { name: "used by", cls: "c-more", fill: usedBy },
  ],
  nodes: [
    { name: "node", cls: "over c-main", fill: (cell, row) => text(cell, row.list ? row.id : `${GLYPH[row.state ?? "ok"] ?? "?"} ${row.id}`) },
    { name: "class", cls: "c-last", fill: unlessList(plain("cls")) },
    { name: "rack", cls: "c-rack", fill: unlessList(plain("rack")) },
    { name: "pods", cls: "c-more c-step", fill: unlessList(pods) },
    { name: "news", cls: "c-more", fill: unlessList(news) },
  ],
  racks: [
    { name: "rack", cls: "c-main", fill: plain("id") },
    { name: "nodes", cls: "num c-last", fill: plain("total") },
    { name: "state", cls: "c-more", fill: rack },
    { name: "", label: "one sign a node", cls: "glyphs c-more", fill: glyphs },
  ],
  timeline: [
    { name: "time", cls: "c-first", fill: (cell, row) => text(cell, clock(row.at)) },
    { name: "", label: "how it stands", cls: "c-op", fill: stands },
    { name: "what happened", cls: "c-main words", fill: happened },
    { name: "op", cls: "c-last num", fill: (cell, row) => text(cell, row.step ? "" : `op ${row.op}`) },
    { name: "source", cls: "c-more c-source", fill: (cell, row) => (row.step ? text(cell, "") : put(cell, row.source)) },
  ],
};

function stands(cell, row, s) {
  // The queue knows more of what runs: it may be blocked.
  const now = s?.tables.queue.rows.get(row.op)?.state;
  const state = now === "blocked" ? now : row.state;
  cell.dataset.state = state ?? "";
  text(cell, row.step ? "" : `${GLYPH[state] ?? "·"} ${WORD[state] ?? state}`);
}

// One line per move, and a sign that opens its steps.
function happened(cell, row) {
  const key = `${row.id} ${row.words} ${row.step ?? ""} ${row.open ?? ""}`;
  if (cell.key === key) return;
  cell.key = key;
  cell.classList.toggle("step", Boolean(row.step));
  if (row.step) { cell.replaceChildren(row.words ?? ""); return; }
  const sign = make("span", "unfold", row.open ? "▾" : "▸");
  sign.dataset.about = "steps";
  sign.title = "its steps (→ and ←)";
  cell.replaceChildren(sign, " ", ...told(row.words ?? ""));
}

const KINDS = /^(pod|node|machine|workload|operator|store|cluster)\//;

// What `why` is asked about when a row is opened.
export function subject(view, row) {
  if (view === "queue") return row.subject;
  if (view === "stores") return row.subject ?? `store/${row.id}`;
  if (view === "nodes") return `node/${row.id}`;
  if (view === "racks") return `rack/${row.id}`;
  return KINDS.test(row.about ?? "") ? row.about : `operator/${row.op}`;
}

function bar(cell, row) {
  const scale = Math.max(row.limit ?? 0, row.used ?? 0, 1);
  const key = JSON.stringify([row.used_by, row.reserved, row.limit, row.used]);
  if (cell.key === key) return;
  cell.key = key;
  const bar = make("span", "bar-line");
  bar.setAttribute("aria-hidden", "true");
  let used = 0;
  (row.used_by ?? []).forEach(([, amount, kind], k) => {
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

function usedBy(cell, row) {
  const parts = grouped(row.used_by ?? []).map(([who, amount]) => `${who}: ${amount}`);
  const waiting = row.waiting ?? [];
  if (waiting.length) parts.push(`${waiting.length === 1 ? "1 waiting" : `${waiting.length} waiting`} (op ${waiting.slice(0, 3).join(", ")}${waiting.length > 3 ? ", …" : ""})`);
  if (row.evicting) parts.push("leaders leave");
  const told = (row.used_by ?? []).some(([, , kind]) => kind === "fact"); // a fact says so in its own words
  if (row.state && row.state !== "Up" && !told) parts.unshift(`store is ${row.state}`);
  put(cell, parts.join(" · "));
}

// What PD does alike on many regions is one thing.
function grouped(users) {
  const found = new Map();
  for (const [who, amount] of users) {
    const [, what] = /^(PD runs \S+) on region \d+$/.exec(who) ?? [, who];
    const known = found.get(what) ?? { who, count: 0, amount: 0 };
    found.set(what, { who: known.count ? `${what} on ${known.count + 1} regions` : who, count: known.count + 1, amount: known.amount + amount });
  }
  return [...found.values()].map(({ who, amount }) => [who, amount]);
}

function pods(cell, row) {
  const parts = (row.pods ?? []).map(([name, count]) => `${name} ${count}`);
  if (row.more) parts.push(`+${row.more}`);
  put(cell, parts.join(" · "));
}

function news(cell, row, s) {
  const parts = [row.news ?? ""];
  if (row.since) parts.push(`for ${span(s.asOf - row.since)}`);
  if (row.until) parts.push(`${span(row.until - s.asOf)} left`);
  put(cell, parts.filter(Boolean).join(", "));
}

// Nodes by state: the same signs, words and counts on the map, in the table of nodes and in the racks.
const STATES = [["interrupted", "▲", "interrupted"], ["silent", "!", "not ready"], ["leaving", "~", "leaving"], ["cordoned", "=", "cordoned"], ["reserved", "□", "reserved"]];
export function signs(counts, n = String) {
  return STATES.filter(([state]) => counts[state]).map(([state, sign, word]) => `${sign} ${n(counts[state])} ${word}`);
}

function rack(cell, row) {
  const rest = [["·", row.ok, "ready"], ["–", row.spare, "spare"]].filter(([, count]) => count).map(([sign, count, word]) => `${sign} ${count} ${word}`);
  text(cell, [...signs(row), ...rest].join("\u2002"));
}

function glyphs(cell, row) {
  const signs = row.glyphs ?? "";
  cell.classList.toggle("none", !signs);
  cell.setAttribute("aria-hidden", "true"); // the numbers stand beside it
  text(cell, signs);
}

const BARS = "▁▂▃▄▅▆▇█";

export function sparkline(counts) {
  const top = Math.max(1, ...counts);
  return counts.map((n) => (n ? BARS[Math.min(7, Math.ceil((7 * n) / top))] : "▁")).join("");
}
