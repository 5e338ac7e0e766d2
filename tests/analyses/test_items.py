"""The tasks of a benchmark over runs, in one line."""

import pytest

from calipers.analyses.items import items


@pytest.mark.parametrize(
    ("runs", "headline"),
    [([[[1]]], "1 task of 1 run"), ([[[1], [0]], [[1], [1]]], "2 tasks of 2 runs")],
)
def test_the_headline_counts_tasks_and_runs(runs, headline):
    assert items(*runs).headline() == headline
