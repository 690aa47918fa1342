"""The stream of `bench.spine` as an API server sends it: by a watch over TLS on loopback, from a process of its own.

    async with watching() as api:
        async for event in api.watch(Kind.POD, resource_version="200000"): …

The version in the request chooses the events; they are made before the first one is sent.
"""

import asyncio
import contextlib
import ssl
import sys
import tempfile
from pathlib import Path

EVENTS = 20_000


@contextlib.asynccontextmanager
async def watching():
    from mooring.clients.kube import HttpKubeApi, load
    from mooring_lab.control.pki import Authority, kubeconfig

    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as made:
        authority, directory = Authority(), Path(made)
        authority.server("bench").write(directory, "server")
        command = (sys.executable, "-m", "bench._watch", made)
        server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            address = (await server.stdout.readline()).decode().strip()
            config = directory / "kubeconfig"
            config.write_bytes(kubeconfig(address, authority.pair.certificate, authority.client("bench")))
            async with HttpKubeApi(load(config)) as api:
                yield api
        finally:
            server.terminate()
            await server.wait()


async def serve(directory):
    from aiohttp import web

    app = web.Application()
    app.router.add_get("/api/v1/pods", send)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(directory / "server.crt", directory / "server.key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
    await site.start()
    print(site.name, flush=True)
    await asyncio.Event().wait()


async def send(request):
    from aiohttp import web

    from bench.spine import RATE, STEP_S, stream

    version, sent = int(request.query["resourceVersion"]), 0
    lines = [b'{"type":"MODIFIED","object":' + raw + b"}\n" for raw in stream(version, version, EVENTS)]
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with contextlib.suppress(ConnectionError):
        while sent < len(lines):
            due = int((loop.time() - began) * RATE)
            await response.write(b"".join(lines[sent:due]))
            sent = max(sent, due)
            await asyncio.sleep(STEP_S)
    return response


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(Path(sys.argv[1])))
