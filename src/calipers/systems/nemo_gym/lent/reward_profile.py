"""The stand-in for ``nemo_gym.reward_profile``: aggregation, pass@k and majority@k in percent, the offline profile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel

from calipers.systems.nemo_gym import AGENT, PROFILE_ENDS, REWARD, ROLLOUT, TASK
from calipers.systems.nemo_gym.aggregate import (
    ComputeMetrics,
    Hooks,
    KeyMetrics,
    aggregate,
    checked_keys,
    encoded,
    indexed,
    means,
    reward_profile,
)
from calipers.systems.nemo_gym.lent.models import AggregateMetrics, AggregateMetricsRequest
from calipers.systems.nemo_gym.pass_majority import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)
from calipers.systems.nemo_gym.wire import agent_name

__all__ = [
    "AggregateMetrics",
    "AggregateMetricsMixin",
    "AggregateMetricsRequest",
    "Histogram",
    "RewardProfileConfig",
    "RewardProfiler",
    "add_avg_sample_std_dev",
    "compute_aggregate_metrics",
    "compute_pass_majority_metrics",
    "compute_subset_metrics",
    "highest_k_metrics",
]


class AggregateMetricsMixin:
    """The default hooks, and the route that calls the hooks."""

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return further metrics of all rows, of which there is a list per task. By default, none."""
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the key metrics. By default, every ``mean/*``."""
        return means(agent_metrics)

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Answer ``/aggregate_metrics`` with this server's own hooks."""
        return compute_aggregate_metrics(body.verify_responses, self.compute_metrics, self.get_key_metrics)


def compute_aggregate_metrics(
    verify_responses: Sequence[Mapping[str, Any]],
    compute_metrics_fn: ComputeMetrics | None = None,
    get_key_metrics_fn: KeyMetrics | None = None,
) -> AggregateMetrics:
    """Statistics of the rows of one request, per task and pooled, and the metrics of the hooks."""
    return AggregateMetrics(**aggregate(verify_responses, Hooks(compute_metrics_fn, get_key_metrics_fn)).to_dict())


class RewardProfileConfig(BaseModel):
    """The input files of the offline profile."""

    materialized_inputs_jsonl_fpath: str
    rollouts_jsonl_fpath: str
    allow_partial_rollouts: bool = False


BINS: Final = 64


class Histogram:
    """The number of values in each of 64 bins of equal width between the smallest and the largest value."""

    def __init__(self, values: Sequence[float]) -> None:
        counts, edges = np.histogram(np.asarray(values, dtype=np.float64), bins=BINS)
        self.histogram: list[int] = counts.tolist()  # [64]
        self.bins: list[float] = edges.tolist()  # [65] the edges of the bins

    def to_json(self, run: object = None) -> dict[str, Any]:
        """The histogram in the format of Weights & Biases."""
        return {"_type": "histogram", "values": self.histogram, "bins": self.bins}


Aligned = tuple[Mapping[str, Any], Mapping[str, Any]]


class RewardProfiler:
    """The offline profile, computed from rollouts and their inputs."""

    def align_rows_and_results(
        self,
        rows: Sequence[Mapping[str, Any]],
        results: Sequence[Mapping[str, Any]],
        allow_partial_rollouts: bool = False,
    ) -> list[Aligned]:
        """Every input with its rollout, sorted by task and rollout index.

        ValueError for a duplicate, a rollout without an input, and, unless ``allow_partial_rollouts``, an input without
        a rollout.
        """
        planned, completed = checked_keys(rows, results, allow_partial=allow_partial_rollouts)
        return [(planned[key], completed[key]) for key in sorted(planned.keys() & completed.keys())]

    def profile_completion_summary(
        self, rows: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The numbers of planned, completed and extra rollouts, and of complete, partial and missing tasks."""
        planned, present = indexed(rows, "input"), indexed(results, "rollout")
        completed = planned.keys() & present.keys()
        expected_by_task, completed_by_task = (
            Counter(task for task, _ in planned),
            Counter(task for task, _ in completed),
        )
        complete = sum(completed_by_task[task] == count for task, count in expected_by_task.items())
        missing = sum(completed_by_task[task] == 0 for task in expected_by_task)
        return {
            "expected_rollout_rows": len(planned),
            "completed_rollout_rows": len(completed),
            "missing_rollout_rows": len(planned) - len(completed),
            "extra_rollout_rows": len(present.keys() - planned.keys()),
            "reward_profile_completion_pct": 100.0 * len(completed) / len(planned) if planned else 100.0,
            "total_input_rows": len(expected_by_task),
            "complete_input_rows": complete,
            "partial_input_rows": len(expected_by_task) - complete - missing,
            "missing_input_rows": missing,
        }

    def rollout_info_from_result(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """A rollout's entry in its group: its indices, its reward and all its numbers."""
        info = {"rollout_id": f"{result[TASK]}:{result[ROLLOUT]}", TASK: result[TASK], ROLLOUT: result[ROLLOUT]}
        if REWARD in result:
            info[REWARD] = result[REWARD]
        usage = (result.get("response") or {}).get("usage") or {}
        others = {name: value for name, value in result.items() if name not in (TASK, ROLLOUT, REWARD, "response")}
        return {**info, **_numbers(usage), **_numbers(others)}

    def profile_from_data(
        self,
        rows: Sequence[Mapping[str, Any]],
        results: Sequence[Mapping[str, Any]],
        allow_partial_rollouts: bool = False,
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(a group per task, an entry per agent), each with a ``histogram/KEY`` for every numeric key.

        ValueError as in `align_rows_and_results`. A key with an infinite value has no histogram.
        """
        aligned = self.align_rows_and_results(rows, results, allow_partial_rollouts)
        profile = reward_profile(rows, results, allow_partial=allow_partial_rollouts)
        by_task: dict[Any, list[Mapping[str, Any]]] = {}
        by_agent: dict[Any, list[Mapping[str, Any]]] = {}
        for row, result in aligned:
            by_task.setdefault(row[TASK], []).append(result)
            by_agent.setdefault(agent_name(row), []).append(result)
        groups = [_with_histograms(group, by_task[group[TASK]], "sample") for group in profile.tasks]
        agents = [_with_histograms(entry, by_agent[entry[AGENT]["name"]], AGENT) for entry in profile.agents]
        return groups, agents

    def prepare_for_serialization(self, metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The metrics without histograms, which are not written to JSON."""
        return [{key: value for key, value in entry.items() if not key.startswith("histogram")} for entry in metrics]

    def write_to_disk(
        self,
        group_level_metrics: Sequence[Mapping[str, Any]],
        agent_level_metrics: Sequence[Mapping[str, Any]],
        base_output_fpath: Path,
    ) -> tuple[Path, Path]:
        """Write ``<stem>_reward_profiling.jsonl`` and ``<stem>_agent_metrics.json`` beside a file; return the paths."""
        tasks, agents = (base_output_fpath.with_name(base_output_fpath.stem + end) for end in PROFILE_ENDS)
        lines = (encoded(group) + b"\n" for group in self.prepare_for_serialization(group_level_metrics))
        tasks.write_bytes(b"".join(lines))
        agents.write_bytes(encoded(self.prepare_for_serialization(agent_level_metrics)))
        return tasks, agents


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numeric values of an object; true and false count as 1 and 0."""
    numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
    return {name: int(value) if isinstance(value, bool) else value for name, value in numbers.items()}


def _with_histograms(entry: Mapping[str, Any], results: Sequence[Mapping[str, Any]], before: str) -> dict[str, Any]:
    """An entry with a histogram for every key with a mean, inserted before the key ``before``."""
    rows = [_numbers({**result, **((result.get("response") or {}).get("usage") or {})}) for result in results]
    histograms = {}
    for key in (name.removeprefix("mean/") for name in entry if name.startswith("mean/")):
        values = [row[key] for row in rows if key in row and not math.isnan(row[key])]
        with suppress(ValueError):  # the range of the values is not finite, or too narrow for 64 bins
            histograms[f"histogram/{key}"] = Histogram(values)
    items = list(entry.items())
    position = [name for name, _ in items].index(before)
    return {**dict(items[:position]), **histograms, **dict(items[position:])}
