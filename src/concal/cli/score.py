"""Commands about people: scores, plausible values, and what reported scores are."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from concal.cli import views
from concal.cli.arguments import RESPONSES, AtOption, BankArgument, FullOption, JsonOption, ToOption, WideOption
from concal.cli.bank import open_version
from concal.cli.show import print_warnings, show_table
from concal.errors import counted

if TYPE_CHECKING:
    import polars as pl


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (score, information):
        app.command(command.__name__)(command)


class Estimator(StrEnum):
    """Estimators of theta."""

    eap = "eap"
    map = "map"
    ml = "ml"
    wle = "wle"


class Items(StrEnum):
    """How item uncertainty enters."""

    mean = "mean"
    soft = "soft"
    draws = "draws"


def score(
    bank: BankArgument,
    responses: Annotated[Path, RESPONSES],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Write to a .csv or .parquet file, which appears whole.")
    ] = None,
    at: AtOption = None,
    method: Annotated[Estimator, typer.Option("--method", help="How theta is estimated.")] = Estimator.eap,
    items: Annotated[
        Items | None, typer.Option("--items", help="Item uncertainty; default soft with eap, else mean.")
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Item sets, for --items draws.")] = 100,
    prior: Annotated[
        str, typer.Option("--prior", help="Ability distribution: a period, a group of examinees, or all.")
    ] = "all",
    prior_column: Annotated[
        str | None, typer.Option("--prior-column", help="Column that names each examinee's period or group instead.")
    ] = None,
    period: Annotated[
        str | None,
        typer.Option("--period", help="When the responses were given: items that were split are those of that period."),
    ] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Ignore items the bank does not know, and count them.")
    ] = False,
    plausible_values: Annotated[
        int | None, typer.Option("--plausible-values", metavar="K", help="Write K plausible values each instead.")
    ] = None,
    per_draw: Annotated[int, typer.Option("--per-draw", help="Plausible values per draw of the items.")] = 1,
    covariates: Annotated[
        Path | None,
        typer.Option("--covariates", metavar="FILE", help="Person variables plausible values are conditioned on."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of plausible values.")] = 20264,
    wide: WideOption = False,
    full: FullOption = False,
    as_json: JsonOption = False,
) -> None:
    """Scores of examinees on the bank's metric: one row each, with standard errors and what they are made of.

    Response files larger than memory are read piece by piece.

    Example: concal score bank responses.csv --at fall-2026 --items draws --to scores.csv
    """
    from concal.bank.exchange.scores import ScoreRequest, score_file
    from concal.score.score import ScoreOptions

    if covariates is not None and plausible_values is None:
        raise typer.BadParameter(
            "covariates condition plausible values; add --plausible-values K", param_hint="--covariates"
        )
    options = ScoreOptions(method.value, items.value if items else None, prior, draws, seed)
    request = ScoreRequest(
        options,
        wide=wide,
        prior_column=prior_column,
        unknown="ignore" if ignore_unknown else "error",
        period=period,
        plausible_values=plausible_values,
        per_draw=per_draw,
        covariates=covariates,
    )
    version = open_version(bank, at)
    ready = version.scoring(joint=options.level == "draws" or plausible_values is not None)
    if to is None:
        table, warnings = request.table(ready, responses)
        print_warnings(warnings)
        show_table(table, scores_view(table.columns), full=full, as_json=as_json)
        if plausible_values is None:
            _tell_reliability(table)
        return
    done = score_file(ready, responses, to, request)
    print_warnings(done.warnings)
    typer.echo(f"{counted(done.rows, 'row')} written to {to}", err=True)


def _tell_reliability(table: pl.DataFrame) -> None:
    """A line per dimension: how well these examinees are told apart, and what their error is made of."""
    from concal.score.score import variance_shares

    for row in variance_shares(table).iter_rows(named=True):
        if row["reliability"] is None:
            continue
        shares = [
            f"{part} {row[f'share_{part}']:.1%}" for part in ("measurement", "items", "link") if row[part] is not None
        ]
        made_of = f"; error variance: {', '.join(shares)}" if len(shares) > 1 else ""
        who = counted(row["examinees"], "examinee")
        typer.echo(f"{row['dimension']}: {who}, reliability {row['reliability']:.3f}{made_of}", err=True)


def scores_view(columns: list[str]) -> views.View:
    """What the terminal shows of a score table: estimates, standard errors and reported scores."""
    dimensions = [c.removeprefix("theta_") for c in columns if c.startswith("theta_")]
    scores = [c for c in columns if c.startswith("score_")]
    shown = [*(f"{kind}_{d}" for d in dimensions for kind in ("theta", "se")), *scores]
    return replace(views.SCORES, shown=(*views.SCORES.shown, *shown))


def information(
    bank: BankArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Only these, as one test.")] = None,
    theta: Annotated[list[float] | None, typer.Option("--theta", help="Where; may be given several times.")] = None,
    per_item: Annotated[bool, typer.Option("--items", help="Where each item measures best instead.")] = False,
    draws: Annotated[int, typer.Option("--draws", help="Draws of the items behind the bands.")] = 100,
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """What items measure, where and how well: information, SEM and reliability, with bands from the items' draws.

    Example: concal information bank item-17 item-18 --theta 0 --theta 1
    """
    found = open_version(bank, at).information(ids or None, theta=theta or None, draws=draws)
    if per_item:
        show_table(found.items, views.ITEM_INFORMATION, full=full, as_json=as_json, to=to)
        return
    show_table(found.curves, views.INFORMATION, full=full, as_json=as_json, to=to)
    if to is None and not as_json:
        for row in found.tests.iter_rows(named=True):
            typer.echo(
                f"{row['dimension']}: {counted(row['n_items'], 'item')}, marginal reliability {row['reliability']:.3f} "
                f"({row['reliability_low']:.3f} to {row['reliability_high']:.3f})"
            )
