// The page: draws what the source tells, answers keys, and asks `why`.

import { ask, Live } from "./source.js";
import { empty, LISTS, VIEWS } from "./state.js";
import { make, Table, text } from "./table.js";
import { clock, COLUMNS, sparkline, subject } from "./views.js";
import { MapView } from "./map.js";
import { Past, Recording } from "./past.js";
import { Scrubber } from "./scrub.js";
import { folded, needed, nothing, pulse, summary, trend } from "./words.js";
import { Pages } from "./pages.js";
import { copyButton, Why } from "./why.js";

const $ = (id) => document.getElementById(id);
const SPEAK_EVERY_MS = 10_000;

const page = {
  view: "all", filter: "", paused: false, shown: empty(), latest: empty(), heardAt: performance.now(), heard: false,
  trouble: "", recording: null, ended: false, past: false, file: "", open: new Set(), said: { at: -SPEAK_EVERY_MS, words: "" },
};
// As of then: the server may know why, unless what is shown is a file of this browser.
const why = new Why($("why"), () => shownTime(), () => (page.recording instanceof Recording ? 0 : page.shown.asOf), () => page.paused, (about) => { address(about); light(about); });
const map = new MapView($("map"), (about, from) => why.open(about, null, from));
const scrubber = new Scrubber($("scrub"), onPastFrame, isLive);
const tables = {};
const pages = {};
for (const name of LISTS) {
  tables[name] = new Table($(name), name, COLUMNS[name], (row, from, about) => open(name, row, from, about));
  if (name !== "timeline") pages[name] = new Pages(name, () => draw(name));
}

// A frame of the live stream.
function onLiveFrame(state) {
  page.latest = state;
  page.heardAt = performance.now();
  page.heard = true;
  page.trouble = "";
  scrubber.heard(state);
  if (page.paused || page.past) return;
  page.shown = state;
  schedule();
}

// A frame of the past: of the server's memory, or of a recording.
function onPastFrame(state, position) {
  page.past = !page.recording;
  page.shown = state;
  if (page.recording) { page.heard = true; page.ended = position >= page.recording.last; }
  schedule();
}

function isLive() {
  page.past = false;
  page.shown = page.latest;
  if (page.paused) pause(false);
  schedule();
}

// What is shown is not what is: when it was, or "".
function shownTime() { return page.past || page.recording ? clock(page.shown.asOf) : ""; }

copyButton(() => $("needs-do").textContent, $("needs-copy"));
$("home").addEventListener("click", (event) => { event.preventDefault(); go("all"); });

// What `why` is open about, where it is to be seen.
function light(about) {
  for (const name of LISTS) tables[name].lit = (row) => about !== "" && !row.list && subject(name, row) === about;
  map.light(about);
  schedule();
}

let drawing = false;
function schedule() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; drawAll(); });
}

function drawAll() {
  drawHead();
  drawPulse();
  map.empty.textContent = nothing("map", page, 0);
  document.body.classList.toggle("many", page.shown.tables.map.total > 800); // the map gets more of the screen
  map.show(page.shown, page.filter);
  text($("map-sum"), summary("map", page.shown.tables.map, page.view, page.shown.tables.nodes.sums));
  for (const name of LISTS) draw(name);
  if (page.heard && !performance.getEntriesByName("first frame").length) performance.mark("first frame");
  why.refresh();
}

function draw(name) {
  const table = page.shown.tables[name];
  if (isWhole(name, table)) {
    const list = pages[name];
    list.visit(page.filter, table.total, page.paused);
    tables[name].show({
      count: list.count, at: (i) => list.at(i), peek: (i) => list.peek(i), find: () => -1, empty: nothing(name, page, table.total),
    }, page.shown);
  } else {
    let rows = table.order.map((id) => table.rows.get(id)).filter(Boolean);
    if (page.filter) rows = rows.filter((row) => matches(name, row));
    else if (name === "timeline") rows = folded(rows).flatMap((row) => (row.members && page.open.has(row.id) ? [{ ...row, open: true }, ...row.members] : [row]))
      .flatMap((row) => (!row.members && page.open.has(row.id) ? [{ ...row, open: true }, ...steps(row)] : [row]));
    else if (name === "nodes" && table.total > rows.length) rows = [...rows, rest(table, rows)];
    tables[name].show({
      count: rows.length, at: (i) => rows[i], peek: (i) => rows[i], find: (id) => rows.findIndex((row) => row.id === id),
      empty: nothing(name, page, table.total),
    }, page.shown);
  }
  text($(`${name}-sum`), summary(name, table, page.view));
  if (name === "queue") for (const [key, cls] of [["missing", "no-missing"], ["by", "no-by"], ["deadline", "no-deadline"]])
    tables.queue.root.classList.toggle(cls, ![...table.rows.values()].some((row) => (Array.isArray(row[key]) ? row[key].length : row[key])));
  if (name === "timeline") drawBars(table.sums.bars ?? {});
}

// A view shown alone reaches beyond what a frame carries: the server is asked for the rest, and for what matches.
function isWhole(name, table) {
  if (page.view !== name || shownTime() || !pages[name]) return false;
  return name === "nodes" || table.total > table.order.length || (Boolean(page.filter) && name !== "timeline");
}

function rest(table, rows) {
  const count = (table.total - rows.length).toLocaleString("en");
  return { list: true, id: `… ${count} ${rows.length ? "more " : ""}with no news (${shownTime() ? "not kept" : "4: list"})` };
}

// What a row shows is what is found, and nothing that it does not show; pods of a node are known to the map.
function matches(name, row) {
  const pods = name === "nodes" ? page.shown.tables.map.rows.get(row.id)?.[7]?.join(" ") ?? "" : "";
  return `${JSON.stringify(Object.values(row))} ${name === "racks" ? `rack ${row.id}` : ""} ${pods}`.toLowerCase().includes(page.filter);
}

// The steps of a move, under its line.
function steps(row) {
  return (row.steps ?? []).map(([at, verb, words], k) => ({ id: `${row.id}.${k}`, step: true, at, op: "", state: "", words: `${verb}${words ? `: ${words}` : ""}`, about: row.about }));
}

function unfold(row, wanted) {
  if (row.step || !row.steps) return;
  if (wanted ?? !page.open.has(row.id)) page.open.add(row.id);
  else page.open.delete(row.id);
  schedule();
}

function drawBars(bars) {
  const features = {}; // balance-leader and balance-region are both balance
  for (const [source, counts] of Object.entries(bars)) {
    const name = source.split("-")[0];
    features[name] = features[name] ? features[name].map((n, k) => n + counts[k]) : counts;
  }
  const sums = Object.entries(features).map(([source, counts]) => [source, counts, counts.reduce((a, b) => a + b, 0)]);
  // The overview has room for half an hour.
  const shown = page.view === "all" ? 6 : 12;
  const words = sums.map(([source, counts]) => [source, counts.slice(-shown)]).filter(([, counts]) => counts.some(Boolean))
    .map(([source, counts]) => `${source} ${sparkline(counts)} ${counts.reduce((a, b) => a + b, 0)}`);
  text($("bars"), words.length ? `${shown === 6 ? "30 min" : "last hour"} │ ${words.join("  ")}${shown === 6 ? "" : "  (each bar 5 min)"}` : "");
  text($("bars-words"), sums.length ? `begun in the last hour: ${sums.map(([source, , sum]) => `${source} ${sum}`).join(", ")}` : "");
}

function drawHead() {
  const { head } = page.shown;
  text($("cluster"), head.cluster ?? "");
  text($("who"), `read-only${head.identity && head.identity !== head.leader ? ` · ${head.identity}` : ""}`);
  $("who").title = head.features?.length ? `switched on: ${head.features.join(", ")}` : "";
  drawBanner(head);
  $("verdict").hidden = !head.verdict;
  $("verdict").dataset.state = head.verdict?.state ?? "unknown";
  text($("verdict"), head.verdict?.words ?? "");
  const hours = trend(page.shown.tables.timeline.sums.trend);
  $("trend").hidden = !hours.length;
  text($("trend-bars"), hours.map(([word, bars, last]) => `${word} ${bars} ${last}`).join("   "));
  text($("trend-words"), hours.length ? `the last hours: ${hours.map(([word, , last]) => `${word} ${last} now`).join(", ")}` : "");
  const n = (value) => (value ?? 0).toLocaleString("en");
  text($("needs-count"), n(head.needs));
  text($("needs-words"), head.needs ? `: ${needed(head, page.shown.asOf)}` : "");
  $("needs").dataset.count = head.needs ?? 0;
  $("needs-do").hidden = !head.needs || !head.needs_do;
  text($("needs-do"), (head.needs_do ?? "").split(/, (?=once|then|or|if)/)[0]); // the command alone; `why` says the rest
  $("needs-copy").hidden = $("needs-do").hidden;
  document.querySelector('nav [data-go="racks"]').hidden = page.view !== "racks" && page.shown.tables.racks.total <= 3; // the map shows them
  text($("waiting"), n(head.waiting));
  text($("running"), n(head.running));
  text($("moved"), n(head.moved));
  const title = head.needs ? `▲ ${head.needs} · Mooring` : "Mooring";
  if (document.title !== title) document.title = title;
  const notes = [...(head.not_ready ?? [])];
  if (head.features && !head.deciding && !notes.length) notes.push(head.leading ? "reading marks, not deciding yet" : "follower, does not decide");
  if (head.backlog > 1000) notes.push(`${head.backlog.toLocaleString("en")} events behind`);
  text($("notes"), notes.join(" · "));
}

// The demo: the act, what was typed, what came of it; and the same day without Mooring beside it.
function drawBanner(head) {
  const { act } = head;
  $("banner").hidden = !act;
  if (!act) return;
  text($("act-number"), act.number ? `act ${act.number} of ${act.of}` : "");
  text($("act-title"), act.title);
  text($("act-command"), act.command ? `$ ${act.command}` : "");
  text($("act-said"), act.said ?? "");
  $("act-said").classList.toggle("typed", (act.said ?? "").startsWith("$ "));
  $("without").replaceChildren();
  if (act.without) $("without").append(...cost("with Mooring", act.with, "us"), ...cost("without", act.without, "lost"));
}

// What a day has cost, in columns.
function cost(who, sums, cls) {
  const parts = [[sums.pods, "pods cut off"], [sums.leaders, "leaders lost"], [sums.quorum, "quorum losses"]];
  return [make("span", "", who), ...parts.flatMap(([n, words]) => [make("b", n || cls === "us" ? cls : "", (n ?? 0).toLocaleString("en")), make("span", "", words)])];
}

function drawPulse() {
  const { state, words } = pulse(page, performance.now());
  text($("pulse"), words);
  $("pulse").dataset.state = state;
  document.body.classList.toggle("grey", state === "grey");
  speak();
}

// One polite region, at most a sentence per ten seconds; what came in between is said as it stands by then.
function speak() {
  const now = performance.now();
  const { head } = page.shown;
  let words = head.needs ? `${head.needs} ${head.needs > 1 ? "need" : "needs"} you: ${head.needs_words}` : "nothing needs you";
  if (document.body.classList.contains("grey")) words = "the data is stale: no news from Mooring";
  if (!page.heard || words === page.said.words || now - page.said.at < SPEAK_EVERY_MS) return;
  const calm = page.said.words === "" && words === "nothing needs you"; // the usual is not worth a word
  page.said = { at: calm ? -SPEAK_EVERY_MS : now, words };
  if (!calm) text($("live"), words);
}

function open(view, row, from, about) {
  if (row.list) { go("nodes"); return; }
  if (about === "steps") { unfold(row); return; }
  const wanted = about ?? subject(view, row);
  if (wanted) why.open(wanted, about ? null : row, from);
}

function go(view) {
  page.view = view;
  document.body.dataset.view = view;
  for (const button of document.querySelectorAll("[data-go]"))
    button.setAttribute("aria-pressed", String(button.dataset.go === view));
  address("");
  schedule();
  if (view !== "all") requestAnimationFrame(() => requestAnimationFrame(() => (view === "map" ? map : tables[view]).focus()));
}

// The current view is in the address, so that it can be shared; each view and panel is a step that Back takes back.
let arriving = false, here = "";
function address(about) {
  const where = about ? `#why/${about}` : page.view === "all" ? "" : `#${page.view}`;
  if (arriving || where === here) return;
  here = where;
  history.pushState(null, "", `${location.pathname}${where}`);
}

function arrive() {
  arriving = true;
  here = location.hash;
  shown();
  arriving = false;
}

function shown() {
  const wanted = new URLSearchParams(`at=${location.hash.slice(1).replaceAll("+", "%2B")}`).get("at");
  if (wanted.startsWith("why/")) { why.open(wanted.slice(4), null, null); return; }
  if (why.isOpen) why.close();
  if (VIEWS.includes(wanted)) go(wanted);
  else if (page.view !== "all") go("all");
}

function label(id, words) { text($(id).querySelector("span"), words); }

function pause(paused = !page.paused) {
  page.paused = paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  label("pause", paused ? "resume" : "pause");
  if (page.recording || page.past) { if (paused) scrubber.stop(); else if (page.recording) scrubber.play(); }
  if (!paused && !page.past && !page.recording) page.shown = page.latest;
  drawPulse();
  schedule();
}

// ── Find ─────────────────────────────────────────────────────────────────────────────────────────────────────────

let asked = 0;
function find(words) {
  page.filter = words.trim().toLowerCase();
  schedule();
  clearTimeout(asked);
  if (!page.filter || shownTime()) { found([]); return; }
  asked = setTimeout(async () => {
    const wanted = page.filter;
    const answer = await ask(`/api/v1/find?q=${encodeURIComponent(wanted)}`).catch(() => null);
    if (answer?.ok && wanted === page.filter) { const data = await answer.json(); found(data.found, data.more); }
  }, 150);
}

function found(subjects, more = 0) {
  const list = $("found");
  list.replaceChildren(...subjects.map((about) => {
    const item = make("li");
    const button = make("button", "", about);
    button.type = "button";
    button.addEventListener("click", () => { list.hidden = true; why.open(about, null, $("find")); });
    item.append(button);
    return item;
  }));
  if (more) list.append(make("li", "quiet", `${more.toLocaleString("en")} more: type on`));
  list.hidden = subjects.length === 0;
}

// ── Keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { escape(event); return; }
  if (document.querySelector("dialog[open]")) return;
  if (event.target.matches("input")) {
    if (event.target === $("find") && (event.key === "Enter" || event.key === "ArrowDown")) {
      const first = $("found").querySelector("button");
      if (first) { event.preventDefault(); event.key === "Enter" ? first.click() : first.focus(); }
    }
    return;
  }
  const item = event.target.closest("#found li");
  if (item && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    const next = event.key === "ArrowDown" ? item.nextElementSibling : item.previousElementSibling;
    (next?.querySelector("button") ?? (event.key === "ArrowUp" ? $("find") : null))?.focus();
    event.preventDefault();
    return;
  }
  if ("123456".includes(event.key)) go(VIEWS[Number(event.key) - 1]);
  else if (event.key === "p") scrubber.toggle();
  else if (event.key === "[") scrubber.step(-1);
  else if (event.key === "]") scrubber.step(1);
  else if (event.key === ".") scrubber.goLive();
  else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && event.target.closest("#timeline")) unfoldFocused(event.key === "ArrowRight");
  else if (event.key === "0") go("all");
  else if (event.key === "/") $("find").focus();
  else if (event.key === "?") $("keys").showModal();
  else if (event.key === "o") openRecording();
  else if (event.key === " " && !event.target.matches("button")) pause();
  else return;
  event.preventDefault();
});

function unfoldFocused(wanted) {
  const table = tables.timeline;
  const row = table.source.peek(table.focused);
  if (row) unfold(row, wanted);
}

function escape(event) {
  if (document.querySelector("dialog[open]")) return; // the dialog closes itself
  event.preventDefault();
  if (why.isOpen) why.close();
  else if (page.filter || document.activeElement === $("find")) { $("find").value = ""; find(""); $("find").blur(); }
  else if (page.view !== "all") go("all");
}

$("pause").addEventListener("click", () => pause());
$("help").addEventListener("click", () => $("keys").showModal());
$("find").addEventListener("input", () => find($("find").value));
$("needs").addEventListener("click", () => { if (page.shown.head.needs_about) why.open(page.shown.head.needs_about, null, $("needs")); else go("queue"); });
for (const button of document.querySelectorAll("[data-go]"))
  button.addEventListener("click", () => go(page.view === button.dataset.go ? "all" : button.dataset.go));

// ── Recordings ───────────────────────────────────────────────────────────────────────────────────────────────────

$("open").addEventListener("click", openRecording);
$("file").addEventListener("change", () => { if ($("file").files[0]) play($("file").files[0]); $("file").value = ""; });

// The server shows a recording and nothing else: nothing is live there.
async function replay(past) {
  live?.close();
  live = null;
  page.file = past.recording;
  page.recording = past;
  $("open").hidden = true;
  scrubber.use(past, true);
  // Where it begins to show something: the first frames of a replica know no node yet.
  for (let at = past.first; at <= Math.min(past.last, past.first + 60); at++) {
    await scrubber.seek(at);
    if (page.shown.tables.map.rows.size) return;
  }
}

function openRecording() {
  if (page.recording instanceof Past) return;
  if (page.recording) { page.recording.close(); page.recording = null; page.ended = false; label("open", "Open recording…"); begin(); }
  else $("file").click();
}

// Read once, then played from its beginning; at Infinity frames a second it is at its end at once.
async function play(file, framesPerSecond) {
  live?.close();
  live = null;
  scrubber.stop();
  page.recording?.close();
  page.file = file.name;
  page.ended = page.past = false;
  const recording = (page.recording = new Recording(file));
  label("open", "live");
  await recording.read((_, state) => { if (page.recording === recording && state) { page.shown = state; page.heard = true; schedule(); } });
  if (page.recording !== recording) return;
  scrubber.use(recording, true);
  if (framesPerSecond === Infinity || recording.frames < 2) await scrubber.seek(recording.last);
  else scrubber.play();
}

// ── Beginning ────────────────────────────────────────────────────────────────────────────────────────────────────

let live = null;
function begin() {
  page.shown = page.latest = empty();
  page.heard = false;
  page.heardAt = performance.now();
  page.past = false;
  const past = new Past();
  scrubber.use(past, false);
  past.refresh().then(() => { if (past.recording) replay(past); }, () => {});
  live = new Live(onLiveFrame, (error) => {
    page.trouble = error.status ? error.message : "Mooring does not answer"; // the browser has its own words for that
    if (error.status === 401) askForToken();
    drawPulse();
  });
  schedule();
}
function askForToken() { if (!$("token").open) $("token").showModal(); }
window.addEventListener("mooring-token-wanted", askForToken);
$("token-form").addEventListener("submit", () => {
  sessionStorage.setItem("mooring-token", $("token-value").value);
  $("token-value").value = "";
});
setInterval(drawPulse, 250);
window.addEventListener("popstate", arrive);
begin();
arrive();

// For a look from the console, and for tests.
window.mooring = { page, tables, map, scrubber, play, get live() { return live; } };
