import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # reported_bank.py, with --import-mode=importlib


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A bank with an evaluation, what its report sees of it, and the page."""
    from reported_bank import made_up, make_bank

    from concal.evaluate.pooled import evaluate_bank
    from concal.report.page import build_page
    from concal.report.view import View

    bank = make_bank(tmp_path_factory.mktemp("report") / "bank")
    evaluate_bank(bank, methods=("analytic",), calibrator=made_up)
    view = View(bank)
    return bank, view, build_page(view)
