"""A prolonged warm-up learns anew; averages of abilities count every sampled sweep alike."""

import tracemalloc

import numpy as np
import pytest
from programme import simulate_period

from concal.bank.building.progress import Clock
from concal.calibration import sampler as engine
from concal.calibration.diagnostics import diagnose
from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.moments import take_apart
from concal.calibration.sampler import Sampler
from concal.calibration.targets import began_outside
from concal.calibration.trace import Trace
from concal.spec import CalibrationSpec


@pytest.fixture
def small():
    groups = [("g", "one", ("2pl", None), 8, 4), ("h", "two", ("2pl", None), 8, 4)]
    return lay_out(simulate_period(groups, 40, seed=2)[0])


def test_chains_that_had_not_met_learn_anew(small, monkeypatch):
    """What the carried moves propose from was learned while the chains disagreed: it must not stay."""
    monkeypatch.setattr(engine, "WARMUP", 80)
    spec = CalibrationSpec(draws=100, max_sweeps=100_000)
    run = Sampler(small, spec, 1, 1)
    adapted, moves = [], run.moves.run

    def watched(state, *, adapting, moments=None):
        moves(state, adapting=adapting, moments=moments)
        adapted.append(adapting)

    look, looks = run.trace.look, []

    def not_at_first(spec, threads):
        looks.append(run.state.sweep)
        found = look(spec, threads)
        return found._replace(max_rhat=2.0, converged=False) if len(looks) == 1 else found._replace(converged=True)

    run.trace.next_check = 4 * run.warmup_end
    monkeypatch.setattr(run.moves, "run", watched)
    monkeypatch.setattr(run.trace, "look", not_at_first)
    run.run()
    run.close()
    prolonged = adapted[looks[0] :]
    assert sum(prolonged) >= 80, "as long as a warm-up, not one sweep"
    references = (*run.moves.sigma.references.values(), *run.moves.beta.references, run.moves.correlation.reference)
    for reference in references:
        assert len(reference.history) <= sum(prolonged), "nothing of the time before is left"


def slow_chains(seed, n=400, phi=0.98):
    """AR(1) with variance one, begun in it: (chain, draw, parameter)."""
    rng = np.random.default_rng(seed)
    x = [rng.standard_normal((LANES, 3))]
    for _ in range(n - 1):
        x.append(phi * x[-1] + np.sqrt(1 - phi**2) * rng.standard_normal((LANES, 3)))
    return np.stack(x, axis=1)


def test_a_chain_that_began_outside_is_seen_when_it_is_back():
    draws = slow_chains(1, phi=0.5)
    draws[5, :150, 1] += 60.0
    assert not began_outside(draws[:, :100]), "where the chains are is not known before they meet"
    assert began_outside(draws)
    assert diagnose(draws, kinds=("rhat",)).rhat.max() < engine.FAR_APART, "ranks do not tell how far"


@pytest.mark.parametrize("seed", range(20))
def test_slow_chains_did_not_begin_outside(seed):
    draws = slow_chains(seed)
    assert not any(began_outside(draws[:, :n]) for n in (25, 50, 100, 400))


def test_what_a_chain_did_on_its_way_is_not_averaged(small):
    """One chain is put far away after the warm-up, where slopes vanish: it takes long to come back."""
    run = Sampler(small, CalibrationSpec(draws=100, max_sweeps=6000), 1, 1)
    while run.state.sweep < run.warmup_end:
        run.sweep()
        run._keep()
    far = run.state.groups[0]
    far.beta[:, 1, -1], far.xi[:, 1, -1] = -6.0, -6.0
    far.beta[0, 0, -1], far.xi[:, 0, -1] = 300.0, 300.0
    start = run.warmup_end
    run.run()
    run.close()
    assert run.warmup_end > start
    d = take_apart(run.trace.averages.sums[0].sum(axis=2) / run.trace.averages.count, 2).mean
    assert np.abs(d).max() < 20.0


def test_abilities_are_averaged_over_every_sampled_sweep(small):
    run = Sampler(small, CalibrationSpec(draws=100), 1, 1)
    trace, rng = Trace(small, CalibrationSpec(draws=100, chains=2)), np.random.default_rng(1)
    total = np.zeros((small.n_persons, 2))
    for sweep in range(5 * 2 * trace.per_chain):  # thinned twice
        run.state.theta[:] = rng.standard_normal((1, 1, LANES)) + 0.01 * sweep
        total += run.state.theta[:, :, :2].sum(axis=2, dtype=float)
        trace.record(run.state, run.moves.units)
    run.close()
    assert trace.thin > 2
    np.testing.assert_allclose(trace.ability_total / trace.ability_count, total / (2 * trace.sweeps), rtol=1e-9)


def test_thinning_keeps_every_second_draw_without_a_copy_of_them(small):
    trace = Trace(small, CalibrationSpec(draws=1000))
    room = 2 * trace.per_chain
    for store in trace.xi:
        store[:] = np.arange(1, room + 1)[:, None, None, None]
    trace.kept = room
    tracemalloc.start()
    try:
        trace._halve()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (trace.kept, trace.thin) == (room // 2, 2)
    for store in trace.xi:
        np.testing.assert_array_equal(store[: trace.kept, 0, 0, 0], np.arange(2, room + 1, 2))
    assert peak < max(store.nbytes for store in trace.xi) / 10


def test_only_the_results_draws_stay_in_memory(small):
    trace = Trace(small, CalibrationSpec(draws=240, chains=4))
    room = 2 * trace.per_chain
    trace.kept = room - 7
    for store in trace.xi:
        store[:] = np.arange(room)[:, None, None, None]
    trace.draws["mu"] = np.arange(room)[:, None] + np.zeros(4)
    chosen, before = trace.selection(), [store.nbytes for store in trace.xi]
    trace.shrink()
    assert [store.nbytes for store in trace.xi] == [size * trace.wanted // room for size in before]
    np.testing.assert_array_equal(trace.final("mu")[0], chosen)
    for k in range(len(small.groups)):
        np.testing.assert_array_equal(trace.take_xi(k)[0, :, 0, 0], chosen)


@pytest.mark.parametrize(
    ("forecast", "in_vain"), [((3000, 4000), False), ((9000, 20000), False), ((47000, 52000), True)]
)
def test_a_limit_that_comes_first_is_told_while_there_is_time(small, monkeypatch, forecast, in_vain):
    run = Sampler(small, CalibrationSpec(max_sweeps=10_000), 1, 1)
    run.close()
    run.state.sweep, run.seconds = 1000, 100.0
    monkeypatch.setattr(run.trace.forecast, "range", lambda next_look: forecast)
    told = run._progress(0.0)
    assert told.needs == (run.warmup_end + forecast[0] if in_vain else None)
    lines = []
    Clock(lambda stage, share, message: lines.append(message)).sampling("calibrate", told)
    assert ("the limit of sweeps comes first: the targets need some 48,000" in lines[0]) == in_vain
    assert told.expected_sweeps == min(run.warmup_end + forecast[1], 10_000)
    low, high = told.remaining
    assert high <= 900.0, "there is nothing to wait for beyond the limit"
    assert low <= high
