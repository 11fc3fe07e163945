r"""The engine against NumPyro's NUTS: the same model, the same data, one run; effective draws per CPU second.

Usage: python benchmarks/nuts.py [--items 100] [--persons 1000] [--per-person 20] [--model 2pl] [--draws 150] [--full]
                                 [--kind plain|pooled|guided]

`--full` is the size of record, 500 items x 5,000 examinees x 30 responses. NUTS runs in single precision, its faster
setting, with centred item parameters (items have hundreds of responses); one chain, two stretches of `--draws` draws
after `--warmup` iterations. The second stretch is timed: it compiles nothing. The engine runs 8 chains side by side;
its CPU time covers all of them and is shown without and with its warm-up.

The model is written in JAX independently of the engine, with the engine's priors:

.. math:: \beta \sim N(m e_0, I s^2/\tau), \quad
          p(\Sigma) \propto |\Sigma|^{-(\nu+2p)/2} \prod_k (\nu (\Sigma^{-1})_{kk} + 1/A_k^2)^{-(\nu+p)/2},
          \quad \nu = 2

(Huang and Wand: half-t(2, A_k) standard deviations, each correlation uniform), theta ~ N(0, 1). They are those of
`concal.calibration.priors`, which the tests compare with what is written here. `pooled`: three populations of people,
the second and third with mean and variance of their own, each meeting two thirds of the items. `guided`: the items have
priors on another metric and no population. The comparison of posteriors in the tests uses this file too.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import polars as pl
from jax.scipy.special import gammaln
from numpyro.infer import MCMC, NUTS, init_to_uniform

from concal.calibration.diagnostics import diagnose
from concal.calibration.period import calibrate_period
from concal.calibration.priors import MU_VARIANCE, NU
from concal.data.period import GroupData, Guide, PeriodData
from concal.response import PopulationPrior, make_model, model_class
from concal.spec import CalibrationSpec, Spec

CATEGORIES = 4
POPULATIONS = 3  # of a pooled fit
LINK = (0.2, -0.4)  # log A, B of a guided period


class Draws(NamedTuple):
    """Draws with axes (chain, draw, ...), and CPU seconds.

    `further` are (chain, draw, k): a pooled fit's mean and SD of every population's examinees, a guided one's link. A
    guided period has no beta.
    """

    xi: np.ndarray
    beta: np.ndarray
    further: np.ndarray
    seconds: float
    seconds_with_warmup: float


# --- the model in JAX ---------------------------------------------------------------------------------------------


def log_likelihood(name: str, y: Any, eta: Any, extras: Any) -> Any:
    """Elementwise, by the method's table; extras (n, q) as in xi."""
    if name == "2pl":
        return y * eta - jax.nn.softplus(eta)
    if name == "3pl":
        c = jax.nn.sigmoid(extras[:, 0])
        right = c + (1.0 - c) * jax.nn.sigmoid(eta)
        return jnp.where(y > 0.5, jnp.log(right), jnp.log1p(-c) - jax.nn.softplus(eta))
    if name == "gpcm":
        steps = jnp.concatenate([extras, -extras.sum(axis=1, keepdims=True)], axis=1)
        logits = jnp.cumsum(eta[:, None] - steps, axis=1)
        logits = jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1)
        return jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None].astype(int), axis=1)[:, 0]
    if name == "grm":
        c = jnp.concatenate([jnp.zeros_like(extras[:, :1]), jnp.cumsum(jnp.exp(extras), axis=1)], axis=1)
        above = jax.nn.sigmoid(eta[:, None] - (c - c.mean(axis=1, keepdims=True)))
        one = jnp.ones_like(above[:, :1])
        p = jnp.concatenate([one, above], axis=1) - jnp.concatenate([above, 0.0 * one], axis=1)
        return jnp.log(jnp.take_along_axis(p, y[:, None].astype(int), axis=1)[:, 0] + 1e-300)
    mu, phi = jax.nn.sigmoid(eta), jnp.exp(extras[:, 0])
    inside = jnp.clip(y, 1e-12, 1.0 - 1e-12)
    p, q = mu * phi, (1.0 - mu) * phi
    density = gammaln(phi) - gammaln(p) - gammaln(q) + (p - 1.0) * jnp.log(inside) + (q - 1.0) * jnp.log1p(-inside)
    if name == "beta":
        return density
    k_0, k_1 = extras[:, 1], extras[:, 1] + jnp.exp(extras[:, 2])
    zero, one = jax.nn.log_sigmoid(k_0 - eta), jax.nn.log_sigmoid(eta - k_1)
    middle = jnp.log(jax.nn.sigmoid(eta - k_0) - jax.nn.sigmoid(eta - k_1))
    return jnp.where(y <= 0.0, zero, jnp.where(y >= 1.0, one, middle + density))


def log_sigma(L: Any, scales: Any) -> Any:
    """`concal.calibration.priors.log_sigma_alone` of Sigma = LL'."""
    p, inverse = len(scales), jnp.linalg.inv(L)
    diagonal = (inverse**2).sum(axis=0)  # of Sigma^-1 = L^-T L^-1
    log_det = 2.0 * jnp.log(jnp.diagonal(L)).sum()
    return -0.5 * (NU + 2 * p) * log_det - 0.5 * (NU + p) * jnp.log(NU * diagonal + 1.0 / scales**2).sum()


def population_items(X: Any, typical: PopulationPrior, tau: float, centred: bool) -> Any:
    """Items under a population of their own."""
    scales = jnp.array(typical.sd)
    (n_items, k), p = X.shape, len(scales)
    centre = jnp.zeros((k, p)).at[0].set(jnp.array(typical.mean))
    beta = numpyro.sample("beta", dist.Normal(centre, tau**-0.5 * scales).to_event(2))
    # half-t and LKJ(1) give coordinates NUTS likes; the factor turns their density into the engine's
    sd = numpyro.sample("sd", dist.HalfCauchy(scales).to_event(1))
    L = sd[:, None] * numpyro.sample("L", dist.LKJCholesky(p, 1.0))
    target = log_sigma(L, scales) + p * jnp.log(sd).sum()  # d Sigma / d (sd, correlations)
    numpyro.factor("half_t", target - dist.HalfCauchy(scales).log_prob(sd).sum())
    mean = X @ beta
    if centred:
        return numpyro.sample("xi", dist.MultivariateNormal(mean, scale_tril=L).to_event(1))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([n_items, p]).to_event(2))
    return numpyro.deterministic("xi", mean + z @ L.T)


def guided_items(mean: Any, covariance: Any) -> Any:
    """Items with priors on the bank's metric, which theta_bank = A theta + B leads to; (log A, B) flat."""
    n_items, p = mean.shape
    link = numpyro.sample("link", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([n_items, p]).to_event(2))
    image = mean + jnp.einsum("jab,jb->ja", jnp.linalg.cholesky(covariance), z)
    d, log_a = (image[:, 0] - link[1]) / jnp.exp(link[0]), image[:, 1] + link[0]
    numpyro.deterministic("beta", jnp.zeros((0, p)))
    numpyro.deterministic("further", link)
    return numpyro.deterministic("xi", jnp.concatenate([d[:, None], log_a[:, None], image[:, 2:]], axis=1))


def abilities(population: Any, n_populations: int) -> Any:
    """N(0, 1); of further populations N(mu, v), mu ~ N(0, 10^2) and v ~ IW(3, 1): the engine's in one dimension."""
    n = len(population)
    z = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([n]).to_event(1))
    if n_populations == 1:
        return z
    further = n_populations - 1
    mu = numpyro.sample("mu", dist.Normal(0.0, MU_VARIANCE**0.5).expand([further]).to_event(1))
    variance = numpyro.sample("variance", dist.InverseGamma(1.5, 0.5).expand([further]).to_event(1))
    theta = jnp.append(0.0, mu)[population] + jnp.sqrt(jnp.append(1.0, variance))[population] * z
    own = population[None, :] == jnp.arange(n_populations)[:, None]
    mean = (own * theta).sum(axis=1) / own.sum(axis=1)
    square = (own * theta**2).sum(axis=1) / own.sum(axis=1)
    numpyro.deterministic("further", jnp.concatenate([mean, jnp.sqrt(square - mean**2)]))
    return theta


def irt(data: PeriodData, tau: float, centred: bool) -> None:
    """Items, population, abilities, responses of a one-dimensional period with one group."""
    (g,) = data.groups.values()
    if g.guide is None:
        xi = population_items(jnp.array(g.X), g.model.prior, tau, centred)
    else:
        xi = guided_items(jnp.array(g.guide.mean), jnp.array(g.guide.covariance))
    theta = abilities(jnp.array(data.population), len(data.populations))
    own = xi[g.item]
    eta = jnp.exp(own[:, 1]) * (theta[g.person] - own[:, 0])
    numpyro.factor("responses", log_likelihood(g.model.name, jnp.array(g.score), eta, own[:, 2:]).sum())


def sample_nuts(
    data: PeriodData, tau: float, *, warmup: int, draws: int, chains: int = 1, centred: bool = True, seed: int = 1
) -> Draws:
    """NUTS draws of a period with one group; two stretches of `draws` a chain, the second timed."""
    wanted = {"chain_method": "sequential", "progress_bar": False, "num_chains": chains}
    # from near zero: starts with a = e^2 and more leave chains of the graded model stuck far away
    nuts = NUTS(lambda: irt(data, tau, centred), init_strategy=init_to_uniform(radius=0.2))
    sampler = MCMC(nuts, num_warmup=warmup, num_samples=draws, **wanted)
    start = time.process_time()
    sampler.warmup(jax.random.PRNGKey(seed), collect_warmup=False)
    jax.block_until_ready(sampler.post_warmup_state)
    warm = time.process_time() - start
    parts = []
    for stretch in range(2):
        start = time.process_time()
        sampler.run(jax.random.PRNGKey(seed + 1 + stretch))
        found = sampler.get_samples(group_by_chain=True)
        found.setdefault("further", found["xi"][:, :, 0, :0])
        parts.append({name: np.asarray(found[name]) for name in ("xi", "beta", "further")})
        seconds = time.process_time() - start
        sampler.post_warmup_state = sampler.last_state
    joined = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    return Draws(joined["xi"], joined["beta"], joined["further"], 2.0 * seconds, 2.0 * seconds + warm)


# --- the engine ---------------------------------------------------------------------------------------------------


def sample_engine(data: PeriodData, tau: float, *, draws: int, min_ess: float = 400.0, seed: int = 1) -> Draws:
    """The engine's draws of the same period, on one thread."""
    options = CalibrationSpec(tau=tau, draws=draws, threads=1, min_ess=min_ess)
    (g,) = data.groups.values()
    kind = {"model": "2pl", "dimension": g.dimension}  # the data carry the response model
    spec = Spec.parse({"bank": {"dimensions": [g.dimension]}, "groups": {g.name: kind}})
    spec = spec.model_copy(update={"calibration": options})
    start = time.process_time()
    result = calibrate_period(data, spec, seed=seed)
    seconds = time.process_time() - start
    if not result.convergence.converged:
        raise RuntimeError(f"the engine did not reach its targets: {result.convergence.warnings}")
    found, c = result.groups[g.name], result.convergence
    sampling = seconds * (c.sweeps - c.warmup) / c.sweeps
    further = found.xi[:, :, 0, :0].astype(float)
    if len(data.populations) > 1:
        own = result.abilities
        further = np.concatenate([own.population_mean[..., 0], own.population_sd[..., 0]], axis=-1)
    if found.guide_link is not None:
        further = found.guide_link
    beta = found.beta if g.guide is None else found.beta[:, :, :0]
    return Draws(found.xi.astype(float), beta, further, sampling, seconds)


# --- comparing ----------------------------------------------------------------------------------------------------


def make_data(
    name: str, n_items: int, n_persons: int, per_person: int, seed: int = 1, kind: str = "plain"
) -> PeriodData:
    """A period with one group and one feature, whose columns are already standardised."""
    rng = np.random.default_rng(seed)
    model = make_model(name, CATEGORIES if model_class(name).polytomous else None)
    feature = rng.standard_normal(n_items)
    X = np.column_stack([np.ones(n_items), (feature - feature.mean()) / feature.std()])
    p, sd = len(model.parameters), np.array(model.prior.sd)
    xi = X @ np.vstack([model.prior.mean, 0.3 * sd]) + 0.8 * sd * rng.standard_normal((n_items, p))
    M = POPULATIONS if kind == "pooled" else 1
    population = (np.arange(n_persons) % M).astype(np.int32)
    theta = 0.5 * population + (1.0 - 0.1 * population) * rng.standard_normal(n_persons)
    order = rng.random((n_persons, n_items))
    if M > 1:
        order[(np.arange(n_items)[None, :] - population[:, None]) % M == 0] += 1.0
    item = np.argsort(order, axis=1)[:, :per_person].ravel().astype(np.int32)
    person = np.repeat(np.arange(n_persons, dtype=np.int32), per_person)
    score = model.simulate(theta[person], xi[item], rng)
    ids = tuple(f"i{j}" for j in range(n_items))
    group = GroupData("items", "ability", model, ids, ("1", "x"), X, person, item, score)
    if kind == "guided":
        root = 0.3 * sd[:, None] * (np.eye(p) + 0.3 * np.tril(rng.standard_normal((n_items, p, p)), -1))
        image = xi + np.einsum("jab,jb->ja", root, rng.standard_normal((n_items, p)))
        image[:, 0], image[:, 1] = np.exp(LINK[0]) * image[:, 0] + LINK[1], image[:, 1] - LINK[0]
        group = replace(group, guide=Guide(image, root @ np.swapaxes(root, 1, 2)))
    persons = pl.Series("person_id", np.arange(n_persons)).cast(pl.String)
    names = tuple(f"period {m}" for m in range(M))
    return PeriodData("period", ("ability",), persons, {"items": group}, names, population)


def effective(draws: Draws) -> dict[str, float]:
    """Median bulk ESS of d, log a, beta and what a pooled or guided fit has further."""
    xi = diagnose(np.ascontiguousarray(draws.xi), kinds=("ess_bulk",)).ess_bulk
    found = {"d": float(np.median(xi[:, 0])), "log a": float(np.median(xi[:, 1]))}
    for name, values in (("beta", draws.beta), ("further", draws.further)):
        if values.size:
            own = diagnose(np.ascontiguousarray(values), kinds=("ess_bulk",)).ess_bulk
            found[name] = float(np.median(own))
    return found


def posterior_difference(one: Draws, other: Draws) -> tuple[float, float, float]:
    """Differences of posterior means of everything kept in SDs of `other` (RMS, largest); median SD ratio."""

    def flat(draws: Draws) -> np.ndarray:
        n = draws.xi.shape[0] * draws.xi.shape[1]
        parts = (draws.xi, draws.beta, draws.further)
        return np.concatenate([part.reshape(n, part[0, 0].size) for part in parts], axis=1)

    a, b = flat(one), flat(other)
    z = (a.mean(axis=0) - b.mean(axis=0)) / b.std(axis=0)
    return float(np.sqrt((z**2).mean())), float(np.abs(z).max()), float(np.median(a.std(axis=0) / b.std(axis=0)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--persons", type=int, default=1_000)
    parser.add_argument("--per-person", type=int, default=20)
    parser.add_argument("--model", default="2pl")
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=150)
    parser.add_argument("--kind", default="plain", choices=["plain", "pooled", "guided"])
    parser.add_argument("--full", action="store_true", help="500 items x 5,000 examinees x 30")
    given = parser.parse_args()
    size = (500, 5_000, 30) if given.full else (given.items, given.persons, given.per_person)
    data, tau = make_data(given.model, *size, kind=given.kind), CalibrationSpec().tau
    sample_engine(make_data(given.model, 20, 60, 10), 1.0, draws=1000, min_ess=100)  # compiles
    ours = sample_engine(data, tau, draws=8_000)
    theirs = sample_nuts(data, tau, warmup=given.warmup, draws=given.draws)
    print(
        f"{given.model} ({given.kind}), {size[0]} items x {size[1]} examinees x {size[2]} responses; load average "
        f"{os.getloadavg()[0]:.1f}; the engine's 8 chains run side by side in SIMD lanes, NUTS has one"
    )
    print("             median bulk ESS      ESS per CPU second, sampling    with warm-up")
    print("             engine     NUTS      engine     NUTS   ratio         engine    NUTS   ratio")
    mine, other = effective(ours), effective(theirs)
    for name in mine:
        a, b = mine[name] / ours.seconds, other[name] / theirs.seconds
        c, d = mine[name] / ours.seconds_with_warmup, other[name] / theirs.seconds_with_warmup
        print(
            f"{name:10s} {mine[name]:8.0f} {other[name]:8.0f} {a:11.1f} {b:8.2f} {a / b:7.0f} "
            f"{c:14.1f} {d:7.2f} {c / d:7.0f}"
        )
    print(f"CPU seconds: engine {ours.seconds:.1f} (with warm-up {ours.seconds_with_warmup:.1f}), ", end="")
    print(f"NUTS {theirs.seconds:.1f} ({theirs.seconds_with_warmup:.1f})")
    rms, worst, ratio = posterior_difference(ours, theirs)
    print(f"posterior means differ by {rms:.3f} SD (RMS; largest {worst:.2f}), median SD ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
