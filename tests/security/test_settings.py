"""Secrets in no output, and a finding for every setting that leaves a way in."""

import pytest

from mooring.cli.output import note, print_table
from mooring.cli.run import run
from mooring.install.doctor.safety import unsafe
from mooring.process.settings.config import Config


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        ("MO803", {"listen_http": "0.0.0.0:8390"}),
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
