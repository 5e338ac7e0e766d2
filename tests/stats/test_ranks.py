import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri, stdtr, stdtrit

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations import ranks_rule as twin
from bench.simulations.ranks import part
from calipers.stats.intervals import NO_SPREAD
from calipers.stats.paired import paired
from calipers.stats.ranks import FLIPS, UNIFORMS, random_signs, rank_sets, standard_normals, winner


def rows(text):
    return np.array([[float(mark) for mark in row] for row in text.split()])


THREE = rows("111111111011 101101101010 001000001000")
PICKED = rows("11111101101101110111 10110111101110110111 11011110101001111011")


def passes(runs, tasks, seed=1, shift=0.0):
    rng = np.random.default_rng(seed)
    chances = rng.random(tasks) * (1 - shift * (runs - 1))
    return (rng.random((runs, tasks)) < chances + shift * np.arange(runs)[:, None]).astype(float)


def sets(found):
    return list(zip(found.low.tolist(), found.high.tolist(), strict=True))


def test_reference_of_all_signs():
    found = rank_sets(THREE)
    assert found.t[[0, 0, 1], [1, 2, 2]].tolist() == pytest.approx([2.250500, 5.472621, 2.699031], abs=1e-6)
    assert found.critical == pytest.approx(2.803060, abs=1e-6)
    assert sets(found) == [(1, 2), (1, 3), (2, 3)]
    assert (found.patterns, found.exact) == (4096, True)


def gaps_of(values, places):
    """The values with these rollouts at their worst and at their best, places are (run, task) from 1."""
    low, high = values.copy(), values.copy()
    for run, task in places:
        low[run - 1, task - 1], high[run - 1, task - 1] = 0.0, 1.0
    return low, high


@pytest.mark.parametrize(
    ("places", "t"),
    [
        ([(1, 10), (3, 1)], [2.250500, 4.500999, 2.250500]),
        ([(1, 10), (3, 1), (3, 2), (3, 4)], [2.250500, 3.196773, 0.970143]),
    ],
)
@pytest.mark.parametrize("higher", [True, False])
def test_reference_of_all_signs_with_missing_rollouts(places, t, higher):
    low, high = gaps_of(THREE, places)
    if not higher:  # the mirror of the values also swaps their fillings
        low, high = 1 - high, 1 - low
    found = rank_sets(low, high=high, higher_is_better=higher)
    assert found.t[[0, 0, 1], [1, 2, 2]].tolist() == pytest.approx(t, abs=1e-6)
    assert found.critical == pytest.approx(2.803060, abs=1e-6)
    assert sets(found) == [(1, 2), (1, 3), (2, 3)]


def test_without_missing_rollouts_nothing_changes():
    values, weights, clusters = passes(6, 90, shift=0.06), np.arange(90) % 4 + 1.0, np.arange(90) // 3
    for options in ({}, {"weights": weights}, {"weights": weights, "clusters": clusters}):
        plain = rank_sets(values, **options)
        again = rank_sets(values, high=values.copy(), known=np.ones(values.shape, dtype=bool), **options)
        assert (again.critical, again.widest, sets(again)) == (plain.critical, plain.widest, sets(plain))
        assert (again.t.tolist(), again.errors.tolist()) == (plain.t.tolist(), plain.errors.tolist())
        assert again.interval(0, 5, -0.2) == plain.interval(0, 5, -0.2)


def test_tasks_that_no_run_has_do_not_count():
    values, known = passes(4, 60, shift=0.1), np.ones((4, 60), dtype=bool)
    known[:, 7:20] = False
    some, fewer = rank_sets(np.where(known, values, math.nan), known=known), rank_sets(values[:, known[0]])
    assert (some.critical, some.t.tolist(), sets(some)) == (fewer.critical, fewer.t.tolist(), sets(fewer))


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_the_t_of_a_pair_is_that_of_its_own_tasks(weighed, clustered):
    """The product is the test of two runs: the row at its worst, the column at its best, on the tasks of both."""
    rng = np.random.default_rng(4)
    values, known, lost = passes(5, 80, shift=0.1), rng.random((5, 80)) < 0.8, rng.random((5, 80)) < 0.1
    weights = rng.integers(1, 4, 80) * 1.0 if weighed else None
    clusters = np.arange(80) // 4 if clustered else None
    low, high = np.where(lost, 0.0, values), np.where(lost, 1.0, values)
    found = rank_sets(low, weights, clusters, high=high, known=known)
    for row, column in ((0, 1), (1, 0), (4, 2)):
        both = known[row] & known[column]
        test = paired(
            (low[row] - high[column])[both],
            weights if weights is None else weights[both],
            clusters if clusters is None else clusters[both],
        )
        assert found.t[row, column] == pytest.approx(test.value / test.stderr, abs=1e-9)
        assert found.errors[row, column] == pytest.approx(test.stderr, abs=1e-12)
        assert found.least[row, column] == pytest.approx(test.value, abs=1e-12)


@pytest.mark.parametrize("weighed", [False, True])
def test_signs_are_the_same_for_all_pairs_whatever_their_tasks(weighed):
    """All patterns by hand: the largest t over the ordered pairs, each with its own tasks and fillings."""
    rng = np.random.default_rng(6)
    values, known = rng.integers(0, 5, (3, 11)) / 4, np.ones((3, 11), dtype=bool)
    known[1, :2], known[2, 5] = False, False
    low, high = values.copy(), values.copy()
    low[0, 3], high[0, 3] = 0.0, 1.0
    weights = rng.integers(1, 4, 11) * 1.0 if weighed else np.ones(11)
    largest = []
    for pattern in range(1 << 11):
        signs = 1 - 2 * ((pattern >> np.arange(11)) & 1)
        of_pairs = []
        for row, column in ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)):
            both = known[row] & known[column]
            share, units = weights[both] / weights[both].sum(), int(both.sum())
            flipped = share * ((low[row] - high[column]) * signs)[both]
            rest = flipped - share * flipped.sum()
            squared_t = flipped.sum() ** 2 / max(units / (units - 1) * (rest**2).sum(), 1e-30)
            units = 1 / (share**2).sum()
            of_pairs.append(units * squared_t / (units - 1 + squared_t))  # the square of s, whatever the units
        largest.append(max(of_pairs))
    found = rank_sets(low, weights, high=high, known=known)
    squared_s = sorted(largest)[int(np.ceil(0.95 * len(largest))) - 1]
    for row, column in ((0, 1), (1, 2)):
        share = weights * known[row] * known[column]
        units = share.sum() ** 2 / (share**2).sum()
        needed = np.sqrt(squared_s * (units - 1) / (units - squared_s))
        assert found.needed_first[row, column] == pytest.approx(needed, abs=1e-9)


def test_a_run_with_few_tasks_does_not_hide_the_order_of_the_others():
    """The critical value of the complete runs was 3.9 with three runs of 7 tasks beside them, and is 2.4 without."""
    values, known = passes(7, 200, shift=0.08), np.ones((7, 200), dtype=bool)
    for run, start in ((4, 0), (5, 50), (6, 100)):
        known[run], values[run, start : start + 7] = False, values[run, start : start + 7] > 2
        known[run, start : start + 7] = True
    found, complete = rank_sets(values, known=known), rank_sets(values[:4])
    assert found.critical < complete.critical + 0.6
    assert found.needed[0, 6] > found.critical


def test_a_run_with_three_tasks_leaves_the_others_their_sets():
    """All three of its tasks point one way under every fourth pattern of signs, and then no pair could be shown."""
    values, known = passes(4, 200, shift=0.15), np.ones((4, 200), dtype=bool)
    values[3], known[3, 3:] = 0.0, False
    found, others = rank_sets(values, known=known), rank_sets(values[:3])
    assert sets(found)[3] == (1, 4)
    assert [high - low for low, high in sets(found)[:3]] == [high - low + 1 for low, high in sets(others)]
    assert others.tied.sum() < 9


def test_a_run_without_common_tasks_is_tied_with_all():
    values, known = passes(3, 80, shift=0.3), np.ones((3, 80), dtype=bool)
    known[:2, 40:], known[2, :40] = False, False
    found = rank_sets(values, known=known)
    assert sets(found)[2] == (1, 3)
    assert found.interval(0, 2, 0.1) is None


def test_a_pair_must_exceed_its_own_critical_value():
    own = np.full((3, 3), 5.6)
    found = rank_sets(THREE, own=own)
    assert sets(found) == [(1, 3)] * 3
    assert found.interval(0, 2, 0.75) == pytest.approx((0.75 - 5.6 * 0.137046, 0.75 + 5.6 * 0.137046), abs=1e-5)
    assert sets(rank_sets(THREE, own=own - 0.2)) == sets(rank_sets(THREE))


def test_a_lopsided_pair_must_reach_the_critical_value_with_its_score():
    scores = np.full((3, 3), math.nan)
    for score, held in ((2.7, True), (2.9, False)):
        scores[0, 2] = score
        found = rank_sets(THREE, scores=scores)
        assert (bool(found.unseen[0, 2]), bool(found.better[0, 2])) == (held, not held)
        assert not found.unseen[2, 0]
    assert bool(rank_sets(THREE, scores=scores, own=np.full((3, 3), 3.0)).unseen[0, 2])


def test_a_barred_pair_is_never_ordered():
    barred = np.zeros((3, 3), dtype=bool)
    barred[0, 2] = barred[2, 0] = True
    found = rank_sets(THREE, barred=barred)
    assert sets(found) == [(1, 3)] * 3
    assert (found.t[0, 2] > found.critical, bool(found.tied[0, 2]), bool(found.unseen[0, 2])) == (True, True, False)
    assert found.interval(0, 2, 0.75)[0] == 0.0  # the interval agrees with the verdict


def test_missing_rollouts_that_decide_are_named():
    low, high = gaps_of(THREE, [(3, 1), (3, 2), (3, 4), (3, 5)])
    found = rank_sets(low, high=high)
    decide = found.missing_decide(rank_sets(THREE))
    assert np.argwhere(decide).tolist() == [[0, 2]]
    scores = np.full((3, 3), math.nan)
    scores[0, 2] = 1.0
    held = rank_sets(THREE, scores=scores)
    assert not held.missing_decide(rank_sets(THREE)).any()  # a loss not seen holds this pair back


@st.composite
def boards(draw):
    """Runs with 0/1 values on 8 to 12 tasks, some of them missing, some not planned."""
    runs, tasks = draw(st.integers(2, 4)), draw(st.integers(8, 12))
    marks = [draw(st.lists(st.sampled_from("0111.-"), min_size=tasks, max_size=tasks)) for _ in range(runs)]
    text = np.array(marks)
    values = (text == "1").astype(float)
    return values, np.where(text == ".", 1.0, values), text != "-"


@settings(max_examples=60, deadline=None)
@given(boards(), st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(board, random):
    values, high, known = board
    order = list(range(len(values)))
    random.shuffle(order)
    if (known.sum(axis=0) > 1).sum() < 2:
        return
    found = rank_sets(values, high=high, known=known)
    turned = rank_sets(values[order], high=high[order], known=known[order])
    assert sets(turned) == [sets(found)[run] for run in order]
    assert turned.t == pytest.approx(found.t[np.ix_(order, order)], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(boards())
def test_an_interval_agrees_with_the_verdict_of_its_pair(board):
    values, high, known = board
    if (known.sum(axis=0) > 1).sum() < 2:
        return
    for higher in (True, False):
        found = rank_sets(values, high=high, known=known, higher_is_better=higher)
        for one, two in np.argwhere(~np.eye(len(values), dtype=bool)).tolist():
            both = known[one] & known[two]
            difference = float((values[one] - values[two])[both].mean()) if both.any() else 0.0
            interval = found.interval(one, two, difference)
            if interval is None:
                assert found.tied[one, two]
                continue
            low, above = interval
            assert low <= difference <= above
            assert low <= float((values[one] - high[two])[both].mean()) + 1e-12
            assert above >= float((high[one] - values[two])[both].mean()) - 1e-12
            if found.tied[one, two]:
                assert low <= 0 <= above
            elif found.better[one, two] == higher:
                assert 0 <= low < above
            else:
                assert low < above <= 0


@settings(max_examples=60, deadline=None)
@given(boards(), st.data())
def test_one_more_missing_rollout_never_raises_a_t(board, data):
    values, high, known = board
    run = data.draw(st.integers(0, len(values) - 1))
    task = data.draw(st.integers(0, values.shape[1] - 1))
    if (known.sum(axis=0) > 1).sum() < 2:
        return
    before = rank_sets(values, high=high, known=known)
    values, high = values.copy(), high.copy()
    values[run, task], high[run, task] = 0.0, 1.0
    after = rank_sets(values, high=high, known=known)
    assert (after.t <= before.t + 1e-9)[before.t > 0].all()


def test_reference_of_the_winner():
    """Two million draws gave q 2.384 and the bias 0.0662."""
    found = winner(PICKED, draws=200_000)
    assert (found.run, found.observed, found.candidates) == (0, 0.8, 3)
    assert found.bias == pytest.approx(0.0662, abs=5e-4)
    assert found.value == pytest.approx(0.7338, abs=5e-4)
    # 2.384 and 1.96 as Student's quantiles with 19 degrees of freedom, as no range is known
    below, above = (float(stdtrit(19, ndtr(normal))) * 0.091766 for normal in (2.384, 1.959964))
    assert found.interval == pytest.approx((0.8 - below, 0.7338 + above), abs=1.5e-3)
    few = winner(PICKED)
    assert few.bias == pytest.approx(found.bias, abs=0.002)
    assert few.interval == pytest.approx(found.interval, abs=0.02 * 0.091766 * 3)


def test_a_known_range_takes_the_lower_of_two_lower_ends():
    """The default interval's, with the quantile of the largest of three in place of 1.96."""
    found, free = winner(PICKED, limits=(0.0, 1.0)), winner(PICKED)
    assert found.interval[1] == pytest.approx(0.8 - found.bias + 1.959964 * np.sqrt(0.16 / 19), abs=1e-6)
    q = ndtri(stdtr(19, (0.8 - free.interval[0]) / np.sqrt(0.16 / 19)))
    centre, half = 0.8 + q * q / 40, q * np.sqrt(0.16 / 20 + q * q / 1600)
    assert found.interval[0] == pytest.approx((centre - half) / (1 + q * q / 20), abs=1e-9)


def test_the_winner_of_own_tasks_is_that_of_common_tasks_if_all_have_the_same():
    values, known = passes(5, 60, shift=0.1), np.ones((5, 60), dtype=bool)
    known[:, 40:] = False
    for options in ({}, {"limits": (0.0, 1.0)}, {"higher_is_better": False}):
        assert winner(np.where(known, values, math.nan), known=known, **options) == winner(values[:, :40], **options)


def test_a_run_with_one_task_is_no_candidate():
    values, known = passes(4, 60), np.ones((4, 60), dtype=bool)
    values[3, 0], known[3, 1:] = 1.0, False
    found = winner(values, known=known)
    assert (found.candidates, found.run) == (3, winner(values[:3]).run)


def test_a_winner_with_other_tasks_has_the_covariance_of_the_tasks_that_both_have():
    """Two copies of one run are equal where both have tasks, so that the selection between them has little bias."""
    values = np.repeat(passes(1, 200), 2, axis=0)
    known = np.ones((2, 200), dtype=bool)
    known[1, 190:] = False
    copies = winner(values, known=known).bias
    assert 0 <= copies < 0.2 * winner(passes(2, 200)).bias


@pytest.mark.parametrize("higher", [True, False])
def test_missing_rollouts_widen_the_interval_of_the_winner(higher):
    """It reaches from the lower end with all of them failed to the upper end with all of them passed."""
    values, known = PICKED.copy(), np.ones(PICKED.shape, dtype=bool)
    known[0, :3] = False
    worst = np.where(known, values, 0.0), np.where(known, values, 1.0), np.ones(PICKED.shape, dtype=bool)
    options = {"limits": (0.0, 1.0), "higher_is_better": higher}
    if not higher:
        values, worst = 1 - values, (1 - worst[1], 1 - worst[0], worst[2])
    found, seen = winner(values, known=known, worst=worst, **options), winner(values, known=known, **options)
    assert (found.run, found.observed, found.value) == (seen.run, seen.observed, seen.value)
    assert found.interval[0] < seen.interval[0] < found.value < seen.interval[1] < found.interval[1]
    better_end = found.interval[1] if higher else 1 - found.interval[0]
    mean = float(np.where(known, PICKED, 1.0)[0].mean())
    assert better_end == pytest.approx(min(1.0, mean + 1.959964 * np.sqrt(mean * (1 - mean) / 19)), abs=1e-6)


def test_missing_rollouts_of_other_runs_leave_the_interval_of_the_winner():
    low, planned = PICKED.copy(), np.ones(PICKED.shape, dtype=bool)
    low[1, :2] = 0.0
    assert winner(PICKED, worst=(low, PICKED, planned), limits=(0.0, 1.0)) == winner(PICKED, limits=(0.0, 1.0))


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_the_winner_of_few_tasks_without_a_range_is_covered(tasks):
    """With normal quantiles the interval covers in 66, 81 and 88 % of such comparisons."""
    rng = np.random.default_rng(tasks)
    ends = [winner(rng.normal(size=(3, tasks)), draws=400).interval for _ in range(300)]
    assert sum(low <= 0 <= high for low, high in ends) >= 0.92 * 300


def test_a_perfect_winner_is_not_certain():
    values = passes(10, 50, shift=0.05)
    values[4] = 1.0
    found = winner(values, limits=(0.0, 1.0))
    assert (found.run, found.observed, found.interval[1]) == (4, 1.0, 1.0)
    assert found.interval[0] < 0.93
    unbounded = winner(values)
    assert (unbounded.interval, unbounded.why) == (None, NO_SPREAD)


def test_many_signs_agree_with_the_pairs_of_the_product():
    values = passes(5, 60, shift=0.1)
    found = rank_sets(values)
    for one, two in ((0, 1), (2, 4), (4, 1)):
        test = paired(values[one] - values[two])
        assert abs(found.t[one, two]) == pytest.approx(abs(test.value) / test.stderr, abs=1e-12)
    assert (found.patterns, found.exact) == (FLIPS, False)


@pytest.mark.parametrize(("runs", "tasks", "shift"), [(3, 100, 0.0), (10, 60, 0.03), (6, 500, 0.1), (12, 40, 0.08)])
def test_the_bench_simulates_what_ships(runs, tasks, shift):
    replicates = np.stack([passes(runs, tasks, seed, shift) for seed in range(6)])
    # the order of tasks that the product puts them in, so that both see the same signs
    ordered = np.stack([values[:, np.lexsort(values[::-1] / tasks)] for values in replicates]).astype(np.float32)
    signs = random_signs(np.random.PCG64(0), tasks, FLIPS).astype(np.float32)
    low, high = twin.rank_sets(ordered, signs)
    picked = twin.winners(ordered, standard_normals(0, runs, 4_000))
    for place, values in enumerate(replicates):
        found = rank_sets(values)
        assert (found.low.tolist(), found.high.tolist()) == (low[place].tolist(), high[place].tolist())
        best = winner(values, limits=(0.0, 1.0))
        assert best.run == picked.run[place]
        assert best.bias == pytest.approx(picked.bias[place], abs=1e-12)
        assert best.interval == pytest.approx([float(end[place]) for end in picked.ends], abs=1e-9)
        error = math.sqrt(best.observed * (1 - best.observed) / (tasks - 1))
        normal = (best.observed - float(picked.bare[0][place])) / error
        below = float(stdtrit(tasks - 1, ndtr(normal))) * error  # no range is known
        assert winner(values).interval[0] == pytest.approx(best.observed - below, abs=1e-9)


def test_step_down_shows_more_than_one_step():
    """Runs far apart are shown first; the others are then compared among fewer pairs."""
    values = passes(6, 400, seed=5)
    values[0], values[1] = 0.0, 1.0
    found = rank_sets(values)
    free = rank_sets(values[2:])
    assert sets(found)[:2] == [(6, 6), (1, 1)]
    assert found.critical < rank_sets(passes(6, 400, seed=5)).critical
    assert sets(found)[2:] == [(low + 1, high + 1) for low, high in sets(free)]


@pytest.mark.parametrize("units", [10, 60])
def test_order_of_tasks_does_not_matter(units):
    values, weights = passes(4, units) + 1 / 3, np.arange(1.0, units + 1)
    order = np.random.default_rng(2).permutation(units)
    for limits in (None, (0.0, 2.0)):
        assert winner(values, weights, limits=limits) == winner(values[:, order], weights[order], limits=limits)
    one, two = rank_sets(values, weights), rank_sets(values[:, order], weights[order])
    assert (one.critical, one.t.tolist(), sets(one)) == (two.critical, two.t.tolist(), sets(two))


def test_lower_may_be_better():
    values = passes(4, 80, shift=0.15)
    up, down = rank_sets(values), rank_sets(1 - values, higher_is_better=False)
    assert sets(up) == sets(down)
    best, least = winner(values, limits=(0.0, 1.0)), winner(1 - values, higher_is_better=False, limits=(0.0, 1.0))
    assert (least.run, least.bias) == (best.run, -best.bias)
    assert least.interval == pytest.approx((1 - best.interval[1], 1 - best.interval[0]), abs=1e-12)


def test_equal_shares_are_weights_of_one():
    values = passes(4, 40, shift=0.1)
    plain, weighed = rank_sets(values), rank_sets(values, np.full(40, 3.0))
    assert plain.t == pytest.approx(weighed.t, abs=1e-12)
    assert plain.critical == pytest.approx(weighed.critical, abs=1e-9)
    assert winner(values, np.full(40, 3.0)).interval == pytest.approx(winner(values).interval, abs=1e-12)


def test_the_flipped_t_of_uneven_units_is_that_of_flipped_data():
    """All patterns by hand: the t of the data whose differences have these signs, without the floor."""
    values, weights = passes(2, 7, seed=3) + passes(2, 7, seed=4) / 3, np.array([1.0, 2, 3, 1, 5, 2, 1])
    share = weights / weights.sum()
    pulls = share * (values[0] - values[1])
    found = []
    for pattern in range(1 << 7):
        flipped = pulls * (1 - 2 * ((pattern >> np.arange(7)) & 1))
        rest = flipped - share * flipped.sum()
        found.append(abs(flipped.sum()) / np.sqrt(7 / 6 * (rest**2).sum()))
    assert rank_sets(values, weights).critical == pytest.approx(sorted(found)[int(np.ceil(0.95 * 128)) - 1], abs=1e-9)


def test_clusters_flip_together():
    """A cluster of tasks that go together is one unit: of copies of ten tasks nothing more is known than of ten."""
    values = passes(3, 10, shift=0.3)
    copies, clusters = np.repeat(values, 5, axis=1), np.repeat(np.arange(10), 5)
    whole, single = rank_sets(copies, clusters=clusters), rank_sets(values)
    assert whole.critical == pytest.approx(single.critical, abs=1e-9)
    assert sets(whole) == sets(single)
    assert (rank_sets(copies).high - rank_sets(copies).low).sum() < (whole.high - whole.low).sum()
    found = winner(copies, clusters=clusters, limits=(0.0, 1.0)), winner(values, limits=(0.0, 1.0))
    assert found[0].bias == pytest.approx(found[1].bias, abs=1e-12)


def test_runs_that_are_alike_share_all_ranks():
    found = rank_sets(np.repeat(passes(1, 50), 4, axis=0))
    assert sets(found) == [(1, 4)] * 4
    assert (found.critical, found.t.any()) == (np.inf, False)
    assert winner(np.repeat(passes(1, 50), 4, axis=0)).bias == 0


def test_few_units_show_nothing_by_all_pointing_one_way():
    values = np.stack([np.full(4, 0.9), np.full(4, 0.1)]) + 0.01 * passes(2, 4)
    assert sets(rank_sets(values)) == [(1, 2), (1, 2)]


def test_huge_values_have_ranks_too():
    values = passes(3, 60, shift=0.3)
    for size in (2.0**600, 2.0**-600):
        assert sets(rank_sets(values * size)) == sets(rank_sets(values))
        assert winner(values * size).interval == tuple(size * end for end in winner(values).interval)


def test_sums_of_uniform_numbers_stand_for_normal_ones():
    drawn = standard_normals(0, 20, 20_000)
    assert (drawn.mean(), drawn.std()) == pytest.approx((0, 1), abs=0.005)
    assert np.quantile(drawn, [0.025, 0.5, 0.975]).tolist() == pytest.approx([-1.96, 0, 1.96], abs=0.02)
    assert abs(np.corrcoef(drawn) - np.eye(20)).max() < 0.04
    assert standard_normals(0, 1, 1)[0, 0] == pytest.approx(
        (np.random.PCG64(0).random_raw(UNIFORMS // 4).view("<u2").sum() / 2**16 - UNIFORMS / 2)
        * (12 / UNIFORMS) ** 0.5,
        abs=1e-3,
    )


@pytest.mark.parametrize("make", [rank_sets, winner])
@pytest.mark.parametrize(("tasks", "clusters"), [(1, None), (4, np.zeros(4, int))])
def test_one_unit_ranks_nobody(make, tasks, clusters):
    with pytest.raises(ValueError, match="two or more"):
        make(np.ones((3, tasks)), clusters=clusters)


def test_the_part_of_the_bench_states_its_replicates_and_what_is_promised():
    text, broken = part(200, 20)
    assert "20 replicates per cell" in text
    assert text.count("| best of 10,") == 6
    assert "two groups .1 apart" in text
    assert all("%" in said for said in broken)  # so few replicates may miss a promise, and then say where
