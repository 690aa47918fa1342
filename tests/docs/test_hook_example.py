"""L2: the hook in docs/leaders.md runs as it stands there, and our driver hands leadership on through it."""

import asyncio
import re
import socket
import subprocess
import sys
from pathlib import Path

from mooring.clients.leaders.ask import HttpAsk
from mooring.clients.leaders.hook import Hook
from mooring.clients.ports import UnansweredError

PAGE = Path(__file__).parents[2] / "docs" / "leaders.md"


async def test_the_example_answers_our_driver(tmp_path):
    """L2: status, leave, and at most 40 lines."""
    code = re.search(r'```python\n(""".*?)```', PAGE.read_text(), re.DOTALL).group(1)
    assert len(code.splitlines()) <= 40
    (tmp_path / "hook.py").write_text(code)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "hook.py", str(port)], cwd=tmp_path, stderr=subprocess.DEVNULL) as child:
        ask = HttpAsk()
        try:
            names = ("kafka-0", "kafka-1", "kafka-2")
            driver = Hook(ask, dict.fromkeys(names, f"http://127.0.0.1:{port}/"))
            async with asyncio.timeout(30):
                view = None
                while view is None or not view.members[0].healthy:
                    try:
                        view = await driver.read()
                    except UnansweredError:
                        await asyncio.sleep(0.05)
            assert [m.leaders for m in view.members] == [1, 0, 0] and all(m.is_well for m in view.members)
            await driver.move_off("kafka-0", "kafka-1")
            assert [m.leaders for m in (await driver.read()).members] == [0, 1, 0]
            await driver.release("kafka-0")
        finally:
            await ask.close()
            child.kill()
