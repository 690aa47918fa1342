import sys
from pathlib import Path

# The scenes are plain code beside these tests.
sys.path.insert(0, str(Path(__file__).parent))
