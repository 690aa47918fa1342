// All nodes, page by page: 200 rows are fetched when they come into sight, and again when they have grown old.

import { authorization } from "./source.js";

const PAGE = 200;
const KEPT = 12;
const FRESH_MS = 4000;

export class NodePages {
  constructor(onRows) {
    this._onRows = onRows;
    this._pages = new Map();
    this._asking = new Set();
    this._total = 0;
  }

  visit(total) { this._total = total; }

  at(index) {
    const number = Math.floor(index / PAGE);
    const known = this._pages.get(number);
    if (!known || performance.now() - known.at > FRESH_MS) this._ask(number);
    return known?.rows[index % PAGE];
  }

  async _ask(number) {
    if (this._asking.has(number)) return;
    this._asking.add(number);
    try {
      const answer = await fetch(`/api/v1/nodes?offset=${number * PAGE}`, { headers: authorization() });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const data = await answer.json();
      this._pages.delete(number);
      this._pages.set(number, { at: performance.now(), rows: data.rows });
      while (this._pages.size > KEPT) this._pages.delete(this._pages.keys().next().value);
      this._onRows();
    } catch {
      const old = this._pages.get(number);
      if (old) old.at = performance.now(); // asked again later; what is there stays
    } finally {
      setTimeout(() => this._asking.delete(number), 500);
    }
  }
}
