// What was, frame by frame: kept by the server since it began, or in a recording. Both are the stream itself in pieces,
// each beginning with a whole picture, so that any frame is a few steps away.

import { ask } from "./source.js";
import { apply, empty, snapshot } from "./state.js";

const KEPT = 4;
const PIECE = 60;

// Frames of one piece, made one after the other as they are asked for.
class Piece {
  constructor(base, events) {
    this._states = [];
    this._base = base;
    this._events = events;
  }
  at(k) {
    while (this._states.length <= k && this._states.length < this._events.length) {
      const { event, id, data } = this._events[this._states.length];
      const before = this._states.at(-1) ?? this._base;
      const next = event === "snapshot" ? snapshot(id, data) : before && apply({ ...before, seq: id - 1 }, id, data);
      this._states.push(next ?? before ?? empty());
    }
    return this._states[Math.min(k, this._states.length - 1)];
  }
}

export function parse(text) {
  const found = [];
  for (const block of text.split("\n\n")) {
    const one = { event: "", id: 0, data: null };
    let words = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("data: ")) words += line.slice(6);
      else if (line.startsWith("event: ")) one.event = line.slice(7);
      else if (line.startsWith("id: ")) one.id = Number(line.slice(4));
    }
    try { one.data = JSON.parse(words); } catch { continue; } // one bad line in a file
    found.push(one);
  }
  return found;
}

class Pieces {
  constructor() {
    this._loaded = new Map();
    this.marks = [];
  }
  async _piece(key, load) {
    if (!this._loaded.has(key)) {
      this._loaded.set(key, load());
      while (this._loaded.size > KEPT) this._loaded.delete(this._loaded.keys().next().value);
    }
    try { return await this._loaded.get(key); } catch (error) { this._loaded.delete(key); throw error; }
  }
}

// The server's own memory of its frames. Positions are numbers of frames.
export class Past extends Pieces {
  constructor() {
    super();
    this.pieces = [];
    this.first = 0;
    this.last = 0;
    this.recording = ""; // its name, where the server shows a recording and nothing else
  }
  close() {}
  async refresh() {
    const answer = await ask("/api/v1/past");
    if (!answer.ok) return;
    const found = await answer.json();
    this.pieces = found.pieces;
    this.marks = found.marks;
    this.recording = found.recording ?? "";
    if (!this.pieces.length) return;
    this.first = this.pieces[0].seq;
    const end = this.pieces.at(-1);
    this.last = Math.max(this.last, end.seq + end.frames - 1);
  }
  async at(seq) {
    let piece = this.pieces.findLast((p) => p.seq <= seq) ?? this.pieces[0];
    if (piece && seq >= piece.seq + piece.frames) { await this.refresh(); piece = this.pieces.findLast((p) => p.seq <= seq) ?? this.pieces[0]; }
    if (!piece) throw new Error("nothing is kept yet");
    const made = await this._piece(`${piece.seq}:${piece.frames}`, async () => {
      const answer = await ask(`/api/v1/past/${piece.seq}`);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      return new Piece(null, parse(await answer.text()));
    });
    return made.at(Math.max(0, seq - piece.seq));
  }
}

// A recording: read through once, piece by piece; of each only where it is and what it begins with are kept.
export class Recording extends Pieces {
  constructor(file) {
    super();
    this.first = 0;
    this.last = -1;
    this.file = file;
    this.stopped = false;
    this._pieces = [];
  }
  get frames() { return this.last + 1; }
  close() { this.stopped = true; }

  // Resolves when it has been read; onProgress(share, state of the newest frame).
  async read(onProgress) {
    const reader = this.file.stream().getReader();
    const decoder = new TextDecoder();
    let rest = new Uint8Array(0), offset = 0, state = null, count = 0, from = 0, base = null, act = "";
    const ended = (upTo) => { if (count) this._pieces.push({ from, to: upTo, base, first: this.last - count + 1 }); };
    for (;;) {
      const { value, done } = await reader.read();
      if (done || this.stopped) break;
      const bytes = new Uint8Array(rest.length + value.length);
      bytes.set(rest);
      bytes.set(value, rest.length);
      let start = 0;
      for (let k = 0; k + 1 < bytes.length; k++) {
        if (bytes[k] !== 10 || bytes[k + 1] !== 10) continue;
        const [one] = parse(decoder.decode(bytes.subarray(start, k)));
        const at = offset + start;
        start = k + 2;
        k++;
        const next = !one ? null : one.event === "snapshot" ? snapshot(one.id, one.data) : state && apply(state, one.id, one.data);
        if (!next) { if (one) state = state && { ...state, seq: one.id }; continue; }
        if (one.event === "snapshot" || count >= PIECE) { ended(at); from = at; base = state; count = 0; }
        state = next;
        count++;
        this.last++;
        const words = state.head.act?.title ?? "";
        if (words && words !== act) this.marks.push([this.last, words]);
        act = words;
      }
      rest = bytes.slice(start);
      offset += start;
      onProgress?.(this.file.size ? (offset + rest.length) / this.file.size : 1, state);
    }
    ended(offset);
    return state;
  }

  async at(position) {
    const piece = this._pieces.findLast((p) => p.first <= position);
    if (!piece) return empty();
    const made = await this._piece(piece.first, async () => new Piece(piece.base, parse(await this.file.slice(piece.from, piece.to).text())));
    return made.at(position - piece.first);
  }
}

