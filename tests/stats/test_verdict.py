import numpy as np
import pytest

from calipers.stats.paired import Difference, paired
from calipers.stats.power import PairVariance, power_of
from calipers.stats.verdict import more_samples, verdict

UNIT = (0.0, 1.0)


def of(*counts, **options):
    """The verdict on so many tasks that only the first run passes, only the second, and the rest."""
    first, second, same = counts
    return verdict(paired(np.array([1.0] * first + [-1.0] * second + [0.0] * same), limits=UNIT), **options)


@pytest.mark.parametrize(
    ("counts", "options", "word"),
    [
        ((10, 2, 88), {}, "better"),
        ((2, 10, 88), {}, "worse"),
        ((2, 10, 88), {"higher_is_better": False}, "better"),
        ((5, 4, 91), {}, "undecided"),  # not significant is never equal
        ((10, 2, 88), {"p": 0.06}, "undecided"),  # adjusted for the other comparisons
        ((0, 0, 30), {}, "undecided"),
        ((0, 0, 30), {"margin": 0.05}, "undecided"),  # 0.95^30 is 0.21
        ((0, 0, 100), {"margin": 0.05}, "equivalent"),
        ((40, 38, 4000), {"margin": 0.02}, "equivalent"),
        ((80, 40, 9880), {"margin": 0.02}, "equivalent"),  # better beyond doubt, by less than matters
        ((80, 40, 9880), {}, "better"),
        ((300, 40, 660), {"margin": 0.02}, "better"),  # by more than the margin
    ],
)
def test_words(counts, options, word):
    assert of(*counts, **options).word == word


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (of(10, 2, 88), "better by 0.08 (95 % interval +0.0121 to +0.148, p 0.021)"),
        (of(2, 10, 88), "worse by 0.08 (95 % interval -0.148 to -0.0121, p 0.021)"),
        (
            of(40, 38, 4000, margin=0.02),
            "equivalent within 0.02: a difference of +0.00049 (95 % interval -0.00376 to +0.00474, p 0.82)",
        ),
        (
            of(0, 0, 30),
            "undecided: a difference of 0 (95 % interval -0.116 to +0.116, p 1); no difference was seen, and only a "
            "margin can show that there is none",
        ),
        (verdict(paired(np.array([]), limits=UNIT)), "undecided: no task has a value in both runs"),
        (
            verdict(paired(np.array([0.5]), limits=UNIT)),
            "undecided: a difference of +0.5 (one task says nothing about others)",
        ),
    ],
)
def test_sentences(found, sentence):
    assert found.sentence == sentence


def test_undecided_says_what_would_decide_it():
    found = of(8, 4, 88)
    assert found.word == "undecided"
    variance = found.difference.stderr**2 * 100
    assert power_of(variance, 0.04, 100 + found.more_tasks) == pytest.approx(0.8, abs=0.002)
    assert f"about {found.more_tasks:,} more tasks like these would decide it" in found.sentence


def test_more_is_needed_where_more_was_compared():
    alone, among = of(8, 4, 88), of(8, 4, 88, p=1.0)  # adjusted to the utmost
    assert among.more_tasks > alone.more_tasks
    barely = of(10, 2, 88, p=0.06)  # significant by itself
    assert barely.more_tasks > 10


def test_a_margin_may_be_nearer_than_a_difference():
    without, within = of(6, 5, 989), of(6, 5, 989, margin=0.006)
    assert (without.word, within.word) == ("undecided", "undecided")
    assert within.more_tasks < without.more_tasks  # showing that it is small takes fewer than showing that it is


def test_more_samples_where_sampling_is_the_noise():
    noisy = PairVariance(tasks=0.0, first=0.25, second=0.25)
    difference = Difference(0.05, 0.05, (-0.05, 0.15), 0.3, "floored_t", 100, 100, 99, 1.0)
    found = verdict(difference, pair=noisy, samples=2)
    assert found.more_samples == 14  # 0.5 / K = 100 (0.05 / 2.8)^2 at K = 16
    assert "or 14 more samples per task" in found.sentence
    steady = PairVariance(tasks=0.2, first=0.25, second=0.25)
    assert more_samples(difference, steady, 2) is None  # the tasks themselves differ by more than that
    assert more_samples(difference, PairVariance(0.2, 0.0, 0.0, divided=False), 1) is None


def test_clusters_are_asked_for_where_they_are_the_units():
    values = np.array([1.0, 0, 0, -1, 1, 0])
    found = verdict(paired(values, clusters=np.array([0, 0, 1, 1, 2, 2]), limits=UNIT), clustered=True)
    assert "more clusters like these" in found.sentence
