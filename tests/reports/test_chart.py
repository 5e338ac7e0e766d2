import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports.shown import estimate

from calipers.reports.chart import AXIS, WIDTH, bar, drawn


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [
        (0.0, (0.0, 1.0), "●───────────────────┤"),
        (0.0, (0.0, 0.0), "●····················"),
        (0.5, (0.45, 0.55), "·········├●┤·········"),
        (0.5, (0.49, 0.51), "··········●··········"),
        (None, (0.0, 1.0), ""),
        (0.5, None, ""),
        (0.5, (-0.1, 0.6), ""),  # no line from 0 to 1 holds it
        (1.5, (0.5, 1.0), ""),
        (float("nan"), (0.0, 1.0), ""),
    ],
)
def test_a_bar(value, interval, expected):
    assert bar(estimate(value, interval=interval)) == expected


UNIT = st.floats(0, 1)


@given(st.tuples(UNIT, UNIT, UNIT).map(sorted))
def test_every_bar_is_as_wide_as_its_axis(places):
    low, value, high = places
    line = drawn(value, low, high)
    assert len(line) == WIDTH == len(AXIS)
    assert line.count("●") == 1
    assert set(line) <= set("·├─●┤")
