import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # pooled_worlds.py, with --import-mode=importlib
