from xml.etree import ElementTree as Xml

import pytest

from calipers.analyses.gate import Check, Gate, annotated, document, junit_page, message
from calipers.reports import markdown, terminal
from calipers.reports.untrusted_text import width


def check(value, number, interval=None, require="mean_reward >= 0.5", op=">="):
    return Check(require, "critical", "run.jsonl", None, None, None, "failed", value, op, number, value, interval, 60)


@pytest.mark.parametrize(
    ("value", "number", "shown"),
    [
        (0.4708, 0.5, "0.471"),
        (0.49999, 0.5, "0.49999"),  # 0.500 would not be seen to fail
        (0.5, 0.5, "0.500"),
        (0.50000000001, 0.5, "0.50000000001"),  # nor does rounding to eight digits show it
        (12345.678, 12345.7, "12345.678"),  # 12,345.7
        (12345.678, 0.5, "12,345.7"),
        (None, 0.5, "–"),
    ],
)
def test_a_value_is_shown_on_its_side_of_the_number(value, number, shown):
    failed = Gate([check(value, number)])
    assert failed.checks[0].shown == shown
    assert f" {shown} " in terminal.render(document(failed))
    assert f"| {shown} |" in markdown.render(document(failed))
    assert f": {shown}" in message(failed.checks[0])


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        ((0.2860, 0.4555), "[0.286, 0.456]"),
        ((-0.1839, 0.008946), "[-0.184, 0.009]"),  # one end near 0 has no more decimals than the other
        ((1234.5, 2.5), "[1,234.5, 2.5]"),
        (None, ""),
    ],
)
def test_both_ends_of_an_interval_have_as_many_decimals(interval, shown):
    assert check(0.4, 0.5, interval).ends == shown


def test_what_a_name_holds_stays_text_for_every_reader():
    """Newlines, per cent signs and tags in what a policy requires: XML, annotations and tables survive them."""
    nasty = 'mean_reward[level=50%\n::error::x<b>&"] >= 0.5'
    failed = Gate([check(0.4, 0.5, (0.3, 0.5), require=nasty)])
    (case,) = Xml.fromstring(junit_page(failed)).iter("testcase")
    assert case.attrib["name"] == nasty.replace("\n", " ")
    (line,) = annotated(failed)
    assert line.startswith("::error title=")
    assert "\n" not in line
    assert "50%25 ::error::x<b>" in line
    (row,) = [row for row in markdown.render(document(failed)).splitlines() if "FAIL " in row]
    assert row.count("| ") == 5


def test_groups_with_long_names_are_told_apart():
    family = "org/one-of-many-models-that-all-of-them-begin-with-the-same-words-"
    failed = Gate([Check("m > 1", "critical", "r", None, f"{family}{end}", None, "failed", 0.5) for end in ("a", "b")])
    rows = [line for line in terminal.render(document(failed)).splitlines() if line.startswith("FAIL ")]
    assert [row.split()[1][-7:] for row in rows] == ["words-a", "words-b"]


@pytest.mark.parametrize("results", [1, 3])
def test_a_gate_of_long_names_fits_a_page(results):
    require = "lower(delta(mean_reward[difficulty=very-hard])) >= -0.02"
    checks = [
        Check(
            require, "supporting", f"runs/of-a-long-name-{result}", None, f"organisation-{6 * str(model)}-instruct-v2",
            "a-benchmark", "failed", 0.25, ">=", -0.02, 0.25, (0.1, 0.4), 713, 1426, 12, None, None, 0.95,
        )
        for result in range(results)
        for model in range(3)
    ]  # fmt: skip
    page = terminal.render(document(Gate(checks)), columns=80)
    assert max(map(width, page.splitlines())) <= 80
    assert page.count("95 % interval +0.100 to +0.400; 713 tasks, 12 missing") == len(checks)
    shown = [line for line in page.splitlines() if "FAIL" in line]
    assert len(set(shown)) == 3  # models that differ in their middle are told apart
    assert page.count("runs/of-a-long-name-") == results
