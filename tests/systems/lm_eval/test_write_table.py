"""The rules of the printed table's columns; the golden vectors compare complete tables."""

from __future__ import annotations

import math

import pytest

from calipers.systems.lm_eval.write import table


def made(*numbers, versions=None, names="abcdefgh"):
    """A results object with a task per (value, stderr)."""
    rows = {
        name: {"alias": name, "m,none": value, "m_stderr,none": error}
        for name, (value, error) in zip(names, numbers, strict=False)
    }
    return {"results": rows, "versions": versions or {}, "n-shot": {}, "higher_is_better": {}}


def column(text, place):
    return [line.split("|")[place] for line in text.splitlines()[1:]]


VALUE, STDERR, VERSION = 7, 9, 2


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.75, 0.5], ["----:", " 0.75", " 0.50"]),  # as many decimals as the longest needs
        ([1.0, 0.0], ["----:", "    1", "    0"]),
        ([999, 12.0], ["----:", "  999", "   12"]),
        ([0.00001, 0.5], ["----:", "  0.0", "  0.5"]),  # four decimals first
        ([-0.00001, 0.5], ["----:", "  0.0", "  0.5"]),  # no negative zero
        ([10361292422893.1055], ["-----------------:", "10361292422893.106"]),  # no more digits than a float has
        ([math.nan, 0.5], ["----:", "  NaN", "  0.5"]),
        ([math.nan], ["-----", "NaN  "]),  # a column of nothing but NaN is text
        ([math.nan, math.inf], ["-------:", "     NaN", "Infinity"]),  # one of two kinds is not
        (["N/A", 0.5], ["-----", "N/A  ", "0.5000"]),
    ],
)
def test_values(values, shown):
    found = column(table(made(*[(value, 0.25) for value in values])), VALUE)
    assert [cell.strip() for cell in found[1:]] == [cell.strip() for cell in shown[1:]]
    assert found[0].endswith(":") == shown[0].endswith(":")


@pytest.mark.parametrize(
    ("errors", "shown"),
    [
        ([0.25, None], ["------", "  0.25", "   N/A"]),  # numbers first: read, and short
        ([0.25, "N/A", 0.0], ["------", "  0.25", "   N/A", "     0"]),
        (["N/A", 0.25, 0.0], ["------", "   N/A", "0.2500", "0.0000"]),  # below text: left as it was written
    ],
)
def test_standard_errors_that_do_not_all_exist(errors, shown):
    assert column(table(made(*[(0.5, error) for error in errors])), STDERR) == shown


def test_a_standard_error_that_is_no_number_beside_none_at_all():
    results = {"results": {"t": {"m,none": 0.5, "n,none": 0.5, "n_stderr,none": math.nan}}}
    assert column(table(results), STDERR) == ["-----:", "      ", "   NaN"]


def test_names_that_look_like_something_else():
    text = table(made((0.5, 0.1), (0.5, 0.1), names=["true", "1,000"]))
    assert column(text, 1) == ["-----", " 1000", "True "]


def test_versions_of_several_kinds():
    versions = {"a": 1.0, "b": "Yaml"}
    found = column(table(made((0.5, 0.1), (0.5, 0.1), (0.5, 0.1), versions=versions)), VERSION)
    assert found == ["-------", "      1", "Yaml   ", "    N/A"]


def test_wide_characters_and_bars():
    text = table(made((0.5, 0.1), (0.5, 0.1), names=["日本", "a|b"]))
    assert [line.partition("|    N/A")[0] for line in text.splitlines()[2:]] == ["|a\\|b  ", "|日本 "]


def test_groups_come_first_with_their_members_below_them():
    results = made((0.5, 0.1), (0.5, 0.1), (0.5, 0.1), (0.5, 0.1))
    results["group_subtasks"] = {"c": ["b", "a"], "a": ["d"]}
    assert column(table(results), 1)[1:] == ["c    ", " - a ", "  - d", " - b "]


def test_a_metric_without_a_standard_error():
    results = {"results": {"t": {"m,none": 0.5}}, "higher_is_better": {"t": {"m": False}}}
    assert table(results).splitlines()[2] == "|t    |    N/A|none  |      |m     |↓  |  0.5|   |      |"
