"""Updates, drains, restarts, and servers that are away: each played, each judged."""

import pytest

from mooring.core.model.kinds import Kind
from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.rehearse.events.catalog import BadEventError, Options, acts
from mooring_lab.rehearse.report import render
from mooring_lab.rehearse.snapshot.schema import Snapshot
from tests.rehearse.test_play import play, taken


def two_racks() -> Cluster:
    cluster = Cluster(seed=5)
    for at in range(4):
        cluster.add_node(f"n{at}", rack=at % 2, zone=f"z{at % 2}")
    cluster.deployment("shop", "web", 4)
    cluster.stateful_set("data", "db", 3)
    return cluster


def test_a_rolling_update_replaces_every_pod_and_keeps_its_promises() -> None:
    """O4: a Deployment by its surge, a StatefulSet one by one."""
    snapshot = taken(two_racks())
    outcome = play(snapshot, "rolling-update deployment/shop/web")
    assert outcome.verdict == "kept"
    assert len({one.pod for one in outcome.played.come}) == 4
    outcome = play(snapshot, "rolling-update sts/data/db")
    assert {one.pod for one in outcome.played.gone} == {f"data/db-{at}" for at in range(3)}
    (short,) = outcome.played.interrupted
    assert (outcome.verdict, short.worst, short.at_end) == ("kept", 2, 3)


def test_a_rolling_update_of_tidb_moves_its_servers(demo: Snapshot) -> None:
    """O4, H1: all three servers are new, and each is back on its node."""
    outcome = play(demo, "rolling-update tidbcluster/tidb/demo")
    before = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in demo.of(Kind.POD)}
    home = {one.pod.partition("/")[2]: one.node for one in outcome.played.come}
    assert home == {name: before[name] for name in ("demo-tidb-0", "demo-tidb-1", "demo-tidb-2")}
    assert outcome.verdict == "kept"


def test_a_drain_empties_the_node_as_far_as_budgets_allow() -> None:
    """O4: every pod moves; a budget that allows none keeps its pod there."""
    cluster = two_racks()
    outcome = play(taken(cluster), "drain n0")
    on = [one for one in outcome.played.gone if one.node == "n0"]
    assert on
    assert all(one.node != "n0" for one in outcome.played.come)
    cluster.pdb("shop", "web", {"app": "web"}, minAvailable=4)
    cluster.pdb("data", "db", {"app": "db"}, minAvailable=3)
    outcome = play(taken(cluster), "drain n0")
    assert outcome.played.gone == ()
    stays = f"HOLDS, but not drained: {len(on)} pods stay on n0, kept by PodDisruptionBudget "
    assert outcome.answer.startswith(stays)
    lines = render(outcome)
    assert any(line.endswith("on n0: stays, blocked by PodDisruptionBudget shop/web") for line in lines)
    assert lines[-1] == f"0 pods go · {len(on)} pods not drained · 0 workloads short · 0 promises broken"


def test_restart_of_one_pod(demo: Snapshot) -> None:
    """O4, E1: TiKV hands its leaders over first; another pod is deleted and made again."""
    outcome = play(demo, "restart pod/tidb/demo-tikv-0")
    (losses,) = outcome.played.regions
    assert (outcome.verdict, losses.without_leader) == ("kept", 0)
    assert [one.pod for one in outcome.played.gone] == ["tidb/demo-tikv-0"]
    snapshot = taken(two_racks())
    outcome = play(snapshot, "restart pod/data/db-1")
    assert [one.pod for one in outcome.played.gone] == [one.pod for one in outcome.played.come] == ["data/db-1"]


def test_pd_away_lets_a_restart_wait_until_it_is_back(demo: Snapshot) -> None:
    """O4, E7: no member goes while nobody can say where the leaders are."""
    outcome = play(demo, "pd-away then restart@20s tidb/demo", away_s=240.0)
    assert min(one.at_s for one in outcome.played.gone) >= 240.0
    assert outcome.verdict == "kept"
    (losses,) = outcome.played.regions
    assert losses.without_leader == 0


def test_who_is_away_is_back_in_the_timeline_and_what_follows_is_seen(demo: Snapshot) -> None:
    """O4: when it was back, when Mooring leads again, and no more is asked of a reader than one look."""
    outcome = play(demo, "pd-away", away_s=240.0)
    lines = render(outcome)
    assert "     4:00  event       PD of tidb/demo is back" in lines
    assert "PODS  none goes, none comes" in lines
    assert outcome.played.played_s >= 240.0 + 80.0
    shown = render(play(demo, "api-away", away_s=240.0))
    assert "     4:00  event       the API server is back" in shown
    assert any(line.endswith("mooring     leads: won the lease") for line in shown)
    assert not any("--all" in line for line in shown)


def test_api_away_lets_mooring_do_nothing_until_it_is_back(demo: Snapshot) -> None:
    """O4: the request waits, and is done afterwards."""
    outcome = play(demo, "api-away then restart@20s pod/tidb/demo-tikv-0", away_s=120.0)
    assert [one.pod for one in outcome.played.gone] == ["tidb/demo-tikv-0"]
    assert outcome.played.gone[0].at_s >= 120.0
    assert outcome.verdict == "kept"


def test_another_replica_goes_on_after_the_leader_is_lost_with_its_node(demo: Snapshot) -> None:
    """O4: the notice comes while nobody leads, and all pods are moved in time all the same."""
    outcome = play(demo, "leader-lost n8 then spot-gone@2s")
    assert any(row.who == "mooring" and "takes over" in row.text for row in outcome.played.timeline)
    moved = [one for one in outcome.played.gone if one.how == "moved"]
    assert len(moved) == 24
    assert min(one.at_s for one in moved) >= 15.0


def test_a_zone_that_is_cut_off_comes_back() -> None:
    """O4: lost for as long as it lasts, back when it is over; a lost one is not."""
    snapshot = taken(two_racks())
    outcome = play(snapshot, "zone-cut-off z0", away_s=30.0)
    assert all(one.until_s == pytest.approx(30.0, abs=1.0) for one in outcome.played.interrupted)
    assert outcome.played.stuck == ()
    assert play(snapshot, "zone-lost z0").over_s is None or play(snapshot, "zone-lost z0").over_s > 60.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rolling-update", "takes one of deployment/NS/NAME"),
        ("rolling-update web", "write deployment/NS/NAME"),
        ("rolling-update deployment/shop/nope", "there are shop/web"),
        ("drain n9", "there are n0 n1 n2 n3"),
        ("pd-away", "no PD at all"),
        ("api-away now", "takes no name"),
        ("leader-lost", "leader-lost NODE"),
        ("zone-lost mars", "there are z0 z1"),
        ("restart pod/data/db-9", "not in the snapshot"),
    ],
)
def test_what_the_snapshot_does_not_have_is_told(words: str, said: str) -> None:
    """O4: bad input says what is wrong and what would be right."""
    with pytest.raises(BadEventError, match=said):
        acts(words.split(), taken(two_racks()), capacity_rules(Config()), Options())


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("node-lost@40m n7", Options()),
        ("node-lost n7", Options(limit_s=0.0)),
        ("pd-away", Options(away_s=2400.0)),
        ("spot-gone", Options(notice_s=2400.0)),
    ],
)
def test_what_would_not_happen_in_the_time_that_is_played_is_no_comfort(
    words: str, options: Options, demo: Snapshot
) -> None:
    """O4: "HOLDS" is never said of an event that was not played."""
    with pytest.raises(
        BadEventError, match=r"would not have happened by the end, after .*: play for longer, with --for"
    ):
        acts(words.split(), demo, capacity_rules(Config()), options)
    with pytest.raises(BadEventError, match="nothing would be away"):
        acts(["pd-away"], demo, capacity_rules(Config()), Options(away_s=0.0))
