"""Compile on a second core what a first run will need later, while the run itself compiles what it needs now.

The first calibration on a machine compiles for half a minute on one core. Half of it is not needed at once: the moves
of Sigma and R begin after some warm-up, diagnostics with the first look at convergence; response tables, the link and
the consensus come after the calibration. A second process compiles these meanwhile and leaves the machine code in the
kernel cache, where the run finds it. Should the run come first, it compiles itself.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from concal.calibration.kernels import LANES
from concal.calibration.workers import available_cores
from concal.compiler import cache_folder
from concal.response import ResponseModel, make_model


@contextmanager
def compiled_ahead(models: Iterable[ResponseModel]) -> Iterator[None]:
    """Run the second process beside the block, unless it ran before or there is no core for it."""
    names = sorted({f"{model.name}:{model.n_categories if model.polytomous else ''}" for model in models})
    folder = cache_folder()
    if folder is None or available_cores() < 2:
        yield
        return
    marker = folder / f"ahead-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}"
    if marker.exists():
        yield
        return
    command = [sys.executable, "-m", "concal.cli.ahead", str(marker), *names]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def compile_later_kernels(models: list[ResponseModel]) -> None:
    """Call every kernel a run needs later, with nothing to do."""
    for model in models:
        _log_likelihoods(model)
    _carry()
    _moments_and_diagnostics()
    for model in models:
        _link(model)
    for model in models:
        _consensus(model)


def _log_likelihoods(model: ResponseModel) -> None:
    from concal.calibration import kernels

    start, index, score = np.zeros(2, np.int64), np.zeros(1, np.int32), np.zeros(1, np.float32)
    theta, total = np.zeros((1, 1, LANES), np.float32), np.zeros((1, LANES))
    par = np.zeros((1, 1, LANES), np.float32)
    kernels.item_log_likelihood(model.tag, start, index, score, theta, 0, par, total, 0, 0)
    kernels.person_log_likelihood(model.tag, start, index, score, theta, par, 0, total, 0, 0)


def _carry() -> None:
    from concal.calibration import kernels

    index, change, mean = np.zeros(1, np.int32), np.zeros((1, LANES)), np.zeros((1, 1, LANES))
    information, pull, precision = (
        np.zeros((1, 1), np.float32),
        np.zeros((1, 1), np.float32),
        np.zeros((1, 1, 1, LANES)),
    )
    for units in (np.zeros((1, 1, LANES)), np.zeros((1, 1, LANES), np.float32)):  # items, then abilities
        prior = kernels.Priors(precision, index, mean, index)
        kernels.carry(1, units, information, pull, prior, prior, units.copy(), change, 0, 0)


def _moments_and_diagnostics() -> None:
    from concal.calibration import kernels
    from concal.calibration.diagnostics import diagnose

    units, acc = np.zeros((1, 1, LANES)), np.zeros((1, 3, LANES))
    kernels.add_moments(1, units, acc, np.zeros((1, 4, LANES)), 0, 0)
    diagnose(np.zeros((2, 4, 1)), threads=1)


def _link(model: ResponseModel) -> None:
    from concal.linking.criteria import Anchors, make_loss, make_quadrature
    from concal.linking.solve import Criterion, solve

    xi = np.array(model.prior.mean) + np.linspace(-0.5, 0.5, 4)[None, :, None] * np.array(model.prior.sd)
    criterion = Criterion("haebara", make_loss("pseudo_huber"), make_quadrature())
    for exact, dtype in ((False, np.float32), (True, np.float64)):
        draws = xi.astype(dtype)
        solve([Anchors(model, model, draws, draws, np.ones(4))], criterion, exact=exact, threads=1)


class _EnoughError(Exception):
    """Everything was called once."""


def _consensus(model: ResponseModel) -> None:
    """Half of a joint consensus of four items in two periods: response tables, items, links, Sigma."""
    from concal.consensus.combine import combine
    from concal.consensus.factors.period import GroupFactors, PeriodFactors, Placed

    n, p = 4, len(model.parameters)
    unit = np.eye(p)
    cells = np.concatenate([model.encode_score(np.array(model.atoms)), np.zeros(model.levels)])
    group = GroupFactors(
        name="group",
        dimension="dimension",
        model=model,
        item_ids=tuple("abcd"),
        features=("1",),
        coding="",
        X=np.ones((n, 1)),
        n_responses=np.full(n, cells.size),
        Q=np.repeat(unit[None], n, axis=0),
        h=np.repeat(unit[1:2], n, axis=0),
        mean=np.zeros((n, p)),
        covariance=np.repeat(unit[None], n, axis=0),
        worst_rhat=np.ones(n),
        b=np.zeros((1, p)),
        V=unit,
        beta_precision=unit,
        sigma=unit,
        sigma_coordinates=np.zeros(p * (p + 1) // 2),
        hyperprior=np.full((1, 1), 0.01),
        bin_mean=np.zeros((n, 1)),
        bin_sd=np.ones((n, 1)),
        cell_score=np.tile(cells, (n, 1, 1)),
        cell_count=np.ones((n, 1, cells.size)),
        dQ=np.repeat(unit[None], n, axis=0),
        dh=np.repeat(unit[1:2], n, axis=0),
    )
    uncertain = 0.01 * np.eye(2)[None]
    placed = [
        Placed(PeriodFactors(name, ("dimension",), {"group": group}, uncertain), "first", np.zeros((1, 2)), uncertain)
        for name in ("first", "second")
    ]

    def stop(share: float, message: str) -> None:
        if share >= 0.5:
            raise _EnoughError

    with suppress(_EnoughError):
        combine(placed, method="joint", progress=stop)


def main(arguments: list[str]) -> None:
    """``python -m concal.cli.ahead MARKER MODEL:CATEGORIES ...``."""
    marker, *names = arguments
    pairs = [name.partition(":") for name in names]
    compile_later_kernels([make_model(name, int(categories) if categories else None) for name, _, categories in pairs])
    with open(marker, "x", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
