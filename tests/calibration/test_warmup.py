"""A prolonged warm-up learns anew; averages of abilities count every sampled sweep alike."""

import tracemalloc

import numpy as np
import pytest
from programme import simulate_period

from concal.calibration import sampler as engine
from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.sampler import Sampler
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
