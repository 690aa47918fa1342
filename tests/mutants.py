"""A small mutation sweep: change one thing in the product, run the tests beside it, and see whether one fails.

    python -m tests.mutants --sample 40 --under core/queue

A mutant that no test notices has survived; the last lines say which share did, per package. Each mutant is one change in a copy of the
source: a comparison turned, `and` for `or`, a `not` dropped, a number one larger, a truth turned around. `--seed` draws
the same mutants again. Run at night: it takes minutes (`make mutants`).
"""

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mooring"
WHERE = ("core", "capabilities", "process/act.py")
#: Tests that do not stand where their module does.
ELSEWHERE = {"core/engine/why": "core/why"}
TURNED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What can be changed, and in which words."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[one, *_]) if type(one) in TURNED:
                yield node, f"{type(one).__name__} → {TURNED[type(one)].__name__}"
            case ast.BoolOp():
                yield node, "and ↔ or"
            case ast.UnaryOp(op=ast.Not()):
                yield node, "not dropped"
            case ast.Constant(value=bool() as truth):
                yield node, f"{truth} → {not truth}"
            case ast.Constant(value=int() | float() as number):
                yield node, f"{number} → {number + 1}"
            case _:
                pass


def change(node: ast.AST) -> None:
    match node:
        case ast.Compare(ops=[one, *rest]):
            node.ops = [TURNED[type(one)](), *rest]
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp():
            # `not x` becomes `not not x`: as true as x.
            node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
        case ast.Constant(value=bool() as truth):
            node.value = not truth
        case ast.Constant(value=int() | float() as number):
            node.value = number + 1
        case _:
            raise AssertionError(node)


def modules(under: str) -> list[Path]:
    roots = [SOURCE / under] if under else [SOURCE / where for where in WHERE]
    return sorted(file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py")))


def tests_of(module: Path) -> Path:
    """The nearest test directory beside a module: tests/ mirrors src/mooring/."""
    relative = module.relative_to(SOURCE)
    named = ROOT / "tests" / relative.parent / f"test_{relative.name}"
    if named.exists():
        return named
    place = ROOT / "tests" / ELSEWHERE.get(str(relative.parent), relative.parent)
    while not place.is_dir():
        place = place.parent
    return place


def draw(under: str, sample: int, seed: int) -> list[tuple[Path, int]]:
    """So many of all possible mutants: a module and the number of the place in it."""
    every = [
        (module, number)
        for module in modules(under)
        for number, _ in enumerate(places(ast.parse(module.read_text(encoding="utf-8"))))
    ]
    return sorted(random.Random(seed).sample(every, min(sample, len(every))))


def package(module: Path) -> str:
    """As the shares are told: core/queue, capabilities/mix, process/act.py."""
    return "/".join(module.relative_to(SOURCE).parts[:2])


def survives(copy: Path, module: Path, number: int, cpu_s: int) -> tuple[bool, str]:
    """Whether no test fails, and what was changed."""
    original = module.read_text(encoding="utf-8")
    tree = ast.parse(original)
    node, words = list(places(tree))[number]
    change(node)
    target = copy / module.relative_to(ROOT / "src")
    target.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    # What never ends has noticed. CPU is what counts: a busy machine must not kill a mutant.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-o", "timeout=0", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, str(tests_of(module))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s)),
        check=False,
    )
    target.write_text(original, encoding="utf-8")
    return ran.returncode == 0, f"{module.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {words}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--under", default="", help="a module or package below src/mooring; left out: core, capabilities, act"
    )
    parser.add_argument("--cpu", type=int, default=120, help="seconds of CPU after which the tests count as failed")
    given = parser.parse_args()
    chosen = draw(given.under, given.sample, given.seed)
    made, lived = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        shutil.copytree(ROOT / "src" / "mooring", copy / "mooring")
        for module, number in chosen:
            survived, words = survives(copy, module, number, given.cpu)
            made[package(module)] += 1
            lived[package(module)] += survived
            print(f"{'survived' if survived else 'killed  '}  {words}", flush=True)
    for name in sorted(made):
        print(f"{name}: {made[name]} mutants, {lived[name]} survived")
    print(f"{made.total()} mutants, {lived.total()} survived ({100 * lived.total() / max(1, made.total()):.0f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
