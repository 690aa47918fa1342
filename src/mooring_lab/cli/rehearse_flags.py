"""Flags that `mooring rehearse play` and `sweep` share: the snapshot, Mooring's settings, and how it is played."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mooring.cli.connect import ConfigFile, Context, Kubeconfig, OwnNamespace, connect, connection_of, settings
from mooring.cli.output import Progress, note
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.process.settings.config import Config, Resolved
    from mooring_lab.rehearse.snapshot.schema import Snapshot
    from mooring_lab.rehearse.sweep.sweep import SweepPlan


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is played on, and how."""

    from_: Annotated[
        Path | None, Parameter(name="--from", help="A snapshot, or a recording of the black box: FILE@03:12:05.")
    ] = None
    demo: Annotated[bool, Parameter(negative="", help="The demo's cluster instead of a snapshot.")] = False
    live: Annotated[bool, Parameter(negative="", help="A snapshot that is taken now. Nothing is changed.")] = False
    kubeconfig: Kubeconfig = ""
    context: Context = ""
    namespace: OwnNamespace = ""
    notice: Annotated[str, Parameter(help="spot-gone: how long before they go the nodes get notice.")] = "120s"
    unannounced: Annotated[bool, Parameter(negative="", help="spot-gone: they just go.")] = False
    count: Annotated[int, Parameter(help="retire: so many machines, the first by serial that have a node.")] = 0
    rack_label: Annotated[str, Parameter(help="rack-lost: the node label that names the rack.")] = ""
    away: Annotated[str, Parameter(help="pd-away, api-away, zone-cut-off: for how long.")] = "5m"
    for_: Annotated[str, Parameter(name="--for", help="At most so much virtual time.")] = "30m"
    ending: Annotated[str, Parameter(help="Pod termination time, capped by its grace period.")] = "1s"
    config: ConfigFile = ""
    features: Annotated[str, Parameter(help="NAME=true|false,…; every feature is on unless this or --config says.")] = (
        ""
    )
    seed: Annotated[int, Parameter(help="Another seed, another draw among equal nodes; 1: the first by name.")] = 1

    def snapshot(self) -> "Snapshot":
        from mooring.process import logs
        from mooring_lab.rehearse.from_world import is_recording, snapshot_at
        from mooring_lab.rehearse.snapshot import schema

        if (self.from_ is not None) + self.demo + self.live != 1:
            raise UserError("name a snapshot: --from FILE (mooring rehearse snapshot --to FILE), --live or --demo")
        logs.configure("critical", "auto")
        if self.live:
            flags = {"kubeconfig": self.kubeconfig, "context": self.context, "namespace": self.namespace}
            return asyncio.run(taken(settings(flags, self.config)))
        if self.from_ is None:
            return demo(1)
        return snapshot_at(str(self.from_), note) if is_recording(self.from_) else schema.read(self.from_)

    def flags(self) -> str:
        """What says the same snapshot again."""
        return "--live" if self.live else "--demo" if self.from_ is None else f"--from {self.from_}"

    def plan(self) -> "SweepPlan":
        """Raises BadEventError."""
        from mooring_lab.cluster.kubelet import KubeletPace
        from mooring_lab.rehearse.events.catalog import Options, span
        from mooring_lab.rehearse.sweep.sweep import SweepPlan

        options = Options(
            notice_s=span(self.notice),
            unannounced=self.unannounced,
            count=self.count,
            rack_label=self.rack_label,
            away_s=span(self.away),
            limit_s=span(self.for_),
        )
        pace = KubeletPace(end_s=span(self.ending))
        return SweepPlan(config=self._config(), options=options, seed=self.seed, pace=pace)

    def _config(self) -> "Config":
        from mooring_lab.rehearse.play import everything_on

        resolved = settings({"features": self.features}, self.config, ())
        return resolved.config if resolved.sources["features"] != "default" else everything_on(resolved.config)


@contextmanager
def explained(file: Path | None) -> Iterator[None]:
    """Which snapshot is bad; and a Mooring that does not come up is 4."""
    from mooring_lab.rehearse.snapshot.schema import BadSnapshotError

    try:
        yield
    except BadSnapshotError as error:
        words = str(error)
        raise UserError(words if file is None or str(file) in words else f"{file}: {words}") from None
    except AssertionError as error:
        words = (str(error).splitlines() or ["?"])[0]
        raise UserError(f"Mooring did not come up on this snapshot: {words}", Exit.UNREACHABLE) from None


def demo(seed: int) -> "Snapshot":
    from mooring.process import logs
    from mooring_lab.rehearse.snapshot.load import demo_snapshot

    logs.configure("critical", "auto")
    return demo_snapshot(seed)


async def taken(resolved: "Resolved", *, with_pd: bool = True) -> "Snapshot":
    """A snapshot of the cluster of the settings, as it is now."""
    from mooring.clients.registry.choose import open_registry
    from mooring.process.assemble import make_pd
    from mooring.process.clock import SystemRandomness, WallClock
    from mooring_lab.rehearse.snapshot.capture import take

    config, clock = resolved.config, WallClock()
    connection = connection_of(config.kubeconfig, config.context)
    async with connect(config.kubeconfig, config.context) as api:
        return await take(
            connection,
            config,
            now=clock.now(),
            make_pd=make_pd(clock, SystemRandomness(), config, api) if with_pd else None,
            make_registry=open_registry,
            progress=Progress().line,
        )
