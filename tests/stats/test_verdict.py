import numpy as np
import pytest

import calipers.stats.verdict
from calipers.stats.anytime import anytime
from calipers.stats.claims import Evidence, decide
from calipers.stats.paired import Difference, paired
from calipers.stats.power import PairVariance, power_of
from calipers.stats.verdict import more_samples

UNIT = (0.0, 1.0)


def verdict(difference, *, higher_is_better=True, margin=None, p=None, **options):
    """The verdict on one difference; ``p`` is the one adjusted for other tests."""
    level = 0.05 * difference.p / p if p else None
    decision = decide(Evidence(difference, difference), higher_is_better=higher_is_better, margin=margin, level=level)
    return calipers.stats.verdict.verdict(decision, difference, margin=margin, p=p, **options)


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
            # the p of equivalence: that of no difference is 0.82, and would be taken for it
            "equivalent within 0.02, p 7.1e-13: a difference of +0.00049 (95 % interval -0.00376 to +0.00474)",
        ),
        (
            of(0, 0, 30),
            "undecided: a difference of 0 (95 % interval -0.116 to +0.116, p 1); no difference was observed, and "
            "only a margin (--margin) can show that there is none",
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


def test_undecided_says_what_a_new_comparison_needs():
    found = of(8, 4, 88)
    assert found.word == "undecided"
    variance = found.difference.stderr**2 * 100
    assert power_of(variance, 0.04, found.more_tasks) == pytest.approx(0.8, abs=0.002)
    least, most = found.new_tasks
    assert power_of(variance, found.difference.interval[1], least) == pytest.approx(0.8, abs=0.01)
    assert most is None  # 0 lies in the interval: there may be nothing to find
    assert found.sentence.endswith(
        f"; about {found.more_tasks:,} new tasks, tested on their own, would show a difference this large with a power "
        f"of 80 %; for the differences in the interval it takes {least:,} tasks or more, and for some no number is "
        "enough, because the interval contains 0; to add tasks to these runs instead, use compare --anytime"
    )


def test_the_advice_has_an_upper_end_where_the_interval_leaves_0_out():
    found = of(10, 2, 88, p=0.06)  # significant by itself, not among the others
    least, most = found.new_tasks
    assert least < found.more_tasks < most
    assert f"it takes {least:,} to {most:,} tasks;" in found.sentence


def test_no_command_is_named_that_would_refuse():
    assert "--anytime" not in verdict(paired(np.array([3.0, -1.0, 2.0, 0.5]), limits=None)).sentence
    assert "--anytime" not in of(8, 4, 88, anytime=False).sentence  # a rate over uneven samples


def test_an_anytime_verdict_asks_for_more_of_the_same():
    moved = np.tile([1.0, 0, 0, -1.0, 0], 6)
    found = verdict(anytime(moved, limits=UNIT))
    assert found.sentence.endswith("; add tasks to the runs and compare again: this test is valid after every batch")


def test_more_is_needed_where_more_was_compared():
    alone, among = of(8, 4, 88), of(8, 4, 88, p=1.0)  # adjusted to the utmost
    assert among.more_tasks > alone.more_tasks
    barely = of(10, 2, 88, p=0.06)  # significant by itself
    assert barely.more_tasks > of(10, 2, 88, p=0.051).more_tasks


def test_an_adjusted_p_that_was_cut_at_1_tells_nothing_of_how_many_were_compared():
    """0.25 among 4 tests and among 45 is 1 in both; the tasks that are needed are not the same."""
    few, many = of(8, 4, 88, p=1.0, tests=4), of(8, 4, 88, p=1.0, tests=45)
    assert many.more_tasks > few.more_tasks
    level = 0.05 / 45
    variance = many.difference.stderr**2 * 100
    assert power_of(variance, 0.04, many.more_tasks, 1 - level) == pytest.approx(0.8, abs=0.002)


def test_other_tests_make_no_difference_harder_to_show_small():
    """Equivalence is judged by itself, so what shows it is the same however many tests there were."""
    alone, among = (of(6, 5, 989, margin=0.006, p=p, tests=45) for p in (None, 1.0))
    assert alone.more_tasks == among.more_tasks


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("floored_t", 4),  # four tasks that all differ by the whole range are beyond doubt to a t test
        ("mcnemar", 6),  # 2 / 2^6 is the first below .05
        ("sign_flip", 6),
        ("mid_p", 5),  # 1 / 2^5
    ],
)
def test_a_test_of_signs_takes_as_many_signs_as_its_level(method, more):
    two = Difference(1.0, 0.25, (-1.0, 1.0), 0.5, method, 2, 2.0, 1.0, 1.0)
    assert verdict(two).more_tasks == more


def test_tasks_that_never_differ_say_how_many_more_would_show_it():
    found = of(0, 0, 30, margin=0.05)
    assert (found.more_tasks, found.new_tasks) == (59, (59, None))  # 0.95^59 is the first below .05
    assert (
        "59 new tasks without any difference, tested on their own, would show that it is within 0.05" in found.sentence
    )
    assert of(0, 0, 59, margin=0.05).word == "equivalent"
    assert of(0, 0, 58, margin=0.05).more_tasks == 59
    strict = verdict(paired(np.zeros(30), limits=UNIT, test="strict"), margin=0.05)
    assert strict.more_tasks is None  # its spread is no matter of what was seen


def test_a_margin_may_be_nearer_than_a_difference():
    without, within = of(6, 5, 989), of(6, 5, 989, margin=0.006)
    assert (without.word, within.word) == ("undecided", "undecided")
    assert within.more_tasks < without.more_tasks  # showing that it is small takes fewer than showing that it is
    assert within.new_tasks[1] is None
    shown = "new tasks, tested on their own, would show with a power of 80 % that it is within 0.006"
    assert f"about {within.more_tasks:,} {shown}" in within.sentence
    assert "for some no number is enough, because the interval reaches beyond the margin" in within.sentence


def test_more_samples_where_sampling_is_the_noise():
    noisy = PairVariance(tasks=0.0, first=0.25, second=0.25)
    difference = Difference(0.05, 0.05, (-0.05, 0.15), 0.3, "floored_t", 100, 100, 99, 1.0)
    found = verdict(difference, pair=noisy, samples=2)
    assert found.more_samples == 16  # 0.5 / K = 100 (0.05 / 2.8)^2
    assert "new tasks (or 100 with 16 samples each), tested on their own," in found.sentence
    steady = PairVariance(tasks=0.2, first=0.25, second=0.25)
    assert more_samples(difference, steady) is None  # the tasks themselves differ by more than that
    assert more_samples(difference, PairVariance(0.2, 0.0, 0.0, divided=False)) is None
    assert more_samples(difference, noisy, margin=1e300) == 1  # its square would be no number


def test_clusters_are_asked_for_where_they_are_the_units():
    values = np.array([1.0, 0, 0, -1, 1, 0])
    found = verdict(paired(values, clusters=np.array([0, 0, 1, 1, 2, 2]), limits=UNIT), clustered=True)
    assert "new clusters, tested on their own," in found.sentence


def test_few_units_need_more_than_the_normal_distribution_says():
    """Of three clusters z would ask for one more, which could not even reach the level on average."""
    difference = Difference(0.0708, 0.02895, (-0.0537, 0.195), 0.13, "floored_t", 3, 3.0, 2.0, 1.0)
    found = verdict(difference, clustered=True)
    assert found.more_tasks == 7
    assert power_of(3 * 0.02895**2, 0.0708, 7) > 0.8 > power_of(3 * 0.02895**2, 0.0708, 6)
    assert "about 7 new clusters, tested on their own," in found.sentence


def test_no_difference_is_neither_better_nor_worse():
    """Draws of a median may nearly all lie on one side of the 0 that was seen: that is nobody's success."""
    none = Difference(0.0, 0.1, (0.0, 0.4), 0.01, "paired_bootstrap", 30, 30.0)
    assert [verdict(none, higher_is_better=better).word for better in (True, False)] == ["undecided"] * 2


def test_one_is_no_plural():
    plenty = Difference(0.1, 0.06, (-0.01, 0.21), 0.1, "floored_t", 100, 100.0, 99.0, 1.0)
    sampled = verdict(plenty, pair=PairVariance(0.0, 0.05, 0.05), samples=1)
    assert "(or 100 with 1 sample each)" in sampled.sentence


def test_the_strict_test_needs_no_fewer_than_the_default_one():
    moved = np.array([0.25] * 20 + [-0.25] * 12 + [0.0] * 28)
    strict, default = (verdict(paired(moved, limits=UNIT, test=test)) for test in ("strict", "floored_t"))
    assert strict.difference.p > default.difference.p
    assert strict.more_tasks > default.more_tasks


def test_no_margin_is_promised_where_it_could_not_help():
    """Costs have no range: where none differs, nothing says how far they might."""
    found = verdict(paired(np.zeros(30), limits=None))
    assert found.sentence.endswith("no difference was observed, and this comparison cannot show that there is none")
    assert verdict(paired(np.zeros(30), limits=None), margin=10.0).word == "undecided"


def test_without_a_test_nothing_would_decide_it():
    """The strict test of rewards without a range has no p, and no number of tasks gives it one."""
    found = verdict(paired(np.array([3.0, -1.0, 2.0, 0.5]), limits=None, test="strict"))
    assert (found.p, found.more_tasks) == (None, None)
    assert "new tasks" not in found.sentence
