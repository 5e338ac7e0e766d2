"""The tasks of a limit: the same as in lm-evaluation-harness, except for values that it accepts by accident."""

import pytest

from calipers.errors import InputError
from calipers.running import count_within, limit_of


@pytest.mark.parametrize(
    ("total", "limit", "taken"),
    [
        (40, 4, 4),
        (40, 0.1, 4),
        (41, 0.1, 5),  # rounded up, so that a share is never zero tasks
        (3, 0.001, 1),
        (1319, 0.999999, 1319),
        (40, 1, 1),
        (40, 1.0, 1),  # as in lm-evaluation-harness: only a number below 1 is a share
        (40, 2.0, 2),
        (40, 1000, 40),
        (40, None, 40),
        (10, 0.7, 7),
        (100, 0.29, 29),  # 28.999999999999996, rounded up
        (100, 0.07, 8),  # 7.000000000000001 rounded up, as in lm-evaluation-harness
    ],
)
def test_what_a_limit_takes(total, limit, taken):
    assert count_within(total, limit_of("--limit", limit)) == taken


@pytest.mark.parametrize("limit", [0, -1, -0.5, 1.5, 2.0001, float("nan"), float("inf")])
def test_a_limit_that_means_nothing(limit):
    with pytest.raises(InputError) as caught:
        limit_of("--limit", limit)
    said = f"--limit: is {limit:g}; expected a number of tasks, or a fraction below 1, such as 0.1"
    assert str(caught.value) == said
