"""The REST face of a real sabakan, in front of the sandbox's registry: what an administrator's tools call.

Mooring never does, so it lives with the tests: the recorded walk and the fleet on the lab register machines and set
states by the same requests, whether the registry is real or the sandbox's. 500 for a forbidden transition, 404 for an
empty list, as the real one.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from mooring.core.model.machine import MachineState
from mooring_lab.cluster.sabakan import ForbiddenError, SandboxSabakan
from mooring_lab.cluster.sabakan.http import sabakan_app, stamp
from mooring_lab.cluster.sabakan.registry import Ipam, RegisteredMachine

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_STATUS = {"not-found": 404, "conflict": 409, "invalid": 400}
_MISSING = "requested resource is not found"


def rest_app(registry: SandboxSabakan) -> web.Application:
    """With the search of `sabakan_app`."""
    serve = _Sabakan(registry)
    app = sabakan_app(registry)
    app.middlewares.append(_errors)
    app.add_routes(
        [
            web.get("/health", serve.health),
            web.get("/version", serve.version),
            web.get("/api/v1/config/ipam", serve.ipam),
            web.put("/api/v1/config/ipam", serve.set_ipam),
            web.get("/api/v1/machines", serve.machines),
            web.post("/api/v1/machines", serve.register),
            web.delete("/api/v1/machines/{serial}", serve.remove),
            web.get("/api/v1/state/{serial}", serve.state),
            web.put("/api/v1/state/{serial}", serve.set_state),
            web.put("/api/v1/labels/{serial}", serve.set_labels),
            web.put("/api/v1/retire-date/{serial}", serve.set_retire_date),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ForbiddenError as e:
        status = _STATUS.get(e.kind, 500)
        words = _MISSING if status == 404 else str(e)
        return _error(status, words + (": Internal Server Error" if status == 500 else ""))
    except (msgspec.MsgspecError, ValueError):
        return _error(400, "invalid request")


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


def _error(status: int, words: str) -> web.Response:
    return _json({"error": words, "status": status}, status)


def nic(address: str, bits: int, gateway_offset: int) -> dict[str, Any]:
    net = ipaddress.IPv4Network(f"{address}/{bits}", strict=False)
    gateway = str(net.network_address + gateway_offset)
    return {"address": address, "netmask": str(net.netmask), "maskbits": bits, "gateway": gateway}


def parse(text: str) -> float:
    """Raises ValueError: a date alone is not enough."""
    if "T" not in text:
        raise ValueError(text)
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


class _Sabakan:
    def __init__(self, registry: SandboxSabakan) -> None:
        self._registry = registry

    async def health(self, _: web.Request) -> web.Response:
        return _json({"health": "healthy"})

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": "3.1.9"})

    async def ipam(self, _: web.Request) -> web.Response:
        if self._registry.ipam is None:
            return _error(404, _MISSING)
        found = msgspec.to_builtins(self._registry.ipam)
        return _json({k: v for k, v in found.items() if v != ""})

    async def set_ipam(self, request: web.Request) -> web.Response:
        ipam = msgspec.json.decode(await request.read(), type=Ipam)
        ipam.node_addresses(0, 0)  # pools that are none raise ValueError
        if self._registry.entries:
            return _error(500, "machines already exist: Internal Server Error")
        self._registry.ipam = ipam
        return _json(None)

    async def machines(self, request: web.Request) -> web.Response:
        wanted = request.query
        found = [
            e
            for _, e in sorted(self._registry.entries.items())
            if wanted.get("serial", e.serial) == e.serial
            and wanted.get("rack", str(e.rack)) == str(e.rack)
            and wanted.get("role", e.role) == e.role
            and wanted.get("state", e.state.lower()) == e.state.lower()
            and ("ipv4" not in wanted or wanted["ipv4"] in e.ipv4)
        ]
        return _json([self._machine(e) for e in found]) if found else _error(404, _MISSING)

    def _machine(self, entry: RegisteredMachine) -> dict[str, Any]:
        ipam = self._registry.ipam or Ipam()
        return {
            "spec": {
                "serial": entry.serial,
                "labels": dict(entry.labels),
                "rack": entry.rack,
                "index-in-rack": entry.index_in_rack,
                "role": entry.role,
                "ipv4": list(entry.ipv4),
                "ipv6": None,
                "register-date": stamp(entry.registered_at),
                "retire-date": stamp(entry.retire_at),
                "bmc": {"ipv4": entry.bmc_ipv4, "ipv6": "", "type": entry.bmc_type},
            },
            "status": {
                "timestamp": stamp(entry.state_since),
                "duration": self._registry.timeline.now() - entry.state_since,
                "state": entry.state.lower(),
            },
            "info": {
                "network": {"ipv4": [nic(a, ipam.node_ipv4_range_mask, ipam.node_gateway_offset) for a in entry.ipv4]},
                "bmc": {"ipv4": nic(entry.bmc_ipv4, ipam.bmc_ipv4_range_mask, ipam.bmc_ipv4_gateway_offset)},
            },
        }

    async def register(self, request: web.Request) -> web.Response:
        """All or none, as one transaction."""
        wanted = msgspec.json.decode(await request.read(), type=list[dict[str, Any]])
        if self._registry.ipam is None:
            raise ForbiddenError("no-ipam", "IPAMConfig is not set")
        before = dict(self._registry.entries)
        try:
            for spec in wanted:
                retire = spec.get("retire-date")
                self._registry.register(
                    str(spec.get("serial", "")),
                    rack=int(spec.get("rack", 0)),
                    role=str(spec.get("role", "")),
                    labels=spec.get("labels") or {},
                    retire_at=None if retire is None else parse(retire),
                    bmc_type=(spec.get("bmc") or {}).get("type", ""),
                )
        except Exception:
            self._registry.entries = before
            raise
        return web.Response(status=201, content_type="application/json")

    async def remove(self, request: web.Request) -> web.Response:
        serial = request.match_info["serial"]
        if self._registry.entry(serial).state != MachineState.RETIRED:
            raise ForbiddenError("not-retired", "non-retired machine cannot be deleted")
        del self._registry.entries[serial]
        return web.Response()

    async def state(self, request: web.Request) -> web.Response:
        return web.Response(text=self._registry.entry(request.match_info["serial"]).state.lower())

    async def set_state(self, request: web.Request) -> web.Response:
        text = (await request.text()).strip()
        if text.upper() not in MachineState.__members__ or text != text.lower():
            raise ForbiddenError("invalid", f"invalid request: invalid state: {text}")
        self._registry.set_state(request.match_info["serial"], MachineState(text.upper()))
        return web.Response()

    async def set_labels(self, request: web.Request) -> web.Response:
        labels = msgspec.json.decode(await request.read(), type=dict[str, str])
        self._change(request, labels=dict(sorted({**self._entry(request).labels, **labels}.items())))
        return web.Response()

    async def set_retire_date(self, request: web.Request) -> web.Response:
        at = parse((await request.text()).strip())
        self._change(request, retire_at=at)
        return web.Response()

    def _entry(self, request: web.Request) -> RegisteredMachine:
        return self._registry.entry(request.match_info["serial"])

    def _change(self, request: web.Request, **changes: Any) -> None:
        entry = self._entry(request)
        self._registry.entries[entry.serial] = msgspec.structs.replace(entry, **changes)
