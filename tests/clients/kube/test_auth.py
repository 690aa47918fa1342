"""Credentials that rotate, expire and are refused."""

import datetime as dt
import stat
import sys
from pathlib import Path

import pytest

from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.kube.auth import REREAD_S, Credential, Credentials, tls_context
from mooring.clients.kube.config import Connection, Exec, KubeconfigError, Pem, User
from mooring.clients.ports import RefusedError

V1 = "client.authentication.k8s.io/v1"


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def plugin(directory: Path, body: str, **more) -> Exec:
    program = directory / "plugin"
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Exec(command=str(program), api_version=V1, **more)


def connection(user: User, server: str = "https://127.0.0.1:6443") -> Connection:
    return Connection(server=server, user=user, source="context test")


def answering(status: dict) -> str:
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    return f"print(json.dumps({answer!r}))"


async def test_a_token_file_is_read_again_after_a_minute(tmp_path):
    """In-cluster tokens rotate: the new one is used within a minute, and not a file is read per request."""
    file, time = tmp_path / "token", Time()
    file.write_text("one\n")
    credentials = Credentials(connection(User(token_file=file)), monotonic=time)
    first = await credentials.current()
    file.write_text("two\n")
    assert await credentials.current() is first
    assert first.authorization == "Bearer one"
    time.now += REREAD_S
    assert (await credentials.current()).authorization == "Bearer two"


async def test_an_unchanged_file_keeps_the_connection(tmp_path):
    """The same credential stays the same object: connections and TLS sessions hang on it."""
    file, time = tmp_path / "token", Time()
    file.write_text("one")
    credentials = Credentials(connection(User(token_file=file)), monotonic=time)
    first = await credentials.current()
    time.now += REREAD_S
    assert await credentials.current() is first


async def test_a_401_throws_the_token_away_and_asks_once_more(script, tmp_path):
    """A token that expired early costs one more request, not an error; a second 401 is the answer."""
    file = tmp_path / "token"
    file.write_text("old")
    credentials = Credentials(connection(User(token_file=file)))
    async with HttpKubeApi(Connection(server=script.url), credentials=credentials) as api:
        await credentials.current()
        file.write_text("new")
        script.answer(401).answer(200, b"ok")
        assert await api.raw("GET", "/readyz") == "ok"
        assert [h["Authorization"] for h in script.headers] == ["Bearer old", "Bearer new"]
        script.answer(401).answer(401)
        with pytest.raises(RefusedError, match="does not accept these credentials"):
            await api.raw("GET", "/readyz")


@pytest.mark.parametrize("content", [None, "  \n"])
async def test_a_missing_or_empty_token_file_is_named(tmp_path, content):
    """The sentence names the file."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(KubeconfigError, match=f"token file {file}"):
        await Credentials(connection(User(token_file=file))).current()


async def test_a_plugin_is_asked_again_before_its_answer_expires(tmp_path):
    """Kept while good, asked again half a minute before the end."""
    count = tmp_path / "count"
    expires = dt.datetime.fromtimestamp(1_000_000 + 300, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = f"open({str(count)!r}, 'a').write('x')\n" + answering({"token": "t", "expirationTimestamp": expires})
    time = Time()
    user = User(exec=plugin(tmp_path, body))
    credentials = Credentials(connection(user), monotonic=time, wall=lambda: 1_000_000.0)
    assert (await credentials.current()).authorization == "Bearer t"
    time.now += 269
    await credentials.current()
    assert count.read_text() == "x"
    time.now += 2
    await credentials.current()
    assert count.read_text() == "xx"


async def test_a_plugin_gets_its_arguments_environment_and_the_cluster(tmp_path):
    """KUBERNETES_EXEC_INFO, env and args arrive; the cluster only when the plugin asked for it."""
    body = "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
    body += "token = sys.argv[1] + os.environ['EXTRA'] + info['spec']['cluster']['server'] + info['apiVersion']\n"
    body += (
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', 'status': {'token': token}}))"
    )
    user = User(exec=plugin(tmp_path, body, args=("a",), env=(("EXTRA", "b"),), provide_cluster_info=True))
    current = await Credentials(connection(user)).current()
    assert current.authorization == f"Bearer abhttps://127.0.0.1:6443{V1}"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sys.exit('log in first')", "exit code 1: log in first"),
        ("print('hello')", "not an ExecCredential"),
        (answering({}), "neither a token nor a certificate"),
        ("print(json.dumps({'apiVersion': 'v2', 'kind': 'ExecCredential'}))", "was asked for"),
    ],
)
async def test_what_a_plugin_does_wrong_is_said(tmp_path, body, says):
    """One sentence with the plugin's name and its own last words."""
    with pytest.raises(KubeconfigError, match=says) as raised:
        await Credentials(connection(User(exec=plugin(tmp_path, body)))).current()
    assert str(tmp_path / "plugin") in str(raised.value)


async def test_a_plugin_that_is_not_installed_says_how_to(tmp_path):
    """The kubeconfig's own hint is passed on."""
    missing = Exec(command=str(tmp_path / "nope"), api_version=V1, install_hint="brew install nope")
    with pytest.raises(KubeconfigError, match=r"no such file or directory; install it .* brew install nope"):
        await Credentials(connection(User(exec=missing))).current()


def test_tls_says_what_is_wrong_with_certificates():
    """Rubbish in place of a CA or of a client certificate is one sentence, not an SSL error later."""
    with pytest.raises(KubeconfigError, match="certificate authority of context test"):
        tls_context(Connection(server="https://x", ca=Pem(data="rubbish"), source="context test"), Credential())
    with pytest.raises(KubeconfigError, match="client certificate of context test"):
        tls_context(
            Connection(server="https://x", source="context test"), Credential(certificate_pem="no", key_pem="no")
        )


def test_plain_http_needs_no_tls():
    """`kubectl proxy` and the sandbox's facade speak plain HTTP."""
    assert tls_context(Connection(server="http://127.0.0.1:8001"), Credential()) is None


async def test_user_and_password_become_basic_authentication():
    """Some proxies in front of API servers still ask for it."""
    current = await Credentials(connection(User(username="a", password="b"))).current()
    assert current.authorization == "Basic YTpi"
