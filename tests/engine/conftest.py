import sys
from pathlib import Path

# The hand-driven cluster is plain code beside these tests.
sys.path.insert(0, str(Path(__file__).parent))
