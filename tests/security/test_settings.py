"""Secrets in no output, and a finding for every setting that leaves a way in."""

import pytest

from mooring.cli.manifests import manifests
from mooring.cli.output import note, print_table
from mooring.cli.run import run
from mooring.clients.ports import NotFoundError, RefusedError
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

    def __init__(self, *policies, labels=None, error=None, slices=()):
        template = {"metadata": {"labels": labels or {"app.kubernetes.io/name": "mooring", "more": "x"}}}
        self._there = {"deployments": [{"spec": {"template": template}}], "networkpolicies": list(policies)}
        self._there["endpointslices"] = slices
        self._error = error

    async def raw(self, method, path, body=None):
        if self._error is not None:
            raise self._error
        return {"items": self._there[path.partition("?")[0].rpartition("/")[2]]}


def policy(*cidrs):
    (made,) = network_policies(Install(image="x", features=frozenset({"mix"}), node_cidrs=cidrs))
    return made


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
    there = [{"endpoints": [{"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.1"]}]}, {"endpoints": None}]
    (found,) = await reach(Installed(policy(), slices=there), Config(features={"mix": True}))
    assert "they answer at 10.0.0.1, 10.0.0.2)" in found.fix

    class Shut(Installed):
        async def raw(self, method, path, body=None):
            if "endpointslices" in path:
                raise RefusedError("no", 403)
            return await super().raw(method, path, body)

    (found,) = await reach(Shut(policy()), Config(features={"mix": True}))
    assert found.code == "MO807" and "answer at" not in found.fix


@pytest.mark.parametrize(
    ("more", "said"),
    [({}, True), ({"node_cidrs": "10.0.0.0/16"}, False), ({"rights": True}, False), ({"features": ""}, False)],
)
def test_an_open_webhook_port_is_a_visible_choice(capsys, more, said):
    """`mooring manifests` with mix and without --node-cidrs: a remark, with the command that lists the addresses."""
    manifests(**{"features": "mix=true"} | more)
    told = capsys.readouterr().err
    assert told.count("\n") == (2 if said else 0) and ("kubectl get endpointslices -n default" in told) == said


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
