// The scrubber: back through what was, and forth again; play, pause, speed. Right at its end it is live.

import { make, text } from "./table.js";
import { clock } from "./views.js";

const SPEEDS = [1, 4, 16];
const LIVE_PER_S = 2; // frames a second, as the server makes them
const REFRESH_MS = 10_000;

export class Scrubber {
  // onState(state, position): a frame of the past. onLive(): back to now.
  constructor(bar, onState, onLive) {
    this.bar = bar;
    this.range = bar.querySelector("input");
    this.button = bar.querySelector("#play");
    this.speedButton = bar.querySelector("#speed");
    this.liveButton = bar.querySelector("#go-live");
    this.label = bar.querySelector("#scrub-at");
    this.marks = bar.querySelector("#marks");
    this._onState = onState;
    this._onLive = onLive;
    this.source = null;
    this.recorded = false;
    this.live = true;
    this.playing = false;
    this.speed = 4;
    this.position = 0;
    this.range.addEventListener("input", () => this.seek(Number(this.range.value)));
    this.button.addEventListener("click", () => this.toggle());
    this.speedButton.addEventListener("click", () => this.faster());
    this.liveButton.addEventListener("click", () => this.goLive());
  }

  // past: of the server, or a recording that has been read.
  use(source, recorded) {
    this.source = source;
    this.recorded = recorded;
    this.live = !recorded;
    this.playing = false;
    this.position = recorded ? source.first : source.last;
    this._refreshed = -REFRESH_MS;
    this.draw();
  }

  // A frame has come from the server.
  async heard(state) {
    if (this.recorded || !this.source) return;
    this.source.last = Math.max(this.source.last, state.seq);
    if (this.source.first > state.seq || this.source.last > state.seq + 5) Object.assign(this.source, { first: 0, last: state.seq, pieces: [] }); // another server
    if (this.live) this.position = state.seq;
    const now = performance.now();
    if (now - this._refreshed > REFRESH_MS) { this._refreshed = now; await this.source.refresh().catch(() => {}); }
    this.draw(state.asOf);
  }

  async seek(position, { keep = false } = {}) {
    if (!this.source) return;
    if (!keep) this.playing = false;
    this.position = Math.max(this.source.first, Math.min(position, this.source.last));
    if (!this.recorded && this.position >= this.source.last) { this.goLive(); return; }
    this.live = false;
    const wanted = this.position;
    const state = await this.source.at(wanted).catch(() => null);
    if (!state || this.live || wanted !== this.position) return;
    this._onState(state, wanted);
    this.draw(state.asOf);
  }

  step(by) { this.seek(this.position + by); }

  toggle() { this.playing ? this.stop() : this.play(); }

  stop() { this.playing = false; this.draw(); }

  // From where one is; from the beginning when that is the end.
  async play() {
    if (!this.source || this.playing) return;
    if (this.live || this.position >= this.source.last) this.position = this.source.first - 1;
    this.playing = true;
    this.live = false;
    while (this.playing && !this.live) {
      const began = performance.now();
      await this.seek(this.position + 1, { keep: true });
      if (this.position >= this.source.last && this.recorded) this.playing = false;
      await new Promise((done) => setTimeout(done, Math.max(0, 1000 / (LIVE_PER_S * this.speed) - (performance.now() - began))));
    }
    this.draw();
  }

  faster() {
    this.speed = SPEEDS[(SPEEDS.indexOf(this.speed) + 1) % SPEEDS.length];
    this.draw();
  }

  goLive() {
    this.playing = false;
    if (this.recorded || this.live) return;
    this.live = true;
    this.position = this.source.last;
    this._onLive();
    this.draw();
  }

  draw(asOf) {
    if (!this.source) return;
    const { first, last, marks } = this.source;
    this.range.min = String(first);
    this.range.max = String(Math.max(first + 1, last));
    if (document.activeElement !== this.range || this.playing || this.live) this.range.value = String(this.position);
    const where = asOf ? clock(asOf) : this.label.dataset.at ?? "";
    this.label.dataset.at = where;
    text(this.label, where);
    this.range.setAttribute("aria-valuetext", `${where}${this.live ? ", live" : ""}`);
    text(this.button, this.playing ? "❚❚" : "▶");
    this.button.setAttribute("aria-label", this.playing ? "stop playing" : "play the past");
    text(this.speedButton, `${this.speed}×`);
    this.speedButton.setAttribute("aria-label", `speed ${this.speed} times`);
    this.liveButton.hidden = this.recorded;
    this.liveButton.setAttribute("aria-pressed", String(this.live));
    const key = JSON.stringify([marks, first, last]);
    if (this.marks.dataset.key === key) return;
    this.marks.dataset.key = key;
    this.marks.replaceChildren(...marks.filter(([at]) => at >= first).map(([at, words]) => {
      const mark = make("span");
      mark.style.left = `${(100 * (at - first)) / Math.max(1, last - first)}%`;
      mark.title = words;
      return mark;
    }));
  }
}
