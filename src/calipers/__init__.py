"""Calipers turns rollouts into numbers one can defend.

Names are resolved on first use (PEP 562), so that ``import calipers`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {  # public name -> the module it lives in
    "Benchmark": "calipers.systems.evsys.benchmark",
    "BenchmarkScore": "calipers.systems.evsys.benchmark",
    "CalipersError": "calipers.errors",
    "Column": "calipers.rollouts.column",
    "Comparison": "calipers.analyses.compare.result",
    "Estimate": "calipers.stats.estimate",
    "Groups": "calipers.rollouts.groups",
    "Incomplete": "calipers.errors",
    "InputError": "calipers.errors",
    "Metric": "calipers.metrics.metric",
    "Result": "calipers.reports.result",
    "Rollouts": "calipers.rollouts.table",
    "compare": "calipers.analyses.compare.compare",
    "curve": "calipers.analyses.curve.curve",
    "evaluate": "calipers.running.perform",
    "items": "calipers.analyses.items.items",
    "judge_check": "calipers.analyses.judge_check.judge_check",
    "read": "calipers.pipeline",
    "run_benchmark": "calipers.systems.evsys.benchmark",
    "score": "calipers.pipeline",
}

__all__ = [
    "Benchmark",
    "BenchmarkScore",
    "CalipersError",
    "Column",
    "Comparison",
    "Estimate",
    "Groups",
    "Incomplete",
    "InputError",
    "Metric",
    "Result",
    "Rollouts",
    "__version__",
    "compare",
    "curve",
    "evaluate",
    "items",
    "judge_check",
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
    from calipers.errors import CalipersError, Incomplete, InputError
    from calipers.metrics.metric import Metric
    from calipers.pipeline import read, score
    from calipers.reports.result import Result
    from calipers.rollouts.column import Column
    from calipers.rollouts.groups import Groups
    from calipers.rollouts.table import Rollouts
    from calipers.running.perform import evaluate
    from calipers.stats.estimate import Estimate
    from calipers.systems.evsys.benchmark import Benchmark, BenchmarkScore, run_benchmark


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'calipers' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
