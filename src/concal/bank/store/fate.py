"""Whether an old version goes or stays where there is no lock: one conditional create decides.

Who prunes a version and who releases it each first try to create ``work/fate-<number>`` with their word in it; one word
gets there, and everybody who comes later reads it. So a released version is never pruned and a pruned one never
released, however many prune at once, and nothing that was removed has ever to be brought back. In a folder the lock
does this, and there is no such file.
"""

from __future__ import annotations

from concal.bank.store.store import Store

FATE = "work/fate-"
PRUNED = b"pruned\n"
RELEASED = b"released\n"


def decide(store: Store, number: int, word: bytes) -> bool:
    """Whether this is the version's fate: nobody had decided, or had decided the same."""
    return store.objects.has_lock or store.objects.create(fate_name(number), word, store.work)


def fate_name(number: int) -> str:
    """Of the file."""
    return f"{FATE}{number:020d}"
