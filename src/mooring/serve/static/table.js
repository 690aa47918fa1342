// A table of any length: only the rows in sight exist as elements, and they are used again while one scrolls.
// Cells are filled with text, never with markup.

const ROW = 26;
const SPARE = 6;

export class Table {
  // columns: [{name, cls, fill(cell, row, state)}]; source: {count, at(i) -> row | undefined, empty}
  constructor(section, name, columns, onOpen) {
    this.section = section;
    this.section.tabIndex = -1; // holds the focus while there are no rows
    this.columns = columns;
    this.onOpen = onOpen;
    this.source = { count: 0, at: () => undefined, empty: "" };
    this.focused = 0;
    this.pool = [];
    this.root = make("div", `table t-${name}`);
    this.root.setAttribute("role", "table");
    this.root.setAttribute("aria-labelledby", `${name}-h`);
    const head = make("div", "row head");
    head.setAttribute("role", "row");
    for (const column of columns) {
      const cell = make("div", `cell ${column.cls ?? ""}`, column.name);
      cell.setAttribute("role", "columnheader");
      head.append(cell);
    }
    this.body = make("div", "body");
    this.body.setAttribute("role", "rowgroup");
    this.space = make("div", "space");
    this.nothing = make("p", "nothing");
    this.body.append(this.space);
    this.root.append(head, this.body, this.nothing);
    section.append(this.root);
    this.body.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("click", (event) => this._clicked(event));
    this.body.addEventListener("keydown", (event) => this._key(event));
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  show(source, state) {
    this.source = source;
    this.state = state;
    this.focused = Math.max(0, Math.min(this.focused, source.count - 1));
    this.draw();
    if (source.count && document.activeElement === this.section) this.focus();
  }

  draw() {
    const { source } = this;
    this.space.style.height = `${source.count * ROW}px`;
    this.nothing.textContent = source.count ? "" : source.empty;
    this.nothing.hidden = source.count > 0;
    this.body.hidden = source.count === 0;
    this.root.setAttribute("aria-rowcount", String(source.count + 1));
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW) - SPARE);
    const last = Math.min(source.count, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW) + SPARE);
    const wanted = Math.max(0, last - first);
    while (this.pool.length < wanted) this.pool.push(this._newRow());
    while (this.pool.length > wanted + 40) this.pool.pop().remove();
    this.pool.forEach((element, k) => {
      const index = first + k;
      element.hidden = k >= wanted;
      if (k < wanted) this._fill(element, index);
    });
  }

  focus(index = this.focused) {
    if (!this.source.count) return this.section.focus();
    this.focused = Math.max(0, Math.min(index, this.source.count - 1));
    const top = this.focused * ROW;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (top + ROW > this.body.scrollTop + this.body.clientHeight)
      this.body.scrollTop = top + ROW - this.body.clientHeight;
    this.draw();
    this.pool.find((element) => !element.hidden && element.index === this.focused)?.focus({ preventScroll: true });
  }

  _newRow() {
    const element = make("div", "row");
    element.setAttribute("role", "row");
    for (const column of this.columns) {
      const cell = make("div", `cell ${column.cls ?? ""}`);
      cell.setAttribute("role", "cell");
      element.append(cell);
    }
    this.space.append(element);
    return element;
  }

  _fill(element, index) {
    element.index = index;
    element.style.transform = `translateY(${index * ROW}px)`;
    element.tabIndex = index === this.focused ? 0 : -1;
    element.setAttribute("aria-rowindex", String(index + 2));
    const row = this.source.at(index);
    element.dataset.state = row?.state ?? "";
    this.columns.forEach((column, k) => {
      const cell = element.children[k];
      try {
        if (row) column.fill(cell, row, this.state);
        else text(cell, k === 0 ? "…" : "");
      } catch {
        text(cell, "?"); // one bad row, not a broken page
      }
    });
  }

  _clicked(event) {
    const element = event.target.closest(".row");
    if (!element) return;
    this.focused = element.index;
    this.draw();
    this._open(element);
  }

  _key(event) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[event.key];
    if (step !== undefined && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.focus(this.focused + step);
    } else if (event.key === "Enter") {
      event.preventDefault();
      const element = event.target.closest(".row");
      if (element) this._open(element);
    }
  }

  _open(element) {
    const row = this.source.at(element.index);
    if (row) this.onOpen(row, element);
  }
}

export function make(tag, cls = "", words = "") {
  const element = document.createElement(tag);
  if (cls) element.className = cls;
  if (words) element.textContent = words;
  return element;
}

export function text(element, words) {
  const value = words ?? "";
  if (element.textContent !== String(value)) element.textContent = value;
}
