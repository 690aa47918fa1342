"""Talking to PD: introduce the stores, beat for each of them, one stream of regions per store.

A connection lives as long as all of its parts do. When one fails (PD restarts, another member leads) all are given up
together, the leader is looked for again, and every store reports every region it leads, as TiKV does.
"""

import asyncio
import contextlib
import time
from urllib.parse import urlsplit

import grpc

from tests.faketikv import messages as m

GIB = 1 << 30
LOST = (grpc.RpcError, OSError, asyncio.InvalidStateError, EOFError)


class Wire:
    def __init__(self, endpoints, cluster, reconnect_s, credentials=None):
        """`credentials`: of gRPC, for a PD that asks for certificates."""
        self._credentials = credentials
        self._endpoints = list(endpoints)
        self._cluster = cluster
        self._reconnect_s = reconnect_s
        self._channel = None
        self.cluster_id = 0
        self._task = None
        #: Store → regions to be reported on its stream. A new stream begins with all that it leads.
        self._outbox = {s: asyncio.Queue() for s in cluster.stores}
        self._greetings = asyncio.Queue()

    async def start(self):
        for _ in range(60):
            await self._connect()
            with contextlib.suppress(*LOST):  # members that have just started change their leader now and then
                await self._introduce()
                break
            await asyncio.sleep(0.5)
        else:
            raise RuntimeError("no PD leader stays")
        self._task = asyncio.ensure_future(self._run())

    async def close(self):
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._hang_up()

    def report(self, region):
        self._outbox[region.leader].put_nowait(region)

    def greet(self, store_id):
        """A store that is back introduces itself before it beats."""
        self._greetings.put_nowait(store_id)

    async def _run(self):
        while True:
            ids = self._cluster.stores
            parts = [*map(self._beat, ids), *map(self._stream, ids), self._greet()]
            tasks = [asyncio.ensure_future(p) for p in parts]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(self._reconnect_s)
            await self._cluster.may_connect.wait()
            await self._connect()

    # ── The connection ────────────────────────────────────────────────────────────────────────────────────────────

    async def _connect(self):
        """To the PD leader, whoever of the members that is now."""
        for _ in range(600):
            for endpoint in self._endpoints:
                with contextlib.suppress(*LOST):
                    await self._connect_through(endpoint)
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError("no PD leader found")

    async def _connect_through(self, endpoint):
        async with self._open(endpoint) as channel:
            members = await _unary(channel, "GetMembers")(m.GetMembersRequest(), timeout=2)
        if not members.leader.client_urls:
            raise OSError("no leader yet")
        await self._hang_up()
        self.cluster_id = members.header.cluster_id
        self._channel = self._open(members.leader.client_urls[0])
        await asyncio.wait_for(self._channel.channel_ready(), 2)

    def _open(self, endpoint):
        place = urlsplit(endpoint).netloc
        if self._credentials is None:
            return grpc.aio.insecure_channel(place)
        return grpc.aio.secure_channel(place, self._credentials)

    async def _hang_up(self):
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    @property
    def _header(self):
        return m.RequestHeader(cluster_id=self.cluster_id)

    async def _ask(self, method, request):
        answer = await _unary(self._channel, method)(request, timeout=15)
        return answer.header.error

    # ── What is said ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _introduce(self):
        """Bootstrap with one region that spans everything, then the stores. Known already is fine."""
        stores = self._cluster.stores
        first = min(stores)
        epoch = m.RegionEpoch(conf_ver=1, version=1)
        region = m.Region(id=2, region_epoch=epoch, peers=[m.Peer(id=3, store_id=first)])
        request = m.BootstrapRequest(header=self._header, store=_store(stores[first]), region=region)
        error = await self._ask("Bootstrap", request)
        if error.type not in (0, 4):
            raise RuntimeError(error.message)
        for store in stores.values():
            await self._put(store)

    async def _put(self, store):
        error = await self._ask("PutStore", m.PutStoreRequest(header=self._header, store=_store(store)))
        if error.type:
            raise OSError(error.message)

    async def _greet(self):
        while True:
            store_id = await self._greetings.get()
            await self._put(self._cluster.stores[store_id])
            await self._beat_once(store_id)

    async def _beat(self, store_id):
        while True:
            if self._cluster.stores[store_id].alive:
                await self._beat_once(store_id)
            await asyncio.sleep(self._cluster.heartbeat_s)

    async def _beat_once(self, store_id):
        stats = m.StoreStats(
            store_id=store_id,
            capacity=100 * GIB,
            available=int(self._cluster.stores[store_id].free * 100 * GIB),
            used_size=int((1 - self._cluster.stores[store_id].free) * 100 * GIB),
            region_count=self._cluster.held()[store_id],
            start_time=self._cluster.stores[store_id].started,
            interval=_interval(10),
        )
        error = await self._ask("StoreHeartbeat", m.StoreHeartbeatRequest(header=self._header, stats=stats))
        if error.type:
            raise OSError(error.message)

    async def _stream(self, store_id):
        call = self._channel.stream_stream(
            "/pdpb.PD/RegionHeartbeat",
            request_serializer=lambda r: r.SerializeToString(),
            response_deserializer=m.RegionHeartbeatResponse.FromString,
        )()
        outbox = self._outbox[store_id]
        for region in self._cluster.regions.values():
            if region.leader == store_id:
                outbox.put_nowait(region)
        writer = asyncio.ensure_future(self._write(call, outbox, store_id))
        try:
            async for response in call:
                if response.region_id:
                    self._cluster.command(response)
                elif response.header.error.type:
                    return
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _down(self, region):
        """Peers on stores that do not live: without them PD repairs nothing."""
        for store_id, (peer_id, role) in region.peers.items():
            store = self._cluster.stores[store_id]
            if not store.alive:
                peer = m.Peer(id=peer_id, store_id=store_id, role=role)
                yield m.PeerStats(peer=peer, down_seconds=max(1, int(time.time() - store.stopped)))

    async def _write(self, call, outbox, store_id):
        while True:
            region = await outbox.get()
            if region.leader != store_id or not self._cluster.stores[store_id].alive or region.id in self._cluster.lost:
                continue
            await call.write(
                m.RegionHeartbeatRequest(
                    header=self._header,
                    region=region.message(),
                    leader=m.Peer(id=region.peers[store_id][0], store_id=store_id),
                    approximate_size=96 << 20,
                    approximate_keys=960_000,
                    interval=_interval(60),
                    term=region.term,
                    down_peers=self._down(region),
                )
            )


def _store(store):
    return m.Store(
        id=store.id,
        address=store.address,
        version="8.5.7",
        peer_address=store.address,
        status_address=store.address.replace(":2016", ":2018"),
        start_timestamp=store.started,
        deploy_path="/fake",
        labels=[m.Label(key=k, value=v) for k, v in store.labels.items()],
    )


def _interval(seconds):
    now = int(time.time())
    return m.TimeInterval(start_timestamp=now - seconds, end_timestamp=now)


def _unary(channel, method):
    return channel.unary_unary(
        f"/pdpb.PD/{method}",
        request_serializer=lambda r: r.SerializeToString(),
        response_deserializer=getattr(m, f"{method}Response").FromString,
    )
