import assert from "node:assert/strict";
import { test } from "node:test";

import { apply, empty, events, snapshot, whole } from "./state.js";

const row = (id, n) => ({ id, n });
const first = snapshot(7, {
  as_of: 1, head: { needs: 0 },
  tables: { queue: { rows: { a: row("a", 1), b: row("b", 1) }, order: ["a", "b"], total: 2, sums: { moving: 2 } } },
});

test("a delta changes what it names and leaves the rest", () => {
  const next = apply(first, 8, { as_of: 2, tables: { queue: { set: { b: row("b", 2) }, total: 3 } } });
  assert.equal(next.tables.queue.rows.get("b").n, 2);
  assert.equal(next.tables.queue.rows.get("a"), first.tables.queue.rows.get("a"));
  assert.deepEqual([next.asOf, next.head, next.tables.queue.total], [2, { needs: 0 }, 3]);
  assert.equal(first.tables.queue.rows.get("b").n, 1, "a paused picture stays as it was");
});

test("a new order brings rows and takes rows", () => {
  const next = apply(first, 8, { as_of: 2, tables: { queue: { set: { c: row("c", 1) }, order: ["c", "a", "unknown"] } } });
  assert.deepEqual(next.tables.queue.order, ["c", "a"]);
});

test("a delta that does not follow is refused", () => {
  assert.equal(apply(first, 9, { as_of: 2 }), null);
  assert.equal(apply(empty(), 7, { as_of: 2 }), null);
});

test("another tab gets the same state", () => {
  assert.deepEqual(snapshot(7, structuredClone(whole(first))), first);
});

test("events are read across the borders of chunks", async () => {
  const bytes = new TextEncoder().encode("event: snapshot\nid: 1\ndata: {}\n\nevent: delta\nid: 2\ndata: é\n\nevent: cut");
  for (const size of [1, 7, bytes.length]) {
    const stream = new ReadableStream({
      start(out) {
        for (let at = 0; at < bytes.length; at += size) out.enqueue(bytes.slice(at, at + size));
        out.close();
      },
    });
    const found = [];
    for await (const one of events(stream)) found.push([one.event, one.id, one.data]);
    assert.deepEqual(found, [["snapshot", 1, "{}"], ["delta", 2, "é"]]);
  }
});
