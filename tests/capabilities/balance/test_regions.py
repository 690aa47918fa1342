"""T9, T10: the old limits and the queue on one cluster, and what step costs keep a bound; from a seed."""

from random import Random

import pytest

from mooring.cli import app
from mooring.core.queue import Settings
from mooring.sim.regions import SCENARIOS, LimitScheme, Model, QueueScheme, play
from mooring.sim.regions.calibrate import calibrate
from mooring.sim.regions.compare import bars, compare


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
    """`mooring balance compare` and `calibrate` answer scripts too, with their assumptions."""
    import json

    for command in (["compare", "--scenario", "store-loss", "--stores", "4"], ["calibrate", "--bound", "1.5"]):
        with pytest.raises(SystemExit) as ended:
            app(["balance", *command, "-o", "json"], exit_on_error=False)
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
