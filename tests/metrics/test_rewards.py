import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GAP, rewards

from calipers.metrics.rewards import all_of_first_k, any_of_first_k, max_at_k, pass_at_k, pass_hat_k, passes, solved


def counted(n, c):
    return rewards([1] * c + [0] * (n - c))


def values(column):
    return [v if there else GAP for v, there in zip(column.values.tolist(), column.given.tolist())]


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [  # the unbiased estimator of Chen et al. 2021, computed with exact fractions
        (10, 3, 5, 0.916666666667),
        (200, 10, 10, 0.4085478661),
        (200, 10, 100, 0.9992289739),
        (8, 3, 4, 0.928571428571),
        (5, 2, 3, 0.9),
        (100, 1, 10, 0.1),
        (3, 0, 3, 0.0),
        (3, 3, 1, 1.0),
    ],
)
def test_pass_at_k_is_the_unbiased_one(n, c, k, expected):
    assert values(pass_at_k(*counted(n, c), k=k, threshold=1.0)) == pytest.approx([expected], abs=1e-10)


@pytest.mark.parametrize(("n", "c", "k", "expected"), [(64, 32, 8, 0.0023763911), (10, 7, 4, 1 / 6), (4, 1, 2, 0)])
def test_pass_hat_k(n, c, k, expected):
    assert values(pass_hat_k(*counted(n, c), k=k, threshold=1.0)) == pytest.approx([expected], abs=1e-10)


@pytest.mark.parametrize(
    ("task", "k", "expected"),
    [
        ([1, 0, 0], 2, 2 / 3),
        ([0.999, 0], 1, 0),  # just below the threshold is a failure
        ([1, GAP], 1, 1),  # a gap is not a sample
        ([1, 1, GAP], 3, GAP),  # fewer than k samples: undefined, neither 0 nor 1
        ([math.nan, 1], 1, 0.5),  # NaN is a sample, but not a pass
        ([2, -1], 1, 0.5),
        ([], 1, GAP),
    ],
)
def test_pass_at_k_at_the_edges(task, k, expected):
    assert values(pass_at_k(*rewards(task), k=k, threshold=1.0)) == [expected]


@given(st.lists(st.integers(0, 1), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_and_hat_at_k_are_what_all_subsets_say(task, k):
    subsets = list(combinations(task, k))
    for function, verdict in ((pass_at_k, any), (pass_hat_k, all)):
        expected = GAP if not subsets else sum(map(verdict, subsets)) / len(subsets)
        assert values(function(*rewards(task), k=k, threshold=1.0)) == [expected]


@pytest.mark.parametrize(
    ("task", "k", "some", "every"),
    [
        ([0, 0, 0, 1], 3, 0, 0),  # the fourth sample comes too late
        ([1, 1, 1, 0], 3, 1, 1),
        ([1, 0], 3, 1, 0),  # fewer than k: all of them are used
        ([1], 3, 1, 1),
        ([GAP, 0, 1], 1, 0, 0),  # "first" means the first with a reward
        ([], 1, GAP, GAP),
    ],
)
def test_first_k_by_order_of_samples(task, k, some, every):
    assert values(any_of_first_k(*rewards(task), k=k, threshold=1.0)) == [some]
    assert values(all_of_first_k(*rewards(task), k=k, threshold=1.0)) == [every]


@pytest.mark.parametrize(
    ("task", "k", "undefined", "judged"),
    [
        ([0, 0, 1], 4, 1, 1),  # stopped at its first pass: the fourth sample is not needed
        ([0, 0], 4, GAP, 0),  # the results of the other samples are unknown
        ([0, GAP, GAP, GAP], 4, GAP, 0),
        ([0, 0, 0, 0], 4, 0, 0),
        ([0, 0, 0, 0, 1], 4, 0, 0),
        ([], 4, GAP, GAP),
    ],
)
def test_a_task_with_fewer_than_k_samples_is_known_once_it_passed(task, k, undefined, judged):
    assert values(any_of_first_k(*rewards(task), k=k, threshold=1.0)) == [undefined]
    assert values(any_of_first_k(*rewards(task), k=k, threshold=1.0, short="judged")) == [judged]


@pytest.mark.parametrize(("k", "expected"), [(1, 0.45), (2, 0.65), (3, 0.775), (4, 0.9), (5, GAP)])
def test_max_at_k_of_real_rewards(k, expected):
    assert values(max_at_k(*rewards([0.4, 0.1, 0.9, 0.4]), k=k)) == [pytest.approx(expected) if expected else GAP]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.integers(1, 6))
def test_max_at_k_is_what_all_subsets_say(task, k):
    subsets = list(combinations(task, k))
    expected = pytest.approx(math.fsum(map(max, subsets)) / len(subsets), abs=1e-12) if subsets else GAP
    assert values(max_at_k(*rewards(task), k=k)) == [expected]


def test_max_at_k_is_pass_at_k_for_rewards_of_zero_and_one():
    tasks = rewards([1, 0, 0, 0], [0, 0, 0], [1, 1, 0], [1])
    for k in (1, 2, 3):
        assert values(max_at_k(*tasks, k=k)) == pytest.approx(values(pass_at_k(*tasks, k=k, threshold=1.0)))


def test_a_task_is_solved_when_its_mean_reaches_the_threshold():
    tasks = rewards([2, 0], [1, 0.99], [], [1, 1], [0.1] * 10)
    assert values(solved(*tasks, threshold=1.0)) == [1, 0, GAP, 1, 0]
    assert values(solved(*rewards([0.1] * 10), threshold=0.1)) == [1]  # the mean is exact, not 0.09999999999999999


def test_passes_and_samples_are_counted_apart():
    column = passes(*rewards([1, GAP, 0.5], [0.5], []), threshold=0.5)
    assert column.values[column.given].tolist() == [[2, 2], [1, 1]]


def test_max_at_k_ignores_an_infinity_that_is_never_the_best():
    assert values(max_at_k(*rewards([-math.inf, 1.0, 3.0]), k=2)) == [pytest.approx(7 / 3)]
    assert values(max_at_k(*rewards([-math.inf, 1.0, 3.0]), k=1)) == [-math.inf]


def test_max_at_k_of_many_samples_is_rounded_once():
    task = [float(n) for n in range(2000)]
    # the expected largest of k ranks drawn from 0 to n - 1 is k (n + 1) / (k + 1) - 1
    assert values(max_at_k(*rewards(task), k=1000)) == [pytest.approx(1000 * 2001 / 1001 - 1, rel=1e-14)]
