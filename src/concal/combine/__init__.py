"""Consensus: from the periods' likelihood factors to the posterior of one pooled analysis.

``concal.combine`` names both this package and the function people call. Importing any module of the package binds the
name to the package, so the package itself is callable: ``concal.combine(...)`` is `concal.combine.combine.combine`
either way.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concal.combine.result import Consensus


class _Stage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Consensus:
        """See `concal.combine.combine.combine`."""
        from concal.combine.combine import combine

        return combine(*args, **options)


sys.modules[__name__].__class__ = _Stage
