r"""Simulation-based calibration of the engine: what was simulated must look like one of the posterior draws.

Usage: python benchmarks/sbc.py [MODEL ...] [--datasets 200] [--processes 2] [--seed 1] [--out FOLDER] [--quick]

For every response model, data sets are drawn from the engine's own prior: beta around the model's typical item, Sigma
from the half-t(2) mixture of inverse Wisharts, R uniform, theta ~ N(0, R), responses. The simulated values are then
exactly one draw from the posterior of their data set, and their rank among the engine's draws is uniform.

Comparing with draws of a whole run would need each to be independent of the others; with few items some variances mix
slowly, and autocorrelated draws distort the histogram of a sampler that is right. So draws are made the way Besag and
Clifford proposed for tests: from the simulated values go K sweeps *backwards* (all steps of a sweep in reverse order)
and from there, independently, K sweeps forward for each of 32 draws (8 chains side by side, 4 times). The simulated
values and the 32 draws are then exchangeable if the steps leave the posterior unchanged, so ranks are uniform on 0..32
however slowly a parameter mixes. What steps learn in warm-up is learned in a run of the engine from its
own start and then frozen, as always.

The prior is the engine's (`concal.calibration.priors`) with its scales made narrow (tau, half-t scales and spread of
means of populations below); otherwise many data sets would consist of items that everybody answers the same way.
Nothing is rejected, and no coordinate is held (`ResponseModel.held` is an answer to data that leave one open; a narrow
prior leaves none open).
Probabilities and scores are written out here again, so that the engine is not compared with itself.

Besides the six formats: `pooled`, three populations of which each meets two thirds of the items; `person_groups`, three
groups of examinees who meet all items, in two dimensions; `guided`, items with priors on another metric beside a group
with a population of its own. The link of a guided period has a flat prior, so one item (`anchor`) is observed from
outside: y = 0 for d and log a, with the SDs `ANCHOR`. The posterior of link and anchor given that observation alone is
proper and known: with (m, S) the anchor's prior on the bank's metric, d ~ N(0, SD^2), log a ~ N(SD^2, SD^2) (the
density of the link carries A = a e^{-log a_bank}), its image there ~ N(m - S e_2, S); the link follows from the two.

Checks: chi-square over the rank histogram; the largest distance of the ranks' distribution function from the
diagonal (Kolmogorov-Smirnov on ranks smoothed by uniform noise within their step); both corrected for the number of
quantities; and, by kind of quantity, t-tests over data sets of the mean (bias) and mean square (spread) of normal
scores, which are more sensitive to posteriors that are off centre or too narrow. Exit code 1 when a check fails.

Fixed beforehand, for the mean z^2 of ordered_beta's d, which was odd in several runs (.84, p = .002): one run of 1,000
new data sets, ``sbc.py ordered_beta --datasets 1000 --seed 16``, and nothing else. It is odd if the t-test of d's mean
z^2 against 1 has p < .01 (one quantity named beforehand: no correction); otherwise what was seen is put down to chance.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
from scipy import special, stats

from concal.calibration import priors
from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.matrices import by_lane, inverse, lanes_last
from concal.calibration.moves.correlation import walk_correlation
from concal.calibration.moves.expansion import _draw_log_scale, _draw_shift, _move
from concal.calibration.moves.link import draw_links, prior_mean
from concal.calibration.moves.population import draw_beta, draw_mean, draw_sigma, draw_spread
from concal.calibration.moves.strata import draw_mixing
from concal.calibration.moves.units import accumulators
from concal.calibration.sampler import Sampler
from concal.calibration.state import State
from concal.calibration.sweep import NEWTON_START
from concal.data.period import GroupData, Guide, PeriodData
from concal.response import PopulationPrior, ResponseModel, make_model, model_class
from concal.spec import CalibrationSpec

TAU = 1.0
SCALES = (0.5, 0.3, 0.3)  # half-t scales of d, log a, every further coordinate
MEANS = 0.5  # SD of the means of further populations
ANCHOR = (0.3, 0.2)  # SDs of the outside observation of the anchor's d and log a
GUIDE = 0.3  # SD of guided items' priors
CATEGORIES = 4
ITEMS, PERSONS, PER_PERSON = 24, 120, 12
LEARNING = 90  # sweeps of warm-up the frozen moves learn from
K, REPEATS = 30, 4  # sweeps back and forth; times 8 chains: draws per data set
TRACKED_ITEMS = 3
LARGEST_LOGIT = 700.0  # of a positive double
ENDPOINT = 1e4  # what ordered_beta's kernels read for a score of 1
ALPHA = 0.005  # chance of a false alarm, per model and check


class Setting(NamedTuple):
    """One simulated period: (model, dimension) of each group, how many populations, which items each of them meets.

    `guided` names the groups with priors of their own; the first of them is the anchor, a group of one item.
    """

    groups: tuple[tuple[str, str], ...]
    populations: int = 1
    apart: bool = False
    guided: tuple[int, ...] = ()

    def n_items(self, k: int) -> int:
        """Items of group k."""
        share = ITEMS // (len(self.groups) - bool(self.guided))
        return 1 if k in self.guided[:1] else share


SETTINGS = {
    "2pl": Setting((("2pl", "first"), ("2pl", "second"))),  # two dimensions: their correlation is checked too
    "gpcm": Setting((("gpcm", "first"),)),
    "ordered_beta": Setting((("ordered_beta", "first"),)),
    "grm": Setting((("grm", "first"),)),
    "3pl": Setting((("3pl", "first"),)),
    "beta": Setting((("beta", "first"),)),
    "mixed": Setting((("2pl", "first"), ("gpcm", "first"), ("ordered_beta", "second"))),
    "pooled": Setting((("2pl", "first"), ("gpcm", "first")), populations=3, apart=True),
    "person_groups": Setting((("2pl", "first"), ("2pl", "second")), populations=3),
    "guided": Setting((("2pl", "first"), ("2pl", "first"), ("gpcm", "first")), guided=(0, 1)),
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


# --- the engine's side --------------------------------------------------------------------------------------------


def narrowed(name: str, anchor: bool = False) -> ResponseModel:
    """The response model with the narrow prior, scores as kernels read."""
    cls = model_class(name)
    original = make_model(name, CATEGORIES if cls.polytomous else None)
    centre = original.prior.mean

    class Narrowed(cls):  # type: ignore[valid-type,misc]
        prior = property(lambda self: PopulationPrior(centre, tuple(prior_scales(len(centre)))))

        def encode_score(self, score: np.ndarray) -> np.ndarray:
            return score

        def held(self, score: np.ndarray, n_items: int) -> dict[str, tuple[float, float]]:
            return {"d": (0.0, ANCHOR[0]), "log_a": (0.0, ANCHOR[1])} if anchor else {}

    made: ResponseModel = Narrowed(CATEGORIES) if cls.polytomous else Narrowed()
    return made


class Truth(NamedTuple):
    """What was simulated.

    Per group (xi, beta, Sigma, mixing scales), abilities (persons, D), mu (populations, D), R (populations, D, D), and
    the link (log A, B) of the first dimension.
    """

    groups: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    theta: np.ndarray
    mu: np.ndarray
    R: np.ndarray
    link: np.ndarray


def simulate_data(setting: Setting, seed: int) -> tuple[PeriodData, Truth]:
    """One data set that a file can hold, and what is behind it.

    The prior's tails give beta scores that no double between 0 and 1 can hold. Such data sets are drawn again: given
    any set of data the simulated values are still one draw from the posterior.
    """
    own = zlib.crc32(repr(setting).encode())  # settings that shared random numbers would err together
    for attempt in range(10_000):
        data, truth = _simulate(setting, np.random.default_rng([seed, own, attempt]))
        inside = [g.score[np.abs(g.score) != ENDPOINT] for g in data.groups.values() if "beta" in g.name]
        if all(np.abs(z).max(initial=0.0) < LARGEST_LOGIT for z in inside):
            return data, truth
    raise RuntimeError("no data set with scores that a double can hold")


def draw_guide(n: int, p: int, rng: np.random.Generator) -> Guide:
    """Priors of n items on the bank's metric."""
    half = np.eye(p) + 0.3 * np.tril(rng.standard_normal((n, p, p)), -1)
    spread = GUIDE * np.array([1.0, *(0.5,) * (p - 1)])[:, None]
    root = spread * half
    return Guide(0.4 * rng.standard_normal((n, p)), root @ np.swapaxes(root, 1, 2))


def draw_anchor(guide: Guide, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The anchor's xi (1, p) on the period's metric and the link (log A, B), given its outside observation of 0."""
    m, S = guide.mean[0], guide.covariance[0]
    image = rng.multivariate_normal(m - S[:, 1], S)
    d, log_a = ANCHOR[0] * rng.standard_normal(), ANCHOR[1] ** 2 + ANCHOR[1] * rng.standard_normal()
    log_A = log_a - image[1]
    xi = image.copy()
    xi[:2] = d, log_a
    return xi[None], np.array([log_A, image[0] - np.exp(log_A) * d])


def own_metric(image: np.ndarray, link: np.ndarray) -> np.ndarray:
    """Items of the bank's metric on the period's."""
    xi = image.copy()
    xi[:, 0], xi[:, 1] = (image[:, 0] - link[1]) / np.exp(link[0]), image[:, 1] + link[0]
    return xi


def draw_items(
    setting: Setting, k: int, X: np.ndarray, typical: PopulationPrior, link: np.ndarray, rng: np.random.Generator
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Guide | None, np.ndarray]:
    """Items and population of group k from the prior, their guide if they have one, and the link."""
    p = len(typical.mean)
    beta = priors.BetaPrior.of(typical, TAU).draw(X.shape[1], rng)
    sigma, mixing = priors.draw_sigma(np.array(typical.sd), rng)
    guide = draw_guide(len(X), p, rng) if k in setting.guided else None
    if guide is None:
        xi = X @ beta + rng.standard_normal((len(X), p)) @ np.linalg.cholesky(sigma).T
    elif k == setting.guided[0]:
        xi, link = draw_anchor(guide, rng)
    else:
        drawn = [rng.multivariate_normal(m, S) for m, S in zip(guide.mean, guide.covariance, strict=True)]
        xi = own_metric(np.array(drawn), link)
    return (xi, beta, sigma, mixing), guide, link


def meet(setting: Setting, population: np.ndarray, n_items: int, each: int, rng: np.random.Generator) -> np.ndarray:
    """Which items every examinee meets, (persons, each): of all, or of those their population has."""
    order = rng.random((len(population), n_items))
    if setting.apart:
        order[(np.arange(n_items)[None, :] - population[:, None]) % setting.populations == 0] += 1.0
    return np.argsort(order, axis=1)[:, :each]


def _simulate(setting: Setting, rng: np.random.Generator) -> tuple[PeriodData, Truth]:
    dimensions = tuple(dict.fromkeys(d for _, d in setting.groups))
    D, M = len(dimensions), setting.populations
    population = (np.arange(PERSONS) % M).astype(np.int32)
    further = [priors.draw_population(D, rng) for _ in range(1, M)]
    mu = np.array([np.zeros(D), *(mean for mean, _ in further)])
    R = np.array([priors.draw_correlation(D, rng), *(spread for _, spread in further)])
    noise = rng.standard_normal((PERSONS, D, 1))
    theta = mu[population] + (np.linalg.cholesky(R)[population] @ noise)[:, :, 0]
    groups, truth, link = {}, [], np.zeros(2)
    for k, (name, dimension) in enumerate(setting.groups):
        n_items = setting.n_items(k)
        feature = stats.norm.ppf((np.arange(n_items) + 0.5) / n_items)
        ones = np.ones(n_items)
        X = np.column_stack([ones, feature / feature.std()] if n_items > 1 else [ones])  # already standardised
        model = narrowed(name, anchor=k in setting.guided[:1])
        values, guide, link = draw_items(setting, k, X, model.prior, link, rng)
        each = min(PER_PERSON // (len(setting.groups) - bool(setting.guided)), n_items)
        item = meet(setting, population, n_items, each, rng).ravel().astype(np.int32)
        person = np.repeat(np.arange(PERSONS, dtype=np.int32), each)
        ability = theta[person, dimensions.index(dimension)]
        score = simulate_scores(name, ability, values[0][item], rng)
        group = f"{name}-{k}"
        ids = tuple(f"{group}-{j}" for j in range(n_items))
        features = ("1", "x")[: X.shape[1]]
        groups[group] = GroupData(group, dimension, model, ids, features, X, person, item, score, guide=guide)
        truth.append(values)
    ids = pl.Series("person_id", [f"p{i}" for i in range(PERSONS)])
    data = PeriodData("sbc", dimensions, ids, groups, tuple(f"population {m}" for m in range(M)), population)
    return data, Truth(truth, theta, mu, R, link)


def put_truth(sampler: Sampler, truth: Truth) -> None:
    """Every chain to the simulated values."""
    state = sampler.state
    state.theta[:] = truth.theta[:, :, None]
    state.mu[:], state.R[:], state.link[0] = truth.mu[..., None], truth.R[..., None], truth.link[:, None]
    for g, s, (xi, beta, sigma, mixing) in zip(sampler.layout.groups, state.groups, truth.groups, strict=True):
        s.xi[:] = xi[:, :, None]
        s.beta[:] = beta[:, :, None]
        s.mean[:] = (g.design.X @ beta)[:, :, None] if g.guide is None else prior_mean(g, state.link[g.dim])
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
    sums = steps.sums(state)
    for m in reversed(range(1, len(layout.populations))):
        draw_mean(layout, state, sums, m, rng)
        draw_spread(layout, state, sums, m, rng)
    if D > 1:
        R = walk_correlation(by_lane(state.R[0]), by_lane(sums.second[0]), int(layout.population_sizes[0]), rng)
        state.R[0] = lanes_last(R)
    steps.persons(state)
    for k, (g, s) in enumerate(zip(layout.groups, state.groups, strict=True)):
        acc = accumulators(g, g.n_items)
        steps.likelihood.accumulate(state, k, s.xi, s.par, steps.jacobians({k: s.xi})[k], acc, 0, g.n_items)
        steps.item_ll[k] = np.ascontiguousarray(acc[:, 0])
    sampler.moves.beta.move(state, steps, sampler.moves.sigma.sketches, tau, rng, adapting=False)
    sampler.moves.sigma.move(state, steps, rng, adapting=False, backwards=True)
    draw_links(layout, state, rng)
    for k, (g, s) in enumerate(zip(layout.groups, state.groups, strict=True)):
        if g.guide is not None:
            continue  # its population only describes the items
        draw_mixing(layout.families[k], [s], rng)
        draw_sigma(g, s, rng)
        draw_beta(g, s, tau, rng)
    for dim in reversed(range(D)):
        for scaling in (True, False):
            sums, P = steps.sums(state), inverse(state.R[0])
            scale, shift = np.ones((D, LANES)), np.zeros((D, LANES))
            if scaling:
                scale[dim] = np.exp(_draw_log_scale(layout, state, dim, P, sums.second[0], tau, rng))
            else:
                shift[dim] = _draw_shift(layout, state, dim, P, sums.first[0], tau, rng)
            _move(layout, state, dim, shift[dim], scale[dim])
            steps.rescale(state, scale, shift)
    steps.refresh(state)
    steps.items(state)
    steps.refresh(state)


def broadcast_first_chain(state: State) -> State:
    """A copy in which every chain stands where the first one does."""
    new = copy.deepcopy(state)
    new.theta[:] = new.theta[:, :, :1].copy()
    for values in (new.mu, new.R, new.link):
        values[:] = values[..., :1].copy()
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

    for k, ((name, _), s) in enumerate(zip(setting.groups, state.groups, strict=True)):
        parameters = narrowed(name).parameters
        for c, parameter in enumerate(parameters):
            for at in sorted({j * (len(s.xi) - 1) // (TRACKED_ITEMS - 1) for j in range(TRACKED_ITEMS)}):
                add(f"{parameter if c < 2 else 'extras'}|{name} {parameter}[{at}]", s.xi[at, c])
            if k in setting.guided:
                continue
            for f in range(2):
                add(f"beta|{name} beta[{f},{parameter}]", s.beta[f, c])
            for e in range(c + 1):
                add(f"Sigma|{name} Sigma[{parameter},{parameters[e]}]", s.sigma[c, e])
    if state.theta.shape[1] > 1:
        add("correlation|correlation", state.R[0, 0, 1])
    for m in range(1, setting.populations):
        for d in range(state.mu.shape[1]):
            add(f"mu|mu[{m},{d}]", state.mu[m, d])
            for e in range(d + 1):
                add(f"R|R[{m},{d},{e}]", state.R[m, d, e])
    if setting.guided:
        add("link|log A", state.link[0, 0])
        add("link|B", state.link[0, 1])
    for i in range(TRACKED_ITEMS):
        add(f"theta|theta[{i}]", state.theta[i, 0].astype(float))
    return names, np.array(values)


def one_rank(task: tuple[str, int]) -> tuple[list[str], list[int]]:
    """Simulate, learn, go back and forth, rank."""
    name, seed = task
    setting = SETTINGS[name]
    priors.MU_VARIANCE = MEANS**2
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
