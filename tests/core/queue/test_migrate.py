"""Coming over from PD's old limits."""

import pytest

from mooring.core.queue.config import parse
from mooring.core.queue.migrate import OldConfigError, migrate_config

SHIPPED = {
    "schedule": {
        "leader-schedule-limit": 4,
        "region-schedule-limit": 2048,
        "replica-schedule-limit": 64,
        "merge-schedule-limit": 8,
        "hot-region-schedule-limit": 4,
        "scheduler-max-waiting-operator": 5,
        "store-limit": {"1": {"add-peer": 15, "remove-peer": 15}, "2": {"add-peer": 15, "remove-peer": 15}},
    },
    "replication": {"max-replicas": 3},
}


def settings_of(raw):
    return {setting.name: setting.value for setting in migrate_config(raw).settings}


def test_shipped_configuration_gives_the_defaults():
    """T9: PD as shipped becomes the design's defaults, each of the five with a reason, and can be read back."""
    answer = migrate_config(SHIPPED)
    assert {s.name: s.value for s in answer.settings} == {
        "MaxScheduleCost": 20,
        "StoreMaxScheduleCost": {},
        "OperatorStepCost": {},
        "MaxWaitingOperator": 3,
        "SchedulerMaxWaitingOperator": {},
    }
    assert all(s.why for s in (*answer.settings, *answer.dropped))
    assert {s.name for s in answer.dropped} >= {"leader-schedule-limit", "region-schedule-limit", "store-limit"}
    parse({s.name: s.value for s in answer.settings})


def test_what_was_set_apart_stays_apart():
    """T9: slower stores keep the proportion in whole moves, 0 switches off; none is set above the design's 20."""
    old = {
        "leader-schedule-limit": 0,
        "merge-schedule-limit": 0,
        "scheduler-max-waiting-operator": 8,
        "store-limit": {
            "1": {"add-peer": 15},
            "2": {"add-peer": 15},
            "3": {"add-peer": 30},
            "4": {"add-peer": 1},
            "5": {"add-peer": 1e8},
            "6": {"add-peer": 0},
        },
    }
    assert settings_of(old) == {
        "MaxScheduleCost": 20,
        "StoreMaxScheduleCost": {"4": 10, "6": 0},
        "OperatorStepCost": {},
        "MaxWaitingOperator": 8,
        "SchedulerMaxWaitingOperator": {"balance-leader": 0, "merge": 0},
    }


@pytest.mark.parametrize("rates", [(15, 30, 0.5), (30, 0.5), (0.5, 600, 600), (15, 0.5, 1e8)])
def test_no_store_is_set_above_what_the_designs_cost_allows(rates):
    """T9: whichever rate is taken for normal, no limit goes beyond 20, and faster stores are named in a warning."""
    old = {"store-limit": {str(i): {"add-peer": rate} for i, rate in enumerate(rates, start=1)}}
    answer = migrate_config(old)
    limits = {s.name: s.value for s in answer.settings}["StoreMaxScheduleCost"]
    assert limits.keys() == {str(i) for i, rate in enumerate(rates, start=1) if rate == 0.5}
    assert set(limits.values()) == {10}
    if rates[:2] == (15, 30):
        (warning,) = answer.warnings
        assert "2 (30 a minute)" in warning and answer.as_json()["warnings"] == [warning]


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {},
        {"schedule": 4},
        {"MaxScheduleCost": 20},
        {"leader-schedule-limit": -1},
        {"leader-schedule-limit": "4"},
        {"store-limit": [1]},
        {"store-limit": {"1": 15}},
        {"store-limit": {"1": {"add-peer": True}}},
    ],
)
def test_what_is_no_configuration_of_pd(raw):
    """Bad input is refused in words that name the key."""
    with pytest.raises(OldConfigError) as refused:
        migrate_config(raw)
    assert len(str(refused.value)) > 10
