"""Every export reads back, or is checked by the receiving tool."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.exchange.arviz import read_arviz, write_arviz
from concal.bank.exchange.draws import calibration_from_draws
from concal.bank.exchange.export import read_export
from concal.bank.exchange.legacy import legacy_calibration
from concal.bank.exchange.software import catsim_table
from concal.bank.exchange.writers import neutral
from concal.errors import BankError, DataError
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["reading", "writing"]},
        "groups": {
            "cloze": {"model": "2pl", "dimension": "reading"},
            "choice": {"model": "3pl", "dimension": "reading"},
            "essay": {"model": "gpcm", "categories": 4, "dimension": "writing"},
            "rating": {"model": "grm", "categories": 3, "dimension": "writing"},
            "dictation": {"model": "ordered_beta", "dimension": "reading"},
        },
        "calibration": {"draws": 200, "mean_error": 0.5},
        "consensus": {"method": "analytic"},
    }
)
HOSTILE = ["=cmd|'/c calc'!A0", "+1", "-1", "@x", "'quoted", "001", "<script>alert(1)</script>", 'a"b,c', "é\u202e"]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    rng = np.random.default_rng(1)
    bank = Bank.create(tmp_path_factory.mktemp("exchange") / "bank", SPEC)
    frames = []
    for name, group in SPEC.groups.items():
        model = group.response_model
        p = len(model.parameters)
        ids = HOSTILE + [f"c{k}" for k in range(6)] if name == "cloze" else [f"{name}{k}" for k in range(12)]
        xi = rng.normal(0, 0.5, (len(ids), p))
        natural = dict(zip(model.natural_parameters, model.to_natural(xi).T, strict=True))
        se = {f"se_{q}": np.full(len(ids), 0.1) for q in model.parameters}
        frames.append(pl.DataFrame({"item_id": ids, "group": [name] * len(ids), **natural, **se}))
    table = pl.concat(frames, how="diagonal")
    calibration, states = legacy_calibration("old", table, SPEC, seed=3)
    bank.add_calibration(calibration, design_states=states)
    return bank


def test_tables_read_back_with_their_ids(bank: Bank, tmp_path: Path) -> None:
    wanted = bank.parameters()
    for suffix in ("csv", "parquet", "json"):
        done = bank.export(tmp_path / f"items.{suffix}")
        table = read_export(done.path)
        assert table["item_id"].to_list() == wanted["item_id"].to_list(), suffix
        for name in ("a", "d", "d_sd", "c_1"):
            np.testing.assert_array_equal(table[name].cast(pl.Float64), wanted[name])
    assert {p.name for p in tmp_path.iterdir()} == {"items.csv", "items.parquet", "items.json"}


def test_csv_has_no_formula(bank: Bank, tmp_path: Path) -> None:
    bank.export(tmp_path / "items.csv")
    cells = pl.read_csv(tmp_path / "items.csv", infer_schema=False)["item_id"].to_list()
    assert not [c for c in cells if c[0] in "=+-@"]
    assert "'" + HOSTILE[0] in cells
    assert neutral(pl.DataFrame({"x": ["=1", "a"]}))["x"].to_list() == ["'=1", "a"]


def test_excel_has_text_not_formulas(bank: Bank, tmp_path: Path) -> None:
    bank.export(tmp_path / "items.xlsx")
    table = pl.read_excel(tmp_path / "items.xlsx", infer_schema_length=None)
    assert table["item_id"].cast(pl.String).to_list() == bank.parameters()["item_id"].to_list()
    np.testing.assert_allclose(table["a"], bank.parameters()["a"])


def test_catsim_takes_the_matrix(bank: Bank, tmp_path: Path) -> None:
    catsim = pytest.importorskip("catsim")
    from catsim import irt

    done = bank.export(tmp_path / "catsim.csv", format="catsim")
    assert done.items == 27
    assert len(done.left_out) == 36
    table = read_export(done.path)
    matrix, ids = table.select("a", "b", "c", "d").to_numpy(), table["item_id"].to_list()
    assert table.equals(catsim_table(bank.consensus())[0])
    items = catsim.ItemBank(matrix)
    assert items.n_items == 27
    consensus = bank.consensus()
    for name in ("cloze", "choice"):
        group = consensus.groups[name]
        for j in range(3):
            a, b, c, d = matrix[ids.index(group.item_ids[j])]
            theirs = irt.icc(0.7, a, b, c, d)
            ours = group.model.expected_score(np.array([0.7]), group.mean[j : j + 1])[0]
            assert theirs == pytest.approx(ours, abs=1e-12)


def test_mirt_table_gives_the_same_curves(bank: Bank, tmp_path: Path) -> None:
    done = bank.export(tmp_path / "mirt.csv", format="mirt")
    assert set(done.left_out) == {f"dictation{k}" for k in range(12)}
    table = pl.read_csv(done.path, schema_overrides={"item": pl.String})
    values: dict[str, dict[str, float]] = {}
    for item, name, value in table.select("item", "name", "value").iter_rows():
        values.setdefault(item, {})[name] = value
    classes = dict(table.select("item", "class").iter_rows())
    theta = np.linspace(-3, 3, 7)
    for name, group in bank.consensus().groups.items():
        if name == "dictation":
            continue
        for j, item in enumerate(group.item_ids):
            par = values[item]
            slope = par["a1"] + par["a2"]
            theirs = _mirt_expected(classes[item], par, slope * theta)
            ours = group.model.expected_score(theta, np.repeat(group.mean[j : j + 1], 7, axis=0))
            np.testing.assert_allclose(theirs, ours, atol=1e-10, err_msg=f"{name} {item}")


def _mirt_expected(kind: str, par: dict[str, float], slope: np.ndarray) -> np.ndarray:
    """Expected score (over the maximum) by the formulas of mirt's manual."""
    if kind in ("2PL", "3PL"):
        return par["g"] + (par["u"] - par["g"]) / (1 + np.exp(-(slope + par["d"])))
    d = np.array([par[f"d{k}"] for k in range(1, 10) if f"d{k}" in par])
    if kind == "graded":
        return (1 / (1 + np.exp(-(slope[:, None] + d)))).mean(axis=1)
    k = np.arange(len(d) + 1)
    z = np.exp(k * slope[:, None] + np.concatenate([[0.0], d]))
    return (z * k).sum(axis=1) / z.sum(axis=1) / len(d)


def test_flexmirt_lines(bank: Bank, tmp_path: Path) -> None:
    done = bank.export(tmp_path / "anchors.prm", format="flexmirt")
    rows = [line.split("\t") for line in done.path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == done.items == 39
    natural = {r["item_id"]: r for r in bank.parameters().iter_rows(named=True)}
    for row in rows:
        code, categories = int(row[4]), int(row[5])
        values = [float(v) for v in row[6:]]
        item = natural[row[1]]
        assert sum(values[-2:]) == pytest.approx(item["a"])
        assert len(values) == categories - 1 + 2 + (code == 1)
        if code == 1:
            assert 1 / (1 + np.exp(-values[0])) == pytest.approx(item["c"])
        if categories == 2:
            assert values[code == 1] == pytest.approx(-item["a"] * item["d"])


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_arviz_round_trip_of_a_period(bank: Bank, tmp_path: Path, suffix: str) -> None:
    done = bank.export(tmp_path / f"draws.{suffix}", period="old")
    other = Bank.create(tmp_path / "other", SPEC)
    other.add_draws("old", done.path)
    mine, theirs = bank.calibration("old"), other.calibration("old")
    for name, group in mine.groups.items():
        np.testing.assert_array_equal(group.xi, theirs.groups[name].xi)
        np.testing.assert_array_equal(group.sigma, theirs.groups[name].sigma)
        assert group.item_ids == theirs.groups[name].item_ids
        np.testing.assert_array_equal(group.n_responses, theirs.groups[name].n_responses)
    np.testing.assert_allclose(bank.items()["mean"], other.items()["mean"], atol=1e-12)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_arviz_round_trip_keeps_priors_from_the_bank(bank: Bank, tmp_path: Path, suffix: str) -> None:
    made = bank.calibration("old")
    group = made.groups["essay"]
    n, p = group.n_items, len(group.model.parameters)
    told = {
        "guide_mean": np.random.default_rng(1).normal(size=(n, p)),
        "guide_covariance": np.broadcast_to(0.2 * np.eye(p) + 0.1, (n, p, p)).copy(),
        "guide_link": np.random.default_rng(2).normal(0, 0.1, (*group.xi.shape[:2], 2)),
    }
    guided = replace(made, groups={**made.groups, "essay": replace(group, **told)})
    path = write_arviz(guided, tmp_path / f"draws.{suffix}")
    back, _ = read_arviz(path, "old", SPEC)
    for name, value in told.items():
        np.testing.assert_array_equal(getattr(back.groups["essay"], name), value)
    assert back.groups["cloze"].guide_mean is None
    half = {f"xi_{name}": g.xi for name, g in guided.groups.items()} | {"guide_mean_essay": told["guide_mean"]}
    with pytest.raises(DataError, match=r"guide_covariance_essay.*is missing"):
        calibration_from_draws("old", half, SPEC, item_ids={name: g.item_ids for name, g in guided.groups.items()})


def test_arviz_consensus(bank: Bank, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    done = bank.export(tmp_path / "consensus.nc")
    with xarray.open_datatree(done.path, engine="h5netcdf") as tree:
        xi = tree["posterior"]["xi"].load()
    assert xi.sizes["item"] == done.items == bank.parameters().height
    row = bank.items(["choice3"])
    np.testing.assert_allclose(
        xi.sel(item="choice3").mean(("chain", "draw")).sel(parameter=row["parameter"].to_list()), row["mean"], atol=0.05
    )


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file can grow beyond a kilobyte, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.json", "a.nc", "a.zarr"])
def test_a_full_disk_is_said_and_leaves_what_was_there(
    bank: Bank, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    bank.export(tmp_path / name)
    there = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    request.getfixturevalue("small_disk")
    with pytest.raises(BankError, match=r"the disk is full or the quota is used up; free some space"):
        bank.export(tmp_path / name)
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == there


def test_bad_requests(bank: Bank, tmp_path: Path) -> None:
    with pytest.raises(BankError, match="cannot tell the format"):
        bank.export(tmp_path / "items.docx")
    with pytest.raises(BankError, match="no folder"):
        bank.export(tmp_path / "nowhere" / "items.csv")
    with pytest.raises(BankError, match="exported as arviz"):
        bank.export(tmp_path / "items.csv", period="old")
    assert list(tmp_path.iterdir()) == []
