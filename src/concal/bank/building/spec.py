"""The programme's specification in a bank: read, written, and merged with what others changed meanwhile."""

from __future__ import annotations

import tomllib
from typing import Any

from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import FileEntry
from concal.bank.store.parquet import read_bytes
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.errors import SpecError
from concal.spec import Spec

_ABSENT = object()


def read_spec(store: Store, entry: FileEntry) -> Spec:
    """A spec kept in the bank."""
    return Spec.parse(tomllib.loads(read_bytes(store, entry).decode("utf-8")))


def spec_bytes(spec: Spec) -> bytes:
    """A spec as TOML, every default written out."""
    return spec.to_toml().encode("utf-8")


def write_spec(spec: Spec, transaction: Transaction) -> FileEntry:
    """Keep a spec with a commit."""
    writer = FolderWriter(transaction, "spec")
    writer.text("spec", "bank.toml", spec_bytes(spec))
    return writer.files["spec"]


def changed(spec: Spec, section: str, /, **options: Any) -> Spec:
    """The spec with other options in one of its sections, validated."""
    content = spec.model_dump()
    return Spec.parse({**content, section: {**content[section], **options}})


def refuse_other_dimensions(known: Spec, spec: Spec, periods_stay: bool) -> None:
    """Periods measured on some dimensions cannot be put on others."""
    if periods_stay and spec.bank.dimensions != known.bank.dimensions:
        raise SpecError(
            f"bank.dimensions changes from {list(known.bank.dimensions)} to {list(spec.bank.dimensions)}, but the bank "
            "has periods measured on the former; make a new bank for other dimensions"
        )


def merge_specs(seen: Spec, given: Spec | None, head: Spec) -> Spec:
    """What `given` changes relative to the spec its author saw, applied to the head's spec, field by field.

    So another writer's changes between seeing and committing stay, and an option that `given` takes away goes.
    """
    if given is None or given == seen:
        return head
    return Spec.parse(_merged(seen.model_dump(), given.model_dump(), head.model_dump()))


def _merged(seen: Any, given: Any, head: Any) -> Any:
    if given == seen:
        return head
    if not (isinstance(given, dict) and isinstance(seen, dict) and isinstance(head, dict)):
        return given
    fields = {key: _merged(*(d.get(key, _ABSENT) for d in (seen, given, head))) for key in {**head, **given}}
    return {key: value for key, value in fields.items() if value is not _ABSENT}
