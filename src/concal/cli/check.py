"""``concal check``: everything that can be known before sampling; ``concal schema``: what a bank.toml may contain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from concal.cli.show import JsonOption, ToOption, json_rows, print_json, print_table, print_warnings, write_table
from concal.errors import BankError

if TYPE_CHECKING:
    from concal.data.check import CheckedPeriod


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("check")(check)
    app.command("schema")(schema)


def check(
    what: Annotated[list[str], typer.Argument(metavar="BANK PERIOD RESPONSES", help="With --spec: PERIOD RESPONSES.")],
    items: Annotated[Path, typer.Option("--items", help="Item table (CSV or Parquet): item_id, group, features.")],
    spec: Annotated[Path | None, typer.Option("--spec", help="A bank.toml instead of a bank.")] = None,
    wide: Annotated[bool, typer.Option("--wide", help="One column per item; the first holds the person ids.")] = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a period before it is calibrated: bad rows, categories, exposure, returning examinees, linkage plan.

    Exit code 0 means that `concal add` would accept the period. BANK may also be a bank.toml. --to writes the table of
    items (responses, mean score).

    Example: concal check bank 2026Q3 responses.csv --items items.csv
    """
    names = ("PERIOD", "RESPONSES") if spec else ("BANK", "PERIOD", "RESPONSES")
    if len(what) != len(names):
        raise typer.BadParameter(f"expected {' '.join(names)}, got {len(what)} arguments", param_hint="arguments")
    *place, period, responses = what
    known = _known(Path(spec or place[0]), period)
    from concal.data.check import check_period

    checked = check_period(responses, items, known.pop("spec"), period=period, wide=wide, **known)
    if to is not None:
        write_table(checked.tables["items"], to)
    if as_json:
        print_json(_as_data(checked))
    else:
        _print(checked)


def _known(path: Path, period: str) -> dict[str, Any]:
    """What a bank (or only its spec) says about the programme so far."""
    from concal.spec import Spec

    if path.is_file() or path.suffix == ".toml":
        return {"spec": Spec.read(path)}
    from concal.bank.bank import Bank

    bank = Bank(path)
    if period in bank.period_names:
        raise BankError(f"period {period!r} is in the bank already; retract it first, or choose another name")
    plan = bank.linkage()
    return {
        "spec": bank.spec,
        "design_states": bank.design_states(),
        "earlier_persons": bank.person_ids(),
        "earlier_items": plan.items if plan is not None else None,
    }


def _as_data(checked: CheckedPeriod) -> dict[str, Any]:
    tables = {name: json_rows(table) for name, table in checked.tables.items() if name != "items"}
    return {
        "period": checked.data.period,
        "responses": checked.data.n_responses,
        "persons": checked.data.person_ids.len(),
        "returning": checked.n_returning,
        "warnings": list(checked.warnings),
        **tables,
        "linkage": json_rows(checked.linkage.table()) if checked.linkage else None,
    }


def _print(checked: CheckedPeriod) -> None:
    data = checked.data
    typer.echo(
        f"period {data.period}: {data.n_responses:,} responses of {data.person_ids.len():,} examinees, no problem"
    )
    print_table(checked.tables["groups"], "Groups")
    print_table(checked.tables["exposure"], "Responses per item")
    print_table(checked.tables["persons"], "Responses per examinee")
    if checked.linkage is not None:
        print_table(checked.linkage.table(), "Linkage plan")
    print_warnings(checked.warnings)


def schema() -> None:
    """Print the JSON schema of bank.toml, for editors that check while you type.

    Example: concal schema > bank.schema.json
    """
    from concal.spec import Spec

    print_json(Spec.json_schema())
