"""Calipers turns rollouts into numbers you can defend.

Names are resolved on first use (PEP 562), so that ``import calipers`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {  # public name -> its module, and after a colon its name in that module if different
    "Audit": "calipers.analyses.audit",
    "Benchmark": "calipers.systems.evsys.benchmark",
    "BenchmarkScore": "calipers.systems.evsys.benchmark",
    "CalipersError": "calipers.errors",
    "Certified": "calipers.analyses.certify",
    "Collecting": "calipers.systems.nemo_gym.collect.request",
    "Column": "calipers.rollouts.column",
    "Comparison": "calipers.analyses.compare",
    "Conversion": "calipers.formats.convert",
    "Curves": "calipers.analyses.curve",
    "Estimate": "calipers.stats.estimate",
    "Explanation": "calipers.glossary",
    "Gate": "calipers.analyses.gate",
    "Groups": "calipers.rollouts.column",
    "Incomplete": "calipers.errors",
    "InputError": "calipers.errors",
    "HtmlReport": "calipers.web",
    "ItemReport": "calipers.analyses.items",
    "JudgeCheck": "calipers.analyses.judge_check",
    "Leaderboard": "calipers.analyses.leaderboard",
    "Materializing": "calipers.systems.nemo_gym.collect.request",
    "Matrix": "calipers.analyses.matrix.document",
    "Metric": "calipers.metrics",
    "NotPassed": "calipers.errors",
    "Page": "calipers.reports.page",
    "Preregistration": "calipers.analyses.certify.preregister",
    "Rescored": "calipers.analyses.rescore",
    "Result": "calipers.reports.result",
    "Rollouts": "calipers.rollouts.table",
    "RunSettings": "calipers.running",
    "Study": "calipers.analyses.plan_study",
    "Verdict": "calipers.verifiers",
    "Verification": "calipers.analyses.certify.verify",
    "audit": "calipers.analyses.audit",
    "certify": "calipers.analyses.certify",
    "collect": "calipers.systems.nemo_gym.collect.collect",
    "compare": "calipers.analyses.compare.compare",
    "compute_pass_majority_metrics": "calipers.systems.nemo_gym.pass_majority",
    "convert": "calipers.formats.convert",
    "curve": "calipers.analyses.curve",
    "evaluate": "calipers.running.perform",
    "explain": "calipers.glossary",
    "gate": "calipers.analyses.gate.gate",
    "harbor_metric": "calipers.systems.harbor.metrics:metric",
    "harbor_pass_ladder": "calipers.systems.harbor.metrics:pass_ladder",
    "items": "calipers.analyses.items",
    "judge_check": "calipers.analyses.judge_check",
    "leaderboard": "calipers.analyses.leaderboard",
    "lm_eval_aggregate": "calipers.systems.lm_eval.aggregations:aggregate",
    "lm_eval_filtered": "calipers.systems.lm_eval.pipelines:filtered",
    "lm_eval_pipeline": "calipers.systems.lm_eval.pipelines:pipeline",
    "lm_eval_stderr": "calipers.systems.lm_eval.aggregations:stderr",
    "load": "calipers.reports.page",
    "matrix": "calipers.analyses.matrix",
    "mean": "calipers.metrics",
    "merge_partials": "calipers.partials",
    "metric": "calipers.metrics",
    "plan": "calipers.analyses.plan_study",
    "preregister": "calipers.analyses.certify.preregister",
    "read": "calipers.pipeline",
    "report": "calipers.web",
    "rescore": "calipers.analyses.rescore",
    "run": "calipers.running.perform",
    "run_benchmark": "calipers.systems.evsys.benchmark",
    "score": "calipers.pipeline",
    "score_cached": "calipers.partials",
    "verifier": "calipers.verifiers.user_code",
    "verify": "calipers.analyses.certify.verify",
    "write_partial": "calipers.partials",
}

_STABLE = """
    Benchmark BenchmarkScore CalipersError Column Comparison Estimate Groups Incomplete InputError Metric Result
    Rollouts compare compute_pass_majority_metrics evaluate harbor_metric harbor_pass_ladder lm_eval_aggregate
    lm_eval_filtered lm_eval_pipeline lm_eval_stderr mean read run_benchmark score
"""
_PROVISIONAL = """
    Audit Certified Collecting Conversion Curves Explanation Gate HtmlReport ItemReport JudgeCheck Leaderboard
    Materializing Matrix NotPassed Page Preregistration Rescored RunSettings Study Verdict Verification audit certify
    collect convert curve explain gate items judge_check leaderboard load matrix merge_partials metric plan preregister
    report rescore run score_cached verifier verify write_partial
"""
_STABILITY = {  # public name -> its stability; docs/api.md defines the words
    **dict.fromkeys(_STABLE.split(), "stable"),
    **dict.fromkeys(_PROVISIONAL.split(), "provisional"),
}

__all__ = [
    "Audit",
    "Benchmark",
    "BenchmarkScore",
    "CalipersError",
    "Certified",
    "Collecting",
    "Column",
    "Comparison",
    "Conversion",
    "Curves",
    "Estimate",
    "Explanation",
    "Gate",
    "Groups",
    "HtmlReport",
    "Incomplete",
    "InputError",
    "ItemReport",
    "JudgeCheck",
    "Leaderboard",
    "Materializing",
    "Matrix",
    "Metric",
    "NotPassed",
    "Page",
    "Preregistration",
    "Rescored",
    "Result",
    "Rollouts",
    "RunSettings",
    "Study",
    "Verdict",
    "Verification",
    "__version__",
    "audit",
    "certify",
    "collect",
    "compare",
    "compute_pass_majority_metrics",
    "convert",
    "curve",
    "evaluate",
    "explain",
    "gate",
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
    "matrix",
    "mean",
    "merge_partials",
    "metric",
    "plan",
    "preregister",
    "read",
    "report",
    "rescore",
    "run",
    "run_benchmark",
    "score",
    "score_cached",
    "verifier",
    "verify",
    "write_partial",
]

if TYPE_CHECKING:
    from calipers.analyses.audit import Audit, audit
    from calipers.analyses.certify import Certified, certify
    from calipers.analyses.certify.preregister import Preregistration, preregister
    from calipers.analyses.certify.verify import Verification, verify
    from calipers.analyses.compare import Comparison
    from calipers.analyses.compare.compare import compare
    from calipers.analyses.curve import Curves, curve
    from calipers.analyses.gate import Gate
    from calipers.analyses.gate.gate import gate
    from calipers.analyses.items import ItemReport, items
    from calipers.analyses.judge_check import JudgeCheck, judge_check
    from calipers.analyses.leaderboard import Leaderboard, leaderboard
    from calipers.analyses.matrix import matrix
    from calipers.analyses.matrix.document import Matrix
    from calipers.analyses.plan_study import Study, plan
    from calipers.analyses.rescore import Rescored, rescore
    from calipers.errors import CalipersError, Incomplete, InputError, NotPassed
    from calipers.formats.convert import Conversion, convert
    from calipers.glossary import Explanation, explain
    from calipers.metrics import Metric, mean, metric
    from calipers.partials import merge_partials, score_cached, write_partial
    from calipers.pipeline import read, score
    from calipers.reports.page import Page, load
    from calipers.reports.result import Result
    from calipers.rollouts.column import Column, Groups
    from calipers.rollouts.table import Rollouts
    from calipers.running import RunSettings
    from calipers.running.perform import evaluate, run
    from calipers.stats.estimate import Estimate
    from calipers.systems.evsys.benchmark import Benchmark, BenchmarkScore, run_benchmark
    from calipers.systems.harbor.metrics import metric as harbor_metric
    from calipers.systems.harbor.metrics import pass_ladder as harbor_pass_ladder
    from calipers.systems.lm_eval.aggregations import aggregate as lm_eval_aggregate
    from calipers.systems.lm_eval.aggregations import stderr as lm_eval_stderr
    from calipers.systems.lm_eval.pipelines import filtered as lm_eval_filtered
    from calipers.systems.lm_eval.pipelines import pipeline as lm_eval_pipeline
    from calipers.systems.nemo_gym.collect.collect import collect
    from calipers.systems.nemo_gym.collect.request import Collecting, Materializing
    from calipers.systems.nemo_gym.pass_majority import compute_pass_majority_metrics
    from calipers.verifiers import Verdict
    from calipers.verifiers.user_code import verifier
    from calipers.web import HtmlReport, report


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'calipers' has no attribute {name!r}")
    import importlib

    module, _, attribute = _HOME[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
