"""The printed kube-scheduler configuration, version by version, and the command around it."""

import json

import pytest
import yaml

from mooring.install.scheduler import TooOldError, config_api, scheduler_config
from mooring.process.settings.config import ConfigError, resolve
from tests.program import mooring


@pytest.mark.parametrize(
    ("version", "api"),
    [("v1.36.3", "v1"), ("1.25", "v1"), ("1.24.17-eks-1", "v1beta3"), ("1.22+", "v1beta2"), ("1.19", "v1beta1")],
)
def test_each_version_gets_the_newest_api_it_reads(version, api):
    """H8: the chart's v1beta2 crash-loops on 1.28 and later; ours follows the version."""
    assert config_api(version) == f"kubescheduler.config.k8s.io/{api}"


def test_what_carries_the_promise_is_in_it():
    """H8: all nodes looked at, names only, and an extender whose absence stops nobody."""
    document = scheduler_config("1.36")
    assert document["profiles"] == [{"schedulerName": "tidb-scheduler", "percentageOfNodesToScore": 100}]
    (extender,) = document["extenders"]
    assert (extender["nodeCacheCapable"], extender["ignorable"]) == (True, True)
    assert "prioritizeVerb" not in extender
    wish = scheduler_config("1.36", prefer=True)["extenders"][0]
    assert (wish["prioritizeVerb"], wish["weight"]) == ("prioritize", 10)
    old = scheduler_config("1.24")
    assert (old["percentageOfNodesToScore"], old["profiles"]) == (100, [{"schedulerName": "tidb-scheduler"}])


def test_too_old_or_not_a_version():
    """In words, naming what would be right."""
    with pytest.raises(TooOldError, match="1\\.19 is the first"):
        config_api("1.18")
    with pytest.raises(TooOldError, match="write it as"):
        config_api("latest")


def test_the_command_prints_yaml_and_json():
    """`mooring home scheduler-config` prints the same document either way; bad input is exit 2."""
    shown = mooring("home", "scheduler-config", "--k8s", "1.34")
    also = mooring("home", "scheduler-config", "--k8s", "1.34", "-o", "json")
    assert yaml.safe_load(shown.stdout) == json.loads(also.stdout) == scheduler_config("1.34")
    bad = mooring("home", "scheduler-config", "--k8s", "1.2")
    assert (bad.returncode, bad.stdout) == (2, "")


def test_status_without_a_mooring_is_could_not_look():
    """Exit 4, never 1, when nobody answers."""
    done = mooring("home", "status", "--server", "http://127.0.0.1:9")
    assert done.returncode == 4
    assert "no Mooring answers" in done.stderr


@pytest.mark.parametrize("text", ["hold-s: -1", "body-limit-mb: 0", "mode: maybe", "holds: 3"])
def test_settings_are_strict(tmp_path, text):
    """A setting that cannot be meant is refused before anything starts, naming it."""
    file = tmp_path / "mooring.yaml"
    file.write_text(f"home:\n  {text}\n")
    with pytest.raises(ConfigError, match=r"home|hold"):
        resolve({}, {}, str(file))
