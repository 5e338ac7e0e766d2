import csv
import io

import pytest
from reports.shown import HARMFUL, estimate, group, hostile, ledger, result

import calipers
from calipers.reports import csv as renderer
from calipers.reports.csv import cell
from calipers.reports.document import Document
from calipers.reports.result import FIELDS, Slice, document


def render(made):
    return renderer.render(document(made))


def rows(made):
    return list(csv.DictReader(io.StringIO(render(made))))


def test_a_row_for_every_number():
    parts = {"easy": Slice(ledger(), {"pass@3": estimate()})}
    whole, part = rows(result(group(model="m", breakdowns={"level": parts})))
    assert (whole["model"], whole["by"], whole["slice"], whole["metric"]) == ("m", "", "", "pass@3")
    assert (part["by"], part["slice"], part["low"], part["high"]) == ("level", "easy", "0.3", "0.95")


def test_the_columns_are_those_of_the_result():
    made = calipers.score([[1, 0], [0, 1]])
    assert {*made.rows()[0]} == {*FIELDS}
    assert render(made).splitlines()[0] == ",".join(FIELDS)


def test_every_digit_is_there():
    made = calipers.score([[1, 0, 0], [1, 1, 1]])
    assert [float(row["value"]) for row in rows(made)] == [made["mean_reward"].value, made["pass_rate"].value]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+1", "+1"),  # a number stays as it is
        ("-x", "'-x"),
        ("easy", "easy"),
        (0.1, 0.1),
        (False, "false"),
        (None, ""),
    ],
)
def test_a_cell(value, expected):
    assert cell(value) == expected


def test_nothing_a_file_says_reaches_the_terminal():
    assert [character for character in HARMFUL if character in render(hostile())] == []


def test_cells_are_safe_to_open():
    made = Document(list, dict, ("a", "b"), lambda: [{"a": "=1+1", "b": None}, {"a": "-2", "b": True}])
    assert renderer.render(made) == "a,b\n'=1+1,\n-2,true\n"
