import assert from "node:assert/strict";
import { test } from "node:test";

import { arrange, chipAt, inside, place } from "./layout.js";

const groups = (...sizes) => sizes.map((size, n) => ({ name: `r${n}`, ids: Array.from({ length: size }, (_, k) => `n${n}-${k}`) }));
const apart = (a, b) => a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;

for (const [sizes, width, height] of [[[1], 800, 600], [[8, 8, 8], 1200, 700], [[40, 3, 17, 1], 500, 900], [Array(50).fill(20), 1600, 900]]) {
  test(`racks of ${sizes.length} fit into ${width} × ${height} and do not overlap`, () => {
    const found = arrange(groups(...sizes), width, height);
    for (const box of found.boxes) {
      assert.ok(box.x >= 0 && box.x + box.w <= width + 1 && box.y + box.h <= height + 1);
      for (const other of found.boxes) assert.ok(box === other || apart(box, other));
      const tiles = box.ids.map((_, k) => ({ ...place(found, box, k), ...found.tile }));
      for (const tile of tiles) assert.ok(tile.x >= box.x && tile.x + found.tile.w <= box.x + box.w + 1);
      assert.equal(new Set(tiles.map(({ x, y }) => `${x} ${y}`)).size, box.ids.length, "each tile has its place");
    }
  });
}

test("there is nothing to arrange without groups or room", () => {
  assert.equal(arrange([], 800, 600), null);
  assert.equal(arrange(groups(3), 10, 600), null);
});

test("a few pixels more do not rearrange the map", () => {
  const before = arrange(groups(8, 8, 8), 1200, 700);
  assert.equal(arrange(groups(8, 8, 8), 1206, 700, before).factor, before.factor);
});

test("cells stay inside the tile", () => {
  for (const [w, h, pods] of [[200, 140, 12], [72, 50, 30], [30, 24, 9], [12, 12, 4]]) {
    const plan = inside(w, h, pods, 1);
    if (!plan.chip) continue;
    for (let k = 0; k < pods; k += 1) {
      const at = chipAt(plan, k);
      assert.ok(at.x + plan.chip.w <= w + 0.5 && at.y + plan.chip.h <= h + 0.5, `${w}×${h}: cell ${k}`);
    }
  }
});
