// The `why` panel: the words of the command line, as text. Operators it names can be opened in turn.

import { ask } from "./source.js";
import { make, text } from "./table.js";

const EVERY_MS = 2000;
const MOST_NAMED = 12;

export class Why {
  // Asked when it matters: recorded (the time that is shown, or ""), at (the same as a number; 0: there is no recording
  // to ask), paused; onChange(subject): "" when it was closed.
  constructor(panel, recorded, at, paused, onChange) {
    this._at = at;
    this.panel = panel;
    this._onChange = onChange;
    this.isOpen = false;
    this._recorded = recorded;
    this._paused = paused;
    this._subject = "";
    this._askedAt = 0;
    panel.querySelector("#why-close").addEventListener("click", () => this.close());
    const edge = panel.querySelector("#why-edge");
    edge.addEventListener("pointerdown", (event) => edge.setPointerCapture(event.pointerId));
    edge.addEventListener("pointermove", (event) => { if (event.buttons) panel.style.width = `${Math.max(320, innerWidth - event.clientX)}px`; });
  }

  // from: what gets the focus back, anything with focus().
  open(subject, row, from) {
    if (from && !this.isOpen) this._from = from;
    this._subject = subject;
    this._missing = false; // once it is not found it is not asked for again until it is opened again
    this._row = row;
    this.isOpen = true;
    this.panel.hidden = false;
    text(this.panel.querySelector("#why-h"), subject);
    text(this.panel.querySelector("#why-cmd"), subject.startsWith("rack/") ? "" : `$ mooring why ${command(subject)}`);
    text(this.panel.querySelector("#why-text"), "asking …");
    this.panel.querySelector("#why-more").replaceChildren();
    delete this.panel.querySelector("#why-more").dataset.named;
    this.panel.scrollTop = 0;
    this.panel.focus();
    this._onChange(subject);
    this._ask();
  }

  close() {
    this.isOpen = false;
    this.panel.hidden = true;
    this._from?.focus();
    this._from = null;
    this._onChange("");
  }

  refresh() {
    if (!this.isOpen) return;
    if (this._recorded()) { this._follow(); return; }
    if (this._paused() || this._missing || performance.now() - this._askedAt < EVERY_MS) return;
    const selected = getSelection();
    if (!selected.isCollapsed && this.panel.contains(selected.anchorNode)) return; // the user is copying a command
    this._ask();
  }

  // Another moment is shown: asked again once it has stood for a while, since it takes a replay to answer.
  _follow() {
    const at = this._at();
    if (!at || at === this._askedFor) return;
    clearTimeout(this._standing);
    this._standing = setTimeout(() => { if (this.isOpen && this._recorded() && this._at() === at) this._ask(); }, 600);
  }

  async _ask() {
    const subject = this._subject;
    this._askedAt = performance.now();
    const then = this._recorded(), at = then && this._at();
    this._askedFor = at;
    if (then && !at) {
      this._say(`As of ${then}: what was shown then. Reasons are not kept in frames.\n\n${described(this._row)}`);
      return;
    }
    if (then) this._say(`As of ${then}: asking the black box …`);
    let words;
    try {
      const path = subject.split("/").map(encodeURIComponent).join("/");
      const answer = await ask(`/api/v1/say/${path}${then ? `?at=${at}` : ""}`);
      words = await answer.text();
      if (subject === this._subject) this._missing = answer.status === 404;
      if (then && !answer.ok) words += `\n${described(this._row)}`;
    } catch (error) {
      words = `could not ask: ${error instanceof TypeError ? "Mooring does not answer" : error.message}`;
    }
    if (subject === this._subject && this._askedFor === at) this._say(words);
  }

  _say(words) {
    const shown = this.panel.querySelector("#why-text");
    // Line by line, so that a long one goes on below its own words; the first is the answer.
    if (shown.textContent !== words)
      shown.replaceChildren(...words.split(/(?<=\n)/).map((line, k) => withCopy(make(k ? "span" : "b", "line", line), line)));
    const about = named(words).filter((s) => s !== this._subject).slice(0, MOST_NAMED);
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

// A command at the end of a line can be copied; the button has no text, so that what stands there is the command line's.
const COMMAND = /(?:^|\s{2,})((?:kubectl|mooring|pd-ctl|helm) .+?)\s*$/;
export function commandIn(line) { return COMMAND.exec(line)?.[1] ?? ""; }

function withCopy(shown, line) {
  const words = commandIn(line);
  if (words) shown.append(copyButton(() => words));
  return shown;
}

export function copyButton(words, button = make("button", "copy")) {
  button.type = "button";
  button.title = "copy";
  button.setAttribute("aria-label", "copy the command");
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    try { await navigator.clipboard.writeText(words()); } catch { return; } // a browser that does not let us: it is there to be selected
    button.dataset.done = "";
    setTimeout(() => delete button.dataset.done, 1500);
  });
  return button;
}

// What a text names that `why` can be asked about in turn.
function named(words) {
  const found = [...words.matchAll(/\bop (\d+)/g)].map((m) => `operator/${m[1]}`);
  const whole = /(?<![\w/.-])(?:node\/[\w.-]+|machine\/[\w.-]+|(?:pod|cluster)\/[\w.-]+\/[\w.-]+|store\/[\w.-]+\/[\w.-]+\/\d+)(?![\w/-])/g;
  found.push(...[...words.matchAll(whole)].map((m) => m[0].replace(/[.-]+$/, "")));
  return [...new Set(found)];
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
