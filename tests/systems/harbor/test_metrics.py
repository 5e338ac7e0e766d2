"""The rules of Harbor's metrics over maps of rewards; the golden vectors have Harbor's own results."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError, UnknownName
from calipers.systems.harbor.metrics import BUILT_IN, eligible_ks, metric, pass_at_k_ladder, pass_ladder, summed

NUMBERS = st.one_of(st.integers(-3, 3), st.floats(-10, 10))
TRIALS = st.lists(
    st.one_of(st.none(), st.dictionaries(st.sampled_from(["reward", "acc", "style"]), NUMBERS)), min_size=1, max_size=12
)


@pytest.mark.parametrize(
    ("name", "trials", "expected"),
    [
        ("mean", [{"reward": 1}, None, {}], {"mean": 1 / 3}),  # no map and an empty one count 0
        ("mean", [{"acc": 1}, {"reward": 0}], {"acc": 0.5, "reward": 0}),  # two names, though never in one trial
        ("mean", [{"acc": 1}], {"mean": 1}),  # a lone name is lost
        ("mean", [None], {"mean": 0}),
        ("max", [{"r": -2}, None, {"r": -1}], {"max": 0}),  # what is missing beats what is negative
        ("min", [{"a": 1, "b": 1}, {"a": 1}], {"a": 1, "b": 0}),
        ("sum", [], {"sum": 0}),
        ("sum", [{"r": 1}, {"r": 2}], {"sum": 3}),
    ],
)
def test_one_metric(name, trials, expected):
    assert metric(name, trials) == pytest.approx(expected)


def test_names_come_in_the_order_of_their_code_points():
    assert list(metric("sum", [{"b": 1, "Ä": 1, "a": 1, "B": 1}])) == ["B", "a", "b", "Ä"]


@pytest.mark.parametrize(("values", "kind"), [([1, 2], int), ([1, 2.0], float), ([], int)])
def test_integers_stay_integers(values, kind):
    assert type(summed(values)) is kind


@pytest.mark.parametrize(
    ("values", "expected"), [([0.1] * 10, 1.0), ([1e308, 1e308], math.inf), ([1e16, 1.0, -1e16], 1.0)]
)
def test_sums_are_true_sums(values, expected):
    assert summed(values) == expected


@pytest.mark.parametrize("name", ["mean", "min", "max"])
def test_nothing_has_no_mean(name):
    with pytest.raises(InputError, match="no trials"):
        metric(name, [])


def test_an_unknown_metric_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'mean'"):
        metric("maen", [None])


@given(trials=TRIALS, order=st.randoms(), name=st.sampled_from(sorted(BUILT_IN)))
def test_the_order_of_trials_says_nothing(trials, order, name):
    shuffled = order.sample(trials, len(trials))
    assert list(metric(name, shuffled).items()) == list(metric(name, trials).items())


@given(trials=TRIALS, name=st.sampled_from(sorted(BUILT_IN)))
def test_what_is_missing_is_zero(trials, name):
    """Adding zeros for missing rewards changes no number; it may add the name of a single reward."""
    keys = {key for trial in trials if trial for key in trial}
    if len(keys) > 1:
        filled = [{key: (trial or {}).get(key, 0) for key in keys} for trial in trials]
        assert metric(name, filled) == metric(name, trials)


@pytest.mark.parametrize(
    ("most", "ks"), [(-1, []), (1, []), (2, [2]), (3, [2]), (9, [2, 4, 5, 8]), (16, [2, 4, 5, 8, 10, 15, 16])]
)
def test_which_k_there_are(most, ks):
    assert eligible_ks(most) == ks


@given(n=st.integers(1, 30), data=st.data())
def test_pass_at_k_grows_with_k_and_with_passes(n, data):
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    assert 0 <= pass_at_k_ladder(n, c, k) <= 1
    assert pass_at_k_ladder(n, c, 1) == pytest.approx(c / n)
    if c:
        assert pass_at_k_ladder(n, c, k) >= pass_at_k_ladder(n, c - 1, k)
    if k > 1:
        assert pass_at_k_ladder(n, c, k) >= pass_at_k_ladder(n, c, k - 1)


PASS, FAIL = {"reward": 1}, {"reward": 0.0}


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([[PASS, FAIL], [FAIL, FAIL]], {2: 0.5}),
        ([[PASS, None]], {2: 1.0}),  # no reward is a failure
        ([[{"acc": 1}, FAIL]], {2: 1.0}),  # names do not matter
        ([[PASS, FAIL], [FAIL]], {}),  # every task needs two
        ([[PASS, FAIL, FAIL, FAIL, FAIL], [PASS, FAIL]], {2: 0.7}),  # surplus attempts are used
        ([[PASS, {}]], {}),  # an empty map is neither
        ([[PASS, {"reward": 0.5}], [FAIL, FAIL]], {}),  # one fraction takes it from all
        ([[PASS, {"a": 1, "b": 1}]], {}),
        ([], {}),
    ],
)
def test_the_ladder(tasks, expected):
    assert pass_ladder(tasks) == pytest.approx(expected)
