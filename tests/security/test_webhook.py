"""Admission reviews that the API server did not send, and callers that are no replica of ours."""

import datetime as dt
import ssl
import time

import aiohttp
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from mooring.capabilities.mix.admission.reviews import BadReviewError, eviction_request, pod_request
from mooring.clients.x509 import issue_authority, issue_leaf, name, new_key, pem, private_pem
from mooring.process.admission import reviewer
from mooring.process.admission.certificates import Material, advance
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.admission.server import LARGEST, LeaderForwarder, WebhookServer
from mooring.process.http.intake import BodyIntake
from tests.process.http.test_webhook import Stand, pod_review, serving

BOTH = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
YEAR = dt.timedelta(days=365)


class Issuer:
    """cert-manager, say: an authority that vouches for many."""

    def __init__(self, called: str = "everybody's issuer") -> None:
        self.key, self.now = new_key(), dt.datetime.now(dt.UTC)
        self.authority = issue_authority(name(called), self.key, self.now, YEAR)

    def leaf(self, *hosts: str, more: x509.GeneralName | None = None) -> Material:
        key = new_key()
        leaf = issue_leaf(name(hosts[0]), key, self.authority, self.key, self.now, YEAR, usages=BOTH, hosts=hosts)
        if more is not None:
            names = x509.SubjectAlternativeName([*map(x509.DNSName, hosts), more])
            subject, since, until = leaf.subject, leaf.not_valid_before_utc, leaf.not_valid_after_utc
            builder = x509.CertificateBuilder(self.authority.subject, subject, key.public_key(), 7, since, until)
            usage = x509.ExtendedKeyUsage(BOTH)
            leaf = builder.add_extension(names, False).add_extension(usage, False).sign(self.key, hashes.SHA256())
        return Material((pem(self.authority),), pem(leaf), private_pem(key))


def shown(material: Material) -> ssl.SSLContext:
    front = ReloadingTls()
    front.swap(material)
    assert front.client is not None
    front.client.check_hostname = False
    return front.client


async def test_an_owner_of_another_namespace_takes_no_slot():
    """A forged review, or a pod created with another namespace's ReplicaSet as its owner: admitted, and not counted."""
    stand = Stand(advance(None, ["127.0.0.1"], time.time()))
    async with serving(stand):
        stand.deployment()
        review = pod_review()
        review["request"]["namespace"] = "tenant"
        assert "patch" not in await stand.admit(review)
        assert stand.notes.outcomes == ["not-managed"]
        assert "patch" in await stand.admit(pod_review())


async def test_replicas_with_certificates_of_cert_manager_pass_on_and_others_of_its_issuer_do_not():
    """The Service's own name is what replicas know each other by; another leaf of the issuer is a stranger."""
    issuer = Issuer()
    ours = issuer.leaf("mooring-webhook.mooring-system.svc", "mooring-webhook.mooring-system.svc.cluster.local")
    leader, follower = Stand(ours), Stand(ours, leads=False)
    leader.deployment()
    async with serving(leader), serving(follower):
        forward = follower.reviewer.pass_on = LeaderForwarder(follower.front, lambda: f"127.0.0.1:{leader.server.port}")
        follower.trust = shown(ours)
        assert "patch" in await follower.admit(pod_review())
        assert follower.notes.outcomes == ["passed-on"]
        await forward.close()
        another = x509.UniformResourceIdentifier("mooring-webhook.mooring-system.svc")
        for stranger in (issuer.leaf("app.tenant.svc"), issuer.leaf("app.tenant.svc", more=another)):
            status, _ = await leader.post("/pass-on/pods", pod_review("request-2"), ssl=shown(stranger))
            assert status == 403, "an issuer that checks host names may let any URI pass"


async def test_only_the_api_server_may_ask_where_its_certificate_is_known():
    """webhook-client-ca: without a certificate of it nobody asks for an admission."""
    material, servers = advance(None, ["127.0.0.1"], time.time()), Issuer()
    stand = Stand(material)
    stand.front = ReloadingTls(pem(servers.authority))
    stand.front.swap(material)
    stand.server = WebhookServer(stand.reviewer, stand.front, "127.0.0.1", 0)
    stand.deployment()
    async with serving(stand):
        status, said = await stand.post("/admit/pods", pod_review())
        assert (status, "webhook-client-ca" in said) == (403, True)
        known = servers.leaf("kube-apiserver")
        trust = ReloadingTls()
        trust.swap(Material((*material.authorities, *known.authorities), known.certificate, known.key))
        trust.client.check_hostname = False
        status, _ = await stand.post("/admit/pods", pod_review("request-3"), ssl=trust.client)
        assert status == 200


async def test_the_issuer_of_our_own_certificate_vouches_for_no_api_server():
    """webhook-client-ca beside cert-manager: another leaf of that issuer passes the handshake, and no further."""
    issuer = Issuer()
    ours, servers = issuer.leaf("mooring-webhook.mooring-system.svc"), Issuer("the API servers' issuer")
    stand = Stand(ours)
    stand.front = ReloadingTls(pem(servers.authority))
    stand.front.swap(ours)
    stand.server = WebhookServer(stand.reviewer, stand.front, "127.0.0.1", 0)
    stand.deployment()
    async with serving(stand):
        for path in ("/admit/pods", "/admit/workloads"):
            status, said = await stand.post(path, pod_review(), ssl=shown(issuer.leaf("app.tenant.svc")))
            assert (status, "webhook-client-ca" in said) == (403, True)


@pytest.mark.parametrize(("size", "status"), [(4 << 20, 413), (3 << 20, 503)])
async def test_bodies_are_bounded_one_by_one_and_together(size, status):
    """Twelve bodies of 60 MiB held 726 MB: one has a limit, all of the process have a budget."""
    stand = Stand(advance(None, ["127.0.0.1"], time.time()))
    intake = BodyIntake(budget=2 << 20 if status == 503 else 64 << 20)
    stand.server = WebhookServer(stand.reviewer, stand.front, "127.0.0.1", 0, intake)
    async with serving(stand):

        async def body():
            for _ in range(size >> 16):
                yield b" " * 65536

        assert (await _posted(stand, body()), intake.held) == (status, 0)


async def _posted(stand: Stand, body) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"https://127.0.0.1:{stand.server.port}/admit/pods", data=body, ssl=stand.trust) as answer,
    ):
        return answer.status


def review(pod: bytes) -> bytes:
    head = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","namespace":"shop","object":'
    return head + pod + b"}}"


@pytest.mark.parametrize(
    "pod",
    [
        b'{"spec":{"tolerations":[' + b"{}," * 900_000 + b"{}]}}",
        b'{"spec":{"tolerations":[' + b'{"key":"a"},' * 100_000 + b"{}]}}",
        b'{"metadata":{"labels":{' + b",".join(b'"%d":"aaaaaaaaaaaa"' % n for n in range(60_000)) + b"}}}",
    ],
)
def test_dense_reviews_are_refused(pod):
    """H6: eight anonymous reviews full of empty tolerations took 1,135 MB. None is decoded, or none is kept."""
    assert len(pod) < LARGEST
    with pytest.raises(BadReviewError):
        pod_request(review(pod))


def test_a_large_honest_review_passes():
    """H6: a pod with 256 KiB of annotations and all their managedFields is an ordinary one."""
    notes = {f"example.com/note-{n}": "x" * 200 for n in range(1000)}
    managed = [
        {"fieldsV1": {"f:metadata": {"f:annotations": {f"f:example.com/note-{n}": {} for n in range(1000)}}}}
    ] * 9
    pod = msgspec.json.encode({"metadata": {"annotations": notes, "managedFields": managed}, "spec": {}})
    assert pod_request(review(pod)).object.metadata.annotations == notes


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warning(self, *said: object, **more: object) -> None:
        self.said.append(f"{said} {more}")

    exception = warning


@pytest.mark.parametrize("kind", ["pods", "evictions"])
async def test_a_review_writes_little_into_the_log(monkeypatch, kind):
    """L1: one anonymous request wrote 8 MB of log: the name in it is quoted shortly, and nothing in it is obeyed."""
    stand, lines = Stand(advance(None, ["127.0.0.1"], time.time()), leads=False), Lines()
    stand.reviewer._now = iter(range(0, 1000, 20)).__next__
    stand.ready = False  # nothing is known yet of what it names
    monkeypatch.setattr(reviewer, "log", lines)
    asked = pod_review()
    asked["request"]["name"] = "\x1b[2J" + "x" * (1 << 19)
    await getattr(stand.reviewer, kind)(msgspec.json.encode(asked))
    assert lines.said and sum(map(len, lines.said)) < 1000
    assert "x1b" not in str(lines.said)


def test_dense_reviews_of_evictions_are_refused_too():
    """H6 and the gate's own rules: the same limits, since the port is the same."""
    with pytest.raises(BadReviewError):
        eviction_request(review(b'{"deleteOptions":{"x":[' + b"{}," * 500_000 + b"{}]}}"))
