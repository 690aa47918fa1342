// What moves together is shown together; red is for what may still be lost.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bundled } from "./arrows.js";
import { ago, safeLink, summed } from "./clusters.js";
import { inDanger, node, stateWord } from "./tile.js";
import { commandIn } from "./why.js";
import { folded, trend } from "./words.js";

const move = (from, to, state = "moving") => ({ row: ["pod", `shop/${from}`, from, to, state, "", ""] });
const rackOf = (id) => id?.[0] ?? "";

test("a few moves are lines of their own", () => {
  const few = [move("a1", "b1"), move("a2", "b2"), move("a3", "b3")];
  assert.deepEqual(bundled(few, rackOf), [few, []]);
});

test("many are one line per pair of racks; what is blocked, leads nowhere or stays in its rack is not in it", () => {
  const many = [1, 2, 3, 4, 5, 6, 7].map((n) => move(`a${n}`, `b${n}`));
  const others = [move("a8", "c1"), move("a9", ""), move("a0", "b9", "blocked"), move("b1", "b2"), move("c1", "c2")];
  const [single, bundles] = bundled([...many, ...others], rackOf);
  assert.deepEqual(bundles.map(({ from, to, moves }) => [from, to, moves.length]), [["a", "b", 7]]);
  assert.deepEqual(new Set(single), new Set(others));
});

const went = (k, state = "finished") => ({ id: `${k}`, op: `${k}`, source: "spot", state, words: `shop/web-${k} went spot s${k % 3} → on-demand n${k}, away 8 s: annotation x on s${k % 3}` });

test("moves alike are one line that opens to theirs", () => {
  const rows = [9, 8, 7, 6, 5].map((k) => went(k));
  const [one, ...rest] = folded([...rows, { id: "4", op: "4", source: "mix", words: "something else" }]);
  assert.equal(one.words, "5 pods left 3 spot nodes, to on-demand: annotation x");
  assert.deepEqual(one.members, rows);
  assert.deepEqual(rest.map((row) => row.id), ["4"]);
});

test("three alike, or alike with something between, stay as they are", () => {
  const rows = [went(5), went(4), went(3), { id: "x", op: "x", source: "mix", words: "y" }, went(2)];
  assert.deepEqual(folded(rows), rows);
});

test("an interrupted node is red while pods are on it, daemons aside", () => {
  const letter = (cls) => String.fromCharCode(48 + 4 * cls);
  const tile = (cells, state = "interrupted") => node("s1", ["1", "spot", state, "", 9, 10, cells]);
  assert.equal(inDanger(tile(letter(2) + letter(6))), true);
  assert.equal(inDanger(tile(letter(6))), false);
  assert.equal(stateWord(tile("")), "empty");
  assert.equal(stateWord(tile("", "leaving")), "empty, awaiting removal");
  assert.equal(stateWord(tile(letter(1), "leaving")), "leaving");
});

test("a command at the end of a line can be copied, a sentence cannot", () => {
  assert.equal(commandIn("to change   give up    kubectl -n tidb annotate pod x y-\n"), "kubectl -n tidb annotate pod x y-");
  assert.equal(commandIn("            look ahead  mooring why operator/1"), "mooring why operator/1");
  assert.equal(commandIn("why there   kube-scheduler chose it; mooring keeps it"), "");
});

test("several clusters in a sentence, and links that lead to a page alone", () => {
  const one = (state) => ({ name: "a", link: "", state, words: "", waiting: 0, running: 0, moved: 0, needs: 0, type: "", seen: 1 });
  assert.equal(summed([one("safe"), one("needs-you"), one("unknown")]), "3 clusters: 1 needs you, 1 unknown");
  assert.equal(summed([one("safe")]), "1 cluster: none needs you");
  assert.equal(safeLink("javascript:alert(1)"), "");
  assert.equal(safeLink("https://x/"), "https://x/");
  assert.equal(ago(null, 5), "never");
  assert.equal(ago(1, 5), "4 s ago");
});

test("the last hours are bars with what it is now; nothing that never happened, and no trend of half an hour", () => {
  const found = { moves: [0, 3, 6], waiting: [1, null, 2], blocked: [0, 0, 0], spot: [60, 61, 62] };
  assert.deepEqual(trend(found), [["moves", "▁▅█", "6"], ["waiting", "▅▁█", "2"], ["on spot", "███", "62 %"]]);
  assert.deepEqual(trend({ moves: [1, 2] }), []);
  assert.deepEqual(trend(undefined), []);
});
