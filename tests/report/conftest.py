import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # reported_bank.py, with --import-mode=importlib
