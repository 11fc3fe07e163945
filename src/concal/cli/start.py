"""``concal start``: from one's own files to a first bank.toml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from concal.cli import views
from concal.cli.arguments import JsonOption
from concal.cli.show import json_rows, print_json, print_view, print_warnings
from concal.errors import counted

if TYPE_CHECKING:
    from concal.start import Start


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("start")(start)


def start(
    responses: Annotated[Path, typer.Argument(metavar="RESPONSES", help="One row per response, or one per examinee.")],
    items: Annotated[Path | None, typer.Argument(metavar="ITEMS", help="Table of items with their features.")] = None,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where bank.toml and items.csv go.")] = Path(),
    person: Annotated[str | None, typer.Option("--person", metavar="COLUMN", help="Column of the examinees.")] = None,
    item: Annotated[str | None, typer.Option("--item", metavar="COLUMN", help="Column of the items.")] = None,
    score: Annotated[str | None, typer.Option("--score", metavar="COLUMN", help="Column of the scores.")] = None,
    max_score: Annotated[
        float | None, typer.Option("--max-score", help="Largest possible score of items with continuous scores.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the drafts of an earlier start.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Look at your files and draft bank.toml and items.csv, to be edited: columns, kinds of scores, groups, models.

    Reads CSV (any separator, decimal comma, encoding), TSV, Parquet, Feather, Excel, SPSS, Stata, SAS, also gzipped,
    and folders of Parquet files. Your files stay as they are.

    Example: concal start responses.csv items.csv --to programme
    """
    from concal.start import look_at_files, write_start

    found = look_at_files(responses, items, person=person, item=item, score=score, max_score=max_score)
    written = write_start(found, to, overwrite=overwrite)
    if as_json:
        print_json(_as_data(found, written))
    else:
        _print(found, written, responses)


def _as_data(found: Start, written: list[Path]) -> dict[str, Any]:
    columns = found.columns
    return {
        "layout": "wide" if columns.wide else "long",
        "person": columns.person_id,
        "item": None if columns.wide else columns.item_id,
        "score": None if columns.wide else columns.score,
        "other_columns": list(columns.others),
        "persons": found.persons,
        "responses": found.responses,
        "groups": _group_rows(found),
        "features": json_rows(found.features),
        "examinee_groups": list(found.examinee_groups),
        "odd": list(found.odd),
        "files": [str(path) for path in written],
        "accepted": found.problems is None,
        "problems": found.problems,
    }


def _group_rows(found: Start) -> list[dict[str, Any]]:
    return [
        {"group": g.name, "model": g.kind.model, "items": g.items, "responses": g.responses, "scores": g.kind.says}
        for g in found.groups
    ]


def _print(found: Start, written: list[Path], responses: Path) -> None:
    import polars as pl

    columns = found.columns
    if columns.wide:
        shape = f"wide: examinees in {columns.person_id!r}, {len(columns.items)} columns of scores"
    else:
        shape = f"long: examinees in {columns.person_id!r}, items in {columns.item_id!r}, scores in {columns.score!r}"
    typer.echo(
        f"{responses} is {shape}; {counted(found.responses, 'response')} of {counted(found.persons, 'examinee')}"
    )
    if columns.others:
        typer.echo(f"other columns: {', '.join(columns.others)}")
    print_view(pl.DataFrame(_group_rows(found)), views.DRAFTS)
    if found.features.height:
        print_view(found.features, views.FEATURES)
    for name, groups in found.examinee_groups.items():
        typer.echo(f"examinees come in groups by {name!r} ({groups}): data.person_group, if they are populations apart")
    print_warnings(found.odd)
    typer.echo(f"written: {', '.join(map(str, written))}")
    if found.problems is not None:
        typer.echo(f"As drafted it would not be accepted yet; mend this first:\n{found.problems}")
        return
    folder = written[0].parent
    table = folder / "responses.parquet" if found.recoded is not None else responses
    wide = " --wide" if columns.wide and found.recoded is None else ""
    typer.echo("Look at both files, then (PERIOD is a name such as 2026Q1):")
    typer.echo(f"  concal init {folder / 'bank'} --spec {written[0]}")
    for command in ("check", "add"):
        typer.echo(f"  concal {command} {folder / 'bank'} PERIOD {table} --items {written[1]}{wide}")
