"""Settings and stored cluster of the fleet in Kubernetes, read and written by compare-and-swap."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.live import export, ledger, settings
from mooring.capabilities.fleet.live.explain import fleet_status
from mooring.capabilities.fleet.live.ledger import Decisions, StoredCluster, encode_machines, next_data, read_ledger
from mooring.capabilities.fleet.live.release import write_released
from mooring.capabilities.fleet.live.settings import FleetSettings, cke_finding, parse_settings
from mooring.capabilities.fleet.planner.current import Current
from mooring.capabilities.fleet.planner.document import PlanError
from mooring.capabilities.fleet.planner.labels import machine_of
from mooring.capabilities.fleet.planner.template import Constraints
from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.ports import AlreadyExistsError, ConflictError, Json, NotFoundError
from mooring.core.model.cluster import ConfigMap
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind

#: Revisions that the history keeps.
KEEP: Final = 50


class FleetStore:
    def __init__(self, api: HttpKubeApi, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    async def find(self, name: str) -> ConfigMap | None:
        try:
            obj = await self._api.get(Kind.CONFIG_MAP, self.namespace, name)
        except NotFoundError:
            return None
        metadata = obj["metadata"]
        return ConfigMap(
            self.namespace, name, metadata["uid"], metadata["resourceVersion"], data=dict(obj.get("data") or {})
        )

    async def data(self) -> dict[str, str]:
        found = await self.find(settings.NAME)
        return dict(found.data) if found is not None else {}

    async def ledger(self) -> StoredCluster:
        made = read_ledger(await self.find(ledger.NAME))
        if isinstance(made, str):
            raise UserError(made, Exit.CHECK_FAILED)
        return made

    async def settings(self) -> FleetSettings:
        made = parse_settings(await self.data())
        if isinstance(made, PlanError):
            raise UserError(made.message, Exit.CHECK_FAILED)
        return made

    async def write(self, name: str, data: Mapping[str, str | None], found: ConfigMap | None) -> None:
        """Only if nothing was written since `found` was read."""
        try:
            if found is None:
                given = {k: v for k, v in data.items() if v is not None}
                await self._api.create(Kind.CONFIG_MAP, dict(ledger.new_object(self.namespace, given, name)))
                return
            guard = {"uid": found.uid, "resourceVersion": found.resource_version}
            patch: Json = {"metadata": guard, "data": dict(data)}
            await self._api.patch(Kind.CONFIG_MAP, self.namespace, name, patch)
        except (ConflictError, AlreadyExistsError):
            raise UserError(
                f"ConfigMap {self.namespace}/{name} was changed meanwhile; nothing was written, try again", Exit.REFUSED
            ) from None

    async def set(self, **data: str | None) -> None:
        await self.write(settings.NAME, data, await self.find(settings.NAME))

    async def nodes(self) -> list[Json]:
        answer = await self._api.raw("GET", "/api/v1/nodes")
        return list(answer["items"])

    async def status(self) -> dict[str, Any]:
        data, stored = await self.data(), await self.ledger()
        record = await self.find(export.NAME)
        exported = export.read_record(record.data) if record is not None else None
        return fleet_status(data, stored, await self.nodes(), exported)

    async def released(self) -> tuple[dict[str, Any], list[str]]:
        """cluster.yml of what is decided and released, from what is stored alone; and the addresses whose machine the
        registry has never listed."""
        made, stored = await self.settings(), await self.ledger()
        if cke_finding(made):
            raise UserError(cke_finding(made), Exit.REFUSED)
        if not stored.members:
            raise UserError("no cluster is stored yet: mooring fleet status says why", Exit.CHECK_FAILED)
        gone = [m.address for m in stored.members if m.address not in stored.machines]
        return write_released(made.template, stored.members, stored.machines), gone

    async def enable(self) -> None:
        """Only with settings that a plan can be made of, and while CKE does not generate the cluster itself."""
        made = parse_settings({**await self.data(), settings.ENABLED: "true"})
        if isinstance(made, PlanError):
            raise UserError(made.message, Exit.REFUSED)
        if cke_finding(made):
            raise UserError(cke_finding(made), Exit.REFUSED)
        await self.set(**{settings.ENABLED: "true"})

    async def confirm_removal(self, addresses: tuple[str, ...]) -> list[str]:
        """Of these, or of all that are blocked."""
        stored = await self.ledger()
        strange = [a for a in addresses if a not in stored.held]
        if strange:
            held = ", ".join(sorted(stored.held)) or "none"
            raise UserError(f"{', '.join(strange)}: no blocked removal; blocked are: {held}")
        chosen = sorted(addresses or stored.held)
        if not chosen:
            raise UserError("no removal is blocked", Exit.REFUSED)
        before = (await self.data()).get(settings.CONFIRMED, "")
        await self.set(**{settings.CONFIRMED: confirmed_text(before, stored, chosen)})
        return chosen

    async def replace(self, current: Current, file: str, now: float, *, quorum_is_lost: bool) -> int:
        """The cluster set by hand, checked against constraints and quorum; its revision."""
        made, stored = await self.settings(), await self.ledger()
        problems = problems_of(current, made.constraints, stored, quorum_is_lost=quorum_is_lost)
        if problems:
            raise UserError(f"{file}: {'; '.join(problems)}", Exit.REFUSED)
        await self.write(ledger.NAME, replacing_data(current, made, stored, now), stored.object)
        return stored.revision + 1


def read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text: {error}") from None


# ── By hand: a cluster that meets constraints and quorum, and removals that are held ──


def problems_of(current: Current, limits: Constraints, stored: StoredCluster, *, quorum_is_lost: bool) -> list[str]:
    """Why this cluster may not replace the stored one; empty: it may."""
    return [*_unmet(current, limits), *([] if quorum_is_lost else _quorum(current, stored))]


def replacing_data(current: Current, made: FleetSettings, stored: StoredCluster, now: float) -> dict[str, str]:
    """The stored cluster's ConfigMap once this one is in it; nothing of an earlier change is pending any more."""
    members = tuple(msgspec.structs.replace(m, node=None) for m in current.members)
    data = next_data(stored, Decisions(made.revision, members), "set-by-hand", (), now, keep=KEEP)
    machines = [one for m in current.members if m.node is not None and (one := machine_of(m.node)) is not None]
    return {**data, ledger.PENDING: "{}", ledger.MACHINES: encode_machines(machines)}


def confirmed_text(before: str, stored: StoredCluster, chosen: Iterable[str]) -> str:
    """The setting `confirmed` with these removals in it. What was confirmed and has gone since is forgotten: a machine
    that comes back is guarded again."""
    kept = [a for a in msgspec.json.decode(before or "[]", type=list[str]) if a in stored.held]
    return msgspec.json.encode(sorted({*kept, *chosen})).decode()


def _unmet(current: Current, limits: Constraints) -> list[str]:
    planes = sum(m.control_plane for m in current.members)
    workers = len(current.members) - planes
    found = []
    if planes != limits.control_plane_count:
        found.append(f"{planes} control planes, control-plane-count is {limits.control_plane_count}")
    if workers < limits.minimum_workers:
        found.append(f"{workers} workers, minimum-workers is {limits.minimum_workers}")
    if 0 < limits.maximum_workers < workers:
        found.append(f"{workers} workers, maximum-workers is {limits.maximum_workers}")
    return found


def _quorum(current: Current, stored: StoredCluster) -> list[str]:
    planes = {m.address for m in stored.members if m.control_plane}
    stay = {m.address for m in current.members if m.control_plane} & planes
    if not planes or len(stay) * 2 > len(planes):
        return []
    lost = f"only {len(stay)} of {len(planes)} control planes would stay: etcd would lose its quorum"
    return [f"{lost}. Change fewer at a time, or --quorum-is-lost when it is"]
