"""Inputs from seeds: real messages, changed a little or a lot. The same seed and number give the same input."""

import json
import math
import random
from typing import Any

ODD: list[Any] = [
    None, True, 0, -1, 2**63, 2**64, 10**4000, 1e308, "", "\x1b[2J\r\n", "\u0000", "9" * 5000, "²", "a/b/c/d", "-", [], {}, [[]],
    "30%", "1e999", "mooring.dev/leaving", "../..", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00", [None] * 20,
]  # fmt: skip
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"\\",
    b"\\ud800",
    b"\xff",
    b"\x00",
    b"1e999",
    b"-",
    b"null",
    b"{" * 50,
    b'{"a":' * 3000,
    b"[" * 3000,
    b"9" * 5000,
    b"NaN",
]


#: One input in so many has a part that is large.
LARGE = 40
#: No input is made larger: what the API server takes of one object.
LARGEST = 1_500_000


def mutated(seed: bytes, randomness: random.Random) -> bytes:
    """Most often the tree is changed and the text stays JSON; sometimes it is the bytes, sometimes a size."""
    way = randomness.random()
    if way < 0.05:
        return randomness.randbytes(randomness.randrange(64))
    if way < 0.3:
        return _bytes(seed, randomness)
    try:
        tree = json.loads(seed)
    except ValueError:
        return _bytes(seed, randomness)
    for _ in range(randomness.choice((1, 1, 2, 3, 8))):
        tree = _tree(tree, randomness, ODD)
    if randomness.randrange(LARGE) == 0:
        body = _dumped(_tree(tree, randomness, [_large(randomness)]))
        if len(body) <= LARGEST:
            return body
    return _dumped(tree)


def _dumped(tree: Any) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()


def _large(randomness: random.Random) -> Any:
    """A long text, a dense structure, or very many different ones: of any order of magnitude alike."""
    length = int(2 ** randomness.uniform(8, math.log2(LARGEST)))
    match randomness.randrange(6):
        case 0:
            return randomness.choice("9xxx\u00e9\\") * length
        case 1:
            return [randomness.choice(([], {}, 0, [[]], {"": {}}))] * (length // 3)
        case 2:
            return {f"{number:x}": randomness.choice((0, "", [])) for number in range(length // 8)}
        case 3:
            return [{f"{number}-{length}": str(number)} for number in range(length // 24)]
        case 4:
            return [f"{number}-{length}" for number in range(length // 12)]
        case _:
            short = [one for one in ODD if len(str(one)) < 50]
            return [randomness.choice(short) for _ in range(length // 16)]


def _bytes(seed: bytes, randomness: random.Random) -> bytes:
    body = bytearray(seed)
    for _ in range(randomness.choice((1, 1, 2, 5))):
        at = randomness.randrange(len(body) + 1)
        match randomness.randrange(4):
            case 0:
                body[at : at + randomness.randrange(1, 9)] = randomness.choice(TOKENS)
            case 1:
                del body[at : at + randomness.randrange(1, 40)]
            case 2:
                body[at:at] = randomness.choice(TOKENS)
            case _:
                body[at:at] = body[: randomness.randrange(1, 60)]
    return bytes(body)


def _tree(value: Any, randomness: random.Random, others: list[Any]) -> Any:
    """One place in it is one of the others: walked down by randomness, changed where the walk ends."""
    if isinstance(value, dict) and value and randomness.random() < 0.9:
        key = randomness.choice(list(value))
        match randomness.randrange(12):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {**value, str(randomness.choice(ODD)): value[key]}
            case _:
                return {**value, key: _tree(value[key], randomness, others)}
    if isinstance(value, list) and value and randomness.random() < 0.9:
        at = randomness.randrange(len(value))
        match randomness.randrange(12):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value + [value[at]] * randomness.randrange(1, 6)
            case _:
                return [*value[:at], _tree(value[at], randomness, others), *value[at + 1 :]]
    if isinstance(value, str) and value and randomness.random() < 0.3:
        at = randomness.randrange(len(value))
        return value[:at] + str(randomness.choice(others)) + value[at + randomness.randrange(3) :]
    return randomness.choice(others)
