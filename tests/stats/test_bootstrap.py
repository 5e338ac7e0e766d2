import math
import statistics

import numpy as np
import pytest

from calipers.stats.intervals import BLOCK, DRAWS, SLICE, bca_ends, bootstrap, draw, percentile_ends

VALUES, WEIGHTS = [0.1, 0.25, 0.7, 1.0, 0.3], [1, 2, 3, 1, 1]
TASKS = [[1.0, 0.0], [1.0], [0.0, 0.0], [1.0, 1.0], [0.5], [0.0]]


def worst(tasks):
    return min(sum(task) / len(task) for task in tasks)


def mean(tasks):
    return sum(sum(task) / len(task) for task in tasks) / len(tasks)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    first, again, other = (bootstrap(mean, TASKS, 0.95, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first.method == "bootstrap"
    assert first.ends[0] < mean(TASKS) < first.ends[1]


def test_the_standard_error_is_the_spread_of_the_draws():
    values = [[float(n % 3 == 0)] for n in range(60)]
    found = bootstrap(mean, values, 0.95, 0)
    assert 0.055 < found.stderr < 0.067  # sqrt(p (1 - p) / 60) is 0.0609; not divided by sqrt(draws)


def test_no_interval_says_why():
    def picky(tasks):
        if sum(map(sum, tasks)) < 3:
            raise ZeroDivisionError("nothing passed")
        return 1.0

    assert bootstrap(mean, [[1.0]], 0.95, 0).why == "one task says nothing about others"
    assert "nothing passed" in bootstrap(picky, TASKS, 0.95, 0).why
    assert bootstrap(lambda tasks: 1.0, TASKS, 0.95, 0).ends is None
    assert "too many rewards" in bootstrap(mean, [[0.0] * 100_000] * 2, 0.95, 0).why


@pytest.mark.parametrize(
    "extreme", [worst, lambda tasks: max(map(max, tasks)), lambda tasks: float(len(set(map(tuple, tasks))))]
)
@pytest.mark.parametrize("equal", [1, 10])  # so many tasks share the extreme
def test_an_extreme_had_an_interval_from_its_own_value(extreme, equal):
    """The worst of 30 tasks had 0.0 to 0.0, if several tasks shared it, or else 0.0 to some other task's value."""
    tasks = [[0.0]] * equal + [[number / 30] for number in range(1, 30)] + [[1.0]] * equal
    found = bootstrap(extreme, tasks, 0.95, 0)
    assert found.ends is None
    one_sided = "all bootstrap draws lie on one side of the value, as for the extremes of a sample"
    assert found.why in (one_sided, "every bootstrap draw gives the same number")


def test_an_interval_had_no_width_if_nearly_all_draws_agree():
    """The third largest of values of which 20 are equal: draws lie on both sides, but few of them."""
    tasks = [[0.0]] * 2 + [[0.5]] * 20 + [[1.0]] * 2
    found = bootstrap(lambda drawn: sorted(task[0] for task in drawn)[len(drawn) // 2], tasks, 0.9, 0)
    assert found.ends is None
    assert found.why in ("every bootstrap draw gives the same number", "the draws agree at this confidence")


def draws(values, weights=None, seed=0):
    values = np.array(values, dtype=float)
    weights = np.ones(len(values)) if weights is None else np.array(weights, dtype=float)
    return draw(values * weights, weights, seed)


def test_the_standard_error_of_70_of_100_is_not_divided_by_the_root_of_the_draws():
    assert draws([1] * 70 + [0] * 30).stderr == pytest.approx(0.046, abs=0.0005)  # over sqrt(1000): 0.0015


def test_the_draws_are_those_of_the_binomial():
    found = draws([1] * 8 + [0] * 2).ratios * 10
    assert np.array_equal(found, np.rint(found))
    shares = np.bincount(found.astype(int), minlength=11) / DRAWS
    expected = [math.comb(10, k) * 0.8**k * 0.2 ** (10 - k) for k in range(11)]
    assert shares == pytest.approx(expected, abs=0.015)  # three standard errors of a share


@pytest.mark.parametrize("units", [2, 3, 1319, SLICE + 1])  # odd: half a word is left over; more than one slice
def test_every_unit_is_drawn_alike(units):
    rng = np.random.default_rng(5)
    values = rng.random(units) if units < SLICE else rng.random(units) < 0.5
    found = draws(values)
    assert found.value == pytest.approx(np.mean(values), rel=1e-12)
    assert np.mean(found.ratios) == pytest.approx(found.value, abs=4 * np.std(values) / math.sqrt(units * DRAWS))
    assert found.stderr == pytest.approx(np.std(values) / math.sqrt(units), rel=0.04)


def test_the_same_seed_gives_these_very_draws():
    found = draws(VALUES, WEIGHTS)
    assert percentile_ends(found, 0.95) == (0.21428571428571427, 0.7428571428571428)
    assert bca_ends(found, 0.95) == pytest.approx((0.21666666666666667, 0.7545454545454544), abs=1e-12)
    assert draws(VALUES, WEIGHTS, seed=1).stderr != found.stderr


def test_the_draws_are_what_plain_integers_say():
    units = sorted((value * weight, weight) for value, weight in zip(VALUES, WEIGHTS))
    ratios = []
    for child in np.random.SeedSequence(0).spawn(DRAWS // BLOCK):
        raw = np.random.PCG64(child).random_raw(BLOCK * 3).tolist()  # three words hold five numbers
        halves = [half for word in raw for half in (word & 0xFFFFFFFF, word >> 32)]
        for start in range(0, len(halves), 6):
            drawn = [units[half * 5 >> 32] for half in halves[start : start + 5]]
            ratios.append(math.fsum(above for above, _ in drawn) / sum(below for _, below in drawn))
    assert draws(VALUES, WEIGHTS).ratios == pytest.approx(sorted(ratios), rel=1e-13)


def test_the_order_of_tasks_does_not_matter():
    mixed = [3, 0, 4, 1, 2]
    again = draws([VALUES[n] for n in mixed], [WEIGHTS[n] for n in mixed])
    assert np.array_equal(draws(VALUES, WEIGHTS).ratios, again.ratios)


def test_a_block_is_the_same_in_slices_of_any_size(monkeypatch):
    whole = draws(range(700)).ratios
    monkeypatch.setattr("calipers.stats.intervals.SLICE", 1500)
    assert np.array_equal(whole, draws(range(700)).ratios)


def test_a_ratio_of_sums_is_drawn_with_its_weights():
    found = draws([1, 0], [9, 1])
    shares = np.unique(found.ratios, return_counts=True)
    assert shares[0].tolist() == [0.0, 0.9, 1.0]
    assert shares[1] / DRAWS == pytest.approx([0.25, 0.5, 0.25], abs=0.02)


def test_bca_follows_the_skew():
    costs = [1.0] * 25 + [2.0] * 10 + [20.0] * 3 + [60.0]
    found = draws(costs)
    plain, moved = percentile_ends(found, 0.95), bca_ends(found, 0.95)
    assert plain[0] < moved[0]
    assert plain[1] < moved[1]


def test_bca_of_huge_values_is_that_of_small_ones():
    """The cubes of the values overflowed, and the score ended as a bug."""
    values = np.array([0.0, 1.0, 1.0, 2.0, 5.0, 30.0])
    small, huge = (bca_ends(draws(values * scale), 0.95) for scale in (1.0, 2.0**480))
    assert huge == tuple(2.0**480 * end for end in small)


def test_bca_agrees_with_scipy():
    from scipy.stats import bootstrap as peer

    values = np.random.default_rng(2).lognormal(size=60)
    theirs = peer((values,), np.mean, method="BCa", n_resamples=DRAWS, rng=np.random.default_rng(3))
    ours = draws(values)
    assert bca_ends(ours, 0.95) == pytest.approx(tuple(theirs.confidence_interval), rel=0.03)
    assert ours.stderr == pytest.approx(theirs.standard_error, rel=0.03)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e12, 1e250])
def test_any_scale_will_do(scale):
    values = np.array(VALUES)
    assert draws(values * scale).ratios / scale == pytest.approx(draws(values).ratios, rel=1e-9)


def test_ten_thousand_draws_take_little_memory():
    import tracemalloc

    values = np.random.default_rng(0).random(10_000)
    tracemalloc.start()
    draws(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # all draws at once would be 0.8 GB


def test_the_draws_of_an_opaque_metric_can_be_rebuilt_by_hand():
    drawn = (np.random.PCG64(3).random_raw(1_000 * len(TASKS)) % np.uint64(len(TASKS))).reshape(1_000, -1)
    values = [mean([TASKS[int(task)] for task in rows]) for rows in drawn]
    found = bootstrap(mean, TASKS, 0.9, 3)
    assert found.stderr == pytest.approx(statistics.stdev(values), rel=1e-12)
    assert found.ends == pytest.approx(tuple(np.percentile(values, [5, 95])), rel=1e-12)
    assert (found.method, found.why) == ("bootstrap", None)


@pytest.mark.parametrize(
    ("compute", "tasks", "clusters", "stderr", "why"),
    [
        (lambda tasks: 1.0, TASKS, None, 0.0, "every bootstrap draw gives the same number"),
        (lambda tasks: math.nan, TASKS, None, None, "the metric is not a number on some bootstrap draws"),
        (mean, TASKS[:2], np.array([7, 7]), None, "one cluster says nothing about others"),
        (mean, [[0.0] * 50_001, [1.0] * 50_000], None, None, "too many rewards to draw 200 times"),
    ],
)
def test_an_opaque_metric_without_an_interval_says_why(compute, tasks, clusters, stderr, why):
    found = bootstrap(compute, tasks, 0.95, 0, clusters)
    assert (found.stderr, found.ends, found.method, found.why) == (stderr, None, None, why)


def test_two_hundred_calls_are_enough():
    found = bootstrap(lambda tasks: tasks[0][0], [[0.0] * 16_666, [1.0] * 16_666] * 3, 0.95, 0, value=0.5)
    assert found.ends == (0.0, 1.0)


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_few_tasks_have_no_bootstrap_interval(tasks):
    """Draws of 2, 3 and 5 tasks cover the mean of uniform rewards in 50, 74 and 82 % where 95 are meant."""
    values = [[reward] for reward in np.random.default_rng(tasks).random(tasks)]
    found = bootstrap(mean, values, 0.95, 0)
    why = f"no interval at 95 % from {tasks} tasks, which may all point one way by chance"
    assert (found.ends, found.method, found.why) == (None, None, why)
    assert found.stderr is not None
    assert bootstrap(mean, values, 0.5, 0).ends is not None


class Counted(list):
    """Rewards of a task that count how often they are compared with others."""

    compared = 0
    __hash__ = None

    def __eq__(self, other):
        Counted.compared += 1
        return super().__eq__(other)


def test_many_tasks_are_grouped_once_and_not_searched_for_each():
    tasks = [Counted([float(n % 2)]) for n in range(2_000)]  # searching would compare each with all others
    clusters = np.arange(2_000) % 5
    assert bootstrap(lambda some: some[0][0], tasks, 0.95, 0, value=0.5).method == "bootstrap"
    assert bootstrap(lambda some: float(len(some)), tasks, 0.95, 0, clusters).why.startswith("every bootstrap draw")
    assert Counted.compared == 0
