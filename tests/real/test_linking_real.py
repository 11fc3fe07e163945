"""Linking against other software's answers and published constants (the shared data folder)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from concal.linking.parameters import link_parameters

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = [
    pytest.mark.real,
    pytest.mark.reference,
    pytest.mark.skipif(not (DATA / "linking_golden").is_dir(), reason=f"no shared data at {DATA}"),
]


def golden_rows():
    path = DATA / "linking_golden" / "answers.csv"
    if not path.is_file():
        return []
    return list(pl.read_csv(path, null_values=["None", "-"]).iter_rows(named=True))


def tables(case):
    frame = pl.read_csv(DATA / "linking_golden" / f"{case}.csv")
    ref = frame.select(item_id="item", a="a_ref", d="b_ref")
    return ref, frame.select("weight", item_id="item", a="a_foc", d="b_foc")


def name(row):
    parts = (row["case"][:3], row["criterion"], row["grid"], row["grid_metric"], row["pow"], row["eps"])
    return "-".join(str(p) for p in (*parts, row["item_weights"]))


@pytest.mark.parametrize("row", golden_rows(), ids=name)
def test_golden(row):
    ref, foc = tables(row["case"])
    options = {}
    if row["grid"] is not None:
        grid = pl.read_csv(DATA / "linking_golden" / f"grid_{row['grid']}.csv")
        options = {"nodes": grid["node"], "node_weights": grid["weight"]}
        options["grid_metric"] = {"symm": "symmetric", "focal_joint": "own"}.get(row["grid_metric"], row["grid_metric"])
        options |= {"loss": "power", "power": row["pow"], "eps": row["eps"] or 0.0}
    if row["item_weights"] == "count":
        options["weights"] = "weight"
    answer = link_parameters(ref, foc, method=row["criterion"].split("(")[0], **options)
    assert answer.converged
    np.testing.assert_allclose([answer.A, answer.B], [row["A"], row["B"]], atol=1e-7, rtol=0)


@pytest.mark.parametrize("eps", [0.01, 0.001, 0.0001])
def test_pseudo_huber_is_the_golden_power_one(eps):
    ref, foc = tables("c04_n100_dif10")
    grid = pl.read_csv(DATA / "linking_golden" / "grid_n61.csv")
    answer = link_parameters(ref, foc, delta=eps**0.5, nodes=grid["node"], node_weights=grid["weight"])
    want = next(
        r
        for r in golden_rows()
        if r["case"] == "c04_n100_dif10"
        and (r["criterion"], r["grid"], r["grid_metric"], r["pow"], r["eps"], r["item_weights"])
        == ("haebara", "n61", "ref", 1.0, eps, "unit")
    )
    np.testing.assert_allclose([answer.A, answer.B], [want["A"], want["B"]], atol=1e-7, rtol=0)


def kolen_brennan():
    """Form X (new) to form Y (old, base) over the twelve common items."""
    common = pl.read_csv(DATA / "kb04" / "KB04_common.csv")
    x = pl.read_csv(DATA / "kb04" / "KB04_formX.csv").rename({"b": "d"})
    y = pl.read_csv(DATA / "kb04" / "KB04_formY.csv").rename({"b": "d"})
    foc = common.join(x, left_on="form_x_item", right_on="item").with_columns(item_id=pl.col("form_y_item").cast(str))
    ref = common.join(y, left_on="form_y_item", right_on="item").with_columns(item_id=pl.col("form_y_item").cast(str))
    published = json.loads((DATA / "published.json").read_text())["KB04_linking"]
    return ref, foc, published


@pytest.mark.parametrize("method", ["mean_mean", "mean_sigma"])
def test_kolen_brennan_moments(method):
    ref, foc, published = kolen_brennan()
    answer = link_parameters(ref, foc, method=method, model="3pl")
    np.testing.assert_allclose([answer.A, answer.B], published[method], atol=1.5e-6)
    back = link_parameters(foc, ref, method=method, model="3pl")
    np.testing.assert_allclose([back.A, back.B], published["reverse_old_to_new"][method], atol=1.5e-6)


@pytest.mark.parametrize("method", ["haebara", "stocking_lord"])
def test_kolen_brennan_published_curves(method):
    """The printed six decimals: 40 equally weighted points on [-4, 4] are the source's default quadrature."""
    ref, foc, published = kolen_brennan()
    options = {"method": method, "loss": "squared", "model": "3pl"}
    plain = {"nodes": np.linspace(-4, 4, 40), "node_weights": np.ones(40)}
    there = link_parameters(ref, foc, **options, **plain)
    np.testing.assert_allclose([there.A, there.B], published[method], atol=1e-6)
    back = link_parameters(foc, ref, **options, **plain)
    np.testing.assert_allclose([back.A, back.B], published["reverse_old_to_new"][method], atol=1e-6)
    both = link_parameters(ref, foc, **options, nodes=np.linspace(-4, 4, 30), grid_metric="symmetric")
    np.testing.assert_allclose([both.A, both.B], published["symmetric_normal30"][method], atol=1e-6)


@pytest.mark.parametrize(("method", "short"), [("haebara", "HB"), ("stocking_lord", "SL")])
@pytest.mark.parametrize("points", [41, 161])
@pytest.mark.parametrize("metric", ["ref", "symmetric"])
def test_kolen_brennan_recomputed_curves(method, short, points, metric):
    ref, foc, published = kolen_brennan()
    key = f"{short} D=1.0 grid-4..4x{points} sym={metric == 'symmetric'}"
    grid = {"nodes": np.linspace(-4, 4, points), "node_weights": np.ones(points), "grid_metric": metric}
    answer = link_parameters(ref, foc, method=method, loss="squared", model="3pl", **grid)
    np.testing.assert_allclose([answer.A, answer.B], published["recomputed_here"][key], atol=1.5e-6)
