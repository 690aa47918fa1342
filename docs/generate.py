# ruff: noqa: E501
"""Write what the docs take from the code: settings.md, promises.md, api.schema.json and the README's sample of `make demo`.

.venv/bin/python -m docs.generate            # the two pages
.venv/bin/python -m docs.generate --sample   # the README's sample too: plays the day, some ten seconds
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from docs.promises import AREAS, PROMISES, PURE

from mooring.core.engine.why.words import Explanation
from mooring.core.queue.config import DEFAULT_STEP_COST
from mooring.process.assemble import queue_settings
from mooring.process.http.pagerows import NodeRow, QueueRow, RackRow, StoreRow
from mooring.process.settings.config import SCALARS, Config, written_out
from mooring.process.settings.keys import follows as follows_now
from mooring_lab.demo.acts import ACTS

ROOT = Path(__file__).parents[1]
WRITTEN = "<!-- Written by docs/generate.py: change the code, then run it again. -->"
UNITS = {"-s": "s", "-mib": "MiB", "-mb": "MiB", "-bytes": "bytes"}


# Settings


def comments(of: type[msgspec.Struct]) -> dict[str, str]:
    """Field → the `#:` comment above it."""
    lines = inspect.getsource(of).splitlines()
    found: dict[str, str] = {}
    above: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("#:"):
            above.append(text[2:].strip())
        elif field := re.match(r"    (\w+): ", line):
            found[field[1]] = " ".join(above)
            above = []
        elif text:
            above = []
    return found


def rows(of: msgspec.Struct, prefix: str = "", follows: bool = False) -> Iterator[tuple[str, str, str, bool, str]]:
    """Name, default, unit, whether it follows at run time, meaning; nested settings one by one."""
    meaning = comments(type(of) if prefix else Config)
    for field in msgspec.structs.fields(of):
        key, value = f"{prefix}{field.encode_name}", getattr(of, field.name)
        live = follows or follows_now(key)
        if isinstance(value, msgspec.Struct):
            yield from rows(value, f"{key}.", live)
            continue
        unit = next((unit for end, unit in UNITS.items() if key.endswith(end)), "")
        yield key, default_of(value), unit, live, meaning[field.name]


def default_of(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    if plain is None or (not plain and isinstance(plain, (str, tuple, list, dict))):
        return "–"
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    if isinstance(plain, (tuple, list, dict)) and len(json.dumps(plain)) > 80:
        return f"{len(plain)} entries (`mooring config -o json`)"
    return f"`{plain if isinstance(plain, str) else json.dumps(plain)}`"


def settings_page() -> str:
    text = f"""# Settings

{WRITTEN}

Settings stand in a file (`mooring run --config FILE`, YAML or JSON, nested at the dots). A name without a dot can also be an environment variable (`MOORING_LEASE_S=15`), except
{", ".join(f"`{key}`" for key in top_level_only())}; common ones have a flag, which wins over the environment, as that does over the file. An unknown name is an
error with the nearest one. `mooring config` prints each value in force and its source. A running Mooring follows changes of the file; those marked * need a restart.

"""
    sections: dict[str, list[str]] = {}
    for key, default, unit, live, meaning in rows(written_out(Config())):
        section = key.partition(".")[0] if "." in key else "general"
        shown = f"`{default.strip('`')} {unit}`" if unit and default != "–" else default
        cells = (f"`{key}`{'' if live else ' *'}", shown, meaning.replace("|", "\\|"))
        sections.setdefault(section, []).append("| " + " | ".join(cells) + " |")
    for section, lines in sections.items():
        title = section.capitalize() if section == "general" else f"`{section}`"
        text += f"## {title}\n\n| setting | default | meaning |\n|---|---|---|\n"
        text += "\n".join(lines) + "\n\n"
    return text + queue_section()


def top_level_only() -> list[str]:
    return [f.encode_name for f in msgspec.structs.fields(written_out(Config())) if f.encode_name not in SCALARS]


def queue_section() -> str:
    live = queue_settings(Config())
    caps = ", ".join(f"{name}: {'none' if n is None else n}" for name, n in live.scheduler_max_waiting_operator.items())
    costs = "; ".join(
        f"{kind} {', '.join(f'{role} {cost}' for role, cost in roles.items())}"
        for kind, roles in DEFAULT_STEP_COST.items()
    )
    limits = ", ".join(f"{kind}: {limit}" for kind, limit in live.target_limits.items())
    return f"""## Inside `queue`

`null` is no limit, 0 pauses. Step costs hold for operators that are submitted from then on.

| setting | default | meaning |
|---|---|---|
| `MaxScheduleCost` | `{live.max_schedule_cost}` | what may run on one store at once |
| `StoreMaxScheduleCost` | – | the same for single stores: `"tidb/demo/4"`; `"tidb/demo/*"` is every store of a cluster, a bare id that store of every cluster |
| `OperatorStepCost` | {costs} | what a step costs, by kind and role |
| `MaxWaitingOperator` | `{live.max_waiting_operator}` | how many operators of one source may wait |
| `SchedulerMaxWaitingOperator` | {caps} | the same for single sources |
| `CooldownSeconds` | `{live.cooldown_s:g} s` | a cost stays charged so long after a success: this bounds the rate, too |
| `ReplaceLowerPriority` | `{str(live.replacement).lower()}` | a higher priority replaces the operator that claims its subject |

Limits of the other targets are fixed: {limits}. See [the queue](queue.md).
"""


# Promises


def shown_by(root: Path = ROOT) -> dict[str, dict[str, set[str]]]:
    """Promise → "sandbox" or "real" → the test files that name it."""
    found = {name: {"sandbox": set[str](), "real": set[str]()} for name in PROMISES}
    for file in sorted((root / "tests").rglob("test_*.py")):
        tree = ast.parse(file.read_text())
        path = str(file.relative_to(root))
        whole = any(
            isinstance(n, ast.Assign) and "pytestmark" in ast.unparse(n) and "e2e" in ast.unparse(n) for n in tree.body
        )
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not node.name.startswith("test"):
                continue
            marked = any("e2e" in ast.unparse(decorator) for decorator in node.decorator_list)
            where = "real" if whole or marked or path.startswith("tests/e2e/") else "sandbox"
            for name in set(re.findall(r"\b[HTFEMDO]\d{1,2}\b", ast.get_docstring(node) or "")):
                if name in found:
                    found[name][where].add(path)
    return found


def demo_acts() -> dict[str, list[str]]:
    """Promise → the acts of the demo that check it."""
    acts: dict[str, list[str]] = {}
    for file in sorted((ROOT / "src" / "mooring_lab" / "demo" / "acts").glob("*.py")):
        for name in re.findall(r"Check\(\s*\"([A-Z]\d+)\"", file.read_text()):
            if file.stem not in acts.setdefault(name, []):
                acts[name].append(file.stem)
    return acts


#: Of each kind, what is named; a search for the id finds the others.
MOST_FILES = 2


def file_of(path: str) -> str:
    return path.rpartition("/")[2].removeprefix("test_").removesuffix(".py")


def promises_page() -> str:
    shown, acts = shown_by(), demo_acts()
    text = f"""# Promises

{WRITTEN}

Tests name the ids that they show, and so do the demo's checks: `grep -rwl E7 tests` lists those that "+N" counts. "Sandbox" needs nothing but Python (`make test`); "real" is a real Kubernetes
control plane, PD or sabakan (`make e2e`).

"""
    for letter, (title, page) in AREAS.items():
        text += f"## {title}\n\nSee [{page.removesuffix('.md')}]({page}).\n\n"
        for name, sentence in PROMISES.items():
            if name[0] != letter:
                continue
            text += f"### {name}\n\n{sentence}\n"
            for where, label in (("sandbox", "Sandbox"), ("real", "Real")):
                files = sorted(shown[name][where])
                none = PURE.get(name, "no test names it yet") if where == "real" else "no test names it yet"
                listed = ", ".join(f"[{file_of(path)}](../{path})" for path in files[:MOST_FILES])
                more = f" +{len(files) - MOST_FILES}" if len(files) > MOST_FILES else ""
                text += f"{label}: {listed or none}{more}.\n"
            text += f"Demo: {', '.join(f'`{act}`' for act in acts[name])}.\n" if name in acts else ""
            text += "\n"
    return text.rstrip() + "\n"


# The README's sample


def played() -> list[str]:
    """What the short day prints, line by line."""
    command = [sys.executable, "-m", "mooring", "demo", "--short"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=400, env={**os.environ, "COLUMNS": "200"}
    )
    return done.stderr.splitlines() + done.stdout.splitlines()


def sample(lines: list[str]) -> str:
    """The nine lines that the README shows: the opening, the last act in short, the totals."""
    acts = len(ACTS)
    last = next(i for i, line in enumerate(lines) if line.startswith(f"{acts}/{acts}"))
    totals = next(i for i, line in enumerate(lines) if line.startswith("LOST"))
    ended = next(i for i in range(last, totals) if lines[i].lstrip().startswith(("ok ", "FAIL ")))
    # Of the last act the command, the gate's first answer, and how it ended.
    shown = [lines[0], "  …", *lines[last : last + 2], *lines[ended - 1 : ended + 1], *lines[totals : totals + 3]]
    return "\n".join(["$ make demo", *shown]) + "\n"


# The API


def schema() -> str:
    """Of the answers of the API: that of `why`, and the rows of the frame."""
    answers = [Explanation, QueueRow, StoreRow, NodeRow, RackRow]
    _, parts = msgspec.json.schema_components(answers, ref_template="#/$defs/{name}")
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Answers of Mooring's API, v1",
        "$defs": parts,
    }
    return json.dumps(whole, indent=1) + "\n"


def main() -> None:
    (ROOT / "docs" / "api.schema.json").write_text(schema())
    (ROOT / "docs" / "settings.md").write_text(settings_page())
    (ROOT / "docs" / "promises.md").write_text(promises_page())
    if "--sample" in sys.argv:
        readme = ROOT / "README.md"
        text = re.sub(
            r"(?<=^```\n)\$ make demo\n.*?(?=^```$)",
            lambda _: sample(played()),
            readme.read_text(),
            flags=re.MULTILINE | re.DOTALL,
        )
        readme.write_text(text)


if __name__ == "__main__":
    main()
