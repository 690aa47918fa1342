"""State, layout and words of the page's scripts, tested by node where it is: `tests/process/page/js/*.test.js`."""

import shutil
import subprocess
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[3] / "src" / "mooring" / "process" / "http" / "static"
NODE = shutil.which("node")


@pytest.mark.skipif(not NODE, reason="no node on this machine")
def test_the_scripts_of_the_page(tmp_path):
    for file in (*STATIC.glob("*.js"), *(Path(__file__).parent / "js").glob("*.test.js")):
        shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    ran = subprocess.run([NODE, "--test"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
