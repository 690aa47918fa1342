"""A stand-in for CKE: it makes the cluster what fleet stored, machine by machine.

A member of the stored cluster without a Node gets one; a Node whose machine left the stored cluster is deleted.
"""

from typing import TYPE_CHECKING

from mooring.capabilities.fleet.live.ledger import NAME, StoredCluster
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.sim.scenarios.fleet import stored

if TYPE_CHECKING:
    from mooring.sim.whole.simulation import Simulation

EVERY_S = 10.0


def begin(sim: "Simulation") -> None:
    if "fleet" not in sim.plan.shape.features:
        return
    members: set[str] = set()
    last: list[StoredCluster] = []
    read: Json | None = None

    def look() -> None:
        nonlocal members, read
        store = sim.rig.cluster.store
        found = store.find(Kind.CONFIG_MAP, sim.rig.config.namespace, NAME)
        ledger = last[0] if last and found is read else stored(sim.rig)  # what is stored is never changed in place
        read = found
        inside = {m.address for m in ledger.members}
        for address in sorted(members - inside):
            if store.find(Kind.NODE, "", address) is not None:
                sim.note(f"cke deletes node {address}")
                store.delete(Kind.NODE, "", address)
        for address in sorted(inside):
            if store.find(Kind.NODE, "", address) is None:
                sim.note(f"cke adds node {address}")
                sim.rig.cluster.add_node(address)
        if last:
            for words in wrong_between(last[0], ledger):
                sim.fail("F3 one control plane at a time", words)
            planes = [{m.address for m in one.members if m.control_plane} for one in (last[0], ledger)]
            if planes[0] != planes[1]:
                sim.coverage.hit("control-plane-changed")
        if members - inside:
            sim.coverage.hit("worker-removed")
        last[:], members = [ledger], inside
        sim.after(EVERY_S, look)

    look()


def wrong_between(before: StoredCluster, after: StoredCluster) -> list[str]:
    """Of two stored clusters, one revision apart."""
    if after.revision != before.revision + 1:
        return []
    old, new = ({m.address for m in one.members if m.control_plane} for one in (before, after))
    found = [f"control planes {sorted(old)} became {sorted(new)} in one revision"] if _many(old, new) else []
    addresses = [m.address for m in after.members]
    found += ["an address twice"] if len(set(addresses)) < len(addresses) else []
    found += [f"control plane {m.address} leaves" for m in after.members if m.control_plane and m.leaving]
    return found + ([] if new else ["no control plane"])


def _many(old: set[str], new: set[str]) -> bool:
    return bool(old) and max(len(old - new), len(new - old)) > 1
