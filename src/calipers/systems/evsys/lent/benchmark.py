"""EvSys' benchmarks, their tasks, and their rollouts through Harbor.

Lent as ``evsys_sdk.benchmark``, and as ``evsys_sdk.training.harbor_eval``, ``harbor_engine`` and ``trajectory``.
``max_turns`` and ``renderer_name`` are taken and change nothing: the agent that asks the model has one turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn
from calipers.systems.evsys.benchmark import Benchmark, BenchmarkScore, BenchmarkTaskResult, eval_metrics, run_benchmark
from calipers.systems.evsys.predictions import eval_predictions as eval_predictions
from calipers.systems.evsys.predictions import upload_eval_rollouts as upload_eval_rollouts
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


async def run_harbor_rollouts(
    tasks: Sequence[HarborTask],
    *,
    model_name: str,
    model_path: str | None,
    workspace_dir: Path,
    max_turns: int = 1,
    temperature: float = 1.0,
    n_concurrent: int = 4,
    **settings: Any,
) -> list[TrajectoryGroup]:
    """The rollouts of each task that survived, in the order of the tasks; see `Benchmark.score_via_harbor`."""
    score = await Benchmark("", list(tasks)).score_via_harbor(
        model_name=model_name,
        model_path=model_path,
        workspace_dir=workspace_dir,
        temperature=temperature,
        n_concurrent=n_concurrent,
        **settings,
    )
    return score.rollouts


async def score_via_harbor(
    tasks: Sequence[HarborTask],
    *,
    model_name: str,
    model_path: str | None,
    workspace_dir: Path,
    temperature: float = 0.0,
    n_concurrent: int = 8,
    **settings: Any,
) -> list[TrajectoryGroup]:
    """As `run_harbor_rollouts`, with the temperature and the concurrency of an evaluation."""
    return await run_harbor_rollouts(
        tasks,
        model_name=model_name,
        model_path=model_path,
        workspace_dir=workspace_dir,
        temperature=temperature,
        n_concurrent=n_concurrent,
        **settings,
    )
