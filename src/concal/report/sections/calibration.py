"""How well each period was sampled."""

from __future__ import annotations

from concal.evaluate.digest import convergence_table, rhat_histogram, worst_items
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View

_SHOWN = (
    *("period", "converged", "sweeps", "draws", "seconds", "max_rhat_population", "min_ess_population"),
    *("max_rhat_items", "share_items_rhat", "median_ess_items"),
)


def section(view: View, block: Block) -> Section:
    """What each run reached, the distribution of R-hat, and the worst items."""
    return Section(
        "calibration",
        "Calibration",
        printed={"convergence": printed(convergence_table(view.calibrations), _SHOWN)},
        drawn={
            "rhat": block.frame(rhat_histogram(view.calibrations)),
            "worst": block.frame(worst_items(view.calibrations)),
        },
    )
