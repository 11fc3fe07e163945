"""How results show themselves: a few lines in a terminal, a small table in a notebook, never a wall of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, TypeVar

T = TypeVar("T")


def shown(kind: type[T]) -> type[T]:
    """Class decorator: ``repr`` and the notebook show what the class's ``_facts`` says, name by name."""
    kind.__repr__ = _text  # type: ignore[method-assign, assignment]
    kind._repr_html_ = _html  # type: ignore[attr-defined]
    return kind


def _facts_of(result: Any) -> dict[str, str]:
    facts: Mapping[str, object] = result._facts()
    return {name: str(value) for name, value in facts.items() if value not in (None, "", ())}


def _text(result: Any) -> str:
    facts = _facts_of(result)
    width = max(map(len, facts), default=0)
    return "\n".join([type(result).__name__, *(f"  {name:<{width}}  {value}" for name, value in facts.items())])


def _html(result: Any) -> str:
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in _facts_of(result).items()
    )
    return f"<table><caption style='text-align:left'>{escape(type(result).__name__)}</caption>{rows}</table>"


def doubts(warnings: tuple[str, ...]) -> str:
    """How many warnings there are, and the first.

    >>> doubts(("few anchors", "sparse"))
    '2: few anchors; ...'
    """
    if not warnings:
        return ""
    return f"{len(warnings)}: {warnings[0]}" + ("; ..." if len(warnings) > 1 else "")
