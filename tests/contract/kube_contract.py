"""What every `ports.KubeApi` promises, as coroutines over a bench: run on the sandbox, on its facade over HTTP, and on
a real API server. Where they differ, the sandbox is wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mooring.clients.ports import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    Json,
    KubeApi,
    NotFoundError,
    PatchType,
    PortError,
    RefusedError,
    UnansweredError,
)
from mooring.core.model.kinds import Kind

#: A node that no kubelet serves: pods bound to it stay as we leave them.
NOWHERE = "contract-nowhere"


@dataclass
class Bench:
    """One API and a namespace of our own in it; `forget` makes the server forget old changes, where it can."""

    api: KubeApi
    namespace: str
    forget: Callable[[], None] = field(default=lambda: None)


Case = Callable[[Bench], Awaitable[None]]
CASES: list[Case] = []


def case(fn: Case) -> Case:
    CASES.append(fn)
    return fn


# ── Words for the cases ───────────────────────────────────────────────────────────────────────────────────────────


def config_map(bench: Bench, name: str, data: dict[str, str] | None = None, **metadata: Any) -> Json:
    return {"metadata": {"name": name, "namespace": bench.namespace, **metadata}, "data": data or {}}


def pod(bench: Bench, name: str, labels: dict[str, str] | None = None, **metadata: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": bench.namespace, "labels": labels or {"app": name}, **metadata},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "example.org/main:1"}]},
    }


def deployment(bench: Bench, name: str) -> Json:
    labels = {"app": name}
    return {
        "metadata": {"name": name, "namespace": bench.namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulerName": "nobody",
                    "containers": [
                        {"name": "a", "image": "example.org/a:1"},
                        {"name": "b", "image": "example.org/b:1"},
                    ],
                },
            },
        },
    }


async def until(look: Callable[[], Awaitable[Any]], within_s: float = 180.0) -> Any:
    """What `look` finds, as soon as it finds something."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        if found := await look():
            return found
        assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.1)


async def gone(bench: Bench, kind: Kind, name: str, namespace: str | None = None) -> bool:
    try:
        await bench.api.get(kind, bench.namespace if namespace is None else namespace, name)
    except NotFoundError:
        return True
    return False


async def raised(call: Awaitable[Any]) -> PortError:
    try:
        await call
    except PortError as error:
        return error
    raise AssertionError("it should have been refused")


async def refusal(call: Awaitable[Any], kind: type[PortError]) -> PortError:
    error = await raised(call)
    assert isinstance(error, kind), f"{type(error).__name__}: {error}"
    return error


def rv(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def running_pod(bench: Bench, name: str, labels: dict[str, str], *, ready: bool = True) -> Json:
    """A pod on a node that nobody serves, whose status says Running."""
    await bench.api.create(Kind.POD, pod(bench, name, labels))
    await bench.api.bind(bench.namespace, name, NOWHERE)
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    return await bench.api.patch(Kind.POD, bench.namespace, name, status, subresource="status")


async def budget(bench: Bench, name: str, labels: dict[str, str], minimum: int, *, allowed: int) -> None:
    """A PodDisruptionBudget, once the server says how much it allows."""
    spec = {"minAvailable": minimum, "selector": {"matchLabels": labels}}
    await bench.api.create(Kind.PDB, {"metadata": {"name": name, "namespace": bench.namespace}, "spec": spec})

    async def look() -> bool:
        pdb = await bench.api.get(Kind.PDB, bench.namespace, name)
        status = pdb.get("status") or {}
        observed = status.get("observedGeneration") == pdb["metadata"]["generation"]
        return observed and status.get("disruptionsAllowed") == allowed

    await until(look)


# ── Identity ──────────────────────────────────────────────────────────────────────────────────────────────────────


@case
async def creation_gives_identity(bench: Bench) -> None:
    """uid, resourceVersion and creationTimestamp are the server's; generation is for kinds with a spec to follow."""
    made = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", {"a": "1"}, uid="mine"))
    metadata = made["metadata"]
    assert len(metadata["uid"]) == 36
    assert rv(made) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert "generation" not in metadata
    assert (await bench.api.create(Kind.DEPLOYMENT, deployment(bench, "d")))["metadata"]["generation"] == 1
    assert (await bench.api.create(Kind.POD, pod(bench, "p")))["metadata"]["generation"] == 1
    assert await bench.api.get(Kind.CONFIG_MAP, bench.namespace, "one") == made


@case
async def some_kinds_have_a_generation(bench: Bench) -> None:
    """Who waits for `observedGeneration` must know which kinds count at all."""
    here, selector = {"namespace": bench.namespace, "name": "x"}, {"matchLabels": {"app": "x"}}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod(bench, "x")["spec"]}
    bodies: dict[Kind, tuple[Json, int | None]] = {
        Kind.PDB: ({"metadata": here, "spec": {"minAvailable": 1, "selector": selector}}, 1),
        Kind.REPLICA_SET: ({"metadata": here, "spec": {"replicas": 0, "selector": selector, "template": template}}, 1),
        Kind.ENDPOINT_SLICE: ({"metadata": here, "addressType": "IPv4", "endpoints": [], "ports": []}, 1),
        Kind.SERVICE: ({"metadata": here, "spec": {"ports": [{"port": 80}]}}, None),
        Kind.LEASE: ({"metadata": here, "spec": {}}, None),
        Kind.SECRET: ({"metadata": here}, None),
        Kind.RESOURCE_QUOTA: ({"metadata": here, "spec": {"hard": {"services": "5"}}}, None),
        Kind.PVC: (
            {
                "metadata": here,
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
            None,
        ),
    }
    have = {
        kind: (await bench.api.create(kind, body))["metadata"].get("generation") for kind, (body, _) in bodies.items()
    }
    assert have == {kind: wanted for kind, (_, wanted) in bodies.items()}


@case
async def what_is_not_there_cannot_be_changed(bench: Bench) -> None:
    for call in (
        bench.api.get(Kind.CONFIG_MAP, bench.namespace, "none"),
        bench.api.replace(Kind.CONFIG_MAP, config_map(bench, "none")),
        bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "none", {"data": {"a": "1"}}),
        bench.api.delete(Kind.CONFIG_MAP, bench.namespace, "none"),
    ):
        await refusal(call, NotFoundError)


@case
async def a_name_is_taken_once(bench: Bench) -> None:
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one"))
    await refusal(bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one")), AlreadyExistsError)


@case
async def creation_refuses_what_cannot_be(bench: Bench) -> None:
    """A resourceVersion, a namespace that is not there, a name or label outside the alphabet."""
    error = await refusal(
        bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", resourceVersion="5")), UnansweredError
    )
    assert "resourceVersion" in str(error)
    elsewhere = Bench(bench.api, "no-such-namespace")
    await refusal(bench.api.create(Kind.CONFIG_MAP, config_map(elsewhere, "one")), NotFoundError)
    for bad in (config_map(bench, "Not_A_Name"), config_map(bench, "one", labels={"a": "30%"})):
        error = await refusal(bench.api.create(Kind.CONFIG_MAP, bad), RefusedError)
        assert error.code == 422
    assert await gone(bench, Kind.CONFIG_MAP, "one")


@case
async def generated_names_differ(bench: Bench) -> None:
    names = set()
    for _ in range(3):
        body = {"metadata": {"generateName": "g-", "namespace": bench.namespace}}
        made = await bench.api.create(Kind.CONFIG_MAP, body)
        name = made["metadata"]["name"]
        assert name.startswith("g-") and len(name) == 7
        assert made["metadata"]["generateName"] == "g-"
        names.add(name)
    assert len(names) == 3


@case
async def dry_run_keeps_nothing(bench: Bench) -> None:
    made = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "dry"), dry_run=True)
    assert made["metadata"]["name"] == "dry"
    assert await gone(bench, Kind.CONFIG_MAP, "dry")


@case
async def pods_get_their_defaults(bench: Bench) -> None:
    """What placement reads of a pod is filled in the same way."""
    spec = (await bench.api.create(Kind.POD, pod(bench, "p")))["spec"]
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["restartPolicy"] == "Always"
    assert spec["priority"] == 0
    assert sorted(t["key"] for t in spec["tolerations"]) == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert {t["tolerationSeconds"] for t in spec["tolerations"]} == {300}
    status = (await bench.api.get(Kind.POD, bench.namespace, "p"))["status"]
    assert status["phase"] == "Pending" and status["qosClass"] == "BestEffort"


@case
async def workloads_get_their_defaults(bench: Bench) -> None:
    spec = (await bench.api.create(Kind.DEPLOYMENT, deployment(bench, "d")))["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert spec["progressDeadlineSeconds"] == 600 and spec["revisionHistoryLimit"] == 10
    body = deployment(bench, "s")
    body["spec"]["serviceName"] = "s"
    spec = (await bench.api.create(Kind.STATEFUL_SET, body))["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}


@case
async def a_service_is_given_its_numbers(bench: Bench) -> None:
    """A cluster address, and a port on every node where asked; a headless one keeps its None (H5)."""
    body = {
        "metadata": {"name": "web", "namespace": bench.namespace},
        "spec": {"type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"port": 4000}]},
    }
    made = await bench.api.create(Kind.SERVICE, body)
    port = made["spec"]["ports"][0]
    assert 30000 <= port["nodePort"] <= 32767 and port["targetPort"] == 4000 and port["protocol"] == "TCP"
    assert made["spec"]["clusterIP"] and made["spec"]["externalTrafficPolicy"] == "Local"
    after = await bench.api.patch(Kind.SERVICE, bench.namespace, "web", {"spec": {"selector": {"a": "b"}}})
    assert after["spec"]["ports"] == made["spec"]["ports"] and after["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    again = {**after, "spec": {k: v for k, v in after["spec"].items() if k not in {"clusterIP", "clusterIPs"}}}
    assert (await bench.api.replace(Kind.SERVICE, again))["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    headless = {
        "metadata": {"name": "peer", "namespace": bench.namespace},
        "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
    }
    assert (await bench.api.create(Kind.SERVICE, headless))["spec"]["clusterIP"] == "None"


# ── Optimistic concurrency ────────────────────────────────────────────────────────────────────────────────────────


@case
async def the_second_writer_loses(bench: Bench) -> None:
    """A replacement under a resourceVersion that is no longer current is a Conflict, and changes nothing."""
    first = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", {"a": "1"}))
    second = await bench.api.replace(Kind.CONFIG_MAP, {**first, "data": {"a": "2"}})
    assert rv(second) > rv(first)
    await refusal(bench.api.replace(Kind.CONFIG_MAP, {**first, "data": {"a": "3"}}), ConflictError)
    assert (await bench.api.get(Kind.CONFIG_MAP, bench.namespace, "one"))["data"] == {"a": "2"}


@case
async def a_write_that_changes_nothing_is_none(bench: Bench) -> None:
    made = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", {"a": "1"}))
    same = await bench.api.replace(Kind.CONFIG_MAP, made)
    patched = await bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", {"data": {"a": "1"}})
    assert rv(made) == rv(same) == rv(patched)


@case
async def another_uid_is_another_object(bench: Bench) -> None:
    made = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", {"a": "1"}))
    other = "00000000-0000-4000-8000-000000000000"
    namesake = {**made, "metadata": {**made["metadata"], "uid": other}, "data": {"a": "2"}}
    del namesake["metadata"]["resourceVersion"]
    await refusal(bench.api.replace(Kind.CONFIG_MAP, namesake), ConflictError)
    patch = {"metadata": {"uid": other}, "data": {"a": "2"}}
    await refusal(bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", patch), ConflictError)
    assert (await bench.api.get(Kind.CONFIG_MAP, bench.namespace, "one"))["data"] == {"a": "1"}


@case
async def a_patch_may_carry_a_precondition(bench: Bench) -> None:
    made = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", {"a": "1"}))
    patch = {"metadata": {"resourceVersion": str(rv(made)), "uid": made["metadata"]["uid"]}, "data": {"a": "2"}}
    assert (await bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", patch))["data"] == {"a": "2"}
    await refusal(bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", patch), ConflictError)


@case
async def a_lease_is_compare_and_swap(bench: Bench) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 10}
    lease = await bench.api.create(Kind.LEASE, {"metadata": {"name": "l", "namespace": bench.namespace}, "spec": spec})
    taken = await bench.api.replace(Kind.LEASE, {**lease, "spec": {**spec, "holderIdentity": "b"}})
    assert taken["spec"]["holderIdentity"] == "b"
    await refusal(bench.api.replace(Kind.LEASE, {**lease, "spec": {**spec, "holderIdentity": "c"}}), ConflictError)


@case
async def a_lease_is_never_replaced_unconditionally(bench: Bench) -> None:
    """Of most kinds a replacement without a resourceVersion wins; of a Lease it is refused with 422."""
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 10}
    metadata = {"name": "l", "namespace": bench.namespace}
    await bench.api.create(Kind.LEASE, {"metadata": metadata, "spec": spec})
    for version in ({}, {"resourceVersion": ""}):
        replacement = {"metadata": metadata | version, "spec": {**spec, "holderIdentity": ""}}
        await refusal(bench.api.replace(Kind.LEASE, replacement), RefusedError)
    assert (await bench.api.get(Kind.LEASE, bench.namespace, "l"))["spec"]["holderIdentity"] == "a"


# ── Spec, status, generation ──────────────────────────────────────────────────────────────────────────────────────


@case
async def generation_follows_the_spec(bench: Bench) -> None:
    """Labels and annotations do not count; but a Deployment's annotations do."""
    note = {"metadata": {"annotations": {"note": "x"}}}
    body = deployment(bench, "s")
    body["spec"]["serviceName"] = "s"
    await bench.api.create(Kind.STATEFUL_SET, body)
    assert (await bench.api.patch(Kind.STATEFUL_SET, bench.namespace, "s", note))["metadata"]["generation"] == 1
    wait = {"spec": {"minReadySeconds": 1}}
    assert (await bench.api.patch(Kind.STATEFUL_SET, bench.namespace, "s", wait))["metadata"]["generation"] == 2
    await bench.api.create(Kind.DEPLOYMENT, deployment(bench, "d"))
    label = {"metadata": {"labels": {"note": "x"}}}
    before = (await bench.api.patch(Kind.DEPLOYMENT, bench.namespace, "d", label))["metadata"]["generation"]
    after = (await bench.api.patch(Kind.DEPLOYMENT, bench.namespace, "d", note))["metadata"]["generation"]
    assert after > before


@case
async def status_has_a_door_of_its_own(bench: Bench) -> None:
    """A pod's status is not written with its spec, nor its spec with its status."""
    await bench.api.create(Kind.POD, pod(bench, "p"))
    both = {"metadata": {"labels": {"seen": "yes"}}, "status": {"phase": "Running"}}
    assert (await bench.api.patch(Kind.POD, bench.namespace, "p", both))["status"]["phase"] == "Pending"
    both = {"spec": {"terminationGracePeriodSeconds": 7}, "status": {"phase": "Running"}}
    after = await bench.api.patch(Kind.POD, bench.namespace, "p", both, subresource="status")
    assert after["status"]["phase"] == "Running"
    assert after["spec"]["terminationGracePeriodSeconds"] == 30
    assert after["metadata"]["generation"] == 1


@case
async def a_tidb_cluster_loses_status_that_its_schema_does_not_name(bench: Bench) -> None:
    """As with tidb-operator's CRD: no status subresource, the design's `evictLeaderStatus` is dropped and tidb-operator's
    `evictLeader` stays, generation follows everything but metadata (H3, E3)."""
    body = {
        "metadata": {"name": "demo", "namespace": bench.namespace},
        "spec": {"tikv": {"replicas": 3, "futureField": {"x": [1, 2]}}},
    }
    made = await bench.api.create(Kind.TIDB_CLUSTER, body)
    assert made["spec"] == body["spec"] and made["metadata"]["generation"] == 1
    entry = {"demo-tikv-0": {"value": "none"}}
    status = {"status": {"tikv": {"evictLeaderStatus": entry, "evictLeader": entry}}}
    after = await bench.api.patch(Kind.TIDB_CLUSTER, bench.namespace, "demo", status)
    assert after["status"] == {"tikv": {"evictLeader": entry}} and after["spec"] == body["spec"]
    assert after["metadata"]["generation"] == 2
    await refusal(
        bench.api.patch(Kind.TIDB_CLUSTER, bench.namespace, "demo", {"spec": {}}, patch_type=PatchType.STRATEGIC),
        RefusedError,
    )


@case
async def a_pods_spec_is_almost_immutable(bench: Bench) -> None:
    await bench.api.create(Kind.POD, pod(bench, "p"))
    error = await refusal(
        bench.api.patch(Kind.POD, bench.namespace, "p", {"spec": {"nodeSelector": {"a": "b"}}}), RefusedError
    )
    assert error.code == 422
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "example.org/main:2"}]
    after = await bench.api.patch(Kind.POD, bench.namespace, "p", image, patch_type=PatchType.JSON)
    assert after["spec"]["containers"][0]["image"] == "example.org/main:2"
    assert after["metadata"]["generation"] == 2


@case
async def scale_is_a_view_of_replicas(bench: Bench) -> None:
    await bench.api.create(Kind.DEPLOYMENT, {**deployment(bench, "d")})
    await bench.api.patch(Kind.DEPLOYMENT, bench.namespace, "d", {"spec": {"paused": True}})
    scale = await bench.api.patch(Kind.DEPLOYMENT, bench.namespace, "d", {"spec": {"replicas": 0}}, subresource="scale")
    assert scale["kind"] == "Scale" and scale["spec"].get("replicas", 0) == 0
    stale = {**scale, "metadata": {**scale["metadata"], "resourceVersion": "1"}, "spec": {"replicas": 1}}
    await refusal(bench.api.replace(Kind.DEPLOYMENT, stale, subresource="scale"), ConflictError)


# ── Patches ───────────────────────────────────────────────────────────────────────────────────────────────────────


@case
async def merge_patch_merges_objects_and_drops_nulls(bench: Bench) -> None:
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", {"a": "1", "b": "2"}, labels={"x": "y"}))
    patch = {"data": {"a": None, "c": "3"}, "metadata": {"annotations": {"n": "1"}, "finalizers": ["a.dev/x"]}}
    after = await bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", patch)
    assert after["data"] == {"b": "2", "c": "3"}
    assert after["metadata"]["labels"] == {"x": "y"} and after["metadata"]["annotations"] == {"n": "1"}
    after = await bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", {"metadata": {"finalizers": ["b.dev/x"]}})
    assert after["metadata"]["finalizers"] == ["b.dev/x"]
    await bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", {"metadata": {"finalizers": None}})


@case
async def json_patch_tests_before_it_writes(bench: Bench) -> None:
    """A failed `test` is a Conflict, and so is a path that is not there (the real server uses the same words for both);
    neither changes anything."""
    made = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one", {"a": "1"}))

    async def send(*operations: Json) -> Json:
        return await bench.api.patch(
            Kind.CONFIG_MAP, bench.namespace, "one", list(operations), patch_type=PatchType.JSON
        )

    uid = {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]}
    after = await send(uid, {"op": "add", "path": "/metadata/annotations", "value": {"mooring.dev/x": "1"}})
    assert after["metadata"]["annotations"] == {"mooring.dev/x": "1"}
    after = await send({"op": "replace", "path": "/metadata/annotations/mooring.dev~1x", "value": "2"})
    assert after["metadata"]["annotations"] == {"mooring.dev/x": "2"}
    wrong = {"op": "test", "path": "/data/a", "value": "9"}
    await refusal(send(wrong, {"op": "remove", "path": "/data/a"}), ConflictError)
    await refusal(send({"op": "remove", "path": "/data/zzz"}), ConflictError)
    await refusal(send({"op": "add", "path": "/no/such/parent", "value": "1"}), ConflictError)
    assert (await bench.api.get(Kind.CONFIG_MAP, bench.namespace, "one"))["data"] == {"a": "1"}


@case
async def strategic_patch_merges_containers_by_name(bench: Bench) -> None:
    await bench.api.create(Kind.DEPLOYMENT, deployment(bench, "d"))
    containers = [{"name": "b", "image": "example.org/b:2"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    after = await bench.api.patch(Kind.DEPLOYMENT, bench.namespace, "d", patch, patch_type=PatchType.STRATEGIC)
    images = [(c["name"], c["image"]) for c in after["spec"]["template"]["spec"]["containers"]]
    assert sorted(images) == [("a", "example.org/a:1"), ("b", "example.org/b:2")]
    gone_b = {"spec": {"template": {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}}}}
    after = await bench.api.patch(Kind.DEPLOYMENT, bench.namespace, "d", gone_b, patch_type=PatchType.STRATEGIC)
    assert [c["name"] for c in after["spec"]["template"]["spec"]["containers"]] == ["a"]


@case
async def strategic_patch_merges_conditions_and_replaces_taints(bench: Bench) -> None:
    name = f"node-{bench.namespace}"
    taint = {"key": "a", "effect": "PreferNoSchedule"}
    await bench.api.create(Kind.NODE, {"metadata": {"name": name}, "spec": {"taints": [taint]}})
    try:
        for kind in ("Slow", "Hot"):
            status = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
            after = await bench.api.patch(
                Kind.NODE, "", name, status, patch_type=PatchType.STRATEGIC, subresource="status"
            )
        types = {c["type"] for c in after["status"]["conditions"]}
        assert {"Slow", "Hot"} <= types
        other = {"key": "b", "effect": "PreferNoSchedule"}
        after = await bench.api.patch(
            Kind.NODE, "", name, {"spec": {"taints": [other]}}, patch_type=PatchType.STRATEGIC
        )
        ours = [t["key"] for t in after["spec"]["taints"] if t["key"] in {"a", "b"}]
        assert ours == ["b"]
    finally:
        await bench.api.delete(Kind.NODE, "", name)


# ── Watches and lists ─────────────────────────────────────────────────────────────────────────────────────────────


async def _collect(
    bench: Bench, kind: Kind, count: int, *, begun: asyncio.Event | None = None, **how: Any
) -> list[tuple[str, str, int]]:
    """The first events that concern our namespace; `begun` is set with the first of them."""
    found: list[tuple[str, str, int]] = []
    async with asyncio.timeout(30):
        async for event in bench.api.watch(kind, timeout_s=20, **how):
            assert event.type != "ERROR", event.message
            ours = event.object is not None and event.object.namespace == bench.namespace
            # Every namespace gets this one by itself, sooner or later.
            if ours and event.object.name != "kube-root-ca.crt":
                found.append((event.type, event.object.name, int(event.object.resource_version)))
                if begun is not None:
                    begun.set()
            if len(found) >= count:
                break
    return found


@case
async def a_watch_tells_every_change_in_order(bench: Bench) -> None:
    start = (await bench.api.list(Kind.CONFIG_MAP, limit=1)).resource_version
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one"))
    await bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "one", {"data": {"a": "1"}})
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "two"))
    await bench.api.delete(Kind.CONFIG_MAP, bench.namespace, "one")
    seen = await _collect(bench, Kind.CONFIG_MAP, 4, resource_version=start)
    assert [(t, n) for t, n, _ in seen] == [
        ("ADDED", "one"),
        ("MODIFIED", "one"),
        ("ADDED", "two"),
        ("DELETED", "one"),
    ]
    revisions = [r for _, _, r in seen]
    assert revisions == sorted(set(revisions))


@case
async def a_watch_sees_what_happens_while_it_is_open(bench: Bench) -> None:
    start = (await bench.api.list(Kind.POD, limit=1)).resource_version
    begun = asyncio.Event()
    watching = asyncio.create_task(_collect(bench, Kind.POD, 4, begun=begun, resource_version=start))
    await bench.api.create(Kind.POD, pod(bench, "first"))
    await begun.wait()
    await bench.api.create(Kind.POD, pod(bench, "p"))
    await bench.api.delete(Kind.POD, bench.namespace, "p")
    seen = [(t, n) for t, n, _ in await watching]
    # A pod is marked before it goes, even when it goes at once.
    assert seen[1:] == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")], seen


@case
async def a_pods_end_is_told_step_by_step(bench: Bench) -> None:
    """Created, bound, marked with its grace, marked with none, gone."""
    start = (await bench.api.list(Kind.POD, limit=1)).resource_version
    await bench.api.create(Kind.POD, pod(bench, "p"))
    await bench.api.bind(bench.namespace, "p", NOWHERE)
    await bench.api.delete(Kind.POD, bench.namespace, "p")
    await bench.api.delete(Kind.POD, bench.namespace, "p", grace_s=0)
    seen = []
    async for event in bench.api.watch(Kind.POD, resource_version=start, timeout_s=20):
        if event.object is not None and event.object.namespace == bench.namespace:
            seen.append((event.type, event.object.node, event.object.terminating))
            if event.type == "DELETED":
                break
    assert seen == [
        ("ADDED", "", False),
        ("MODIFIED", NOWHERE, False),
        ("MODIFIED", NOWHERE, True),
        ("MODIFIED", NOWHERE, True),
        ("DELETED", NOWHERE, True),
    ]


@case
async def initial_events_end_with_a_bookmark(bench: Bench) -> None:
    """WatchList: everything there is, then a bookmark that says so, then changes."""
    for name in ("one", "two"):
        await bench.api.create(Kind.POD, pod(bench, name))
    names: list[str] = []
    async with asyncio.timeout(30):
        async for event in bench.api.watch(Kind.POD, timeout_s=20, initial_events=True):
            if event.initial_end:
                assert event.type == "BOOKMARK" and event.resource_version
                break
            assert event.type == "ADDED"
            if event.object.namespace == bench.namespace:
                names.append(event.object.name)
    assert sorted(names) == ["one", "two"]


@case
async def a_watch_from_nowhere_begins_with_what_is_there(bench: Bench) -> None:
    await bench.api.create(Kind.POD, pod(bench, "old"))
    begun = asyncio.Event()
    watching = asyncio.create_task(_collect(bench, Kind.POD, 2, begun=begun))
    await begun.wait()
    await bench.api.create(Kind.POD, pod(bench, "young"))
    assert [(t, n) for t, n, _ in await watching] == [("ADDED", "old"), ("ADDED", "young")]


@case
async def a_watch_ends_after_its_time(bench: Bench) -> None:
    start = (await bench.api.list(Kind.POD, limit=1)).resource_version
    async with asyncio.timeout(30):
        events = [e async for e in bench.api.watch(Kind.POD, resource_version=start, timeout_s=1)]
    assert all(e.type in {"BOOKMARK", "ADDED", "MODIFIED", "DELETED"} for e in events)


@case
async def too_old_a_version_is_expired(bench: Bench) -> None:
    """410, as an event or as the answer: list again."""
    # Of this kind, a fresh server has never known the beginning: its watch cache is younger than the cluster.
    bench.forget()
    codes = []
    try:
        async with asyncio.timeout(30):
            async for event in bench.api.watch(Kind.TIDB_CLUSTER, resource_version="1", timeout_s=5):
                codes.append(event.code)
                break
    except PortError as error:
        codes.append(410 if type(error).__name__ == "ExpiredError" else 0)
    assert codes == [410]


@case
async def pages_show_one_moment(bench: Bench) -> None:
    """What is created between two pages is not in the second; nothing is listed twice or lost."""
    for i in range(5):
        await bench.api.create(Kind.CONFIG_MAP, config_map(bench, f"page-{i}"))
    page = await bench.api.list(Kind.CONFIG_MAP, limit=2)
    first_version = page.resource_version
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "page-late"))
    items = list(page.items)
    while page.continue_token:
        page = await bench.api.list(Kind.CONFIG_MAP, limit=2, continue_token=page.continue_token)
        assert page.resource_version == first_version
        assert len(page.items) <= 2
        items += page.items
    ours = [i.name for i in items if i.namespace == bench.namespace and i.name.startswith("page-")]
    assert ours == [f"page-{i}" for i in range(5)]


# ── Deletion ──────────────────────────────────────────────────────────────────────────────────────────────────────


@case
async def deletion_has_preconditions(bench: Bench) -> None:
    made = await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "one"))
    await refusal(bench.api.delete(Kind.CONFIG_MAP, bench.namespace, "one", uid="another"), ConflictError)
    await refusal(bench.api.delete(Kind.CONFIG_MAP, bench.namespace, "one", resource_version="1"), ConflictError)
    await bench.api.delete(
        Kind.CONFIG_MAP, bench.namespace, "one", uid=made["metadata"]["uid"], resource_version=str(rv(made))
    )
    await refusal(bench.api.delete(Kind.CONFIG_MAP, bench.namespace, "one"), NotFoundError)


@case
async def a_pod_on_a_node_goes_with_grace(bench: Bench) -> None:
    """Terminating until somebody ends it; grace can be shortened, not prolonged; 0 ends it."""
    await bench.api.create(Kind.POD, pod(bench, "p"))
    await bench.api.bind(bench.namespace, "p", NOWHERE)
    await bench.api.delete(Kind.POD, bench.namespace, "p", grace_s=100)
    metadata = (await bench.api.get(Kind.POD, bench.namespace, "p"))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 100 and metadata["deletionTimestamp"]
    first = metadata["generation"]
    await bench.api.delete(Kind.POD, bench.namespace, "p", grace_s=200)
    assert (await bench.api.get(Kind.POD, bench.namespace, "p"))["metadata"] == metadata
    await bench.api.delete(Kind.POD, bench.namespace, "p", grace_s=50)
    shorter = (await bench.api.get(Kind.POD, bench.namespace, "p"))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 50
    assert shorter["deletionTimestamp"] < metadata["deletionTimestamp"]
    assert first == 2
    await bench.api.delete(Kind.POD, bench.namespace, "p", grace_s=0)
    assert await gone(bench, Kind.POD, "p")


@case
async def a_pod_without_a_node_goes_at_once(bench: Bench) -> None:
    await bench.api.create(Kind.POD, pod(bench, "p"))
    await bench.api.delete(Kind.POD, bench.namespace, "p")
    assert await gone(bench, Kind.POD, "p")


@case
async def finalizers_hold_an_object(bench: Bench) -> None:
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "held", finalizers=["mooring.dev/hold"]))
    await bench.api.delete(Kind.CONFIG_MAP, bench.namespace, "held")
    held = await bench.api.get(Kind.CONFIG_MAP, bench.namespace, "held")
    assert held["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["mooring.dev/hold", "mooring.dev/more"]}}
    await refusal(bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "held", more), RefusedError)
    await bench.api.patch(Kind.CONFIG_MAP, bench.namespace, "held", {"metadata": {"finalizers": None}})
    assert await gone(bench, Kind.CONFIG_MAP, "held")


@case
async def what_was_owned_goes_after_its_owner(bench: Bench) -> None:
    """Background collection; a second owner that lives keeps the object."""
    owners = [await bench.api.create(Kind.CONFIG_MAP, config_map(bench, n)) for n in ("owner", "other")]
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "child", ownerReferences=references[:1]))
    await bench.api.create(Kind.CONFIG_MAP, config_map(bench, "shared", ownerReferences=references))
    await bench.api.delete(Kind.CONFIG_MAP, bench.namespace, "owner")
    await until(lambda: gone(bench, Kind.CONFIG_MAP, "child"))
    assert not await gone(bench, Kind.CONFIG_MAP, "shared")


@case
async def a_namespace_takes_its_content_along(bench: Bench) -> None:
    name = f"{bench.namespace}-away"
    await bench.api.create(Kind.NAMESPACE, {"metadata": {"name": name}})
    away = Bench(bench.api, name)
    await bench.api.create(Kind.CONFIG_MAP, config_map(away, "one"))
    await bench.api.delete(Kind.NAMESPACE, "", name)
    await until(lambda: gone(bench, Kind.NAMESPACE, name, ""))
    assert await gone(away, Kind.CONFIG_MAP, "one")


# ── Eviction and binding ──────────────────────────────────────────────────────────────────────────────────────────


@case
async def binding_happens_once(bench: Bench) -> None:
    made = await bench.api.create(Kind.POD, pod(bench, "p"))
    await refusal(bench.api.bind(bench.namespace, "p", NOWHERE, uid="another"), ConflictError)
    await bench.api.bind(bench.namespace, "p", NOWHERE, uid=made["metadata"]["uid"])
    bound = await bench.api.get(Kind.POD, bench.namespace, "p")
    assert bound["spec"]["nodeName"] == NOWHERE
    assert any(c["type"] == "PodScheduled" and c["status"] == "True" for c in bound["status"]["conditions"])
    await refusal(bench.api.bind(bench.namespace, "p", "elsewhere"), ConflictError)
    await refusal(bench.api.bind(bench.namespace, "nobody", NOWHERE), NotFoundError)


@case
async def eviction_deletes_with_a_precondition(bench: Bench) -> None:
    made = await running_pod(bench, "p", {"app": "free"})
    await refusal(bench.api.evict(bench.namespace, "p", uid="another"), ConflictError)
    await bench.api.evict(bench.namespace, "p", uid=made["metadata"]["uid"], grace_s=60)
    left = await bench.api.get(Kind.POD, bench.namespace, "p")
    assert left["metadata"]["deletionGracePeriodSeconds"] == 60
    await refusal(bench.api.evict(bench.namespace, "nobody"), NotFoundError)


@case
async def a_budget_blocks_eviction(bench: Bench) -> None:
    labels = {"app": "guarded"}
    before = await running_pod(bench, "p", labels)
    await budget(bench, "b", labels, 1, allowed=0)
    await refusal(bench.api.evict(bench.namespace, "p"), EvictionBlockedError)
    after = await bench.api.get(Kind.POD, bench.namespace, "p")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]


@case
async def a_budget_is_spent_once(bench: Bench) -> None:
    labels = {"app": "guarded"}
    for name in ("p", "q"):
        await running_pod(bench, name, labels)
    await budget(bench, "b", labels, 1, allowed=1)
    await bench.api.evict(bench.namespace, "p")
    await refusal(bench.api.evict(bench.namespace, "q"), EvictionBlockedError)


@case
async def two_budgets_are_one_too_many(bench: Bench) -> None:
    labels = {"app": "guarded"}
    await running_pod(bench, "p", labels)
    await budget(bench, "b", labels, 0, allowed=1)
    await budget(bench, "c", labels, 0, allowed=1)
    await refusal(bench.api.evict(bench.namespace, "p"), EvictionBlockedError)
    assert "deletionTimestamp" not in (await bench.api.get(Kind.POD, bench.namespace, "p"))["metadata"]


@case
async def a_pod_that_is_not_ready_needs_no_met_budget(bench: Bench) -> None:
    """With the budget met by others, a pod that serves nobody goes freely (IfHealthyBudget)."""
    labels = {"app": "guarded"}
    await running_pod(bench, "good", labels)
    await running_pod(bench, "bad", labels, ready=False)
    await budget(bench, "b", labels, 1, allowed=0)
    await bench.api.evict(bench.namespace, "bad")
    assert (await bench.api.get(Kind.POD, bench.namespace, "bad"))["metadata"]["deletionTimestamp"]


@case
async def who_does_not_run_needs_no_budget(bench: Bench) -> None:
    """A pod that waits for a node, and one that is already leaving, go past a budget that allows nothing."""
    labels = {"app": "guarded"}
    await running_pod(bench, "runs", labels)
    await budget(bench, "b", labels, 1, allowed=0)
    await bench.api.create(Kind.POD, pod(bench, "waits", labels))
    await bench.api.evict(bench.namespace, "waits")
    assert await gone(bench, Kind.POD, "waits")
    await bench.api.delete(Kind.POD, bench.namespace, "runs", grace_s=100)
    await bench.api.evict(bench.namespace, "runs", grace_s=50)
    left = await bench.api.get(Kind.POD, bench.namespace, "runs")
    assert left["metadata"]["deletionGracePeriodSeconds"] == 50


# ── Quota ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@case
async def a_full_quota_refuses(bench: Bench) -> None:
    await bench.api.create(
        Kind.RESOURCE_QUOTA,
        {"metadata": {"name": "q", "namespace": bench.namespace}, "spec": {"hard": {"pods": "1"}}},
    )

    async def counted() -> bool:
        quota = await bench.api.get(Kind.RESOURCE_QUOTA, bench.namespace, "q")
        return (quota.get("status") or {}).get("used") == {"pods": "0"}

    await until(counted)
    await bench.api.create(Kind.POD, pod(bench, "p"))
    error = await refusal(bench.api.create(Kind.POD, pod(bench, "q")), RefusedError)
    assert error.code == 403 and "exceeded quota" in str(error)
