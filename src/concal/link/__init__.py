"""Linking: (A, B) per draw and dimension, from a period's metric to the reference metric.

``concal.link`` names both this package and the function people call. Importing any module of the package binds the
name to the package, so the package itself is callable: ``concal.link(...)`` is `concal.link.period.link` either way.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concal.link.result import Link


class _Stage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Link:
        """See `concal.link.period.link`."""
        from concal.link.period import link

        return link(*args, **options)


sys.modules[__name__].__class__ = _Stage
