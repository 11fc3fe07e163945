"""The sections of the report, in the order of the page."""

from __future__ import annotations

from concal.report.sections import (
    abilities,
    agreement,
    calibration,
    changes,
    consensus,
    data,
    drift,
    fit,
    information,
    items,
    links,
    overview,
)

SECTIONS = (
    overview,
    changes,
    drift,
    fit,
    items,
    links,
    data,
    calibration,
    consensus,
    abilities,
    information,
    agreement,
)
"""Modules with a function ``section(view, block)``."""
