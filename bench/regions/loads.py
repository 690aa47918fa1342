"""Measured loads for the calibration: read from a file, or taken from a running cluster one region at a time.

A load is the share of a store's CPU that one step uses while it lasts, on the store that sends, on the one that
receives, or on each peer. What a file leaves out stays assumed, and a result says so (T10).

    snapshot-mib-per-s: 50        # one copy, as quickly as it goes
    bandwidth-mib-per-s: 100      # of a store, each way
    busy: {low: 0.3, high: 0.5}   # what customers use of a store
    loads:
      AddLearner: {sender: 0.04, receiver: 0.21}
      TransferLeader: {sender: 0.01, receiver: 0.01}
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from bench.regions.model import Load, Model
from mooring.clients.ports import PlacementDriver
from mooring.core.model.tidb import Region

#: Step of the design → the field of the model that has its load.
FIELDS: Final[Mapping[str, str]] = {
    "AddLearner": "copy",
    "AddPeer": "copy",
    "TransferLeader": "transfer",
    "PromoteLearner": "promote",
    "RemovePeer": "remove",
    "MergeRegion": "reshape",
    "SplitRegion": "reshape",
}
_NUMBERS: Final = {
    "snapshot-mib-per-s": "snapshot_mib_per_s",
    "bandwidth-mib-per-s": "bandwidth_mib_per_s",
    "merge-s": "merge_s",
    "fast-step-s": "fast_step_s",
}
_ROLES: Final = {"sender": "sender", "receiver": "receiver", "every-peer": "every_peer"}
#: Stores are looked at so long with nothing of ours under way: what they use then is their customers'.
QUIET_S: Final = 10.0
STEP_S: Final = 300.0


class LoadsError(ValueError):
    """Not a file of loads; the message says where and what would be right."""


def model_of(raw: Any, base: Model | None = None) -> Model:
    """The model with what was measured in place of what is assumed."""
    if not isinstance(raw, Mapping):
        raise LoadsError("it must be an object with loads, busy, snapshot-mib-per-s … as keys")
    base, changes, measured = base or Model(), dict[str, Any](), set[str]()
    for key, value in raw.items():
        if key in _NUMBERS:
            changes[_NUMBERS[key]] = _number(key, value, 1e6)
            measured.add(_NUMBERS[key])
        elif key == "busy":
            low, high = (_number(f"busy.{end}", _map("busy", value).get(end), 1.0) for end in ("low", "high"))
            if low > high:
                raise LoadsError(f"busy.low is {low:g} and busy.high {high:g}: low must not be more")
            changes |= {"busy_low": low, "busy_high": high}
            measured.add("busy")
        elif key == "loads":
            for step, roles in _map("loads", value).items():
                if step not in FIELDS:
                    raise LoadsError(f"loads names the step {step!r}: it must be one of {', '.join(FIELDS)}")
                changes[FIELDS[step]] = _load(step, _map(f"loads.{step}", roles))
                measured.add(FIELDS[step])
        else:
            raise LoadsError(f"unknown key {key!r}: it must be loads, busy, {', '.join(_NUMBERS)}")
    return msgspec.structs.replace(base, measured=frozenset(measured), **changes)


def _load(step: str, roles: Mapping[str, Any]) -> Load:
    unknown = roles.keys() - _ROLES.keys()
    if unknown:
        raise LoadsError(f"loads.{step} names the role {min(unknown)!r}: it must be one of {', '.join(_ROLES)}")
    return Load(**{_ROLES[role]: _number(f"loads.{step}.{role}", share, 1.0) for role, share in roles.items()})


def _map(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise LoadsError(f"{where} must be an object")
    return value


def _number(where: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise LoadsError(f"{where} is {value!r}: it must be a number from 0 to {most:g}")
    return float(value)


# ── Measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


class StoreMeter:
    """CPU seconds that a store has used, and how many cores it has, by TiKV's own metrics at its status address."""

    def __init__(self, session: aiohttp.ClientSession, addresses: Mapping[int, str]) -> None:
        self._session, self._addresses = session, addresses

    async def cpu(self) -> dict[int, tuple[float, float]]:
        found = await asyncio.gather(*(self._one(address) for address in self._addresses.values()))
        return dict(zip(self._addresses, found, strict=True))

    async def _one(self, address: str) -> tuple[float, float]:
        async with self._session.get(f"{address.rstrip('/')}/metrics") as answer:
            text = await answer.text()
        spent, cores = (re.search(rf"^{name} (\S+)", text, re.MULTILINE) for name in CPU)
        if spent is None:
            raise LoadsError(f"{address}/metrics has no {CPU[0]}")
        return float(spent[1]), float(cores[1]) if cores is not None else 1.0


CPU: Final = ("process_cpu_seconds_total", "tikv_server_cpu_cores_quota")


async def measure(
    pd: PlacementDriver, meter: StoreMeter, *, regions: int = 5, quiet_s: float = QUIET_S, note: Callable[[str], None]
) -> dict[str, Any]:
    """Move a peer of so many regions to another store and one leader each, one at a time, each back again; what stores
    used meanwhile beyond what they used at rest is the load. Answers a file of loads."""
    rest = await _shares(meter, quiet_s)
    stores = [s.id for s in await pd.stores() if s.state == "Up" and s.leads]
    loads: dict[str, list[Mapping[str, float]]] = {"AddLearner": [], "TransferLeader": []}
    rates: list[float] = []
    for region in _movable(await pd.regions(), stores)[:regions]:
        there = {p.store_id for p in region.peers}
        source = next(s for s in sorted(there) if s != region.leader_store)
        target = next(s for s in stores if s not in there)
        follower = next(s for s in sorted(there) if s not in (region.leader_store, source))
        for kind, body, ends, undo in (
            (
                "AddLearner",
                _peer(region.id, source, target),
                (region.leader_store, target),
                _peer(region.id, target, source),
            ),
            (
                "TransferLeader",
                _leader(region.id, follower),
                (region.leader_store, follower),
                _leader(region.id, region.leader_store),
            ),
        ):
            note(f"region {region.id} ({region.size_mib} MiB): {kind} {ends[0]} → {ends[1]}")
            took_s, used = await _during(pd, meter, region.id, body)
            sent, received = (min(1.0, max(0.0, used[end] - rest[end])) for end in ends)
            loads[kind].append({"sender": sent, "receiver": received})
            if kind == "AddLearner" and region.size_mib:
                rates.append(region.size_mib / took_s)
            await _during(pd, meter, region.id, undo)
    if not rates:
        raise LoadsError(
            "no region has a peer to move and a store to move it to: three replicas and four stores are needed"
        )
    found = {
        kind: {end: round(max(one[end] for one in seen), 4) for end in ("sender", "receiver")}
        for kind, seen in loads.items()
    }
    busy = {"low": round(min(rest.values()), 4), "high": round(max(rest.values()), 4)}
    return {"snapshot-mib-per-s": round(max(rates), 2), "busy": busy, "loads": found}


def _movable(regions: Sequence[Region], stores: Sequence[int]) -> list[Region]:
    """The largest first: what is over at once is told from the noise by nothing."""
    able = [r for r in regions if r.leader_store and len(r.peers) >= 3 and len(stores) > len(r.peers)]
    return sorted(able, key=lambda r: -r.size_mib)


def _peer(region: int, source: int, target: int) -> dict[str, Any]:
    return {"name": "transfer-peer", "region_id": region, "from_store_id": source, "to_store_id": target}


def _leader(region: int, target: int) -> dict[str, Any]:
    return {"name": "transfer-leader", "region_id": region, "to_store_id": target}


async def _shares(meter: StoreMeter, seconds: float) -> dict[int, float]:
    before, began = await meter.cpu(), time.monotonic()
    await asyncio.sleep(seconds)
    return _used(before, await meter.cpu(), time.monotonic() - began)


async def _during(
    pd: PlacementDriver, meter: StoreMeter, region: int, body: Mapping[str, Any]
) -> tuple[float, dict[int, float]]:
    before, began = await meter.cpu(), time.monotonic()
    await pd.add_operator(dict(body))
    while any(op.region_id == region for op in await pd.operators()):
        if time.monotonic() - began > STEP_S:
            raise LoadsError(f"PD still works on region {region} after {STEP_S:.0f} s: {dict(body)}")
        await asyncio.sleep(0.1)
    took_s = max(time.monotonic() - began, 1e-3)
    return took_s, _used(before, await meter.cpu(), took_s)


def _used(
    before: Mapping[int, tuple[float, float]], after: Mapping[int, tuple[float, float]], seconds: float
) -> dict[int, float]:
    return {store: (after[store][0] - spent) / seconds / cores for store, (spent, cores) in before.items()}
