"""The sandbox's sabakan over HTTP on loopback: the search, which is all that Mooring asks it.

In the words and with the habits of the real one: `[]` for an empty search, 422 for a bad enum.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from aiohttp import web
from graphql import GraphQLError, GraphQLSchema, build_schema, execute_sync, parse, validate

from mooring.clients.ports import Json
from mooring.core.model.machine import MachineState
from mooring_lab.cluster.sabakan.registry import (
    BadVariablesError,
    ForbiddenError,
    RegisteredMachine,
    SandboxSabakan,
    check,
)

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# sabakan's GraphQL: the part of its schema that a registry is asked by, answered by graphql-core.


SCHEMA: Final[GraphQLSchema] = build_schema(
    f"""
    scalar IPAddress
    scalar DateTime
    enum MachineState {{ {" ".join(MachineState)} }}
    input LabelInput {{ name: String! value: String! }}
    input MachineParams {{
      labels: [LabelInput!] racks: [Int!] roles: [String!] states: [MachineState!] minDaysBeforeRetire: Int
    }}
    type Label {{ name: String! value: String! }}
    type BMC {{ bmcType: String! ipv4: IPAddress! }}
    type MachineStatus {{ state: MachineState! timestamp: DateTime! duration: Float! }}
    type MachineSpec {{
      serial: ID! labels: [Label!] rack: Int! indexInRack: Int! role: String! ipv4: [IPAddress!]!
      registerDate: DateTime! retireDate: DateTime! bmc: BMC!
    }}
    type Machine {{ spec: MachineSpec! status: MachineStatus! }}
    type Query {{
      searchMachines(having: MachineParams, notHaving: MachineParams): [Machine!]!
      machine(serial: ID!): Machine!
    }}
    type Mutation {{ setMachineState(serial: ID!, state: MachineState!): MachineStatus! }}
    """
)
_TYPES: Final = {"not-found": "MACHINE_NOT_FOUND", "transition": "INVALID_STATE_TRANSITION"}


class _Root:
    """The resolvers: graphql-core calls them by the name of the field."""

    def __init__(self, registry: SandboxSabakan) -> None:
        self._registry = registry

    def searchMachines(self, _: Any, **variables: Any) -> list[Json]:  # noqa: N802 - sabakan's word
        return [machine_json(entry, self._registry) for entry in self._registry.find(variables)]

    def machine(self, _: Any, serial: str) -> Json:
        return machine_json(self._registry.entry(serial), self._registry)

    def setMachineState(self, _: Any, serial: str, state: str) -> Json:  # noqa: N802 - sabakan's word
        self._registry.set_state(serial, MachineState(state))
        status: Json = self.machine(None, serial)["status"]
        return status


def execute(registry: SandboxSabakan, query: str, variables: Json) -> tuple[int, Json]:
    """Status and body, as sabakan answers."""
    try:
        document = parse(query)
    except GraphQLError as error:
        return 422, _errors(error.message, code="GRAPHQL_PARSE_FAILED")
    wrong = validate(SCHEMA, document)
    if wrong:
        return 422, _errors(wrong[0].message.split(" Did you mean")[0].replace("'", '"'))
    try:
        check(variables)
    except BadVariablesError as error:
        return 422, _errors(str(error), path=error.path)
    found = execute_sync(SCHEMA, document, _Root(registry), variable_values=variables)
    if not found.errors:
        return 200, {"data": found.data}
    first, why = found.errors[0], found.errors[0].original_error
    if not isinstance(why, ForbiddenError):
        return 422, _errors(first.message)
    extensions = {"serial": why.serial, "type": _TYPES.get(why.kind, "INTERNAL_SERVER_ERROR")}
    return 200, {"errors": [{"message": first.message, "path": first.path, "extensions": extensions}], "data": None}


def _errors(message: str, *, code: str = "GRAPHQL_VALIDATION_FAILED", path: list[str | int] | None = None) -> Json:
    error: Json = {"message": message, "extensions": {"code": code}}
    return {"errors": [error if path is None else error | {"path": path}], "data": None}


def machine_json(entry: RegisteredMachine, registry: SandboxSabakan) -> Json:
    """A machine as the GraphQL type has it."""
    return {
        "spec": {
            "serial": entry.serial,
            "labels": [{"name": k, "value": v} for k, v in entry.labels.items()],
            "rack": entry.rack,
            "indexInRack": entry.index_in_rack,
            "role": entry.role,
            "ipv4": list(entry.ipv4),
            "registerDate": stamp(entry.registered_at),
            "retireDate": stamp(entry.retire_at),
            "bmc": {"bmcType": entry.bmc_type, "ipv4": entry.bmc_ipv4},
        },
        "status": {
            "state": entry.state.value,
            "timestamp": stamp(entry.state_since),
            "duration": registry.timeline.now() - entry.state_since,
        },
    }


def stamp(at: float) -> str:
    """As sabakan writes times: RFC 3339 in UTC, fractions without trailing zeros."""
    text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def sabakan_app(registry: SandboxSabakan) -> web.Application:
    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if registry.latency_s:
            await asyncio.sleep(registry.latency_s)
        if registry.away and request.transport is not None:
            request.transport.close()
            return web.Response()
        return await handler(request)

    async def search(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as e:
            words = f"json request body could not be decoded: {e} body:{body.decode(errors='replace')}"
            return _json({"errors": [{"message": words}], "data": None}, 400)
        status, answer = execute(registry, str(asked.get("query", "")), asked.get("variables") or {})
        return _json(answer, status)

    app = web.Application(middlewares=[gate])
    app.add_routes([web.post("/graphql", search)])
    return app


def _json(value: Any, status: int) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
