"""The flags each server is given: those that were learnt the hard way stay."""

from pathlib import Path

import pytest
import yaml

from mooring_lab.control import controlplane, servers
from mooring_lab.control.binaries import NEEDED, Binaries, release
from mooring_lab.control.controlplane import Layout, Ports
from mooring_lab.control.errors import WrongRequestError
from mooring_lab.control.processes import Server

PORTS = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5, kwok=6)


@pytest.fixture
def binaries() -> Binaries:
    return Binaries(release=release("1.36", {}), paths={name: Path("/bin") / name for name in NEEDED})


@pytest.fixture
def at(tmp_path: Path) -> Layout:
    return Layout(root=tmp_path)


def flags(server: Server) -> dict[str, str]:
    return dict(flag.removeprefix("--").split("=", 1) for flag in server.argv[1:])


def test_api_server_has_tls_and_rbac_on(binaries: Binaries, at: Layout):
    """What lacks a permission on a real cluster lacks it here."""
    given = flags(controlplane.apiserver(binaries, at, PORTS))
    assert given["authorization-mode"] == "Node,RBAC"
    assert given["client-ca-file"] == str(at.pki / "ca.crt")
    assert given["tls-cert-file"] == str(at.pki / "apiserver.crt")
    assert given["disable-admission-plugins"] == "ServiceAccount"
    assert given["enable-admission-plugins"] == "NodeRestriction"


def test_controllers_use_their_own_accounts(binaries: Binaries, at: Layout):
    """Under RBAC the controller manager creates nothing unless each controller has its own credentials."""
    given = flags(controlplane.controller_manager(binaries, at, PORTS))
    assert given["use-service-account-credentials"] == "true"
    assert given["service-account-private-key-file"] == str(at.pki / "service-account.key")


def test_everything_listens_on_loopback_alone(binaries: Binaries, at: Layout):
    """No server of the lab can be reached from another machine."""
    for server in (
        controlplane.apiserver(binaries, at, PORTS),
        controlplane.controller_manager(binaries, at, PORTS),
        controlplane.scheduler(binaries, at, 5),
    ):
        assert flags(server)["bind-address"] == "127.0.0.1"
    etcd = flags(controlplane.etcd(binaries, at, PORTS))
    assert etcd["listen-client-urls"] == "http://127.0.0.1:1"
    assert etcd["listen-peer-urls"] == "http://127.0.0.1:2"
    assert "--server-address=127.0.0.1:6" in servers.kwok(binaries, at, PORTS).argv


def test_identities_are_written_for_every_client(at: Layout):
    """Administrator, controller manager, scheduler and kwok each get a kubeconfig of their own for this API server."""
    controlplane.write_identities(at, PORTS)
    for name in controlplane.IDENTITIES:
        config = yaml.safe_load(at.kubeconfig_of(name).read_text())
        assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:3"
    assert at.kubeconfig == at.root / "kubeconfig"


def test_scheduler_configuration_is_completed_not_overruled(at: Layout, tmp_path: Path):
    """What the user sets stays, what only the lab knows is filled in."""
    given = tmp_path / "given.yaml"
    given.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "clientConnection: {qps: 7}\nextenders: [{urlPrefix: http://127.0.0.1:10262/scheduler}]\n"
    )
    made = controlplane.scheduler_config(given, Path("/k"))
    assert made["clientConnection"] == {"kubeconfig": "/k", "qps": 7, "burst": 400}
    assert made["extenders"] == [{"urlPrefix": "http://127.0.0.1:10262/scheduler"}]
    assert made["leaderElection"] == {"leaderElect": False}


@pytest.mark.parametrize("text", ["kind: Pod", "- 1", "{", ""])
def test_file_that_is_no_scheduler_configuration_is_refused(text: str, tmp_path: Path):
    """A wrong file is named instead of handed to a scheduler that would die of it."""
    given = tmp_path / "given.yaml"
    given.write_text(text)
    with pytest.raises(WrongRequestError, match=r"given\.yaml"):
        controlplane.scheduler_config(given, Path("/k"))


def test_second_scheduler_has_a_name_and_a_file_of_its_own(binaries: Binaries, at: Layout):
    """Two schedulers share nothing but their identity."""
    first, second = controlplane.scheduler(binaries, at, 5), controlplane.scheduler(binaries, at, 7, name="second")
    assert (first.name, second.name) == ("kube-scheduler", "second")
    assert flags(first)["config"] != flags(second)["config"]
    assert flags(second)["secure-port"] == "7"


def test_kwok_has_a_stage_for_nodes_and_pods():
    """kwok ends at once without a stage for each kind; ours cover both, and every stage has a selector (or is inert)."""
    stages = [stage for file in servers.STAGES.glob("*.yaml") for stage in yaml.safe_load_all(file.read_text())]
    assert {stage["spec"]["resourceRef"]["kind"] for stage in stages} == {"Node", "Pod"}
    assert len({stage["metadata"]["name"] for stage in stages}) == len(stages)
    assert all(stage["spec"]["selector"]["matchExpressions"] for stage in stages)


def test_stages_answer_to_the_annotations_we_name():
    """Each annotation of kwok is one the stages read."""
    text = "".join(file.read_text() for file in servers.STAGES.glob("*.yaml"))
    for key in (servers.START_SECONDS, servers.READY_SECONDS, servers.RUN_SECONDS, servers.GRACE_SECONDS, servers.FAIL):
        assert f'["{key}"]' in text or f'"{key}"' in text


def test_nodes_carry_capacity_and_labels():
    """A node is as large as asked for and has the labels that selectors and topology keys look for."""
    node = servers.node("n", {"rack": "1"}, cpu="2", memory="4Gi")
    assert node["status"]["allocatable"]["cpu"] == "2"
    assert node["status"]["capacity"]["memory"] == "4Gi"
    assert node["metadata"]["labels"]["rack"] == "1"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n"


def test_members_of_one_pd_know_each_other(tmp_path: Path):
    """Three PD servers are started as one cluster, each on ports of its own."""
    members = servers.pd_servers(Path("/bin/pd-server"), tmp_path, [1, 2, 3, 4, 5, 6])
    assert [server.name for server in members] == ["pd1", "pd2", "pd3"]
    together = {flags(server)["initial-cluster"] for server in members}
    assert together == {"pd1=http://127.0.0.1:2,pd2=http://127.0.0.1:4,pd3=http://127.0.0.1:6"}
    assert [flags(server)["client-urls"] for server in members] == [servers.pd_url(port) for port in (1, 3, 5)]


def test_sabakan_gets_every_flag_it_insists_on(tmp_path: Path):
    """sabakan does not start without one of these, and its data directory must be absolute."""
    pair = (tmp_path / "c", tmp_path / "k")
    argv = servers.sabakan(Path("/bin/sabakan"), tmp_path, [1, 2, 3, 4], etcd="http://127.0.0.1:9", tls=pair).argv[1:]
    given = dict(zip(argv[::2], argv[1::2], strict=True))
    assert set(given) == {
        *("-http", "-https", "-metrics", "-dhcp-bind", "-data-dir", "-advertise-url", "-advertise-url-https"),
        *("-server-cert", "-server-key", "-etcd-endpoints"),
    }
    assert Path(given["-data-dir"]).is_absolute()
