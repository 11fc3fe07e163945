"""Commands about people: scores, plausible values, and what reported scores are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from concal.cli.bank import BankArgument
from concal.cli.look import AtOption
from concal.cli.show import JsonOption, print_warnings, show_table

FEW_ROWS = 20


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("score")(score)


def score(
    bank: BankArgument,
    responses: Annotated[Path, typer.Argument(metavar="RESPONSES", help="CSV or Parquet: person_id, item_id, score.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Write to a .csv or .parquet file, which appears whole.")
    ] = None,
    at: AtOption = None,
    method: Annotated[str, typer.Option("--method", help="eap, map, ml or wle.")] = "eap",
    items: Annotated[
        str | None,
        typer.Option("--items", help="Item uncertainty: mean, soft or draws; default soft with eap, else mean."),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Item sets, for --items draws.")] = 100,
    prior: Annotated[str, typer.Option("--prior", help="Ability distribution: a period, or all.")] = "all",
    prior_column: Annotated[
        str | None, typer.Option("--prior-column", help="Column that names each examinee's period instead.")
    ] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Ignore items the bank does not know, and count them.")
    ] = False,
    plausible_values: Annotated[
        int | None, typer.Option("--plausible-values", metavar="K", help="Write K plausible values each instead.")
    ] = None,
    per_draw: Annotated[int, typer.Option("--per-draw", help="Plausible values per draw of the items.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of plausible values.")] = 20264,
    wide: Annotated[bool, typer.Option("--wide", help="One column per item.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Scores of examinees on the bank's metric: one row each, with standard errors and what they are made of.

    Response files larger than memory are read piece by piece.

    Example: concal score bank responses.csv --at fall-2026 --items draws --to scores.csv
    """
    from concal.bank.exchange.scores import ScoreRequest, score_file
    from concal.cli.look import open_version
    from concal.score.score import ScoreOptions

    options = ScoreOptions(method, items, prior, draws, seed)  # type: ignore[arg-type]
    request = ScoreRequest(
        options,
        wide=wide,
        prior_column=prior_column,
        unknown="ignore" if ignore_unknown else "error",
        plausible_values=plausible_values,
        per_draw=per_draw,
    )
    version = open_version(bank, at)
    ready = version.scoring(joint=options.level == "draws" or plausible_values is not None)
    if to is None:
        table, warnings = request.table(ready, responses)
        print_warnings(warnings)
        show_table(table, title="Scores", as_json=as_json, max_rows=FEW_ROWS)
        return
    done = score_file(ready, responses, to, request)
    print_warnings(done.warnings)
    typer.echo(f"{done.rows:,} rows written to {to}", err=True)
