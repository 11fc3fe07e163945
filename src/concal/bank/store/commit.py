"""One commit from start to end: build on the head, and when another writer was faster build again on the new head."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import concal
from concal.bank.store.files import sha256
from concal.bank.store.manifest import FORMAT, Parent, Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Conflict, Transaction
from concal.bank.store.upkeep import sweep
from concal.errors import ConcalError

Build = Callable[[Snapshot, Transaction], Snapshot]


def commit(store: Store, build: Build) -> Snapshot:
    """Commit what `build(head, transaction)` returns; it is called again whenever another writer was faster.

    What fails on a head that is not the newest any more is tried on the newest, too: its files may have been pruned.
    """
    sweep(store)
    while True:
        head = store.head()
        with Transaction(store, head.number) as transaction:
            try:
                done = transaction.commit(build(head, transaction))
            except Conflict:
                continue
            except ConcalError:
                if store.numbers()[-1] == head.number:
                    raise
                continue
        sweep(store)  # on object storage what a dead writer left can be judged only now
        return done


def successor(
    store: Store, head: Snapshot, transaction: Transaction, action: str, reason: str, **changes: Any
) -> Snapshot:
    """The draft of the version after `head`: the same but for the changes, with its parent's hash."""
    values = {name: getattr(head, name) for name in Snapshot.model_fields} | changes
    values |= {
        "number": head.number + 1,
        "id": transaction.id,
        "parent": Parent(number=head.number, sha256=sha256(store.read_bytes_of_snapshot(head.number))),
        **stamp(action, reason),
    }
    return Snapshot.model_validate(values)


def stamp(action: str, reason: str = "") -> dict[str, Any]:
    """Who writes a version, when, with what and why."""
    return {
        "format": FORMAT,
        "concal": concal.__version__,
        "written": now(),
        "author": author(),
        "action": action,
        "reason": reason,
    }


def now() -> str:
    """Time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def author() -> str:
    """Who runs this process and where; never a reason to fail."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
