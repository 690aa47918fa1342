"""Moments worth a picture, as frames: a busy day, a long queue, five thousand nodes, nothing at all."""

from collections import Counter
from typing import Any

from mooring.process.http.frames import Frame, FrameTable

NOW = 1_767_261_782.0  # 10:03:02


def head(**more: Any) -> dict[str, Any]:
    return {
        "identity": "mooring-0",
        "leader": "mooring-0",
        "leading": True,
        "deciding": True,
        "not_ready": [],
        "features": ["balance", "fleet", "handoff", "home", "mix"],
        "backlog": 0,
        "silent_s": 0.0,
        "needs": 0,
        "needs_words": "",
        "waiting": 0,
        "running": 0,
        "moved": 0,
        **more,
    }


def table(rows: list[dict[str, Any]], total: int = 0, **sums: Any) -> FrameTable:
    return FrameTable({row["id"]: row for row in rows}, total or len(rows), sums)


def line(op: str, at: float, state: str, source: str, words: str, about: str) -> dict[str, Any]:
    steps = [[at - 2, "queued", ""], [at, "promoted", ""]]
    return {
        "id": op,
        "at": at,
        "op": op,
        "state": state,
        "source": source,
        "words": words,
        "about": about,
        "steps": steps,
    }


def tile(rack: str, cls: str, state: str, cells: str, **more: Any) -> list[Any]:
    """A row of the map; `cells`: class and state of each pod, as in "tr sm": tikv ready, spot moving."""
    classes = {"o": 0, "d": 1, "s": 2, "k": 3, "t": 4, "p": 5, "x": 6}
    letters = "".join(chr(48 + 4 * classes[c[0]] + "rsme".index(c[1])) for c in cells.split())
    names = [f"shop/web-6f7b9c{k:02d}d4-x{k:04d}" for k in range(len(letters))]
    return [rack, cls, state, more.get("words", ""), more.get("until"), more.get("full", 40), letters, names,
            more.get("stores", [])]  # fmt: skip


def tiles() -> dict[str, Any]:
    """Twenty-four nodes in three racks: one of every state, pods of every class and state, three stores."""
    found: dict[str, Any] = {}
    for k in range(24):
        spot = k % 8 >= 4
        name = f"{'s' if spot else 'n'}{k // 8 * 4 + k % 4 + 1}"
        found[name] = tile(str(k // 8 + 11), "spot" if spot else "on-demand", "ok", "sr sr or" if spot else "dr dr xr")
    found["n2"] = tile("11", "on-demand", "ok", "km dr", stores=[["tidb/demo/4", "demo-tikv-0", 37, "evicting"]])
    found["n3"] = tile("11", "on-demand", "ok", "kr tr", stores=[["tidb/demo/5", "demo-tikv-1", 209, "Up"]])
    found["n9"] = tile("13", "on-demand", "ok", "kr pr", stores=[["tidb/demo/6", "demo-tikv-2", 0, "Disconnected"]])
    found["n7"] = tile("12", "on-demand", "cordoned", "dm xr", words="cordoned, by Mooring (op 57)")
    found["n11"] = tile("13", "on-demand", "silent", "or or", words="not Ready: NodeStatusUnknown")
    found["n12"] = tile("13", "on-demand", "leaving", "dr de", words="retiring, by Mooring")
    found["n4"] = tile("11", "on-demand", "reserved", "ts", words="reserved for a member that comes back")
    found["s6"] = tile("12", "spot", "interrupted", "sm sm se or", words="interruption notice", until=NOW + 72)
    found["n10"] = tile("13", "on-demand", "ok", "ss dr dr")
    return found


def waiting(number: int) -> dict[str, Any]:
    return {
        "id": f"{number}",
        "op": f"{number}",
        "state": "waiting",
        "source": "spot",
        "what": f"move replica checkout/payment-gateway-7d9f8b6c5d-{number:05x}",
        "subject": f"operator/{number}",
        "waiting_on": f"workload/checkout/payment-gateway-{number % 40} 2/2",
        "missing": "1",
        "by": [f"op {number - 2}", f"op {number - 1}"],
        "since": NOW - 12.0,
        "deadline": NOW + 108.0 - number % 30,
    }


def busy() -> Frame:
    """The sketch that the page was drawn after: one needs a person, two run, two wait."""
    queue = [
        {"id": "57", "op": "57", "state": "blocked", "source": "fleet", "what": "evict pod pay/pay-0 from n7",
         "subject": "operator/57", "step": "2/5 EmptyNode", "progress": "1 of 3 pods left",
         "waiting_on": "pdb/pay allows 0", "by": ["not us"], "since": NOW - 2470, "deadline": NOW + 1140},
        {"id": "41", "op": "41", "state": "moving", "source": "handoff", "what": "evict leaders tidb/demo-tikv-0",
         "subject": "operator/41", "step": "1/4 EvictLeaders", "progress": "177 of 214 leaders gone, 3.7/s",
         "since": NOW - 48},
        {"id": "39", "op": "39", "state": "moving", "source": "balance-region", "what": "balance region demo/9, store 2 → 4",
         "subject": "operator/39", "step": "1/4 AddLearner", "since": NOW - 21},
        {"id": "42", "op": "42", "state": "waiting", "source": "handoff", "what": "evict leaders tidb/demo-tikv-1",
         "subject": "operator/42", "waiting_on": "evicting/tidb/demo 1/1", "missing": "1", "by": ["op 41"],
         "since": NOW - 47},
        {"id": "44", "op": "44", "state": "waiting", "source": "balance-region", "what": "balance region demo/7, store 1 → 4",
         "subject": "operator/44", "waiting_on": "store/tidb/demo/4 18/20", "missing": "6 of 8", "by": ["op 41", "op 39"],
         "since": NOW - 12},
    ]  # fmt: skip
    stores = [
        {"id": "tidb/demo/4", "cluster": "tidb/demo", "pod": "demo-tikv-0", "node": "n2", "rack": "2", "used": 18,
         "limit": 20, "leaders": 37, "used_by": [["op 41", 10, "op"], ["op 39", 8, "op"]], "waiting": ["44"],
         "evicting": True},
        {"id": "tidb/demo/6", "cluster": "tidb/demo", "pod": "demo-tikv-2", "node": "n9", "rack": "3", "used": 24,
         "limit": 20, "leaders": 0, "state": "Disconnected", "used_by": [["store 6 is Disconnected", 20, "fact"],
         ["op 39", 4, "op"]]},
        {"id": "tidb/demo/5", "cluster": "tidb/demo", "pod": "demo-tikv-1", "node": "n3", "rack": "2", "limit": 20,
         "leaders": 209, "reserved": 10, "waiting": ["42"]},
        {"id": "tidb/billing-archive/1", "cluster": "tidb/billing-archive", "pod": "billing-archive-tikv-0",
         "node": "ip-10-3-14-7.ap-northeast-1.compute.internal", "rack": "12", "limit": 20, "leaders": 1834},
    ]  # fmt: skip
    nodes = [
        {"id": "n11", "cls": "on-demand", "state": "silent", "rack": "12", "pods": [["ds", 2]],
         "news": "not Ready: NodeStatusUnknown", "since": NOW - 250},
        {"id": "n7", "cls": "leaving", "state": "cordoned", "rack": "12", "pods": [["pay", 1], ["ds", 1]],
         "news": "cordoned, by Mooring (op 57)", "since": NOW - 2470},
        {"id": "ip-10-3-14-8.ap-northeast-1.compute.internal", "cls": "leaving", "state": "interrupted", "rack": "13",
         "pods": [["web", 3], ["api", 1], ["checkout-service", 1], ["payment-gateway", 2]], "more": 7,
         "news": "interruption notice", "until": NOW + 72},
    ]  # fmt: skip
    racks = [
        {"id": "12", "total": 40, "ok": 38, "leaving": 1, "silent": 1, "glyphs": "······=···!" + "·" * 29},
        {"id": "13", "total": 40, "ok": 39, "leaving": 1, "glyphs": "···▲" + "·" * 36},
        *({"id": f"{k}", "total": 40, "ok": 40} for k in range(14, 22)),
    ]
    timeline = [
        line("39", NOW - 21, "promoted", "balance-region", "region 9 goes store 2 → 4: 27168 MiB there, 4896 here", "operator/39"),
        line("41", NOW - 48, "promoted", "handoff", "tidb/demo-tikv-0 hands over its leaders: annotation restart", "store/tidb/demo/4"),
        line("40", NOW - 72, "finished", "mix", "shop/web-7d9f8b6c5d-x2x7p went spot s6 → on-demand n10, away 8 s: "
             "majority-in-on-demand wants 3, has 2", "pod/shop/web-7d9f8b6c5d-x2x7p"),
        line("57", NOW - 2470, "promoted", "fleet", "pay/pay-0 goes on-demand n7 → …: its machine is RETIRING", "pod/pay/pay-0"),
    ]  # fmt: skip
    bars = {"handoff": [0] * 9 + [1, 1, 4], "mix": [1, 0, 3, 1] + [0] * 8, "spot": [0] * 10 + [1, 7]}
    words = head(cluster="prod-tokyo", needs=1, waiting=2, running=2, moved=212,
                 needs_words="pay/pay-0 blocked: pdb/pay allows 0", needs_about="operator/57",
                 needs_do="kubectl -n pay get pdb pay", needs_since=NOW - 2470, needs_until=NOW + 1140)  # fmt: skip
    moves = {
        "40": ["pod", "shop/web-x2x7p", "s6", "n10", "moving", ""],
        "41": ["leaders", "tidb/demo-tikv-0", "n2", "", "moving", "177 of 214 leaders gone"],
        "57": ["pod", "pay/pay-0", "n7", "", "blocked", ""],
    }
    sums = {"on-demand": 2961, "spot": 2029, "leaving": 9, "unknown": 1, "unplaced": 0, "quiet": 4997}
    return Frame(NOW, words, {
        "map": FrameTable(tiles(), 24, {"ok": 18, "silent": 1, "interrupted": 1, "cordoned": 1, "leaving": 1, "reserved": 1}),
        "moves": FrameTable(moves, len(moves)),
        "queue": table(queue, blocked=1, moving=2, waiting=2),
        "stores": table(stores),
        "nodes": table(nodes, 5000, **sums),
        "racks": table(racks, 125, quiet=123),
        "timeline": table(timeline, bars=bars),
    })  # fmt: skip


def demo() -> Frame:
    """All spot nodes have notice and their pods are on their way, with the banner and the counter of the demo."""
    frame = busy()
    rows: dict[str, Any] = {}
    for k in range(24):
        spot, number = k % 8 >= 4, k // 8 * 4 + k % 4 + 1
        if spot:
            found = tile(f"{k // 8 + 1}", "spot", "interrupted", "sm sm", words="interruption notice", until=NOW + 110)
        else:
            found = tile(f"{k // 8 + 1}", "on-demand", "ok", "dr ss ss")
        found[7] = [f"shop/{'s' if spot else 'n'}{number}-6f7b9c9d4c-x{p}lf5" for p in range(len(found[6]))]
        rows[f"{'s' if spot else 'n'}{number}"] = found
    moves = {
        f"{k}": ["pod", rows[f"s{k}"][7][0], f"s{k}", f"n{13 - k}", "moving", "", rows[f"n{13 - k}"][7][1]]
        for k in range(1, 13)
    }
    frame.tables |= {"map": FrameTable(rows, 24, {"ok": 12, "interrupted": 12}), "moves": FrameTable(moves, 12)}
    lost = {"with": {"pods": 0, "leaders": 0, "quorum": 0}, "without": {"pods": 12, "leaders": 1210, "quorum": 1}}
    act = {"number": 3, "of": 7, "title": "all 12 spot nodes get notice", **lost}
    said = (
        "12 cordons, then 23 pods moved; nobody cut off; 12 cordons before the first move; each after its replacement"
    )
    command = "kubectl annotate node s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 s12 vacant.io/interrupt-at=2026-01-01T09:08:00Z"
    frame.head |= {"act": {**act, "command": command, "said": said}, "needs": 0, "needs_words": "", "needs_do": ""}
    return frame


def hundreds(nodes: int = 500) -> Frame:
    """Some hundred nodes in racks of forty, twenty pods each, without names."""
    frame = busy()
    rows = {}
    for k in range(nodes):
        spot = k % 5 < 2
        state = "interrupted" if k % 97 == 3 else "cordoned" if k % 83 == 5 else "ok"
        until = NOW + 72 if state == "interrupted" else None
        found = tile(
            f"{100 + k // 40}", "spot" if spot else "on-demand", state, "sr " * 20 if spot else "dr " * 20, until=until
        )
        found[7] = []
        rows[f"ip-10-0-{k}"] = found
    states = Counter(row[2] for row in rows.values())
    frame.tables |= {"map": FrameTable(rows, nodes, dict(states)), "moves": FrameTable()}
    return frame


def long_queue() -> Frame:
    """A zone gets notice: nearly ten thousand pods have two minutes."""
    frame = busy()
    rows = [waiting(1000 + k) for k in range(200)]
    frame.tables["queue"] = table(rows, 9_900, waiting=9_900)
    frame.head |= {
        "waiting": 9_900,
        "running": 0,
        "needs": 0,
        "needs_words": "",
        "needs_since": None,
        "needs_until": None,
    }
    return frame


def nothing() -> Frame:
    """A cluster on its first day, its replica not ready yet."""
    late = ["waits for the first list of pods", "PD of tidb/demo does not answer"]
    empty = head(identity="mooring-1", leader="", leading=False, deciding=False, not_ready=late, features=["handoff"])
    return Frame(
        NOW, empty, {name: FrameTable() for name in ("map", "moves", "queue", "stores", "nodes", "racks", "timeline")}
    )
