"""Small banks and synthetic calibrations, in a folder and on object storage."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import FORMAT, Parent, Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction, create_store

from .places import Place
from .servers import SERVERS, NotHere, Server

ELSEWHERE = [pytest.param(name, marks=pytest.mark.slow) for name in ("ministack", "azure", "google")]


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """Servers by name, started when first asked for; a test skips where one is not installed."""
    found: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(name: str) -> Server:
            if name not in found:
                try:
                    found[name] = stack.enter_context(SERVERS[name](tmp_path_factory.mktemp(name)))
                except NotHere as error:
                    pytest.skip(str(error))
            return found[name]

        yield get


@pytest.fixture
def use(started: Callable[[str], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Turn the environment to a server; returns a prefix of one's own there, with a cache of one's own."""

    def turn(name: str) -> str:
        server = started(name)
        for variable, value in {**server.environment, "CONCAL_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setenv(variable, value)
        return f"{server.bucket}/{secrets.token_hex(6)}"

    return turn


@pytest.fixture
def bucket(use: Callable[[str], str]) -> str:
    """A prefix of one's own on an S3 server."""
    return use("s3")


@pytest.fixture(params=["folder", "s3", *ELSEWHERE])
def place(request: pytest.FixtureRequest, tmp_path: Path, use: Callable[[str], str]) -> Place:
    """Where banks go; every test that asks for it runs in a folder and on object storage."""
    return Place(tmp_path if request.param == "folder" else use(request.param))


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def any_place(request: pytest.FixtureRequest, tmp_path: Path, use: Callable[[str], str]) -> Place:
    """As `place`, for tests whose time goes into numbers: on object storage only with the slow ones."""
    return Place(tmp_path if request.param == "folder" else use(request.param))


@pytest.fixture(params=["folder", "s3", ELSEWHERE[0]])
def drilled(request: pytest.FixtureRequest, tmp_path: Path, use: Callable[[str], str]) -> Place:
    """As `place`, for drills of minutes: in a folder and on the servers that speak S3."""
    return Place(tmp_path if request.param == "folder" else use(request.param))


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
