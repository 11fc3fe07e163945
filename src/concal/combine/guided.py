r"""The prior contribution of a guided period: what the bank had told it, as the period's draws and link place it.

The priors are :math:`N(m_j, S_j)` on the bank's metric, where the draws put the period by (A_s, B_s). A link of the
period to the reference by (A'_s, B'_s) then moves them by :math:`\rho_s = A'_s / A_s` and
:math:`c_s = B'_s - \rho_s B_s`: with :math:`D_s = diag(\rho_s, 1, \ldots)` the contribution is

.. math:: E[D_s S_j D_s] + Var\big[(\rho_s m_d + c_s,\ m_{\log a} - \log\rho_s,\ \ldots)\big] .
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.calibrate.result import GroupDraws
from concal.combine.gaussian import inverse
from concal.combine.wobble import without_wobble

Array = npt.NDArray[np.float64]


def guide_contribution(
    group: GroupDraws, link: tuple[Array, Array] | None, which: npt.NDArray[np.intp] | None, wobble: Array | None
) -> tuple[Array, Array]:
    """Mean (items, p) and precision of a guided group's priors under a link (None: on the period's own metric).

    `which` are the linked draws (None: all); `wobble` is taken out.
    """
    assert group.guide_mean is not None
    assert group.guide_covariance is not None
    log_A, B = group.flat("guide_link").T
    if which is not None:
        log_A, B = log_A[which], B[which]
    A_to, B_to = (np.ones_like(log_A), np.zeros_like(log_A)) if link is None else link
    rho = A_to * np.exp(-log_A)
    moves = np.stack([rho, B_to - rho * B, -np.log(rho)])
    centre, spread = moves.mean(axis=1), np.cov(moves)
    m = group.guide_mean.copy()
    m[:, 0] = centre[0] * m[:, 0] + centre[1]
    m[:, 1] += centre[2]
    total = group.guide_covariance.copy()
    total[:, 0] *= centre[0]
    total[:, :, 0] *= centre[0]
    total[:, 0, 0] *= np.mean(rho**2) / centre[0] ** 2
    pattern = np.zeros((m.shape[0], m.shape[1], 3))
    pattern[:, 0, 0], pattern[:, 0, 1], pattern[:, 1, 2] = group.guide_mean[:, 0], 1.0, 1.0
    total += pattern @ spread @ np.swapaxes(pattern, 1, 2)
    if wobble is not None:
        total = without_wobble(m, total, wobble)
    return m, inverse(total)
