"""Look at the files a programme has and draft its bank.toml and item table."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from concal.data.check import check_period
from concal.data.findings import some
from concal.data.read import Answers, read_responses, read_table
from concal.errors import ConcalError, DataError, counted, first_few
from concal.names import group_name_problem, split_stratum
from concal.report.write import write_whole
from concal.spec import DataSpec, Spec
from concal.start.columns import Columns, find_columns
from concal.start.features import describe_features, from_responses, match_items, terms_by_group
from concal.start.people import examinee_groups
from concal.start.scores import describe_items, kind_of, recoded, settle_kinds
from concal.start.write import GroupDraft, draft_spec

ALIKE = 0.7  # share of a wide table's columns from which those with other scores may be no items
FEW = 5  # responses below which an item is listed
ABOUT_SCORES = ("categories", "max_score")
"""Columns of an item table that say what its scores are."""


@dataclass(frozen=True)
class Start:
    """What was found, and the drafts.

    Attributes
    ----------
    columns : Columns
        What the columns of the responses are.
    persons, responses : int
    groups : tuple of GroupDraft
    items : polars DataFrame
        The item table: item_id, group, features.
    features : polars DataFrame
        column, kind, levels, missing, term.
    examinee_groups : dict of column -> groups in words
        Columns of the responses that could be ``data.person_group``.
    odd : tuple of str
        What a careful person would look at.
    toml : str
        The text of bank.toml.
    recoded : polars DataFrame or None
        The responses counted from 0, where theirs begin elsewhere.
    problems : str or None
        Why the drafts as they are would not be accepted.
    """

    columns: Columns
    persons: int
    responses: int
    groups: tuple[GroupDraft, ...]
    items: pl.DataFrame
    features: pl.DataFrame
    examinee_groups: dict[str, str]
    odd: tuple[str, ...]
    toml: str
    recoded: pl.DataFrame | None
    problems: str | None


def look_at_files(
    responses: Path,
    items: Path | None = None,
    *,
    person: str | None = None,
    item: str | None = None,
    score: str | None = None,
    max_score: float | None = None,
) -> Start:
    """Recognise the columns and the kind of every item's scores, propose groups and models, list what is odd.

    Parameters
    ----------
    responses, items
        Files of any kind `concal.data.files` reads; the item table is optional.
    person, item, score
        Columns of the responses, where they cannot be told by their names.
    max_score
        Largest possible score of items with continuous scores.
    """
    odd: list[str] = []
    table = read_table(responses, what="responses", notes=odd)
    if not table.height:
        raise DataError(f"responses {str(responses)!r}: there is not a single row below the names of the columns")
    columns = find_columns(table, {"person": person, "item": item, "score": score}, f"responses {str(responses)!r}")
    options = DataSpec(
        person_id=columns.person_id,
        item_id=columns.item_id,
        score=columns.score,
        ignore=columns.others if columns.wide else (),
    )
    answers = read_responses(responses, wide=columns.wide, options=options)
    if answers.unreadable.len():
        raise DataError(
            f"responses {str(responses)!r}: {counted(answers.unreadable.len(), 'score')} not a number "
            f"({some(answers.unreadable.unique().sort())}); score the answers first, or name the column of scores with "
            "--score COLUMN"
        )
    if not answers.rows.height:
        raise DataError(f"responses {str(responses)!r}: every score is empty, NA or NaN; there is nothing to look at")
    scored = describe_items(answers.rows, max_score)
    found = _feature_table(table, columns, items, scored, odd)
    own = found.select("item_id", "group") if "group" in found.columns else None
    declared = not {"categories", "max_score"}.isdisjoint(found.columns)
    scored = settle_kinds(scored, own, declared=declared)
    grouped, groups = _groups(found, scored)
    features = describe_features(grouped, ("item_id", "group", *ABOUT_SCORES))
    data, notes = _data_section(columns, answers, options)
    _list_oddities(answers, scored, odd)
    odd += _categories(scored, found.columns)
    odd += _unlike(scored) if columns.wide else []
    odd += _periods(table, columns)
    changed = recoded(answers.rows, scored, _carried(table, columns, answers))
    if changed is not None:
        data = {k: v for k, v in data.items() if k == "duplicates"}
    head = _head(responses, answers, columns, changed is not None)
    people = examinee_groups(table, columns.person_id, columns.others)
    toml = draft_spec(_title(responses), data, notes, groups, terms_by_group(grouped, features), head, people)
    spec = Spec.parse(_parsed(toml))
    problems = _problems(changed if changed is not None else responses, grouped, spec, columns.wide and changed is None)
    return Start(
        columns,
        answers.rows["person_id"].n_unique(),
        answers.rows.height,
        tuple(groups),
        grouped,
        features,
        people,
        tuple(odd),
        toml,
        changed,
        problems,
    )


def _carried(table: pl.DataFrame, columns: Columns, answers: Answers) -> pl.DataFrame:
    """What the rows of the responses say besides examinee, item and score."""
    others = [name for name in columns.others if name not in answers.rows.columns]
    if not others:
        return pl.DataFrame()
    if not columns.wide:
        kept = table.select(others)
        return kept if answers.numbers is None else kept[answers.numbers - 1]
    who = pl.col(columns.person_id).cast(pl.String).alias("person_id")
    own = table.select(who, *others).unique("person_id", keep="first")
    return answers.rows.select("person_id").join(own, on="person_id", how="left", maintain_order="left").select(others)


def _title(path: Path) -> str:
    """The file's name, or its folder's where that says more."""
    stem = path.name.split(".")[0]
    return path.resolve().parent.name or stem if stem.lower() in ("responses", "response", "data") else stem


def _parsed(toml: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(toml)


def _feature_table(
    table: pl.DataFrame, columns: Columns, items: Path | None, scored: pl.DataFrame, odd: list[str]
) -> pl.DataFrame:
    """One row per item: those of the item table, then those only the responses have; with all features."""
    own = scored.select("item_id")
    if not columns.wide:
        own = own.join(from_responses(table, columns.item_id, columns.others), on="item_id", how="left")
    if items is None:
        return own
    listed = read_table(items, what="items", notes=odd)
    try:
        listed = match_items(listed, scored["item_id"])
    except LookupError as error:
        raise DataError(
            f"items {str(items)!r}: no column holds the ids of the responses' items ({some(scored['item_id'])}); the "
            f"table begins with {error}"
        ) from None
    _refuse_group_names(listed, f"items {str(items)!r}")
    listed = listed.filter(pl.col("item_id").is_not_null())
    twice = listed.filter(listed["item_id"].is_duplicated())["item_id"].unique(maintain_order=True)
    if twice.len():
        odd.append(
            f"{counted(twice.len(), 'item')} on several rows of the item table: {some(twice)}; the first was kept"
        )
        listed = listed.unique("item_id", keep="first", maintain_order=True)
    unknown = scored.filter(~pl.col("item_id").is_in(listed["item_id"].implode()))["item_id"]
    if unknown.len():
        odd.append(f"{counted(unknown.len(), 'item')} with responses but not in the item table: {some(unknown)}; added")
    idle = listed.filter(~pl.col("item_id").is_in(scored["item_id"].implode()))["item_id"]
    if idle.len():
        odd.append(
            f"{counted(idle.len(), 'item')} of the item table without a response: {some(idle)}; their group is a guess"
        )
    missing = [n for n in own.columns if n not in listed.columns]
    both = listed.join(own.select("item_id", *missing), on="item_id", how="left") if missing else listed
    return pl.concat([both, own.join(listed, on="item_id", how="anti")], how="diagonal_relaxed")


def _refuse_group_names(listed: pl.DataFrame, where: str) -> None:
    """Groups of the item table that no bank.toml could have."""
    if "group" not in listed.columns:
        return
    names = listed["group"].cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()
    bad = {name: problem for name in names if (problem := group_name_problem(name))}
    if bad:
        name, problem = next(iter(bad.items()))
        base, categories = split_stratum(name)
        how = f": call it {base!r}, and put {categories} into a column categories" if categories is not None else ""
        raise DataError(
            f"{where}: {counted(len(bad), 'name')} in the column group that cannot be a group's: {some(list(bad))}; "
            f"{name[:100]!r} {problem}; rename {'it' if len(bad) == 1 else 'them'} in the item table{how}"
        )


def _groups(table: pl.DataFrame, scored: pl.DataFrame) -> tuple[pl.DataFrame, list[GroupDraft]]:
    """A group per kind of scores, within the groups the item table has, if any.

    What a group's items do not have in common, their numbers of categories or what their scores are out of, goes into
    columns of the item table, unless it has them already.
    """
    told = scored.select("item_id", "kind", "n_responses", "categories", "scale", "high", "at_ends")
    both = table.select("item_id", *(["group"] if "group" in table.columns else []))
    both = _with_groups(both.join(told, on="item_id", how="left", maintain_order="left"), scored)
    parts = both.partition_by("group", maintain_order=True)
    kinds = [kind_of(str(part["kind"][0]), part) for part in parts]
    drafts = [
        GroupDraft(str(part["group"][0]), kind, part.height, int(part["n_responses"].sum()))
        for part, kind in zip(parts, kinds, strict=True)
    ]
    differ = {
        "categories": [g.name for g in drafts if g.kind.name == "ordered" and g.kind.categories is None],
        "scale": [g.name for g, part in zip(drafts, parts, strict=True) if part["scale"].n_unique() > 1],
    }
    columns = [n for n in table.columns if n not in ("item_id", "group")]
    for column, source in zip(ABOUT_SCORES, ("categories", "scale"), strict=True):
        if differ[source] and column not in columns:
            own = pl.when(pl.col("group").is_in(differ[source])).then(source)
            table = table.with_columns(both.select(own.alias(column)).to_series())
            columns.append(column)
    return table.with_columns(both["group"]).select("item_id", "group", *columns), sorted(
        drafts, key=lambda g: -g.responses
    )


def _with_groups(both: pl.DataFrame, scored: pl.DataFrame) -> pl.DataFrame:
    """Items in their groups; those nobody answered are as is usual in theirs."""
    usual = scored.group_by("kind").len().sort("len", "kind", descending=[True, False])["kind"][0]
    base = pl.col("group").cast(pl.String).fill_null("items") if "group" in both.columns else pl.lit("")
    both = both.with_columns(pl.col("kind").fill_null(pl.col("kind").drop_nulls().mode().first().over(base)))
    both = both.with_columns(pl.col("kind").fill_null(usual), pl.col("n_responses").fill_null(0))
    if "group" in both.columns:
        several = pl.col("kind").n_unique().over(base) > 1
        name = pl.when(several).then(pl.format("{}_{}", base, "kind")).otherwise(base)
    else:
        name = pl.col("kind") if scored["kind"].n_unique() > 1 else pl.lit("items")
    both = both.with_columns(group=name)
    return both.with_columns(
        pl.col(c).fill_null(pl.col(c).drop_nulls().mode().first().over("group")) for c in ("categories", "scale")
    )


def _data_section(columns: Columns, answers: Answers, options: DataSpec) -> tuple[dict[str, object], dict[str, str]]:
    """Only what differs from the defaults, with the reason."""
    data: dict[str, object] = {}
    if columns.person_id != "person_id":
        data["person_id"] = columns.person_id
    if not columns.wide:
        data |= {n: getattr(columns, n) for n in ("item_id", "score") if getattr(columns, n) != n}
    if options.ignore:
        data["ignore"] = options.ignore
    notes = {"ignore": "columns that are no items"}
    again = _again(answers.rows)
    if again:
        data["duplicates"] = "first"
        notes["duplicates"] = f'{counted(again, "response")} to an item answered before; or "last", "mean", "error"'
    return data, notes


def _periods(table: pl.DataFrame, columns: Columns) -> list[str]:
    """Columns that say when: a bank wants a file per period."""
    found = []
    for name in columns.others:
        if table.schema[name].is_temporal() and table[name].drop_nulls().len():
            first, last = str(table[name].min())[:10], str(table[name].max())[:10]
            found.append(f"{name!r} runs from {first} to {last}: a bank is built period by period; make a file of each")
    return found


def _again(rows: pl.DataFrame) -> int:
    """Responses beyond an examinee's first to an item."""
    return rows.height - rows.select("person_id", "item_id").unique().height


def _categories(scored: pl.DataFrame, told: Sequence[str]) -> list[str]:
    """Numbers of categories that were read off the responses, if the item table does not tell them."""
    ordered = scored.filter(pl.col("kind") == "ordered")
    if "categories" in told or "max_score" in told or not ordered.height:
        return []
    found = []
    for (k,), part in ordered.filter("lifted").group_by("categories", maintain_order=True):
        found.append(
            f"{counted(part.height, 'item')} whose highest score is rare and below that of the others: "
            f"{some(part['item_id'])}; taken to be on the scale of the others, 0 to {k - 1}"
        )
    found.append(
        f"the numbers of categories of {counted(ordered.height, 'item')} were read off the highest score seen, and are "
        "for good once a period is in the bank: put in the scale's own, also where nobody reached its end"
    )
    return found


def _list_oddities(answers: Answers, scored: pl.DataFrame, odd: list[str]) -> None:
    rows = answers.rows
    for what in ("person_id", "item_id"):
        lost = int((rows[what].is_null() | (rows[what] == "")).sum())
        if lost:
            odd.append(f"{counted(lost, 'row')} without a {what}; they will be refused")
        spaces = rows[what].drop_nulls().unique()
        spaces = spaces.filter(spaces != spaces.str.strip_chars())
        if spaces.len():
            odd.append(f"{counted(spaces.len(), what)} with spaces around them: {some(spaces.sort())}")
    again = _again(rows)
    if again:
        odd.append(f"{counted(again, 'response')} to an item the examinee had answered before (data.duplicates)")
    if answers.not_given:
        odd.append(f"{counted(answers.not_given, 'row')} without a score (empty, NA, NaN): taken as not given")
    if answers.silent.len():
        odd.append(f"{counted(answers.silent.len(), 'examinee')} without any response: {some(answers.silent)}")
    same = scored.filter(pl.col("distinct") == 1)["item_id"]
    if same.len():
        odd.append(f"{counted(same.len(), 'item')} on which everybody has the same score: {some(same)}")
    few = scored.filter(pl.col("n_responses") < FEW)["item_id"]
    if few.len():
        odd.append(f"{counted(few.len(), 'item')} with fewer than {FEW} responses: {some(few)}")
    between = scored.filter((pl.col("kind") == "continuous") & (pl.col("scale") == 1)).height
    only = scored.filter(pl.col("kind") == "binary")["item_id"]
    if between and only.len():
        odd.append(
            f"{counted(only.len(), 'item')} with scores 0 and 1 only, where others have scores between: {some(only)}; "
            "proposed as right or wrong, move them to the other group if that is not so"
        )
    for shift, part in scored.filter(pl.col("shift") != 0).group_by("shift"):
        odd.append(f"scores of {counted(part.height, 'item')} begin at {shift[0]:g}; they are counted from 0")
    for scale, part in scored.filter(pl.col("scale") != 1).group_by("scale", maintain_order=True):
        odd.append(
            f"scores of {counted(part.height, 'item')} are taken as out of {scale[0]:g}: {some(part['item_id'])}"
        )


def _unlike(scored: pl.DataFrame) -> list[str]:
    """Columns of a wide table whose scores are of another kind than nearly all others': semester, number right."""
    kind = pl.struct("kind", "categories", "scale")
    alike = scored.with_columns(pl.len().over(kind).alias("alike"))
    unlike = alike.filter(pl.col("alike") < pl.col("alike").max())["item_id"].sort()
    if not 0 < unlike.len() <= (1.0 - ALIKE) * scored.height:
        return []
    verb = "has" if unlike.len() == 1 else "have"
    return [
        f"{unlike.len()} of {counted(scored.height, 'column')} {verb} scores unlike the others: {some(unlike)}; where "
        "they are no items, start again without them"
    ]


def _head(responses: Path, answers: Answers, columns: Columns, changed: bool) -> list[str]:
    file = "responses.parquet" if changed else str(responses)
    wide = " --wide" if columns.wide and not changed else ""
    n = answers.rows.height
    return [
        f"Drafted by `concal start` from {responses.name}: {counted(n, 'response')}. Edit it and items.csv, then:",
        "  concal init bank --spec bank.toml",
        f"  concal check bank PERIOD {file} --items items.csv{wide}",
        f"  concal add bank PERIOD {file} --items items.csv{wide}",
    ]


def _problems(responses: Any, items: pl.DataFrame, spec: Spec, wide: bool) -> str | None:
    try:
        check_period(responses, items, spec, period="first", wide=wide)
    except ConcalError as error:
        return str(error)
    return None


def write_start(found: Start, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write bank.toml, items.csv and, where scores do not begin at 0, responses.parquet with scores that do."""
    files = {"bank.toml": found.toml.encode("utf-8"), "items.csv": found.items.write_csv().encode("utf-8")}
    if found.recoded is not None:
        buffer = io.BytesIO()
        found.recoded.write_parquet(buffer)
        files["responses.parquet"] = buffer.getvalue()
    there = [name for name in files if (folder / name).exists()]
    if there and not overwrite:
        raise DataError(
            f"{str(folder)!r} has {first_few(there)} already; name another folder with --to, or --overwrite"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_whole(folder / name, data)
    return [folder / name for name in files]
