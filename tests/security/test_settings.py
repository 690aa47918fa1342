"""Secrets in no output, and a finding for every setting that leaves a way in."""

import asyncio
import contextlib
import io

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from mooring.cli.manifests import manifests
from mooring.cli.output import note, print_table
from mooring.cli.run import run
from mooring.clients.ports import NotFoundError, RefusedError
from mooring.core.model.exits import UserError
from mooring.core.model.finding import Level
from mooring.install.doctor.safety import reach, unsafe
from mooring.install.manifests import Install, network_policies
from mooring.process.settings.config import Config


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        ("MO803", {"listen_http": "0.0.0.0:8390"}),
        ("MO803", {"listen_http": "127.0.0.1:8390,10.0.0.7:8390"}),
        ("MO804", {"listen_extender": "0.0.0.0:10262", "features": {"home": True}}),
        ("MO805", {"pd_hosts": ("*:2379",)}),
        ("MO806", {"sabakan_url": "http://me:hush@10.0.0.1:10080"}),
        ("MO806", {"pd": {"tidb/demo": ("http://me:hush@10.0.0.1:2379",)}}),
    ],
)
def test_doctor_names_unsafe_settings(code, setting):
    """Each with what is seen and what to do; the safe ones are not named, nor is a secret."""
    (found,) = unsafe(Config(**setting))
    assert (found.code, bool(found.seen and found.fix), "hush" in found.seen) == (code, True, False)
    safe = Config(
        listen_http="0.0.0.0:8390",
        http_certificates="/tls",
        listen_extender="0.0.0.0:10262",
        extender_token="x",
        features={"home": True},
        pd_hosts=("*.example.com:2379",),
        pd={"tidb/demo": ("https://me:hush@10.0.0.1:2379",)},
    )
    assert list(unsafe(safe)) == []


class Installed:
    """A cluster in which Mooring is installed with these network policies."""

    def __init__(self, *policies, labels=None, error=None, slices=(), release=""):
        template = {"metadata": {"labels": labels or {"app.kubernetes.io/name": "mooring", "more": "x"}}}
        metadata = {"annotations": {"meta.helm.sh/release-name": release}} if release else {}
        deployment = {"metadata": metadata, "spec": {"template": template}}
        self._there = {"deployments": [deployment], "networkpolicies": list(policies)}
        self._there["endpointslices"] = slices
        self._error = error

    async def raw(self, method, path, body=None):
        if self._error is not None:
            raise self._error
        return {"items": self._there[path.partition("?")[0].rpartition("/")[2]]}


def policy(*cidrs, **more):
    (made,) = network_policies(Install(image="x", features=frozenset({"mix"}), node_cidrs=cidrs, **more))
    return made


def endpoints(*addresses):
    return [{"endpoints": [{"addresses": [address]} for address in addresses]}, {"endpoints": None}]


def other(**spec):
    return {"spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "other"}}, **spec}}


@pytest.mark.parametrize(
    ("policies", "code"),
    [
        ((policy("10.0.0.0/24"),), ""),
        ((policy(),), "MO807"),
        ((), "MO807"),
        ((other(),), "MO807"),
        ((policy("10.0.0.0/24"), other(ingress=[{}])), ""),
        ((policy("10.0.0.0/24"), {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}), ""),
        ((policy("10.0.0.0/24"), {"spec": {"podSelector": {}, "ingress": [{}]}}), "MO807"),
        ((policy("10.0.0.0/24"), {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": "tls"}]}]}}), "MO807"),
        (
            (
                policy("10.0.0.0/24"),
                {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 1, "endPort": 9999}]}]}},
            ),
            "MO807",
        ),
        (({"spec": {"podSelector": {}, "policyTypes": ["Egress"]}},), "MO807"),
        (({"spec": {"podSelector": {}}},), ""),
    ],
)
async def test_doctor_says_that_every_pod_reaches_the_webhook(policies, code):
    """Without `nodeCidrs` the policy that we make has no `from` for 9443, and another one may open it again."""
    (found,) = await reach(Installed(*policies), Config(features={"mix": True}))
    assert found.code == code
    assert not code or (("9443" in found.seen or "no NetworkPolicy" in found.seen) and "nodeCidrs" in found.fix)


async def test_doctor_names_the_api_servers_it_sees():
    """MO807: the addresses behind the Service kubernetes; who may not read them is told the rest."""
    there = endpoints("10.0.0.2", "10.0.0.1")
    (found,) = await reach(Installed(policy(), slices=there), Config(features={"mix": True}))
    command, _, remark = found.fix.partition("   (")
    assert command == (
        "mooring manifests --network-policy --namespace mooring-system --features mix=true | kubectl apply -f -"
    )
    assert remark.startswith("API servers answer at 10.0.0.1, 10.0.0.2;")

    class Shut(Installed):
        async def raw(self, method, path, body=None):
            if "endpointslices" in path:
                raise RefusedError("no", 403)
            return await super().raw(method, path, body)

    (found,) = await reach(Shut(policy()), Config(features={"mix": True}))
    assert found.code == "MO807" and "answer at" not in found.fix
    assert "--node-cidrs CIDR… |" in found.fix


MOVED = endpoints("10.0.0.1", "10.0.9.9", "fd00::1")


@pytest.mark.parametrize(
    ("installed", "release", "command"),
    [
        (policy(api_servers=("10.0.0.1/32",)), "", "--features mix=true | kubectl apply -f -"),
        (
            policy(api_servers=("10.0.0.1/32",)),
            "m",
            "helm upgrade m deploy/chart/mooring -n mooring-system --reuse-values",
        ),
        (policy("10.0.0.0/24"), "", "--node-cidrs 10.0.0.0/24,10.0.9.9/32,fd00::1/128 | kubectl apply -f -"),
        (policy("10.0.0.0/24"), "m", "--set 'networkPolicy.nodeCidrs={10.0.0.0/24,10.0.9.9/32,fd00::1/128}'"),
        (other(podSelector={}), "", "--features mix=true | kubectl apply -f -"),
    ],
)
async def test_doctor_says_that_an_api_server_has_moved(installed, release, command):
    """MO807: it is shut out by the addresses of before, and pods would be admitted without a place."""
    (found,) = await reach(Installed(installed, slices=MOVED, release=release), Config(features={"mix": True}))
    assert (found.code, found.level) == ("MO807", Level.WARNING)
    assert "10.0.9.9, fd00::1 reach 9443, where API servers are now" in found.seen
    assert found.fix.partition("   (")[0].endswith(command)


@pytest.mark.parametrize("cidrs", [("10.0.0.0/16", "fd00::/8"), ("10.0.0.1/32", "10.0.9.9/32", "fd00::1/128")])
async def test_api_servers_that_are_let_in_are_no_finding(cidrs):
    for made in (policy(*cidrs), policy(api_servers=cidrs)):
        (found,) = await reach(Installed(made, slices=MOVED), Config(features={"mix": True}))
        assert (found.level, found.code) == (Level.OK, "")


async def test_what_a_block_leaves_out_is_not_let_in():
    made = policy("10.0.0.0/16", "fd00::/8")
    made["spec"]["ingress"][-1]["from"][-2]["ipBlock"]["except"] = ["10.0.9.0/24"]
    (found,) = await reach(Installed(made, slices=MOVED), Config(features={"mix": True}))
    assert "does not let 10.0.9.9 reach 9443" in found.seen


@pytest.mark.parametrize("release", ["", "m"])
async def test_the_command_of_an_open_port_closes_it_whatever_was_set(release):
    (found,) = await reach(Installed(policy(), slices=MOVED, release=release), Config(features={"mix": True}))
    command = found.fix.partition("   (")[0]
    assert not release or command.endswith("--set 'networkPolicy.enabled=true,networkPolicy.webhookOpenToAll=false'")
    assert "CIDR" not in command


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, True),
        ({"network_policy": True}, True),
        ({"node_cidrs": "10.0.0.0/16"}, False),
        ({"webhook_open_to_all": True}, False),
        ({"rights": True}, False),
        ({"features": ""}, False),
    ],
)
def test_an_open_webhook_port_is_a_visible_choice(capsys, monkeypatch, tmp_path, more, said):
    """`mooring manifests` with mix, without --node-cidrs and without a cluster to ask: a remark and a comment, with the
    command that lists the addresses."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    manifests(**{"features": "mix=true"} | more)
    told = capsys.readouterr()
    assert told.err.count("\n") == (3 if said else 0) and ("kubectl get endpointslices -n default" in told.err) == said
    assert told.out.startswith("# every pod reaches the webhook's port 9443: no cluster was asked") == said
    webhook = [rule for o in yaml.safe_load_all(told.out) for rule in ingress(o) if rule["ports"][0]["port"] == 9443]
    assert all("from" in rule for rule in webhook) == ("node_cidrs" in more or not webhook)


@pytest.mark.parametrize("given", [("monitoring",), ("ops", "more"), ()])
def test_only_prometheus_of_named_namespaces_reaches_the_metrics(given):
    """Issue 42, low: with its label any pod of any namespace reached 8390."""
    (made,) = network_policies(Install(image="x", prometheus_namespaces=given))
    (rule,) = [rule for rule in ingress(made) if rule["ports"][0]["port"] == 8390]
    strangers = [peer for peer in rule["from"] if "namespaceSelector" in peer]
    named = [peer["namespaceSelector"]["matchExpressions"][0] for peer in strangers]
    assert [one["values"] for one in named] == ([list(given)] if given else [])
    assert all((one["key"], one["operator"]) == ("kubernetes.io/metadata.name", "In") for one in named)


def ingress(made):
    return made["spec"]["ingress"] if made["kind"] == "NetworkPolicy" else []


class Cluster:
    """An API server that says where API servers are."""

    def __init__(self, tmp_path, slices):
        self._slices = slices
        self.kubeconfig = tmp_path / "kubeconfig"

    async def _answer(self, request):
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.3"})
        assert request.path == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        assert request.query["labelSelector"] == "kubernetes.io/service-name=kubernetes"
        if self._slices is None:
            return web.json_response({"kind": "Status", "message": "forbidden"}, status=403)
        return web.json_response({"items": self._slices})

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._server = TestServer(app)
        await self._server.start_server()
        named = {"clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._server.port}"}}]}
        context = {"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}
        self.kubeconfig.write_text(yaml.safe_dump(named | context))
        return self

    async def __aexit__(self, *_):
        await self._server.close()


async def printed(**more):
    """Of the command, which has a loop of its own: the rule of the webhook's port, and what was said."""
    said, out = io.StringIO(), io.StringIO()

    def call():
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            manifests(features="mix=true", **more)

    await asyncio.to_thread(call)
    objects = list(yaml.safe_load_all(out.getvalue()))
    (rule,) = [rule for o in objects for rule in ingress(o) if rule["ports"][0]["port"] == 9443]
    return rule, said.getvalue(), objects


TUNNEL = {"kubernetes.io/metadata.name": "kube-system"}


@pytest.mark.parametrize("named", [True, False], ids=["by flag", "by KUBECONFIG"])
async def test_the_webhook_is_closed_to_all_but_the_api_servers_that_the_cluster_names(tmp_path, monkeypatch, named):
    """Line 10 of issue 21: the API servers by their addresses, what carries their calls, and our own pods."""
    async with Cluster(tmp_path, [*MOVED, {"endpoints": [{"addresses": ["api.example"]}]}]) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none") if named else str(cluster.kubeconfig))
        given = {"kubeconfig": str(cluster.kubeconfig)} if named else {}
        rule, said, objects = await printed(**given)
        only = (await printed(network_policy=True, **given))[2]
    ours, *tunnels = [peer for peer in rule["from"] if "podSelector" in peer]
    assert ours == {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "mooring"}}}
    assert [one["namespaceSelector"]["matchLabels"] for one in tunnels] == [TUNNEL, TUNNEL]
    assert [one["podSelector"]["matchLabels"] for one in tunnels] == [
        {"k8s-app": "konnectivity-agent"},
        {"app": "konnectivity-agent"},
    ]
    blocks = [peer["ipBlock"]["cidr"] for peer in rule["from"] if "ipBlock" in peer]
    assert blocks == ["10.0.0.1/32", "10.0.9.9/32", "fd00::1/128"]
    assert "is open to the API servers of the kubeconfig's cluster alone: 10.0.0.1/32" in said
    assert only == [o for o in objects if o["kind"] == "NetworkPolicy"]


async def test_what_the_administrator_says_goes_before_what_the_cluster_says(tmp_path):
    """`--node-cidrs` in place of the addresses found; `--webhook-open-to-all` closes nothing. Neither asks."""
    async with Cluster(tmp_path, MOVED) as cluster:
        asked = {"kubeconfig": str(cluster.kubeconfig)}
        rule, said, _ = await printed(node_cidrs="10.1.0.0/16", **asked)
        assert [peer["ipBlock"]["cidr"] for peer in rule["from"] if "ipBlock" in peer] == ["10.1.0.0/16"]
        rule, more, _ = await printed(webhook_open_to_all=True, node_cidrs="10.1.0.0/16", **asked)
        assert "from" not in rule
        assert (said, more) == ("", "")


@pytest.mark.parametrize("slices", [[], None], ids=["says nothing", "refuses"])
async def test_a_cluster_that_does_not_say_leaves_it_open_or_fails(tmp_path, monkeypatch, slices):
    """Named, and it refuses: nothing is printed that could be applied in its place."""
    async with Cluster(tmp_path, slices) as cluster:
        if slices is None:
            with pytest.raises(UserError, match="forbidden"):
                await printed(kubeconfig=str(cluster.kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        rule, said, _ = await printed()
    assert "from" not in rule and said.startswith("every pod reaches the webhook's port 9443: ")


async def test_who_may_not_look_at_policies_is_told_so():
    """As `helm test` runs it; and where Mooring is not installed in the cluster there is nothing to say."""
    (found,) = await reach(Installed(error=RefusedError("no", 403)), Config())
    assert found.level == Level.SKIPPED
    assert await reach(Installed(error=NotFoundError("no")), Config()) == []
    (found,) = await reach(Installed(), Config(webhook_client_ca="/ca.crt"))
    assert found.level == Level.OK


def test_print_config_shows_no_secret(capsys, monkeypatch):
    """`mooring run --print-config` goes into tickets: tokens and passwords stay out."""
    for key in ("HTTP_TOKEN", "EXTENDER_TOKEN"):
        monkeypatch.setenv(f"MOORING_{key}", "hush")
    monkeypatch.setenv("MOORING_SABAKAN_URL", "http://me:hush@10.0.0.1:10080")
    run(pd=("tidb/demo=http://me:hush@10.0.0.1:2379",), print_config=True)
    said = capsys.readouterr().out
    assert "hush" not in said
    assert "(set, not shown)" in said


def test_what_a_terminal_obeys_is_not_printed(capsys):
    """Names and values that others chose reach tables and notes: ESC and CR are dots there."""
    print_table(("NAME",), [("web\x1b[2J\rpwned",)])
    note("pod/x\x1b]0;pwned\x07 not found\nsecond line")
    said = capsys.readouterr()
    assert said.out == "NAME\nweb·[2J·pwned\n"
    assert said.err == "pod/x·]0;pwned· not found\nsecond line\n"
