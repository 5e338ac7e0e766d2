"""EvSys' benchmarks and their tasks; lent as ``evsys_sdk.benchmark``."""

from __future__ import annotations

from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn
from calipers.systems.evsys.benchmark import Benchmark, BenchmarkScore, BenchmarkTaskResult, eval_metrics, run_benchmark
from calipers.tasks.benchmark_row import (
    E2BVerifier,
    HarborTask,
    InProcessVerifier,
    LLMJudgeVerifier,
    detect_format,
    harbor_task_from_dict,
    iter_jsonl,
    parse_rows,
    to_dict,
)

__all__ = [
    "Benchmark",
    "BenchmarkScore",
    "BenchmarkTaskResult",
    "E2BVerifier",
    "HarborTask",
    "InProcessVerifier",
    "LLMJudgeVerifier",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "detect_format",
    "eval_metrics",
    "harbor_task_from_dict",
    "iter_jsonl",
    "parse_rows",
    "run_benchmark",
    "to_dict",
]
