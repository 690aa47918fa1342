"""Asking is free: ask a capability everything twice, and compare all that it can reach by value."""

import io
import pickle
from collections import Counter
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from mooring.core.engine.engine import Engine
from mooring.core.queue import Queue


def by_value(*things: object) -> bytes:
    """Everything reachable from these, rows, indexes, records and attributes with or without a `__dict__`."""
    out = io.BytesIO()
    _ByValue(out).dump(things)
    return out.getvalue()


class _ByValue(pickle.Pickler):
    def reducer_override(self, obj: object) -> Any:
        return (dict, (dict(obj),)) if isinstance(obj, MappingProxyType) else NotImplemented


class Asker:
    """Asks about every key and every running operator twice, with the engine's notes and without any."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.evaluations: Counter[str] = Counter()
        self.proposals: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    def ask(self, engine: Engine, *unknown: str) -> None:
        """`unknown`: keys that the capability does not list."""
        reached = (vars(engine.world), vars(engine.queue), engine.notes)
        for name in self.names:
            capability = engine.capabilities[name]
            before = by_value(vars(capability), *reached)
            self._evaluate(engine, name, dict.fromkeys([*capability.keys(engine.world), *unknown]))
            self._step(engine, name)
            assert by_value(vars(capability), *reached) == before, f"{name}: something was changed by asking"

    def _evaluate(self, engine: Engine, name: str, keys: Iterable[str]) -> None:
        evaluate, world, now = engine.capabilities[name].evaluate, engine.world, engine.now
        for key in keys:
            notes = engine.notes.get((name, key))
            first, second = (evaluate(key, world, engine.queue, notes, now) for _ in range(2))
            assert first == second, f"{name}: {key}"
            # What is proposed already stands in the engine's queue: nobody's notes and an empty queue propose it again.
            anew, again = (evaluate(key, world, Queue(), None, now) for _ in range(2))
            assert anew == again, f"{name}: {key}"
            self.evaluations[name] += 1
            self.proposals[name] += len(first.proposals) + len(anew.proposals)
            self.notes[name] += notes is not None

    def _step(self, engine: Engine, name: str) -> None:
        capability = engine.capabilities[name]
        for running in engine.running.values():
            if running.operator.source in capability.sources:
                first, second = (
                    capability.next_step(running, engine.world, engine.queue, engine.now) for _ in range(2)
                )
                assert first == second, f"{name}: {running.operator.id}"
                self.steps[name] += 1
