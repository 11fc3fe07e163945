"""``concal check``: everything that can be known before sampling; ``concal schema``: what a bank.toml may contain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from concal.cli import views
from concal.cli.arguments import (
    ITEM_TABLE,
    RESPONSES,
    FullOption,
    JsonOption,
    PeriodArgument,
    ShardsOption,
    ToOption,
    WideOption,
)
from concal.cli.outputs import output_names, output_schema
from concal.cli.show import json_rows, print_json, print_view, print_warnings, write_table
from concal.errors import counted

if TYPE_CHECKING:
    from concal.data.check import CheckedPeriod


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("check")(check)
    app.command("schema")(schema)


def check(
    bank: Annotated[str, typer.Argument(metavar="BANK", help="The bank, or a bank.toml.")],
    period: PeriodArgument,
    responses: Annotated[Path, RESPONSES],
    items: Annotated[Path, ITEM_TABLE],
    spec: Annotated[Path | None, typer.Option("--spec", help="As if with a changed bank.toml.")] = None,
    wide: WideOption = False,
    replace: Annotated[bool, typer.Option("--replace", help="As if in the place of a period the bank has.")] = False,
    shards: ShardsOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a period before it is calibrated: bad rows, categories, exposure, returning examinees, linkage plan.

    Exit code 0 means that `concal add` would sample the period: both ask the same questions. --to writes the table of
    items (responses, mean score).

    Example: concal check bank 2026Q3 responses.csv --items items.csv
    """
    checked = _checked(bank, spec, period, responses, items, wide, replace, shards)
    if to is not None:
        write_table(checked.tables["items"], to)
    if as_json:
        print_json(_as_data(checked))
    else:
        _print(checked, full)


def _checked(
    place: str,
    changed: Path | None,
    period: str,
    responses: Path,
    items: Path,
    wide: bool,
    replace: bool,
    shards: int | None,
) -> CheckedPeriod:
    """By a bank, as `concal add` does; or by a bank.toml alone."""
    from concal.spec import Spec

    spec = None if changed is None else Spec.read(changed)
    if place.endswith(".toml") or Path(place).is_file():
        from concal.data.check import check_period
        from concal.data.deal import with_shards
        from concal.data.doubts import refuse_single_responses

        spec = spec or Spec.read(place)
        found = check_period(responses, items, spec, period=period, wide=wide)
        refuse_single_responses(found.data)
        with_shards(found.data, spec, shards)
        return found
    from concal.bank.bank import Bank

    return Bank(place).check(period, responses, items, spec=spec, wide=wide, replace=replace, shards=shards)


def _as_data(checked: CheckedPeriod) -> dict[str, Any]:
    return {
        "period": checked.data.period,
        "responses": checked.data.n_responses,
        "persons": checked.data.person_ids.len(),
        "returning": checked.n_returning,
        "warnings": list(checked.warnings),
        "groups": json_rows(checked.tables["groups"]),
        "exposure": json_rows(checked.tables["exposure"]),
        "persons_exposure": json_rows(checked.tables["persons"]),
        "linkage": json_rows(checked.linkage.table()) if checked.linkage else None,
    }


def _print(checked: CheckedPeriod, full: bool) -> None:
    data = checked.data
    typer.echo(
        f"period {data.period}: {counted(data.n_responses, 'response')} of "
        f"{counted(data.person_ids.len(), 'examinee')}, no problem"
    )
    for name, view in (("groups", views.GROUPS), ("exposure", views.EXPOSURE), ("persons", views.PERSONS)):
        print_view(checked.tables[name], view, full=full)
    if checked.linkage is not None:
        print_view(checked.linkage.table(), views.LINKAGE, full=full)
    print_warnings(checked.warnings)


def schema(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help=f"bank.toml, or a command that has --json: {', '.join(output_names())}."),
    ] = "bank.toml",
) -> None:
    """Print the JSON schema of bank.toml, for editors that check while you type, or of what a command's --json prints.

    items-long is `concal items --long`, anchors `concal links --period`.

    Example: concal schema > bank.schema.json; concal schema drift
    """
    from concal.spec import Spec

    if what not in ("bank.toml", *output_names()):
        raise typer.BadParameter(f"{what!r} is none of bank.toml, {', '.join(output_names())}", param_hint="WHAT")
    print_json(Spec.json_schema() if what == "bank.toml" else output_schema(what))
