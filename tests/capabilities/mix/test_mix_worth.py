"""M12: what mix is worth."""

from mooring.capabilities.mix.explain import all_workloads
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.worth import INSTANCE_TYPE, Price, Prices, last_line
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import manifests
from mooring_lab.stage.scenarios.mix import physical
from tests.capabilities.mix.rebalance.mix_stage import Stage

PRICES = Prices(
    currency="USD",
    types={"big": Price(on_demand=0.4, spot=0.1)},
    cpu=Price(on_demand=0.05, spot=0.02),
)


def _worth(stage: Stage) -> dict[str, object]:
    leader = stage.rig.leader()
    assert leader is not None
    steps = all_workloads(leader.engine, None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return dict(done.value["worth"])


def _figure(stage: Stage, line: str) -> float:
    leader = stage.rig.leader()
    assert leader is not None
    leader.metrics.look_at(leader.engine, 0)
    (found,) = [one for one in leader.metrics.render().decode().splitlines() if one.startswith(line + " ")]
    return float(found.rpartition(" ")[2])


def test_what_is_saved_follows_from_prices_and_from_the_share_of_each_node():
    """M12: two replicas on spot, one of a known instance type with half of its memory, one priced by its CPU; share of
    spot, floors and the sum, in `mix status` and as metrics; a floor is broken as soon as a node of it is gone."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        cluster.add_nodes(1, "od-", capacity="on-demand")
        cluster.add_nodes(1, "sbig-", capacity="spot", cpu="4", memory="8Gi", labels={INSTANCE_TYPE: "big"})
        template = manifests.pod_template({"app": "a"}, cpu="1", memory="4Gi", nodeSelector={INSTANCE_TYPE: "big"})
        await stage.deployed("a", 1, "all-in-spot", template=template)
        cluster.add_nodes(1, "small-", capacity="spot", cpu="4", memory="8Gi")
        cluster.cordon("sbig-0")
        await stage.deployed("b", 2, "custom", 1, template=manifests.pod_template({"app": "b"}, cpu="500m"))
        assert physical(stage.rig, "a") == ["spot"] and physical(stage.rig, "b") == ["on-demand", "spot"]
        found = _worth(stage)
        month = 730 * (0.5 * 0.3 + 0.5 * 0.03)
        assert abs(found["saved"] - month) < 0.01
        assert {**found, "saved": None} == {
            "replicas": 3,
            "on_spot": 2,
            "floors_kept": 1,
            "floors_broken": 0,
            "relaxed": 0,
            "saved": None,
            "currency": "USD",
        }
        assert last_line(found) == (
            "66 % of replicas on spot; about 120 USD a month less than all on-demand (prices from mix.prices); "
            "floors: 1 kept, 0 broken"
        )
        assert _figure(stage, 'mooring_mix_replicas{on="spot"}') == 2.0
        assert abs(_figure(stage, "mooring_mix_saved_a_month") - month) < 0.01
        cluster.store.delete(Kind.NODE, "", "od-0")
        await stage.rig.until(lambda: _figure(stage, 'mooring_mix_floors{is="broken"}') == 1.0, 120.0)

    Stage(MixPolicy(prices=PRICES), on_demand=0, spot=0).play(scenario)


def test_without_prices_no_sum_is_made_up():
    """M12: shares and floors are told; the saving is not known."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        found = _worth(stage)
        assert found["saved"] is None
        assert last_line(found) == "100 % of replicas on spot; no floor is asked for"

    Stage().play(scenario)
