"""Whatever comes in: a result or a `ConcalError`, never another exception, never a changed bank."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concal.bank.bank import Bank
from concal.errors import ConcalError
from concal.spec import Spec

from .programme import SPEC, fake_calibrator, items_table, responses_table

pytestmark = pytest.mark.property
EXAMPLES = int(os.environ.get("CONCAL_FUZZ_EXAMPLES", "8"))  # more (say 500) before a release
QUIET = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="CONCAL_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

HOSTILE = ["", " ", "../x", "=1+1", "<b>x</b>", "\u202e", "CON", "x" * 300, "a\nb", "1e999", "nan", "__import__('os')"]
text = st.sampled_from(HOSTILE) | st.text(max_size=8)
FORMULAS = ["~ 1", "~ length", "~ C(length)", "~ log(length)", "~ length + length", "~ __import__('os')", "~ nope"]
FORMULAS += ["length", "", "~ bs(length, df=4)", "~ length:length", "~ 0 + length"]
formula = st.sampled_from(FORMULAS) | text
group = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["2pl", "3pl", "gpcm", "grm", "beta", "ordered_beta"]) | text,
        "dimension": st.sampled_from(["reading", "writing"]) | text,
    },
    optional={
        "categories": st.sampled_from([None, 2, 3, 4, 10**9, -1, 64, 2.5]),
        "features": formula,
        "extra": st.just(1),
    },
)
dimensions = st.just(["reading", "writing"]) | st.lists(text, max_size=3)
options = st.dictionaries(st.sampled_from(["min_anchors", "delta", "x"]), st.sampled_from([0, -1, 3, 1e308]))
programme = st.fixed_dictionaries(
    {
        "bank": st.fixed_dictionaries({"dimensions": dimensions}, optional={"reference": text, "name": text}),
        "groups": st.dictionaries(st.sampled_from(["vocabulary", "essay"]) | text, group, max_size=3),
    },
    optional={
        "linking": options,
        "data": st.fixed_dictionaries({"duplicates": st.sampled_from(["error", "first", "mean", "x"])}),
    },
)
number = st.sampled_from([0.0, 1.0, 2.0, 3.0, 0.5, -1.0, 1e308, float("nan"), float("inf")])
item_id = st.sampled_from(["v00", "v01", "e00", "v05", "é", "=2+3", "001", " v00"]) | text


def frame(columns: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[pl.DataFrame]:
    rows = st.lists(st.tuples(*columns.values()), max_size=12)
    return rows.map(
        lambda r: pl.DataFrame(r, schema=list(columns), orient="row", strict=False, infer_schema_length=None)
    )


items = frame(
    {"item_id": item_id, "group": st.sampled_from(["vocabulary", "essay", "typo"]), "length": number}
) | frame({"item_id": item_id, "length": text})
responses = frame(
    {"person_id": st.sampled_from(["p1", "p2", "p3"]) | text, "item_id": item_id, "score": number}
) | frame({"person_id": text, "item_id": item_id, "score": text})


def outcome(path: Path, work: Any) -> None:
    """Do something to a bank; on an error it must be a ConcalError and the bank as before."""
    before = Bank(path)
    version, table = before.version, before.items()
    try:
        work(before)
    except ConcalError as error:
        assert str(error)  # noqa: PT017
        after = Bank(path)
        assert after.version == version
        assert after.items().equals(table)
    found = Bank(path).verify()
    assert found.ok
    assert not found.unknown


@QUIET
@given(content=programme, table=items, answers=responses)
def test_any_spec(content: dict[str, Any], table: pl.DataFrame, answers: pl.DataFrame) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank"
        try:
            bank = Bank.create(path, Spec.parse(content))
        except ConcalError:
            assert not path.exists()
            return
        good = responses_table("Q1", persons=6)
        outcome(path, lambda b: b.add("Q1", good, items_table(), calibrator=fake_calibrator))
        outcome(path, lambda b: b.add("Q2", answers, table, calibrator=fake_calibrator))
        assert bank.version == 0


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bank = Bank.create(tmp_path_factory.mktemp("fuzz") / "bank", SPEC)
    bank.add("Q1", responses_table("Q1"), items_table(), calibrator=fake_calibrator)
    return bank.path


@QUIET
@given(period=st.sampled_from(["Q2", "Q1", "q1"]) | text, table=items, answers=responses, wide=st.booleans())
def test_any_responses(template: Path, period: str, table: pl.DataFrame, answers: pl.DataFrame, wide: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank"
        shutil.copytree(template, path)
        outcome(path, lambda b: b.add(period, answers, table, wide=wide, calibrator=fake_calibrator))
        mixed = pl.concat([responses_table("Q2", 2).cast(pl.String), answers.cast(pl.String)], how="diagonal")
        outcome(path, lambda b: b.add("Q2", mixed, items_table(), calibrator=fake_calibrator))
        outcome(path, lambda b: b.predict(table))
        outcome(path, lambda b: b.retract(period))
        outcome(path, lambda b: b.release(period))


@QUIET
@given(data=st.binary(max_size=200), name=st.sampled_from(["r.csv", "r.parquet", "r.tsv", "r.xyz", "r"]))
def test_any_file(template: Path, data: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank"
        shutil.copytree(template, path)
        (Path(folder) / name).write_bytes(data)
        outcome(path, lambda b: b.add("Q2", Path(folder) / name, items_table(), calibrator=fake_calibrator))
        outcome(path, lambda b: b.add("Q2", responses_table("Q2"), Path(folder) / name, calibrator=fake_calibrator))
