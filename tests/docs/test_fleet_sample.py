"""The ten machines of docs/fleet.md: its files and commands, as they stand there, in front of an API server."""

import asyncio
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.capability import PLAN, Fleet
from mooring.cli import main
from mooring.clients.wire.kube import project
from mooring.core.model.events import MachinesSeen, Seen
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process.machine_registry import SettingsRegistry
from tests.capabilities.fleet.test_settings_command import OWN, Desk

TEXT = (Path(__file__).parents[2] / "docs/fleet.md").read_text().partition("#### Ten machines")[2].partition("\n## ")[0]
FILES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE)


def run_once(desk, now=1_790_000_000.0):
    """What the leader of `mooring run --features fleet=true` does first: it asks the registry that is set, and stores."""
    world, fleet = World(), Fleet(namespace=OWN)
    for index in fleet.indexes():
        world.register(index)
    world.apply(
        Seen(Kind.CONFIG_MAP, project(Kind.CONFIG_MAP, desk.cluster.store.get(Kind.CONFIG_MAP, OWN, settings.NAME)))
    )
    machines = tuple(asyncio.run(SettingsRegistry(world, OWN).machines()))
    world.note_machines(machines, now)
    world.show(MachinesSeen(machines, now))
    first = fleet.evaluate(PLAN, world, Queue(live_settings()), None, now)
    world.note_machines(machines, now + 1)
    (write,) = fleet.evaluate(PLAN, world, Queue(live_settings()), first.notes, now + 1).instructions
    assert write.object["metadata"]["name"] == ledger.NAME
    desk.cluster.store.create(Kind.CONFIG_MAP, dict(write.object))


def test_ten_machines_in_a_file_become_a_cluster_as_the_page_says(tmp_path, monkeypatch, capsys):
    """F12: a newcomer without a registry: plan, set, enable, and the cluster.yml of three racks."""
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.chdir(tmp_path)
    said = {}
    with Desk(tmp_path, monkeypatch, capsys) as desk:
        for line in COMMANDS:
            words = shlex.split(line)
            if words[0] == "kubectl":
                continue  # the namespace is there
            if words[1] == "run":
                assert words[2:] == ["--features", "fleet=true"]
                run_once(desk)
                continue
            assert words[:2] == ["mooring", "fleet"]
            if words[2] == "plan":
                monkeypatch.setattr(sys, "argv", words)
                with pytest.raises(SystemExit) as ended:
                    main()
                said["plan", ""] = capsys.readouterr().out
                assert not ended.value.code
                continue
            said[words[2], words[3] if words[2] in {"set", "get"} else ""] = desk.ok(*words[2:])
    chosen = [line.split()[2] for line in said["plan", ""].splitlines() if line.startswith("add")]
    assert len(chosen) == 8 and "S9" not in chosen
    nodes = yaml.safe_load(said["get", "cluster"])["nodes"]
    planes = [n["address"] for n in nodes if n.get("control_plane")]
    assert planes == ["10.0.0.11", "10.0.0.21", "10.0.0.31"]
    assert len(nodes) == 8 and "10.0.0.51" not in {n["address"] for n in nodes}
    assert sum(n["labels"]["cke.cybozu.com/role"] == "ss" for n in nodes) == 2
    assert "workers            5" in said["status", ""]
    assert "listed in the settings" in said["status", ""]
    # Nobody said when these machines retire.
    assert "(no retire date)" in said["plan", ""] and "1970" not in said["get", "cluster"]
