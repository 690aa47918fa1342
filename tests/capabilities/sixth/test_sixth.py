"""Rule 5, the contract is the whole contract: a sixth capability is its own package and one line of the registry.

That line is added here for the test; run, `why`, metrics, manifests, doctor, cleanup, the API and sim pick it up.
"""

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from docs.generate import settings_page

from mooring.capabilities import registry
from mooring.cli.config import config as show_config
from mooring.cli.output import Format
from mooring.clients.ports import NotFoundError
from mooring.core.engine.why.answer import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import State
from mooring.install.cleanup.leftovers import leftovers
from mooring.install.cleanup.remove import traces
from mooring.install.doctor import DoctorTarget, codes
from mooring.install.doctor import cluster as doctor
from mooring.install.doctor import running as doctor_running
from mooring.install.doctor.examine import _of_capabilities
from mooring.install.manifests import Install, manifests
from mooring.process.assemble import capabilities, queue_settings
from mooring.process.clock import WallClock
from mooring.process.http.status import status_app
from mooring.process.metrics import Metrics
from mooring.process.settings.config import Config, ConfigError, resolve
from mooring.process.settings.features import UnknownFeatureError, parse_features
from mooring_lab.simulate.plan import draw_plan
from mooring_lab.simulate.simulation import Simulation
from mooring_lab.stage.rig import Rig
from tests.capabilities.sixth.descriptor import SixthPolicy


@pytest.fixture
def sixth(monkeypatch):
    monkeypatch.setitem(registry.CAPABILITIES, "sixth", "tests.capabilities.sixth.descriptor")


def test_without_its_line_it_is_unknown():
    """The test below shows the line, not a special case: without it nobody knows the name."""
    with pytest.raises(UnknownFeatureError, match="unknown feature 'sixth'"):
        parse_features("sixth=true")


def test_features_limits_and_capabilities_know_it(sixth):
    """Run: the feature gate, the queue's limits and the replica's capabilities are made from descriptors."""
    assert parse_features("sixth=true") == ({"sixth": True}, [])
    assert queue_settings(Config()).limit("sixth") == 2
    assert "sixth" in {capability.name for capability in capabilities(Config())}


def test_its_settings_are_read_shown_and_documented(sixth, tmp_path, capsys):
    """Settings: the section of its name is read strictly, `mooring config` and the page of settings have it."""
    file = tmp_path / "mooring.yml"
    file.write_text("features: {sixth: true}\nsixth: {wait-s: 0.5}\n")
    (made,) = (one for one in capabilities(resolve({}, {}, str(file)).config) if one.name == "sixth")
    assert made.policy == SixthPolicy(wait_s=0.5)

    assert show_config("sixth", file=str(file), output=Format.JSON) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert shown == {"sixth.wait-s": {"value": 0.5, "source": f"file {file}", "follows": True}}
    row = "| `sixth.wait-s` | `2 s` | How long a node waits before it gets its label. |"
    assert row in settings_page()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sixth: {wait: 1}", "mooring.yml:1: unknown setting 'sixth.wait'; did you mean sixth.wait-s?"),
        ("sixth: {wait-s: soon}", "Expected `float`, got `str` - at `$.sixth.wait-s` (from file "),
        ("sixht: {}", "mooring.yml:1: unknown setting 'sixht'; did you mean sixth?"),
    ],
)
def test_what_is_wrong_in_its_section_is_named(sixth, tmp_path, text, said):
    file = tmp_path / "mooring.yml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        resolve({}, {}, str(file))
    assert said in str(refused.value)


def test_its_settings_are_followed_while_running(sixth):
    rig = Rig(seed=1, config=Config(features={"sixth": True}))

    async def play(rig):
        replica = rig.start("a")
        await rig.until(lambda: replica.engine.deciding)
        assert replica.apply(Config(features={"sixth": True}, policies=(SixthPolicy(wait_s=9.0),))) == []
        await rig.sleep(1.0)
        assert replica.engine.capabilities["sixth"].policy.wait_s == 9.0

    rig.play(play)


def test_rights_and_manifests_know_it(sixth):
    """Manifests: its rights are granted, and the feature is on, when it is asked for, and only then."""

    def applied(*features):
        objects = manifests(Install(image="mooring", features=frozenset(features)))
        groups = {g for o in objects if o["kind"] == "ClusterRole" for rule in o["rules"] for g in rule["apiGroups"]}
        return "sixth.example" in groups, "sixth=true" in msgspec.json.encode(objects).decode()

    assert applied("sixth") == (True, True)
    assert applied("handoff") == (False, False)


async def test_doctor_asks_for_its_rights(sixth):
    """Doctor: what it may not do is named with the feature and the fix."""

    class Api:
        async def raw(self, method, path, body):
            return {"status": {"allowed": body["spec"]["resourceAttributes"]["group"] != "sixth.example"}}

    lacking = [f for f in await doctor.rights(Api(), "mooring-system", {"sixth"}, "") if f.code == "MO202"]
    assert [(f.what, f.seen) for f in lacking] == [
        ("rights of sixth", "you may not get sixths.sixth.example in all namespaces")
    ]


async def test_doctor_asks_itself(sixth):
    """Doctor: it reads the settings that a person wrote for it, and says what it finds in them."""

    class Api:
        async def get(self, kind, namespace, name):
            if name != "sixth-settings":
                raise NotFoundError(name)
            return {"data": {"wait": "soon"}}

    target = DoctorTarget(
        api=Api(), clock=WallClock(), randomness=None, config=Config(features={"sixth": True}), sources={}, server=""
    )
    (found,) = [f for f in await _of_capabilities(target, frozenset({"sixth"}), ()) if f.group == "sixth"]
    assert (found.code, found.seen) == ("MO999", "{'wait': 'soon'}")
    assert codes()["MO999"] == "The sixth is not set"


def test_it_runs_and_is_explained_counted_and_cleaned_up(sixth):
    """Run, `why`, metrics, the API, doctor and cleanup, on a replica in the sandbox."""
    rig = Rig(seed=1, config=Config(features={"sixth": True}))
    for number in range(3):
        rig.cluster.add_node(f"n{number}")

    async def play(rig):
        replica = rig.start("a")
        engine = replica.engine
        await rig.until(lambda: engine.deciding)
        await rig.api.patch(Kind.NODE, "", "n1", {"metadata": {"labels": {"sixth": "asked"}}})
        await rig.until(lambda: engine.running, every_s=0.25)
        assert explain(engine, "node/n1").answer == "n1 is moving: step 1/1 Cordon; ends when it is labelled."

        def done():
            node = engine.world.node("n1")
            return node is not None and node.labels.get("sixth") == "done" and not engine.running

        await rig.until(done, every_s=0.05)
        look(engine)
        await look_over_http(replica)
        await clean_up(rig, engine)

    rig.play(play)


def look(engine):
    """What makes itself from the descriptor, while the replica leads."""
    assert {"queued", "promoted", "finished"} <= {e.verb for e in engine.history.timeline if e.source == "sixth"}
    assert explain(engine, "node/n1").state == State.STABLE
    metrics = Metrics()
    metrics.look_at(engine, 0)
    text = metrics.render().decode()
    assert "mooring_sixth_evaluated 3.0" in text
    assert 'mooring_operators_running{source="sixth"}' in text


async def look_over_http(replica):
    """The API has a path for its report."""
    route = next(r for r in status_app(lambda: replica).router.routes() if r.resource.canonical == "/api/v1/sixth")
    answer = await route.handler(make_mocked_request("GET", "/api/v1/sixth"))
    assert msgspec.json.decode(answer.body)["nodes"] == ["n0", "n1", "n2"]
    routes = {r.resource.canonical: r for r in status_app(lambda: replica).router.routes()}
    for node, status in (("n1", 200), ("n9", 404)):
        asked = make_mocked_request("GET", f"/api/v1/sixth/{node}", match_info={"object": node})
        assert (await routes["/api/v1/sixth/{object}"].handler(asked)).status == status


async def clean_up(rig, engine):
    """Doctor names what is left of it once it is off, and cleanup ends that."""
    left = leftovers((), engine.world.nodes(), (), frozenset())
    (found,) = doctor_running.remains(left, frozenset({"mix"}))
    assert (found.code, "node n1: sixth" in found.seen, "--feature sixth" in found.fix) == ("MO703", True, True)
    (trace,) = [one for one in await traces(rig.api, lambda _: None, "mooring-system") if one.feature == "sixth"]
    await trace.undo()
    assert "sixth" not in rig.cluster.store.get(Kind.NODE, "", "n1")["metadata"]["labels"]


def test_sim_draws_it_and_runs_it(sixth):
    """Sim: random subsets of features are drawn from the same list; a run with it alone keeps every promise."""
    assert "sixth" in {name for seed in range(40) for name in draw_plan(seed).shape.features}
    on = []

    class Day(Simulation):
        async def _pass(self, seconds):
            on.append(self.engine().on)
            return await super()._pass(seconds)

    result = Day(draw_plan(3, hours=0.05, features=("sixth",))).run()
    assert result.failure is None, result.failure
    assert on[0] == {"sixth"}
