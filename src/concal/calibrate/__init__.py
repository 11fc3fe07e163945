"""Calibration of one period: draws on the period's own metric.

``concal.calibrate`` names both this package and the function people call. Importing any module of the package binds the
name to the package, so the package itself is callable: ``concal.calibrate(...)`` is
`concal.calibrate.period.calibrate` either way.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concal.calibrate.result import Calibration


class _Stage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Calibration:
        """See `concal.calibrate.period.calibrate`."""
        from concal.calibrate.period import calibrate

        return calibrate(*args, **options)


sys.modules[__name__].__class__ = _Stage
