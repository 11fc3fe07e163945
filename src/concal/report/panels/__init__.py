"""Panels of the item explorer, in the order they are shown.

A panel is a module here with ``KEY`` and ``numbers(view, group, block)``, which packs arrays of one group's items, and
``templates/panels/<KEY>.js``, which draws one item from them.
"""

from __future__ import annotations

from concal.report.panels import curves, information, posteriors

PANELS = (curves, information, posteriors)
