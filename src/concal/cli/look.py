"""Commands that look at a bank: a table to the terminal, as JSON, or to a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from concal.cli import views
from concal.cli.arguments import AtOption, BankArgument, FullOption, JsonOption, LongOption, ToOption
from concal.cli.bank import open_version
from concal.cli.show import print_json, print_warnings, show_table


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (show, items, periods, links, history, predict):
        app.command(command.__name__)(command)


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
    ids: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Only these items.")] = None,
    long: LongOption = False,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Item parameters: slope a and location d with their SDs, and where the numbers come from.

    Example: concal items bank item-17 item-18
    """
    from concal.bank.tables.views import wanted_items

    opened = open_version(bank, at)
    table = opened.items(ids or None) if long else wanted_items(opened.parameters(), ids or None)
    view = _items_view(long)
    if table["unconverged"].is_not_null().any():  # a doubt that people must not have to ask for
        view = replace(view, shown=(*view.shown, "unconverged"))
    show_table(table, view, full=full, as_json=as_json, to=to, sort=not ids)


def _items_view(long: bool) -> views.View:
    return views.ITEMS_LONG if long else views.ITEMS


def periods(
    bank: BankArgument,
    groups: Annotated[
        bool, typer.Option("--groups", help="Ability distributions instead, also those of groups of examinees.")
    ] = False,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Periods: responses, examinees, convergence.

    With --groups: mean and SD of the examinees' abilities on the reference metric, by period, dimension and group of
    examinees (column person_group of the responses), with their posterior SDs.

    Example: concal periods bank
    """
    opened = open_version(bank, at)
    if groups:
        show_table(opened.person_groups(), views.PERSON_GROUPS, full=full, as_json=as_json, to=to)
        return
    show_table(opened.periods(), views.PERIODS, full=full, as_json=as_json, to=to)


def links(
    bank: BankArgument,
    period: Annotated[str | None, typer.Option("--period", help="The anchors of one period instead.")] = None,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Links of the periods to the reference, theta_ref = A theta + B, as the consensus has them.

    The joint method estimates them together with the items, from every item two periods share; analytic and paper take
    those found from the anchors. With --period: that period's anchors, kept or dropped by what.

    Example: concal links bank --period 2026Q2
    """
    opened = open_version(bank, at)
    if period is None:
        show_table(opened.links(), views.LINKS, full=full, as_json=as_json, to=to)
        return
    title = f"Anchors of {period}"
    show_table(opened.anchors(period), views.ANCHORS, title=title, full=full, as_json=as_json, to=to)


def history(
    bank: BankArgument, at: AtOption = None, full: FullOption = False, to: ToOption = None, as_json: JsonOption = False
) -> None:
    """Versions: who did what, when and why.

    Example: concal history bank
    """
    show_table(open_version(bank, at).history(), views.HISTORY, full=full, as_json=as_json, to=to)


def predict(
    bank: BankArgument,
    new: Annotated[Path, typer.Argument(metavar="ITEMS", help="Item table: item_id, group, features.")],
    long: LongOption = False,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parameters for items nobody has answered, from their features.

    Example: concal predict bank new_items.csv
    """
    table = open_version(bank, at).predict(new, long=long)
    show_table(table, _items_view(long), title="Predicted items", full=full, as_json=as_json, to=to)
