// The `why` panel: the words of the command line, as text. Operators it names can be opened in turn.

import { authorization } from "./source.js";
import { make, text } from "./table.js";

const EVERY_MS = 2000;

export class Why {
  constructor(panel, recorded, paused) {
    this.panel = panel;
    this.isOpen = false;
    this._recorded = recorded;
    this._paused = paused;
    this._subject = "";
    this._askedAt = 0;
    panel.querySelector("#why-close").addEventListener("click", () => this.close());
  }

  open(subject, row, from) {
    if (from && !this.isOpen) this._from = from;
    this._subject = subject;
    this._row = row;
    this.isOpen = true;
    this.panel.hidden = false;
    text(this.panel.querySelector("#why-h"), subject);
    text(this.panel.querySelector("#why-cmd"), `$ mooring why ${command(subject)}`);
    text(this.panel.querySelector("#why-text"), "asking …");
    this.panel.querySelector("#why-more").replaceChildren();
    this.panel.focus();
    this._ask();
  }

  close() {
    this.isOpen = false;
    this.panel.hidden = true;
    if (this._from?.isConnected) this._from.focus();
    this._from = null;
  }

  refresh() {
    if (this.isOpen && !this._recorded() && !this._paused() && performance.now() - this._askedAt > EVERY_MS) this._ask();
  }

  async _ask() {
    const subject = this._subject;
    this._askedAt = performance.now();
    if (this._recorded()) {
      this._say(`A recording holds what was shown, not what was thought.\n\n${described(this._row)}`);
      return;
    }
    let words;
    try {
      const path = subject.split("/").map(encodeURIComponent).join("/");
      const answer = await fetch(`/api/v1/say/${path}`, { headers: authorization() });
      words = await answer.text();
    } catch (error) {
      words = `could not ask: ${error.message}`;
    }
    if (subject === this._subject) this._say(words);
  }

  _say(words) {
    text(this.panel.querySelector("#why-text"), words);
    const named = [...new Set([...words.matchAll(/\bop (\d+)/g)].map((m) => m[1]))].slice(0, 8);
    const about = named.map((id) => `operator/${id}`).filter((s) => s !== this._subject);
    const more = this.panel.querySelector("#why-more");
    if (more.dataset.named === about.join()) return;
    more.dataset.named = about.join();
    more.replaceChildren(...about.map((other) => {
      const button = make("button", "", `why ${other}`);
      button.type = "button";
      button.addEventListener("click", () => this.open(other, null, null));
      return button;
    }));
  }
}

function described(row) {
  return Object.entries(row ?? {}).map(([key, value]) => `${key.padEnd(12)}${typeof value === "object" ? JSON.stringify(value) : value}`).join("\n");
}

function command(subject) {
  const [kind, ...rest] = subject.split("/");
  if ((kind === "pod" || kind === "cluster") && rest.length === 2) return `${kind}/${rest[1]} -n ${rest[0]}`;
  if (kind === "store" && rest.length === 3) return `store/${rest[1]}/${rest[2]} -n ${rest[0]}`;
  return subject;
}
