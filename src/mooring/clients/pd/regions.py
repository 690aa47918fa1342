"""PD's regions into the model, one at a time or a range of keys."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from mooring.clients.pd.answers import decode
from mooring.clients.ports import UnansweredError
from mooring.core.model.tidb import Number, Peer, Region


class _Peer(msgspec.Struct, gc=False):
    id: Number = 0
    store_id: Number = 0
    role_name: str = ""
    #: Before 5.0 a learner was marked so.
    is_learner: bool = False
    is_witness: bool = False


class _DownPeer(msgspec.Struct, gc=False):
    peer: _Peer = msgspec.field(default_factory=_Peer)


class _Epoch(msgspec.Struct, gc=False):
    conf_ver: Number = 0
    version: Number = 0


class _Region(msgspec.Struct, gc=False):
    id: Number = 0
    start_key: str = ""
    end_key: str = ""
    epoch: _Epoch = msgspec.field(default_factory=_Epoch)
    peers: list[_Peer] | None = None
    leader: _Peer | None = None
    down_peers: list[_DownPeer] | None = None
    pending_peers: list[_Peer] | None = None
    approximate_size: Number = 0
    approximate_keys: Number = 0
    written_bytes: Number = 0
    read_bytes: Number = 0


class _Regions(msgspec.Struct):
    count: Number = 0
    regions: list[_Region] | None = None


_REGIONS: Final = msgspec.json.Decoder(_Regions)
_ONE_REGION: Final = msgspec.json.Decoder(_Region | None)


def regions(body: bytes) -> tuple[Region, ...]:
    answer: _Regions = decode(_REGIONS, body, "regions")
    return tuple(sorted((_region(r) for r in answer.regions or ()), key=lambda r: r.start_key))


def regions_of_range(body: bytes, start_key: str = "", limit: int = 0) -> tuple[Region, ...]:
    """The same for many: what they have in common is kept once. Peers have no id unless one of them is unhealthy, and
    keys are not counted. Unanswered: not one after another from this key on, or more than were asked for."""
    answer: _Regions = decode(_REGIONS, body, "regions")
    listed = sorted(answer.regions or (), key=lambda r: r.start_key)
    if limit and len(listed) > limit:
        raise UnansweredError(f"PD lists {len(listed)} regions where {limit} were asked for")
    _check_order(listed, start_key)
    found: list[Region] = []
    for raw in listed:
        if raw.down_peers or raw.pending_peers:
            found.append(_region(raw))
            continue
        before = found[-1].end_key if found else ""
        found.append(
            Region(
                id=raw.id,
                start_key=before if before == raw.start_key else raw.start_key,
                end_key=raw.end_key,
                conf_ver=raw.epoch.conf_ver,
                version=raw.epoch.version,
                peers=tuple([_peer(p.store_id, p.role_name, p.is_learner, p.is_witness) for p in raw.peers or ()]),
                leader_store=raw.leader.store_id if raw.leader else 0,
                size_mib=raw.approximate_size,
                written_bytes=raw.written_bytes,
                read_bytes=raw.read_bytes,
            )
        )
    return tuple(found)


def _check_order(listed: Sequence[_Region], start_key: str) -> None:
    """Overlapping ones would make each change of the book walk all of them; the last key is asked for next."""
    end = start_key
    for number, region in enumerate(listed):
        ends = not region.end_key and number == len(listed) - 1
        if (number and region.start_key < end) or not (ends or region.end_key > max(region.start_key, end)):
            raise UnansweredError("PD lists regions that are not one after another")
        end = region.end_key
    try:
        bytes.fromhex(end)
    except ValueError:
        raise UnansweredError("PD returned a region key that is not hex") from None


@lru_cache(maxsize=8192)
def _peer(store_id: int, role_name: str, is_learner: bool, is_witness: bool) -> Peer:
    return Peer(0, store_id, _role(role_name, is_learner, is_witness))


def region(body: bytes) -> Region | None:
    """One region; a region that PD does not know is one without an id."""
    answer: _Region | None = decode(_ONE_REGION, body, "region")
    return None if answer is None or not answer.id else _region(answer)


def _region(answer: _Region) -> Region:
    return Region(
        id=answer.id,
        start_key=answer.start_key,
        end_key=answer.end_key,
        conf_ver=answer.epoch.conf_ver,
        version=answer.epoch.version,
        peers=tuple(Peer(p.id, p.store_id, _role(p.role_name, p.is_learner, p.is_witness)) for p in answer.peers or ()),
        leader_store=answer.leader.store_id if answer.leader else 0,
        down_peers=tuple(d.peer.id for d in answer.down_peers or ()),
        pending_peers=tuple(p.id for p in answer.pending_peers or ()),
        size_mib=answer.approximate_size,
        keys=answer.approximate_keys,
        written_bytes=answer.written_bytes,
        read_bytes=answer.read_bytes,
    )


def _role(name: str, is_learner: bool, is_witness: bool) -> str:
    if is_witness:
        return "Witness"
    return name or ("Learner" if is_learner else "Voter")


def region_count(body: bytes) -> int:
    answer: _Regions = decode(_REGIONS, body, "region count")
    return answer.count
