import numpy as np
import pytest

from calipers.metrics import mean, median
from calipers.rollouts.column import total
from calipers.stats import paired as bootstrap_of
from calipers.stats.estimate import TOO_LARGE
from calipers.stats.paired import (
    DRAWS_AGREE,
    NO_COMMON,
    SOME_UNDEFINED,
    UNDEFINED,
    by_draws,
    paired_bootstrap,
    paired_bootstrap_of_values,
    ratio,
    resampled_sums,
    units_of,
)

rng = np.random.default_rng(8)
FIRST, SECOND = rng.random(60), rng.random(60)


def sums(values):
    return np.stack([values, np.ones(len(values))], axis=1)


def test_the_error_of_a_mean_is_that_of_its_differences():
    """The standard deviation of the draws, that is; over the root of their number it would be a hundredth."""
    found = paired_bootstrap(sums(FIRST), sums(SECOND), ratio)
    differences = FIRST - SECOND
    expected = np.sqrt(units_of(differences).variance * 59 / 60)
    assert found.value == pytest.approx(differences.mean())
    assert found.stderr == pytest.approx(expected, rel=0.03)
    assert found.interval == pytest.approx((found.value - 1.96 * expected, found.value + 1.96 * expected), abs=0.01)


def test_seventy_of_a_hundred():
    """0.046 to 0.048, not 0.0015."""
    passes = np.array([1.0] * 70 + [0.0] * 30)
    found = paired_bootstrap(sums(passes), sums(np.zeros(100)), ratio)
    assert 0.045 < found.stderr < 0.047


def test_one_seed_one_answer_whatever_the_order():
    found = paired_bootstrap(sums(FIRST), sums(SECOND), ratio, seed=3)
    order = np.random.default_rng(0).permutation(60)
    assert paired_bootstrap(sums(FIRST[order]), sums(SECOND[order]), ratio, seed=3) == found
    assert paired_bootstrap(sums(FIRST), sums(SECOND), ratio, seed=4).stderr != found.stderr


def test_runs_that_are_alike_differ_in_no_draw():
    found = paired_bootstrap(sums(FIRST), sums(FIRST), ratio)
    assert (found.value, found.stderr, found.interval, found.why) == (0, 0, None, DRAWS_AGREE)
    assert found.p == 1


def test_a_sure_difference_has_the_smallest_p_that_draws_can_show():
    found = paired_bootstrap(sums(FIRST + 10), sums(SECOND), ratio, draws=999)
    assert found.p == pytest.approx(0.0033, abs=1e-4)  # 2 / 1000, were tasks as many as the stars


@pytest.mark.parametrize(
    ("tasks", "confidence", "p", "bounded"),
    [
        (4, 0.95, 2**-3, False),  # as likely as four coins that fall alike, however far apart the runs are
        (5, 0.95, 2**-4, False),
        (5, 0.9, 2**-4, True),
        (6, 0.95, 2**-5, True),
    ],
)
def test_few_tasks_show_little(tasks, confidence, p, bounded):
    found = paired_bootstrap(sums(FIRST[:tasks] + 10), sums(SECOND[:tasks]), ratio, confidence=confidence)
    assert (found.p, found.interval is not None) == (p, bounded)
    assert (found.why is None) == bounded


@pytest.mark.parametrize("tasks", [6, 10, 20])
def test_the_level_is_kept_on_few_tasks(tasks):
    """Plain percentiles of the draws find a difference that is none in 16, 10 and 8 cases of a hundred."""
    random, wrong = np.random.default_rng(5), 0
    for case in range(400):
        weights, hard = random.integers(5, 80, tasks).astype(float), random.gamma(4, 0.6, tasks)
        first, second = (
            np.stack([weights * hard * np.exp(random.normal(0, 0.2, tasks)), weights], axis=1) for _ in range(2)
        )
        found = paired_bootstrap(first, second, lambda totals: np.exp(ratio(totals)), seed=case, draws=500)
        wrong += found.p <= 0.05
    assert wrong / 400 <= 0.08  # 0.05 and two and a half standard errors


def f1(counts):
    """Micro F1 from true positives, false positives and false negatives: no mean of task values."""
    hits, wrong, missed = np.moveaxis(counts, -1, 0)
    return 2 * hits / (2 * hits + wrong + missed)


def test_a_corpus_metric_is_computed_anew_from_sums():
    random = np.random.default_rng(2)
    first, second = (random.integers(0, 5, size=(40, 3)).astype(float) for _ in range(2))
    found = paired_bootstrap(first, second, f1, draws=400, seed=1)
    assert found.value == pytest.approx(float(f1(first.sum(axis=0)) - f1(second.sum(axis=0))))
    drawn = [random.integers(0, 40, size=40) for _ in range(4_000)]
    plain = [f1(first[rows].sum(axis=0)) - f1(second[rows].sum(axis=0)) for rows in drawn]
    assert found.stderr == pytest.approx(np.std(plain), rel=0.12)


def test_clusters_are_drawn_whole():
    clusters = np.repeat(np.arange(10), 6)
    luck = np.repeat(np.random.default_rng(1).normal(size=10), 6)  # all tasks of a cluster alike
    tasks = paired_bootstrap(sums(luck), sums(np.zeros(60)), ratio)
    whole = paired_bootstrap(sums(luck), sums(np.zeros(60)), ratio, clusters)
    assert whole.units == 10
    assert whole.stderr == pytest.approx(tasks.stderr * np.sqrt(6), rel=0.06)


def test_a_median_sees_the_values_themselves():
    found = paired_bootstrap_of_values(FIRST, SECOND, median, draws=2_000)
    assert found.value == pytest.approx(np.median(FIRST) - np.median(SECOND))
    assert found.interval[0] < found.value < found.interval[1]


def test_values_and_sums_give_the_same_mean():
    one = paired_bootstrap_of_values(FIRST, SECOND, mean, draws=3_000)
    other = paired_bootstrap(sums(FIRST), sums(SECOND), ratio)
    assert one.stderr == pytest.approx(other.stderr, rel=0.06)
    alone = paired_bootstrap_of_values(FIRST, SECOND, mean, np.arange(60), draws=3_000)
    assert alone.stderr == pytest.approx(one.stderr, rel=0.06)


def test_fewer_draws_where_there_are_more_values(monkeypatch):
    monkeypatch.setattr(bootstrap_of, "MOST_VALUES", 60 * 1_500)
    assert paired_bootstrap_of_values(FIRST, SECOND, median).draws == 1_500
    monkeypatch.setattr(bootstrap_of, "MOST_VALUES", 60)
    assert paired_bootstrap_of_values(FIRST, SECOND, median).draws == 1_000


@pytest.mark.parametrize(
    ("tasks", "clusters", "why"),
    [
        (0, None, NO_COMMON),
        (1, None, "one task says nothing about others"),
        (2, np.array([0, 0]), "one cluster says nothing about others"),
    ],
)
def test_nothing_to_draw_from(tasks, clusters, why):
    values = np.ones(tasks)
    assert paired_bootstrap(sums(values), sums(values), ratio, clusters).why == why
    assert paired_bootstrap_of_values(values, values, mean, clusters).why == why


def test_a_metric_that_is_no_number():
    nothing = np.array([[0.0, 0.0]] * 5)
    with np.errstate(invalid="ignore"):
        assert paired_bootstrap(nothing, sums(FIRST[:5]), ratio).why == UNDEFINED
    rare = np.array([[1.0, 1.0]] + [[0.0, 0.0]] * 4)  # some draws leave it out
    assert paired_bootstrap(rare, sums(FIRST[:5]), ratio).why == SOME_UNDEFINED


def test_huge_differences_have_no_interval():
    """Their deviation was infinite, and the advice on new tasks ended as a bug."""
    values = np.array([0.0, 0.0, 1e301, 0.0, 1e301, 0.0, 0.0, 1e301])
    found = paired_bootstrap_of_values(values, np.zeros(8), median)
    assert (found.value, found.stderr, found.interval, found.p, found.why) == (0.0, None, None, None, TOO_LARGE)


def test_sums_of_draws_are_sums_of_what_was_drawn():
    """Whole numbers stay whole, every draw takes G units, and its columns see the same units."""
    columns = np.stack([np.arange(7.0), 2 * np.arange(7.0), np.full(7, 3.0)], axis=1)
    drawn = resampled_sums(columns, seed=0, draws=250)
    assert drawn.shape == (250, 3)
    assert (drawn[:, 1] == 2 * drawn[:, 0]).all()
    assert (drawn[:, 2] == 21).all()
    assert (drawn[:, 0] % 1 == 0).all()
    assert drawn[:, 0].mean() == pytest.approx(21, abs=4 * np.sqrt(7 * 4 / 250))
    assert float(total(columns[:, 0])) == 21


def test_one_task_has_a_difference_and_no_draws():
    found = paired_bootstrap(sums(np.array([1.0])), sums(np.array([0.25])), ratio)
    assert (found.value, found.stderr, found.interval, found.p, found.draws) == (0.75, None, None, None, 0)


def test_rounding_is_no_difference():
    """A tenth three times over three is not the tenth it is the mean of."""
    once = np.array([[0.1, 1.0]] * 20)
    thrice = np.array([[0.1 + 0.1 + 0.1, 3.0]] * 20)
    found = paired_bootstrap(once, thrice, ratio)
    assert (found.value, found.p) == (0.0, 1.0)


def test_a_difference_had_an_interval_of_no_width_if_nearly_all_draws_agree():
    differences = np.array([0.5] * 990 + [0.4] * 5 + [0.6] * 5)
    found = by_draws(0.5, differences, 0.95, 40)
    assert found.interval is None
    assert found.why == "the draws agree at this confidence"
