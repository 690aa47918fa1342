// What the page knows: a head and its tables, changed only by whole snapshots and deltas.
// Rows are never edited in place, so a copy of the tables is a picture that stays as it was (pause).

export const LISTS = ["queue", "stores", "nodes", "racks", "timeline"];
export const VIEWS = ["map", ...LISTS];
const TABLES = ["map", "moves", ...LISTS];
const MOST_ROWS = 400;
const most = (name) => (name === "map" ? 20_000 : MOST_ROWS);

export function empty() {
  const tables = {};
  for (const name of TABLES) tables[name] = { rows: new Map(), order: [], total: 0, sums: {} };
  return { seq: -1, asOf: 0, head: {}, tables };
}

export function snapshot(seq, data) {
  const state = empty();
  state.seq = seq;
  state.asOf = data.as_of;
  state.head = data.head;
  for (const name of TABLES) {
    const table = data.tables[name] ?? {};
    state.tables[name] = {
      rows: new Map(Object.entries(table.rows ?? {})),
      order: (table.order ?? []).slice(0, most(name)),
      total: table.total ?? 0,
      sums: table.sums ?? {},
    };
  }
  return state;
}

// Returns a new state, or null when the delta does not follow: then only a snapshot helps.
export function apply(state, seq, delta) {
  if (seq !== state.seq + 1) return null;
  const next = { seq, asOf: delta.as_of, head: delta.head ?? state.head, tables: { ...state.tables } };
  for (const [name, change] of Object.entries(delta.tables ?? {})) {
    const old = state.tables[name];
    if (!old) continue;
    let rows = old.rows;
    if (change.order) {
      rows = new Map();
      for (const id of change.order.slice(0, most(name))) {
        const row = change.set?.[id] ?? old.rows.get(id);
        if (row) rows.set(id, row);
      }
    } else if (change.set) {
      rows = new Map(old.rows);
      for (const [id, row] of Object.entries(change.set)) if (rows.has(id)) rows.set(id, row);
    }
    next.tables[name] = {
      rows, order: change.order ? [...rows.keys()] : old.order, total: change.total ?? old.total, sums: change.sums ?? old.sums,
    };
  }
  return next;
}

// For another tab, which gets it by structured clone.
export function whole(state) {
  const tables = {};
  for (const name of TABLES) {
    const table = state.tables[name];
    tables[name] = { ...table, rows: Object.fromEntries(table.rows) };
  }
  return { as_of: state.asOf, head: state.head, tables };
}

// Server-sent events out of a stream of bytes: yields {event, id, data}; at most one event in memory at a time.
export async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        const block = rest.slice(0, end);
        rest = rest.slice(end + 2);
        const found = { event: "message", id: 0, data: "" };
        for (const line of block.split("\n")) {
          if (line.startsWith("data: ")) found.data += line.slice(6);
          else if (line.startsWith("event: ")) found.event = line.slice(7);
          else if (line.startsWith("id: ")) found.id = Number(line.slice(4));
        }
        yield found;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
