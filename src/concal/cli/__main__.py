"""``python -m concal.cli``."""

from concal.cli import main

main()
