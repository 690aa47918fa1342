// Where frames come from: the live stream, shared by all tabs of this browser.
//
// Browsers allow six connections to one origin, so eight tabs with a stream each would hang. One visible tab holds a
// lock, reads the stream and passes every frame on; a hidden tab gives the lock back. Where there are no locks (plain
// http under another name than localhost) each tab reads for itself.

import { apply, empty, events, snapshot, whole } from "./state.js";

const STALL_MS = 10_000;
const RETRY_MS = [500, 1000, 2000, 4000];
const LOCK = "mooring-stream";

export function authorization() {
  const token = sessionStorage.getItem("mooring-token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

// Everything but the stream: a token that is wanted is asked for wherever it is missing.
export async function ask(path) {
  const answer = await fetch(path, { headers: authorization() });
  if (answer.status === 401) window.dispatchEvent(new Event("mooring-token-wanted"));
  return answer;
}

export class Live {
  constructor(onState, onTrouble) {
    this.state = empty();
    this.leading = false;
    this.stopped = false;
    this._onState = onState;
    this._onTrouble = onTrouble;
    this._shared = Boolean(navigator.locks && window.BroadcastChannel);
    this._abort = null;
    if (this._shared) {
      this._channel = new BroadcastChannel(LOCK);
      this._channel.onmessage = (message) => this._heard(message.data);
    }
    this._watch = () => (document.hidden ? this._rest() : this._begin());
    document.addEventListener("visibilitychange", this._watch);
    this._watch();
  }

  close() {
    this.stopped = true;
    document.removeEventListener("visibilitychange", this._watch);
    this._rest();
    this._channel?.close();
  }

  _rest() {
    this._abort?.abort();
    this._abort = null;
  }

  _begin() {
    if (this._abort || this.stopped) return;
    const abort = (this._abort = new AbortController());
    if (!this._shared) {
      this._read(abort.signal);
      return;
    }
    this._channel.postMessage({ kind: "hello" });
    navigator.locks
      .request(LOCK, { signal: abort.signal }, () => this._read(abort.signal))
      .catch((error) => { if (error.name !== "AbortError") throw error; });
  }

  async _read(signal) {
    this.leading = true;
    let failed = 0;
    while (!signal.aborted) {
      try {
        await this._once(signal, () => { failed = 0; });
      } catch (error) {
        if (signal.aborted) break;
        this._onTrouble(error);
      }
      const pause = RETRY_MS[Math.min(failed++, RETRY_MS.length - 1)];
      await new Promise((done) => {
        const timer = setTimeout(done, pause);
        signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
      });
    }
    this.leading = false;
  }

  async _once(signal, onFrame) {
    const own = new AbortController();
    const stop = () => own.abort();
    signal.addEventListener("abort", stop, { once: true });
    let stall = setTimeout(stop, STALL_MS);
    try {
      const answer = await fetch("/api/v1/stream", { headers: authorization(), signal: own.signal, cache: "no-store" });
      if (!answer.ok) throw Object.assign(new Error(`the server answered ${answer.status}`), { status: answer.status });
      for await (const frame of events(answer.body)) {
        clearTimeout(stall);
        stall = setTimeout(stop, STALL_MS);
        const data = JSON.parse(frame.data);
        this._take(frame.event, frame.id, data);
        this._channel?.postMessage({ kind: frame.event, seq: frame.id, data });
        onFrame();
      }
    } finally {
      clearTimeout(stall);
      signal.removeEventListener("abort", stop);
    }
  }

  _take(kind, seq, data) {
    const next = kind === "snapshot" ? snapshot(seq, data) : apply(this.state, seq, data);
    if (!next) return false;
    this.state = next;
    this._onState(next);
    return true;
  }

  _heard(message) {
    if (message.kind === "hello") {
      if (this.leading && this.state.seq >= 0)
        this._channel.postMessage({ kind: "snapshot", seq: this.state.seq, data: whole(this.state), again: true });
    } else if (!this.leading && !document.hidden) {
      if (message.again && message.seq === this.state.seq) return;
      if (!this._take(message.kind, message.seq, message.data)) this._channel.postMessage({ kind: "hello" });
    }
  }
}
