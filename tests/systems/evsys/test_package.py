"""The stand-in for EvSys' package, and a user's script that imports everything from it."""

import importlib
from pathlib import Path

import pytest

from calipers.compat import activate
from calipers.systems import evsys

SCRIPT = Path(__file__).parent / "fixtures" / "whole_package.py"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The globals of the script after it has run."""
    monkeypatch.chdir(tmp_path)
    activate()
    variables = {"__name__": "__main__"}
    exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), variables)
    return variables


def test_a_script_that_takes_everything_from_the_package_runs(script):
    score = script["in_process"]
    assert score.metrics == {"n_tasks": 3.0, "mean_reward": pytest.approx(2 / 3), "worst_task": 0.0}
    assert script["by_hand"] == {"n_tasks": 1.0, "mean_reward": 1.0, "pass_rate": 1.0}


def test_a_failed_task_is_in_per_task_and_missing_in_the_ledger(script):
    score = script["rolled_out"]
    assert score.metrics == {
        **{"n_tasks": 2.0, "mean_reward": 0.75, "pass@1": 1.0, "worst_task": 0.5},
        **{"time_per_task": 2.0, "tokens_per_task": pytest.approx((4.5 + 3) / 2)},
    }
    assert [(task.task_id, task.reward, task.model_output) for task in score.per_task] == [
        *(("t0", 0.5, ""), ("t1", 1.0, ""), ("t2", 0.0, "")),
    ]
    assert score.breakdowns["even"]["True"] == {"n": 2.0, "mean_reward": 0.25, "pass_rate": 0.0}
    ledger = score.result.groups[0].ledger
    assert (ledger.planned, ledger.scored, ledger.tasks, ledger.planned_from) == (6, 3, 3, "num_samples")
    assert ledger.outcomes == {"scored": 3, "client_failed": 1, "missing": 2}
    assert ledger.exceptions == {"BadRequestError": 1}
    assert score.result["mean_reward"].value == 0.75


def test_prediction_rows_of_the_rollouts(script):
    first, second, third = script["rows"]
    assert first == {
        **{"kind": "eval", "eval_id": "ev1", "task_id": "t0", "sample_idx": 0, "step": 5, "instruction": "say 0"},
        **{"expected": "say 0", "reward": 1.0, "completion_token_ids": [7, 8]},
        "metadata": {
            **{"tags": ["val"], "even": True, "latency_s": 2.0, "prompt_tokens": 3, "completion_tokens": 2},
        },
    }
    assert (second["sample_idx"], second["reward"]) == (1, 0.0)
    assert (third["task_id"], third["sample_idx"], third["completion_token_ids"]) == ("t1", 0, [])


def test_every_name_of_the_package_is_there():
    activate()
    package = importlib.import_module("evsys_sdk")
    assert package.__all__ == sorted(package.__all__, key=lambda name: (name != "__version__", name))
    assert [name for name in package.__all__ if getattr(package, name, None) is None] == []
    with pytest.raises(AttributeError, match="has no attribute 'Experiment'"):
        evsys.Experiment  # noqa: B018


@pytest.mark.parametrize(
    "statement",
    [
        "from evsys_sdk import *; Benchmark, register_metric, HarborTask, __version__",
        "import evsys_sdk as sdk; sdk.list_metrics(), sdk.benchmark.Benchmark, sdk.metrics.basic.PassRate",
        "from evsys_sdk import Benchmark, registry, benchmark; assert benchmark.Benchmark is Benchmark",
        "from evsys_sdk import get_verifier; from evsys_sdk.verifiers import format_only; "
        "assert get_verifier('format_only') is format_only.FormatOnlyVerifier is format_only.FormatOnlyVerifier",
        "from evsys_sdk import get_inference; from evsys_sdk.inference import mock; "
        "assert get_inference('mock') is mock.MockInference",
        "from evsys_sdk.registry import list_inferences, list_inference; assert list_inferences() == list_inference()",
        "from evsys_sdk.training import Trajectory, evaluators; evaluators.BenchmarkEvaluator",
        "from evsys_sdk.training.harbor_eval import *; score_via_harbor, upload_eval_rollouts",
        "from evsys_sdk.data_types import TargetFormat, VerifierPayload",
        "import evsys_sdk.training.trajectory as t; assert t.__all__ == ['Trajectory', 'TrajectoryGroup', 'Turn']",
    ],
)
def test_every_form_of_import_works(statement):
    assert activate()
    exec(statement, {})
