"""Items that do not do as their parameters say: over periods (drift), within one (fit), over groups (dif)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from concal.cli import views
from concal.cli.arguments import AtOption, BankArgument, FdrOption, FullOption, JsonOption, ToOption
from concal.cli.bank import open_version
from concal.cli.show import show_table

if TYPE_CHECKING:
    from concal.bank.version import Version


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (drift, fit, dif):
        app.command(command.__name__)(command)


def _nothing_yet(opened: Version, for_programs: object) -> bool:
    """Say that a bank has no period, which is not the same as no item found; programs get a table without rows."""
    if opened.period_names or for_programs:
        return False
    typer.echo(views.NO_PERIOD)
    return True


def drift(
    bank: BankArgument,
    everything: Annotated[bool, typer.Option("--all", help="All tested items, not only those that moved.")] = False,
    fdr: FdrOption = None,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Items that moved, in the periods they moved in, by what it means for scores.

    Score size and score shift are the root-mean-square and the mean change of the expected score (0 to 1) over the
    period's examinees, the largest size first; q is the false discovery rate at which the item is found. `concal
    exclude` and `concal split` act on them.

    Example: concal drift bank
    """
    opened = open_version(bank, at)
    if _nothing_yet(opened, as_json or to):
        return
    table = opened.drift(fdr)
    if not everything and "drifted" in table.columns:
        table = table.filter(table["drifted"])
    show_table(table, views.DRIFT, full=full, as_json=as_json, to=to)


def fit(
    bank: BankArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Only these items.")] = None,
    bins: Annotated[bool, typer.Option("--bins", help="Observed and expected mean scores by ability instead.")] = False,
    pairs: Annotated[bool, typer.Option("--pairs", help="Pairs of items with dependent residuals instead.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All tested items, not only those flagged.")] = False,
    fdr: FdrOption = None,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Items whose responses do not follow their curve, period by period, largest misfit first.

    Misfit is the distance of the observed mean scores from the curve, by ability, as a share of the largest score; q is
    the false discovery rate at which the item is flagged. With ITEMs, all that is known of their fit. --pairs lists
    items whose residuals go together (Q3).

    Example: concal fit bank
    """
    if bins and pairs:
        raise typer.BadParameter("choose one of --bins and --pairs", param_hint="arguments")
    import polars as pl

    from concal.bank.tables.views import wanted_items

    opened = open_version(bank, at)
    if _nothing_yet(opened, as_json or to):
        return
    if not opened.period_fits() and not (as_json or to):
        typer.echo("no period came with its responses, so nothing can be said of fit")
        return
    if pairs:
        table = opened.fit_pairs()
        if ids:
            table = table.filter(pl.col("item_id").is_in(ids) | pl.col("other_id").is_in(ids))
        elif not everything and table.width:
            table = table.filter(pl.col("q_value") <= (fdr or opened.consensus_spec.drift_fdr))
        show_table(table, views.FIT_PAIRS, full=full, as_json=as_json, to=to)
        return
    table = wanted_items(opened.fit_bins() if bins else opened.fit(fdr), ids or None)
    if not (bins or ids or everything):
        table = table.filter(pl.col("flagged"))
    show_table(table, views.FIT_BINS if bins else views.FIT, full=full, as_json=as_json, to=to)


def dif(
    bank: BankArgument,
    everything: Annotated[bool, typer.Option("--all", help="All tested items, not only those that differ.")] = False,
    fdr: FdrOption = None,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Items that groups of examinees of equal ability do not answer alike, by what it means for scores.

    Groups are the column person_group of the responses; their ability distributions may differ. Score size and score
    shift are the root-mean-square and the mean change of the expected score (0 to 1) over the group's examinees, the
    largest size first; q is the false discovery rate at which the item is found. `concal exclude
    --person-group` lets the group's responses to an item not count.

    Example: concal dif bank
    """
    opened = open_version(bank, at)
    if _nothing_yet(opened, as_json or to):
        return
    table = opened.dif(fdr)
    if not (table.height or as_json or to):
        some = opened.person_groups()["person_group"].n_unique() > 1
        typer.echo(
            "there are groups of examinees, but no item that two of them answered: nothing to compare"
            if some
            else "no period has groups of examinees (column person_group of its responses)"
        )
        return
    show_table(table if everything else table.filter(table["flagged"]), views.DIF, full=full, as_json=as_json, to=to)
