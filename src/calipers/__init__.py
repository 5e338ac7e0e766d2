"""Calipers turns rollouts into numbers one can defend.

Names are resolved on first use (PEP 562), so that ``import calipers`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {  # public name -> the module it lives in, and its name there if that is another
    "Benchmark": "calipers.systems.evsys.benchmark",
    "BenchmarkScore": "calipers.systems.evsys.benchmark",
    "CalipersError": "calipers.errors",
    "Collecting": "calipers.systems.nemo_gym.collect.request",
    "Column": "calipers.rollouts.column",
    "Comparison": "calipers.analyses.compare.result",
    "Estimate": "calipers.stats.estimate",
    "Groups": "calipers.rollouts.groups",
    "Incomplete": "calipers.errors",
    "InputError": "calipers.errors",
    "Leaderboard": "calipers.analyses.leaderboard.document",
    "Materializing": "calipers.systems.nemo_gym.inputs",
    "Metric": "calipers.metrics.metric",
    "Result": "calipers.reports.result",
    "Rollouts": "calipers.rollouts.table",
    "collect": "calipers.systems.nemo_gym.collect.collect",
    "compare": "calipers.analyses.compare.compare",
    "compute_pass_majority_metrics": "calipers.systems.nemo_gym.lent.reward_profile",
    "curve": "calipers.analyses.curve.curve",
    "evaluate": "calipers.running.perform",
    "harbor_metric": "calipers.systems.harbor.metrics:metric",
    "harbor_pass_ladder": "calipers.systems.harbor.metrics:pass_ladder",
    "items": "calipers.analyses.items.items",
    "judge_check": "calipers.analyses.judge_check.judge_check",
    "leaderboard": "calipers.analyses.leaderboard.leaderboard",
    "lm_eval_aggregate": "calipers.systems.lm_eval.metrics.aggregations:aggregate",
    "lm_eval_filtered": "calipers.systems.lm_eval.pipelines:filtered",
    "lm_eval_pipeline": "calipers.systems.lm_eval.pipelines:pipeline",
    "lm_eval_stderr": "calipers.systems.lm_eval.metrics.bootstrap:stderr",
    "load": "calipers.reports.page",
    "mean": "calipers.metrics.reduce",
    "read": "calipers.pipeline",
    "run_benchmark": "calipers.systems.evsys.benchmark",
    "score": "calipers.pipeline",
}

__all__ = [
    "Benchmark",
    "BenchmarkScore",
    "CalipersError",
    "Collecting",
    "Column",
    "Comparison",
    "Estimate",
    "Groups",
    "Incomplete",
    "InputError",
    "Leaderboard",
    "Materializing",
    "Metric",
    "Result",
    "Rollouts",
    "__version__",
    "collect",
    "compare",
    "compute_pass_majority_metrics",
    "curve",
    "evaluate",
    "harbor_metric",
    "harbor_pass_ladder",
    "items",
    "judge_check",
    "leaderboard",
    "lm_eval_aggregate",
    "lm_eval_filtered",
    "lm_eval_pipeline",
    "lm_eval_stderr",
    "load",
    "mean",
    "read",
    "run_benchmark",
    "score",
]

if TYPE_CHECKING:
    from calipers.analyses.compare.compare import compare
    from calipers.analyses.compare.result import Comparison
    from calipers.analyses.curve.curve import curve
    from calipers.analyses.items.items import items
    from calipers.analyses.judge_check.judge_check import judge_check
    from calipers.analyses.leaderboard.document import Leaderboard
    from calipers.analyses.leaderboard.leaderboard import leaderboard
    from calipers.errors import CalipersError, Incomplete, InputError
    from calipers.metrics.metric import Metric
    from calipers.metrics.reduce import mean
    from calipers.pipeline import read, score
    from calipers.reports.page import load
    from calipers.reports.result import Result
    from calipers.rollouts.column import Column
    from calipers.rollouts.groups import Groups
    from calipers.rollouts.table import Rollouts
    from calipers.running.perform import evaluate
    from calipers.stats.estimate import Estimate
    from calipers.systems.evsys.benchmark import Benchmark, BenchmarkScore, run_benchmark
    from calipers.systems.harbor.metrics import metric as harbor_metric
    from calipers.systems.harbor.metrics import pass_ladder as harbor_pass_ladder
    from calipers.systems.lm_eval.metrics.aggregations import aggregate as lm_eval_aggregate
    from calipers.systems.lm_eval.metrics.bootstrap import stderr as lm_eval_stderr
    from calipers.systems.lm_eval.pipelines import filtered as lm_eval_filtered
    from calipers.systems.lm_eval.pipelines import pipeline as lm_eval_pipeline
    from calipers.systems.nemo_gym.collect.collect import collect
    from calipers.systems.nemo_gym.collect.request import Collecting
    from calipers.systems.nemo_gym.inputs import Materializing
    from calipers.systems.nemo_gym.lent.reward_profile import compute_pass_majority_metrics


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'calipers' has no attribute {name!r}")
    import importlib

    module, _, there = _HOME[name].partition(":")
    value = getattr(importlib.import_module(module), there or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
