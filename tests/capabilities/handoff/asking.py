"""Asking is free: evaluate every key and every running operator twice, and compare everything within reach by value."""

import io
import pickle
from types import MappingProxyType
from typing import Any

from mooring.core.engine.engine import Engine


class Asker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.evaluations = self.proposals = self.steps = self.notes = 0

    def ask(self, engine: Engine) -> None:
        capability = engine.capabilities[self.name]
        before = self._all(engine)
        for key in capability.keys(engine.world):
            notes = engine.notes.get((self.name, key))
            first, second = (capability.evaluate(key, engine.world, engine.queue, notes, engine.now) for _ in range(2))
            assert first == second, key
            self.evaluations += 1
            self.proposals += len(first.proposals)
            self.notes += first.notes is not None
        for running in engine.running.values():
            if running.operator.source in capability.sources:
                was = repr(running)
                steps = [capability.next_step(running, engine.world, engine.queue, engine.now) for _ in range(2)]
                assert steps[0] == steps[1]
                assert repr(running) == was
                self.steps += 1
        assert self._all(engine) == before, "something was changed by asking"

    def _all(self, engine: Engine) -> bytes:
        out = io.BytesIO()
        _ByValue(out).dump((vars(engine.capabilities[self.name]), vars(engine.world), vars(engine.queue), engine.notes))
        return out.getvalue()


class _ByValue(pickle.Pickler):
    def reducer_override(self, obj: object) -> Any:
        return (dict, (dict(obj),)) if isinstance(obj, MappingProxyType) else NotImplemented
