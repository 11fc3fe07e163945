"""``concal evaluate``: the pooled fit of all periods, and how well the consensus agrees with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from concal.cli import views
from concal.cli.arguments import BankArgument, FullOption, JsonOption, Method, SchedulerOption
from concal.cli.progress import shown_progress
from concal.cli.show import print_json, print_view, print_warnings, write_table, write_text
from concal.cli.terminal import print_table

if TYPE_CHECKING:
    import polars as pl

    from concal.bank.evaluation import Evaluation


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("evaluate")(evaluate)


def evaluate(
    bank: BankArgument,
    truth: Annotated[
        Path | None, typer.Option("--truth", help="Known values: item_id, parameter, value; or a simulation's truth/.")
    ] = None,
    method: Annotated[
        list[Method] | None,
        typer.Option(
            "--method",
            help="Consensus method to compare; may be repeated. Default: joint and analytic; paper in a bank of it.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Under which the bank keeps the evaluation.")] = "pooled",
    max_rhat: Annotated[float, typer.Option("--max-rhat", help="Pairs above it are left out.")] = 1.1,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the pooled fit; default the spec's.")] = None,
    scheduler: SchedulerOption = None,
    again: Annotated[bool, typer.Option("--show", help="Show the evaluation the bank has; fit nothing.")] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="Also write the table: .md and .tex in the paper's layout, .csv, .json."
        ),
    ] = None,
    full: FullOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit all periods at once and compare the consensus with that pooled fit.

    An interrupted fit goes on where it was. The result is kept in the bank and shown in the report.

    Example: concal evaluate bank --truth programme/truth
    """
    from concal.bank.bank import Bank
    from concal.evaluate.pooled import evaluate_bank

    opened = Bank(bank)
    if again:
        found = opened.evaluation(name)
    else:
        known = None if truth is None else read_truth(truth)
        with shown_progress(not as_json) as report:
            found = evaluate_bank(
                opened,
                truth=known,
                methods=tuple(dict.fromkeys(m.value for m in method)) if method else None,
                name=name,
                max_rhat=max_rhat,
                seed=seed,
                progress=report,
                tell=lambda text: typer.echo(text, err=True),
                cluster=scheduler,
            )
    if to is not None:
        write_evaluation(found, to)
    if as_json:
        print_json(found.to_json())
    else:
        print_evaluation(found, full=full)


def read_truth(path: Path) -> pl.DataFrame:
    """A table of true values; of a simulation's folder its ``items`` table."""
    from concal.data.read import read_table
    from concal.errors import DataError

    if path.is_dir():
        tables = [path / f"items.{kind}" for kind in ("parquet", "csv")]
        if not any(t.is_file() for t in tables):
            raise DataError(f"{str(path)!r} has no items.csv or items.parquet; name the file with the true values")
        path = next(t for t in tables if t.is_file())
    table: pl.DataFrame = read_table(path)
    return table


def write_evaluation(found: Evaluation, to: Path) -> None:
    """The table in the format the suffix names."""
    from concal.cli.show import json_text
    from concal.evaluate.tables import paper_table, to_latex, to_markdown

    kind = to.suffix.lower()
    if kind == ".md":
        write_text(to_markdown(paper_table(found)) + "\n", to)
    elif kind == ".tex":
        write_text(to_latex(found), to)
    elif kind == ".json":
        write_text(json_text(found.to_json()), to)
    else:
        write_table(found.agreement, to)
    typer.echo(f"written to {to}", err=True)


def print_evaluation(found: Evaluation, *, full: bool = False) -> None:
    """The paper's table beside the paper, the details, and what belongs under it."""
    from concal.evaluate.tables import notes, paper_table
    from concal.evaluate.verdict import poor_agreement

    table = paper_table(found)
    print_table(table, "Agreement with the pooled fit, beside the published figures", keys=table.columns[:2])
    print_view(found.agreement, views.AGREEMENT, full=full)
    print_view(found.distance, views.DISTANCE, full=full)
    print_view(found.abilities, views.ABILITIES, full=full)
    if found.recovery.height:
        print_view(found.recovery, views.RECOVERY, full=full)
    for line in notes(found):
        typer.echo(line)
    print_warnings((*found.warnings, *poor_agreement(found)))
