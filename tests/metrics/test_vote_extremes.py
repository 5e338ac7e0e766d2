"""The bounds of maj@k contain its value for every filling of the missing samples; small cases try all of them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import rollouts

import calipers
from calipers.metrics.votes import MOST_FILLINGS, _fillings, _ways, maj_at_k, majority_extremes
from calipers.rollouts.column import Column, Groups

NONE = -1  # no answer
SAMPLES = st.lists(st.tuples(st.sampled_from([NONE, 0, 1, 2]), st.sampled_from([0.0, 0.5, 1.0])), max_size=3)


def table(samples, gaps=0):
    answers = np.array([answer for answer, _ in samples] + [NONE] * gaps, dtype=float)
    worth = np.array([reward for _, reward in samples] + [0.0] * gaps, dtype=float)
    size = len(answers)
    given = np.arange(size) < len(samples)
    by = Groups.of(np.zeros(size, dtype=np.int64), 1)
    return Column(worth, given), Column(np.maximum(answers, 0), answers >= 0), by


def extremes(samples, gaps, k):
    least, most = majority_extremes(*table(samples, gaps), (0.0, 1.0), k)
    return float(least.values[0]), float(most.values[0])


def every_filling(samples, missing, k):
    """maj@k for each filling; each filling is a task of one table."""
    new = range(3, 3 + missing)
    fillings = list(product(product([NONE, 0, 1, 2, *new], [0.0, 1.0]), repeat=missing))
    pairs = np.array([[*samples, *filling] for filling in fillings], dtype=float)  # [filling, sample, 2]
    answers, worth = pairs[..., 0].ravel(), pairs[..., 1].ravel()
    by = Groups.of(np.repeat(np.arange(len(fillings)), pairs.shape[1]), len(fillings))
    found = maj_at_k(Column.of(worth), Column(np.maximum(answers, 0), answers >= 0), by, k)
    assert found.given.all()
    return found.values.tolist()


@settings(max_examples=60, deadline=None)
@given(samples=SAMPLES, gaps=st.integers(0, 2), k=st.integers(1, 3))
def test_no_filling_leaves_the_extremes_and_some_reach_them(samples, gaps, k):
    missing = max(len(samples) + gaps, k) - len(samples)
    found = every_filling(samples, missing, k)
    assert extremes(samples, gaps, k) == (pytest.approx(min(found)), pytest.approx(max(found)))


ANY = st.tuples(st.sampled_from([NONE, 0, 1, 2, 3, 4, 5]), st.sampled_from([0.0, 1.0]))


@settings(max_examples=100, deadline=None)
@given(samples=SAMPLES, filling=st.lists(ANY, min_size=14, max_size=14), k=st.integers(1, 5))
def test_where_there_are_too_many_ways_to_try_the_ends_still_hold(samples, filling, k):
    low, high = extremes(samples, 14, k)
    found = float(maj_at_k(*table([*samples, *filling]), k).values[0])
    assert low - 1e-12 <= found <= high + 1e-12


def test_how_many_ways_are_tried():
    assert _ways(3, 14) > MOST_FILLINGS > _ways(3, 6) == len(_fillings(3, 6)[2])
    assert _ways(0, 10**6) > MOST_FILLINGS


def test_one_missing_vote_cannot_turn_a_clear_majority():
    # k = 3 of four samples, three of which agree on an answer with the reward 1
    assert extremes([(0, 1.0)] * 3, 1, 3) == (pytest.approx(0.75), 1.0)  # 3/4: the fourth agrees, and fails
    assert extremes([(0, 1.0), (1, 0.0)], 1, 3) == (pytest.approx(0.0), pytest.approx(1.0))


def test_many_missing_samples_are_answered_at_once():
    low, high = extremes([(0, 1.0)] * 3, 500, 2)
    assert (low, high) == (pytest.approx(0, abs=1e-3), pytest.approx(1))


def test_votes_with_gaps_have_bounds_as_their_card_says():
    voted = [{"task": "a", "reward": 1, "answer": 7}] * 3 + [{"task": "b", "reward": 0, "answer": n} for n in range(3)]
    whole = [{**row, "sample": number} for number, row in enumerate(voted)]
    lost = {"task": "a", "sample": 9, "outcome": "client_failed"}
    assert calipers.score(rollouts(*whole, labels=["answer"]), "maj@3")["maj@3"].bounds is None
    found = calipers.score(rollouts(*whole, lost, labels=["answer"]), "maj@3")["maj@3"]
    assert found.value == 0.5
    assert found.bounds == pytest.approx((0.375, 0.5))
