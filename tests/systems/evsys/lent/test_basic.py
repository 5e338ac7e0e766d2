import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.systems.evsys.lent.basic import PASS_THRESHOLD
from calipers.systems.evsys.lent.registry import get_metric, list_metrics


def test_the_threshold_is_one():
    assert PASS_THRESHOLD == 1.0


# The rules of EvSys' Metrics page, written down once more without any of our code.
def passing(rewards):
    return [reward >= 1.0 for reward in rewards]


def mean_reward(tasks):
    tasks = [rewards for rewards in tasks if rewards]
    return math.fsum(math.fsum(rewards) / len(rewards) for rewards in tasks) / len(tasks) if tasks else 0.0


def pass_rate(tasks):
    pooled = [reward for rewards in tasks for reward in rewards]
    return sum(passing(pooled)) / len(pooled) if pooled else 0.0


def share(tasks, k, holds):
    tasks = [rewards for rewards in tasks if rewards]
    return sum(holds(passing(rewards[:k])) for rewards in tasks) / len(tasks) if tasks else 0.0


REBUILT = {
    "avg": mean_reward,
    "mean_reward": mean_reward,
    "pass@1": lambda tasks: share(tasks, 1, any),
    "pass@3": lambda tasks: share(tasks, 3, any),
    "pass^3": lambda tasks: share(tasks, 3, all),
    "pass_rate": pass_rate,
}

reward = st.one_of(
    st.sampled_from([0, 1, True, 0.0, 1.0, 2.0, -1.0, 0.5, 0.9999999, math.nan, math.inf]),
    st.floats(-1e6, 1e6),
    st.integers(-5, 5),
)


@given(st.lists(st.lists(reward, max_size=6), max_size=8))
def test_every_class_follows_the_rules(tasks):
    for name in list_metrics():
        found = get_metric(name)().compute(tasks)
        assert type(found) is float
        assert found == pytest.approx(REBUILT[name](tasks), rel=1e-12, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", REBUILT)
def test_anything_that_can_be_walked_will_do(name):
    metric = get_metric(name)()
    expected = metric.compute([[1, 0], [1], []])
    assert metric.compute(((1, 0), (1,), ())) == expected
    assert metric.compute(iter([iter([1, 0]), iter([1]), iter([])])) == expected
    assert metric.compute([np.array([1.0, 0.0]), np.array([1]), np.array([])]) == expected


def test_a_row_of_numpy_that_holds_a_zero_is_a_task():
    """EvSys asks such a row for its truth, and drops it as empty."""
    assert get_metric("mean_reward")().compute([np.array([0.0]), np.array([1.0])]) == 0.5


@pytest.mark.parametrize("name", REBUILT)
@pytest.mark.parametrize("bad", [None, "1", [1]])
def test_what_is_no_number_is_a_type_error(name, bad):
    with pytest.raises(TypeError):
        get_metric(name)().compute([[1.0], [bad]])
