"""Settings: flags beat the environment beats the file; strict; each value knows where it came from."""

import msgspec
import pytest

from mooring.capabilities.registry import descriptor, names
from mooring.process.settings.config import Config, ConfigError, host_port, recorded, resolve, written_out
from mooring.process.settings.features import UnknownFeatureError, parse_features
from mooring.process.settings.keys import settings


def test_flags_beat_environment_beat_file_beat_default(tmp_path):
    """One value per key, and its source with it."""
    file = tmp_path / "mooring.yml"
    file.write_text("namespace: from-file\nlisten-http: 127.0.0.1:1\nsabakan-url: http://file\n")
    resolved = resolve(
        {"namespace": "from-flag"}, {"MOORING_NAMESPACE": "from-env", "MOORING_LISTEN_HTTP": "127.0.0.1:2"}, str(file)
    )
    assert resolved.config.namespace == "from-flag"
    assert resolved.config.listen_http == "127.0.0.1:2"
    assert resolved.config.sabakan_url == "http://file"
    assert resolved.sources["namespace"] == "flag --namespace"
    assert resolved.sources["listen-http"] == "environment MOORING_LISTEN_HTTP"
    assert resolved.sources["sabakan-url"] == f"file {file}"
    assert resolved.sources["lease-name"] == "default"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense: 1\n", "nonsense"),
        ("handoff:\n  recheck: 3\n", "recheck"),
        ("lease-s: 5\nrenew-s: 7\n", "must hold"),
        ("retry-s: 0\n", "0 < retry-s 0"),
        ("lease-s: 10\nrenew-s: 8\n", "2.5 s"),
        ("queue: {MaxScheduleCost: -5}\n", "queue: MaxScheduleCost is -5"),
        ("queue: {Nonsense: 1}\n", "queue: unknown setting 'Nonsense'"),
        ("fleet: {query-s: 0}\n", "fleet.query-s"),
        ("fleet: {recheck-s: -1}\n", "fleet.recheck-s"),
        ("fleet: {retire-hold-s: .nan}\n", "fleet.retire-hold-s"),
        ("fleet: {history: 0}\n", "fleet.history"),
        ("mix: {rebalance: {look-again-s: 0}}\n", "mix.rebalance.look-again-s"),
        ("mix: {rebalance: {at-once: -1}}\n", "mix.rebalance.at-once"),
        ("balance: {recheck-s: 0}\n", "balance.recheck-s"),
        ("- a\n", "mapping"),
        ("a: [\n", "not YAML"),
        ("a: 2026-02-30\n", "not YAML"),
        ("a: " + "9" * 5000, "not YAML"),
        ("listen-http: nowhere\n", "HOST:PORT"),
        ("log-level: loud\n", "one of debug"),
        ("features: {mix: perhaps}\n", "write mix=true, mix=observe or mix=false"),
        ("windows: [{zone: Mars}]\n", "zone 'Mars'"),
        ("windows: [{start: 7pm}]\n", "write HH:MM"),
        ("namespace: Bad Name\n", "namespace is 'Bad Name'"),
        ("sabakan-url: nonsense\n", "sabakan-url is 'nonsense'"),
        ("sabakan-url: 'http://'\n", "sabakan-url is 'http://'"),
        ("webhook-url: http://127.0.0.1:9443\n", "webhook-url is 'http://127.0.0.1:9443'; write an https://"),
        ("webhook-url: 'https://[::1'\n", "webhook-url"),
        ("pd: {tidb/demo: [ftp://pd]}\n", "pd of tidb/demo is 'ftp://pd'"),
        ("pd: [a]\n", "object"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(tmp_path, text, says):
    """Unknown keys and bad values refuse to start, naming the place."""
    file = tmp_path / "mooring.yml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        resolve({}, {}, str(file))


def numbers(shape, path):
    """The path of every setting that is a number, below this one."""
    for field in msgspec.inspect.type_info(shape).fields:
        here = (*path, field.encode_name)
        if isinstance(field.type, msgspec.inspect.StructType):
            yield from numbers(field.type.cls, here)
        elif isinstance(field.type, msgspec.inspect.IntType | msgspec.inspect.FloatType):
            yield here


NUMBERS = [path for name in names() for path in numbers(descriptor(name).policy, (name,))]
#: Where a zero would be a busy loop, fail every attempt, or call every node lost.
NOT_ZERO = {
    "ready-within-s", "pause-s", "longest-pause-s", "return-every-s", "look-again-s", "at-once", "reservation-s",
    "lost-after-s", "split-above-mib", "hot-ratio", "most-regions", "silent-after-s", "recheck-s", "idle-s",
    "regions-every-s", "regions-at-most-every-s", "query-s", "retire-hold-s", "history", "body-limit-mb",
    "timeout-s", "heartbeat-s", "renew-s",
}  # fmt: skip


@pytest.mark.parametrize("path", NUMBERS, ids=".".join)
def test_a_number_that_cannot_be_is_refused_by_name(tmp_path, path):
    """Settings are validated when read: no negative number, no `.nan`, and no zero where it makes no sense."""
    file = tmp_path / "mooring.yml"
    for value in ("-1", ".nan", *(("0",) if path[-1] in NOT_ZERO else ())):
        file.write_text("{" + ": {".join((*path[:-1], f"{path[-1]}: {value}")) + "}" * len(path))
        with pytest.raises(ConfigError, match=rf"{path[-1]}"):
            resolve({}, {}, str(file))


@pytest.mark.parametrize("raw", [b"\xff\xfe\xfa", b"[" * 100_000])
def test_a_file_that_is_no_text_is_a_sentence(tmp_path, raw):
    """Bytes of another kind, and brackets without end, are named as what they are."""
    file = tmp_path / "mooring.yml"
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match="not YAML"):
        resolve({}, {}, str(file))


def test_a_flag_beside_a_file_of_the_wrong_shape(tmp_path):
    """The file is blamed for what the file says, whatever the flags add."""
    file = tmp_path / "mooring.yml"
    file.write_text("pd: [a]\n")
    with pytest.raises(ConfigError, match="object"):
        resolve({}, {}, str(file), ("tidb/demo=http://127.0.0.1:2379",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "namespace: x\nhandoff:\n  prove-s: 2\n  recheck_s: 5\n",
            ":4: unknown setting 'handoff.recheck_s'; did you mean handoff.recheck-s?",
        ),
        ("balance: {pause_s: 5}\n", ":1: unknown setting 'balance.pause_s'; did you mean balance.pause-s?"),
        ("\nfeature: {}\n", ":2: unknown setting 'feature'; did you mean features?"),
        (
            "mix:\n  interruption:\n    margin_s: 5\n",
            ":3: unknown setting 'mix.interruption.margin_s'; did you mean mix.interruption.margin-s?",
        ),
    ],
)
def test_an_unknown_key_is_said_with_file_line_and_nearest_name(tmp_path, text, says):
    """One spelling, kebab-case: the former `recheck_s` is refused with the name that is right."""
    file = tmp_path / "mooring.yml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        resolve({}, {}, str(file))
    assert str(raised.value) == f"{file}{says}"


def keys_of(struct, prefix=""):
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        yield f"{prefix}{field.encode_name}"
        if isinstance(value, msgspec.Struct):
            yield from keys_of(value, f"{prefix}{field.encode_name}.")


def test_every_setting_is_kebab_case():
    """`query-s` and `recheck_s` stood side by side."""
    assert [key for key in keys_of(written_out(Config())) if "_" in key] == []


def test_every_setting_is_shown_with_its_source_and_no_secret(tmp_path):
    """`mooring config`: value, source, whether it follows; tokens and passwords in addresses are never printed."""
    file = tmp_path / "mooring.yml"
    file.write_text("handoff: {prove-s: 2}\nsabakan-url: http://user:hunter2@10.0.0.1:10080\n")
    resolved = resolve({"features": "mix=true"}, {"MOORING_HTTP_TOKEN": "hunter2"}, str(file))
    found = {one.key: one for one in settings(written_out(resolved.config), resolved.sources)}
    assert "hunter2" not in str(found)
    assert found["http-token"].value == "(set, not shown)"
    assert found["sabakan-url"].value == "http://…@10.0.0.1:10080"
    assert (found["handoff.prove-s"].value, found["handoff.prove-s"].source) == (2.0, f"file {file}")
    assert found["handoff.recheck-s"].source == "default"
    sections = {key.partition(".")[0] for key, one in found.items() if one.follows}
    assert sections == {"features", "queue", "windows", *names()}


def test_a_table_stands_in_a_file_of_its_own(tmp_path):
    """M12: prices by instance type are long; `from-file` names their file, beside the settings. A file that is missing
    or holds something else is named."""
    file, table = tmp_path / "mooring.yml", tmp_path / "prices.yml"
    file.write_text("mix: {prices: {currency: USD, types: {from-file: prices.yml}}}")
    table.write_text("m7i.large: {on-demand: 0.1008, spot: 0.0381}\n")
    prices = resolve({}, {}, str(file)).config.policy(descriptor("mix").policy).prices
    assert (prices.types["m7i.large"].on_demand, prices.types["m7i.large"].spot) == (0.1008, 0.0381)
    for text, says in (("- 1", "from-file prices.yml: must be a mapping"), ("m7i.large: 7", "Expected `object`")):
        table.write_text(text)
        with pytest.raises(ConfigError, match=says):
            resolve({}, {}, str(file))
    table.unlink()
    with pytest.raises(ConfigError, match=r"from-file prices.yml: No such file"):
        resolve({}, {}, str(file))


def test_a_missing_file_is_a_sentence():
    with pytest.raises(ConfigError, match="give a readable"):
        resolve({}, {}, "/nowhere/mooring.yml")


def test_features_are_off_unless_set_and_the_designs_name_is_accepted():
    """H4: `StableScheduling=true` switches home on; tidb-operator's gates are ignored with a warning."""
    assert Config().on() == frozenset()
    switches, warnings = parse_features("StableScheduling=true, mix=F ,VolumeModifying=true")
    assert switches == {"home": True, "mix": False}
    assert warnings == ["feature VolumeModifying belongs to tidb-operator and is ignored"]


def test_a_contradiction_is_refused():
    """H4: the design's name and ours are one feature, which is on or off."""
    assert parse_features("StableScheduling=true,home=1")[0] == {"home": True}
    with pytest.raises(UnknownFeatureError, match="home=false contradicts home=true"):
        parse_features("StableScheduling=true,home=false")


@pytest.mark.parametrize("text", ["home", "home=yes", "Home=true", "=true"])
def test_a_bad_feature_list_is_refused_whole(text):
    """H4: all or nothing, naming the allowed ones."""
    with pytest.raises(UnknownFeatureError):
        parse_features(text)


def test_pd_endpoints_are_given_per_cluster():
    resolved = resolve({}, {}, "", ("tidb/demo=http://127.0.0.1:2379,http://127.0.0.1:2381",))
    assert resolved.config.pd == {"tidb/demo": ("http://127.0.0.1:2379", "http://127.0.0.1:2381")}


def test_addresses():
    assert host_port(":9443", "x") == ("0.0.0.0", 9443)
    assert host_port("[::1]:80", "x") == ("::1", 80)


def test_the_former_feature_name_is_understood_with_a_warning():
    """H4 in spirit: `traffic` was the name of `balance` and stays an alias for one release."""
    switches, warnings = parse_features("traffic=true")
    assert switches == {"balance": True}
    assert warnings == ["feature traffic is called balance now; the former name will be removed"]


@pytest.mark.parametrize(
    ("flag", "environment", "found"),
    [
        ("", {"HOME": "/home/ann"}, "/home/ann/.local/state/mooring/blackbox"),
        ("", {"HOME": "/home/ann", "XDG_STATE_HOME": "/state"}, "/state/mooring/blackbox"),
        ("", {}, ""),
        ("none", {"HOME": "/home/ann"}, ""),
        ("/box", {"HOME": "/home/ann"}, "/box"),
    ],
)
def test_a_running_mooring_records_by_default(flag, environment, found):
    """Issue 23: below the state directory of the user, or where it is told; `none` switches it off."""
    config = recorded(resolve({"blackbox": flag}, environment).config, environment)
    assert (config.blackbox.dir, config.blackbox.size) == (found, 256)


def test_only_mooring_run_records_by_default():
    """A rehearsal or a clean-up reads the same settings, and leaves nothing in the state directory."""
    assert resolve({}, {"HOME": "/home/ann"}).config.blackbox.dir == ""
