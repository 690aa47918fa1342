import sys
from pathlib import Path

# The stage is plain code beside these tests.
sys.path.insert(0, str(Path(__file__).parent))
