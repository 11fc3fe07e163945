"""What all tests share: the place of the real data, a fixed hypothesis profile, a small programme."""

import os
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, settings

from concal.spec import Spec

settings.register_profile(
    "concal",
    derandomize=True,  # the same cases on every machine and day
    deadline=None,  # shared machines pause at random
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.load_profile("concal")

SHARED = Path(os.environ.get("CONCAL_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the real data sets are not at {SHARED} (set CONCAL_SHARED_DATA)")
    return SHARED


@pytest.fixture
def two_group_spec() -> Spec:
    """Vocabulary with features on reading, partial-credit summaries on writing."""
    return Spec.parse(
        {
            "bank": {"name": "English", "reference": "2026Q1", "dimensions": ["reading", "writing"]},
            "groups": {
                "vocabulary": {"model": "2pl", "dimension": "reading", "features": "~ length + C(cefr)"},
                "summary": {"model": "gpcm", "categories": 3, "dimension": "writing"},
            },
            "data": {"few_responses": 2},
        }
    )


@pytest.fixture
def two_group_items() -> pl.DataFrame:
    """Six vocabulary items with features and two summaries."""
    return pl.DataFrame(
        {
            "item_id": ["v1", "v2", "v3", "v4", "v5", "v6", "s1", "s2"],
            "group": ["vocabulary"] * 6 + ["summary"] * 2,
            "length": [3.0, 5.0, 4.0, 9.0, 2.0, 6.0, None, None],
            "cefr": ["A1", "A1", "B1", "B1", "A1", "B1", None, None],
        }
    )


@pytest.fixture
def two_group_responses() -> pl.DataFrame:
    """Four examinees, every item answered by all, no doubt about any item."""
    scores = {
        "v1": [1, 0, 1, 0],
        "v2": [1, 1, 0, 0],
        "v3": [0, 1, 1, 1],
        "v4": [0, 0, 0, 1],
        "v5": [1, 1, 1, 0],
        "v6": [0, 1, 0, 1],
        "s1": [0, 1, 2, 1],
        "s2": [2, 1, 0, 0],
    }
    rows = [(f"p{k + 1}", item, float(s)) for item, column in scores.items() for k, s in enumerate(column)]
    return pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row")
