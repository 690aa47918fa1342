"""M13: small. It runs on every node, so what it takes is taken 2,000 times."""

import json
import subprocess
import sys

from tests.agent.services import Aws, served

#: Turns in the child: as many as in 17 minutes.
TURNS = 200
RESIDENT = "print(int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1]))"
WATCH = f"""
import json, ssl, sys, time
from mooring.agent.clouds import Metadata
from mooring.agent.watch import Agent, Settings

class Node:
    def patch(self, annotation):
        ssl.create_default_context(cafile=sys.argv[2])
        return {{"metadata": {{}}, "spec": {{"providerID": "aws:///z/i-1"}}}}

agent = Agent(Settings("n1"), Node(), Metadata("127.0.0.1", int(sys.argv[1])))
agent.turn()
began = time.process_time()
for _ in range({TURNS}):
    agent.turn()
print(time.process_time() - began)
print(json.dumps(sorted(m for m in sys.modules if m.partition(".")[0] in ("mooring", "msgspec", "aiohttp", "asyncio"))))
{RESIDENT}
"""


def measured(*arguments: str) -> list[str]:
    ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=True)
    return ran.stdout.split("\n")[:-1]


def test_it_takes_little_more_memory_than_python_and_next_to_no_processor(tmp_path):
    """Measured at 21 MB and 0.02 % of a core; bounds that hold on any machine that tests run on."""
    import ssl

    authority = tmp_path / "ca.crt"
    (first, *_) = ssl.create_default_context().get_ca_certs(binary_form=True)
    authority.write_text(ssl.DER_cert_to_PEM_cert(first))
    (bare,) = measured("-c", RESIDENT)
    with served(Aws()) as metadata:
        cpu_s, modules, resident = measured("-c", WATCH, str(metadata._at[1]), str(authority))
    assert json.loads(modules) == ["mooring", "mooring.agent", "mooring.agent.clouds", "mooring.agent.watch"]
    assert int(resident) < 3 * int(bare) and int(resident) < 32 * 1024
    # Of the five seconds between two looks.
    assert float(cpu_s) / TURNS / 5.0 < 0.004
    print(
        f"resident {int(resident) / 1024:.1f} MB (bare {int(bare) / 1024:.1f}), {float(cpu_s) / TURNS / 5.0:.3%} of a core"
    )
