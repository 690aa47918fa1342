// A table of any length: only the rows in sight exist as elements, and they are used again while one scrolls.
// Cells are filled with text, never with markup.

const SPARE = 6;

export class Table {
  // columns: [{name, cls, label, fill(cell, row, state)}]
  // source: {count, at(i) -> row | undefined (then it is asked for), peek(i): the same without asking, find(id), empty}
  constructor(section, name, columns, onOpen) {
    this.section = section;
    this.section.tabIndex = -1; // holds the focus while there are no rows
    this.columns = columns;
    this.onOpen = onOpen;
    this.source = { count: 0, at: () => undefined, peek: () => undefined, find: () => -1, empty: "" };
    this.focused = 0;
    this.focusedId = undefined;
    this.lit = () => false; // which row stands out
    this.pool = [];
    this.row = 26;
    this.root = make("div", `table t-${name}`);
    this.root.setAttribute("role", "table");
    this.root.setAttribute("aria-labelledby", `${name}-h`);
    const head = make("div", "row head");
    head.setAttribute("role", "row");
    for (const column of columns) {
      const cell = make("div", `cell ${column.cls ?? ""}`, column.name);
      cell.setAttribute("role", "columnheader");
      if (column.label) cell.setAttribute("aria-label", column.label);
      head.append(cell);
    }
    this.body = make("div", "body");
    this.body.tabIndex = -1;
    this.body.setAttribute("role", "rowgroup");
    this.space = make("div", "space");
    this.nothing = make("p", "nothing");
    this.body.append(this.space);
    this.root.append(head, this.body, this.nothing);
    section.append(this.root);
    this.body.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("click", (event) => this._clicked(event));
    this.body.addEventListener("keydown", (event) => this._key(event));
    this.body.addEventListener("mouseover", (event) => hint(event.target.closest(".cell")));
    new ResizeObserver(() => this.draw()).observe(this.body);
    this._narrow = matchMedia("(max-width: 700px)");
    this._narrow.addEventListener("change", () => this.draw());
  }

  show(source, state) {
    this.source = source;
    this.state = state;
    const within = this.section.contains(document.activeElement);
    if (this._follow(within)) this.focus();
    else this.draw();
    if (source.count && document.activeElement === this.section) this.focus();
  }

  // What one stands on stays under the finger, wherever the order has taken it: Enter opens what was read.
  // True: it has moved, and holds the focus.
  _follow(within) {
    const { source } = this;
    const before = this.focused;
    if (this.focusedId !== undefined && source.peek(before)?.id !== this.focusedId) {
      const found = source.find(this.focusedId);
      if (found >= 0) this.focused = found;
      else this.focusedId = undefined;
    }
    this.focused = Math.max(0, Math.min(this.focused, source.count - 1));
    if (within) this.focusedId ??= source.peek(this.focused)?.id;
    return within && this.focused !== before && this.body.contains(document.activeElement);
  }

  draw() {
    const { source } = this;
    const ROW = (this.row = this._narrow.matches ? 50 : 26);
    this.space.style.height = `${source.count * ROW}px`;
    this.root.style.setProperty("--rows", String(source.count * (ROW / 26)));
    this.nothing.textContent = source.count ? "" : source.empty;
    this.nothing.hidden = source.count > 0;
    this.body.hidden = source.count === 0;
    this.root.classList.toggle("empty", source.count === 0);
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
    // Elements are used again: the focus belongs to a row, not to an element. Scrolled out of sight, the view keeps it.
    const active = document.activeElement;
    if (active !== this.body && !this.body.contains(active)) return;
    const holder = this._element() ?? this.body;
    if (holder !== active) holder.focus({ preventScroll: true });
  }

  _element() {
    return this.pool.find((element) => !element.hidden && element.index === this.focused);
  }

  focus(index = this.focused) {
    if (!this.source.count) return this.section.focus();
    this.focused = Math.max(0, Math.min(index, this.source.count - 1));
    this.focusedId = this.source.peek(this.focused)?.id;
    const ROW = this.row;
    const top = this.focused * ROW;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (top + ROW > this.body.scrollTop + this.body.clientHeight)
      this.body.scrollTop = top + ROW - this.body.clientHeight;
    this.draw();
    this._element()?.focus({ preventScroll: true });
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
    element.style.transform = `translateY(${index * this.row}px)`;
    element.tabIndex = index === this.focused ? 0 : -1;
    element.setAttribute("aria-rowindex", String(index + 2));
    const row = this.source.at(index);
    element.setAttribute("aria-label", row ? "" : "asked for");
    if (row) element.removeAttribute("aria-label");
    element.dataset.state = row?.state ?? "";
    element.classList.toggle("lit", Boolean(row) && this.lit(row));
    this.columns.forEach((column, k) => {
      const cell = element.children[k];
      try {
        if (row) column.fill(cell, row, this.state);
        else text(cell, k === 0 ? "…" : "");
      } catch {
        text(cell, "?"); // one bad cell, not a broken page
      }
    });
  }

  _clicked(event) {
    const element = event.target.closest(".row");
    if (!element) return;
    this.focused = element.index;
    this.focusedId = this.source.at(element.index)?.id;
    this.draw();
    const link = event.target.closest("[data-about]");
    this._open(element.index, link?.dataset.about);
  }

  _key(event) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[event.key];
    if (step !== undefined && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.focus(this.focused + step);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this._open(this.focused);
    }
  }

  _open(index, about) {
    const row = this.source.at(index);
    if (row) this.onOpen(row, this, about);
  }
}

export function make(tag, cls = "", words = "") {
  const element = document.createElement(tag);
  if (cls) element.className = cls;
  if (words) element.textContent = words;
  return element;
}

// The whole of what did not fit, for those who point; Enter shows it too.
function hint(cell) {
  if (!cell) return;
  const cut = cell.scrollWidth > cell.clientWidth || [...cell.children].some((part) => part.scrollWidth > part.clientWidth);
  if (cut) cell.title = cell.textContent;
  else cell.removeAttribute("title");
}

export function text(element, words) {
  const value = words ?? "";
  if (element.textContent !== String(value)) element.textContent = value;
}
