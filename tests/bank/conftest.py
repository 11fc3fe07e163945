"""Small banks and synthetic calibrations, in a folder and on object storage."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import FORMAT, Parent, Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction, create_store

from .places import BUCKET, ENVIRONMENT, Place, has_cloud, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 server on this machine."""
    if reason := has_cloud():
        pytest.skip(reason)
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of one's own on object storage, with a cache of one's own."""
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": s3, "CONCAL_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{secrets.token_hex(6)}"


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where banks go; every test that asks for it runs in a folder and on object storage."""
    return Place(tmp_path if request.param == "folder" else request.getfixturevalue("bucket"))


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """As `place`, for tests whose time goes into numbers: on object storage only with the slow ones."""
    return Place(tmp_path if request.param == "folder" else request.getfixturevalue("bucket"))


def first_snapshot(transaction: Transaction) -> Snapshot:
    writer = FolderWriter(transaction, "spec")
    writer.text("spec", "bank.toml", b"# spec\n")
    return Snapshot(
        format=FORMAT, bank="0" * 16, number=0, id=transaction.id, parent=None, concal="test", written="now",
        author="me", action="create", spec=writer.files["spec"],
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
def store(place: Place) -> Store:
    return create_store(place / "bank", first_snapshot)
