"""NetBox as its REST documentation describes it: `/api/dcim/devices/` with paging, filters and a token.

Written from the documentation of NetBox 4; no NetBox was asked.
"""

from aiohttp import web


def device(number, serial, address, *, status="active", role="cs", rack=1, **fields):
    """One device in the shape of the documented answer."""
    ip = {"id": number, "family": {"value": 4, "label": "IPv4"}, "address": f"{address}/24"} if address else None
    made = {
        "id": number,
        "name": f"node-{number}",
        "device_type": {"id": 1, "manufacturer": {"slug": "dell"}, "model": "R640", "slug": "r640"},
        "role": {"id": 1, "name": role.upper(), "slug": role},
        "serial": serial,
        "asset_tag": None,
        "site": {"id": 1, "name": "Tokyo", "slug": "tokyo"},
        "rack": {"id": rack, "name": f"R{rack}"},
        "position": 4.0,
        "status": {"value": status, "label": status.title()},
        "primary_ip4": ip,
        "oob_ip": None,
        "tags": [],
        "custom_fields": {"retire_date": "2031-06-01"},
        "created": "2024-01-10T09:00:00.123456Z",
        "last_updated": "2024-02-01T00:00:00Z",
    }
    return {**made, **fields}


class NetboxServer:
    def __init__(self, devices=(), *, token="", page_limit=1000):
        self.devices = list(devices)
        self.token = token
        self.page_limit = page_limit
        #: Queries as they came.
        self.asked: list[dict[str, list[str]]] = []
        self.down = False

    def app(self):
        app = web.Application()
        app.router.add_get("/api/dcim/devices/", self.get)
        return app

    async def get(self, request):
        asked = {key: request.query.getall(key) for key in request.query}
        self.asked.append(asked)
        if self.down:
            return web.Response(status=502, text="bad gateway")
        if self.token and request.headers.get("Authorization") != f"Token {self.token}":
            return web.json_response({"detail": "Invalid token"}, status=403)
        found = [d for d in self.devices if not asked.get("role") or d["role"]["slug"] in asked["role"]]
        limit = min(int(request.query.get("limit", "50")), self.page_limit)
        offset = int(request.query.get("offset", "0"))
        page = found[offset : offset + limit]
        following = str(request.url.update_query(offset=offset + limit)) if offset + limit < len(found) else None
        return web.json_response({"count": len(found), "next": following, "previous": None, "results": page})
