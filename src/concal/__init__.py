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
    "Calibration": "concal.calibrate.result",
    "Link": "concal.link.result",
    "Consensus": "concal.combine.result",
    "calibrate": "concal.calibrate.period",
    "link": "concal.link.period",
    "link_parameters": "concal.link.parameters",
    "combine": "concal.combine.combine",
    "fit_pooled": "concal.evaluate.pooled",
    "agreement": "concal.evaluate.agreement",
    "simulate_programme": "concal.simulate",
    "check_period": "concal.data.check",
    "ConcalError": "concal.errors",
    "SpecError": "concal.errors",
    "DataError": "concal.errors",
    "ConvergenceError": "concal.errors",
    "LinkError": "concal.errors",
    "BankError": "concal.errors",
}
__all__ = [*_PUBLIC, "__version__"]

if TYPE_CHECKING:
    from concal.errors import BankError as BankError
    from concal.errors import ConcalError as ConcalError
    from concal.errors import ConvergenceError as ConvergenceError
    from concal.errors import DataError as DataError
    from concal.errors import LinkError as LinkError
    from concal.errors import SpecError as SpecError


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'concal' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
