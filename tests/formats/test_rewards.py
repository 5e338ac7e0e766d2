import inspect

import pytest

from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn, from_groups


def test_the_types_are_evsys_own():
    assert [(one.__name__, list(inspect.signature(one).parameters)) for one in (Turn, Trajectory, TrajectoryGroup)] == [
        ("Turn", ["prompt_tokens", "completion_tokens", "logprobs", "text"]),
        ("Trajectory", ["turns", "reward", "metadata"]),
        ("TrajectoryGroup", ["trajectories", "tags"]),
    ]
    assert TrajectoryGroup([Trajectory([], 1), Trajectory([], 0.5)]).rewards == [1, 0.5]
    assert (Trajectory([]).reward, Trajectory([]).metadata, TrajectoryGroup([]).tags) == (0.0, {}, [])
    assert Turn([], [], []).text == ""


@pytest.mark.parametrize(
    ("usages", "columns"),
    [
        ([{"latency_s": 2, "cost_usd": None}, None], {"latency_s": [2.0, None]}),  # unknown is a gap, not 0
        ([{"prompt_tokens": 3}, {"completion_tokens": 0}], {"input_tokens": [3.0, None], "output_tokens": [None, 0.0]}),
        ([{}, {"cached_tokens": 9}], {}),
    ],
)
def test_usage_is_columns_by_our_names(usages, columns):
    tries = [Trajectory([], 1.0, {} if usage is None else {"usage": usage}) for usage in usages]
    part = from_groups([TrajectoryGroup([]), TrajectoryGroup(tries)])
    found = {
        name: [value if there else None for value, there in zip(column.values.tolist(), column.given.tolist())]
        for name, column in part.columns.items()
    }
    assert found == columns
    assert (part.task.tolist(), part.sample.tolist()) == ([1, 1], [0, 1])
