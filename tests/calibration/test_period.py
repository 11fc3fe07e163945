"""Whole calibrations on small data: recovery, determinism, resuming, edges, refusals."""

import os
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from programme import MODELS, simulate_period

from concal.calibration import period as period_module
from concal.calibration import trace as trace_module
from concal.calibration.period import calibrate, calibrate_period
from concal.calibration.sampler import Sampler
from concal.data.period import GroupData, PeriodData
from concal.errors import ConvergenceError
from concal.spec import Spec

SHORT = {"max_sweeps": 420, "draws": 200, "min_ess": 50, "max_rhat": 1.2, "max_item_rhat": 1.5}


def spec_for(data, **calibration):
    groups = {
        g.name: {
            "model": g.model.name,
            "dimension": g.dimension,
            **({"categories": g.model.n_categories} if g.model.polytomous else {}),
        }
        for g in data.groups.values()
    }
    return Spec.parse({"bank": {"dimensions": data.dimensions}, "groups": groups, "calibration": SHORT | calibration})


@pytest.fixture(scope="module")
def mixed():
    """All six models in one period of two dimensions."""
    groups = [
        (f"{name}-items", "reading" if k % 2 else "listening", (name, categories), 14, 7)
        for k, (name, categories) in enumerate(MODELS)
    ]
    return simulate_period(groups, 400, correlation=0.6, seed=3)


@pytest.fixture(scope="module")
def mixed_calibration(mixed):
    return calibrate_period(mixed[0], spec_for(mixed[0]), seed=11)


def test_all_models_in_one_period_recover_their_items(mixed, mixed_calibration):
    _, truth, theta = mixed
    for name, group in mixed_calibration.groups.items():
        draws = group.flat("xi")
        z = (draws.mean(axis=0) - truth[name]) / draws.std(axis=0)
        assert np.sqrt((z**2).mean()) < 1.5, name
        assert np.corrcoef(draws.mean(axis=0)[:, 0], truth[name][:, 0])[0, 1] > 0.9, name
    abilities = mixed_calibration.abilities
    for k in range(2):
        assert np.corrcoef(abilities.mean[:, k], theta[:, k])[0, 1] > 0.9
    z = (abilities.mean - theta) / abilities.sd
    assert 0.85 < np.sqrt((z**2).mean()) < 1.15
    rho = abilities.correlation[..., 1, 0]
    assert abs(rho.mean() - 0.6) < 4 * rho.std() + 0.05


def test_shapes_and_names(mixed_calibration):
    assert mixed_calibration.n_draws == 200
    group = mixed_calibration.groups["gpcm-items"]
    assert group.xi.shape == (8, 25, 14, 4)
    assert group.xi.dtype == np.float32
    assert group.beta.shape == group.beta_mean.shape == (8, 25, 1, 4)
    assert set(group.population_rhat) >= {"beta[1,d]", "sigma[d,d]", "sigma[log_a,d]"}
    assert np.all(group.n_responses > 0)
    assert np.all(np.linalg.eigvalsh(group.sigma) > 0)


@pytest.fixture(scope="module")
def tiny():
    return simulate_period([("g", "reading", ("2pl", None), 20, 10), ("h", "listening", ("gpcm", 3), 12, 6)], 150)[0]


def test_same_seed_same_draws_on_any_number_of_threads(tiny):
    one = calibrate_period(tiny, spec_for(tiny, threads=1), seed=5)
    two = calibrate_period(tiny, spec_for(tiny, threads=2), seed=5)
    other = calibrate_period(tiny, spec_for(tiny, threads=2), seed=6)
    for name in one.groups:
        np.testing.assert_array_equal(one.groups[name].xi, two.groups[name].xi)
        np.testing.assert_array_equal(one.groups[name].sigma, two.groups[name].sigma)
        assert not np.array_equal(one.groups[name].xi, other.groups[name].xi)
    np.testing.assert_array_equal(one.abilities.mean, two.abilities.mean)


def test_periods_of_one_seed_have_random_numbers_of_their_own(tiny):
    """With common ones their chains would move together, and so would their Monte Carlo errors."""
    one, other = (calibrate_period(replace(tiny, period=name), spec_for(tiny), seed=5) for name in ("2026Q1", "2026Q2"))
    assert (one.seed, other.seed) == (5, 5)
    for name in one.groups:
        x, y = (c.groups[name].xi[..., 0] - c.groups[name].xi[..., 0].mean(axis=(0, 1)) for c in (one, other))
        assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 0.1


KILLED = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
import concal.calibration.sampler as sampler
sampler.CHECKPOINT_SECONDS = 0.05
from programme import simulate_period
from test_period import spec_for
from concal.calibration.period import calibrate, calibrate_period
tiny = simulate_period([("g", "reading", ("2pl", None), 20, 10), ("h", "listening", ("gpcm", 3), 12, 6)], 150)[0]
calibrate_period(tiny, spec_for(tiny), seed=5, checkpoint=Path(sys.argv[1]))
"""


def test_killed_and_resumed_gives_the_same_draws(tiny, tmp_path):
    checkpoint = tmp_path / "run.npz"
    script = KILLED.format(here=str(Path(__file__).parent))
    process = subprocess.Popen([sys.executable, "-c", script, str(checkpoint)])
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert checkpoint.exists()
    seen = []
    resumed = calibrate_period(tiny, spec_for(tiny), seed=5, checkpoint=checkpoint, progress=seen.append)
    assert min(p.sweep for p in seen) > 1  # it did go on, not start over
    fresh = calibrate_period(tiny, spec_for(tiny), seed=5)
    for name in fresh.groups:
        np.testing.assert_array_equal(fresh.groups[name].xi, resumed.groups[name].xi)
        for field in ("moments", "bin_mean", "cell_count"):
            np.testing.assert_array_equal(getattr(fresh.groups[name], field), getattr(resumed.groups[name], field))
    assert checkpoint.exists() is not fresh.convergence.converged  # there for more sweeps, if they are needed


def test_checkpoint_of_other_data_or_damaged_is_refused(tiny, tmp_path):
    checkpoint = tmp_path / "run.npz"

    def stop(progress):
        if progress.sweep >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_period(tiny, spec_for(tiny), seed=5, checkpoint=checkpoint, progress=stop)
    with pytest.raises(ConvergenceError, match="other data, spec or seed"):
        calibrate_period(tiny, spec_for(tiny), seed=6, checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-500])
    with pytest.raises(ConvergenceError, match="delete it to start over"):
        calibrate_period(tiny, spec_for(tiny), seed=5, checkpoint=checkpoint)


def test_items_without_responses_all_right_all_wrong_and_one_response():
    data, _, _ = simulate_period([("g", "reading", ("2pl", None), 30, 12)], 300)
    g = data.groups["g"]
    keep = g.item >= 3
    first_of_2 = np.flatnonzero(g.item == 2)[:1]
    keep[first_of_2] = True  # item 2 has one response, items 0 and 1 none
    score = g.score.copy()
    score[g.item == 3], score[g.item == 4] = 1.0, 0.0
    group = GroupData("g", "reading", g.model, g.item_ids, g.features, g.X, g.person[keep], g.item[keep], score[keep])
    period = PeriodData("q", data.dimensions, data.person_ids, {"g": group}, ("q",), data.population)
    out = calibrate_period(period, spec_for(period, max_sweeps=900, draws=800), seed=2).groups["g"]
    draws = out.flat("xi")
    assert out.n_responses[0] == 0
    assert out.n_responses[2] == 1
    prior_sd = np.sqrt(out.flat("sigma")[:, 0, 0].mean() + out.flat("beta")[:, 0, 0].var())
    np.testing.assert_allclose(draws[:, 0, 0].std(), prior_sd, rtol=0.12)
    np.testing.assert_allclose(draws[:, 0].mean(axis=0), out.flat("beta")[:, 0].mean(axis=0), atol=0.15)
    assert draws[:, 3, 0].mean() < draws[:, 5:, 0].mean(axis=0).min()  # all right: easiest
    assert draws[:, 4, 0].mean() > draws[:, 5:, 0].mean(axis=0).max()
    assert np.all(np.isfinite(draws))


def test_examinees_who_answered_in_one_dimension_borrow_from_the_correlation():
    data, _, theta = simulate_period(
        [("g", "reading", ("2pl", None), 30, 20), ("h", "listening", ("2pl", None), 30, 20)], 600, correlation=0.8
    )
    h = data.groups["h"]
    keep = h.person >= 300
    groups = dict(data.groups)
    groups["h"] = GroupData(
        "h", "listening", h.model, h.item_ids, h.features, h.X, h.person[keep], h.item[keep], h.score[keep]
    )
    period = PeriodData("q", data.dimensions, data.person_ids, groups, ("q",), data.population)
    abilities = calibrate_period(period, spec_for(period), seed=2).abilities
    assert np.all(abilities.n_responses[:300, 1] == 0)
    assert np.corrcoef(abilities.mean[:300, 1], theta[:300, 1])[0, 1] > 0.55
    assert 0.5 < abilities.sd[:300, 1].mean() < 0.85
    assert abilities.sd[300:, 1].mean() < abilities.sd[:300, 1].mean()


def test_pooled_fit_finds_the_shift_and_spread_of_another_population():
    rng = np.random.default_rng(7)
    data, _, _ = simulate_period([("g", "reading", ("2pl", None), 40, 20)], 800)
    g = data.groups["g"]
    xi = np.column_stack([rng.standard_normal(40), 0.2 * rng.standard_normal(40)])
    population = (np.arange(800) >= 400).astype(np.int32)
    theta = rng.standard_normal(800)
    theta[400:] = 0.7 + 1.4 * theta[400:]
    score = g.model.simulate(theta[g.person], xi[g.item], rng)
    group = GroupData("g", "reading", g.model, g.item_ids, g.features, g.X, g.person, g.item, score)
    period = PeriodData("all", data.dimensions, data.person_ids, {"g": group}, ("q1", "q2"), population)
    abilities = calibrate_period(period, spec_for(period), seed=2).abilities
    assert abilities.populations == ("q1", "q2")
    mean, sd = abilities.population_mean[..., 1, 0], abilities.population_sd[..., 1, 0]
    assert abs(mean.mean() - theta[400:].mean()) < 0.2
    assert abs(sd.mean() - theta[400:].std()) < 0.2
    assert abs(abilities.population_mean[..., 0, 0].mean()) < 0.1


def test_running_out_of_time_says_so(tiny):
    calibration = calibrate_period(tiny, spec_for(tiny, max_minutes=1e-6, min_ess=1e6), seed=1)
    assert not calibration.convergence.converged
    assert any("max_minutes" in w for w in calibration.convergence.warnings)


def test_a_dimension_without_items_is_refused(tiny):
    period = PeriodData("q", ("reading", "writing", "listening"), tiny.person_ids, tiny.groups, ("q",), tiny.population)
    with pytest.raises(ConvergenceError, match="'writing'"):
        calibrate_period(period, spec_for(tiny), seed=1)


def test_no_item_is_left_stuck(mixed):
    data = mixed[0]
    from concal.calibration.layout import lay_out

    sampler = Sampler(lay_out(data), spec_for(data).calibration, 3, 1)
    for _ in range(330):
        sampler.sweep()
    assert sampler.sampled().stuck == ()
    for counts in sampler.moves.units.item_accepted:
        assert counts.mean() / 330 > 0.5


def test_what_a_group_shares_and_never_moves_is_told(monkeypatch):
    rng = np.random.default_rng(2)
    rows = [(f"p{i}", f"i{j}", int(rng.integers(0, 3))) for i in range(60) for j in range(4)]
    table = pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row")
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["x"]},
            "groups": {"g": {"model": "rsm", "dimension": "x", "categories": 3}},
            "calibration": {"max_sweeps": 150},
        }
    )

    def said():
        found = calibrate(table, table.select("item_id").unique(), spec, seed=1)
        return [text for text in found.convergence.warnings if "never moved" in text]

    assert said() == []
    monkeypatch.setattr("concal.calibration.sweep.move_shared", lambda *_: None)
    assert said() == [
        "1 parameter that all items of a group share never moved in some chain: 'c_1 of g'; run longer"
    ], "the slope has moves of its own"


@pytest.fixture
def sigint():
    """Sets what Ctrl-C does, and puts it back: a test run in the background of a script is started to ignore it."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


def test_interrupt_waits_for_the_end_of_the_sweep_and_leaves_a_checkpoint(tiny, tmp_path, sigint):
    sigint(signal.default_int_handler)
    checkpoint = tmp_path / "run.npz"

    def press_ctrl_c(progress):
        if progress.sweep == 30:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        calibrate_period(tiny, spec_for(tiny), seed=5, checkpoint=checkpoint, progress=press_ctrl_c)
    resumed = calibrate_period(tiny, spec_for(tiny), seed=5, checkpoint=checkpoint)
    fresh = calibrate_period(tiny, spec_for(tiny), seed=5)
    np.testing.assert_array_equal(fresh.groups["g"].xi, resumed.groups["g"].xi)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_interrupt_stays_ignored(tiny, tmp_path, sigint):
    sigint(signal.SIG_IGN)

    def press_ctrl_c(progress):
        if progress.sweep == 30:
            os.kill(os.getpid(), signal.SIGINT)

    calibrate_period(tiny, spec_for(tiny), seed=5, progress=press_ctrl_c)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_changed_features_of_the_same_shape_do_not_go_on_from_a_checkpoint(tmp_path):
    period = simulate_period([("g", "reading", ("2pl", None), 20, 10)], 100, features=1)[0]
    checkpoint, spec = tmp_path / "run.npz", spec_for(period)

    def stop(progress):
        if progress.sweep >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_period(period, spec, seed=1, checkpoint=checkpoint, progress=stop)
    group = period.groups["g"]
    other = replace(period, groups={"g": replace(group, X=group.X[::-1])})
    with pytest.raises(ConvergenceError, match="other data"):
        calibrate_period(other, spec, seed=1, checkpoint=checkpoint)


def test_chains_that_stand_still_are_a_failure(tiny, monkeypatch):
    """A population parameter that never moves has no R-hat: said, and never taken for converged."""
    real = trace_module.population_vectors

    def frozen(layout, state):
        vectors = real(layout, state)
        vectors[0] = 1.0
        return vectors

    monkeypatch.setattr(trace_module, "population_vectors", frozen)
    found = calibrate_period(tiny, spec_for(tiny, max_sweeps=300), seed=1).convergence
    assert not found.converged
    assert found.max_rhat_population == np.inf
    assert any("undefined" in text and "g: beta[1,d]" in text for text in found.warnings)


def test_the_chains_state_is_let_go_before_the_result_is_made(tiny, monkeypatch):
    """With 200,000 examinees it is 50 MiB beside the peak of a period."""
    seen = []

    class Watched(Sampler):
        def sampled(self) -> period_module.Sampled:
            seen.append(weakref.ref(self.state))
            return super().sampled()

    make = period_module._result
    alive = []

    def result(*arguments):
        alive.extend(ref() is not None for ref in seen)
        return make(*arguments)

    monkeypatch.setattr(period_module, "Sampler", Watched)
    monkeypatch.setattr(period_module, "_result", result)
    calibrate_period(tiny, spec_for(tiny), seed=1)
    assert alive == [False]
