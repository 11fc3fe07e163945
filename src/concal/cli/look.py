"""Commands that look at a bank: a table to the terminal, as JSON, or to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from concal.cli.bank import BankArgument
from concal.cli.show import JsonOption, ToOption, print_json, print_warnings, show_table

if TYPE_CHECKING:
    from concal.bank.version import Version

AtOption = Annotated[str | None, typer.Option("--at", metavar="VERSION|RELEASE", help="Look back.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (show, items, periods, links, drift, history, predict):
        app.command(command.__name__)(command)


def open_version(bank: Path, at: str | None) -> Version:
    """The newest version of a bank, or the one asked for."""
    from concal.bank.bank import Bank

    opened = Bank(bank)
    if at is None:
        return opened
    if at.isdecimal() and at not in opened.releases():
        return opened.at(int(at))
    return opened.at(at)


def show(bank: BankArgument, at: AtOption = None, as_json: JsonOption = False) -> None:
    """What the bank is, in a few lines.

    Example: concal show bank
    """
    found = open_version(bank, at).show()
    if as_json:
        print_json(found)
        return
    warnings = found.pop("warnings", [])
    for name, value in found.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k}: {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        typer.echo(f"{name.replace('_', ' '):<12} {value if value not in (None, '') else '-'}")
    print_warnings(warnings)


def items(
    bank: BankArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="Only these items.")] = None,
    natural: Annotated[bool, typer.Option("--natural", help="One row per item: a, d, c, ...")] = False,
    at: AtOption = None,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Item parameters: mean, SD, and where the number comes from.

    Example: concal items bank item-17 item-18
    """
    from concal.bank.tables.views import wanted_items

    opened = open_version(bank, at)
    table = wanted_items(opened.parameters(), ids or None) if natural else opened.items(ids or None)
    show_table(table, title="Items", as_json=as_json, to=to)


def periods(bank: BankArgument, at: AtOption = None, to: ToOption = None, as_json: JsonOption = False) -> None:
    """Periods: responses, examinees, convergence.

    Example: concal periods bank
    """
    show_table(open_version(bank, at).periods(), title="Periods", as_json=as_json, to=to)


def links(
    bank: BankArgument,
    period: Annotated[str | None, typer.Option("--period", help="The anchors of one period instead.")] = None,
    at: AtOption = None,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Links of the periods to the reference, theta_ref = A theta + B, as the consensus has them.

    The joint method estimates them together with the items, from every item two periods share; analytic and paper take
    those found from the anchors. With --period: that period's anchors, kept or dropped by what.

    Example: concal links bank --period 2026Q2
    """
    opened = open_version(bank, at)
    table = opened.links() if period is None else opened.anchors(period)
    show_table(table, title="Links" if period is None else f"Anchors of {period}", as_json=as_json, to=to)


def drift(
    bank: BankArgument,
    everything: Annotated[bool, typer.Option("--all", help="All tested items, not only those that moved.")] = False,
    fdr: Annotated[float | None, typer.Option("--fdr", help="False discovery rate; default the spec's.")] = None,
    at: AtOption = None,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Items that moved, in the periods they moved in, by what it means for scores.

    `concal exclude` and `concal split` act on them.

    Example: concal drift bank
    """
    table = open_version(bank, at).drift(fdr)
    if not everything and "drifted" in table.columns:
        table = table.filter(table["drifted"])
    show_table(table, title="Drift", as_json=as_json, to=to)


def history(bank: BankArgument, to: ToOption = None, as_json: JsonOption = False) -> None:
    """Versions: who did what, when and why.

    Example: concal history bank
    """
    show_table(open_version(bank, None).history(), title="History", as_json=as_json, to=to)


def predict(
    bank: BankArgument,
    new: Annotated[Path, typer.Argument(metavar="ITEMS", help="Item table: item_id, group, features.")],
    at: AtOption = None,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parameters for items nobody has answered, from their features.

    Example: concal predict bank new_items.csv
    """
    show_table(open_version(bank, at).predict(new), title="Predicted", as_json=as_json, to=to)
