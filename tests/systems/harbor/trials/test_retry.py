"""Which trials are retried, and after what time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.systems.harbor.trials.job import HOPELESS, Retry


@pytest.mark.parametrize(
    ("settings", "exception", "again"),
    [
        ({}, None, False),
        ({}, "RuntimeError", True),
        *(({}, name, False) for name in sorted(HOPELESS)),
        ({"exclude_exceptions": []}, "AgentTimeoutError", True),
        ({"exclude_exceptions": None}, "AgentTimeoutError", True),
        ({"include_exceptions": ["A"]}, "B", False),
        ({"include_exceptions": ["A"]}, "A", True),
        ({"include_exceptions": []}, "A", True),  # none named is all of them
        ({"include_exceptions": ["AgentTimeoutError"]}, "AgentTimeoutError", False),  # excluded all the same
    ],
)
def test_what_is_worth_another_try(settings, exception, again):
    assert Retry(**settings).worthwhile(exception) is again


@given(attempt=st.integers(0, 5000), times=st.floats(1, 10), least=st.floats(0.1, 10), most=st.floats(10, 100))
def test_waits_grow_up_to_their_limit(attempt, times, least, most):
    retry = Retry(wait_multiplier=times, min_wait_sec=least, max_wait_sec=most)
    assert least <= retry.seconds(attempt) <= retry.seconds(attempt + 1) <= most


def test_by_default_a_second_each():
    assert [Retry().seconds(attempt) for attempt in range(3)] == [1.0, 1.0, 1.0]
