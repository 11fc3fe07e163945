"""What the second process compiles is what a run asks for, and nothing goes wrong without it."""

import json
import subprocess
import sys

import pytest

from concal.cli.ahead import compiled_ahead
from concal.response import make_model, model_class, model_names

LATER = """
import json, sys
from concal.calibration import kernels
from concal.calibration.kernels.diagnostics import diagnose_block
from concal.linking import kernels as link_kernels
later = [kernels.carry, kernels.item_log_likelihood, kernels.person_log_likelihood]
later += [kernels.add_moments, diagnose_block]
later += [kernels.table_pass, kernels.item_quadratics, kernels.item_quadratics_value]
later += [kernel for name, kernel in vars(kernels).items() if name.startswith(("sum_by_", "link_"))]
later += [link_kernels.fixed_curves, link_kernels.curve_sums, link_kernels.exact_curves, link_kernels.exact_sums]
def compiled():
    return [sorted(map(str, kernel.signatures)) for kernel in later]
"""
AHEAD = """
from concal.cli.ahead import compile_later_kernels
from concal.response import make_model
compile_later_kernels([make_model("2pl")])
print(json.dumps(compiled()))
"""
RUN = """
import concal
spec = concal.Spec.parse({
    "bank": {"dimensions": ["a", "b"]},
    "groups": {k: {"model": "2pl", "dimension": k} for k in "ab"},
    "calibration": {"draws": 100, "max_sweeps": 110, "threads": 1},
})
programme = concal.simulate_programme(spec, periods=2, items=60, examinees=150, responses_per_examinee=20, seed=1)
fits = [concal.calibrate(r, programme.items, spec, period=p, seed=1) for p, r in programme.responses.items()]
link = concal.link(fits[1], fits[0], spec=spec.linking.model_copy(update={"max_rhat": 1e3}))
concal.combine([(fits[0], None), (fits[1], link)])
print(json.dumps(compiled()))
"""


def signatures(code):
    done = subprocess.run([sys.executable, "-c", LATER + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_run_finds_compiled_what_it_needs_later():
    for ahead, run in zip(signatures(AHEAD), signatures(RUN), strict=True):
        assert run, "the run has to call every one of them"
        assert set(run) <= set(ahead)


@pytest.mark.parametrize("name", model_names())
def test_every_model_has_a_tiny_consensus_to_compile(name):
    from concal.cli.ahead import _consensus

    _consensus(make_model(name, 3 if model_class(name).polytomous else None))


def test_the_second_process_starts_once_and_marks_its_end(monkeypatch, tmp_path):
    started = []

    class Process:
        def __init__(self, command, **options):
            started.append(command)

        def terminate(self):
            pass

        def wait(self):
            pass

    monkeypatch.setattr("concal.cli.ahead.available_cores", lambda: 2)
    monkeypatch.setattr("concal.cli.ahead.subprocess.Popen", Process)
    monkeypatch.setattr("concal.cli.ahead.cache_folder", lambda: tmp_path)
    models = [make_model("gpcm", 4), make_model("2pl"), make_model("2pl")]
    with compiled_ahead(models):
        pass
    assert started[0][-2:] == ["2pl:", "gpcm:4"]
    open(started[0][3], "x").close()  # what the process does at its end
    with compiled_ahead(models):
        pass
    assert len(started) == 1
    monkeypatch.setattr("concal.cli.ahead.cache_folder", lambda: None)
    with compiled_ahead([make_model("3pl")]):
        pass
    assert len(started) == 1
