"""What acts type is understood on the sandbox as kubectl understands it on the lab."""

import pytest

from mooring.clients.ports import RefusedError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.api import SandboxKubeApi
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, run_virtual
from mooring_lab.demo.acts import ACTS
from mooring_lab.demo.sandbox_stage import read, type_in


def test_an_annotation_on_two_pods_and_one_taken_back():
    """As kubectl: KEY=VALUE sets, an empty value is a value, KEY- removes; several names share the pairs."""
    typed = read('kubectl -n tidb annotate pod a b tidb.pingcap.com/restart="" team-')
    assert (typed.kind, typed.namespace, typed.names) == (Kind.POD, "tidb", ("a", "b"))
    assert typed.patch == {"metadata": {"annotations": {"tidb.pingcap.com/restart": "", "team": None}}}


def test_kind_slash_name_and_a_merge_patch():
    """`deploy/web` and `tc demo` name one object; a patch is taken as it stands."""
    assert read("kubectl -n shop label deploy/web mode=custom --overwrite").names == ("web",)
    typed = read("""kubectl -n tidb patch tc demo --type merge -p '{"spec":{"tikv":{"replicas":4}}}'""")
    assert (typed.kind, typed.patch) == (Kind.TIDB_CLUSTER, {"spec": {"tikv": {"replicas": 4}}})


@pytest.mark.parametrize(
    "command", ["helm install x", "kubectl", "kubectl scale deploy a", "kubectl get pod a", "kubectl label cow x a=b"]
)
def test_what_is_not_understood_is_refused(command):
    """No command is silently taken for another: the words are named."""
    with pytest.raises(ValueError, match=r"kubectl|helm"):
        read(command)


def test_without_overwrite_nothing_that_is_there_changes():
    """kubectl's own refusal: a label that has another value needs --overwrite."""
    timeline = Timeline()
    store = ObjectStore(timeline)
    store.create(Kind.NODE, {"metadata": {"name": "n1", "labels": {"pool": "a"}}})
    api = SandboxKubeApi(store)

    async def scenario():
        with pytest.raises(RefusedError, match="--overwrite is false"):
            await type_in(api, "kubectl label node n1 pool=b")
        assert store.get(Kind.NODE, "", "n1")["metadata"]["labels"]["pool"] == "a"
        await type_in(api, "kubectl label node n1 pool=b --overwrite")
        assert store.get(Kind.NODE, "", "n1")["metadata"]["labels"]["pool"] == "b"

    run_virtual(scenario, timeline)


def test_every_act_that_prints_a_kubectl_command_prints_one_that_is_understood():
    """What is printed is what is done; the cloud's notice and the registry's command are others'."""
    typed = [act.command for act in ACTS if act.command.startswith("kubectl") and "…" not in act.command]
    assert len(typed) == 5
    assert all(read(command).names for command in typed)
