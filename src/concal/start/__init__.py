"""From one's own files to a first bank.toml: what the columns are, what kind of scores each item has, what is odd."""

from concal.start.start import Start, look_at_files, write_start

__all__ = ["Start", "look_at_files", "write_start"]
