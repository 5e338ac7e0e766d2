"""A script written for EvSys, run with the stand-ins for EvSys' modules."""

import dataclasses
import importlib

import pytest

from calipers.compat import activate
from calipers.systems.evsys import benchmark as ours

SCRIPT = """
from evsys_sdk.benchmark import Benchmark
from evsys_sdk.inference import get_inference
from evsys_sdk.protocols import InferenceClient
from evsys_sdk.verifiers.fns import register_fn
from evsys_sdk.registry import register_metric

@register_fn("shouts")
def shouts(model_output, expected, params):
    return float(model_output == str(expected).upper())

@register_metric("worst")
class Worst:
    name = "worst"
    def compute(self, task_rewards):
        return min((sum(rs) / len(rs) for rs in task_rewards if rs), default=0.0)

client = get_inference("mock")("{prompt}")
assert isinstance(client, InferenceClient)
bench = Benchmark.from_iterable("shouting", [
    {"task_id": text, "instruction": text, "verifier": {"kind": "in_process", "fn_name": "shouts", "expected": "hey"},
     "metadata": {"loud": text.isupper()}}
    for text in ("HEY", "hey")
])
score = bench.score(client, metrics=["mean_reward", "pass@1", "worst"], breakdown_keys=["loud"])
"""


@pytest.fixture(autouse=True)
def _own_functions(monkeypatch):
    from calipers.verifiers import user_code

    monkeypatch.setattr(user_code, "_registered", {})


def test_a_script_written_for_evsys_runs():
    activate()
    held = {}
    exec(SCRIPT, held)
    score = held["score"]
    assert score.metrics == {"n_tasks": 2.0, "mean_reward": 0.5, "pass@1": 0.5, "worst": 0.0}
    assert score.breakdowns == {
        "loud": {
            "True": {"n": 1.0, "mean_reward": 1.0, "pass_rate": 1.0},
            "False": {"n": 1.0, "mean_reward": 0.0, "pass_rate": 0.0},
        }
    }
    assert list(dataclasses.asdict(score)) == ["metrics", "per_task", "breakdowns", "rollouts"]
    assert score.result["pass@1"].interval is not None


@pytest.mark.parametrize(
    "statement",
    [
        "import evsys_sdk.benchmark; evsys_sdk.benchmark.Benchmark",
        "from evsys_sdk import benchmark; benchmark.run_benchmark",
        "from evsys_sdk.benchmark import Benchmark, BenchmarkScore, BenchmarkTaskResult, HarborTask, eval_metrics",
        "from evsys_sdk.benchmark import *; InProcessVerifier, TrajectoryGroup",
        "import evsys_sdk.inference as inference; inference.ChatTemplatedInference",
        "from evsys_sdk.inference import register_inference, get_inference, list_inference",
        "from evsys_sdk.protocols import InferenceClient, Metric, Verifier",
        "from evsys_sdk import verifiers; verifiers.get_verifier('format_only')",
        "import evsys_sdk.verifiers.fns; evsys_sdk.verifiers.fns.get('contains')",
        "from evsys_sdk.verifiers import fns, VerificationResult",
    ],
)
def test_every_form_of_import_works(statement):
    assert activate()
    exec(statement, {})


def test_what_is_lent_is_what_we_have():
    activate()
    lent = importlib.import_module("evsys_sdk.benchmark")
    assert lent.__all__ == sorted(lent.__all__)
    assert all(getattr(lent, name) is getattr(ours, name) for name in lent.__all__)
