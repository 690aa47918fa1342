"""T9, T10: the old limits and the queue on one cluster, and what step costs keep a bound; from a seed."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from random import Random

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from bench.regions import SCENARIOS, LimitScheme, Model, QueueScheme, play
from bench.regions.__main__ import app
from bench.regions.calibrate import calibrate
from bench.regions.compare import bars, compare
from bench.regions.loads import LoadsError, measure, model_of

from mooring.core.model.operator import StepKind
from mooring.core.model.tidb import PdOperator, Peer, Region, Store
from mooring.core.queue import Settings
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.http import pd_app


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_queue_keeps_its_limit_in_every_scenario(scenario):
    """T9: whatever happens to the cluster, it comes to rest and no store was ever above MaxScheduleCost."""
    figures = play(SCENARIOS[scenario](6, 90, Random(1)), QueueScheme())
    assert figures.balanced_s is not None
    assert 0 < figures.peak_cost <= 20 and figures.above_limit_s == 0
    assert figures.undone <= figures.moves / 5


def test_the_old_limits_load_single_stores_more():
    """T9: the baseline counts by kind, so one store gets more than the queue would let pass, and slows down."""
    old, new = (f.figures for f in compare(["store-loss"], [5]))
    assert (old.scheme, new.scheme) == ("limits", "queue")
    assert old.peak_cost > 20 >= new.peak_cost
    assert old.above_limit_s > 0 and old.peak_latency > new.peak_latency


def test_fixed_limits_do_not_grow_with_the_cluster():
    """T9: four moves at once are too many for five stores and too few for many: the queue is quicker there."""
    made = lambda: SCENARIOS["scale-out"](60, 300, Random(1))
    old, new = play(made(), LimitScheme()), play(made(), QueueScheme())
    assert new.balanced_s < old.balanced_s


def test_the_same_seed_gives_the_same_figures():
    """T10: a comparison can be re-run; another seed is another cluster."""
    one, again, other = (list(compare(["store-loss"], [4], seed)) for seed in (1, 1, 2))
    assert one == again != other


def test_a_repair_ends_with_every_peer_made_up_for():
    """T12: in the play nothing is left on the store that is gone."""
    cluster = SCENARIOS["store-loss"](6, 60, Random(1))
    lost = sum(any(p.store_id == 1 for p in r.peers) for r in cluster.regions)
    figures = play(cluster, QueueScheme())
    assert figures.by_source["replica"] == lost and figures.repaired_s is not None


@pytest.fixture(scope="module")
def calibration():
    return calibrate(3.0)


def test_calibrated_costs_keep_the_bound_and_say_so(calibration):
    """T10: the answer keeps the slowest store within the bound where the design's costs do not."""
    assert calibration.trial.fits and calibration.trial.peak_latency <= 3.0
    assert not calibration.design.fits and calibration.design_limit < 20
    careful = calibration.careful
    assert all(
        cost <= careful[kind][role] for kind, roles in calibration.answer.items() for role, cost in roles.items()
    )


def test_a_bound_that_customers_alone_break_has_no_answer():
    """T10: nothing is made up where there is no headroom."""
    assert calibrate(1.5).answer is None


def test_the_answer_holds_when_played_again(calibration):
    """T10: played with its own settings, the calibrated cluster stays within the bound."""
    settings = Settings(operator_step_cost=calibration.answer)
    figures = play(SCENARIOS["scale-in"](10, 100, Random("1/scale-in")), QueueScheme(settings), model=Model())
    assert figures.peak_latency <= 3.0


def test_the_plot_has_a_bar_for_each_play():
    """Every row is drawn, the longest at full width, and who went above the limit is said."""
    rows = list(compare(["store-loss"], [5]))
    lines = list(bars(rows, width=20))
    assert len(lines) == 2 and max(line.count("█") for line in lines) == 20
    assert "above the limit" in lines[0] and "above the limit" not in lines[1]


def test_commands_print_json(capsys):
    """`python -m bench.regions compare` and `calibrate` answer scripts too, with their assumptions."""
    import json

    for command in (["compare", "--scenario", "store-loss", "--stores", "4"], ["calibrate", "--bound", "1.5"]):
        with pytest.raises(SystemExit) as ended:
            app([*command, "-o", "json"], exit_on_error=False)
        assert ended.value.code in (None, 0)
        answer = json.loads(capsys.readouterr().out)
        assert answer["seed"] == 1
    assert len(answer["assumptions"]) == 5
    assert answer["OperatorStepCost"] is None


def test_repairs_that_go_first_are_done_sooner():
    """T10, beyond the design: while repairs are due, what is balanced is soon uneven again; they go first."""
    made = lambda: SCENARIOS["mixed"](6, 120, Random(1))
    plain, first = play(made(), QueueScheme()), play(made(), QueueScheme(repairs_first=True))
    assert first.repaired_s < plain.repaired_s and first.balanced_s <= plain.balanced_s
    assert first.peak_cost <= 20


# ── Measured loads (T10) ──────────────────────────────────────────────────────────────────────────────────────────


def test_measured_loads_replace_assumptions_and_are_named_as_such():
    """T10: what a file gives is measured, what it leaves out is assumed, and the answer follows the file."""
    model = model_of({"loads": {"AddLearner": {"sender": 0.02, "receiver": 0.04}}, "busy": {"low": 0.2, "high": 0.4}})
    said = " ".join(model.assumptions())
    assert "measured: customers use 20% to 40%" in said and "measured: a snapshot loads its sender by 2.0%" in said
    assert "assumed: a removal" in said
    light, assumed = calibrate(3.0, model=model), calibrate(3.0)
    assert light.careful[StepKind.ADD_LEARNER]["to"] < assumed.careful[StepKind.ADD_LEARNER]["to"]


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {"load": {}},
        {"loads": {"AddLeaner": {"to": 1}}},
        {"loads": {"AddLearner": {"to": 0.1}}},
        {"loads": {"AddLearner": {"sender": 2}}},
        {"loads": {"AddLearner": {"sender": -0.1}}},
        {"busy": {"low": 0.5, "high": 0.2}},
        {"snapshot-mib-per-s": True},
    ],
)
def test_what_is_no_file_of_loads(raw):
    """T10: refused in words that name the key."""
    with pytest.raises(LoadsError) as refused:
        model_of(raw)
    assert len(str(refused.value)) > 20


async def test_measuring_reads_what_stores_used_and_moves_every_region_back():
    """T10: on a PD whose stores show a known use of CPU, that use is the load; peers and leaders are where they were."""
    pd = MeasuredPd()
    found = await measure(pd, pd, regions=1, quiet_s=0.2, note=lambda _: None)
    load = found["loads"]["AddLearner"]
    assert load["receiver"] > load["sender"] > 0.0
    assert found["loads"]["TransferLeader"]["sender"] == 0.0
    assert [body["name"] for body in pd.asked] == ["transfer-peer"] * 2 + ["transfer-leader"] * 2
    assert (pd.asked[0]["to_store_id"], pd.asked[1]["to_store_id"]) == (4, 2)
    assert (pd.asked[2]["to_store_id"], pd.asked[3]["to_store_id"]) == (3, 1)
    model_of(found)  # it can be read back


#: CPU seconds that the stores of the sandbox use for one copy.
SENDS, RECEIVES = 0.05, 0.25


async def test_the_command_measures_the_sandbox(tmp_path):
    """T10: `measure` against the sandbox's PD and its stores' /metrics, over HTTP: what each store is known to have used
    for a copy is what the file says, PD shows every region where it was, and `calibrate` takes the file."""
    timeline = Timeline()
    pd = SandboxPd(timeline, seed=1, cluster="demo", namespace="tidb")
    for number in range(4):
        pd.attach(f"demo-tikv-{number}")
    pd.load(8, 3)
    tikv, copies = pd.server.tikv, {}

    def metrics(store):
        async def answer(_):
            got = {one: set(tikv.held[one]) for one in tikv.stores}
            for one, regions in got.items():
                for region in regions - copies.setdefault("seen", got)[one]:
                    copies[one] = copies.get(one, 0.0) + RECEIVES
                    leader = tikv.groups[region].leader
                    copies[leader] = copies.get(leader, 0.0) + SENDS
            copies["seen"] = got
            return web.Response(
                text=f"process_cpu_seconds_total {1 + copies.get(store, 0.0)}\ntikv_server_cpu_cores_quota 1\n"
            )

        return answer

    served = pd_app(pd)
    for store in tikv.stores:
        served.router.add_get(f"/{store}/metrics", metrics(store))
    before = {one: set(tikv.held[one]) for one in tikv.stores}
    driver = asyncio.ensure_future(WallDriver(timeline, speed=2.0).run())
    async with TestServer(served) as server:
        url = str(server.make_url("")).rstrip("/")
        asks = [part for store in tikv.stores for part in ("--status", f"{store}={url}/{store}")]
        command = ["measure", "--pd", url, *asks, "--regions", "1", "--quiet-s", "0.5"]
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.regions", *command, stdout=PIPE, stderr=PIPE
        )
        out, err = await asyncio.wait_for(running.communicate(), 60)
    driver.cancel()
    assert running.returncode == 0, err.decode()
    found = json.loads(out)
    load = found["loads"]["AddLearner"]
    assert load["receiver"] == pytest.approx(load["sender"] * RECEIVES / SENDS, rel=0.1) and load["sender"] > 0
    assert found["loads"]["TransferLeader"] == {"sender": 0.0, "receiver": 0.0}
    assert {one: set(tikv.held[one]) for one in tikv.stores} == before
    assert model_of(found).measured >= {"copy", "transfer", "busy"}


class MeasuredPd:
    """One region on three of four stores. A copy uses a quarter of two cores on its target, half of that on the leader's store."""

    def __init__(self):
        self.asked, self.polls, self.spent = [], 0, dict.fromkeys((1, 2, 3, 4), 0.0)

    async def stores(self):
        return [Store(i, f"s{i}:20160") for i in (1, 2, 3, 4)]

    async def regions(self):
        return [Region(7, "", "", peers=tuple(Peer(i, i) for i in (1, 2, 3)), leader_store=1, size_mib=96)]

    async def add_operator(self, body):
        self.asked.append(body)
        self.polls = 2
        if body["name"] == "transfer-peer":
            self.spent[body["to_store_id"]] += 0.05
            self.spent[1] += 0.025

    async def operators(self):
        self.polls -= 1
        return [PdOperator(region_id=7, desc="", brief="")] if self.polls > 0 else []

    async def cpu(self):
        return {store: (spent, 2.0) for store, spent in self.spent.items()}
