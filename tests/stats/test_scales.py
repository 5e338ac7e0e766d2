"""Scales: which benchmarks have a mean, and which options give one to the others."""

import pytest

from calipers.reports.remark_texts import text_of
from calipers.stats.scales import Scale, joined_scale, ways_to_a_mean, why_no_mean

SHARE = Scale((0.0, 1.0), (0.0, 1.0))
CHRF = Scale(None, (3.5, 74.2))


@pytest.mark.parametrize(
    ("scales", "why"),
    [
        ({"acc": SHARE, "gsm": SHARE}, None),
        ({"acc": SHARE, "gsm": Scale((0, 1), None)}, None),  # a run without a value has the usual range
        ({"a": Scale((0, 5), (0, 5)), "b": Scale((0, 5), (1, 3))}, None),
        ({"acc": SHARE, "chrf": CHRF}, "No mean over benchmarks: acc lies within 0 to 1, chrf reaches 74.2."),
        (
            {"acc": SHARE, "gsm": SHARE, "chrf": CHRF},
            "No mean over benchmarks: acc, gsm lie within 0 to 1, chrf reaches 74.2.",
        ),
        (
            {"acc": SHARE, "elo": Scale(None, (-3, 0.5))},
            "No mean over benchmarks: acc lies within 0 to 1, elo falls to −3.",
        ),
        # observed spreads are no unit, even if they are the same
        (
            {"bleu": CHRF, "chrf": CHRF},
            "No mean over benchmarks: rewards of bleu, chrf lie outside 0 to 1, and their ranges are not given.",
        ),
        (
            {"acc": SHARE, "chrf": Scale((0, 100), (3, 74))},
            "No mean over benchmarks: the range of acc is 0 to 1, and that of chrf is 0 to 100.",
        ),
        (
            {"acc": SHARE, "loss": Scale((0, 1), (0, 1), higher_is_better=False)},
            "No mean over benchmarks: higher is better on acc, and lower is better on loss.",
        ),
        # seconds are seconds on every benchmark
        ({name: Scale(None, (0, 30), False, has_unit=True) for name in "ab"}, None),
    ],
)
def test_benchmarks_have_a_mean_if_they_share_one_range_and_one_direction(scales, why):
    remark = why_no_mean(scales)
    assert (remark and text_of(remark)) == why
    assert remark is None or remark.severity == "no_answer"


def test_many_benchmarks_are_not_all_named():
    scales = {f"b{number}": SHARE for number in range(9)} | {"chrf": CHRF}
    assert "b0, b1, b2, … lie within" in text_of(why_no_mean(scales))


def test_the_ways_to_a_mean_are_options_that_work():
    (ways,) = ways_to_a_mean({"acc": SHARE, "chrf": CHRF})
    assert text_of(ways) == (
        "For a mean of the range, score and compare take --range acc=0,1 --range chrf=LOW,HIGH --mean of-range; "
        "if all benchmarks have one range: --range LOW,HIGH"
    )
    (ways,) = ways_to_a_mean({"acc": SHARE, "chrf": Scale((0, 100))})
    assert text_of(ways) == "For a mean of the range, score and compare take --mean of-range"
    assert ways_to_a_mean({"acc": SHARE, "loss": Scale((0, 1), higher_is_better=False)}) == []


def test_a_name_with_a_space_is_quoted_for_the_shell():
    (ways,) = ways_to_a_mean({"my acc": SHARE, "chrf": CHRF})
    assert "--range 'my acc=0,1'" in text_of(ways)


def test_the_scale_of_a_benchmark_is_that_of_all_its_runs():
    """A weak model whose chrF stays below 1 must not make the benchmark one of 0 to 1."""
    weak, strong = Scale((0.0, 1.0), (0.1, 0.9)), Scale(None, (2.0, 74.2))
    assert joined_scale([weak, strong]) == Scale(None, (0.1, 74.2))
    assert joined_scale([weak, weak]).limits == (0.0, 1.0)
