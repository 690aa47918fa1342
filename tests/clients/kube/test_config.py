"""Finding the API server: kubeconfigs as people have them, and the sentences when one is wrong."""

import base64
import os
from pathlib import Path

import pytest
import yaml

from mooring.clients.kube.config import KubeconfigError, load

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


def kubeconfig(path: Path, *, current="dev", cluster=None, user=None, name="dev", **top) -> Path:
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "shop"}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user if user is not None else {"token": "t"}}],
        **top,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(body))
    return path


def test_the_current_context_is_taken(tmp_path):
    """Server, namespace and user of current-context; the source is named for people."""
    file = kubeconfig(tmp_path / "config", cluster={"server": "https://dev:6443/"})
    connection = load(file)
    assert connection.server == "https://dev:6443"
    assert connection.namespace == "shop"
    assert connection.user.token == "t"
    assert connection.source == f"context dev of {file}"
    assert connection.context == "dev", "what the page calls the cluster"


def test_paths_are_relative_to_the_file_and_data_goes_before_files(tmp_path):
    """As kubectl does it."""
    user = {"client-certificate": "pki/me.crt", "client-key": "/abs/me.key", "tokenFile": "token"}
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": PEM, "tls-server-name": "kube"}
    connection = load(kubeconfig(tmp_path / "config", user=user, cluster=cluster))
    assert connection.user.certificate.file == tmp_path / "pki/me.crt"
    assert connection.user.key.file == Path("/abs/me.key")
    assert connection.user.token_file == tmp_path / "token"
    assert connection.ca.data.startswith("-----BEGIN")
    assert connection.tls_server_name == "kube"


def test_several_files_are_merged_and_the_first_wins(tmp_path):
    """KUBECONFIG=a:missing:b: current-context from the first that has one, each entry from the first that names it."""
    a = kubeconfig(tmp_path / "a" / "config", current="", name="dev", user={"tokenFile": "token"})
    b = kubeconfig(tmp_path / "b" / "config", current="dev", name="dev", user={"token": "from b"})
    c = kubeconfig(tmp_path / "c" / "config", current="prod", name="prod")
    env = {"KUBECONFIG": f"{a}:{tmp_path}/missing:{b}:{c}", "HOME": str(tmp_path)}
    connection = load(env=env)
    assert connection.user.token_file == a.parent / "token"
    assert load(env=env, context="prod").server == "https://prod:6443"


def test_the_home_directory_comes_next_and_then_the_pod(tmp_path):
    """~/.kube/config before the service account, as kubectl does it."""
    account = tmp_path / "account"
    account.mkdir()
    for name, content in (("token", "t"), ("ca.crt", "x"), ("namespace", "mooring\n")):
        (account / name).write_text(content)
    env = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    in_pod = load(env=env, service_account_dir=account)
    assert in_pod.server == "https://[fd00::1]:443"
    assert in_pod.namespace == "mooring"
    assert in_pod.user.token_file == account / "token"
    kubeconfig(tmp_path / ".kube" / "config")
    assert load(env=env, service_account_dir=account).server == "https://dev:6443"


def test_nothing_found_says_what_would_help(tmp_path):
    """Three ways to go on, in one sentence."""
    with pytest.raises(
        KubeconfigError, match=r"--kubeconfig FILE, set KUBECONFIG, or create .*KUBERNETES_SERVICE_HOST"
    ):
        load(env={"HOME": str(tmp_path)})


def test_a_user_without_a_home_has_no_kubeconfig(monkeypatch):
    """A container's user may have neither HOME nor a line in passwd: the sentence above, no traceback."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 65532)
    with pytest.raises(KubeconfigError, match=r"create ~/\.kube/config"):
        load(env={})


def test_a_pod_without_service_account_says_so(tmp_path):
    """automountServiceAccountToken: false is the usual cause."""
    env = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(KubeconfigError, match="automountServiceAccountToken"):
        load(env=env, service_account_dir=tmp_path / "none")


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "args": ["a"]}


def test_an_exec_plugin_with_a_slash_lies_beside_the_file(tmp_path):
    """A bare name is looked up in PATH, a path is relative to the kubeconfig."""
    beside = load(kubeconfig(tmp_path / "config", user={"exec": EXEC})).user.exec
    assert beside.command == str(tmp_path / "plugin")
    assert load(kubeconfig(tmp_path / "config", user={"exec": {**EXEC, "command": "aws"}})).user.exec.command == "aws"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"current": ""}, "no current-context; set one with"),
        ({"current": "prod"}, "no context named 'prod'; there is dev"),
        ({"clusters": []}, "no cluster named 'dev'; there is none"),
        ({"users": None}, "no user named 'dev'"),
        ({"clusters": "x"}, "Expected `array | null`"),
        ({"cluster": {"server": "dev:6443"}}, "should be a URL such as https://"),
        ({"cluster": {"certificate-authority-data": "%%%"}}, "certificate-authority-data is not base64"),
        ({"cluster": {"certificate-authority-data": PEM, "insecure-skip-tls-verify": True}}, "keep one"),
        ({"user": {"client-certificate-data": PEM}}, "go together"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "use an exec plugin"),
        ({"user": {"as": "jane", "as-user-extra": {"a": ["b"]}}}, "as-user-extra is not supported"),
        ({"user": {"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}}, "should be one of"),
        ({"user": {"exec": {"apiVersion": EXEC["apiVersion"]}}}, "exec.command is missing"),
        ({"user": {"exec": {**EXEC, "interactiveMode": "Always"}}}, "asks for a terminal"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_what_would_be_right(tmp_path, changes, says):
    """Each usual mistake has its sentence, and the sentence names the file."""
    file = kubeconfig(tmp_path / "config", **changes)
    with pytest.raises(KubeconfigError) as raised:
        load(file)
    assert says in str(raised.value)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: [", b"- just\n- a list\n", b"text"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path, content):
    """Any bytes end in a ConfigError that names the file."""
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(KubeconfigError, match=str(file)):
        load(file)


def test_a_path_given_by_the_user_must_exist(tmp_path):
    """--kubeconfig with a typo is not silently replaced by another file."""
    with pytest.raises(KubeconfigError, match="cannot be read: no such file"):
        load(tmp_path / "nope", env={"HOME": str(tmp_path)})
