r"""Simulation-based calibration of the engine: what was simulated must look like one of the posterior draws.

Usage: python benchmarks/sbc.py [MODEL ...] [--datasets 200] [--processes 2] [--seed 1] [--out FOLDER] [--quick]

For every response model, data sets are drawn from the engine's own prior: beta ~ N(0, I / tau), Sigma from the
half-t(2) mixture of inverse Wisharts, R uniform, theta ~ N(0, R), responses. The simulated values are then exactly one
draw from the posterior of their data set, and their rank among the engine's draws is uniform.

Comparing with draws of a whole run would need each to be independent of the others; with few items some variances mix
slowly, and autocorrelated draws distort the histogram of a sampler that is right. So draws are made the way Besag and
Clifford proposed for tests: from the simulated values go K sweeps *backwards* (all steps of a sweep in reverse order)
and from there, independently, K sweeps forward for each of 32 draws (8 chains side by side, 4 times). The simulated
values and the 32 draws are then exchangeable if the steps leave the posterior unchanged, so ranks are uniform on 0..32
however slowly a parameter mixes. What steps learn in warm-up is learned in a run of the engine from its
own start and then frozen, as always.

The prior is the engine's with its documented scales made narrow (tau = 4, half-t scales below), and coordinates are
counted from the model's prior centre, which engine and simulation add alike; otherwise many data sets would consist
of items that everybody answers the same way. Nothing is rejected. Priors, probabilities and random draws are written
out here again, with SciPy's inverse Wishart, so that the engine is not compared with itself.

Checks: chi-square over the rank histogram; the largest distance of the ranks' distribution function from the
diagonal (Kolmogorov-Smirnov on ranks smoothed by uniform noise within their step); both corrected for the number of
quantities; and, by kind of quantity, t-tests over data sets of the mean (bias) and mean square (spread) of normal
scores, which are more sensitive to posteriors that are off centre or too narrow. Exit code 1 when a check fails.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
from scipy import special, stats

from concal.calibrate.kernels import LANES
from concal.calibrate.layout import lay_out
from concal.calibrate.matrices import inverse
from concal.calibrate.moves.expansion import _draw_log_scale, _draw_shift, _move
from concal.calibrate.moves.population import NU, draw_abilities, draw_beta, draw_sigma
from concal.calibrate.moves.units import accumulators
from concal.calibrate.sampler import Sampler
from concal.calibrate.state import State
from concal.calibrate.sweep import NEWTON_START
from concal.data.period import GroupData, PeriodData
from concal.response import PopulationPrior, ResponseModel, make_model, model_class
from concal.spec import CalibrationSpec

TAU = 4.0
SCALES = (0.5, 0.3, 0.3)  # half-t scales of d, log a, every further coordinate
CATEGORIES = 4
ITEMS, PERSONS, PER_PERSON = 24, 120, 12
LEARNING = 90  # sweeps of warm-up the frozen moves learn from
K, REPEATS = 30, 4  # sweeps back and forth; times 8 chains: draws per data set
TRACKED_ITEMS = 3
LARGEST_LOGIT = 700.0  # of a positive double
ENDPOINT = 1e4  # what ordered_beta's kernels read for a score of 1
ALPHA = 0.005  # chance of a false alarm, per model and check


class Setting(NamedTuple):
    """Groups of one simulated period: (model, dimension) each."""

    groups: tuple[tuple[str, str], ...]


SETTINGS = {
    "2pl": Setting((("2pl", "first"), ("2pl", "second"))),  # two dimensions: their correlation is checked too
    "gpcm": Setting((("gpcm", "first"),)),
    "ordered_beta": Setting((("ordered_beta", "first"),)),
    "grm": Setting((("grm", "first"),)),
    "3pl": Setting((("3pl", "first"),)),
    "beta": Setting((("beta", "first"),)),
    "mixed": Setting((("2pl", "first"), ("gpcm", "first"), ("ordered_beta", "second"))),
}


# --- the simulation, written independently of the engine ----------------------------------------------------------


def natural(name: str, xi: np.ndarray) -> tuple[np.ndarray, ...]:
    """The extras as the simulators use them, by the table of the method."""
    extras = xi[:, 2:]
    if name == "gpcm":
        return (np.column_stack([extras, -extras.sum(axis=1)]),)
    if name == "grm":
        c = np.concatenate([np.zeros((len(xi), 1)), np.cumsum(np.exp(extras), axis=1)], axis=1)
        return (c - c.mean(axis=1, keepdims=True),)
    if name == "ordered_beta":
        return np.exp(extras[:, 0]), extras[:, 1], extras[:, 1] + np.exp(extras[:, 2])
    return tuple(extras.T)


def log_gamma_draw(shape: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Logarithm of a Gamma(shape) draw, exact for tiny shapes."""
    return np.log(rng.standard_gamma(shape + 1.0)) + np.log(rng.random(shape.shape)) / shape


def beta_logit(eta: np.ndarray, phi: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Logit of a Beta(mu phi, (1 - mu) phi) draw: what the kernels read, without rounding near 0 and 1."""
    p, q = special.expit(eta) * phi, special.expit(-eta) * phi
    return log_gamma_draw(np.maximum(p, 1e-9), rng) - log_gamma_draw(np.maximum(q, 1e-9), rng)


def simulate_scores(name: str, theta: np.ndarray, xi: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Scores as the kernels read them (logits for the beta family), for abilities (n,) and items (n, p)."""
    eta = np.exp(xi[:, 1]) * (theta - xi[:, 0])
    u = rng.random(len(theta))
    extras = natural(name, xi)
    if name == "2pl":
        return (u < special.expit(eta)).astype(float)
    if name == "3pl":
        c = special.expit(extras[0])
        return (u < c + (1.0 - c) * special.expit(eta)).astype(float)
    if name == "gpcm":
        steps = eta[:, None] - extras[0]
        logits = np.concatenate([np.zeros((len(theta), 1)), np.cumsum(steps, axis=1)], axis=1)
        below = np.cumsum(special.softmax(logits, axis=1), axis=1)[:, :-1]
        return (u[:, None] > below).sum(axis=1).astype(float)
    if name == "grm":
        return (u[:, None] < special.expit(eta[:, None] - extras[0])).sum(axis=1).astype(float)
    if name == "beta":
        return beta_logit(eta, np.exp(extras[0]), rng)
    phi, k_0, k_1 = extras
    inside = beta_logit(eta, phi, rng)
    at_one, at_zero = u < special.expit(eta - k_1), u >= special.expit(eta - k_0)
    return np.where(at_one, ENDPOINT, np.where(at_zero, -ENDPOINT, inside))


def prior_scales(p: int) -> np.ndarray:
    """Half-t scales A_k of a model with p coordinates."""
    return np.array([*SCALES[:2], *(SCALES[2],) * (p - 2)])


def draw_population(k: int, p: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Beta (k, p), Sigma (p, p) and its half-t mixing scales (p,) from the prior."""
    beta = rng.standard_normal((k, p)) / np.sqrt(TAU)
    inverse_a = rng.gamma(0.5, prior_scales(p) ** 2)  # 1/a_k ~ Gamma(1/2, scale A_k^2), nu = 2
    sigma = stats.invwishart.rvs(df=2 + p - 1, scale=4.0 * np.diag(inverse_a), random_state=rng)
    return beta, np.atleast_2d(sigma), 1.0 / inverse_a


# --- the engine's side --------------------------------------------------------------------------------------------


def narrowed(name: str) -> ResponseModel:
    """The response model with the narrow prior, coordinates counted from its prior's centre, scores as kernels read."""
    cls = model_class(name)
    original = make_model(name, CATEGORIES if cls.polytomous else None)
    centre = np.array(original.prior.mean)
    zero = (0.0,) * centre.size

    class Narrowed(cls):  # type: ignore[valid-type,misc]
        prior = property(lambda self: PopulationPrior(zero, tuple(prior_scales(centre.size))))

        def encode_score(self, score: np.ndarray) -> np.ndarray:
            return score

        def kernel_parameters(self, xi: np.ndarray) -> np.ndarray:
            return super().kernel_parameters(xi + centre)

        def extras_jacobian(self, xi: np.ndarray) -> np.ndarray:
            return super().extras_jacobian(xi + centre)

    made: ResponseModel = Narrowed(CATEGORIES) if cls.polytomous else Narrowed()
    return made


class Truth(NamedTuple):
    """What was simulated: per group (xi, beta, Sigma, mixing scales), abilities (persons, D), R (D, D)."""

    groups: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    theta: np.ndarray
    R: np.ndarray


def simulate_data(setting: Setting, seed: int) -> tuple[PeriodData, Truth]:
    """One data set that a file can hold, and what is behind it.

    The prior's tails give beta scores that no double between 0 and 1 can hold. Such data sets are drawn again: given
    any set of data the simulated values are still one draw from the posterior.
    """
    for attempt in range(10_000):
        data, truth = _simulate(setting, np.random.default_rng([seed, 20261, attempt]))
        inside = [g.score[np.abs(g.score) != ENDPOINT] for g in data.groups.values() if "beta" in g.name]
        if all(np.abs(z).max(initial=0.0) < LARGEST_LOGIT for z in inside):
            return data, truth
    raise RuntimeError("no data set with scores that a double can hold")


def _simulate(setting: Setting, rng: np.random.Generator) -> tuple[PeriodData, Truth]:
    dimensions = tuple(dict.fromkeys(d for _, d in setting.groups))
    rho = rng.uniform(-1.0, 1.0) if len(dimensions) > 1 else 0.0
    theta = rng.standard_normal((PERSONS, len(dimensions)))
    if len(dimensions) > 1:
        theta[:, 1] = rho * theta[:, 0] + np.sqrt(1.0 - rho**2) * theta[:, 1]
    groups, truth = {}, []
    n_items, per_person = ITEMS // len(setting.groups), PER_PERSON // len(setting.groups)
    feature = stats.norm.ppf((np.arange(n_items) + 0.5) / n_items)
    X = np.column_stack([np.ones(n_items), feature / feature.std()])  # already standardised
    for k, (name, dimension) in enumerate(setting.groups):
        model = narrowed(name)
        centre = np.array(make_model(name, getattr(model, "categories", None)).prior.mean)
        beta, sigma, mixing = draw_population(2, centre.size, rng)
        noise = rng.standard_normal((n_items, centre.size)) @ np.linalg.cholesky(sigma).T
        xi = X @ beta + noise
        item = np.argsort(rng.random((PERSONS, n_items)), axis=1)[:, :per_person].ravel().astype(np.int32)
        person = np.repeat(np.arange(PERSONS, dtype=np.int32), per_person)
        ability = theta[person, dimensions.index(dimension)]
        score = simulate_scores(name, ability, (xi + centre)[item], rng)
        group = f"{name}-{k}"
        ids = tuple(f"{group}-{j}" for j in range(n_items))
        groups[group] = GroupData(group, dimension, model, ids, ("1", "x"), X, person, item, score)
        truth.append((xi, beta, sigma, mixing))
    ids = pl.Series("person_id", [f"p{i}" for i in range(PERSONS)])
    data = PeriodData("sbc", dimensions, ids, groups, ("sbc",), np.zeros(PERSONS, np.int32))
    R = np.array([[1.0, rho], [rho, 1.0]])[: len(dimensions), : len(dimensions)]
    return data, Truth(truth, theta, R)


def put_truth(sampler: Sampler, truth: Truth) -> None:
    """Every chain to the simulated values."""
    state = sampler.state
    state.theta[:] = truth.theta[:, :, None]
    state.R[0] = truth.R[:, :, None]
    for g, s, (xi, beta, sigma, mixing) in zip(sampler.layout.groups, state.groups, truth.groups, strict=True):
        s.xi[:] = xi[:, :, None]
        s.beta[:] = beta[:, :, None]
        s.mean[:] = (g.design.X @ beta)[:, :, None]
        s.sigma[:], s.sd_mixing[:] = sigma[:, :, None], mixing[:, None]
    sampler.moves.units.refresh(state)


def backward_sweep(sampler: Sampler, rng: np.random.Generator) -> None:
    """The steps of `Sampler.sweep` in reverse order; each of them is reversible."""
    state, steps, layout = sampler.state, sampler.moves.units, sampler.layout
    D, tau = layout.D, sampler.spec.tau
    state.sweep += 1
    acc = np.zeros((layout.n_persons, 1 + D + D * (D + 1) // 2, LANES))
    steps.person_pass(state, state.theta, acc, 0, layout.n_persons, 0)
    steps.person_ll = np.ascontiguousarray(acc[:, 0])
    sampler.moves.correlation.move(state, steps, rng, adapting=False)
    draw_abilities(layout, state, steps.sums(state), rng)
    steps.persons(state)
    for k, (g, s) in enumerate(zip(layout.groups, state.groups, strict=True)):
        acc = accumulators(g, g.n_items)
        steps.likelihood.accumulate(state, k, s.xi, s.par, steps.jacobians({k: s.xi})[k], acc, 0, g.n_items)
        steps.item_ll[k] = np.ascontiguousarray(acc[:, 0])
    sampler.moves.sigma.move(state, steps, rng, adapting=False)
    for g, s in zip(layout.groups, state.groups, strict=True):
        rate = NU * np.diagonal(inverse(s.sigma)).T + 1.0 / np.array(g.model.prior.sd)[:, None] ** 2
        s.sd_mixing = rate / rng.standard_gamma((NU + g.p) / 2.0, size=rate.shape)
        mixing = s.sd_mixing
        draw_sigma(g, s, rng)
        s.sd_mixing = mixing  # drawn before Sigma on the way back, not after
        draw_beta(g, s, tau, rng)
    for dim in reversed(range(D)):
        for scaling in (True, False):
            sums, P = steps.sums(state), inverse(state.R[0])
            scale, shift = np.ones((D, LANES)), np.zeros((D, LANES))
            n = float(layout.n_persons)
            if scaling:
                scale[dim] = np.exp(_draw_log_scale(layout, state, dim, n, P, sums.second[0], tau, rng))
            else:
                shift[dim] = _draw_shift(layout, state, dim, n, P, sums.first[0], tau, rng)
            _move(layout, state, dim, shift[dim], scale[dim])
            steps.rescale(state, scale, shift)
    steps.refresh(state)
    steps.items(state)
    steps.refresh(state)


def broadcast_first_chain(state: State) -> State:
    """A copy in which every chain stands where the first one does."""
    new = copy.deepcopy(state)
    new.theta[:] = new.theta[:, :, :1].copy()
    new.R[:] = new.R[..., :1].copy()
    for s in new.groups:
        for name in ("xi", "beta", "beta_mean", "sigma", "sd_mixing", "mean", "par"):
            values = getattr(s, name)
            values[:] = values[..., :1].copy()
    return new


def quantities(setting: Setting, state: State) -> tuple[list[str], np.ndarray]:
    """Names and values (quantities, LANES) of everything that is ranked."""
    names, values = [], []

    def add(label: str, value: np.ndarray) -> None:
        names.append(label)
        values.append(value)

    for (name, _), s in zip(setting.groups, state.groups, strict=True):
        parameters = narrowed(name).parameters
        for c, parameter in enumerate(parameters):
            for j in range(TRACKED_ITEMS):
                at = j * (len(s.xi) - 1) // (TRACKED_ITEMS - 1)
                add(f"{parameter if c < 2 else 'extras'}|{name} {parameter}[{at}]", s.xi[at, c])
            for f in range(2):
                add(f"beta|{name} beta[{f},{parameter}]", s.beta[f, c])
            for e in range(c + 1):
                add(f"Sigma|{name} Sigma[{parameter},{parameters[e]}]", s.sigma[c, e])
    if state.theta.shape[1] > 1:
        add("correlation|correlation", state.R[0, 0, 1])
    for i in range(TRACKED_ITEMS):
        add(f"theta|theta[{i}]", state.theta[i, 0].astype(float))
    return names, np.array(values)


def one_rank(task: tuple[str, int]) -> tuple[list[str], list[int]]:
    """Simulate, learn, go back and forth, rank."""
    name, seed = task
    setting = SETTINGS[name]
    data, truth = simulate_data(setting, seed)
    sampler = Sampler(lay_out(data), CalibrationSpec(tau=TAU), seed, 1)
    for _ in range(NEWTON_START + LEARNING):
        sampler.sweep()
    sampler.warmup_end = sampler.state.sweep  # nothing adapts from here on
    put_truth(sampler, truth)
    names, values = quantities(setting, sampler.state)
    simulated = values[:, :1].copy()
    rng = np.random.default_rng([seed, 20262])
    for _ in range(K):
        backward_sweep(sampler, rng)
    root = broadcast_first_chain(sampler.state)
    below = np.zeros(len(names), int)
    for _ in range(REPEATS):
        sweep = sampler.state.sweep  # counters go on: no random number is used twice
        sampler.state = copy.deepcopy(root)
        sampler.state.sweep = sweep
        for _ in range(K):
            sampler.sweep()
        below += (quantities(setting, sampler.state)[1] < simulated).sum(axis=1)
    sampler.close()
    return names, below.tolist()


# --- the checks ---------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """One line of the table."""

    kind: str
    quantities: int
    chi_square: float  # p-values, the smallest of the kind times their number
    envelope: float
    bias: float
    bias_p: float
    spread: float
    spread_p: float


def check_ranks(names: list[str], ranks: np.ndarray, seed: int = 1) -> list[Finding]:
    """Findings by kind of quantity; ranks are (data sets, quantities)."""
    n, total = ranks.shape
    largest = LANES * REPEATS
    kinds = np.array([name.split("|")[0] for name in names])
    rng = np.random.default_rng(seed)
    uniform = (ranks + rng.random(ranks.shape)) / (largest + 1)
    normal = stats.norm.ppf(uniform)
    bins = max(b for b in (33, 11, 3) if n >= 5 * b or b == 3)
    counts = np.stack([np.bincount((ranks[:, q] * bins) // (largest + 1), minlength=bins) for q in range(total)])
    chi_square = stats.chisquare(counts, axis=1).pvalue
    envelope = np.array([stats.kstest(uniform[:, q], "uniform").pvalue for q in range(total)])
    findings = []
    for kind in dict.fromkeys(kinds):
        own = kinds == kind
        mean, square = normal[:, own].mean(axis=1), (normal[:, own] ** 2).mean(axis=1)
        findings.append(
            Finding(
                kind,
                int(own.sum()),
                min(1.0, float(chi_square[own].min()) * total),
                min(1.0, float(envelope[own].min()) * total),
                float(mean.mean()),
                float(stats.ttest_1samp(mean, 0.0).pvalue),
                float(square.mean()),
                float(stats.ttest_1samp(square, 1.0).pvalue),
            )
        )
    return findings


def failures(findings: list[Finding]) -> list[str]:
    """What fails, in words; bias and spread are corrected for the number of kinds."""
    bad = []
    for f in findings:
        for check, p in (
            ("chi-square", f.chi_square),
            ("envelope", f.envelope),
            ("bias", f.bias_p * len(findings)),
            ("spread", f.spread_p * len(findings)),
        ):
            if p < ALPHA:
                bad.append(f"{f.kind}: {check} (corrected p = {p:.1e})")
    return bad


def show(name: str, findings: list[Finding], n: int, seconds: float) -> None:
    """Print one model's table."""
    print(f"\n{name}: {n} data sets, {seconds / n:.2f} s each")
    print("  kind         quantities  chi-square p  envelope p   mean z   (p)    mean z^2   (p)")
    for f in findings:
        print(
            f"  {f.kind:12s} {f.quantities:10d} {f.chi_square:13.3f} {f.envelope:11.3f}"
            f" {f.bias:+9.3f} ({f.bias_p:.3f}) {f.spread:8.3f} ({f.spread_p:.3f})",
            flush=True,
        )
    print("  chi-square and envelope: smallest p of the kind, corrected for all quantities of the model")


def run(name: str, datasets: int, processes: int, seed: int) -> tuple[list[str], np.ndarray, float]:
    """Names, ranks (data sets, quantities), wall seconds."""
    started = time.perf_counter()
    tasks = [(name, seed * 1_000_003 + k) for k in range(datasets)]
    if processes == 1:
        results: list[Any] = [one_rank(task) for task in tasks]
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            results = list(pool.map(one_rank, tasks, chunksize=1))
    return results[0][0], np.array([ranks for _, ranks in results]), time.perf_counter() - started


def main() -> int:
    """Run the chosen models; 1 when a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"any of {', '.join(SETTINGS)}; default all")
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for the ranks, one .npz per model")
    parser.add_argument("--quick", action="store_true", help="2pl alone, 15 data sets")
    given = parser.parse_args()
    if unknown := set(given.models) - set(SETTINGS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there is {', '.join(SETTINGS)}")
    models = ["2pl"] if given.quick else given.models or list(SETTINGS)
    datasets = 15 if given.quick else given.datasets
    print(f"load average {os.getloadavg()[0]:.1f}; {LANES * REPEATS} draws per data set, {LANES} chains side by side")
    bad = []
    for name in models:
        names, ranks, seconds = run(name, datasets, given.processes, given.seed)
        findings = check_ranks(names, ranks)
        show(name, findings, datasets, seconds)
        bad += [f"{name}: {line}" for line in failures(findings)]
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
            np.savez(given.out / f"{name}.npz", ranks=ranks, names=np.array(names))
    print("\n" + ("\n".join(["FAILED", *bad]) if bad else "every check passed"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
