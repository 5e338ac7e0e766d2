"""EvSys' prediction rows of a benchmark's rollouts, and handing them to a store of EvSys'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from calipers.formats.rewards import TrajectoryGroup
from calipers.tasks.benchmark_row import HarborTask, WrongType

_USAGE: Final = ("latency_s", "prompt_tokens", "completion_tokens")
_PASSED_ON: Final = ("eval_id", "task_id", "instruction", "expected", "reward", "step")


def eval_predictions(
    tasks: Sequence[HarborTask],
    groups: Sequence[TrajectoryGroup],
    *,
    eval_id: str | None = None,
    step: int | None = None,
) -> list[dict[str, Any]]:
    """A row for each rollout that survived, task by task, numbered within its task; usage is among the metadata."""
    rows = []
    for task, group in zip(tasks, groups, strict=True):
        for sample, trajectory in enumerate(group.trajectories):
            usage = trajectory.metadata.get("usage") or {}
            rows.append(
                {
                    "kind": "eval",
                    "eval_id": eval_id,
                    "task_id": task.task_id,
                    "sample_idx": sample,
                    "step": step,
                    "instruction": task.instruction,
                    "expected": getattr(task.verifier, "expected", None),
                    "reward": trajectory.reward,
                    "completion_token_ids": trajectory.turns[-1].completion_tokens if trajectory.turns else [],
                    "metadata": {**task.metadata, **{key: usage.get(key) for key in _USAGE}},
                }
            )
    return rows


def check_sink(store: Any) -> None:
    """WrongType for a store that takes no prediction rows."""
    if not any(callable(getattr(store, name, None)) for name in ("log_predictions", "add_prediction")):
        right = "expected an object with log_predictions(run_id, rows), or with add_prediction(run_id=, kind=, ...)"
        raise WrongType(f"the store is a {type(store).__name__} that does not accept predictions; {right}")


def upload_eval_rollouts(store: Any, run_id: str | None, predictions: Sequence[Mapping[str, Any]]) -> None:
    """Hand prediction rows to a store: all at once where it has ``log_predictions``, else one by one.

    Nothing is done without a store, a run or rows.
    """
    if not store or not run_id or not predictions:
        return
    check_sink(store)
    if callable(getattr(store, "log_predictions", None)):
        store.log_predictions(run_id, predictions)
        return
    for row in predictions:
        tokens = {"completion_token_ids": row.get("completion_token_ids", [])}
        store.add_prediction(
            run_id=run_id,
            kind=row.get("kind", "eval"),
            sample_idx=row.get("sample_idx", 0),
            metadata={**(row.get("metadata") or {}), **tokens},
            **{key: row.get(key) for key in _PASSED_ON},
        )
