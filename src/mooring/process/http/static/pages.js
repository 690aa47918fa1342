// The whole of a view, page by page: 200 rows are fetched when they come into sight, and again when they have grown old.

import { ask } from "./source.js";

const PAGE = 200;
const KEPT = 12;
const FRESH_MS = 4000;

export class Pages {
  constructor(view, onRows) {
    this._view = view;
    this._onRows = onRows;
    this._words = "";
    this._forget();
  }

  // Of what is asked for: the words to find ("": everything). `total` is known before the first page has come.
  // Paused: what is there stays as it is.
  visit(words, total, paused) {
    this._paused = paused;
    if (words !== this._words) { this._words = words; this._forget(); }
    if (!words) this.count = total;
  }

  _forget() {
    this._pages = new Map();
    this._asking = new Set();
    this.count = 1; // one row: it is being asked for
    this.known = false;
  }

  peek(index) { return this._pages.get(Math.floor(index / PAGE))?.rows[index % PAGE]; }

  at(index) {
    const number = Math.floor(index / PAGE);
    const known = this._pages.get(number);
    if (!known || (!this._paused && performance.now() - known.at > FRESH_MS)) this._ask(number);
    return known?.rows[index % PAGE];
  }

  async _ask(number) {
    const asking = this._asking;
    if (asking.has(number)) return;
    asking.add(number);
    try {
      const answer = await ask(`/api/v1/rows/${this._view}?offset=${number * PAGE}&q=${encodeURIComponent(this._words)}`);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const data = await answer.json();
      if (asking !== this._asking) return; // other words by now
      this._pages.delete(number);
      this._pages.set(number, { at: performance.now(), rows: data.rows });
      while (this._pages.size > KEPT) this._pages.delete(this._pages.keys().next().value);
      this.count = data.total;
      this.known = true;
      this._onRows();
    } catch {
      const old = this._pages.get(number);
      if (old) old.at = performance.now(); // asked again later; what is there stays
    } finally {
      setTimeout(() => asking.delete(number), 500);
    }
  }
}
