import msgspec
import pytest

from mooring.capabilities.mix.admission.affinity import PodRules
from mooring.capabilities.mix.admission.validation import WorkloadDraft, judge
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE, Managed, Misconfigured, Unmanaged, parse_share, read
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.targets import Mode, Share, Target

ON = {ENABLED: "true"}
TO_SPOT = PodRules(node_selector={"node.kubernetes.io/capacity": "spot"})
TO_ON_DEMAND = PodRules(node_selector={"node.kubernetes.io/capacity": "on-demand"})


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("3", Share(3)),
        ("0", Share(0)),
        ("30%", Share(30, percent=True)),
        ("30pct", Share(30, percent=True)),
        ("100%", Share(100, percent=True)),
        *[(bad, None) for bad in ("+3", "007", "-1", "1.5", "101%", "030%", "pct", "%", "", " 3", "3 %", "1e3", "٣")],
    ],
)
def test_custom_figure(text, share):
    """M1: a figure is a plain count or a percentage from 0 to 100, and nothing that merely looks like one."""
    assert parse_share(text) == share


def test_absent_or_false_is_unmanaged():
    """M1: absent and false mean: not touched, even where a mode stands beside it."""
    for labels in ({}, {ENABLED: "false"}, {MODE: "all-in-spot"}, {ENABLED: "false", MODE: "custom", CUSTOM: "3"}):
        assert read("Deployment", labels, {}) == Unmanaged()


def test_percentage_by_label_or_annotation():
    """M1: 30pct in the label and 30% in the annotation mean the same, also both at once."""
    wanted = Managed(Target(Mode.CUSTOM, Share(30, percent=True)))
    labels = ON | {MODE: "custom"}
    assert read("Deployment", labels | {CUSTOM: "30pct"}, {}) == wanted
    assert read("Deployment", labels, {CUSTOM: "30%"}) == wanted
    assert read("Deployment", labels | {CUSTOM: "30pct"}, {CUSTOM: "30%"}) == wanted


@pytest.mark.parametrize(
    ("labels", "annotations", "says"),
    [
        ({ENABLED: "True"}, {}, "exactly true or false"),
        ({ENABLED: "1"}, {}, "exactly true or false"),
        ({MODE: "most-in-spot"}, {}, "all-in-on-demand, all-in-spot, majority-in-on-demand, custom"),
        (ON | {MODE: "custom"}, {}, f"needs label {CUSTOM}"),
        ({MODE: "custom"}, {}, f"needs label {CUSTOM}"),
        (ON | {MODE: "custom", CUSTOM: "-1"}, {}, "'-1'"),
        (ON | {MODE: "custom", CUSTOM: "three"}, {}, "30pct"),
        (ON | {MODE: "custom"}, {CUSTOM: "120%"}, "from 0 to 100"),
        (ON | {MODE: "custom", CUSTOM: "3"}, {CUSTOM: "30%"}, "3 as a label and 30% as an annotation"),
        ({ENABLED: "false", CUSTOM: "x"}, {}, "'x'"),
    ],
)
def test_nonsense_is_refused_and_never_guessed(labels, annotations, says):
    """M1: what is wrong is refused at admission in words that say what would be right, and unmanaged at run time."""
    found = read("Deployment", labels, annotations)
    assert isinstance(found, Misconfigured)
    assert says in str(found)
    judged = judge(WorkloadDraft("Deployment", labels, annotations))
    assert judged.problems == found.problems


def test_every_problem_is_named_at_once():
    """M1: a person who made three mistakes reads about three, not about the first."""
    found = judge(WorkloadDraft("Deployment", {ENABLED: "yes", MODE: "most", CUSTOM: "x"}))
    assert len(found.problems) == 3


def test_a_change_elsewhere_is_not_refused():
    """M9: a workload that was wrong before may still be changed and deleted; only the labels themselves are judged."""
    wrong = WorkloadDraft("Deployment", {ENABLED: "yes"}, replicas=3)
    scaled = WorkloadDraft("Deployment", {ENABLED: "yes"}, replicas=5)
    judged = judge(scaled, before=wrong)
    assert not judged.problems
    assert "exactly true or false" in judged.warnings[0]
    assert judge(WorkloadDraft("Deployment", {ENABLED: "no"}), before=wrong).problems


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (WorkloadDraft("Deployment", ON, replicas=3), "floor is 0"),
        (WorkloadDraft("Deployment", ON | {MODE: "all-in-spot"}), "floor is 0"),
        (WorkloadDraft("StatefulSet", ON | {MODE: "custom", CUSTOM: "0"}), "floor is 0"),
        (WorkloadDraft("Deployment", ON | {MODE: "majority-in-on-demand", CUSTOM: "3"}), "is ignored"),
        (WorkloadDraft("Deployment", ON | {MODE: "custom", CUSTOM: "9"}, replicas=3), "more than the 3 replicas"),
        (WorkloadDraft("Deployment", ON, {MODE: "custom"}), "read from the labels"),
        (WorkloadDraft("Deployment", {}, template_labels=ON), "in the pod template is ignored"),
        (WorkloadDraft("Deployment", ON | {ENABLED + "-modus": "custom"}), "is not known"),
        (WorkloadDraft("Deployment", ON, {"vacant.io/rebalance": "quick"}), "the only value is fast"),
        (WorkloadDraft("StatefulSet", ON, {"vacant.io/rebalance": "fast"}), "one by one"),
        (WorkloadDraft("Deployment", ON, {"vacant.io/rebalance": "fast"}, strategy="Recreate"), "side by side"),
        (
            WorkloadDraft("StatefulSet", ON, replicas=3, rules=TO_SPOT),
            "majority-in-on-demand wants 2 of 3 replicas on on-demand, but the template's nodeSelector asks for spot nodes",
        ),
        (
            WorkloadDraft("StatefulSet", ON, replicas=3, rules=TO_ON_DEMAND),
            "majority-in-on-demand wants 1 replica on spot, but the template's own node rules exclude spot nodes",
        ),
    ],
)
def test_warnings(draft, says):
    """M2: what is allowed and surprising is said: a floor of 0, figures and settings that nobody reads."""
    judged = judge(draft)
    assert not judged.problems
    assert any(says in warning for warning in judged.warnings), judged.warnings
    assert all(len(warning) <= 256 for warning in judged.warnings)


def test_no_warning_without_a_cause():
    """A workload with a floor, and one that has nothing to do with us, are admitted in silence."""
    assert judge(WorkloadDraft("StatefulSet", ON, replicas=3)).warnings == ()
    assert judge(WorkloadDraft("Deployment", {"app": "web"})).warnings == ()
    assert (
        judge(WorkloadDraft("StatefulSet", ON | {MODE: "all-in-on-demand"}, replicas=3, rules=TO_ON_DEMAND)).warnings
        == ()
    )
    assert judge(WorkloadDraft("Deployment", {ENABLED: "false"}, replicas=3, rules=TO_SPOT)).warnings == ()


def test_policy_is_read_strictly():
    """An administrator may give Deployments a floor by default; nonsense is refused with what would be right."""
    policy = msgspec.convert({"deployment-default": "custom:1", "on-disable": "leave"}, MixPolicy)
    assert policy.deployment_target == Target(Mode.CUSTOM, Share(1))
    for bad in ({"deployment-default": "custom"}, {"deployment-default": "most"}, {"capacity": {"labels": []}}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, MixPolicy)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"on-disabel": "leave"}, MixPolicy)


def test_a_floor_that_has_fewer_zones_than_the_template_spreads_over_is_warned_of():
    """M3, M10: pods of the floor spread over the zones of on-demand nodes alone; a spread that ignores node affinity, a
    floor of one, or on-demand nodes in every zone: no warning."""
    zone = "topology.kubernetes.io/zone"

    def warned(replicas=4, narrow=None, **more):
        rules = PodRules(topology_spread_constraints=[{"topologyKey": zone, **more}])
        draft = WorkloadDraft("Deployment", ON | {MODE: "majority-in-on-demand"}, replicas=replicas, rules=rules)
        return [w for w in judge(draft, narrow={zone: (1, 3)} if narrow is None else narrow).warnings if "spread" in w]

    assert warned() == [f"spread over {zone}: on-demand nodes are in 1 of 3 domains, 3 replicas spread over those"]
    assert len(warned()[0]) < 120
    assert warned(replicas=1) == warned(nodeAffinityPolicy="Ignore") == warned(narrow={}) == []
