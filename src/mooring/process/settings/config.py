"""Configuration: flags beat the environment beats the file beats the default; strict; each value knows its source.

The file is YAML (or JSON) with the keys below. The environment spells them `MOORING_<KEY>`, upper case. An unknown key
or a value of the wrong shape is an error that names the key, where it came from and what would be right.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from mooring.capabilities.registry import descriptor, names
from mooring.clients.registry.choose import check_url
from mooring.clients.registry.netbox import NetboxSettings
from mooring.clients.wire.document import unfolded
from mooring.core.model.exits import UserError
from mooring.core.model.windows import Window
from mooring.core.queue import live_settings
from mooring.core.queue.config import QueueConfigError, parse
from mooring.process.settings.features import OBSERVE, Switch, UnknownFeatureError, parse_features
from mooring.process.settings.keys import unknown_key

P = TypeVar("P", bound=msgspec.Struct)


class ConfigError(UserError, ValueError):
    """What is wrong, where it came from, and what would be right."""


class BlackBoxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Where what enters and leaves the engine is recorded."""

    #: The directory to record into. Not given: below the user's state directory; as installed, a volume of its own.
    #: `none`: nothing is recorded.
    dir: str = ""
    #: The most MB that all recordings in the directory take.
    size: int = 256


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The machine registry, for fleet."""

    #: Where it answers, when fleet's own settings name no URL: http://10.0.0.1:10080 (sabakan),
    #: netbox+https://netbox.example.com, or a list of machines: file:///etc/mooring/machines.yaml, https://…/machines.yaml.
    url: str = ""
    netbox: NetboxSettings = NetboxSettings()


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: The kubeconfig file; not given: KUBECONFIG, ~/.kube/config, or the pod's service account.
    kubeconfig: str = ""
    #: The context of the kubeconfig; not given: its current one.
    context: str = ""
    #: What the page calls this cluster; not given: the name of the kubeconfig's context.
    cluster_name: str = ""
    #: Mooring's own namespace: its lease, records and settings.
    namespace: str = "mooring-system"
    #: Features that are on: `handoff: true`. `observe`: it shows what it would do, and writes nothing.
    features: dict[str, bool | Literal["observe"]] = {}
    #: When housekeeping (rebalancing, balancing, return to spot) may be done: `days`, `start`, `end` and `zone` of
    #: each window. Not given: always. Deadlines and requests never wait.
    windows: tuple[Window, ...] = ()
    #: "NS/CLUSTER" → endpoints, where PD is not found by its service name.
    pd: dict[str, tuple[str, ...]] = {}
    #: "HOST:PORT" patterns that the annotation mooring.dev/pd-endpoints may name besides a cluster's own Service.
    pd_hosts: tuple[str, ...] = ()
    #: "HOST:PORT" patterns that the annotation mooring.dev/leaders-endpoint may name besides Services of its namespace.
    leader_hosts: tuple[str, ...] = ()
    #: "NS/CLUSTER" → the Secret of its namespace with tls.crt, tls.key and ca.crt for a PD over TLS. Not given:
    #: CLUSTER-cluster-client-secret, as tidb-operator has it.
    pd_client_secrets: dict[str, str] = {}
    #: Where sabakan, the machine registry, answers. For fleet. The older spelling of `registry.url`.
    sabakan_url: str = ""
    #: Where the scheduler extender listens. Only while home is on. Off loopback, callers need one of the next two.
    listen_extender: str = "127.0.0.1:10262"
    #: The token that schedulers send: http://mooring:TOKEN@HOST:10262/scheduler.
    extender_token: str = ""
    #: A directory with tls.crt, tls.key and ca.crt: HTTPS, only for schedulers with a certificate of ca.crt.
    extender_certificates: str = ""
    #: Where the admission webhooks listen. Only while mix is on.
    listen_webhook: str = ":9443"
    #: Outside a cluster: the URL by which the API server reaches the webhooks.
    webhook_url: str = ""
    #: Inside a cluster: the Service by which the API server reaches the webhooks.
    webhook_service: str = "mooring-webhook"
    #: A directory with tls.crt, tls.key and ca.crt (cert-manager). Not given: the leader issues and rotates them.
    webhook_certificates: str = ""
    #: A file with the authorities of API servers' client certificates: no other client may request an admission.
    webhook_client_ca: str = ""
    #: The address at which other replicas reach this one; not given: that of the interface to the API server.
    advertise_address: str = ""
    #: Where the page, the API and the metrics listen: HOST:PORT[,HOST:PORT…]. HTTP on loopback, HTTPS elsewhere.
    listen_http: str = "127.0.0.1:8390"
    #: The token that every reader must send when the page is not on loopback alone.
    http_token: str = ""
    #: A directory with tls.crt and tls.key, for HTTPS. Not given: each replica makes a self-signed certificate.
    http_certificates: str = ""
    #: debug, info, warning or error.
    log_level: str = "info"
    #: console, json, or auto: console on a terminal, else json.
    log_format: str = "auto"
    #: The name of the Lease that the leader holds.
    lease_name: str = "mooring"
    #: A follower takes over when the lease was not renewed for this long.
    lease_s: int = 10
    #: A leader that could not renew for this long stops writing.
    renew_s: float = 7.0
    #: How often the lease is renewed, and how often a follower reads it.
    retry_s: float = 2.0
    #: What is not the default of any capability. In a file each has a section of its name, of the type that its
    #: descriptor names.
    policies: tuple[msgspec.Struct, ...] = ()
    blackbox: BlackBoxSettings = BlackBoxSettings()
    registry: RegistrySettings = RegistrySettings()
    #: The queue's five settings, as in `mooring queue replay --config`.
    queue: dict[str, Any] = {}

    def on(self) -> frozenset[str]:
        return frozenset(name for name, on in self.features.items() if on is True)

    def observing(self) -> frozenset[str]:
        """The features that decide and do nothing."""
        return frozenset(name for name, on in self.features.items() if on == OBSERVE)

    def registry_settings(self) -> RegistrySettings:
        """With `sabakan-url` as its URL, where it has none of its own."""
        return msgspec.structs.replace(self.registry, url=self.registry.url or self.sabakan_url)

    def policy(self, kind: type[P]) -> P:
        """The settings of the capability that has settings of this type."""
        return next((one for one in self.policies if isinstance(one, kind)), None) or kind()


#: Keys that may be given as plain text (flags, environment); the nested ones only in the file.
SCALARS: Final = tuple(
    f.encode_name
    for f in msgspec.structs.fields(Config)
    if f.name not in {"pd", "pd_hosts", "leader_hosts", "pd_client_secrets", "policies", "blackbox", "queue", "windows"}
)
ENVIRONMENT: Final = "MOORING_"
#: As the directory: nothing is recorded.
NO_BLACKBOX: Final = "none"
#: What a write to the API server takes at most (`kube.api`, which is too heavy to be read for this).
WRITE_S: Final = 2.5
#: The only key of a mapping that stands in a file of its own.
FROM_FILE: Final = "from-file"


class Resolved(msgspec.Struct, frozen=True):
    config: Config
    #: key → "flag --x", "environment MOORING_X", "file P" or "default".
    sources: dict[str, str]
    warnings: list[str]


@cache
def file_shape(sections: tuple[str, ...], read: tuple[str, ...]) -> type[msgspec.Struct]:
    """What a file may hold: the fields of Config, and in the place of `policies` a section for each capability. Only
    the sections in `read` can be read: describing a capability loads all of it."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(Config):
        if field.name == "policies":
            types = {name: descriptor(name).policy for name in read}
            fields += [(name, types.get(name), types.get(name, lambda: None)()) for name in sections]
        else:
            fields.append((field.name, field.type, getattr(Config(), field.name)))
    return msgspec.defstruct("Settings", fields, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab")


def from_file(values: Mapping[str, Any]) -> Config:
    """The configuration that a file with these values is; `msgspec.ValidationError` where it is none."""
    read = _sections(values)
    whole = msgspec.convert(values, file_shape(names(), read))
    mine = {field.name: getattr(whole, field.name) for field in _own_fields()}
    given = (getattr(whole, name) for name in read)
    return Config(**mine, policies=tuple(policy for policy in given if policy != type(policy)()))


def written_out(config: Config) -> msgspec.Struct:
    """All settings, in the shape of the file."""
    mine = {field.name: getattr(config, field.name) for field in _own_fields()}
    policies = {name: config.policy(descriptor(name).policy) for name in names()}
    return file_shape(names(), names())(**mine, **policies)


def _own_fields() -> list[Any]:
    return [field for field in msgspec.structs.fields(Config) if field.name != "policies"]


def _sections(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in names() if name in values)


def resolve(
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    file: str = "",
    pd: tuple[str, ...] = (),
) -> Resolved:
    """One configuration out of all places. `flags` has the kebab-case keys; None and "" mean: not given."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {f.encode_name: "default" for f in msgspec.structs.fields(file_shape(names(), ()))}
    warnings: list[str] = []
    if file:
        _merge(values, _read(file), sources, f"file {file}")
    _merge(values, _of_environment(environment), sources, "environment")
    kept = values.get("blackbox", {})
    _merge(values, {k: v for k, v in flags.items() if v}, sources, "flag")
    if isinstance(where := values.get("blackbox"), str):  # the flag names the directory alone
        values["blackbox"] = {**kept, "dir": where} if isinstance(kept, dict) else kept
    if isinstance(values.get("features"), str):
        try:
            values["features"], warnings = parse_features(values["features"])
        except UnknownFeatureError as error:
            raise ConfigError(f"{sources['features']}: {error}") from None
    elif isinstance(values.get("features"), dict):
        values["features"], warnings = _features_of_file(values["features"], sources["features"])
    if pd:
        named = _endpoints(pd)
        # A file's `pd` of another shape stays as it is, for the conversion below to name.
        if isinstance(values.setdefault("pd", {}), dict):
            values["pd"] = {**values["pd"], **named}
            sources["pd"] = "flag --pd"
    for key in ("lease-s", "renew-s", "retry-s"):
        if isinstance(values.get(key), str):
            number = _number(values[key], key, sources[key])
            values[key] = int(number) if number.is_integer() else number
    try:
        config = from_file(values)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error} ({_blame(str(error), sources)})") from None
    _check(config)
    return Resolved(config, sources, warnings)


def recorded(config: Config, environment: Mapping[str, str]) -> Config:
    """Where a running Mooring records unless it is told."""
    where = config.blackbox.dir
    if not where:
        home = environment.get("HOME", "")
        state = environment.get("XDG_STATE_HOME", "") or (f"{home}/.local/state" if home else "")
        where = f"{state}/mooring/blackbox" if state else NO_BLACKBOX
    named = msgspec.structs.replace(config.blackbox, dir="" if where == NO_BLACKBOX else where)
    return msgspec.structs.replace(config, blackbox=named)


def _merge(values: dict[str, Any], new: Mapping[str, Any], sources: dict[str, str], where: str) -> None:
    for key, value in new.items():
        values[key] = value
        match where:
            case "environment":
                sources[key] = f"environment {ENVIRONMENT}{key.upper().replace('-', '_')}"
            case "flag":
                sources[key] = f"flag --{key}"
            case _:
                sources[key] = where


def _read(file: str) -> dict[str, Any]:
    raw, value = _yaml(file, f"--config {file}")
    if wrong := unknown_key(raw.decode(errors="replace"), file_shape(names(), _sections(value)), file):
        raise ConfigError(wrong)
    return {key: _with_tables(one, Path(file)) for key, one in value.items()}


def _yaml(file: str | Path, shown: str) -> tuple[bytes, dict[str, Any]]:
    try:
        raw = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{shown}: {error.strerror or error}; give a readable YAML or JSON file") from None
    try:
        # The loader in C is quicker, but ends the process where brackets nest without end.
        value = unfolded(yaml.safe_load(raw))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{shown}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict | None):
        raise ConfigError(f"{shown}: must be a mapping of settings, this is a {type(value).__name__}")
    return raw, value or {}


def _with_tables(value: Any, file: Path) -> Any:
    """In the place of a mapping `{from-file: PATH}` stands what that file holds, beside this one: a table of prices is
    as long as a cloud's list of machines."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {FROM_FILE}:
        return _yaml(file.parent / str(value[FROM_FILE]), f"{file}: {FROM_FILE} {value[FROM_FILE]}")[1]
    return {key: _with_tables(one, file) for key, one in value.items()}


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    names = {f"{ENVIRONMENT}{key.upper().replace('-', '_')}": key for key in SCALARS}
    return {names[name]: value for name, value in environment.items() if name in names and value}


def _features_of_file(features: Mapping[str, Any], source: str) -> tuple[dict[str, Switch], list[str]]:
    text = ",".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in features.items())
    try:
        return parse_features(text)
    except UnknownFeatureError as error:
        raise ConfigError(f"{source}: {error}") from None


def _endpoints(given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for item in given:
        cluster, equals, urls = item.partition("=")
        if not equals or "/" not in cluster or not urls:
            raise ConfigError(f"--pd {item}: write NAMESPACE/CLUSTER=URL[,URL…], e.g. tidb/demo=http://127.0.0.1:2379")
        found[cluster] = tuple(filter(None, (u.strip() for u in urls.split(","))))
    return found


def _number(text: str, key: str, source: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{source}: {key} is {text!r}; must be a number of seconds") from None


def _check(config: Config) -> None:
    if not 0 < config.retry_s < config.renew_s < config.lease_s:
        raise ConfigError(
            f"0 < retry-s {config.retry_s:g} < renew-s {config.renew_s:g} < lease-s {config.lease_s:g} must hold, "
            "or two replicas could lead at once"
        )
    if not config.lease_s - config.renew_s > WRITE_S:
        raise ConfigError(
            f"lease-s {config.lease_s:g} − renew-s {config.renew_s:g} must be more than {WRITE_S:g} s: "
            "a write may take as long, and must have ended before another replica leads"
        )
    try:
        parse(config.queue, live_settings())
    except QueueConfigError as error:
        raise ConfigError(f"queue: {error}") from None
    if config.blackbox.size < 1:
        raise ConfigError(f"blackbox.size is {config.blackbox.size}; must be a number of MB, e.g. 256")
    if config.log_level not in {"debug", "info", "warning", "error"}:
        raise ConfigError(f"log-level is {config.log_level!r}; one of debug, info, warning, error")
    for key in ("listen-extender", "listen-webhook", "listen-http"):
        (host_ports if key == "listen-http" else host_port)(getattr(config, key.replace("-", "_")), key)
    if not is_namespace(config.namespace):
        raise ConfigError(f"namespace is {config.namespace!r}; small letters, digits and -, e.g. mooring-system")
    if config.webhook_client_ca and not Path(config.webhook_client_ca).is_file():
        raise ConfigError(
            f"webhook-client-ca is {config.webhook_client_ca!r}; must be a readable file with certificates"
        )
    if config.sabakan_url:
        _url(config.sabakan_url, "sabakan-url", ("http", "https"), "http://10.0.0.1:10080")
    if config.registry.url:
        try:
            check_url(config.registry.url)
        except ValueError as error:
            raise ConfigError(f"registry.url: {error}") from None
    if config.webhook_url:
        _url(config.webhook_url, "webhook-url", ("https",), "https://127.0.0.1:9443")
    for cluster, urls in config.pd.items():
        for url in urls:
            _url(url, f"pd of {cluster}", ("http", "https"), "http://127.0.0.1:2379")


def is_namespace(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", name) is not None


def _url(url: str, key: str, schemes: tuple[str, ...], example: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        wanted = "an https://" if schemes == ("https",) else "an http:// or https://"
        raise ConfigError(f"{key} is {url!r}; write {wanted} address, e.g. {example}")


def host_ports(addresses: str, key: str) -> list[tuple[str, int]]:
    return [host_port(address.strip(), key) for address in addresses.split(",")]


def host_port(address: str, key: str) -> tuple[str, int]:
    """`127.0.0.1:10262`, `:9443` (all interfaces), `[::1]:80`, `::1:80`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > 5 or not 0 <= int(port) < 65536:
        raise ConfigError(f"{key} is {address!r}; write HOST:PORT, e.g. 127.0.0.1:8390")
    return host.strip("[]") or "0.0.0.0", int(port)


def _blame(message: str, sources: Mapping[str, str]) -> str:
    for key, source in sources.items():
        if f"$.{key}" in message or f"`{key}`" in message:
            return f"from {source}"
    return "an unknown key comes from the file: the known ones are " + ", ".join(sorted(sources))
