import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # reported_bank.py, with --import-mode=importlib


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A bank with an evaluation, its report's input, and the page."""
    from reported_bank import made_up, make_bank

    from concal.evaluate.pooled import evaluate_bank
    from concal.report.data import gather
    from concal.report.page import build_page

    bank = make_bank(tmp_path_factory.mktemp("report") / "bank")
    evaluate_bank(bank, methods=("analytic",), calibrator=made_up)
    data = gather(bank)
    return bank, data, build_page(data)
