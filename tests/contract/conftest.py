"""The sandbox's side of the contract suite."""

import sys
from pathlib import Path

# The same assertions run here and in tests/e2e.
sys.path.insert(0, str(Path(__file__).parent))
