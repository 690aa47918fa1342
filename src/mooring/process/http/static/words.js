// The page's own words: what empty views say, what stands beside a view's name, how old the data is.

import { clock, signs, span, sparkline } from "./views.js";

const BADGE_S = 5;
const GREY_S = 20;

// What an empty view says: the filter that empties it, or what would have to be there.
export function nothing(name, page, hidden) {
  if (page.filter) return `nothing here matches “${page.filter}” (${hidden.toLocaleString("en")} hidden; Esc clears)`;
  if (!page.heard) return "waiting for the first frame …";
  if (name === "queue" && !page.shown.head.deciding) return "This replica does not decide; only the leader has a queue.";
  return {
    map: "No nodes are known yet.",
    queue: "No pending changes: nothing for you to do.",
    stores: "No stores are known: there is no TidbCluster, or its PD has not answered yet; nor another system with leaders.",
    nodes: "No nodes are known yet.",
    racks: "No racks: no machine registry, and no node carries a rack or a zone.",
    timeline: "No changes since this Mooring started.",
  }[name];
}

// The line beside the name of a view. `view`: the one shown alone, or "all".
export function summary(name, table, view, classes = {}) {
  const n = (value) => (value ?? 0).toLocaleString("en");
  if (name === "map") {
    const unplaced = classes.unplaced ? [`${n(classes.unplaced)} pods without a node`] : [];
    return [`${n(table.total)} nodes`, ...signs(table.sums, n), ...unplaced].join("\u2002");
  }
  if (name === "nodes") {
    const s = table.sums;
    const unknown = s.unknown ? ` │ unknown ${n(s.unknown)}` : "";
    const news = signs({ ...s, leaving: 0 }, n);
    return `on-demand ${n(s["on-demand"])} │ spot ${n(s.spot)}${unknown} │ ~ leaving ${n(s.leaving)} │ unplaced ${n(s.unplaced)} pods${news.length ? ` │ ${news.join("\u2002")}` : ""}${s.worth ? ` │ ${s.worth}` : ""}`;
  }
  if (name === "stores") {
    const lost = Object.keys(table.sums.lost ?? {});
    return `${n(table.total)}${table.total > 1 ? ", fullest first" : ""}${lost.length ? ` · PD does not answer: ${lost.join(", ")}` : ""}`;
  }
  if (name === "racks") return `${n(table.total)}${table.sums.quiet ? `, ${n(table.sums.quiet)} with no news` : ""}`;
  if (name === "timeline") return view === "all" ? "" : "newest on top; ▸ opens the steps";
  const s = table.sums;
  const states = [["blocked", "▲", "blocked"], ["refused", "×", "refused"], ["moving", "●", "moving"], ["waiting", "○", "waiting"]];
  const parts = states.filter(([key]) => s[key]).map(([key, glyph, word]) => `${glyph} ${n(s[key])} ${word}`);
  const cut = view !== "queue" && table.total > table.order.length ? ` · the first ${n(table.order.length)} (2: all)` : "";
  return `${parts.join("\u2002")}${cut}`;
}

// Moves alike, one after the other, are one line: what 23 pods did on a notice is one thing. Opened, it is theirs.
const ALIKE = 4;
const WENT = /^\S+ (went|goes|left|leaves) (spot |on-demand )?(\S+?)(?: → (spot |on-demand )?\S+?)?(?:, away [^:]*)?(?:: (.*))?$/;

export function folded(rows) {
  const found = [];
  let last = null;
  for (const row of rows) {
    const [, verb, from = "", node, to = "", why = ""] = WENT.exec(row.words ?? "") ?? [];
    const reason = why.replaceAll(` on ${node}`, "");
    const key = verb && row.state !== "blocked" ? JSON.stringify([row.source, row.state, verb, from, to, reason]) : "";
    if (key && last?.key === key) { last.rows.push(row); last.nodes.add(node); continue; }
    last = { key, rows: [row], nodes: new Set([node]), verb, from, to, reason };
    found.push(last);
  }
  return found.flatMap(({ key, rows: alike, nodes, verb, from, to, reason }) => {
    if (!key || alike.length < ALIKE) return alike;
    const where = nodes.size === 1 ? [...nodes][0] : `${nodes.size} ${from}nodes`;
    const words = `${alike.length} pods ${verb === "went" || verb === "left" ? "left" : "leave"} ${where}${to ? `, to ${to.trim()}` : ""}${reason ? `: ${reason}` : ""}`;
    const [first] = alike;
    return [{ ...first, id: `all ${first.id}`, op: `${alike.at(-1).op} to ${first.op}`, words, steps: [], members: alike }];
  });
}

// The last hours, a bar for each quarter: [name, bars, what it is now]. Less than three quarters are no trend.
export function trend(found = {}) {
  const names = [["moves", "moves", ""], ["waiting", "waiting", ""], ["blocked", "blocked", ""], ["spot", "on spot", " %"]];
  return names.filter(([key]) => (found[key] ?? []).length >= 3 && found[key].some(Boolean))
    .map(([key, word, unit]) => [word, sparkline(found[key].map((n) => n ?? 0)), `${(found[key].at(-1) ?? 0).toLocaleString("en")}${unit}`]);
}

// The first that needs a person, with its times.
export function needed(head, asOf) {
  const parts = [head.needs_words];
  if (head.needs_since) parts.push(`for ${span(asOf - head.needs_since)}`);
  if (head.needs_until) parts.push(`deadline in ${span(head.needs_until - asOf)}`);
  return parts.join(", ");
}

// How old the shown data is: a state for the style, and the text.
export function pulse(page, now) {
  // The frame may be new and what it shows old: the replica itself may be cut off from the API server.
  const silent = page.recording ? 0 : page.shown.head.silent_s ?? 0;
  const age = (now - page.heardAt) / 1000 + silent;
  const trouble = page.trouble || (silent ? "Mooring gets no answer from the API server" : "");
  const old = age < 10 ? age.toFixed(1) : Math.round(age);
  const at = clock(page.shown.asOf);
  const leader = page.shown.head.leader ? ` · leader ${page.shown.head.leader}` : " · no leader";
  let state = "live";
  let words = `LIVE ${at}, ${old} s old${leader}`;
  if (page.recording) { state = "recording"; words = `RECORDING ${page.file}, ${at}${page.ended ? ", its end" : ""}`; }
  else if (!page.heard) { state = "connecting"; words = page.trouble ? `not connected: ${page.trouble}` : "connecting …"; }
  else if (age > GREY_S) { state = "grey"; words = `STALE, ${old} s old${trouble ? `: ${trouble}` : ""}`; }
  else if (age > BADGE_S) { state = "stale"; words = `STALE, ${old} s old${silent ? `: ${trouble}` : ""}`; }
  else if (page.past) { state = "past"; words = `AS OF ${at} · now ${clock(page.latest.asOf)}`; }
  else if (page.paused) { state = "paused"; words = `PAUSED at ${at} · now ${clock(page.latest.asOf)}`; }
  return { state, words };
}
