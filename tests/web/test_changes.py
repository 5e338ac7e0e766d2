import re
from importlib.resources import files

import pytest

from calipers.web.changes import bars, changes_of, differing, one_line, shown_changes, usual_answers
from calipers.web.gather import gather
from calipers.web.markup import joined

ARITH, NEXT = (str(files("calipers") / "examples" / name) for name in ("arith.jsonl", "arith_next.jsonl"))


@pytest.fixture(scope="module")
def pair():
    return gather([ARITH, NEXT])


@pytest.fixture(scope="module")
def changes(pair):
    return changes_of(pair.comparison.contests[0].pairs[0], pair.first, pair.second, higher_is_better=True)


@pytest.mark.parametrize(
    ("first", "second", "marked"),
    [
        ("139", "219", ('<mark role="deletion">13</mark>9', '<mark role="insertion">21</mark>9')),
        ("161", "161", ("161", "161")),
        ("7250", "7170", ('7<mark role="deletion">25</mark>0', '7<mark role="insertion">17</mark>0')),
        ("aa", "aaa", ("aa", 'aa<mark role="insertion">a</mark>')),  # prefix and suffix do not overlap
        ("", "x", ("", '<mark role="insertion">x</mark>')),
        ("<b>", "<i>", ('&lt;<mark role="deletion">b</mark>&gt;', '&lt;<mark role="insertion">i</mark>&gt;')),
        (None, "x", ("–", "<code>x</code>")),
    ],
)
def test_what_differs_is_marked(first, second, marked):
    assert tuple(map(joined, differing(first, second))) == marked


def test_a_long_answer_is_cut_around_what_differs():
    first, second = f"{'a' * 500}X{'b' * 500}", f"{'a' * 500}Y{'b' * 500}"
    old, new = map(joined, differing(first, second))
    assert len(re.sub("<[^>]*>", "", old)) < 60
    assert ('<mark role="deletion">X</mark>' in old, '<mark role="insertion">Y</mark>' in new) == (True, True)


def test_a_text_stands_on_one_line():
    assert one_line("a\nb\tc", 20) == "a ⏎ b c"
    assert one_line("x" * 30, 10) == "x" * 9 + "…"


def test_every_common_task_is_there_the_largest_loss_first(pair, changes):
    assert len(changes) == 40
    gains = [change.gain for change in changes]
    assert gains == sorted(gains)
    assert [sum(change.way == way for change in changes) for way in ("better", "same", "worse")] == [25, 6, 9]
    assert changes[0].task == "mul-02"
    assert changes[0].delta == pytest.approx(-0.357, abs=1e-3)


def test_lower_is_better_turns_the_order_around(pair):
    turned = changes_of(pair.comparison.contests[0].pairs[0], pair.first, pair.second, higher_is_better=False)
    assert turned[0].delta > 0
    assert turned[0].way == "worse"


def test_the_usual_answer_is_the_most_frequent(pair):
    run = pair.first.rollouts
    code = list(run.table.tasks).index("add-18")
    assert usual_answers(run, [code]) == {code: "139"}


def test_only_so_many_tasks_are_listed(changes):
    many = changes * 20
    shown = shown_changes(many)
    assert len(shown) == 300
    assert (shown[0], shown[-1]) == (many[0], many[-1])


def test_bars_become_a_line_of_steps(changes):
    counts = {"better": 25, "same": 6, "worse": 9}
    few, many = bars(changes, counts), bars(changes * 20, counts)
    assert (few.count("<rect"), few.count("<circle"), few.count("<polyline")) == (34, 6, 0)
    assert (many.count("<rect"), many.count("<polyline")) == (0, 1)
    assert 'aria-label="40 tasks: 25 better, 6 same, 9 worse; the largest change is +0.375"' in few
