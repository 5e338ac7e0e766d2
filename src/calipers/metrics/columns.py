"""Statistics of any numeric column, pooled over rollouts."""

from __future__ import annotations

from calipers.metrics.aggregate import largest, median, percentile, pooled, smallest, spread
from calipers.metrics.metric import Metric
from calipers.metrics.reduce import each, task_sum_and_count
from calipers.rollouts.sums import total

_COLUMN = {"column": str}
EXTREME = "the extremes of a sample say little about the extremes of its source"
TOTAL = "a sum describes these rollouts; it estimates nothing beyond them"
_SPREAD = "no interval is computed for a standard deviation"

MEAN = Metric("mean", task_sum_and_count, pooled, ("column",), _COLUMN, of_rewards=True, higher_is_better=None)
SUM = Metric(
    "sum",
    each,  # a sum of the tasks' sums would be rounded twice
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
    breaks=frozenset({"doubling"}),  # n - 1 tells twice the data from once
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
    breaks=frozenset({"doubling"}),  # interpolation falls between other order statistics
)
