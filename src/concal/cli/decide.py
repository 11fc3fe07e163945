"""Commands that act on single items which moved, and undo it."""

from __future__ import annotations

from typing import Annotated

import typer

from concal.cli import views
from concal.cli.arguments import AtOption, BankArgument, FullOption, JsonOption, PeriodArgument, ReasonOption, ToOption
from concal.cli.bank import open_version, tell
from concal.cli.progress import shown_progress
from concal.cli.show import show_table
from concal.errors import BankError, first_few

ItemArgument = Annotated[str, typer.Argument(metavar="ITEM", help="Id of the item.")]
UndoOption = Annotated[bool, typer.Option("--undo", help="Take it back: the numbers are as they were.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (exclude, split, acts):
        app.command(command.__name__)(command)


def exclude(
    bank: BankArgument,
    item: ItemArgument,
    period: PeriodArgument,
    person_group: Annotated[
        str | None,
        typer.Option("--person-group", metavar="GROUP", help="Only this group of examinees (concal dif)."),
    ] = None,
    undo: UndoOption = False,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Let what one period says about an item not count: neither for the item nor for the period's link.

    With --person-group the responses of one group of examinees do not count; the item is what the others say.

    Example: concal exclude bank item-17 2026Q3 --reason "leaked"
    """
    from concal.bank.bank import Bank

    opened = Bank(bank)
    with shown_progress(not as_json, resumes=False) as report:
        act = opened.include if undo else opened.exclude
        done = act(item, period, person_group=person_group, reason=reason, progress=report)
    tell(done, as_json)


def split(
    bank: BankArgument,
    item: ItemArgument,
    periods: Annotated[
        list[str] | None,
        typer.Argument(metavar="PERIOD", help="One: from that period on; several: exactly these."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="PERIOD", help="From that period on, later ones included.")
    ] = None,
    new_id: Annotated[str | None, typer.Option("--new-id", help="Default: ITEM@PERIOD.")] = None,
    undo: UndoOption = False,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make an item that changed a new one, under an id of its own, from a period on or in some periods.

    With --undo ITEM is the new id, or the item it was split from.

    Example: concal split bank item-17 2026Q3 --reason "reworded"
    """
    from concal.bank.bank import Bank

    opened = Bank(bank)
    asked = list(periods or [])
    with shown_progress(not as_json, resumes=False) as report:
        if undo:
            done = opened.join(_split_off(bank, item, asked), reason=reason, progress=report)
        else:
            if bool(asked) == (since is not None):
                raise typer.BadParameter("give either PERIOD... or --from PERIOD", param_hint="PERIOD")
            given, onwards = ([since], True) if since is not None else (asked, None)
            done = opened.split(item, given, new_id=new_id, onwards=onwards, reason=reason, progress=report)
    tell(done, as_json)


def _split_off(bank: str, item: str, periods: list[str]) -> str:
    """The new id a split is undone by: the item itself, or the one split off it in these periods."""
    from concal.bank.bank import Bank

    splits = [act for act in Bank(bank).snapshot.acts if act.kind == "split"]
    if any(act.new_id == item for act in splits):
        return item
    found = [act.new_id for act in splits if act.item == item and set(periods) <= set(act.periods)]
    if len(found) > 1:
        raise BankError(f"{item!r} was split more than once, into {first_few(found)}; say which (concal split --undo)")
    return found[0] if found else item


def acts(
    bank: BankArgument, at: AtOption = None, full: FullOption = False, to: ToOption = None, as_json: JsonOption = False
) -> None:
    """What was excluded and split, and why; idle: the bank has no such period, so it does nothing.

    Example: concal acts bank
    """
    show_table(open_version(bank, at).acts(), views.ACTS, full=full, as_json=as_json, to=to)
