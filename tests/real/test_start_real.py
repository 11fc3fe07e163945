"""``concal start`` on the shared real data sets, in the shape they lie there."""

import pytest

from concal.start import look_at_files

pytestmark = pytest.mark.real

SETS = [
    ("assist2017/responses.parquet", "assist2017/items.parquet", {"items": ("2pl", 3162)}),
    ("cloze_stats/responses.parquet", "cloze_stats/items.parquet", {"items": ("2pl", 144)}),
    ("timss07_rus/responses.parquet", "timss07_rus/items.parquet", {"binary": ("2pl", 399), "ordered": ("gpcm", 43)}),
    (
        "livecodebench/responses.parquet",
        "livecodebench/items.parquet",
        {"continuous": ("ordered_beta", 2426), "binary": ("2pl", 36)},
    ),
    ("continuous_vas/epia.csv", None, {"items": ("ordered_beta", 5)}),
    ("cz_matura/gymnasium.csv", None, {"binary": ("2pl", 22), "ordered": ("gpcm", 8)}),
    ("classics/lsat6.csv", None, {"items": ("2pl", 5)}),
    ("classics/science.csv", None, {"items": ("gpcm", 4)}),
    ("classics/spelling.csv", None, {"items": ("2pl", 4)}),
    ("classics/verbagg.csv", None, {"items": ("gpcm", 24)}),
]


@pytest.mark.parametrize(("responses", "items", "groups"), SETS, ids=[s[0] for s in SETS])
def test_a_draft_that_is_accepted(responses, items, groups, shared_data):
    found = look_at_files(shared_data / responses, None if items is None else shared_data / items)
    assert {g.name: (g.kind.model, g.items) for g in found.groups} == groups
    assert found.problems is None, found.problems
