"""Small banks and synthetic calibrations."""

from __future__ import annotations

from pathlib import Path

import pytest

from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import FORMAT, Parent, Snapshot
from concal.bank.store.parquet import write_bytes
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction, create_store


def first_snapshot(store: Store, transaction: Transaction) -> Snapshot:
    entry = write_bytes(store.root / "bank.toml", "bank.toml", b"# spec\n")
    return Snapshot(
        format=FORMAT, bank="0" * 16, number=0, id=transaction.id, parent=None, concal="test", written="now",
        author="me", action="create", spec=entry,
    )  # fmt: skip


def next_snapshot(head: Snapshot, store: Store, transaction: Transaction, **changes: object) -> Snapshot:
    parent = Parent(number=head.number, sha256=sha256(store.read_bytes_of_snapshot(head.number)))
    return head.model_copy(update={"number": head.number + 1, "id": transaction.id, "parent": parent, **changes})


def commit_text(store: Store, name: str, text: str) -> Snapshot:
    """One commit that adds a small file."""
    head = store.head()
    with Transaction.begin(store) as transaction:
        writer = FolderWriter(transaction, "note")
        writer.text(name, f"{name}.txt", text.encode())
        return transaction.commit(
            next_snapshot(head, store, transaction, action=f"add {name}", state={**head.state, **writer.files})
        )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return create_store(tmp_path / "bank", first_snapshot)
