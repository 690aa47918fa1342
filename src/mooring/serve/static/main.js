// The page: draws what the source tells, answers keys, and asks `why`.

import { authorization, Live, Recording } from "./source.js";
import { empty, VIEWS } from "./state.js";
import { make, Table, text } from "./table.js";
import { clock, COLUMNS, sparkline, subject } from "./views.js";
import { NodePages } from "./pages.js";
import { Why } from "./why.js";

const $ = (id) => document.getElementById(id);
const BADGE_S = 5;
const GREY_S = 20;
const SPEAK_EVERY_MS = 10_000;

const page = {
  view: "all", filter: "", paused: false, shown: empty(), latest: empty(), heardAt: performance.now(), heard: false,
  trouble: "", recording: null, file: "", said: { at: -SPEAK_EVERY_MS, words: "", needs: 0 },
};
const why = new Why($("why"), () => page.recording !== null, () => page.paused);
const tables = {};
for (const name of VIEWS)
  tables[name] = new Table($(name), name, COLUMNS[name], (row, from) => open(name, row, from));
const nodePages = new NodePages(() => draw("nodes"));

function took(state) {
  page.latest = state;
  page.heardAt = performance.now();
  page.heard = true;
  page.trouble = "";
  if (page.paused) return;
  page.shown = state;
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
  for (const name of VIEWS) draw(name);
  why.refresh(page.shown.seq);
  speak();
}

function draw(name) {
  const table = page.shown.tables[name];
  const all = name === "nodes" && page.view === "nodes" && !page.filter && !page.recording;
  if (all) {
    nodePages.visit(table.total);
    tables[name].show({ count: table.total, at: (i) => nodePages.at(i), empty: "no nodes" }, page.shown);
  } else {
    let rows = table.order.map((id) => table.rows.get(id)).filter(Boolean);
    const matching = page.filter ? rows.filter(matches) : rows;
    const hidden = rows.length - matching.length;
    rows = matching;
    const quiet = !page.filter && name === "nodes" && table.total > rows.length;
    if (quiet) rows = [...rows, { list: true, id: `… ${(table.total - rows.length).toLocaleString("en")} more with no news (3: list)` }];
    tables[name].show({ count: rows.length, at: (i) => rows[i], empty: nothing(name, hidden) }, page.shown);
  }
  text($(`${name}-sum`), summary(name, table));
  if (name === "timeline") drawBars(table.sums.bars ?? {});
}

function matches(row) {
  return JSON.stringify(row).toLowerCase().includes(page.filter);
}

function nothing(name, hidden) {
  if (page.filter) return `nothing here matches “${page.filter}” (${hidden} hidden; Esc clears)`;
  if (!page.heard) return "waiting for the first frame …";
  return { queue: "nothing waits and nothing runs", stores: "no stores are known: no TidbCluster, or PD has not answered yet",
    nodes: "no nodes", racks: "no racks", timeline: "nothing has happened yet" }[name];
}

function summary(name, table) {
  const n = (value) => (value ?? 0).toLocaleString("en");
  if (name === "nodes") {
    const s = table.sums;
    const unknown = s.unknown ? ` │ unknown ${n(s.unknown)}` : "";
    return `on-demand ${n(s["on-demand"])} │ spot ${n(s.spot)} │ leaving ${n(s.leaving)}${unknown} │ unplaced ${n(s.unplaced)} pods`;
  }
  if (name === "stores") {
    const lost = Object.keys(table.sums.lost ?? {});
    return `${n(table.total)}, fullest first${lost.length ? ` · PD does not answer: ${lost.join(", ")}` : ""}`;
  }
  if (name === "racks") return `${n(table.total)}${table.sums.quiet ? `, ${n(table.sums.quiet)} with no news` : ""}`;
  if (name === "timeline") return "newest on top";
  return table.total > table.order.length ? `${n(table.order.length)} of ${n(table.total)}` : n(table.total);
}

function drawBars(bars) {
  const words = Object.entries(bars).map(([source, counts]) => `${source} ${sparkline(counts)}`);
  text($("bars"), words.length ? `last hour │ ${words.join("  ")}  (each bar 5 min)` : "");
}

function drawHead() {
  const { head } = page.shown;
  text($("who"), `${head.identity ?? ""} · read-only${head.features?.length ? ` · ${head.features.join(", ")}` : ""}`);
  text($("needs-count"), head.needs ?? 0);
  text($("needs-words"), head.needs ? `: ${head.needs_words}` : "");
  $("needs").dataset.count = head.needs ?? 0;
  text($("waits"), head.waits ?? 0);
  text($("runs"), head.runs ?? 0);
  text($("moved"), head.moved ?? 0);
  const notes = [...(head.not_ready ?? [])];
  if (head.features && !head.deciding && !notes.length) notes.push(head.leading ? "reading marks, not deciding yet" : "a follower: it does not decide");
  if (head.backlog > 1000) notes.push(`${head.backlog.toLocaleString("en")} events behind`);
  text($("notes"), notes.join(" · "));
}

function drawPulse() {
  // The frame may be new and what it shows old: the replica itself may be cut off from the API server.
  const silent = page.recording ? 0 : page.shown.head.silent_s ?? 0;
  const age = (performance.now() - page.heardAt) / 1000 + silent;
  const trouble = page.trouble || (silent ? "Mooring does not hear the API server" : "");
  const old = age < 10 ? age.toFixed(1) : Math.round(age);
  const at = clock(page.shown.asOf);
  const leader = page.shown.head.leader ? ` · leader ${page.shown.head.leader}` : "";
  let state = "live";
  let words = `LIVE ${at}, ${old} s old${leader}`;
  if (page.recording) { state = "recording"; words = `RECORDING ${page.file}, ${at}${page.ended ? ", its end" : ""}`; }
  else if (!page.heard) { state = "connecting"; words = page.trouble ? `not connected: ${page.trouble}` : "connecting …"; }
  else if (age > GREY_S) { state = "grey"; words = `STALE, ${old} s old${trouble ? `: ${trouble}` : ""}`; }
  else if (age > BADGE_S) { state = "stale"; words = `STALE, ${old} s old${silent ? `: ${trouble}` : ""}`; }
  if (page.paused) words = `PAUSED at ${at} · ${words}`;
  text($("pulse"), words);
  $("pulse").dataset.state = page.paused && state === "live" ? "paused" : state;
  document.body.classList.toggle("grey", state === "grey");
}

// One polite region, at most a sentence per ten seconds.
function speak(words = "") {
  const now = performance.now();
  const needs = page.shown.head.needs ?? 0;
  if (!words && needs !== page.said.needs)
    words = needs ? `${needs} need you: ${page.shown.head.needs_words}` : "nothing needs you any more";
  if (!words || words === page.said.words || now - page.said.at < SPEAK_EVERY_MS) return;
  page.said = { at: now, words, needs };
  text($("live"), words);
}

function open(view, row, from) {
  if (row.list) { go("nodes"); return; }
  const about = subject(view, row);
  if (about) why.open(about, row, from);
}

function go(view) {
  page.view = view;
  document.body.dataset.view = view;
  for (const button of document.querySelectorAll("[data-go]"))
    button.setAttribute("aria-expanded", String(button.dataset.go === view));
  schedule();
  if (view !== "all") requestAnimationFrame(() => requestAnimationFrame(() => tables[view].focus()));
}

function pause(paused = !page.paused) {
  page.paused = paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  text($("pause"), paused ? "Space go on" : "Space pause");
  if (page.recording) page.recording.paused = paused;
  if (!paused) page.shown = page.latest;
  drawPulse();
  schedule();
}

// ── Find ─────────────────────────────────────────────────────────────────────────────────────────────────────────

let asked = 0;
function find(words) {
  page.filter = words.trim().toLowerCase();
  schedule();
  clearTimeout(asked);
  if (!page.filter || page.recording) { found([]); return; }
  asked = setTimeout(async () => {
    const wanted = page.filter;
    const answer = await fetch(`/api/v1/find?q=${encodeURIComponent(wanted)}`, { headers: authorization() }).catch(() => null);
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
  if (more) list.append(make("li", "quiet", `${more} more: type on`));
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
  if ("12345".includes(event.key)) go(VIEWS[Number(event.key) - 1]);
  else if (event.key === "0") go("all");
  else if (event.key === "/") $("find").focus();
  else if (event.key === "?") $("keys").showModal();
  else if (event.key === "o") openRecording();
  else if (event.key === " " && !event.target.matches("button")) pause();
  else return;
  event.preventDefault();
});

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
$("needs").addEventListener("click", () => { go("queue"); });
for (const button of document.querySelectorAll("[data-go]"))
  button.addEventListener("click", () => go(page.view === button.dataset.go ? "all" : button.dataset.go));

// ── Recordings ───────────────────────────────────────────────────────────────────────────────────────────────────

$("open").addEventListener("click", openRecording);
$("file").addEventListener("change", () => { if ($("file").files[0]) play($("file").files[0]); $("file").value = ""; });

function openRecording() {
  if (page.recording) { page.recording.close(); page.recording = null; page.ended = false; text($("open"), "o recording"); begin(); }
  else $("file").click();
}

function play(file, framesPerSecond) {
  live?.close();
  live = null;
  page.file = file.name;
  page.ended = false;
  page.recording = new Recording(file, took, () => { page.ended = true; drawPulse(); }, framesPerSecond);
  text($("open"), "o live");
}

// ── Beginning ────────────────────────────────────────────────────────────────────────────────────────────────────

let live = null;
function begin() {
  page.shown = page.latest = empty();
  page.heard = false;
  page.heardAt = performance.now();
  live = new Live(took, (error) => {
    page.trouble = error.message;
    if (error.status === 401 && !$("token").open) $("token").showModal();
    drawPulse();
  });
  schedule();
}
$("token-ok").addEventListener("click", () => {
  sessionStorage.setItem("mooring-token", $("token-value").value);
  $("token").close();
});
setInterval(drawPulse, 250);
begin();

// For a look from the console, and for tests.
window.mooring = { page, tables, play, get live() { return live; } };
