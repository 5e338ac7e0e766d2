import re

import pytest

from calipers.web import draw
from calipers.web.draw import UNIT, Bracket, CurvePoint, CurveStep, Segment, Series, StepMark, scale_of


def places(markup, kind, *names):
    """The positions of the marks of a class, in per cent."""
    found = re.findall(rf'<\w+ class="{kind}[^"]*"([^>]*)>', markup)
    return [tuple(float(re.search(rf'{name}="([\d.]+)%"', attributes)[1]) for name in names) for attributes in found]


def test_an_interval_is_where_its_numbers_are():
    row = draw.interval_row(0.44, (0.339, 0.546), (0.422, 0.475), UNIT, label="0.440")
    assert places(row, "ci", "x1", "x2") == [(33.9, 54.6)]
    assert places(row, "end", "x1", "x2") == [(33.9, 33.9), (54.6, 54.6)]
    assert places(row, "point", "cx") == [(44.0,)]
    assert places(row, "bounds", "x", "width") == [(42.2, 5.3)]
    assert 'role="img"' in row
    assert 'aria-label="0.440"' in row


def test_bounds_that_coincide_can_still_be_seen_and_stay_inside():
    ((left, wide),) = places(draw.interval_row(1, (0.9, 1), (1, 1), UNIT, label=""), "bounds", "x", "width")
    assert wide >= 1
    assert left + wide <= 100


def test_a_value_without_an_interval_is_hollow_and_grey():
    row = draw.interval_row(1.0, None, None, UNIT, label="")
    assert 'class="point grey hollow"' in row
    assert "<text" not in row  # its reason stands beside it, once
    assert "ci " not in row


@pytest.mark.parametrize(
    ("values", "zero", "low", "high"),
    [
        ([0.2, 0.9], False, 0, 1),
        ([], False, 0, 1),
        ([1.5, 7.0], False, 0, 8),
        ([-3.0, 2.0], False, -4, 2),
        ([0.052, 0.168], True, 0, 0.2),  # a difference is drawn with zero
        ([-0.013, 0.159], True, -0.05, 0.2),
        ([5.0, 5.0], False, 4, 6),
        ([5.0, 5.000000000000001], False, 4, 6),  # they differ only by rounding
        ([-2e-14, 3e-14], False, -2e-14, 4e-14),
        ([-5e-324, 1e-320], False, -0.2, 0.2),
        ([-1.7e308, 1.7e308, 2.0, 6.0], False, 2, 6),  # the first two are too large for steps: they are at the ends
    ],
)
def test_a_scale_holds_every_value_in_round_steps(values, zero, low, high):
    scale = scale_of(values, zero=zero)
    on_it = [value for value in values if abs(value) < 1e300]
    assert scale.low <= min(on_it, default=0)
    assert scale.high >= max(on_it, default=0)
    assert scale.low < scale.high
    assert scale.ticks[0] == pytest.approx(scale.low)
    assert scale.ticks[-1] == pytest.approx(scale.high)
    assert len(scale.ticks) <= 8
    assert (scale.low, scale.high) == pytest.approx((low, high))


@pytest.mark.parametrize(("value", "text"), [(-0.05, "−0.05"), (0.1, "+0.1"), (0.0, "0"), (1500.0, "+1,500")])
def test_ticks_are_short_and_signed(value, text):
    assert draw.short_number(value, signed=True) == text


def test_no_part_of_a_ledger_is_hidden_and_together_they_are_all():
    bar = draw.ledger_bar(
        [Segment("passed", 9_999, "passed"), Segment("missing", 1, "missing"), Segment("wrong", 0, "wrong")], label=""
    )
    found = [(float(x), float(wide)) for x, wide in re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', bar)]
    assert len(found) == 2
    assert min(wide for _, wide in found) > 0.4
    assert sum(wide for _, wide in found) == pytest.approx(100, abs=0.5)


def test_the_first_state_of_a_task_is_at_the_bottom():
    grid = draw.squares([["passed", "wrong"], ["missing"]], label="", tasks=[7, 3])
    tops = {letter: int(y) for letter, y in re.findall(r'<rect class="(\w)" y="(\d+)"', grid)}
    assert tops["p"] == tops["m"] > tops["w"]
    assert re.findall(r'data-task="(\d)"', grid) == ["7", "3"]


def test_a_curve_is_dashed_and_hollow_once_tasks_leave_it():
    points = [
        CurvePoint(0, 0.4, (0.3, 0.5), True),
        CurvePoint(0.5, 0.6, (0.5, 0.7), True),
        CurvePoint(1, 0.7, None, False),
    ]
    picture = draw.curves([Series("pass@k", "", "blue", points)], UNIT, label="")
    solid, dashed = re.findall(r'<polyline class="curve blue(?: dashed)?" points="([^"]*)"', picture)
    assert solid.split()[-1] == dashed.split()[0]
    assert picture.count('class="dot blue hollow"') == 1


@pytest.mark.parametrize("last", [0.0, 0.5, 1.0])
def test_the_names_of_curves_that_end_alike_stand_apart(last):
    points = [CurvePoint(0, 0.5, None, True), CurvePoint(1, last, None, True)]
    names = [Series("pass@k", "one of k", "blue", points), Series("pass^k", "all k", "orange", points)]
    picture = draw.curves(names, UNIT, label="", names=("k", "tasks"))
    heights = [float(y) for y in re.findall(r'<text class="series [a-z]+" x="[^"]+" y="([^"]+)"', picture)]
    assert heights[1] - heights[0] >= 30
    assert heights[0] >= 10
    assert heights[1] <= 200  # the word below it ends above the numbers of the axis


@pytest.mark.parametrize(
    ("value", "interval", "texts"),
    [
        (1.0, (0.886, 1.0), ["1.000", "0.886"]),
        (0.0, (0.0, 0.114), ["0.000", "0.114"]),
        (0.5, (0.4, 0.6), ["0.500", "0.400", "0.600"]),
    ],
)
def test_a_value_at_an_end_of_its_axis_is_not_printed_over(value, interval, texts):
    picture = draw.headline(value, interval, None, UNIT, label="", figure=lambda number: f"{number:.3f}", ticks=str)
    assert re.findall(r'<text class="(?:value|end-text)"[^>]*>([^<]+)', picture) == texts


def test_words_of_marked_steps_do_not_cover_each_other():
    points = [CurveStep(step, 0.5, None, None) for step in range(0, 101, 10)]
    marks = [StepMark(step, f"▼ alarm, since step {step}", "orange") for step in (10, 20, 80, 90)]
    picture = draw.step_curve(points, label="", marks=marks)
    pairs = re.findall(r'y="(\d+)" text-anchor="\w+">▼ alarm, since step (\d+)', picture)
    rows = {step: int(height) for height, step in pairs}
    assert rows == {"10": 13, "20": 28, "90": 43, "80": 58}  # on each side, the mark nearest to the end is highest


def test_an_empty_stretch_has_no_name():
    drawn = draw.brackets([Bracket(0, 0, "none"), Bracket(0, 100, "all tasks", "all")])
    assert "none" not in drawn
    assert "all tasks" in drawn
