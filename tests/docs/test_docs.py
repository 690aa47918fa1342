"""The docs say what is there: links resolve, commands parse, names exist, every reason has its row."""

import re
import shlex
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml
from cyclopts import CycloptsError

import mooring
from mooring.cli import app
from mooring.core.model.reasons import Reason

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?mooring (.+)$", re.MULTILINE)
#: In backticks: a path of ours, or a module.
FILE = re.compile(r"`((?:src|tests|docs|bench|charts|\.ci)/[\w./-]+)`")
MODULE = re.compile(r"`(mooring(?:\.\w+)+)`")
#: Words that stand for something of the reader's.
PLACEHOLDER = re.compile(r"…|\.\.\.|<[^>]+>|\[[^\]]*\]|\b[A-Z]{2,}[A-Z./]*\b(?!=)")


def name(page):
    return str(page.relative_to(ROOT))


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_resolve(page):
    """A link to a file of ours leads to one, and its anchor to a heading."""
    text = FENCE.sub("", page.read_text())
    broken = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            broken.append(target)
        elif anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            if anchor not in {slug(h) for h in headings}:
                broken.append(target)
    assert broken == []


def blocks(text):
    """What is shown as code: between fences, or indented by four spaces."""
    yield from FENCE.findall(text)
    yield from (textwrap.dedent(block) for block in re.findall(r"(?:^ {4}\S.*\n)+", FENCE.sub("", text), re.MULTILINE))


def commands():
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue  # it tells of the past
        for block in blocks(page.read_text()):
            joined = block.replace("\\\n", " ")
            for line in COMMAND.findall(joined):
                words = re.split(r"\s#|\s{3,}|\s[|>&;]", line)[0].strip()
                if words and not PLACEHOLDER.search(words):
                    yield pytest.param(words, id=f"{page.stem}: {words}")


@pytest.mark.parametrize("line", list(commands()))
def test_commands_in_the_docs_parse(line):
    """What a reader copies is understood: the command is there, and so are its flags."""
    words = shlex.split(line)
    if "--help" in words or "--version" in words:
        words = [w for w in words if w not in {"--help", "--version"}]
        if not words:
            return
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        pytest.fail(f"mooring {line}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_can_be_pasted(page):
    """A remark behind a command is a comment of the shell."""
    typed = re.compile(
        r"^(?:\$ )?(?:\.venv/bin/)?(?:mooring|kubectl|helm|make|curl|podman|pd-ctl) .*?\S {3,}(?![# ]).+", re.MULTILINE
    )
    assert [line[:90] for block in blocks(page.read_text()) for line in typed.findall(block)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_names_in_backticks_exist(page):
    """A file or module of ours that a page names is there. (The changelog tells of what is no more.)"""
    text = page.read_text()
    missing = [path for path in FILE.findall(text) if not (ROOT / path.rstrip("/")).exists()]
    for module in MODULE.findall(text):
        # The last part may be a name inside the module.
        parts = module.split(".")
        places = [ROOT / "src" / Path(*parts[:end]) for end in (len(parts), len(parts) - 1)]
        if not any(place.is_dir() or place.with_suffix(".py").exists() for place in places):
            missing.append(module)
    assert missing == []


def test_every_reason_has_its_row():
    """O3: whatever code `why`, an alert or an Event carries, the page of reasons says what it means and what ends it."""
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "reasons.md").read_text(), re.MULTILINE
    )
    codes = [code for code, _, _ in rows]
    assert sorted(codes) == sorted(str(reason) for reason in Reason)
    assert len(codes) == len(set(codes))
    assert all(means.strip() and ends.strip() for _, means, ends in rows)


#: What others may write on an object, or read there: each has its row in the table of annotations and labels.
KEY = re.compile(
    r"(?:mooring\.dev|vacant\.io|tidb\.pingcap\.com|node-restriction\.kubernetes\.io)/[a-z][a-z0-9-]*[a-z]\b"
)


def test_every_annotation_and_label_has_its_row():
    """O3: whoever finds a key on an object finds it in docs/reference.md: who writes it, and what it does."""
    source = "".join(path.read_text() for path in (ROOT / "src" / "mooring").rglob("*.py"))
    table = (ROOT / "docs" / "reference.md").read_text()
    cells = " ".join(re.findall(r"^\| (.+?) \|", table, re.MULTILINE))
    assert set(KEY.findall(source)) - set(KEY.findall(cells)) == set()


def test_the_golden_answers_use_codes_that_the_page_explains():
    """The answer that `docs/why.md` shows is one that the sandbox gave."""
    shown = FENCE.findall((ROOT / "docs" / "why.md").read_text())[1]
    golden = (ROOT / "tests" / "core" / "why" / "golden" / "waiting-behind-another-hand-over.txt").read_text()
    assert shown in golden


def test_the_version_is_the_same_everywhere():
    """Package, code, chart, lock file and the newest heading of the changelog name one version."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "mooring" / "Chart.yaml").read_text())
    assert {
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        tomllib.loads((ROOT / "src/mooring_lab/pyproject.toml").read_text())["project"]["version"],
        *(package["version"] for package in lock if package["name"] in {"mooring", "mooring-lab"}),
        chart["version"],
        chart["appVersion"],
        re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1],
        *re.findall(r"mooring:(\d[\d.]*\d)", (ROOT / "docs" / "install.md").read_text()),
    } == {mooring.__version__}
