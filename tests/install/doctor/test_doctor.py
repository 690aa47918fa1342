"""The doctor's checks, each on what it looks at; every code is documented."""

import re
from pathlib import Path

import msgspec
import pytest

from mooring.cli.doctor import _print
from mooring.cli.output import Format
from mooring.clients.ports import NotFoundError, RefusedError, UnansweredError
from mooring.core.model.cluster import NO_LABELS, Key, Node
from mooring.core.model.finding import ill, well
from mooring.core.model.marks import CORDONED_BY, HANDOFF, RETIRING, Mark, write_mark, write_marks
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.install.doctor import Level, cluster, running
from mooring.install.doctor import codes as known_codes
from tests.program import mooring

ROOT = Path(__file__).parents[3]


def test_every_code_has_its_section_and_every_section_its_code():
    """The link that a finding prints leads somewhere, and nothing is documented that cannot be found."""
    sections = re.findall(r"^## (MO\d+)$", (ROOT / "docs/doctor.md").read_text(), re.MULTILINE)
    assert sections == sorted(known_codes())


def test_every_code_in_the_source_is_in_the_table_and_is_used():
    """A code that is printed is a code that is listed."""
    checks = (ROOT / "src/mooring/capabilities").rglob("*.py")
    sources = [*(ROOT / "src/mooring/install/doctor").glob("*.py"), ROOT / "src/mooring/cli/doctor.py", *checks]
    used = {c for f in sources if f.name != "codes.py" for c in re.findall(r'"(MO\d+)"(?!:)', f.read_text())}
    assert used == set(known_codes())


def test_a_finding_says_what_was_seen_the_fix_and_where_to_read(capsys):
    """A failure is enough to act on; what is well takes one line."""
    _print(
        [well("cluster", "fine"), ill("rights", "MO202", "rights of mix", "may not", "do this")],
        Format.TABLE,
        short=False,
    )
    out = capsys.readouterr().out
    assert "  √ fine\n" in out
    assert (
        "× error [MO202] (rights) rights of mix\n      seen   may not\n      fix    do this\n      see    file://"
        in out
    )


def test_short_shows_only_what_is_not_well(capsys):
    """To paste into a chat: one line a finding, nothing else on stdout."""
    _print([well("cluster", "fine"), ill("rights", "MO202", "rights", "may not", "do this")], Format.TABLE, short=True)
    assert capsys.readouterr().out == "error [MO202] (rights) rights: may not\n"


class Api:
    """Answers by path, or raises."""

    def __init__(self, **answers):
        self.answers = answers

    async def raw(self, method, path, body=None):
        return self._give(path.rpartition("/")[2])

    async def get(self, kind, namespace, name):
        return self._give(str(kind))

    async def create(self, kind, obj, *, dry_run=False):
        assert dry_run, "the doctor changes nothing"
        return self._give("create")

    def _give(self, key):
        found = self.answers.get(key, NotFoundError(key))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize(
    ("version", "level", "code"),
    [("v1.36.1", Level.OK, ""), ("v1.30.0", Level.WARNING, "MO102"), ("v1.29.3-eks", Level.WARNING, "MO102")],
)
async def test_versions(version, level, code):
    """What is not tested is said to be, and stops nobody."""
    found = await cluster.reachable(Api(version={"gitVersion": version}))
    assert (found.level, found.code) == (level, code)


async def test_an_unreachable_cluster_is_an_error_of_its_own():
    """Nobody answers: nothing else is guessed at."""
    found = await cluster.reachable(Api(version=UnansweredError("connection refused")))
    assert found.code == "MO101" and "refused" in found.seen


@pytest.mark.parametrize(("now", "code"), [(100.2, ""), (100.9, ""), (103.5, "MO103"), (96.0, "MO103")])
async def test_clock_skew_allows_for_whole_seconds(now, code):
    """A stamp of whole seconds is not held against a clock that agrees with it."""
    api = Api(selfsubjectreviews={"metadata": {"creationTimestamp": "1970-01-01T00:01:40Z"}})
    assert (await cluster.clock_skew(api, lambda: now)).code == code


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"holderIdentity": "m-0", "renewTime": "1970-01-01T00:01:38.5Z", "leaseDurationSeconds": 10}, ""),
        ({"holderIdentity": "m-0", "renewTime": "1970-01-01T00:00:40Z", "leaseDurationSeconds": 10}, "MO302"),
        ({"holderIdentity": "", "leaseDurationSeconds": 10}, "MO302"),
    ],
)
async def test_who_leads(spec, code):
    """A lease that is held counts; one given back or not renewed does not."""
    assert (await running.leader(Api(Lease={"spec": spec}), "ns", "mooring", 100.0)).code == code


async def test_the_webhook_is_asked_and_not_believed():
    """Configured is not enough: a bad workload must be refused by us; admitted means that nobody asked us."""
    there = {"MutatingWebhookConfiguration": {}, "ValidatingWebhookConfiguration": {}}
    ours = RefusedError('admission webhook "workloads.mooring.dev" denied the request')
    assert [f.code for f in await running.webhooks(Api(**there, create=ours), "own", on=True)] == ["", ""]
    assert [f.code for f in await running.webhooks(Api(**there, create={}), "own", on=True)] == ["", "MO402"]
    assert [f.code for f in await running.webhooks(Api(), "own", on=True)] == ["MO401"]
    (left,) = await running.webhooks(Api(**there), "own", on=False)
    assert left.code == "MO403" and left.fix.startswith("mooring cleanup --feature drain --feature mix --yes")
    other = await running.webhooks(Api(**there, create=RefusedError("deployments is forbidden")), "own", on=True)
    assert other[1].level is Level.SKIPPED


def tidb(**annotations):
    return TidbCluster(
        namespace="tidb", name="demo", uid="u", resource_version="1", annotations=annotations or NO_LABELS
    )


def mark(**more):
    return Mark(operator="7", source="handoff", reason="asked", step="EvictLeaders", since=0.0, **more)


async def test_evictions_need_a_cause():
    """A store whose leaders leave is fine with a mark, and a finding without one; a silent PD is named."""
    stores = (Store(1, "demo-tikv-0.x:20160"), Store(2, "demo-tikv-1.x:20160"))
    view = PdView(stores=stores, evicting=(1, 2), region_count=1, start_timestamp=1)

    async def look(tc):
        return view

    async def silent(tc):
        raise UnansweredError("no route")

    tc = tidb(**{HANDOFF: write_marks({"demo-tikv-0": mark(store_id=1)})})
    found = await running.placement_drivers([tc], look)
    assert [(f.code, "store 2" in f.seen) for f in found] == [("", False), ("MO602", True)]
    assert [f.code for f in await running.placement_drivers([tc], silent)] == ["MO601"]


def test_marks_without_an_operator_are_found():
    """What runs is left alone; what nobody runs, or nobody can read, is named. A cordon may outlive its operator."""
    tc = tidb(**{HANDOFF: write_marks({"demo-tikv-0": mark(store_id=1)})})
    node = Node(name="n", uid="n", resource_version="1")
    bad = msgspec.structs.replace(node, annotations={RETIRING: "{"})
    cordoned = msgspec.structs.replace(node, annotations={CORDONED_BY: write_mark(mark())}, unschedulable=True)
    forgotten = msgspec.structs.replace(cordoned, unschedulable=False)
    assert [f.code for f in running.marks([], [cordoned], [tc], frozenset({"7"}))] == [""]
    assert [f.code for f in running.marks([], [bad, forgotten], [tc], frozenset())] == ["MO701", "MO702", "MO702"]
    (unreadable,) = running.marks([], [], [tidb(**{HANDOFF: "{"})], frozenset())
    assert unreadable.fix.startswith("kubectl -n tidb annotate tidbcluster demo mooring.dev/handoff-   ")
    assert [f.level for f in running.marks([], [], [tc], None)] == [Level.SKIPPED]
    assert Key("tidb", "demo") == tc.key


@pytest.mark.parametrize("code", known_codes())
def test_every_code_says_cause_and_fix(code):
    """`mooring doctor --code`: from a checkout and from the wheel, which has the page too."""
    done = mooring("doctor", "--code", code)
    assert done.returncode == 0 and len(done.stdout.split("\n\n", 1)[1]) > 60, done


def test_each_system_with_leaders_is_proven_by_who_leads_it():
    """L2: reachable, readable, who leads; one that does not answer, and a driver's misspelled name, are found."""
    base = {
        "detail": "",
        "leader": "db-0",
        "well": 3,
        "members": [{}] * 3,
        "needs": 2,
        "age_s": 1.0,
        "state": "answers",
    }
    fine = base | {"system": "data/db", "driver": "etcd"}
    lost = base | {"system": "data/pg", "driver": "patroni", "state": "lost", "detail": "did not answer"}
    typo = base | {"system": "data/x", "driver": "etdc", "state": "unseen", "leader": ""}
    ill_one = base | {"system": "data/y", "driver": "etcd", "well": 2}
    found = running.led_systems({"systems": [fine, lost, typo, ill_one]})
    assert [f.code for f in found] == ["", "MO605", "MO605", "MO605"]
    assert (
        "db-0 leads" in str(found[0]) and "did not answer" in str(found[1]) and "etcd, patroni, hook" in str(found[2])
    )
    assert running.led_systems(None) == []
