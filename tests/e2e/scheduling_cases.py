"""Random clusters and pods for which kube-scheduler and the embedded scheduler must name the same nodes."""

import random
from typing import Any

from mooring_lab.control import servers

Json = dict[str, Any]
PROFILE = "probe-scheduler"
ZONES, APPS, TIERS = ("a", "b", "c"), ("web", "db"), ("front", "back")
TAINTS = (("t1", "x", "NoSchedule"), ("t1", "y", "NoSchedule"), ("t2", "", "NoExecute"), ("t3", "", "PreferNoSchedule"))
GPU = "example.com/gpu"
#: Pods of the lower ones may be preempted by those of the higher, but for those that preempt nobody.
PRIORITY = {"probe-low": 10, "probe-mid": 100, "probe-high": 1000, "probe-meek": 2000}
MEEK = "probe-meek"
NODES, PODS, PROBES, CHOOSERS = 8, 16, 50, 10
#: In the names of those whose node kube-scheduler shall choose.
CHOOSER = "-c"


class Case(random.Random):
    """One cluster: what to create, in order, all of it drawn from the seed."""

    def __init__(self, seed: int, namespaces: tuple[str, str]) -> None:
        super().__init__(seed)
        self.name = f"s{seed}"
        self.namespaces = namespaces
        self.nodes = [self._node(n) for n in range(NODES)]
        self.volumes, self.claims = self._storage()
        self.pods = [self._pod(f"{self.name}-p{n}", placed=True) for n in range(PODS)]
        with_port: set[str] = set()
        for pod in self.pods:  # a kubelet admits no second one with the same port
            first = pod["spec"]["containers"][0]
            if "ports" in first and pod["spec"]["nodeName"] in with_port:
                del first["ports"]
            elif "ports" in first:
                with_port.add(pod["spec"]["nodeName"])
        self.budgets = [self._budget(n) for n in range(self.randint(0, 3))]
        #: Those that are leaving: they hold a finalizer, and are deleted once they are there.
        self.leaving = {one["metadata"]["name"] for one in self.pods if "finalizers" in one["metadata"]}

    def maybe(self, share: float) -> bool:
        return self.random() < share

    def _node(self, n: int) -> Json:
        labels = {"disk": self.choice(("ssd", "hdd")), "gen": self.choice(("1", "3", "7", "new"))}
        if self.maybe(0.85):
            labels["topology.kubernetes.io/zone"] = self.choice(ZONES)
        if self.maybe(0.7):
            labels["rack"] = self.choice(("r1", "r2", "r3"))
        node = servers.node(f"{self.name}-n{n}", labels, self.choice(("2", "4", "1500m")), self.choice(("4Gi", "8Gi")))
        room = {"pods": self.choice(("5", "110")), **({GPU: self.choice(("1", "2"))} if self.maybe(0.4) else {})}
        for part in ("capacity", "allocatable"):
            node["status"][part] |= room
        taints = [t for t in TAINTS if self.maybe(0.08)]
        node["spec"] = {
            "taints": list({(k, e): {"key": k, "value": v, "effect": e} for k, v, e in taints}.values()),
            "unschedulable": self.maybe(0.1),
        }
        return node

    # ── Volumes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _storage(self) -> tuple[list[Json], list[Json]]:
        volumes, claims = [], []
        for n, how in enumerate(("affine", "affine", "zoned", "once")):
            name = f"{self.name}-v{n}"
            volumes.append(self._volume(name, how))
            volumes[-1]["spec"]["claimRef"] = {"namespace": self.namespaces[0], "name": name}
            claims.append(_claim(name, once=how == "once"))
        return volumes, claims

    def _volume(self, name: str, how: str) -> Json:
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOncePod" if how == "once" else "ReadWriteOnce"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "example.com", "volumeHandle": name},
        }
        labels = {}
        if how == "affine":
            what = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [self.choice(ZONES)]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [what]}]}}
        elif how == "zoned":
            labels["topology.kubernetes.io/zone"] = "__".join(self.sample(ZONES, 2))
        return {"metadata": {"name": name, "labels": labels}, "spec": spec}

    # ── Pods ────────────────────────────────────────────────────────────────────────────────────────────────────

    def probes(self) -> list[Json]:
        return [self._pod(f"{self.name}-x{n}", placed=False) for n in range(PROBES)]

    def choosers(self) -> list[Json]:
        """They prefer more than they demand, or few nodes were left to choose from."""
        return [self._chooser(f"{self.name}{CHOOSER}{n}") for n in range(CHOOSERS)]

    def _chooser(self, name: str) -> Json:
        pod = self._pod(name, placed=False)
        spec = pod["spec"]
        spec["affinity"] = self._preferred()
        spec["topologySpreadConstraints"] = [
            {**self._spread(key), "whenUnsatisfiable": "ScheduleAnyway"}
            for key in (self._keys() if self.maybe(0.5) else ())
        ]
        for one in spec["topologySpreadConstraints"]:
            one.pop("minDomains", None)
        for field in ("nodeSelector", "volumes"):
            spec.pop(field, None)
        spec.pop("priorityClassName", None)
        return pod

    def _budget(self, n: int) -> Json:
        metadata = {"name": f"{self.name}-b{n}", "namespace": self.choice(self.namespaces)}
        return {"metadata": metadata, "spec": {"minAvailable": self.randint(0, 4), "selector": self._selector()}}

    def _pod(self, name: str, *, placed: bool) -> Json:
        labels = {"app": self.choice(APPS), "tier": self.choice(TIERS), "rev": self.choice("12")}
        spec: Json = {
            "terminationGracePeriodSeconds": 0,
            "schedulerName": PROFILE,
            "containers": [self._container("main"), *([self._container("more")] if self.maybe(0.3) else [])],
        }
        if self.maybe(0.2):
            first, sidecar = self._container("first"), self._container("side") | {"restartPolicy": "Always"}
            spec["initContainers"] = self.choice(([first], [sidecar], [sidecar, first], [first, sidecar]))
        if self.maybe(0.1):
            spec["resources"] = {"requests": {"cpu": self.choice(("1", "2500m"))}}
            for one in (*spec["containers"], *spec.get("initContainers", ())):
                one.pop("resources", None)
        if self.maybe(0.2):
            spec["containers"][0]["ports"] = [self._port()]
        affinity = self._affinity()
        if placed and self.maybe(0.3):
            for kind, preferred in self._preferred().items():
                affinity.setdefault(kind, {}).update(preferred)
        if affinity:
            spec["affinity"] = affinity
        if self.maybe(0.6):
            spec["priorityClassName"] = self.choice(list(PRIORITY))
        if not placed or self.maybe(0.3):
            self._ask(spec)
        metadata: Json = {"name": name, "namespace": self.choice(self.namespaces), "labels": labels}
        if placed:
            # Nobody drives it away, and it may stand where it does not fit.
            spec |= {"nodeName": self.choice(self.nodes)["metadata"]["name"], "tolerations": [{"operator": "Exists"}]}
            if self.maybe(0.25):
                metadata["finalizers"] = ["example.com/held"]
        if metadata["namespace"] == self.namespaces[0] and self.maybe(0.2):
            claim = self.choice(self.claims)["metadata"]["name"]
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        return {"metadata": metadata, "spec": spec}

    def _container(self, name: str) -> Json:
        asked: Json = {}
        if self.maybe(0.6):
            asked["cpu"] = self.choice(("100m", "0.25", "700m", "1", "1500m"))
        if self.maybe(0.4):
            asked["memory"] = self.choice(("64Mi", "1Gi", "3G", "2.5Gi"))
        limits = {}
        if self.maybe(0.1):
            limits = {GPU: "1"}
            asked |= limits
        return {"name": name, "image": "none", "resources": {"requests": asked, "limits": limits}}

    def _port(self) -> Json:
        port = self.choice((8080, 9090))
        found: Json = {"containerPort": port, "hostPort": port, "protocol": self.choice(("TCP", "UDP"))}
        return found | ({"hostIP": self.choice(("127.0.0.1", "0.0.0.0"))} if self.maybe(0.5) else {})

    def _ask(self, spec: Json) -> None:
        if self.maybe(0.4):
            spec["tolerations"] = [self._toleration() for _ in range(self.randint(1, 3))]
        if self.maybe(0.15):
            spec["nodeSelector"] = {"disk": self.choice(("ssd", "hdd"))}
        if self.maybe(0.35):
            spec["topologySpreadConstraints"] = [self._spread(key) for key in self._keys()]

    def _keys(self) -> list[str]:
        keys = ("topology.kubernetes.io/zone", "rack", "kubernetes.io/hostname")
        return self.sample(keys, self.choice((1, 1, 1, 2)))

    def _toleration(self) -> Json:
        if self.maybe(0.1):
            return {"operator": "Exists"}
        found: Json = {"key": self.choice(("t1", "t2", "node.kubernetes.io/unschedulable"))}
        found |= {"operator": "Exists"} if self.maybe(0.5) else {"value": self.choice(("x", "y", ""))}
        return found | ({"effect": self.choice(("NoSchedule", "NoExecute"))} if self.maybe(0.3) else {})

    def _spread(self, key: str) -> Json:
        found: Json = {"maxSkew": self.randint(1, 2), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
        if self.maybe(0.95):
            found["labelSelector"] = self._selector()
        if self.maybe(0.2):
            found["minDomains"] = self.randint(2, 4)
        if self.maybe(0.3):
            found["nodeAffinityPolicy"] = self.choice(("Honor", "Ignore"))
        if self.maybe(0.4):
            found["nodeTaintsPolicy"] = self.choice(("Honor", "Ignore"))
        if self.maybe(0.2) and "labelSelector" in found:
            found["matchLabelKeys"] = ["rev"]
        return found

    def _selector(self) -> Json:
        return self.choice(
            (
                {"matchLabels": {"app": self.choice(APPS)}},
                {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
                {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]},
                {},
            )
        )

    def _affinity(self) -> Json:
        found: Json = {}
        if self.maybe(0.25):
            terms = [self._node_term() for _ in range(self.randint(1, 2))]
            found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        for kind, share in (("podAffinity", 0.15), ("podAntiAffinity", 0.25)):
            if self.maybe(share):
                terms = [self._pod_term() for _ in range(self.choice((1, 1, 2)))]
                found[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        return found

    def _preferred(self) -> Json:
        field, found = "preferredDuringSchedulingIgnoredDuringExecution", dict[str, Json]()
        if self.maybe(0.4):
            terms = [
                {"weight": self.randint(1, 100), "preference": self._node_term()} for _ in range(self.randint(1, 3))
            ]
            found["nodeAffinity"] = {field: [one for one in terms if one["preference"]]}
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.maybe(0.3):
                terms = [self._pod_term() for _ in range(self.randint(1, 2))]
                found[kind] = {field: [{"weight": self.randint(1, 100), "podAffinityTerm": term} for term in terms]}
        return found

    def _node_term(self) -> Json:
        found: Json = {}
        if self.maybe(0.85):
            found["matchExpressions"] = [self._expression() for _ in range(self.choice((1, 1, 2)))]
        if self.maybe(0.25):
            names = [self.choice(self.nodes)["metadata"]["name"]]
            found["matchFields"] = [{"key": "metadata.name", "operator": self.choice(("In", "NotIn")), "values": names}]
        return found

    def _expression(self) -> Json:
        key, operator = self.choice(("disk", "gen", "rack")), self.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        if self.maybe(0.3):
            return {"key": "gen", "operator": self.choice(("Gt", "Lt")), "values": [self.choice(("2", "5"))]}
        values = self.choice((["ssd"], ["1", "new"], ["r1", "r2"]))
        return {"key": key, "operator": operator, **({"values": values} if operator in {"In", "NotIn"} else {})}

    def _pod_term(self) -> Json:
        (key,) = self._keys()[:1]
        found: Json = {"topologyKey": key}
        if self.maybe(0.95):
            found["labelSelector"] = self._selector()
        if self.maybe(0.25):
            found["namespaces"] = [self.choice(self.namespaces)]
        if self.maybe(0.2):
            found["namespaceSelector"] = self.choice(({}, {"matchLabels": {"team": "one"}}))
        if self.maybe(0.15) and "labelSelector" in found:
            found[self.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
        return found


def _claim(name: str, *, once: bool) -> Json:
    spec: Json = {
        "accessModes": ["ReadWriteOncePod" if once else "ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": name}, "spec": spec}
