"""Mode and curvature of the joint posterior: damped Newton steps with exact second derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.combine.hessian import hessian
from concal.combine.posterior import JointPosterior, evaluate, make_buffers
from concal.errors import ConvergenceError

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mode:
    """Where the posterior peaks.

    Attributes
    ----------
    theta : (size,)
    root : (size, size)
        Lower Cholesky factor of the negative Hessian.
    value : float
    iterations : int
    xi, C : dict of group -> arrays
        Conditional moments of the items at the mode.
    """

    theta: Array
    root: Array
    value: float
    iterations: int
    xi: dict[str, Array]
    C: dict[str, Array]


def find_mode(posterior: JointPosterior, start: Array, *, tolerance: float = 1e-6, max_iterations: int = 100) -> Mode:
    """Climb to the mode from `start`.

    Stops when the Newton decrement (twice the expected gain in log density) is below `tolerance`, which is far below
    anything that matters on the scale of posterior standard deviations.
    """
    theta = start.copy()
    here, there = make_buffers(posterior), make_buffers(posterior)
    at = evaluate(posterior, theta, here)
    if not np.isfinite(at.value):
        raise ConvergenceError("the joint consensus cannot start: some item's precision is not positive definite")
    damping, H = 0.0, -hessian(posterior, theta, at)
    for iteration in range(1, max_iterations + 1):
        scale = np.maximum(np.abs(np.diag(H)), 1e-8)
        try:
            root = np.asarray(np.linalg.cholesky(H + damping * np.diag(scale)), dtype=np.float64)
        except np.linalg.LinAlgError:
            damping = max(8.0 * damping, 1e-3)
            continue
        step = np.linalg.solve(root.T, np.linalg.solve(root, at.gradient))
        decrement = float(step @ at.gradient)
        if decrement < tolerance and damping == 0.0:
            return Mode(theta, root, at.value, iteration, dict(at.xi), dict(at.C))
        try:
            trial = evaluate(posterior, theta + step, there)
        except np.linalg.LinAlgError:  # a step so long that a Sigma is singular in double precision
            trial = None
        if trial is not None and np.isfinite(trial.value) and trial.value > at.value - 1e-9 * abs(at.value):
            theta, at = theta + step, trial
            here, there = there, here
            damping = 0.0 if damping < 1e-3 else damping / 10.0
            H = -hessian(posterior, theta, at)
        else:
            damping = max(8.0 * damping, 1e-3)
            if damping > 1e8:
                break
    raise ConvergenceError(
        f"the joint consensus found no mode in {max_iterations} Newton steps; "
        "check the links' starting values and the drift list, or use the analytic method"
    )
