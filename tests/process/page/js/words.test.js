import assert from "node:assert/strict";
import { test } from "node:test";

import { empty } from "./state.js";
import { needed, nothing, pulse, summary } from "./words.js";

const page = (more = {}) => ({ heard: true, heardAt: 0, shown: empty(), latest: empty(), filter: "", trouble: "", ...more });

test("old data looks old, and older data grey", () => {
  const state = (now, more) => pulse(page(more), now).state;
  assert.deepEqual([1000, 6000, 21_000].map((now) => state(now)), ["live", "stale", "grey"]);
  assert.equal(state(1000, { heard: false }), "connecting");
  assert.equal(state(1000, { paused: true }), "paused");
  assert.equal(state(90_000, { recording: true, file: "a" }), "recording", "a recording is never stale");
});

test("a replica that is cut off shows the age of its data, not of its frame", () => {
  const shown = { ...empty(), head: { silent_s: 30 } };
  assert.equal(pulse(page({ shown }), 0).state, "grey");
});

test("an empty view names the filter that empties it", () => {
  assert.match(nothing("queue", page({ filter: "web" }), 3), /web.*3 hidden/);
  for (const name of ["map", "queue", "stores", "nodes", "racks", "timeline"]) assert.ok(nothing(name, page(), 0));
});

test("a cut list says how many it shows", () => {
  const table = { total: 900, order: Array(400), sums: { waiting: 900 } };
  assert.match(summary("queue", table, "all"), /900 waiting.*first 400/);
  assert.doesNotMatch(summary("queue", table, "queue"), /first/);
});

test("who needs a person, since when and until when", () => {
  assert.match(needed({ needs_words: "web", needs_since: 10, needs_until: 100 }, 70), /^web, for 1:00, deadline in 0:30$/);
});
