"""The description of a capability in one value, so that no other package has to know its name.

`capabilities/registry.py` lists them. Features, rights, limits, metrics, `why`, the read-only API, doctor and cleanup
are all made from what stands here; adding a capability touches its own package and one line of that list.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from mooring.core.model.capacity import CapacityRules
from mooring.core.model.cluster import ConfigMap, Node, Pod, Workload
from mooring.core.model.finding import Finding
from mooring.core.model.instructions import Write
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import TidbCluster

NONE: Mapping[str, Any] = MappingProxyType({})


class Right(msgspec.Struct, frozen=True, order=True):
    group: str
    resource: str
    verbs: tuple[str, ...]
    #: Only in our own namespace.
    own: bool = False
    #: Only objects of these names.
    names: tuple[str, ...] = ()

    def each(self) -> Iterable[tuple[str, str, str]]:
        """(group, resource, verb), one by one."""
        for verb in self.verbs:
            yield self.group, self.resource, verb


class Leftover(msgspec.Struct, frozen=True):
    """What a mark says was begun and is still there, and the writes that end it."""

    #: The object, and how it ends: "node n3: end the reservation".
    what: str
    #: One after the other, and none after one that failed. Empty: not ours to touch, for the reason in the words.
    writes: tuple[Write, ...] = ()


class Marked(msgspec.Struct, frozen=True):
    """The objects on which marks of ours can stand."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    clusters: tuple[TidbCluster, ...] = ()
    #: Uids of the ReplicaSets that exist.
    replica_sets: frozenset[str] = frozenset()
    #: ConfigMaps of ours (`Descriptor.objects`).
    memories: tuple[ConfigMap, ...] = ()


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A sign on a node that the node must be emptied."""

    #: What says so: "annotation vacant.io/interrupt-at", "taint karpenter.sh/disrupted".
    sign: str
    #: When the node goes, where the sign tells it.
    at: float | None = None
    #: An annotation whose text is not a time: its key, and the text.
    unread: tuple[str, str] | None = None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that an answer of `why` is about."""

    pod: Pod | None = None
    node: Node | None = None
    workload: Workload | None = None
    cluster: TidbCluster | None = None


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What the doctor has read, for the checks of one capability."""

    config: Any
    #: Is it on?
    on: bool
    clusters: tuple[TidbCluster, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    #: The time by this machine's clock.
    now: float = 0.0
    #: What a person wrote into its `settings_map`; None: there is none.
    settings: Mapping[str, str] | None = None


#: What `GET /api/v1/<name>` answers. A long one is made by a generator, which pauses now and then: admission is on the
#: same loop.
Report = Mapping[str, Any] | Generator[None, None, Mapping[str, Any]]


class NoPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a capability with nothing to set."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    #: Feature gate, section of the configuration, path of its report.
    name: str
    #: The sources that its operators carry.
    sources: tuple[str, ...]
    #: Its settings, with their defaults: the section of its name in the configuration.
    policy: type[msgspec.Struct] = NoPolicy
    #: Its settings → how nodes are told apart, where they say that.
    capacity: Callable[[Any], CapacityRules | None] = lambda _: None
    #: Configuration → the capability (`core/engine/capability.py`).
    make: Callable[[Any], Any]
    #: Kind of target → how much of it may be under way at once, and what it stands for.
    limits: Mapping[str, tuple[int | None, str]] = NONE
    #: Sources of which any number may wait.
    uncapped: tuple[str, ...] = ()
    #: What it may do in a cluster. A right stands here because it is used.
    rights: tuple[Right, ...] = ()
    #: Name of a metric → (help, labels).
    gauges: Mapping[str, tuple[str, tuple[str, ...]]] = NONE
    #: Notes by key → (metric, labels, value).
    figures: Callable[[Mapping[str, object]], Iterable[tuple[str, Mapping[str, str], float]]] = lambda _: ()
    #: (notes by key, its settings) → what it is worth, in one line of the page; "": nothing to say.
    worth: Callable[[Mapping[str, object], Any], str] | None = None
    #: Kind of operator → (what it is doing, what ends it); {it} is the object's short name.
    phrases: Mapping[str, tuple[str, str]] = NONE
    #: Operator → what ends it, where its kind alone does not tell: said of its own object, and to those behind it.
    ends: Callable[[Operator], tuple[str, str] | None] = lambda _: None
    #: (its settings, node) → every sign that it knows that the node must be emptied.
    departures: Callable[[Any, Node], Iterable[Departure]] = lambda *_: ()
    #: (reason, objects) → what to type about it: each a word and a command.
    commands: Callable[[Reason, About], Iterable[tuple[str, str]]] = lambda *_: ()
    #: What is asked of it, in two words: "a hand-over".
    request: str = "a change"
    #: Kind of object that its keys name, for links: "cluster", "machine"; "": the key says it itself.
    key_kind: str = ""
    #: Marked objects → what was begun and has not ended.
    leftovers: Callable[[Marked], Iterable[Leftover]] = lambda _: ()
    #: Annotation on StatefulSets → what it records.
    records: Mapping[str, str] = NONE
    #: Objects in our own namespace that it keeps for itself.
    objects: tuple[tuple[Kind, str], ...] = ()
    #: The ConfigMap in our own namespace with settings that a person wrote; "": none.
    settings_map: str = ""
    #: May it evict pods of kube-system?
    empties_kube_system: bool = False
    #: Other names of the feature: in the designs; and of an earlier version, understood for one release.
    aliases: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    #: What others call while it is on: "webhook" (the API server), "extender" (kube-scheduler).
    serves: tuple[str, ...] = ()
    #: What it asks besides the API server: "pd", "registry".
    asks: tuple[str, ...] = ()
    #: (engine, configuration) → what `GET /api/v1/<name>` answers; None: it has no report.
    report: Callable[[Any, Any], Report] | None = None
    #: (engine, object) → what `GET /api/v1/<name>/<object>` answers, None when there is no such object.
    detail: Callable[[Any, str], Mapping[str, Any] | None] | None = None
    #: What the doctor says of it besides rights and leftovers.
    examine: Callable[[Examined], Iterable[Finding]] = lambda _: ()
    #: The codes of those findings → what each says (docs/doctor.md has a section for each).
    codes: Mapping[str, str] = NONE
    #: A Deployment that its webhook must refuse, and a word of the refusal: offered dry, it proves that the API server
    #: reaches us.
    refused: tuple[Mapping[str, Any], str] | None = None


class Described:
    """All capabilities together, for those who may not know any by name."""

    def __init__(self, descriptors: Iterable[Descriptor] = ()) -> None:
        self.by_name = {one.name: one for one in descriptors}
        every = self.by_name.values()
        #: Kind of operator → what it is doing, and what ends it.
        self.phrases = {kind: words for one in every for kind, words in one.phrases.items()}
        #: Kind of target → its limit, and what it stands for.
        self.limits = {kind: limit for one in every for kind, limit in one.limits.items()}

    def request(self, name: str) -> str:
        return self.by_name[name].request if name in self.by_name else "a change"

    def asking(self, what: str) -> list[str]:
        """The capabilities that ask this: "pd", "registry"."""
        return [one.name for one in self.by_name.values() if what in one.asks]

    def ends(self, operator: Operator) -> tuple[str, str] | None:
        return next((said for one in self.by_name.values() if (said := one.ends(operator)) is not None), None)

    def commands(self, reason: Reason, about: About) -> list[tuple[str, str]]:
        return [command for one in self.by_name.values() for command in one.commands(reason, about)]


#: Rights that several capabilities use.
EVENTS = Right("", "events", ("create",))
POD_WRITES = (Right("", "pods", ("get", "patch", "delete")), Right("", "pods/eviction", ("create",)))
NODE_WRITES = Right("", "nodes", ("get", "patch"))
#: Certificates of the webhook, and its configurations. Not their `create`, which knows no names: the installer has made
#: them.
TLS_SECRET = "mooring-webhook-tls"  # noqa: S105
_HOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def hooks(*verbs: str) -> tuple[Right, ...]:
    """On both webhook configurations of ours."""
    return tuple(Right("admissionregistration.k8s.io", hook, verbs, names=("mooring-mix",)) for hook in _HOOKS)


WEBHOOK = (
    Right("", "secrets", ("get", "update"), own=True, names=(TLS_SECRET,)),
    Right("", "secrets", ("create",), own=True),
    *hooks("get", "update", "delete"),
)
MEMORY = Right("", "configmaps", ("get", "create", "patch"), own=True)
