"""Draws of other engines and parameters of existing banks come in as periods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.exchange.arviz import read_arviz
from concal.bank.exchange.draws import calibration_from_draws, draws_of_numpyro
from concal.bank.exchange.legacy import legacy_calibration
from concal.consensus.combine import combine
from concal.errors import ConcalError, DataError, SpecError
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["reading"]},
        "groups": {"cloze": {"model": "2pl", "dimension": "reading"}},
        "linking": {"min_anchors": 5},
        "calibration": {"draws": 400, "mean_error": 0.2},
        "consensus": {"method": "analytic"},
    }
)
IDS = [f"i{k:02d}" for k in range(20)]


def arrays(n: int = 20, shift: float = 0.0, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    centre = np.random.default_rng(9).normal(0, [1.0, 0.3], (20, 2))[:n] + np.array([shift, 0.0])
    beta = np.zeros((2, 100, 1, 2)) + np.array([shift, 0.0]) + rng.normal(0, 0.05, (2, 100, 1, 2))
    return {
        "xi_cloze": centre + rng.normal(0, 0.15, (2, 100, n, 2)),
        "beta_cloze": beta,
        "sigma_cloze": np.broadcast_to(np.diag([1.0, 0.09]), (2, 100, 2, 2)) * rng.uniform(0.9, 1.1, (2, 100, 1, 1)),
        "n_responses_cloze": np.full(n, 50),
    }


def test_draws_by_name_and_by_parameter_are_the_same() -> None:
    whole = arrays()
    xi = whole["xi_cloze"]
    single = {"d_cloze": xi[..., 0], "log_a_cloze": xi[..., 1]} | {k: v for k, v in whole.items() if k != "xi_cloze"}
    one, _ = calibration_from_draws("Q1", whole, SPEC, item_ids={"cloze": IDS})
    two, _ = calibration_from_draws("Q1", single, SPEC, item_ids={"cloze": IDS})
    np.testing.assert_array_equal(one.groups["cloze"].xi, two.groups["cloze"].xi)
    assert np.isfinite(one.groups["cloze"].rhat).all()


@pytest.mark.parametrize(
    ("targets", "draws", "enough"),
    [
        ({"mean_error": 0.05}, 100, False),  # 200 draws: means are known to 7 % of an SD
        ({"mean_error": 0.05}, 500, True),
        ({"mean_error": 0.2}, 100, True),
        ({"min_ess": 500}, 100, False),
        ({"min_ess": 30}, 100, True),
    ],
)
def test_draws_are_asked_for_enough_effective_ones(targets: dict[str, float], draws: int, enough: bool) -> None:
    given = {
        "xi_cloze": np.random.default_rng(2).normal(0, 0.15, (2, draws, 20, 2)) + arrays()["xi_cloze"].mean((0, 1))
    }
    spec = Spec.parse(SPEC.model_dump(exclude_none=True) | {"calibration": targets})
    calibration, _ = calibration_from_draws("Q1", given, spec, item_ids={"cloze": IDS})
    reached = calibration.convergence
    assert reached.converged is enough
    assert any("effective draws" in text for text in reached.warnings) is not enough
    assert reached.mean_error == pytest.approx((2 * draws) ** -0.5, rel=0.8)
    assert reached.sd_error == pytest.approx(reached.mean_error / np.sqrt(2))


def test_absent_population_is_estimated_with_a_warning() -> None:
    whole = arrays()
    bare = {"xi_cloze": whole["xi_cloze"]}
    calibration, _ = calibration_from_draws("Q1", bare, SPEC, item_ids={"cloze": IDS})
    assert any("beta_cloze" in w for w in calibration.convergence.warnings)
    assert any("n_responses_cloze" in w for w in calibration.convergence.warnings)
    group = calibration.groups["cloze"]
    spread = whole["xi_cloze"].mean(axis=(0, 1)).var(axis=0)
    np.testing.assert_allclose(np.diagonal(group.flat("sigma").mean(axis=0)), spread, rtol=0.5)


def test_periods_of_another_engine_are_linked_and_combined(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank", SPEC)
    for period, shift in (("Q1", 0.0), ("Q2", 0.5)):
        calibration, states = calibration_from_draws(
            period, arrays(shift=shift, seed=len(period)), SPEC, item_ids={"cloze": IDS}, engine="numpyro"
        )
        bank.add_calibration(calibration, design_states=states)
    assert bank.links().filter(period="Q2")["B"].item() == pytest.approx(-0.5, abs=0.1)
    assert bank.periods()["engine"].to_list() == ["numpyro", "numpyro"]
    assert bank.items()["n_periods"].to_list() == [2] * 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"xi_cloze": None}, "no draws of group 'cloze'"),
        ({"xi_cloze": np.zeros((2, 100, 20))}, "must be"),
        ({"xi_cloze": np.zeros((2, 100, 3, 2))}, "3 items, but 20"),
        ({"beta_cloze": np.zeros((2, 100, 2, 2))}, "beta_cloze has shape"),
        ({"n_responses_cloze": -np.ones(20)}, "must be 20 counts"),
        ({"xi_cloze": np.full((2, 100, 20, 2), np.nan)}, "not finite"),
        ({"xi_cloze": np.full((2, 100, 20, 2), np.inf), "beta_cloze": None}, "not finite"),
        ({"xi_cloze": np.zeros((2, 100, 20, 2))}, "do not vary"),
    ],
)
def test_bad_draws(change: dict[str, Any], message: str) -> None:
    draws = {k: v for k, v in (arrays() | change).items() if v is not None}
    with pytest.raises(DataError, match=message):
        calibration_from_draws("Q1", draws, SPEC, item_ids={"cloze": IDS})


def xi_with(item: Any) -> dict[str, Any]:
    """Draws in which i03 is something else, (2, 100, 2)."""
    given = arrays()
    given["xi_cloze"][:, :, 3] = item
    return given


NOISE = np.random.default_rng(5).normal(size=(2, 100, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (xi_with(NOISE - [0.0, -800.0]), r"1 item have \|d\| above 10,000 or \|log a\| above 20: 'i03'"),
        (xi_with(NOISE - [0.0, 60.0]), r"\|log a\| above 20: 'i03'; no item is there"),
        (xi_with(1e6 * NOISE - [1e10, 0.0]), r"\|d\| above 10,000"),
        (xi_with(0.5 + 1e-6 * NOISE), r"'cloze': draws of 1 item hardly vary.*'i03'; give draws of a sampler"),
        (xi_with(NOISE[..., :1] - [0.0, 0.5]), r"fewer directions than they have parameters.*'i03'"),
        (arrays() | {"xi_cloze": np.repeat(arrays()["xi_cloze"][:, :1], 100, axis=1)}, r"20 items hardly vary"),
        (arrays() | {"sigma_cloze": 1e8 * arrays()["sigma_cloze"]}, r"'cloze': the items' spread is 1\d,\d{3}"),
    ],
)
def test_draws_that_are_no_posterior_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        calibration_from_draws("Q1", given, SPEC, item_ids={"cloze": IDS})


def test_a_vague_fixed_prior_gives_the_period_back() -> None:
    """Sigma = 10^2 I and beta = 0: the consensus of one period is that period."""
    given = arrays() | {
        "beta_cloze": np.zeros((2, 100, 1, 2)),
        "sigma_cloze": np.tile(100.0 * np.eye(2), (2, 100, 1, 1)),
    }
    calibration, _ = calibration_from_draws("Q1", given, SPEC, item_ids={"cloze": IDS})
    group = combine([(calibration, None)], method="analytic").groups["cloze"]
    own, sd = given["xi_cloze"].mean((0, 1)), given["xi_cloze"].std((0, 1))
    np.testing.assert_allclose((group.mean - own) / sd, 0.0, atol=0.3)
    np.testing.assert_allclose(group.sd / sd, 1.0, atol=0.25)


def test_bad_names() -> None:
    with pytest.raises(SpecError, match="not in the spec"):
        calibration_from_draws("Q1", arrays(), SPEC, item_ids={"typo": IDS})
    with pytest.raises(DataError, match="more than once: 'i00'"):
        calibration_from_draws("Q1", arrays(), SPEC, item_ids={"cloze": ["i00", "i00", *IDS[2:]]})
    with pytest.raises(ConcalError):
        calibration_from_draws("../Q1", arrays(), SPEC, item_ids={"cloze": IDS})


def test_files_that_are_no_draws(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    with pytest.raises(DataError, match="there is no file"):
        read_arviz(tmp_path / "no.nc", "Q1", SPEC)
    (tmp_path / "bad.nc").write_bytes(b"not a netCDF file" * 100)
    with pytest.raises(DataError, match="not an ArviZ"):
        read_arviz(tmp_path / "bad.nc", "Q1", SPEC)
    with pytest.raises(DataError, match="must be an ArviZ file"):
        read_arviz(42, "Q1", SPEC)


def legacy_table() -> pl.DataFrame:
    rng = np.random.default_rng(4)
    return pl.DataFrame(
        {
            "item_id": IDS,
            "a": np.exp(rng.normal(0, 0.3, 20)),
            "d": rng.normal(0, 1, 20),
            "se_a": np.full(20, 0.12),
            "se_d": np.full(20, 0.2),
        }
    )


def test_legacy_estimates_come_back_as_the_likelihood_factor() -> None:
    """Taking the population out of the imported period and putting it in again gives the period's own posterior."""
    calibration, _ = legacy_calibration("old", legacy_table(), SPEC, draws=4000, seed=1)
    xi = calibration.groups["cloze"].flat("xi")
    group = combine([(calibration, None)], method="analytic").groups["cloze"]
    np.testing.assert_allclose((group.mean - xi.mean(axis=0)) / xi.std(axis=0), 0.0, atol=0.12)
    np.testing.assert_allclose(group.sd / xi.std(axis=0), 1.0, atol=0.1)


def test_legacy_posterior_is_taken_as_it_is(tmp_path: Path) -> None:
    table = legacy_table()
    calibration, _ = legacy_calibration("old", table, SPEC, prior="included", draws=4000, seed=1)
    xi = calibration.groups["cloze"].flat("xi")
    np.testing.assert_allclose(xi.mean(axis=0)[:, 0], table["d"], atol=0.02)
    np.testing.assert_allclose(xi.std(axis=0)[:, 0], 0.2, rtol=0.05)
    bank = Bank.create(tmp_path / "bank", SPEC)
    bank.add_calibration(calibration)
    assert bank.items()["source"].unique().to_list() == ["consensus"]


def test_a_period_must_have_all_dimensions(tmp_path: Path) -> None:
    content = SPEC.model_dump()
    content["bank"]["dimensions"] = ("reading", "writing")
    spec = Spec.parse(content)
    with pytest.raises(DataError, match=r"has the dimensions \['reading'\].*must measure all"):
        calibration_from_draws("Q1", arrays(), spec, item_ids={"cloze": IDS})
    calibration, states = calibration_from_draws("Q1", arrays(), SPEC, item_ids={"cloze": IDS})
    bank = Bank.create(tmp_path / "bank", spec)
    with pytest.raises(DataError, match="must measure all"):
        bank.add_calibration(calibration, design_states=states)
    assert bank.refresh().version == 0


def test_imported_item_tables_list_unanswered_items(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank", SPEC)
    items = pl.DataFrame({"item_id": [*IDS, "i99"]})
    calibration, states = calibration_from_draws("Q1", arrays(), SPEC, item_ids={"cloze": IDS}, items=items)
    bank.add_calibration(calibration, design_states=states, items=items)
    assert bank.items(["i99"])["source"].unique().to_list() == ["predicted"]
    plain = bank.predict(pl.DataFrame({"item_id": ["i99"]}))
    np.testing.assert_allclose(plain["mean"], bank.items(["i99"])["mean"], atol=1e-12)


def test_bad_legacy_tables() -> None:
    table = legacy_table()
    with pytest.raises(DataError, match="se_d"):
        legacy_calibration("old", table.drop("se_d"), SPEC)
    with pytest.raises(DataError, match="positive standard error: 'i00'"):
        legacy_calibration("old", table.with_columns(se_d=pl.Series([0.0] + [0.2] * 19)), SPEC)
    with pytest.raises(DataError, match="a group the spec does not have"):
        legacy_calibration("old", table.with_columns(group=pl.lit("typo")), SPEC)
    with pytest.raises(DataError, match="impossible"):
        legacy_calibration("old", table.with_columns(a=-pl.col("a")), SPEC)


@pytest.mark.slow
def test_numpyro_calibrates_a_period_and_it_is_added(tmp_path: Path) -> None:
    """The worked example of docs/guides/importing.md: NumPyro's NUTS on a 2pl period, linked to one of concal's own."""
    numpyro = pytest.importorskip("numpyro")
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist

    rng = np.random.default_rng(5)
    a, d = np.exp(rng.normal(0, 0.2, 20)), rng.normal(0, 1, 20)

    def answers(period: str, shift: float) -> pl.DataFrame:
        theta = rng.normal(shift, 1.0, 300)
        y = rng.random((300, 20)) < 1 / (1 + np.exp(-a * (theta[:, None] - d)))
        persons = np.repeat([f"{period}-{i}" for i in range(300)], 20)
        return pl.DataFrame({"person_id": persons, "item_id": IDS * 300, "score": y.ravel().astype(float)})

    bank = Bank.create(tmp_path / "bank", SPEC)
    bank.add("Q1", answers("Q1", 0.0), pl.DataFrame({"item_id": IDS}))
    second = answers("Q2", 0.7)
    y = second["score"].to_numpy().reshape(300, 20)

    def model(y: Any) -> None:
        beta = numpyro.sample("beta", dist.Normal(0, 10).expand([2]))
        sd = numpyro.sample("sd", dist.HalfNormal(jnp.array([2.0, 0.6])).to_event(1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([20, 2]).to_event(2))
        xi = numpyro.deterministic("xi_cloze", beta + sd * z)
        numpyro.deterministic("beta_cloze", beta[None, :])
        numpyro.deterministic("sigma_cloze", jnp.diag(sd**2))
        theta = numpyro.sample("theta", dist.Normal(0, 1).expand([300]).to_event(1))
        eta = jnp.exp(xi[:, 1]) * (theta[:, None] - xi[:, 0])
        numpyro.sample("y", dist.Bernoulli(logits=eta).to_event(2), obs=y)

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model), num_warmup=300, num_samples=300, num_chains=2, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.PRNGKey(0), jnp.asarray(y))
    draws = draws_of_numpyro(mcmc) | {"n_responses_cloze": np.full(20, 300)}
    calibration, states = calibration_from_draws("Q2", draws, SPEC, item_ids={"cloze": IDS}, engine="numpyro")
    bank.add_calibration(calibration, design_states=states)
    link = bank.links().filter(period="Q2")
    assert link["B"].item() == pytest.approx(0.7, abs=0.25)
    assert link["A"].item() == pytest.approx(1.0, abs=0.25)
    means = bank.items().filter(parameter="d")["mean"].to_numpy()
    assert np.corrcoef(means, d)[0, 1] > 0.97
