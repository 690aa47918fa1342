// The map: racks as boxes, nodes as tiles, moves as arrows. Two canvases: the tiles, drawn again only where something
// changed, and above them what moves. Its table twins are the views nodes and racks.

import { arrange, chipAt, inside, place } from "./layout.js";
import { drawArrows } from "./arrows.js";
import { make } from "./table.js";
import { described, drawTile, inDanger, node, palette, WORDS } from "./tile.js";

const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const EASE_MS = 700;
const MOST_ZOOM = 40;
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], h: [-1, 0], l: [1, 0], k: [0, -1], j: [0, 1] };

export class MapView {
  // onOpen(subject, from): the user asks why.
  constructor(section, onOpen) {
    this.section = section;
    this.onOpen = onOpen;
    this.nodes = new Map();
    this.rows = new Map();
    this.moves = new Map();
    this.fading = new Map(); // moves that have ended: they fade
    this.view = { k: 1, x: 0, y: 0 };
    this.selected = "";
    this.about = ""; // what `why` is open about
    this.lit = ""; // the node of it
    this.hovered = "";
    this.filter = "";
    this.now = 0;
    this.still = STILL.matches;
    this.frames = 0; // drawn so far: for the bench
    this.gauges = new Map();
    this.room = 0; // cells that are to fit on a tile
    this.stage = make("div", "stage");
    this.stage.tabIndex = 0;
    this.stage.setAttribute("role", "listbox");
    this.stage.setAttribute("aria-label", "Map of nodes. Arrow keys move, Enter opens why. The same as tables: 4 nodes, 5 racks");
    this.stage.setAttribute("aria-activedescendant", "map-now");
    this.base = make("canvas");
    this.top = make("canvas", "top");
    this.said = make("div", "sr");
    this.said.id = "map-now";
    this.said.setAttribute("role", "option");
    this.said.setAttribute("aria-selected", "true");
    this.empty = make("p", "nothing");
    this.tip = make("div", "tip");
    this.tip.hidden = true;
    this.tip.setAttribute("aria-hidden", "true");
    this.stage.append(this.base, this.top, this.said, this.tip);
    section.querySelector("h2").append(this._buttons());
    section.append(this.stage, this.empty);
    this._listen();
  }

  _buttons() {
    const bar = make("div", "zoom");
    for (const [words, label, act] of [["+", "zoom in", () => this.zoom(1.6)], ["−", "zoom out", () => this.zoom(1 / 1.6)], ["fit", "the whole map", () => this.fit()]]) {
      const button = make("button", "", words);
      button.type = "button";
      button.title = label;
      button.setAttribute("aria-label", label);
      button.tabIndex = -1; // keys + − 0 do the same
      button.addEventListener("click", act);
      bar.append(button);
    }
    return bar;
  }

  _listen() {
    new ResizeObserver(() => this._resize()).observe(this.stage);
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)"])
      matchMedia(query).addEventListener("change", () => { this.colours = null; this.still = STILL.matches; this._all(); });
    this.stage.addEventListener("keydown", (event) => this._key(event));
    this.stage.addEventListener("focus", () => { if (!this.selected) this.select(this._first()); this._later(); });
    this.stage.addEventListener("blur", () => this._later());
    this.stage.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && this.view.k === 1 && event.deltaY > 0) return; // the page scrolls
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    }, { passive: false });
    let drag = null;
    this.top.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, moved: false }; this.top.setPointerCapture(event.pointerId); });
    this.top.addEventListener("pointermove", (event) => {
      if (drag && event.buttons && this.view.k > 1) {
        const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
        if (drag.moved || Math.hypot(dx, dy) > 4) { drag.moved = true; this.pan(dx, dy); drag.x = event.clientX; drag.y = event.clientY; }
        return;
      }
      this._hover(event.offsetX, event.offsetY);
    });
    this.top.addEventListener("pointerleave", () => { this.hovered = ""; this.tip.hidden = true; this._later(); });
    this.top.addEventListener("pointerup", (event) => {
      const click = drag && !drag.moved;
      drag = null;
      this.tip.hidden = true;
      if (click) this._clicked(event.offsetX, event.offsetY);
    });
    this.top.addEventListener("dblclick", (event) => this.zoom(3, event.offsetX, event.offsetY));
  }

  // ── What is shown ────────────────────────────────────────────────────────────────────────────────────────────

  show(state, filter) {
    this.spared = undefined;
    const rows = state.tables.map.rows;
    this.now = state.asOf;
    const changed = [];
    let structure = rows.size !== this.rows.size || filter !== this.filter;
    if (rows !== this.rows) {
      for (const [id, row] of rows) {
        const old = this.rows.get(id);
        if (old === row) continue;
        if (!old || old[0] !== row[0]) structure = true;
        this.nodes.set(id, { ...node(id, row), label: this.nodes.get(id)?.label });
        changed.push(id);
      }
      if (this.nodes.size !== rows.size) for (const id of this.nodes.keys()) if (!rows.has(id)) { this.nodes.delete(id); structure = true; }
    }
    this.rows = rows;
    this.filter = filter;
    if (Math.abs(state.seq - (this.seq ?? state.seq)) > 3) { this.moves.clear(); this.fading.clear(); } // a jump: what moved there is not what moves here
    this.seq = state.seq;
    this._take(state.tables.moves.rows);
    for (const id of changed) this._gauge(this.nodes.get(id));
    if (this._roomier()) structure = true;
    this.empty.hidden = this.nodes.size > 0;
    if (structure) this._arrange();
    else {
      const close = this.layout && this.layout.tile.w * this.view.k >= 50; // a countdown is to be read there
      this._draw(close ? [...new Set([...changed, ...[...this.nodes.values()].filter((n) => n.until).map((n) => n.id)])] : changed);
    }
    this._again();
    if (this.selected) this._say();
    if (this.about) this.light(this.about);
    this._later();
  }

  _take(moves) {
    const { still } = this;
    const now = performance.now();
    for (const [id, move] of moves) {
      if (move[4] === "done" || this.moves.has(id)) continue;
      this.moves.set(id, { since: now });
    }
    for (const id of [...this.moves.keys()]) {
      const move = moves.get(id);
      const kept = this.moves.get(id);
      if (move && move[4] !== "done") { kept.row = move; continue; }
      this.moves.delete(id);
      if (move) kept.row = move;
      if (kept.row && !still) this.fading.set(id, { ...kept, ended: now });
    }
    // Begun and ended between two frames: shown all the same, for a moment.
    for (const [id, move] of moves) if (move[4] === "done" && !this.fading.has(id) && !still) this.fading.set(id, { row: move, since: now, ended: now });
  }

  _gauge(n) {
    for (const store of n?.stores ?? []) {
      const known = this.gauges.get(store[0]);
      const from = known ? this._leaders(known) : store[2];
      if (!known || known.to !== store[2]) this.gauges.set(store[0], { from, to: store[2], at: performance.now(), node: n.id });
    }
    this.most = Math.max(1, ...[...this.gauges.values()].map((gauge) => gauge.to));
  }

  // Cells have one size on most tiles: so many are to fit. It only grows, with some to spare, so that it seldom changes.
  _roomier() {
    if (this.nodes.size > 200) return false; // they are small anyway
    const counts = [...this.nodes.values()].map((n) => n.cells.length).sort((a, b) => a - b);
    const most = counts[Math.floor((counts.length - 1) * 0.95)] ?? 0;
    if (most <= this.room && most * 3 >= this.room) return false;
    this.room = most + 1;
    return true;
  }

  // The box of a rack on the screen.
  boxOf(name) {
    const box = this.layout?.boxes.find((one) => one.name === name), { k, x, y } = this.view;
    return box ? { x: box.x * k + x + 1, y: box.y * k + y + 1, w: box.w * k, h: box.h * k } : null;
  }

  // Where the cell of a pod is on the screen; null: it has none of its own.
  cellOf(id, pod, r) {
    const n = pod && this.nodes.get(id), k = n ? n.names.indexOf(pod) : -1;
    if (k < 0) return null;
    const plan = inside(r.w, r.h, n.cells.length, n.stores.length, this.room);
    if (!plan.chip || plan.chip.w < 8) return null;
    const at = chipAt(plan, k);
    return { x: r.x + at.x, y: r.y + at.y, w: plan.chip.w, h: plan.chip.h, cell: true };
  }

  // Where the gauge of a store is on the screen; null: there is no room for one.
  gaugeOf(id, r) {
    const n = this.nodes.get(id), plan = n?.stores.length ? inside(r.w, r.h, n.cells.length, n.stores.length, this.room) : null;
    return plan?.full ? { x: r.x + 2, y: r.y + plan.gaugeY, w: r.w - 4, h: plan.gaugeH, cell: true } : null;
  }

  // What lines do not cross: names, sums of racks, cells and gauges. Lines pass beneath them.
  words() {
    if (this.spared !== undefined) return this.spared;
    if (this.nodes.size > 200) return (this.spared = null);
    const path = new Path2D();
    path.rect(0, 0, this.width, this.height);
    for (const box of this.layout?.boxes ?? []) if (box.words) path.rect(...box.words);
    for (const n of this.nodes.values()) {
      const r = this.rect(n.id), plan = r && inside(r.w, r.h, n.cells.length, n.stores.length, this.room);
      if (!plan?.name) continue;
      const wide = n.state === "interrupted" ? r.w : Math.min(r.w, 14 + 8 * (n.label ?? n.id).length);
      path.rect(r.x, r.y, wide, plan.name);
      if (plan.chip) n.cells.split("").forEach((_, k) => { const at = chipAt(plan, k); path.rect(r.x + at.x, r.y + at.y, plan.chip.w, plan.chip.h); });
      if (n.stores.length && plan.full) path.rect(r.x + plan.inset, r.y + plan.gaugeY, r.w - 2 * plan.inset, plan.gaugeH * Math.min(3, n.stores.length));
    }
    return (this.spared = path);
  }

  _leaders(gauge) {
    const share = Math.min(1, (performance.now() - gauge.at) / EASE_MS);
    return this.still ? gauge.to : gauge.from + (gauge.to - gauge.from) * (1 - (1 - share) ** 3);
  }

  _arrange() {
    const groups = new Map();
    for (const n of this.nodes.values()) {
      if (!groups.has(n.rack)) groups.set(n.rack, { name: n.rack, ids: [] });
      groups.get(n.rack).ids.push(n.id);
    }
    for (const group of groups.values()) group.ids.sort((a, b) => this._rank(a, b));
    const order = [...groups.values()].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    this._labels();
    this.layout = arrange(order, this.width - 2, this.height - 2, this.layout);
    this.at = new Map();
    for (const box of this.layout?.boxes ?? []) box.ids.forEach((id, k) => this.at.set(id, place(this.layout, box, k)));
    this._all();
  }

  // What all names have in common ("….compute.internal") tells nothing: it is left out, at a joint.
  _labels() {
    const ids = [...this.nodes.keys()];
    let [before, after] = [ids[0] ?? "", ids[0] ?? ""];
    for (const id of ids) {
      while (!id.startsWith(before)) before = before.slice(0, -1);
      while (!id.endsWith(after)) after = after.slice(1);
    }
    const head = ids.length > 1 ? before.search(/[-.][^-.]*$/) + 1 : 0;
    const tail = ids.length > 1 ? Math.max(0, after.length - Math.max(0, after.search(/[.]/))) * (after.includes(".") ? 1 : 0) : 0;
    for (const [id, n] of this.nodes) n.label = id.slice(head, id.length - tail) || id;
  }

  _rank(a, b) {
    const one = this.nodes.get(a), two = this.nodes.get(b);
    return one.cls.localeCompare(two.cls) || a.localeCompare(b, "en", { numeric: true });
  }

  _resize() {
    const { clientWidth, clientHeight } = this.stage;
    if (!clientWidth || !clientHeight) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    if (clientWidth === this.width && clientHeight === this.height && ratio === this.ratio) return;
    [this.width, this.height, this.ratio] = [clientWidth, clientHeight, ratio];
    for (const canvas of [this.base, this.top]) {
      canvas.width = clientWidth * ratio;
      canvas.height = clientHeight * ratio;
    }
    this.layout = null; // another screen: arranged for it, whatever was before
    this._arrange();
  }

  // ── Drawing ──────────────────────────────────────────────────────────────────────────────────────────────────

  rect(id) {
    const at = this.at?.get(id);
    if (!at) return null;
    const { k, x, y } = this.view;
    const { w, h } = this.layout.tile;
    return { x: at.x * k + x + 1, y: at.y * k + y + 1, w: w * k, h: h * k };
  }

  _all() {
    this.spared = undefined;
    if (!this.layout) { this._later(); return; }
    const g = this._begin(this.base);
    g.clearRect(0, 0, this.width, this.height);
    for (const box of this.layout.boxes) this._box(g, box);
    this._draw([...this.nodes.keys()], g);
    this._later();
  }

  _begin(canvas) {
    this.colours ??= palette(this.section);
    const g = canvas.getContext("2d");
    g.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    return g;
  }

  _box(g, box) {
    const c = this.colours, { k, x, y } = this.view;
    const [left, top, w, h] = [box.x * k + x + 1, box.y * k + y + 1, box.w * k, box.h * k];
    if (left > this.width || top > this.height || left + w < 0 || top + h < 0) return;
    g.fillStyle = c.rack;
    g.beginPath();
    g.roundRect(left, top, w, h, Math.min(8, this.layout.pad * k));
    g.fill();
    const head = this.layout.head * k;
    const size = Math.min(18, Math.max(9.5, head * 0.56));
    const counts = {};
    let danger = false;
    for (const id of box.ids) { const n = this.nodes.get(id), state = n?.state; counts[state] = (counts[state] ?? 0) + 1; danger ||= Boolean(n && inDanger(n)); }
    const count = (state) => counts[state] ?? 0;
    const fine = count("ok") + count("reserved");
    const signs = [["interrupted", "▲"], ["silent", "!"], ["leaving", "~"], ["cordoned", "="]].map(([state, glyph]) => [count(state), glyph, state]).filter(([n]) => n);
    const name = /^\d+$/.test(box.name) ? `rack ${box.name}` : box.name === "–" ? "no rack" : box.name;
    const base = top + head * 0.5 + this.layout.pad * k * 0.5 + size * 0.36;
    g.font = `600 ${size}px ${c.font}`;
    g.textAlign = "left";
    g.fillStyle = c.ink;
    let at = left + this.layout.pad * k + 1;
    const room = left + w - 3;
    if (at + g.measureText(name).width > room || (signs.length && w < 130)) { const number = name.replace("rack ", ""); g.fillText(number, at, base); at += g.measureText(number).width + 4; }
    else { g.fillText(name, at, base); at += g.measureText(name).width + 8; }
    g.font = `400 ${size - 1}px ${c.font}`;
    const parts = w > 170 ? [[`${box.ids.length} nodes`, ""], ...signs.map(([n, glyph, state]) => [w > 300 ? `${glyph} ${n} ${WORDS[state] ?? state}` : `${glyph} ${n}`, state]), [`${fine} ready`, ""]] : [...signs.map(([n, glyph, state]) => [`${glyph}${n}`, state]), [`${box.ids.length}`, ""]];
    for (const [words, state] of parts) {
      const wide = g.measureText(words).width;
      if (at + wide > room) break;
      g.fillStyle = (state === "interrupted" && danger) || state === "silent" ? c.need : state ? c.ink : c.quiet;
      g.fillText(words, at, base);
      at += wide + 10;
    }
    box.words = [left, base - size, at - left, size * 1.4];
  }

  _draw(ids, on = null) {
    if (!this.layout || !ids.length) return;
    const g = on ?? this._begin(this.base);
    const heads = new Set();
    for (const id of ids) {
      const n = this.nodes.get(id), r = this.rect(id);
      if (!n || !r || r.x > this.width || r.y > this.height || r.x + r.w < 0 || r.y + r.h < 0) continue;
      if (!on) { g.fillStyle = this.colours.rack; const edge = Math.min(1.5, (this.layout.gap * this.view.k) / 2); g.fillRect(r.x - edge, r.y - edge, r.w + 2 * edge, r.h + 2 * edge); heads.add(n.rack); }
      g.globalAlpha = 1;
      if (r.w < 4) { g.fillStyle = n.state === "ok" ? this.colours.quiet : this.colours.need; g.fillRect(r.x, r.y, r.w, r.h); }
      else drawTile(g, n, r.x, r.y, r.w, r.h, this.colours, this.now, (store) => this._leaders(this.gauges.get(store[0]) ?? { to: store[2], from: store[2], at: 0 }) / this.most, this.room);
      if (this.filter && !matches(n, this.filter)) { g.globalAlpha = 0.75; g.fillStyle = this.colours.rack; g.fillRect(r.x, r.y, r.w, r.h); g.globalAlpha = 1; }
    }
    for (const box of this.layout.boxes) if (heads.has(box.name)) { this._clearHead(g, box); }
  }

  // The sums of a rack follow its tiles.
  _clearHead(g, box) {
    g.save();
    const { k, x, y } = this.view;
    g.beginPath();
    g.rect(box.x * k + x, box.y * k + y, box.w * k + 2, this.layout.head * k + this.layout.pad * k * 0.9);
    g.clip();
    this._box(g, box);
    g.restore();
  }

  _later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame((at) => { this.waiting = false; this._frame(at); });
  }

  // What moves: arrows, gauges on their way, the frame around what is selected. Runs on only while something moves.
  _frame() {
    if (!this.width || !this.section.offsetParent) return;
    this.frames++;
    const g = this._begin(this.top);
    g.clearRect(0, 0, this.width, this.height);
    const now = performance.now();
    for (const [id, move] of this.fading) if (now - move.ended > 1400) this.fading.delete(id);
    const easing = [...this.gauges.values()].filter((gauge) => now - gauge.at < EASE_MS + 50 && !this.still);
    this._draw([...new Set(easing.map((gauge) => gauge.node))]);
    drawArrows(g, this, now);
    for (const [id, loud] of [[this.hovered, false], [this.selected, document.activeElement === this.stage], [this.lit, true]]) {
      const r = id && this.rect(id);
      if (!r || (!loud && id !== this.hovered)) continue;
      g.strokeStyle = this.colours.good;
      g.lineWidth = loud ? 3 : 1.5;
      g.beginPath();
      g.roundRect(r.x - 2, r.y - 2, r.w + 4, r.h + 4, 5);
      g.stroke();
    }
    if ((this.moves.size && !this.still) || this.fading.size || easing.length) this._later();
  }

  // ── Looking closer ───────────────────────────────────────────────────────────────────────────────────────────

  zoom(by, x = this.width / 2, y = this.height / 2) {
    const { view } = this;
    const k = Math.max(1, Math.min(MOST_ZOOM, view.k * by));
    view.x = x - ((x - view.x) * k) / view.k;
    view.y = y - ((y - view.y) * k) / view.k;
    view.k = k;
    this._bound();
    this._all();
  }

  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this._bound();
    this._all();
  }

  fit() {
    this.view = { k: 1, x: 0, y: 0 };
    this._all();
  }

  _bound() {
    const { view } = this;
    view.x = Math.min(0, Math.max(view.x, this.width * (1 - view.k)));
    view.y = Math.min(0, Math.max(view.y, this.height * (1 - view.k)));
  }

  // ── Pointing and keys ────────────────────────────────────────────────────────────────────────────────────────

  _hit(x, y) {
    const { view, layout } = this;
    if (!layout) return null;
    const [wx, wy] = [(x - 1 - view.x) / view.k, (y - 1 - view.y) / view.k];
    const box = layout.boxes.find((b) => wx >= b.x && wx <= b.x + b.w && wy >= b.y && wy <= b.y + b.h);
    if (!box) return null;
    const col = Math.floor((wx - box.x - layout.pad) / (layout.tile.w + layout.gap));
    const line = Math.floor((wy - box.y - layout.head - layout.pad) / (layout.tile.h + layout.gap));
    const id = line >= 0 && col >= 0 && col < box.cols ? box.ids[line * box.cols + col] : undefined;
    if (!id) return { rack: box.name };
    const r = this.rect(id), n = this.nodes.get(id);
    for (const pod of n.names) {
      const at = this.cellOf(id, pod, r);
      if (at && x >= at.x && x <= at.x + at.w && y >= at.y && y <= at.y + at.h) return { id, pod };
    }
    return { id };
  }

  // Under the same pointer something else may be shown by now.
  _again() { if (!this.tip.hidden) this._hover(...this._pointed); }

  _hover(x, y) {
    this._pointed = [x, y];
    const hit = this._hit(x, y);
    const id = hit?.id ?? "";
    this.top.style.cursor = hit ? "pointer" : this.view.k > 1 ? "grab" : "default";
    if (id) {
      this.tip.textContent = hit.pod ? `${hit.pod} on ${id}` : described(this.nodes.get(id), this.now);
      this.tip.hidden = false;
      this.tip.style.left = `${Math.min(x + 14, this.width - Math.min(360, this.tip.offsetWidth) - 4)}px`;
      this.tip.style.top = `${y + 18 + this.tip.offsetHeight > this.height ? y - this.tip.offsetHeight - 8 : y + 18}px`;
    } else this.tip.hidden = true;
    if (id === this.hovered) return;
    this.hovered = id;
    this._later();
  }

  _clicked(x, y) {
    const hit = this._hit(x, y);
    if (!hit) return;
    if (hit.id) this.select(hit.id);
    this.onOpen(hit.pod ? `pod/${hit.pod}` : hit.id ? `node/${hit.id}` : `rack/${hit.rack}`, this);
  }

  _first() { return this.layout?.boxes[0]?.ids[0] ?? ""; }

  select(id) {
    this.selected = id;
    const r = this.rect(id);
    if (r && this.view.k > 1) {
      if (r.x < 0 || r.x + r.w > this.width) this.pan(this.width / 2 - r.x - r.w / 2, 0);
      if (r.y < 0 || r.y + r.h > this.height) this.pan(0, this.height / 2 - r.y - r.h / 2);
    }
    this._say();
    this._later();
  }

  // The node of what `why` is open about: itself, or where that pod or store is.
  light(about) {
    this.about = about;
    const [kind, ...rest] = about.split("/"), name = rest.join("/");
    const on = (n) => (kind === "pod" ? n.names.includes(name) : kind === "store" && n.stores.some((store) => store[0] === name));
    this.lit = kind === "node" ? name : about ? [...this.nodes.values()].find(on)?.id ?? "" : "";
    this._later();
  }

  _say() {
    const n = this.nodes.get(this.selected);
    const words = n ? described(n, this.now) : "";
    if (this.said.textContent !== words) this.said.textContent = words;
  }

  focus() { this.stage.focus(); }

  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[event.key];
    if (step) this._move(...step);
    else if (event.key === "Enter" && this.selected) this.onOpen(`node/${this.selected}`, this);
    else if (event.key === "+" || event.key === "=") this._zoomAtSelected(1.6);
    else if (event.key === "-") this._zoomAtSelected(1 / 1.6);
    else if (event.key === "Home") this.select(this._first());
    else if (event.key === "End") this.select(this.layout?.boxes.at(-1).ids.at(-1) ?? "");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  _zoomAtSelected(by) {
    const r = this.rect(this.selected);
    this.zoom(by, r ? r.x + r.w / 2 : undefined, r ? r.y + r.h / 2 : undefined);
    if (this.selected) this.select(this.selected);
  }

  // To the nearest tile that way.
  _move(dx, dy) {
    const from = this.at?.get(this.selected);
    if (!from) { this.select(this._first()); return; }
    let best = "", least = Infinity;
    for (const [id, at] of this.at) {
      const ahead = (at.x - from.x) * dx + (at.y - from.y) * dy;
      if (ahead < 1) continue;
      const beside = Math.abs((at.x - from.x) * dy) + Math.abs((at.y - from.y) * dx);
      if (ahead + 3 * beside < least) { least = ahead + 3 * beside; best = id; }
    }
    if (best) this.select(best);
  }
}

export function matches(n, words) {
  return `${n.id} rack ${n.rack} ${n.cls} ${n.state} ${n.words} ${n.names.join(" ")} ${n.stores.map(([id, pod]) => `${id} ${pod}`).join(" ")}`.toLowerCase().includes(words);
}
