"""What NeMo Gym ships for hooks; lent as ``nemo_gym.reward_profile``. Percent and names are its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calipers.systems.nemo_gym.aggregate import ComputeMetrics, Hooks, KeyMetrics, aggregate, means, reward_profile
from calipers.systems.nemo_gym.lent.models import AggregateMetrics, AggregateMetricsRequest
from calipers.systems.nemo_gym.metrics import highest_k, pass_majority, sample_spread, subsets

__all__ = [
    "AggregateMetrics",
    "AggregateMetricsMixin",
    "AggregateMetricsRequest",
    "RewardProfiler",
    "add_avg_sample_std_dev",
    "compute_aggregate_metrics",
    "compute_pass_majority_metrics",
    "compute_subset_metrics",
    "highest_k_metrics",
]

ScoreFn = Callable[[Any], Mapping[str, float]]


class AggregateMetricsMixin:
    """The two hooks with what they do unless somebody overrides them, and the route that calls them."""

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """More metrics over all rows, a list for each task; none."""
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The headline numbers: every ``mean/*``."""
        return means(agent_metrics)

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Answer ``/aggregate_metrics`` with this server's own hooks."""
        return compute_aggregate_metrics(body.verify_responses, self.compute_metrics, self.get_key_metrics)


def compute_aggregate_metrics(
    verify_responses: Sequence[Mapping[str, Any]],
    compute_metrics_fn: ComputeMetrics | None = None,
    get_key_metrics_fn: KeyMetrics | None = None,
) -> AggregateMetrics:
    """Statistics of the rows of one request, per task and pooled, and what the hooks add."""
    return AggregateMetrics(**aggregate(verify_responses, Hooks(compute_metrics_fn, get_key_metrics_fn)).to_dict())


def compute_pass_majority_metrics(
    tasks: Sequence[Sequence[Mapping[str, Any]]], score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], list[list[dict[str, float]]], list[str], int]:
    """(metrics, scores of every rollout, their names, the largest k); see `metrics.pass_majority`."""
    return pass_majority(tasks, score_fn, answer_key)


def add_avg_sample_std_dev(
    metrics: dict[str, Any], score_dicts: list[list[dict[str, float]]], score_names: Sequence[str], max_k: int
) -> None:
    """Add the mean spread within tasks to the metrics, in the unit of the scores."""
    metrics.update(sample_spread(score_dicts, score_names, max_k))


def compute_subset_metrics(
    tasks: Sequence[Sequence[Mapping[str, Any]]],
    subset_key: str,
    score_fn: ScoreFn | None = None,
    answer_key: str | None = None,
) -> dict[str, Any]:
    """The pass and majority metrics of each subset of tasks, as ``SUBSET/METRIC``."""
    subset_metrics: dict[str, Any] = {}
    for subset, some in subsets(tasks, subset_key).items():
        metrics = pass_majority(some, score_fn, answer_key)[0]
        metrics.pop("per_sample_aggregate", None)
        subset_metrics.update({f"{subset}/{name}": value for name, value in metrics.items()})
    return subset_metrics


def highest_k_metrics(
    agent_metrics: Mapping[str, Any],
    pattern: str,
    score_names: Sequence[str] | None = None,
    exclude_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The metrics of a pattern such as ``pass@{k}`` at the largest k there is."""
    return highest_k(agent_metrics, pattern, score_names, exclude_names)


class RewardProfiler:
    """The offline profile: rollouts joined with their inputs."""

    def profile_from_data(
        self, rows: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(a group for each task, an entry for each agent); inputs without a rollout are allowed."""
        profile = reward_profile(rows, results, allow_partial=True)
        return profile.tasks, profile.agents
