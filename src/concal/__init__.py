"""concal: Bayesian consensus calibration of continuously evolving IRT item banks.

The public names are loaded on first use, so that ``import concal`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Spec": "concal.spec",
    "Bank": "concal.bank.bank",
    "Calibration": "concal.calibration.result",
    "Link": "concal.linking.result",
    "LinkConstants": "concal.linking.parameters",
    "Consensus": "concal.consensus.result",
    "Evaluation": "concal.bank.evaluation",
    "Update": "concal.bank.building.progress",
    "calibrate": "concal.calibration.period",
    "link": "concal.linking.period",
    "link_parameters": "concal.linking.parameters",
    "combine": "concal.consensus.combine",
    "fit_pooled": "concal.evaluate.pooled",
    "evaluate_bank": "concal.evaluate.pooled",
    "agreement": "concal.evaluate.agreement",
    "write_report": "concal.report.page",
    "simulate_programme": "concal.simulate",
    "check_period": "concal.data.check",
    "ConcalError": "concal.errors",
    "SpecError": "concal.errors",
    "DataError": "concal.errors",
    "DataWarning": "concal.errors",
    "ConvergenceError": "concal.errors",
    "LinkError": "concal.errors",
    "BankError": "concal.errors",
}
__all__ = [*_PUBLIC, "__version__"]

if TYPE_CHECKING:  # what type checkers see; a test compares it with the names above
    from concal.bank.bank import Bank as Bank
    from concal.bank.building.progress import Update as Update
    from concal.bank.evaluation import Evaluation as Evaluation
    from concal.calibration.period import calibrate as calibrate
    from concal.calibration.result import Calibration as Calibration
    from concal.consensus.combine import combine as combine
    from concal.consensus.result import Consensus as Consensus
    from concal.data.check import check_period as check_period
    from concal.errors import BankError as BankError
    from concal.errors import ConcalError as ConcalError
    from concal.errors import ConvergenceError as ConvergenceError
    from concal.errors import DataError as DataError
    from concal.errors import DataWarning as DataWarning
    from concal.errors import LinkError as LinkError
    from concal.errors import SpecError as SpecError
    from concal.evaluate.agreement import agreement as agreement
    from concal.evaluate.pooled import evaluate_bank as evaluate_bank
    from concal.evaluate.pooled import fit_pooled as fit_pooled
    from concal.linking.parameters import LinkConstants as LinkConstants
    from concal.linking.parameters import link_parameters as link_parameters
    from concal.linking.period import link as link
    from concal.linking.result import Link as Link
    from concal.report.page import write_report as write_report
    from concal.simulate import simulate_programme as simulate_programme
    from concal.spec import Spec as Spec
else:

    def __getattr__(name: str) -> Any:
        if name not in _PUBLIC:
            raise AttributeError(f"module 'concal' has no attribute {name!r}")
        value = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
