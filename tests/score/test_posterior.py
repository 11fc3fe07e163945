"""Quadrature against a dense grid, for every response model and up to three dimensions."""

import numpy as np
import pytest
from worlds import MODELS, brute_force, make_bank, people, simulate

from concal.calibration.workers import Workers
from concal.score import posterior, stages
from concal.score.estimate import Estimator
from concal.score.grid import as_blocks, common_grid
from concal.score.items import posterior_points
from concal.score.kernels import posterior as kernels
from concal.score.prior import Prior
from concal.score.rows import Answered, LikelihoodRows
from concal.score.score import ScoreOptions, examinee_priors, score_examinees
from concal.score.soft import SoftTables


def columns(frame, name, D):
    return np.stack([frame[f"{name}_dim{k}"].to_numpy() for k in range(D)], axis=1)


def agrees(bank, answered, persons, tolerance=1e-6, **dense):
    D = len(bank.items.dimensions)
    found = score_examinees(bank, people(answered), ScoreOptions(items="mean"))
    for p in persons:
        mean, covariance = brute_force(bank, answered, p, **dense)
        sd = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(columns(found, "theta", D)[p], mean, atol=tolerance)
        np.testing.assert_allclose(columns(found, "se", D)[p], sd, atol=tolerance)
        for k in range(D):
            for l in range(k):
                r = found[f"correlation_dim{l}_dim{k}"][p]
                assert r == pytest.approx(covariance[k, l] / sd[k] / sd[l], abs=10 * tolerance)


@pytest.mark.parametrize(("model", "categories"), MODELS)
def test_one_dimension(model, categories):
    bank = make_bank([(model, categories)], n_items=12)
    _, answered = simulate(bank, 30, 6)
    agrees(bank, answered, range(30), per_axis=800)


@pytest.mark.parametrize(("model", "categories"), MODELS)
def test_two_dimensions(model, categories):
    bank = make_bank([(model, categories), ("2pl", None)], dimensions=2)
    _, answered = simulate(bank, 6, 5)
    agrees(bank, answered, range(3), per_axis=160)


def test_three_dimensions_and_all_models():
    bank = make_bank(MODELS, dimensions=3)
    _, answered = simulate(bank, 3, 2)
    agrees(bank, answered, range(3), per_axis=44)


def test_narrow_posteriors_get_finer_grids():
    """Hundreds of precise responses: the common grid's spacing is many posterior SDs."""
    bank = make_bank([("beta", None)], n_items=400)
    theta, answered = simulate(bank, 60, 400)
    found = score_examinees(bank, people(answered), ScoreOptions(items="mean"))
    assert found["se_dim0"].max() < 0.08
    for p in (0, 30, 59):
        centre, width = found["theta_dim0"][p], 10 * found["se_dim0"][p]
        mean, covariance = brute_force(bank, answered, p, per_axis=400, centre=[centre], width=[width])
        assert found["theta_dim0"][p] == pytest.approx(mean[0], abs=1e-6)
        assert found["se_dim0"][p] == pytest.approx(np.sqrt(covariance[0, 0]), abs=1e-6)
    assert np.abs(found["theta_dim0"].to_numpy() - theta[:, 0]).max() < 0.4


def test_one_narrow_examinee_gets_a_grid_of_their_own():
    bank = make_bank([("beta", None)], n_items=400)
    _, answered = simulate(bank, 1, 400)
    found = score_examinees(bank, people(answered), ScoreOptions(items="mean"))
    mean, covariance = brute_force(bank, answered, 0, per_axis=400, centre=[found["theta_dim0"][0]], width=[0.8])
    assert found["theta_dim0"][0] == pytest.approx(mean[0], abs=1e-6)
    assert found["se_dim0"][0] == pytest.approx(np.sqrt(covariance[0, 0]), abs=1e-6)


def test_examinees_beyond_the_grid():
    """A prior that is wrong by far: the posterior lies at the grid's edge or beyond."""
    bank = make_bank([("2pl", None)], n_items=300)
    theta = np.full((2, 1), 5.0)
    _, answered = simulate(bank, 2, 300, theta=theta)
    prior = Prior([0.0], [[0.3**2]])
    found = score_examinees(bank, people(answered), ScoreOptions(items="mean", prior=prior))
    for p in range(2):
        mean, covariance = brute_force(
            bank, answered, p, mean=np.zeros(1), covariance=np.array([[0.09]]), per_axis=900, width=[6.0]
        )
        assert found["theta_dim0"][p] == pytest.approx(mean[0], abs=1e-6)
        assert found["se_dim0"][p] == pytest.approx(np.sqrt(covariance[0, 0]), abs=1e-6)


def test_many_examinees_beyond_the_grid_share_a_wider_one(monkeypatch):
    grids = []
    whole = stages.integrate
    monkeypatch.setattr(stages, "integrate", lambda *a: grids.append((a[1].n_persons, a[3].grid)) or whole(*a))
    bank = make_bank([("2pl", None)], n_items=300)
    _, answered = simulate(bank, 2 * stages.FEW, 300, theta=np.full((2 * stages.FEW, 1), 5.0))
    found = score_examinees(bank, people(answered), ScoreOptions(items="mean", prior=Prior([0.0], [[0.09]])))
    assert min(n for n, _ in grids) > stages.FEW
    first, second = grids[0][1], grids[1][1]
    np.testing.assert_allclose(second.spacing, first.spacing)
    for p in (0, 50, 99):
        mean, covariance = brute_force(
            bank, answered, p, mean=np.zeros(1), covariance=np.array([[0.09]]), per_axis=900, width=[6.0]
        )
        assert found["theta_dim0"][p] == pytest.approx(mean[0], abs=1e-6)
        assert found["se_dim0"][p] == pytest.approx(np.sqrt(covariance[0, 0]), abs=1e-6)


@pytest.mark.parametrize("per_group", [5, 60])
def test_later_sets_start_where_the_first_one_ended(per_group, monkeypatch):
    """Short and long tests: what is remembered of the grids changes the work and not the numbers."""
    bank = make_bank([("2pl", None), ("grm", 3)], n_items=80, dimensions=2, sd=0.5, n_draws=4)
    _, answered = simulate(bank, 200, per_group)
    priors, workers = examinee_priors(bank, people(answered), "P1"), Workers(1)
    estimator = Estimator(bank.items, priors, "eap", "draws", np.arange(4), workers)
    rows, seen = LikelihoodRows.of(bank.items, answered), []
    whole = stages.integrate
    monkeypatch.setattr(stages, "integrate", lambda *a: seen.append(a[1].n_persons) or whole(*a))
    posteriors = stages.Posteriors(bank.items, rows, answered, estimator.grid, workers)
    for s, target in enumerate(estimator.targets(priors.group)):
        seen.clear()
        found = posteriors.at(target)
        work = sum(n for n in seen if n > 1)
        alone = stages.posterior(bank.items, rows, answered, target, estimator.grid, workers)
        np.testing.assert_allclose(found.mean, alone.mean, atol=1e-7)
        np.testing.assert_allclose(found.covariance, alone.covariance, atol=1e-7)
        assert (work > 200) == (s == 0 and per_group == 60)  # the first one alone tries a coarser grid in vain


def test_compiled_likelihoods():
    """Exponentials to the last digits, zero where negligible and outside the window."""
    x = np.concatenate([np.linspace(-59.99, 0.0, 10_000), [-60.1, -700.0, -1e300, -np.inf] * 4])
    flat = np.stack([x, x])
    L, even = as_blocks(flat), np.empty(x.size)
    window = np.array([[0, x.size // 8], [1249, 1250]], np.int32)
    at = np.empty(2, np.int64)
    kernels.likelihoods(L, flat, np.zeros(L.shape), window, even.reshape(-1, 8), even, np.empty((1, 8)), at)
    np.testing.assert_allclose(flat[0, :10_000], np.exp(x[:10_000]), rtol=2e-15)
    assert (flat[0, 10_000:] == 0).all()
    assert at.tolist() == [9999, 9999]
    np.testing.assert_array_equal(flat[1, 9992:10_000], flat[0, 9992:10_000])
    assert (flat[1, :9992] == 0).all()


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_windows_grow_to_what_the_whole_grid_gives(dimensions):
    """From one block of nodes at the wrong end of every dimension, and from what another draw of the items found."""
    bank = make_bank(MODELS[:3], dimensions=dimensions, sd=0.5, n_draws=4, correlation=0.8)
    _, answered = simulate(bank, 20, 4)
    priors, workers = examinee_priors(bank, people(answered), "P1"), Workers(1)
    estimator = Estimator(bank.items, priors, "eap", "draws", np.arange(4), workers)
    rows, grid = LikelihoodRows.of(bank.items, answered), estimator.grid
    first, second = list(estimator.targets(priors.group))[:2]
    whole, other = (posterior.integrate(rows, answered, t, t.on(grid, rows), workers) for t in (second, first))
    small = posterior.Windows.whole(20, grid)
    small.blocks[:, :, 1] = 1
    for windows in (small, posterior.Windows.around(other, grid)):
        found = posterior.integrate(rows, answered, second, second.on(grid, rows), workers, windows)
        np.testing.assert_allclose(found.mean, whole.mean, atol=1e-7)
        np.testing.assert_allclose(found.covariance, whole.covariance, atol=1e-7)
    assert (np.diff(windows.blocks, axis=2) < grid.nodes.shape[2] // 8).any()


def test_same_numbers_whatever_the_threads():
    bank = make_bank(MODELS, dimensions=2, sd=0.3, n_draws=8)
    _, answered = simulate(bank, 700, 3)
    for level in ("mean", "soft", "draws"):
        one, two = (
            score_examinees(bank, people(answered), ScoreOptions(items=level, draws=4, threads=t)) for t in (1, 3)
        )
        assert one.equals(two)


def test_soft_rows_average_over_the_posterior():
    bank = make_bank([("2pl", None), ("gpcm", 4), ("ordered_beta", None)], sd=0.5)
    item = np.array([0, 8, 9, 16, 17], dtype=np.int32)
    score = np.array([1.0, 2.0, 0.0, 1.0, 0.37])
    answered = Answered(np.array([0, 5]), item, score)
    rows = LikelihoodRows.of(bank.items, answered)
    nodes = common_grid(bank.abilities.mean, bank.abilities.covariance).nodes[0]
    workers = Workers(1)
    table = rows.soft_table(nodes, workers)
    rng = np.random.default_rng(3)
    for r in range(5):
        g = next(g for g in bank.items.groups if g.first <= item[r] < g.first + g.n_items)
        j, n = item[r] - g.first, 50_000
        xi = rng.multivariate_normal(g.mean[j], g.covariance[j], n)
        for q in (10, 20, 30):
            exact = np.mean(np.exp(g.model.log_likelihood(np.full(n, score[r]), np.full(n, nodes[0, q]), xi)))
            got = np.exp(table[rows.rows[r], q])
            assert got == pytest.approx(exact, rel=0.02, abs=2e-3)


@pytest.mark.parametrize("model", MODELS)
def test_soft_rows_are_the_mean_over_the_points(model):
    bank = make_bank([model], n_items=5, sd=0.5)
    _, answered = simulate(bank, 30, 5)
    rows = LikelihoodRows.of(bank.items, answered)
    nodes = common_grid(bank.abilities.mean, bank.abilities.covariance).nodes[0]
    table, g = rows.soft_table(nodes, Workers(1)), bank.items.groups[0]
    points = posterior_points(g.mean, g.covariance)
    n = points.shape[1]
    for r in range(0, answered.item.size, 7):
        for q in (12, 20, 24, 30, 36):
            at = np.full(n, nodes[0, q])
            ll = g.model.log_likelihood(np.full(n, answered.score[r]), at, points[answered.item[r]])
            exact = np.logaddexp.reduce(ll) - np.log(n)
            assert table[rows.rows[r], q] == pytest.approx(exact, abs=3e-6, rel=1e-6)  # float32, averaged


def test_soft_rows_are_made_once(monkeypatch):
    bank = make_bank([("2pl", None), ("gpcm", 4), ("ordered_beta", None)], dimensions=2, sd=0.5)
    _, answered = simulate(bank, 60, 6)
    made, fresh = [], LikelihoodRows.soft_table
    monkeypatch.setattr(LikelihoodRows, "soft_table", lambda rows, *a: made.append(rows) or fresh(rows, *a))
    grid, workers = common_grid(bank.abilities.mean, bank.abilities.covariance), Workers(1)
    tables = SoftTables(grid, int(bank.items.first_atom[-1]), workers)
    for nodes in (grid.nodes[0], grid.finer().nodes[0], grid.wider().nodes[0], np.linspace([-1, -1], [1, 2], 40).T):
        made.clear()
        for lo, hi in ((0, 20), (20, 40), (0, 60)):
            rows = LikelihoodRows.of(bank.items, answered.part(lo, hi))
            np.testing.assert_array_equal(tables.rows_at(rows, nodes), fresh(rows, nodes, workers))
        atoms = np.concatenate([g.atom for rows in made for g in rows.groups])
        atoms = atoms[atoms >= 0]
        once = np.unique(atoms).size == atoms.size
        assert once == bool((nodes[:, [0, -1]] == grid.nodes[0][:, [0, -1]]).all())


def test_posterior_points_have_the_posteriors_moments():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 4, 4))
    mean, covariance = rng.normal(size=(3, 4)), root @ root.transpose(0, 2, 1)
    points = posterior_points(mean, covariance)
    np.testing.assert_allclose(points.mean(axis=1), mean, atol=1e-10)
    off = points - mean[:, None]
    np.testing.assert_allclose(np.einsum("jra,jrb->jab", off, off) / points.shape[1], covariance, atol=1e-9)
