"""The programme's specification in a bank: read, written, and merged with what others changed meanwhile."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from concal.bank.building.stored_period import GroupModel
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


def refuse_other_groups(spec: Spec, models: Mapping[str, Mapping[str, GroupModel]]) -> None:
    """Groups that a period has (its models, by name) with another response model, or on another dimension.

    Whether or not the next period has items of the group: those of the earlier one are scored as it was then. A group
    that the spec leaves out stays what it is.
    """
    for period, groups in models.items():
        for name, was in groups.items():
            if (group := spec.groups.get(name)) is None:
                continue
            here = GroupModel(group.kernel_model.kind, group.dimension)
            if here != was:
                raise SpecError(
                    f"group {name!r}: {here.kind} on {here.dimension!r}, but period {period!r} has {was.kind} on "
                    f"{was.dimension!r}; a group keeps its response model: give the new task type a group of its own, "
                    "and leave this one as it was"
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


def changes_in_force(known: Spec, used: Spec, periods: Sequence[str]) -> tuple[str, ...]:
    """What to say of options that hold for a bank of these periods, and that a given spec changes.

    A file knows nothing of what commands set meanwhile, so what it does not repeat it takes back.
    """
    before, after = (_in_force(spec, periods) for spec in (known, used))
    changed = [
        f"{section}.{name} from {_shown(old)} to {_shown(new)}"
        + (" (all periods are linked again)" if (section, name) == ("bank", "reference") else "")
        for section, fields in before.items()
        for name in dict.fromkeys((*fields, *after[section]))
        if (old := fields.get(name)) != (new := after[section].get(name))
    ]
    if not changed:
        return ()
    return (f"the spec sets {' and '.join(changed)}; repeat the former values in bank.toml to keep them",)


def _in_force(spec: Spec, periods: Sequence[str]) -> dict[str, dict[str, Any]]:
    content = spec.model_copy(update={"linking": spec.linking_in_force}).model_dump(exclude_none=True)
    reference = spec.bank.reference if spec.bank.reference in periods else next(iter(periods), None)
    content["bank"]["reference"] = reference
    return {section: content[section] for section in ("bank", "consensus", "linking", "reporting", "calibration")}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"({', '.join(f'{name} = {_shown(part)}' for name, part in value.items())})"
    return "none" if value is None else repr(list(value) if isinstance(value, tuple) else value)
