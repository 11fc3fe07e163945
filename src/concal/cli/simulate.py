"""``concal simulate``: the files a user would bring, and the truth separately."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from concal.cli import views
from concal.cli.arguments import JsonOption
from concal.cli.show import print_json, print_view


class Selection(StrEnum):
    """How items are chosen."""

    random = "random"
    popularity = "popularity"
    adaptive = "adaptive"
    adaptive_within = "adaptive_within"


class Direction(StrEnum):
    """Which way drifting items move."""

    easier = "easier"
    harder = "harder"
    both = "both"


class Format(StrEnum):
    """Of the written tables."""

    csv = "csv"
    parquet = "parquet"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("simulate")(simulate)


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    periods: Annotated[int, typer.Option(help="Number of periods.")] = 4,
    items: Annotated[int, typer.Option(help="Items of the bank over all periods.")] = 600,
    examinees: Annotated[int, typer.Option(help="Examinees per period.")] = 2000,
    responses_per_examinee: Annotated[int, typer.Option(help="Items each examinee answers.")] = 30,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 1,
    spec: Annotated[Path | None, typer.Option(help="A bank.toml; default: two dimensions, three formats.")] = None,
    selection: Annotated[
        Selection,
        typer.Option(help="How items are chosen; adaptive: by all scores so far, adaptive_within: by the period's."),
    ] = Selection.popularity,
    turnover: Annotated[float, typer.Option(help="Share of active items replaced from period to period.")] = 0.1,
    new_item_exposure: Annotated[float, typer.Option(help="Exposure of items in their first period.")] = 0.2,
    exposure_spread: Annotated[float, typer.Option(help="SD of log popularity: 0 even, 1 heavy-tailed.")] = 1.0,
    ability_shift: Annotated[float, typer.Option(help="SD over periods of the ability mean.")] = 0.3,
    ability_spread: Annotated[float, typer.Option(help="SD over periods of the log ability SD.")] = 0.1,
    correlation: Annotated[float, typer.Option(help="Between dimensions.")] = 0.6,
    drift_share: Annotated[float, typer.Option(help="Share of items that drift.")] = 0.0,
    drift_size: Annotated[float, typer.Option(help="How far d jumps.")] = 0.5,
    drift_direction: Annotated[Direction, typer.Option(help="Which way.")] = Direction.both,
    overlap: Annotated[float, typer.Option(help="Share of examinees who come back from the period before.")] = 0.0,
    person_groups: Annotated[int, typer.Option(help="Groups of examinees (column person_group).")] = 1,
    group_shift: Annotated[float, typer.Option(help="Difference of ability means from group to group.")] = 0.5,
    file_format: Annotated[Format, typer.Option("--format", help="Of the tables.")] = Format.csv,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a folder that is not empty.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate an evolving programme: bank.toml, items, one response file per period, and the truth in truth/.

    Example: concal simulate programme --periods 4 --items 600 --examinees 2000 --seed 1
    """
    from concal.simulate import simulate_programme
    from concal.spec import Spec

    programme = simulate_programme(
        None if spec is None else Spec.read(spec),
        periods=periods,
        items=items,
        examinees=examinees,
        responses_per_examinee=responses_per_examinee,
        seed=seed,
        selection=selection.value,
        turnover=turnover,
        new_item_exposure=new_item_exposure,
        exposure_spread=exposure_spread,
        ability_shift=ability_shift,
        ability_spread=ability_spread,
        correlation=correlation,
        drift_share=drift_share,
        drift_size=drift_size,
        drift_direction=drift_direction.value,
        overlap=overlap,
        person_groups=person_groups,
        group_shift=group_shift,
    )
    places = programme.write(folder, file_format.value, overwrite=overwrite)
    _print(programme, places, as_json)


def _print(programme: Any, places: dict[str, Path], as_json: bool) -> None:
    import polars as pl

    rows = [
        {
            "period": period,
            "responses": frame.height,
            "examinees": frame["person_id"].n_unique(),
            "items_seen": frame["item_id"].n_unique(),
            "file": str(places[period]),
        }
        for period, frame in programme.responses.items()
    ]
    if as_json:
        print_json({"periods": rows, "spec": places["spec"], "items": places["items"], "truth": places["truth"]})
        return
    print_view(pl.DataFrame(rows), views.SIMULATED, title=f"{programme.items.height:,} items")
    typer.echo(f"specification {places['spec']}, items {places['items']}, truth {places['truth']}")
