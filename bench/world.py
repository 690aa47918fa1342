"""The world at full size: 5,000 nodes and 150,000 pods of 7 KB each, in a process of its own.

    python -m bench world

Everything is measured from the bytes of a paged list on, as the informer sees it: memory with the Python process and
all in it, also while a second list comes in; the CPU of an event after decoding; the longest single pause. Beside it,
on a smaller sample in the same run: the same pods as plain dicts.
"""

import gc
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

NODES, PODS, TEMPLATES, PER_OWNER, PAGE = 5_000, 150_000, 400, 10, 500
EVENTS = 40_000
BASELINE_PODS = 5_000
MB = 1 << 20


def main() -> None:
    full = _child("world", PODS)
    tenth = _child("world", PODS // 10)
    plain = _child("dicts", BASELINE_PODS)
    scale = PODS / BASELINE_PODS
    print(f"world: {NODES:,} nodes, {PODS:,} pods of {full['pod_bytes'] / 1000:.1f} KB, {full['shapes']:,} shapes")
    print(f"{'':44}{'measured':>12}{'target':>12}{'plain dicts':>14}")
    rows: list[tuple[str, str, str, str]] = [
        ("memory of the world", f"{full['world_mb']:.0f} MB", "≤ 200 MB", f"{plain['world_mb'] * scale:,.0f} MB*"),
        ("resident in all, after sync", f"{full['rss_mb']:.0f} MB", "≤ 250 MB", ""),
        ("resident in all, peak of the first list", f"{full['peak_sync_mb']:.0f} MB", "≤ 250 MB", ""),
        ("resident in all, peak of a relist", f"{full['peak_relist_mb']:.0f} MB", "≤ 250 MB", ""),
        ("  the same, rows known already held twice", f"{full['peak_twice_mb']:.0f} MB", "≤ 250 MB", ""),
        ("resident in all, after every pod changed", f"{full['rss_churned_mb']:.0f} MB", "≤ 250 MB", ""),
        ("an event applied, CPU, average", f"{full['event_us']:.2f} µs", "≤ 10 µs", f"{plain['event_us']:.2f} µs"),
        ("  the same with a tenth of the pods", f"{tenth['event_us']:.2f} µs", "the same", ""),
        ("decode and project a pod, CPU", f"{full['decode_us']:.1f} µs", "", f"{plain['decode_us']:.1f} µs"),
        ("longest pause: one event", f"{full['worst_event_ms']:.1f} ms", "≤ 100 ms", ""),
        ("longest pause: a part of a relist", f"{full['worst_part_ms']:.1f} ms", "≤ 100 ms", ""),
        ("  the same, rows known already held twice", f"{full['worst_twice_ms']:.1f} ms", "≤ 100 ms", ""),
        ("longest pause: one page of a list", f"{full['worst_page_ms']:.1f} ms", "≤ 100 ms", ""),
        ("a full garbage collection", f"{full['gc_ms']:.1f} ms", "≤ 100 ms", f"{plain['gc_ms'] * scale:,.0f} ms*"),
        ("  before gc.freeze", f"{full['gc_unfrozen_ms']:.1f} ms", "", ""),
    ]
    for what, measured, target, other in rows:
        print(f"  {what:42}{measured:>12}{target:>12}{other:>14}")
    print(f"  * {BASELINE_PODS:,} pods, times {scale:.0f}. Pauses are CPU time, without what others on the machine do.")


def _child(mode: str, pods: int) -> dict[str, float]:
    run = subprocess.run(
        [sys.executable, "-m", "bench.world", mode, str(pods)], check=True, capture_output=True, text=True
    )
    return json.loads(run.stdout)


# ── synthetic objects ─────────────────────────────────────────────────────────────────────────────────────────────


def _uid(kind: int, number: int) -> bytes:
    """Another one for each, with digits that no compressor foresees, as Kubernetes draws them."""
    digits = b"%032x" % ((4 * number + kind) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)
    return b"%b-%b-4%b-8%b-%b" % (digits[:8], digits[8:12], digits[13:16], digits[17:20], digits[20:])


def pod_bytes(number: int, version: int, *, ready: bool = True, template_pad: int = 0) -> bytes:
    """A pod as a busy cluster has it: about 7 KB, most of which placement never reads."""
    owner = number // PER_OWNER
    app = owner % TEMPLATES
    name = f"app-{app:04d}-{owner:08x}-{number:05x}"
    return _FORM % {
        b"app": b"app-%04d" % app,
        b"hash": b"%08x" % owner,
        b"name": name.encode(),
        b"ns": b"team-%02d" % (app % 40),
        b"owner": _uid(2, owner),
        b"uid": _uid(1, number),
        b"version": b"%d" % version,
        b"node": b"node-%05d.pool-a.internal" % (number * 7919 % NODES),
        b"cpu": b"%dm" % (100 + app % 8 * 50),
        b"memory": b"%dMi" % (128 + app % 16 * 64),
        b"ours": _OURS % (number % 10, number) if app % 3 == 0 else b"",
        b"created": b"2026-11-%02dT%02d:%02d:%02dZ" % (1 + number % 14, owner % 24, owner % 60, number % 60),
        b"ready": b"True" if ready else b"False",
        b"pad": b"x" * template_pad,
    }


_OURS = b'"vacant.io/slot":"%d","vacant.io/reservation":"r%07x","controller.kubernetes.io/pod-deletion-cost":"100",'
_PROBE = (
    b'{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,'
    b'"successThreshold":1,"failureThreshold":3}'
)
_ENV = b",".join(b'{"name":"SETTING_%02d","value":"a value that nobody here reads %02d"}' % (i, i) for i in range(24))
_FIELDS = b",".join(b'"f:setting-%02d":{".":{},"f:name":{},"f:value":{}}' % i for i in range(40))
_FORM = (
    b'{"metadata":{"name":"%(name)b","generateName":"%(app)b-%(hash)b-","namespace":"%(ns)b","uid":"%(uid)b",'
    b'"resourceVersion":"%(version)b","creationTimestamp":"%(created)b","labels":{"app.kubernetes.io/name":"%(app)b",'
    b'"app.kubernetes.io/part-of":"shop","pod-template-hash":"%(hash)b","team":"%(ns)b"},"annotations":{%(ours)b'
    b'"prometheus.io/scrape":"true","checksum/config":"0123456789abcdef0123456789abcdef"},"ownerReferences":[{"apiVersion":'
    b'"apps/v1","kind":"ReplicaSet","name":"%(app)b-%(hash)b","uid":"%(owner)b","controller":true,'
    b'"blockOwnerDeletion":true}],"managedFields":[{"manager":"kube-controller-manager","operation":"Update",'
    b'"apiVersion":"v1","time":"%(created)b","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{' + _FIELDS + b"}}}]},"
    b'"spec":{"volumes":[{"name":"kube-api-access-%(hash)b","projected":{"sources":[{"serviceAccountToken":'
    b'{"expirationSeconds":3607,"path":"token"}}],"defaultMode":420}},{"name":"cache","emptyDir":{}}],"containers":[{'
    b'"name":"main","image":"registry.internal/shop/%(app)b:v1.2.3%(pad)b","env":['
    + _ENV
    + b'],"resources":{"limits":{'
    b'"memory":"%(memory)b"},"requests":{"cpu":"%(cpu)b","memory":"%(memory)b"}},"livenessProbe":' + _PROBE + b","
    b'"readinessProbe":'
    + _PROBE
    + b',"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"}'
    b'],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":'
    b'"default","nodeName":"%(node)b","schedulerName":"default-scheduler","tolerations":[{"key":'
    b'"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":'
    b'"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,'
    b'"enableServiceLinks":true},"status":{"phase":"Running","conditions":[{"type":"Initialized","status":"True",'
    b'"lastTransitionTime":"%(created)b"},{"type":"Ready","status":"%(ready)b","lastTransitionTime":"%(created)b"},{'
    b'"type":"PodScheduled","status":"True","lastTransitionTime":"%(created)b"}],"hostIP":"10.0.0.1","podIP":"10.1.0.1",'
    b'"startTime":"%(created)b","containerStatuses":[{"name":"main","state":{"running":{"startedAt":"%(created)b"}},'
    b'"ready":true,"restartCount":0,"image":"registry.internal/shop/%(app)b:v1.2.3","imageID":'
    b'"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","started":true}],"qosClass":"Burstable"}}'
)
_PAD = max(0, 7000 - len(pod_bytes(0, 100_000)))


def node_bytes(number: int) -> bytes:
    name = b"node-%05d.pool-a.internal" % number
    images = b",".join(b'{"names":["registry.internal/shop/app-%04d:v1"],"sizeBytes":123456789}' % i for i in range(40))
    return (
        b'{"metadata":{"name":"%b","uid":"%08x-2222-4000-8000-000000000000","resourceVersion":"7","labels":{'
        b'"kubernetes.io/hostname":"%b","topology.kubernetes.io/zone":"zone-%d","node.kubernetes.io/capacity":"%b",'
        b'"kubernetes.io/arch":"amd64"}},"spec":{},"status":{"allocatable":{"cpu":"31850m","memory":"128Gi","pods":'
        b'"110"},"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}],"images":[%b]}}'
        % (name, number, name, number % 3, b"spot" if number % 2 else b"on-demand", images)
    )


def replica_set_bytes(owner: int) -> bytes:
    app = owner % TEMPLATES
    return (
        b'{"metadata":{"name":"app-%04d-%08x","namespace":"team-%02d","uid":"%b",'
        b'"resourceVersion":"9","labels":{"pod-template-hash":"%08x"},"ownerReferences":[{"apiVersion":"apps/v1","kind":'
        b'"Deployment","name":"app-%04d","uid":"%08x-3333-4000-8000-000000000000","controller":true}]},"spec":{"replicas":'
        b"%d}}" % (app, owner, app % 40, _uid(2, owner), owner, app, app, PER_OWNER)
    )


def pages(make: Callable[[int], bytes], count: int) -> Iterator[bytes]:
    for start in range(0, count, PAGE):
        items = b",".join(make(i) for i in range(start, min(count, start + PAGE)))
        yield b'{"metadata":{"resourceVersion":"100000"},"items":[' + items + b"]}"


# ── the measured processes ────────────────────────────────────────────────────────────────────────────────────────


def _memory() -> tuple[float, float]:
    """(VmRSS, VmHWM) in MB."""
    fields = {}
    with open("/proc/self/status") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name in {"VmRSS", "VmHWM"}:
                fields[name] = int(value.split()[0]) / 1024
    return fields["VmRSS"], fields["VmHWM"]


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")


def _timed_collection() -> float:
    began = time.process_time()
    gc.collect()
    return (time.process_time() - began) * 1000


def measure_world(count: int) -> dict[str, float]:
    from mooring.clients.wire import sharing
    from mooring.clients.wire.kube import decode, decode_list
    from mooring.core.model.events import Gone, Listed, Seen
    from mooring.core.model.kinds import Kind
    from mooring.core.world.world import World

    world = World()
    worst_page = worst_part = worst_twice = decode_s = 0.0
    pods_decoded = 0

    def load(kind: Kind, make: Callable[[int], bytes], how_many: int, *, twice: bool = False) -> None:
        """A paged list. What the world knows already is dropped page by page, unless `twice` holds on to it."""
        nonlocal worst_page, worst_part, worst_twice, decode_s, pods_decoded
        objects: list[Any] = []
        for page in pages(make, how_many):
            cpu = time.process_time()
            found = decode_list(kind, page)[0]
            objects.extend(found if twice else [world.known(kind, obj) for obj in found])
            spent = time.process_time() - cpu
            if kind is Kind.POD:
                decode_s += spent
                pods_decoded += len(found)
            worst_page = max(worst_page, spent * 1000)
        parts = world.relist(Listed(kind, tuple(objects)))
        del objects
        while True:
            began = time.process_time()
            part = next(parts, None)
            spent = (time.process_time() - began) * 1000
            if twice:
                worst_twice = max(worst_twice, spent)
            else:
                worst_part = max(worst_part, spent)
            if part is None:
                break

    def pod(version: int) -> Callable[[int], bytes]:
        return lambda number: pod_bytes(number, version, template_pad=_PAD)

    # The informer's discipline: no collections while a list comes in, and what it brought is set aside afterwards.
    gc.collect()
    before = _memory()[0]
    gc.disable()
    load(Kind.NODE, node_bytes, NODES)
    load(Kind.REPLICA_SET, replica_set_bytes, count // PER_OWNER)
    load(Kind.POD, pod(100_000), count)
    peak_sync = _memory()[1]
    gc_unfrozen = _timed_collection()
    gc.freeze()
    gc.enable()
    rss = _memory()[0]
    shapes = len({id(p.shape) for p in world.pods()})

    # A relist after a restart of the API server: nearly all of it is known already, one pod in a hundred has changed.
    # Once as it should be, and once with every row held twice until the list is complete.
    peaks = []
    for more, twice in ((1, False), (2, True)):
        _reset_peak()
        gc.disable()
        load(
            Kind.POD,
            lambda n, more=more: pod_bytes(n, 100_000 + (n % 100 == 0) * more, template_pad=_PAD),
            count,
            twice=twice,
        )
        gc.collect()
        gc.freeze()
        gc.enable()
        peaks.append(_memory()[1])

    # Events: readiness flips, and one in eight a pod that goes and one that comes.
    randomness = random.Random(7)
    version, cpu_s, worst_event, applied, fresh = 200_000, 0.0, 0.0, 0, count
    for _ in range(EVENTS // 2000):
        events: list[Seen | Gone] = []
        for _ in range(1500):
            version += 1
            number = randomness.randrange(count)
            raw = pod_bytes(number, version, ready=randomness.random() < 0.5, template_pad=_PAD)
            events.append(Seen(Kind.POD, decode(Kind.POD, raw)))
        for _ in range(250):
            version += 1
            number = randomness.randrange(count)
            found = decode(Kind.POD, pod_bytes(number, version))
            events.append(Gone(Kind.POD, found.key, found.uid))
            events.append(Seen(Kind.POD, decode(Kind.POD, pod_bytes(fresh, version, template_pad=_PAD))))
            fresh += 1
        randomness.shuffle(events)
        cpu = time.process_time()
        for event in events:
            world.apply(event)
        cpu_s += time.process_time() - cpu
        applied += len(events)
        for event in events[:400]:  # again, one by one: most are known by now, a few bring something
            began = time.process_time()
            world.apply(event)
            worst_event = max(worst_event, (time.process_time() - began) * 1000)
    problems = world.check()
    assert problems == [], problems

    gc_ms = _timed_collection()
    load(Kind.POD, pod(900_000), count)  # every pod changes: no string may be kept twice
    gc.collect()
    return {
        "pod_bytes": len(pod_bytes(0, 100_000, template_pad=_PAD)),
        "shapes": shapes,
        "world_mb": rss - before,
        "rss_mb": rss,
        "peak_sync_mb": peak_sync,
        "peak_relist_mb": peaks[0],
        "peak_twice_mb": peaks[1],
        "rss_churned_mb": _memory()[0],
        "event_us": cpu_s / applied * 1e6,
        "decode_us": decode_s / pods_decoded * 1e6,
        "worst_event_ms": worst_event,
        "worst_part_ms": worst_part,
        "worst_twice_ms": worst_twice,
        "worst_page_ms": worst_page,
        "gc_ms": gc_ms,
        "gc_unfrozen_ms": gc_unfrozen,
        "tables": len(sharing.shapes),
    }


def measure_dicts(count: int) -> dict[str, float]:
    """What one writes first: json.loads, and the same three ways in."""
    by_uid: dict[str, Any] = {}
    by_node: dict[str, dict[str, Any]] = defaultdict(dict)
    by_owner: dict[str, dict[str, Any]] = defaultdict(dict)

    def put(pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        old = by_uid.get(uid)
        if old is not None:
            del by_node[old["spec"]["nodeName"]][uid]
            del by_owner[old["metadata"]["ownerReferences"][0]["uid"]][uid]
        by_uid[uid] = pod
        by_node[pod["spec"]["nodeName"]][uid] = pod
        by_owner[pod["metadata"]["ownerReferences"][0]["uid"]][uid] = pod

    gc.collect()
    before, decode_s = _memory()[0], 0.0
    for page in pages(lambda n: pod_bytes(n, 100_000, template_pad=_PAD), count):
        cpu = time.process_time()
        pods = json.loads(page)["items"]
        decode_s += time.process_time() - cpu
        for pod in pods:
            put(pod)
    rss = _memory()[0]
    events = [json.loads(pod_bytes(n % count, 200_000 + n, template_pad=_PAD)) for n in range(2000)]
    cpu = time.process_time()
    for event in events:
        put(event)
    event_us = (time.process_time() - cpu) / len(events) * 1e6
    del events
    return {
        "world_mb": rss - before,
        "event_us": event_us,
        "decode_us": decode_s / count * 1e6,
        "gc_ms": _timed_collection(),
    }


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure = measure_world if sys.argv[1] == "world" else measure_dicts
        print(json.dumps(measure(int(sys.argv[2]))))
    else:
        main()
