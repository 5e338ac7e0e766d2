"""The axis of pictures: the range of rewards, and never what happens to be near."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.reports.axes import axes_of, axis_from, is_range_known
from calipers.reports.document import Picture
from calipers.reports.result import document
from calipers.reports.result_page import pictures
from calipers.reports.terminal import drawn, render
from calipers.web.draw import UNIT, scale_on

NOTE = "range not given: --range LOW,HIGH"


def page(rewards, *metrics, **settings):
    return render(document(calipers.score(rewards, list(metrics) or None, **settings)), columns=80)


@pytest.mark.parametrize(
    ("points", "settings", "expected"),
    [
        ([0.45, 0.55], {}, (0, 1)),
        ([0.45, 0.55], {"seen": (0.2, 0.7)}, (0, 1)),  # 0 to 1, not what happens to be near
        ([2.5, 3.2], {"seen": (1, 5)}, (1, 5)),
        ([2.5, 3.2], {"seen": (1, 5), "declared": (0, 10)}, (0, 10)),
        ([0.3, 0.4], {"seen": (1, 5), "passes": True}, (0, 1)),
        ([-6.3, 18.9], {"seen": (0, 10)}, (-7, 19)),  # the ends of an interval beyond the rewards are not cut off
        ([-0.9, -0.8], {"seen": (-2.99866, 0.961923)}, (-3.0, 1.0)),
        ([2.0, 2.0], {"seen": (2.0, 2.0)}, None),
        ([], {}, None),
        ([0.2, 0.3], {"seen": None}, (0, 1)),  # a statistic of a column
    ],
)
def test_the_axis_is_the_range(points, settings, expected):
    assert axis_from(points, **settings) == expected


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5),
    st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).map(sorted).map(tuple),
)
def test_no_point_and_no_reward_is_outside_the_axis(points, seen):
    axis = axis_from(points, seen=seen)
    if axis is not None:
        wide = axis[1] - axis[0]
        assert axis[0] - 1e-9 * wide <= min(points)
        assert max(points) <= axis[1] + 1e-9 * wide
        assert axis == (0, 1) or (axis[0] <= seen[0] + 1e-9 * wide and seen[1] <= axis[1] + 1e-9 * wide)


def test_passes_keep_0_to_1_beside_rewards_on_their_own_axis():
    rewards = [[float(1 + (task + sample) % 5) for sample in range(3)] for task in range(12)]
    result = calipers.score(rewards, ["mean_reward", "pass_rate"], threshold=4)
    group = result.groups[0]
    estimates = list(group.metrics.values())
    assert axes_of(estimates, group.ends_seen) == [(1, 5), (0, 1)]
    assert [is_range_known(each, group.ends_seen) for each in estimates] == [False, True]
    mean, rate = pictures(estimates, group.ends_seen)
    assert isinstance(mean, Picture)
    assert isinstance(rate, Picture)
    assert (mean.own_axis, rate.own_axis) == (False, True)
    assert drawn(rate).startswith("0 ")
    assert drawn(rate).endswith(" 1")


def test_a_page_says_that_the_range_is_not_given():
    rewards = [[float(1 + (task + sample) % 5) for sample in range(3)] for task in range(12)]
    assert NOTE in page(rewards)
    assert NOTE not in page(rewards, range=(1, 5))
    assert NOTE not in page([[0.1, 0.9], [0.5, 0.25]])
    assert NOTE not in page(rewards, "pass@2", threshold=4)  # passes are from 0 to 1
    assert NOTE in calipers.score(rewards)._repr_html_().replace("Range", "range")


def test_zero_is_a_tick_if_it_is_inside():
    assert scale_on((0.0, 1.0)) is UNIT
    assert 0.0 in scale_on((-1.0, 7.5)).ticks
    assert scale_on((1.0, 5.0)).ticks == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert scale_on((2.0, 7.5)).ends == (2.0, 7.5)
