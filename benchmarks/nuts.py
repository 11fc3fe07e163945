r"""The engine against NumPyro's NUTS: the same model, the same data, one run; effective draws per CPU second.

Usage: python benchmarks/nuts.py [--items 100] [--persons 1000] [--per-person 20] [--model 2pl] [--draws 150] [--full]

`--full` is the size of record, 500 items x 5,000 examinees x 30 responses. NUTS runs in single precision, its faster
setting, with centred item parameters (items have hundreds of responses); one chain, two stretches of `--draws` draws
after `--warmup` iterations. The second stretch is timed: it compiles nothing. The engine runs 8 chains side by side;
its CPU time covers all of them and is shown without and with its warm-up.

The model is written in JAX independently of the engine, with the engine's priors:

.. math:: \beta \sim N(0, I/\tau), \quad
          p(\Sigma) \propto |\Sigma|^{-(\nu+2p)/2} \prod_k (\nu (\Sigma^{-1})_{kk} + 1/A_k^2)^{-(\nu+p)/2},
          \quad \nu = 2

(Huang and Wand: half-t(2, A_k) standard deviations, each correlation uniform), theta ~ N(0, 1). The comparison of
posteriors in the tests uses this file too.
"""

from __future__ import annotations

import argparse
import os
import time
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

from concal.calibrate.diagnostics import diagnose
from concal.calibrate.period import calibrate_period
from concal.data.period import GroupData, PeriodData
from concal.response import make_model, model_class
from concal.spec import CalibrationSpec, Spec

NU = 2.0
CATEGORIES = 4


class Draws(NamedTuple):
    """Draws with axes (chain, draw, ...), and CPU seconds."""

    xi: np.ndarray
    beta: np.ndarray
    sigma: np.ndarray
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


def irt(
    name: str, X: Any, scales: Any, tau: float, person: Any, item: Any, y: Any, n_persons: int, centred: bool
) -> None:
    """Items, population, abilities, responses of a one-dimensional period."""
    (n_items, k), p = X.shape, len(scales)
    beta = numpyro.sample("beta", dist.Normal(0.0, tau**-0.5).expand([k, p]).to_event(2))
    # half-t and LKJ(1) give coordinates NUTS likes; the factor turns their density into the one above
    sd = numpyro.sample("sd", dist.HalfCauchy(scales).to_event(1))
    L = sd[:, None] * numpyro.sample("L", dist.LKJCholesky(p, 1.0))
    inverse = jnp.linalg.inv(L)
    diagonal = (inverse**2).sum(axis=0)  # of Sigma^-1 = L^-T L^-1
    log_det = 2.0 * jnp.log(jnp.diagonal(L)).sum()
    target = -0.5 * (NU + 2 * p) * log_det - 0.5 * (NU + p) * jnp.log(NU * diagonal + 1.0 / scales**2).sum()
    target = target + p * jnp.log(sd).sum()  # d Sigma / d (sd, correlations)
    numpyro.factor("half_t", target - dist.HalfCauchy(scales).log_prob(sd).sum())
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([n_items, p]).to_event(2)) if not centred else None
    mean = X @ beta
    if centred:
        xi = numpyro.sample("xi", dist.MultivariateNormal(mean, scale_tril=L).to_event(1))
    else:
        xi = numpyro.deterministic("xi", mean + z @ L.T)
    numpyro.deterministic("sigma", L @ L.T)
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([n_persons]).to_event(1))
    own = xi[item]
    eta = jnp.exp(own[:, 1]) * (theta[person] - own[:, 0])
    numpyro.factor("responses", log_likelihood(name, y, eta, own[:, 2:]).sum())


def sample_nuts(
    data: PeriodData, tau: float, *, warmup: int, draws: int, chains: int = 1, centred: bool = True, seed: int = 1
) -> Draws:
    """NUTS draws of a period with one group; two stretches of `draws` a chain, the second timed."""
    (g,) = data.groups.values()
    model = (g.model.name, jnp.array(g.X), jnp.array(g.model.prior.sd), tau)
    args = (*model, jnp.array(g.person), jnp.array(g.item), jnp.array(g.score), len(data.person_ids), centred)
    wanted = {"chain_method": "sequential", "progress_bar": False, "num_chains": chains}
    # from near zero: starts with a = e^2 and more leave chains of the graded model stuck far away
    nuts = NUTS(lambda: irt(*args), init_strategy=init_to_uniform(radius=0.2))
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
        parts.append({name: np.asarray(found[name]) for name in ("xi", "beta", "sigma")})
        seconds = time.process_time() - start
        sampler.post_warmup_state = sampler.last_state
    joined = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    return Draws(joined["xi"], joined["beta"], joined["sigma"], 2.0 * seconds, 2.0 * seconds + warm)


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
    return Draws(found.xi.astype(float), found.beta, found.sigma, sampling, seconds)


# --- comparing ----------------------------------------------------------------------------------------------------


def make_data(name: str, n_items: int, n_persons: int, per_person: int, seed: int = 1) -> PeriodData:
    """A period with one group and one feature, whose columns are already standardised."""
    rng = np.random.default_rng(seed)
    model = make_model(name, CATEGORIES if model_class(name).polytomous else None)
    feature = rng.standard_normal(n_items)
    X = np.column_stack([np.ones(n_items), (feature - feature.mean()) / feature.std()])
    p, sd = len(model.parameters), np.array(model.prior.sd)
    xi = X @ np.vstack([model.prior.mean, 0.3 * sd]) + 0.8 * sd * rng.standard_normal((n_items, p))
    theta = rng.standard_normal(n_persons)
    item = np.argsort(rng.random((n_persons, n_items)), axis=1)[:, :per_person].ravel().astype(np.int32)
    person = np.repeat(np.arange(n_persons, dtype=np.int32), per_person)
    score = model.simulate(theta[person], xi[item], rng)
    ids = tuple(f"i{j}" for j in range(n_items))
    group = GroupData("items", "ability", model, ids, ("1", "x"), X, person, item, score)
    persons = pl.Series("person_id", np.arange(n_persons)).cast(pl.String)
    return PeriodData("period", ("ability",), persons, {"items": group}, ("period",), np.zeros(n_persons, np.int32))


def effective(draws: Draws) -> dict[str, float]:
    """Median bulk ESS of d, log a, beta."""
    xi = diagnose(np.ascontiguousarray(draws.xi), kinds=("ess_bulk",)).ess_bulk
    beta = diagnose(np.ascontiguousarray(draws.beta), kinds=("ess_bulk",)).ess_bulk
    return {"d": float(np.median(xi[:, 0])), "log a": float(np.median(xi[:, 1])), "beta": float(np.median(beta))}


def posterior_difference(one: Draws, other: Draws) -> tuple[float, float, float]:
    """Differences of posterior means of items and beta in SDs of `other` (RMS, largest); median SD ratio."""

    def flat(draws: Draws) -> np.ndarray:
        n = draws.xi.shape[0] * draws.xi.shape[1]
        return np.concatenate([draws.xi.reshape(n, -1), draws.beta.reshape(n, -1)], axis=1)

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
    parser.add_argument("--full", action="store_true", help="500 items x 5,000 examinees x 30")
    given = parser.parse_args()
    size = (500, 5_000, 30) if given.full else (given.items, given.persons, given.per_person)
    data, tau = make_data(given.model, *size), CalibrationSpec().tau
    sample_engine(make_data(given.model, 20, 60, 10), 1.0, draws=1000, min_ess=100)  # compiles
    ours = sample_engine(data, tau, draws=8_000)
    theirs = sample_nuts(data, tau, warmup=given.warmup, draws=given.draws)
    print(
        f"{given.model}, {size[0]} items x {size[1]} examinees x {size[2]} responses; load average "
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
