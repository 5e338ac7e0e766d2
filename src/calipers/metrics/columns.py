"""Statistics of any numeric column, and of the usage of rollouts: time, tokens and cost."""

from __future__ import annotations

from functools import partial

import numpy as np

from calipers.metrics import (
    PASS_THRESHOLD,
    Metric,
    each,
    largest,
    mean,
    median,
    passed,
    percentile,
    pooled,
    smallest,
    spread,
    task_mean,
    task_sum_and_count,
)
from calipers.rollouts.column import Column, Floats, Groups, total

_COLUMN = {"column": str}
# why a metric has no interval
EXTREME = "the extremes of a sample say little about the extremes of its source"
TOTAL = "a sum describes these rollouts; it estimates nothing beyond them"
_SPREAD = "no interval is computed for a standard deviation"

MEAN = Metric("mean", task_sum_and_count, pooled, ("column",), _COLUMN, of_rewards=True, higher_is_better=None)
SUM = Metric(
    "sum",
    each,  # a sum of task sums would be rounded twice
    total,
    ("column",),
    _COLUMN,
    rows=True,
    higher_is_better=None,
    no_interval=TOTAL,
    breaks=frozenset({"doubling"}),
)
MIN = Metric("min", each, smallest, ("column",), _COLUMN, rows=True, higher_is_better=None, no_interval=EXTREME)
MAX = Metric("max", each, largest, ("column",), _COLUMN, rows=True, higher_is_better=None, no_interval=EXTREME)
MEDIAN = Metric("median", each, median, ("column",), _COLUMN, rows=True, higher_is_better=None, quantile=50.0)
STD = Metric(
    "std",
    each,
    spread,
    ("column",),
    _COLUMN,
    rows=True,
    higher_is_better=None,
    no_interval=_SPREAD,
    breaks=frozenset({"doubling"}),  # because of n - 1
)
PERCENTILE = Metric(
    "percentile",
    each,
    percentile,
    ("column",),
    {"column": str, "q": float},
    aggregated=("q",),
    rows=True,
    higher_is_better=None,
    quantile="q",
    breaks=frozenset({"doubling"}),  # the interpolation uses other order statistics
)


def task_tokens(sent: Column, received: Column, by: Groups) -> Column:
    """The mean number of input and output tokens per sample, by task, [T].

    If one of a sample's two counts is missing, it counts 0; if both are missing, the sample is a gap.
    """
    either = sent.given | received.given
    tokens = np.where(sent.given, sent.values, 0.0) + np.where(received.given, received.values, 0.0)
    return task_mean(Column(tokens, either), by)


def task_total(spent: Column, by: Groups) -> Column:
    """The sum over all samples of each task, [T]; a gap for a task none of whose samples reports the usage."""
    return Column(by.sum(spent), by.count(spent.given) > 0)


def spent_and_solved(spent: Column, rewards: Column, by: Groups, threshold: float) -> Column:
    """The total usage of each task, and 1 if any of its samples passes, [T, 2]; a gap for a task without usage."""
    solved = by.count(passed(rewards, threshold)) > 0
    return Column(np.stack([by.sum(spent), solved.astype(float)], axis=1), by.count(spent.given) > 0)


def spent_for_each(counts: Floats) -> Floats:
    """The total usage divided by the number of solved tasks, ``[..., T, 2] -> [...]``; NaN if no task is solved."""
    solved = total(counts[..., 1])
    return total(counts[..., 0]) / np.where(solved > 0, solved, np.nan)


_PER_TASK = partial(Metric, aggregate=mean, higher_is_better=False)

TIME_PER_TASK = _PER_TASK("time_per_task", reduce=task_mean, reads=("latency_s",))
TOKENS_PER_TASK = _PER_TASK("tokens_per_task", reduce=task_tokens, reads=("input_tokens", "output_tokens"))
COST_PER_TASK = _PER_TASK("cost_per_task", reduce=task_mean, reads=("cost_usd",))
TOTAL_COST_PER_TASK = _PER_TASK("total_cost_per_task", reduce=task_total, reads=("cost_usd",))
_PER_SOLVED = partial(
    Metric,
    reduce=spent_and_solved,
    aggregate=spent_for_each,
    params={"threshold": PASS_THRESHOLD},
    higher_is_better=False,
    no_interval="no interval is computed for a ratio of totals that may divide by no pass",
)
COST_PER_SOLVED = _PER_SOLVED("cost_per_solved", reads=("cost_usd", "reward"))
TIME_PER_SOLVED = _PER_SOLVED("time_per_solved", reads=("latency_s", "reward"))


def _latency(q: float, breaks: frozenset[str] = frozenset()) -> Metric:
    rule = partial(percentile, q=q)
    return Metric(
        f"latency_p{q:g}", each, rule, ("latency_s",), rows=True, quantile=q, higher_is_better=False, breaks=breaks
    )


LATENCY_P50 = _latency(50.0)
LATENCY_P90 = _latency(90.0, breaks=frozenset({"doubling"}))
LATENCY_P99 = _latency(99.0, breaks=frozenset({"doubling"}))
