"""`mooring run` beside a real PD that asks every caller for a certificate (E10). Kubernetes is the sandbox's."""

import asyncio
import base64
import os
import ssl
import subprocess
import sys
import time

import aiohttp
import grpc
import pytest
import yaml

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.control.loopback import free_ports
from mooring_lab.control.pki import Authority
from tests.clients.pd.test_client_secret import real_pd
from tests.faketikv import FakeTikv

pytestmark = pytest.mark.e2e
NS, SECRET, POD = "tidb", "demo-cluster-client-secret", "demo-tikv-0"
SETTINGS = {"handoff": {"young-pd-s": 3, "recheck-s": 1, "idle-s": 1}}


def secret(trusts, shows):
    pair = shows.client("mooring")
    held = {"ca.crt": trusts.pair.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}
    data = {key: base64.b64encode(value).decode() for key, value in held.items()}
    return {"metadata": {"namespace": NS, "name": SECRET}, "data": data}


async def until(holds, tell):
    end = time.monotonic() + 60
    while not (holds() if not asyncio.iscoroutinefunction(holds) else await holds()):
        assert time.monotonic() < end, tell()
        await asyncio.sleep(0.1)


async def test_a_hand_over_by_certificates_that_are_renewed(tmp_path):
    """E10: a Secret that PD refuses is `blocked` with what to do; renewed, and without a restart of ours, the leaders
    leave the store, and the scheduler goes with the request."""
    authority, stranger = Authority(), Authority()
    cluster = Cluster(seed=1, timeline=Timeline(time.time()), log=False)
    cluster.add_nodes(3)
    cluster.store.create(Kind.NAMESPACE, {"metadata": {"name": "mooring-system"}})
    cluster.tidb_cluster(NS, "demo", tikv=3, tidb=0, pd=0)
    cluster.change(Kind.TIDB_CLUSTER, NS, "demo", lambda tc: with_spec(tc, tlsCluster={"enabled": True}))
    cluster.store.create(Kind.SECRET, secret(authority, stranger))
    facade = Facade(cluster.api.server, driver=WallDriver(cluster.timeline))
    (tmp_path / "pd").mkdir()
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
    pair, ca = authority.client("tikv"), authority.pair.certificate
    async with real_pd(authority, tmp_path / "pd") as port, facade:
        url = f"https://127.0.0.1:{port}"
        tikv = FakeTikv(
            [url],
            addresses=[f"demo-tikv-{i}.demo-tikv-peer.{NS}.svc:20160" for i in range(3)],
            credentials=grpc.ssl_channel_credentials(ca, pair.key, pair.certificate),
        )
        await tikv.start()
        cluster.store.patch(Kind.TIDB_CLUSTER, NS, "demo", {"status": {"clusterID": str(tikv.pd_id)}})
        facade.write_kubeconfig(tmp_path / "kubeconfig")
        (http,) = free_ports(1)
        mooring = [sys.executable, "-m", "mooring"]
        argv = [*mooring, "run", "--features", "handoff=true", "--pd", f"{NS}/demo={url}", "--blackbox", "none"]
        argv += ["--config", str(tmp_path / "settings.yaml"), "--listen-http", f"127.0.0.1:{http}"]
        with (tmp_path / "log").open("w") as log:
            env = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
            running = subprocess.Popen(argv, stdout=log, stderr=log, env=env)
        try:
            await until(lambda: cluster.ready(NS, "demo-tikv") == 3, lambda: "TiKV is Ready")
            cluster.annotate(Kind.POD, NS, POD, {"tidb.pingcap.com/evict-leader": "none"})
            said = []

            async def told():
                ask = [*mooring, "why", f"pod/{POD}", "-n", NS, "--server", f"http://127.0.0.1:{http}"]
                asked = await asyncio.create_subprocess_exec(*ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                said[:] = [text.decode() for text in await asked.communicate()]
                return "blocked" in said[0] and SECRET in said[0]

            await until(told, lambda: (said, (tmp_path / "log").read_text()[-2000:]))
            assert led(tikv, 1) > 0
            cluster.store.patch(Kind.SECRET, NS, SECRET, {"data": secret(authority, authority)["data"]})

            async def empty():
                await told()
                return led(tikv, 1) == 0

            await until(empty, lambda: (said, (tmp_path / "log").read_text()[-2000:]))
            cluster.annotate(Kind.POD, NS, POD, {"tidb.pingcap.com/evict-leader": None})

            async def no_scheduler():
                context = ssl.create_default_context(cadata=ca.decode())
                context.load_cert_chain(*pair.write(tmp_path, "asker"))
                where = f"{url}/pd/api/v1/schedulers"
                async with aiohttp.ClientSession() as session, session.get(where, ssl=context) as answer:
                    return "evict-leader-scheduler" not in await answer.json()

            await until(no_scheduler, lambda: (tmp_path / "log").read_text()[-2000:])
        finally:
            running.terminate()
            await asyncio.to_thread(running.wait, 60)
            await tikv.close()


def led(tikv, store):
    return sum(region.leader == store for region in tikv.regions.values())
