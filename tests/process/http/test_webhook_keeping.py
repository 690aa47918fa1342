"""Who installs the webhook configurations and certificates, and who takes them away: on the sandbox's API server."""

import asyncio
import base64

import pytest
from cryptography import x509

from mooring.capabilities.mix.descriptor import TLS_SECRET
from mooring.clients.ports import NotFoundError, RefusedError, UnansweredError
from mooring.core.model.kinds import Kind
from mooring.process.admission.certificates import AUTHORITY_DAYS, LEAF_DAYS, SETTLED_S, split_bundle
from mooring.process.admission.configurations import NAME, WebhookAddress, configurations, install, uninstall
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.admission.webhook_reconciler import WebhookReconciler
from mooring.process.lease.elector import address_of, advertised, identity_with
from mooring.process.serve import identity_of
from mooring.process.settings.config import Config
from mooring_lab.stage.rig import Rig

KINDS = (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK)
OWN = "mooring-system"


def rig(**config) -> Rig:
    return Rig(config=Config(features={"mix": True}, **config))


def hooks(rig: Rig) -> list[dict]:
    found = [rig.cluster.store.find(kind, "", NAME) for kind in KINDS]
    return [one["webhooks"][0] for one in found if one is not None]


def bundle(rig: Rig) -> tuple[bytes, ...]:
    return split_bundle(base64.b64decode(hooks(rig)[0]["clientConfig"]["caBundle"]))


def test_safe_by_construction():
    """Fail open, two seconds, kube-system and our own namespace left out, only pods that can be ours."""
    wanted = configurations(WebhookAddress("own", url="https://127.0.0.1:9443/"), b"ca")
    pods, workloads = (wanted[kind]["webhooks"][0] for kind in KINDS)
    for hook in (pods, workloads):
        assert hook["failurePolicy"] == "Ignore"
        assert hook["timeoutSeconds"] == 2
        assert hook["namespaceSelector"]["matchExpressions"][0]["values"] == ["own", "kube-system"]
        assert hook["matchConditions"]
        assert hook["clientConfig"]["caBundle"] == base64.b64encode(b"ca").decode()
    assert pods["clientConfig"]["url"] == "https://127.0.0.1:9443/admit/pods"
    assert pods["rules"][0]["operations"] == ["CREATE"]
    assert (pods["sideEffects"], pods["reinvocationPolicy"]) == ("NoneOnDryRun", "IfNeeded")


@pytest.mark.parametrize(
    ("address", "names"),
    [
        (WebhookAddress("own", "https://127.0.0.1:9443"), ["127.0.0.1"]),
        (WebhookAddress("own", "https://[::1]:9443/x"), ["::1"]),
        (WebhookAddress("own", "https://hook.example.com"), ["hook.example.com"]),
        (WebhookAddress("own"), ["mooring-webhook.own.svc", "mooring-webhook.own.svc.cluster.local"]),
    ],
)
def test_the_certificate_carries_the_name_it_is_asked_by(address, names):
    """The API server verifies the host of the URL, or the Service's DNS name."""
    assert address.names() == names


def test_the_leader_installs_and_a_stranger_stays():
    """A leader brings configurations and Secret; what somebody changed is set right; a namesake of others is not ours."""

    async def scenario(rig: Rig) -> None:
        rig.start()
        await rig.until(lambda: len(hooks(rig)) == 2)
        assert rig.cluster.store.find(Kind.SECRET, OWN, TLS_SECRET) is not None
        one = rig.cluster.store.find(Kind.MUTATING_WEBHOOK, "", NAME)
        patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]
        from mooring.clients.ports import PatchType

        await rig.api.patch(Kind.MUTATING_WEBHOOK, "", NAME, patch, patch_type=PatchType.JSON)
        await rig.until(lambda: hooks(rig)[0]["failurePolicy"] == "Ignore", limit_s=30)
        assert one["metadata"]["uid"] == rig.cluster.store.find(Kind.MUTATING_WEBHOOK, "", NAME)["metadata"]["uid"]
        assert await install(rig.api, {}) == []
        before = len(rig.writes)
        await rig.sleep(60)
        assert [w for w in rig.writes[before:] if "Webhook" in w or "Secret" in w] == [], (
            "nothing to write, nothing written"
        )

    rig().play(scenario)


def test_they_belong_to_our_namespace():
    """Whoever deletes the namespace has them collected; those of an earlier version get the same, and nothing else of
    them is touched."""

    async def scenario(rig: Rig) -> None:
        await install(rig.api, configurations(WebhookAddress(OWN), b"ca"))
        before = await rig.api.get(Kind.MUTATING_WEBHOOK, "", NAME)
        await rig.api.replace(
            Kind.MUTATING_WEBHOOK, before | {"metadata": before["metadata"] | {"annotations": {"a": "b"}}}
        )
        uid = (await rig.api.get(Kind.NAMESPACE, "", OWN))["metadata"]["uid"]
        rig.start()
        await rig.until(lambda: owners(rig) == [[uid], [uid]])
        assert rig.cluster.store.find(Kind.MUTATING_WEBHOOK, "", NAME)["metadata"]["annotations"] == {"a": "b"}

    def owners(rig: Rig) -> list[list[str]]:
        found = [rig.cluster.store.find(kind, "", NAME)["metadata"] for kind in KINDS]
        return [[owner["uid"] for owner in one.get("ownerReferences") or ()] for one in found]

    rig().play(scenario)


def test_switched_off_takes_them_away():
    """With Mix off, the next leader removes what an earlier one installed, and only what carries our label."""

    async def scenario(rig: Rig) -> None:
        wanted = configurations(WebhookAddress(OWN), b"ca")
        await install(rig.api, wanted)
        rig.start()
        await rig.until(lambda: hooks(rig) == [])
        foreign = wanted[Kind.MUTATING_WEBHOOK] | {"metadata": {"name": NAME}}
        await rig.api.create(Kind.MUTATING_WEBHOOK, foreign)
        assert await uninstall(rig.api) == []
        assert len(hooks(rig)) == 1

    Rig(config=Config(features={"handoff": True})).play(scenario)


def test_switched_off_while_the_api_server_is_away_takes_them_away_later():
    """The one try at the moment of switching off fails: it is tried again, without a change of leader."""

    class Away:
        def __init__(self, api) -> None:
            self.api, self.left = api, 3

        async def delete(self, *args, **more):
            if self.left:
                self.left -= 1
                raise UnansweredError("connection refused")
            return await self.api.delete(*args, **more)

        def __getattr__(self, name):
            return getattr(self.api, name)

    async def scenario(rig: Rig) -> None:
        await install(rig.api, configurations(WebhookAddress(OWN), b"ca"))
        keeper = WebhookReconciler(
            Away(rig.api), rig.clock, ReloadingTls(), WebhookAddress(OWN), leads=lambda: True, serves=False
        )
        task = asyncio.get_running_loop().create_task(keeper.run())
        await rig.until(lambda: hooks(rig) == [], limit_s=60)
        task.cancel()

    rig().play(scenario)


def test_one_that_stops_leaves_the_address_of_another_who_came_after():
    """Two processes outside a cluster: the one that stops takes its own configurations away, never its successor's."""

    async def scenario(rig: Rig) -> None:
        mine, theirs = (WebhookAddress(OWN, f"https://127.0.0.1:{port}") for port in (9443, 9444))
        await install(rig.api, configurations(mine, b"ca"))
        await install(rig.api, configurations(theirs, b"ca"))
        assert await uninstall(rig.api, mine) == []
        assert len(hooks(rig)) == 2
        assert len(await uninstall(rig.api, theirs)) == 2

    rig().play(scenario)


def test_a_configuration_that_vanishes_while_it_is_replaced_is_made_anew_at_once():
    """Somebody takes it away between our look and our write: it stands after one call, not half a minute later."""

    class Vanishing:
        def __init__(self, api) -> None:
            self.api, self.left = api, 2

        async def replace(self, kind, body):
            if self.left:
                self.left -= 1
                await self.api.delete(kind, "", NAME)
            return await self.api.replace(kind, body)

        def __getattr__(self, name):
            return getattr(self.api, name)

    async def scenario(rig: Rig) -> None:
        await install(rig.api, configurations(WebhookAddress(OWN, "https://127.0.0.1:9443"), b"ca"))
        wanted = configurations(WebhookAddress(OWN, "https://127.0.0.1:9444"), b"ca")
        assert await install(Vanishing(rig.api), wanted) == [f"create {kind}" for kind in KINDS]
        assert all(hook["clientConfig"]["url"].startswith("https://127.0.0.1:9444/") for hook in hooks(rig))

    rig().play(scenario)


def test_a_clean_stop_outside_a_cluster_leaves_nothing():
    """Where we are found by a URL nobody else serves it: a clean stop removes the configurations; inside a cluster the
    next replica serves on, so they stay."""

    async def outside(rig: Rig) -> None:
        rig.start()
        await rig.until(lambda: len(hooks(rig)) == 2)
        await rig.stop()
        assert hooks(rig) == []

    async def inside(rig: Rig) -> None:
        rig.start()
        await rig.until(lambda: len(hooks(rig)) == 2)
        await rig.stop()
        assert len(hooks(rig)) == 2

    rig(webhook_url="https://127.0.0.1:9443").play(outside)
    rig().play(inside)


class Calendar:
    """A clock that is set by hand; the keeper only reads the date."""

    def __init__(self) -> None:
        self.date = 1_800_000_000.0

    def now(self) -> float:
        return self.date


def test_a_rotation_as_it_is_lived():
    """Old and new authority are trusted before the leaf changes, and the old one goes only after; a follower uses the
    leader's leaf all along, and writes nothing."""

    async def scenario(rig: Rig) -> None:
        calendar = Calendar()
        fronts = ReloadingTls(), ReloadingTls()
        leader, follower = (
            WebhookReconciler(rig.api, calendar, front, WebhookAddress(OWN), leads=lambda leads=leads: leads)
            for front, leads in zip(fronts, (True, False), strict=True)
        )

        async def pass_days(days: float) -> None:
            calendar.date += days * 86_400
            await leader.turn()
            await follower.turn()
            assert fronts[0].material == fronts[1].material

        await follower.turn()
        assert follower.missing
        await pass_days(0)
        (old,) = bundle(rig)
        first = fronts[0].material.certificate
        await pass_days(AUTHORITY_DAYS * 0.7)
        assert fronts[0].material.certificate != first, "nobody looked for months: first a leaf that has not run out"
        assert bundle(rig) == (old,)
        await pass_days(0)
        leaf = fronts[0].material.certificate
        assert bundle(rig)[1] == old, "both are trusted, nothing is signed by the new one yet"
        await pass_days(SETTLED_S / 86_400 / 2)
        assert fronts[0].material.certificate == leaf
        await pass_days(SETTLED_S / 86_400)
        assert fronts[0].material.certificate != leaf
        assert len(bundle(rig)) == 2
        await pass_days(2 * SETTLED_S / 86_400)
        assert len(bundle(rig)) == 1
        assert bundle(rig)[0] != old

    rig().play(scenario)


class Pair:
    """Two keepers that look by hand, a calendar, and an API server that follows the configurations at once."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.calendar = rig, Calendar()
        self.fronts = ReloadingTls(), ReloadingTls()
        self.leads = 0
        self.keepers = [
            WebhookReconciler(
                rig.api, self.calendar, front, WebhookAddress(OWN), leads=lambda number=number: self.leads == number
            )
            for number, front in enumerate(self.fronts)
        ]

    async def look(self, after_s: float = 0.0) -> None:
        """Time passes, then the leader looks, then the other one. Whoever is called is trusted, at each moment."""
        self.calendar.date += after_s
        for number in (self.leads, 1 - self.leads):
            await self.keepers[number].turn()
            self.all_trusted()

    def all_trusted(self) -> None:
        """By the API server, and by each other, to pass requests on."""
        shown = [front.material for front in self.fronts if front.material is not None]
        for material in shown:
            leaf = x509.load_pem_x509_certificate(material.certificate)
            for trusted in (bundle(self.rig), *(other.authorities for other in shown)):
                assert leaf.issuer in [x509.load_pem_x509_certificate(one).subject for one in trusted]

    def leaf(self) -> bytes:
        return self.fronts[self.leads].material.certificate


def test_a_deleted_secret_is_a_rotation_by_hand():
    """Somebody deletes the Secret (a key may be known): a new authority comes beside the old one, the leaf follows,
    the old one goes; all along both replicas are trusted, by the API server and by each other."""

    async def scenario(rig: Rig) -> None:
        pair = Pair(rig)
        await pair.look()
        (old,), leaf = bundle(rig), pair.leaf()
        await rig.api.delete(Kind.SECRET, OWN, TLS_SECRET)
        await pair.look()
        assert bundle(rig)[1] == old and pair.leaf() == leaf
        await pair.look(SETTLED_S)
        assert len(bundle(rig)) == 2 and pair.leaf() != leaf
        await pair.look(SETTLED_S)
        assert len(bundle(rig)) == 1 and old not in bundle(rig)

    rig().play(scenario)


def test_killed_before_the_api_servers_were_told_the_next_leader_waits_from_its_own_telling():
    """The new authority is in the Secret, the configurations do not know it, and nobody leads for an hour: no leaf of
    it is shown before the API servers have had their time."""

    class Dying:
        """Dies before it writes a webhook configuration."""

        def __init__(self, api) -> None:
            self.api = api

        async def replace(self, kind, body):
            if kind in KINDS:
                raise asyncio.CancelledError
            return await self.api.replace(kind, body)

        def __getattr__(self, name):
            return getattr(self.api, name)

    async def scenario(rig: Rig) -> None:
        pair = Pair(rig)
        await pair.look()
        # Leaves are renewed as days go by; then the authority is old, and its follower is written down.
        await pair.look(0.66 * AUTHORITY_DAYS * 86_400)
        leaf = pair.leaf()
        pair.keepers[0]._api = Dying(rig.api)
        pair.calendar.date += 0.02 * AUTHORITY_DAYS * 86_400
        with pytest.raises(asyncio.CancelledError):
            await pair.keepers[0].turn()
        assert len(bundle(rig)) == 1
        pair.keepers[0]._api = rig.api
        pair.leads = 1
        await pair.look(3600)
        assert len(bundle(rig)) == 2 and pair.leaf() == leaf, "told now, so nothing is signed by it now"
        await pair.look(SETTLED_S / 2)
        assert pair.leaf() == leaf
        await pair.look(SETTLED_S / 2)
        assert pair.leaf() != leaf
        await pair.look(SETTLED_S)
        assert len(bundle(rig)) == 1

    rig().play(scenario)


def test_a_leaf_is_renewed_also_where_the_configurations_may_not_be_written():
    """Somebody keeps them his own way and took the right from us: the same authority vouches for the next leaf, and no
    step is taken that they would have to be told of."""

    class Guarded:
        def __init__(self, api) -> None:
            self.api = api

        async def replace(self, kind, body):
            if kind in KINDS:
                raise RefusedError(f"{kind} is forbidden")
            return await self.api.replace(kind, body)

        def __getattr__(self, name):
            return getattr(self.api, name)

    async def scenario(rig: Rig) -> None:
        pair = Pair(rig)
        await pair.look()
        own = await rig.api.get(Kind.MUTATING_WEBHOOK, "", NAME)
        hook = own["webhooks"][0] | {"timeoutSeconds": 5}
        await rig.api.replace(Kind.MUTATING_WEBHOOK, own | {"webhooks": [hook]})
        authority = bundle(rig)
        pair.keepers[0]._api = Guarded(rig.api)
        leaves = {pair.leaf()}
        for _ in range(3):
            pair.calendar.date += 0.7 * LEAF_DAYS * 86_400
            with pytest.raises(RefusedError):
                await pair.keepers[0].turn()
            pair.all_trusted()
            leaves.add(pair.leaf())
        assert len(leaves) == 4
        assert bundle(rig) == authority

    rig().play(scenario)


def test_a_bundle_that_somebody_put_back_starts_the_wait_again():
    """In the middle of a rotation a deployment tool writes an older caBundle: mended at once, and the next step waits."""

    async def scenario(rig: Rig) -> None:
        pair = Pair(rig)
        await pair.look()
        before = {kind: rig.cluster.store.find(kind, "", NAME) for kind in KINDS}
        leaf = pair.leaf()
        await rig.api.delete(Kind.SECRET, OWN, TLS_SECRET)
        await pair.look()
        for kind, one in before.items():
            now = await rig.api.get(kind, "", NAME)
            await rig.api.replace(kind, now | {"webhooks": one["webhooks"]})
        await pair.look(SETTLED_S)
        assert len(bundle(rig)) == 2 and pair.leaf() == leaf
        await pair.look(SETTLED_S)
        assert pair.leaf() != leaf

    rig().play(scenario)


def test_given_files_are_only_read(tmp_path):
    """Certificates from cert-manager: used as they are, followed when they change, and a half-written pair is not."""
    import time

    from mooring.process.admission.certificates import advance

    def write(material) -> None:
        (tmp_path / "tls.crt").write_bytes(material.certificate)
        (tmp_path / "tls.key").write_bytes(material.key)
        (tmp_path / "ca.crt").write_bytes(material.bundle)

    one, two = (advance(None, ["x"], time.time()) for _ in range(2))

    async def scenario(rig: Rig) -> None:
        replica = rig.start()
        await rig.until(lambda: replica.webhook.tls.loaded)
        assert replica.webhook.tls.material.certificate == one.certificate
        (tmp_path / "tls.key").write_bytes(two.key)
        await rig.sleep(30)
        assert replica.webhook.tls.material.certificate == one.certificate
        write(two)
        await rig.until(lambda: replica.webhook.tls.material.certificate == two.certificate, limit_s=30)
        await rig.until(lambda: bundle(rig) == two.authorities, limit_s=30)
        with pytest.raises(NotFoundError):
            await rig.api.get(Kind.SECRET, OWN, TLS_SECRET)

    write(one)
    rig(webhook_certificates=str(tmp_path)).play(scenario)


def test_the_leaders_address_is_part_of_its_name():
    """A follower reads the leader's address out of the identity in the lease."""
    assert address_of(identity_with("mooring-0-abc", "10.0.0.7:9443")) == "10.0.0.7:9443"
    assert address_of(identity_with("mooring-0-abc", "[::1]:9443")) == "[::1]:9443"
    assert address_of(identity_with("mooring-0-abc", "")) == ""
    assert address_of("") == ""
    assert address_of("host_name-abc") == ""
    assert advertised("127.0.0.1", 9443, "", "https://example.invalid") == "127.0.0.1:9443"
    assert advertised("0.0.0.0", 9443, "10.1.2.3", "https://example.invalid") == "10.1.2.3:9443"
    assert advertised("0.0.0.0", 9443, "fd00::1", "https://example.invalid") == "[fd00::1]:9443"
    assert advertised("0.0.0.0", 9443, "", "https://127.0.0.1:6443") == "127.0.0.1:9443"


def test_the_leader_tells_its_address_before_mix_is_switched_on():
    """Issue 17: Mix switched on at run time: the lease names the address already, so followers pass requests on."""
    config = Config(features={"mix": False}, advertise_address="10.0.0.7", listen_webhook="0.0.0.0:9443")
    assert address_of(identity_of(config, "https://127.0.0.1:6443", "mooring-0-abc")) == "10.0.0.7:9443"
