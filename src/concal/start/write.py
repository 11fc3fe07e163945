"""A bank.toml with comments that say what was found, to be edited."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from concal.errors import counted
from concal.start.scores import Kind

SEEN = "one more than the highest score seen;"


@dataclass(frozen=True)
class GroupDraft:
    """A proposed item group: its name, its items' kind of scores, how many items and responses."""

    name: str
    kind: Kind
    items: int
    responses: int


def draft_spec(
    title: str,
    data: Mapping[str, object],
    notes: Mapping[str, str],
    groups: Sequence[GroupDraft],
    terms: Mapping[str, Sequence[str]],
    head: Sequence[str],
    people: Mapping[str, str],
) -> str:
    """The text of a bank.toml.

    Parameters
    ----------
    title
        Name of the bank.
    data
        What the data section says.
    notes
        Comments behind its lines.
    groups
        Proposed groups.
    terms
        Features that were found, as terms of a formula, by group.
    head
        Lines of comment at the top.
    people
        Columns that sort examinees into groups, and the groups in words.
    """
    lines = [f"# {line}".rstrip() for line in head]
    lines += [
        "",
        "[bank]",
        f"name = {_value(title)}",
        'dimensions = ["ability"]  # latent dimensions; name several and give every group one of them',
        '# reference = "2026Q1"  # the period that sets the metric; default: the first one added',
    ]
    said = [_line(key, value, notes.get(key, "")) for key, value in data.items()]
    for name, groups_are in people.items():
        said.append(f"# {_line('person_group', name, groups_are)}: ability distributions of their own, and DIF")
    if said:
        lines += ["", "[data]", *said]
    for group in groups:
        lines += ["", *_group(group, terms.get(group.name, ()))]
    lines += [
        "",
        "# [calibration], [linking] and [consensus] have defaults; `concal schema` lists every field.",
        "",
    ]
    return "\n".join(lines)


def _group(group: GroupDraft, terms: Sequence[str]) -> list[str]:
    kind = group.kind
    size = f"{counted(group.items, 'item')}, {counted(group.responses, 'response')}"
    lines = [
        f"[groups.{_key(group.name)}]  # {size}, {kind.says}",
        _line("model", kind.model, f"or {kind.other}"),
    ]
    if kind.categories is not None:
        lines.append(_line("categories", kind.categories, f"{SEEN} for good, so put in the scale's own"))
    elif kind.name == "ordered":
        lines.append(f"# categories: a column of items.csv, {SEEN} for good, so put in each scale's own")
    if kind.max_score is not None:
        lines.append(_line("max_score", kind.max_score, "what scores are out of"))
    lines.append(_line("dimension", "ability", ""))
    if terms:
        lines.append(
            f"# features = {_value('~ ' + ' + '.join(terms))}  # item features that were found; keep what makes sense"
        )
    return lines


def _line(key: str, value: object, note: str) -> str:
    return f"{key} = {_value(value)}" + (f"  # {note}" if note else "")


def _value(value: object) -> str:
    """A string, number or list as TOML: what JSON writes is TOML too."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)
