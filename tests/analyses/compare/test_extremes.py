"""Comparisons by an extreme: no draw of the tasks goes beyond it, so the bootstrap says nothing of the difference."""

import pytest

import calipers

FIRST = [[1, 1], [1, 0], [0, 0], [1, 1], [1, 1], [1, 0]] * 5
SECOND = [[1, 1], [1, 0], [0, 1], [1, 1], [1, 1], [1, 0]] * 5


def worst(tasks):
    return min(sum(task) / len(task) for task in tasks)


def test_the_worst_task_of_a_run_was_higher_by_bootstrap():
    """All 1,000 draws agreed on a difference of 0.5 at p 0.017, though one more task could be as bad."""
    (finding,) = calipers.compare(FIRST, SECOND, metrics=[worst]).findings
    assert (finding.delta, finding.interval, finding.p, finding.verdict) == (0.5, None, None, "undecided")
    assert finding.why == "all bootstrap draws lie on one side of the value, as for the extremes of a sample"


@pytest.mark.parametrize(
    "metric", ["pooled_min", "max(column=reward)", "percentile(column=reward,q=0)", "percentile(column=reward,q=100)"]
)
def test_extremes_have_no_interval(metric):
    other = [[0, 0]] + [[1, 1]] * 29
    (finding,) = calipers.compare(FIRST, other, metrics=metric).findings
    assert (finding.interval, finding.p) == (None, None)
    assert finding.why == "the extremes of a sample say little about the extremes of its source"
