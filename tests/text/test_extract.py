"""Filters: one response in, an answer or None out."""

from __future__ import annotations

import pytest

from calipers.text import filters
from calipers.text.filters import WINDOW, last_number

FAR = "so " * WINDOW  # pushes what stands before it out of the window at the end


@pytest.mark.parametrize(
    ("name", "setting", "text", "expected"),
    [
        ("after_marker", {}, "work #### 4 #### 5\n", "5"),  # the last one counts
        ("after_marker", {}, "no marker", None),
        ("after_marker", {}, "#### ", ""),  # a marker and nothing behind it is an answer, of nothing
        ("after_marker", {"marker": "Answer:"}, "Answer: B", "B"),
        ("tag", {}, "<answer>1</answer> <answer> 2 </answer> 3", "2"),
        ("tag", {}, "<answer>never closed", None),
        ("tag", {}, "</answer> 4 <answer>", None),
        ("tag", {"name": "final"}, "<final>x</final>", "x"),
        ("boxed", {}, r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("boxed", {}, r"\boxed{\frac{1}{2}", None),  # cut off
        ("boxed", {}, "1/2", None),
        ("regex", {"pattern": r"\(([A-D])\)"}, "(B) or (C)", "B"),
        ("regex_last", {"pattern": r"\(([A-D])\)"}, "(B) or (C)", "C"),
        ("regex", {"pattern": "[A-D]"}, "is B", "B"),  # without groups, the match itself
        ("regex", {"pattern": "(x)|([0-9]+)"}, "is 42", "42"),  # the group that took part
        ("regex_last", {"pattern": "(x)|([0-9]+)"}, "x 41 x 42", "42"),
        ("regex", {"pattern": "x*"}, "aaa", None),  # an empty match is no answer
        ("regex_last", {"pattern": "x*"}, "aaa", None),
        ("regex", {"pattern": "(x*)y"}, "y", None),
        ("last_number", {}, "3 + 4 = 7.", "7"),
        ("last_number", {}, "$1,234,567.50", "1234567.50"),
        ("last_number", {}, "1,2,3", "3"),  # no thousands, but a list
        ("last_number", {}, "it fell by -12.5%", "-12.5"),
        ("last_number", {}, "3-4", "4"),  # a range, or a difference
        ("last_number", {}, "about .5", ".5"),
        ("last_number", {}, "x2 and H2O", None),  # digits in names
        ("last_number", {}, "version 1.2.3", "1.2"),  # not the 3 behind it, which no number begins
        ("last_number", {}, "", None),
        ("last_number", {}, "42 " + FAR, "42"),
        ("json_key", {}, 'Sure! {"answer": "B"} ok', "B"),
        ("json_key", {"key": "n"}, '{"n": 1.5}', "1.5"),
        ("json_key", {"key": "n"}, '{"n": true}', "true"),
        ("json_key", {}, '{"answer": null}', None),
        ("json_key", {}, '{"other": 1}', None),
        ("json_key", {}, "[1]", None),
        ("json_key", {}, "{" * 5000, None),
        ("json_key", {}, '{"a":' * 5000 + "1" + "}" * 5000, None),  # nested beyond all reason
        ("first_line", {}, "\n  one \ntwo", "one"),
        ("first_line", {}, " \n", None),
        ("last_line", {}, "one\n two \n\n", "two"),
        ("strip", {}, " x ", "x"),
        ("strip", {}, "  ", ""),
        ("lower", {}, "YES", "yes"),
    ],
)
def test_filters(name, setting, text, expected):
    assert getattr(filters, name)(text, **setting) == expected


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_number_on_the_edge_of_the_window_is_read_whole(cut):
    text = "it is 1,234,567 " + "z" * (WINDOW - cut)
    assert last_number(text) == "1234567"
