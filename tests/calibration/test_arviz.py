"""Calibrations as ArviZ data: names, coordinates, and ArviZ's own functions on them."""

import numpy as np
import polars as pl
import pytest

from concal.calibration.arviz import to_datatree, to_xarray
from concal.calibration.diagnostics import TAIL, diagnose
from concal.calibration.result import Abilities, Calibration, Convergence, GroupDraws
from concal.response import make_model

pytest.importorskip("xarray")
az = pytest.importorskip("arviz_stats.base").array_stats


def group_draws(name, model, dimension, n, features, rng, chains=3, draws=50):
    p, F = len(model.parameters), len(features)
    xi = rng.normal(size=(chains, draws, n, p)).astype(np.float32)
    quality = diagnose(xi)
    return GroupDraws(
        name=name,
        dimension=dimension,
        model=model,
        item_ids=tuple(f"{name}{k}" for k in range(n)),
        features=features,
        X=np.ones((n, F)),
        xi=xi,
        beta=rng.normal(size=(chains, draws, F, p)),
        sigma=np.exp(rng.normal(size=(chains, draws, p, p))),
        n_responses=np.arange(n),
        rhat=quality.rhat,
        ess_bulk=quality.ess_bulk,
        ess_tail=quality.ess_tail,
    )


def calibration(abilities=True):
    rng = np.random.default_rng(1)
    groups = {
        "words": group_draws("words", make_model("2pl"), "reading", 5, ("Intercept", "length"), rng),
        "essays": group_draws("essays", make_model("gpcm", 4), "writing", 3, ("Intercept",), rng),
    }
    people = Abilities(
        person_ids=pl.Series(["a", "b"]),
        mean=np.zeros((2, 2)),
        sd=np.ones((2, 2)),
        n_responses=np.ones((2, 2), dtype=np.int64),
        draw_mean=rng.normal(size=(3, 50, 2)),
        draw_sd=np.exp(rng.normal(size=(3, 50, 2))),
        correlation=np.broadcast_to(np.eye(2), (3, 50, 2, 2)),
    )
    return Calibration(
        period="2026Q1",
        dimensions=("reading", "writing"),
        groups=groups,
        abilities=people if abilities else None,
        convergence=Convergence(True, 200, 100, 1, 1.5, 1.0, 100.0, 1.0),
        tau=0.01,
        beta_prior_precision={},
        seed=7,
    )


def test_values_by_name():
    given = calibration()
    data = to_xarray(given)
    words = given.groups["words"]
    np.testing.assert_array_equal(data.xi_words.sel(item_words="words3", parameter_words="log_a"), words.xi[..., 3, 1])
    beta = data.beta_words.sel(feature_words="length", parameter_words="d")
    np.testing.assert_array_equal(beta, words.beta[..., 1, 0])
    sigma = data.sigma_essays.sel(parameter_essays="c_2", parameter_essays_="d")
    np.testing.assert_array_equal(sigma, given.groups["essays"].sigma[..., 3, 0])
    np.testing.assert_array_equal(data.ability_sd.sel(dimension="writing"), given.abilities.draw_sd[..., 1])
    assert data.correlation.dims == ("chain", "draw", "dimension", "dimension_")
    assert data.attrs["period"] == "2026Q1"
    assert data.attrs["seed"] == 7


def test_draws_are_shared_not_copied():
    given = calibration()
    assert np.shares_memory(to_xarray(given).xi_words.values, given.groups["words"].xi)


def test_without_abilities():
    data = to_xarray(calibration(abilities=False))
    assert "correlation" not in data
    assert "dimension" not in data.coords
    assert set(data.data_vars) == {f"{kind}_{g}" for kind in ("xi", "beta", "sigma") for g in ("words", "essays")}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_summary_of_arviz_finds_every_scalar():
    pytest.importorskip("xarray_einstats")  # what arviz-stats needs for its summary
    from arviz_stats import summary

    tree = to_datatree(calibration())
    table = summary(tree, var_names=["xi_words", "beta_essays"], round_to="none")
    assert len(table) == 5 * 2 + 1 * 4
    assert "xi_words[words3, log_a]" in table.index
    np.testing.assert_allclose(
        table.loc["xi_words[words3, log_a]", "mean"], tree.posterior.xi_words[..., 3, 1].mean(), rtol=1e-5
    )


def test_diagnostics_are_those_arviz_computes():
    given = calibration()
    tree = to_datatree(given)
    axes = {"chain_axis": 0, "draw_axis": 1}
    for group in given.groups:
        xi = tree.posterior[f"xi_{group}"].transpose("chain", "draw", ...).values.astype(np.float64)
        theirs = {"ess_bulk": az.ess(xi, **axes), "ess_tail": az.ess(xi, method="tail", prob=TAIL, **axes)}
        theirs["rhat"] = az.rhat(xi, **axes)
        for kind, values in theirs.items():
            np.testing.assert_allclose(tree.diagnostics[f"{kind}_{group}"], values, rtol=1e-8)
    assert tree.diagnostics.n_responses_words.sel(item_words="words4") == 4


def test_file_round_trip(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    posterior = to_xarray(calibration())
    posterior.to_zarr(tmp_path / "calibration.zarr", consolidated=False)
    with xarray.open_zarr(tmp_path / "calibration.zarr", consolidated=False) as back:
        xarray.testing.assert_equal(back.load(), posterior)
        assert back.attrs == posterior.attrs
