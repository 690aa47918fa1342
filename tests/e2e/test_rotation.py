"""The webhook's certificates rotate while pods are created through it: old and new authority, new leaf, old one gone."""

import pytest

from mooring.capabilities.mix.descriptor import TLS_SECRET
from mooring.core.model.kinds import Kind
from mooring.process.admission.configurations import NAME
from tests.e2e.rotation_environment import Load, Pair, calls
from tests.e2e.waiting import until

HOOKS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
pytestmark = pytest.mark.e2e


async def test_certificates_rotate_under_load_without_one_failed_admission(lab, tmp_path):
    """Two replicas behind one address; the leader is killed (-9) after the first and after the second step. By the API
    server's own count no call fails but those under way at a kill, and the follower passes requests on throughout."""
    own, shop = lab.namespace("mooring"), lab.namespace("shop")
    try:
        async with Pair(lab, own, tmp_path) as pair, Load(pair, shop) as load:

            async def all_trust(count):
                await pair.until(lambda: bundle_of(count))
                await pair.until(lambda: trusting(count))

            async def bundle_of(count):
                return len(await pair.bundle()) == count

            async def trusting(count):
                return all(one.trusts() == count for one in pair.alive)

            async def leaves():
                return {await one.leaf() for one in pair.alive}

            async def another_leaf():
                found = await leaves()
                return len(found) == 1 and found.isdisjoint(old_leaf)

            async def under_load():
                """It goes on, and not one call has failed since `failed` was taken."""
                await load.goes_on()
                assert (await calls(lab))[0] <= failed, [one.told("webhook.slow") for one in pair.every]

            async def leader_dies():
                await pair.kill_leader()
                now = (await calls(lab))[0]
                assert now - failed <= load.WORKERS, "more than what was under way at the kill"
                return now

            failed, answered = await calls(lab)
            await under_load()
            (old,), old_leaf = await pair.bundle(), await leaves()
            assert len(old_leaf) == 1
            await pair.api.delete(Kind.SECRET, own, TLS_SECRET)  # a person wants a new authority, now
            await all_trust(2)
            both = await pair.bundle()
            assert both[1] == old, "the new authority is trusted beside the old one"
            assert await leaves() == old_leaf, "with the old leaf"
            await under_load()
            failed = await leader_dies()
            await all_trust(2)
            await under_load()
            await pair.time_passes()
            await pair.until(another_leaf)
            assert await pair.bundle() == both, "then the new leaf, and both are trusted"
            await under_load()
            failed = await leader_dies()
            await pair.time_passes()
            await all_trust(1)
            assert await pair.bundle() == both[:1], "and the old authority goes"
            await under_load()
            assert (await calls(lab))[1] - answered >= 200
            assert [line for one in pair.every for line in one.told("admission.not-forwarded") if distrust(line)] == []
        # Both were killed, so both configurations stand. Whoever deletes the namespace has them collected too.
        lab.kubectl("delete", "namespace", own, "--wait=false")
        until(lambda: not lab.kubectl("get", HOOKS, NAME, "--ignore-not-found", "-o", "name"), "no configuration left")
    finally:
        lab.kubectl("delete", HOOKS, NAME, "--ignore-not-found")
        lab.kubectl("delete", "namespace", own, "--wait=false", "--ignore-not-found")
        lab.clear(shop)


def distrust(line):
    """One replica did not trust the other's certificate (as opposed to: it was dead, or slow)."""
    error = line.get("error", "")
    # 503: it does not lead any more, and the request waits for the next leader.
    return line.get("status", 503) != 503 or error.startswith("ClientConnectorCertificateError") or "[SSL: " in error
