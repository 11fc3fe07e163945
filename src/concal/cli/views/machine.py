"""Tables about a run: the machine, the steps of the demonstration."""

from __future__ import annotations

from concal.cli.views.view import FLAG, NUMBER, TEXT, Column, View

DOCTOR = View(
    "This machine",
    "nothing was looked at",
    {
        "check": Column(TEXT, "what was looked at"),
        "ok": Column(FLAG, "whether it is as it should be"),
        "seen": Column(TEXT, "what was seen"),
    },
    ("check", "ok", "seen"),
    keys=("check",),
)
STEPS = View(
    "How long the steps took",
    "no steps",
    {"step": Column(TEXT, "what was done"), "seconds": Column(NUMBER, "wall time", "seconds", 1)},
    ("step", "seconds"),
    keys=("step",),
)
