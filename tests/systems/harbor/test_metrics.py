"""The rules of Harbor's metrics over maps of rewards; the golden vectors have Harbor's own results."""

from __future__ import annotations

import math

import numpy as np
import pytest
from harbor_jobs import made
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError, UnknownName
from calipers.rollouts.column import Column, Groups
from calipers.systems.harbor.metrics import (
    BUILT_IN,
    Tally,
    counted,
    eligible_ks,
    evals_key,
    key_of,
    ladder,
    ladders,
    metric,
    metrics_of,
    pass_at_k_ladder,
    pass_ladder,
    statistic,
    summed,
)

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


# Harbor's metrics from columns equal those from maps


VERDICTS = st.one_of(
    st.none(), st.just({}), st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.0, 1.0]), max_size=1)
)
ANY = st.one_of(VERDICTS, st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.0, 1.0, 0.5, -2.0, 0.1])))
TASKS = st.lists(st.lists(ANY, min_size=1, max_size=11), min_size=1, max_size=4)
LADDERS = st.lists(st.lists(VERDICTS.filter(lambda one: one != {}), min_size=1, max_size=11), min_size=1, max_size=4)


def columns(tasks):
    trials = [trial for task in tasks for trial in task]
    keys = sorted({key for trial in trials if trial for key in trial})
    rewards = {
        key: Column.of([(trial or {}).get(key, 0) for trial in trials], [key in (trial or {}) for trial in trials])
        for key in keys
    }
    by = Groups.of(np.repeat(np.arange(len(tasks)), [len(task) for task in tasks]), len(tasks))
    return trials, rewards, by, np.array([trial == {} for trial in trials])


@given(tasks=TASKS, name=st.sampled_from(sorted(BUILT_IN)))
def test_statistics(tasks, name):
    trials, rewards, _, _ = columns(tasks)
    assert statistic(name, rewards, len(trials)) == pytest.approx(metric(name, trials), rel=1e-12)


@given(tasks=st.one_of(TASKS, LADDERS))
def test_ladders(tasks):
    _, rewards, by, empty = columns(tasks)
    assert ladder(rewards, by, empty) == pytest.approx(pass_ladder(tasks), rel=1e-12)


@given(tasks=st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_sum_is_rounded_once(tasks):
    """Adding up sums per task would give another last digit."""
    found = calipers.score(tasks, "pooled_sum")["pooled_sum"].value
    assert found == math.fsum(reward for task in tasks for reward in task)


def test_values_are_counted_the_largest_first():
    assert counted(Column.of([0.5, 1, -0.0, 0, 9], [True, True, True, True, False])) == {"1.0": 1, "0.5": 1, "0.0": 2}


# Harbor's job statistics, to which trials can be added and from which they can be removed


SPENT = st.fixed_dictionaries({}, optional={"n_input_tokens": st.integers(0, 9), "cost_usd": st.just(0.25)})
TRIAL = st.fixed_dictionaries(
    {"task": st.sampled_from(["t1", "t2"]), "agent_result": st.one_of(st.none(), SPENT)},
    optional={
        "rewards": st.one_of(st.none(), st.dictionaries(st.sampled_from("ab"), st.sampled_from([0, 1, 1.0, 0.5]))),
        "exception_type": st.sampled_from(["CancelledError", "RuntimeError"]),
        "source": st.sampled_from(["d1", "d2"]),
        "model": st.sampled_from(["m", "org/m"]),
    },
)


@given(st.lists(TRIAL, max_size=8))
def test_what_is_taken_out_leaves_nothing_but_empty_lists(shorts):
    trials = [made(trial=f"t{number}", **short) for number, short in enumerate(shorts)]
    tally = Tally(trials)
    for trial in trials:
        tally.remove(trial)
    left = tally.to_dict()
    counters = {name: value for name, value in left.items() if name.endswith("_trials")}
    assert set(counters.values()) == {0}
    assert not any(left[name] for name in ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd"))
    for one in left["evals"].values():
        assert (one["n_trials"], one["n_errors"]) == (0, 0)
        assert not any(names for values in one["reward_stats"].values() for names in values.values())
        assert not any(one["exception_stats"].values())


@given(shorts=st.lists(TRIAL, max_size=8), order=st.randoms())
def test_the_order_of_trials_changes_no_count(shorts, order):
    trials = [made(trial=f"t{number}", **short) for number, short in enumerate(shorts)]
    one, other = Tally(trials).to_dict(total=9), Tally(order.sample(trials, len(trials))).to_dict(total=9)
    assert {**one, "evals": None} == {**other, "evals": None}
    for key, held in one["evals"].items():
        assert (held["n_trials"], held["n_errors"]) == (
            other["evals"][key]["n_trials"],
            other["evals"][key]["n_errors"],
        )
    assert ladders(trials) == ladders(order.sample(trials, len(trials)))


def test_what_was_not_counted_cannot_be_taken_out():
    tally = Tally([made(rewards={"r": 1})])
    for other in (made(trial="other", rewards={"r": 1}), made(rewards={"r": 0}), made(agent="x")):
        with pytest.raises(InputError, match="is not in the counts"):
            tally.remove(other)
    assert tally.completed == 1


def test_the_value_met_first_names_its_list():
    stats = Tally([made(trial="a", rewards={"r": 1}), made(trial="b", rewards={"r": 1.0})]).to_dict()
    assert stats["evals"]["a1__adhoc"]["reward_stats"] == {"r": {"1": ["a", "b"]}}


@pytest.mark.parametrize(
    ("total", "running", "pending"),
    [(5, 1, 2), (2, 0, 0), (1, 0, 0)],  # never below zero
)
def test_what_is_pending(total, running, pending):
    stats = Tally([made(trial="a"), made(trial="b")]).to_dict(total=total, running=running)
    assert stats["n_pending_trials"] == pending


def test_a_sum_of_unknowns_is_unknown_and_of_some_the_known_part():
    trials = [made(trial="a", agent_result={"cost_usd": 0.5}), made(trial="b", agent_result={"n_input_tokens": 3})]
    stats = Tally(trials).to_dict()
    assert (stats["cost_usd"], stats["n_input_tokens"], stats["n_output_tokens"]) == (0.5, 3, None)


@pytest.mark.parametrize(
    ("short", "key"),
    [
        ({"agent": "x", "model": "org/m", "source": "org/d"}, "x__org/m__org/d"),
        ({"agent": "x"}, "x__adhoc"),
        ({"source": "my__bench"}, "a1__my__bench"),
    ],
)
def test_the_key_of_an_eval(short, key):
    assert key_of(made(**short)) == key
    assert evals_key(short.get("agent", "a1"), short.get("model"), short.get("source", "adhoc")) == key


def test_metrics_in_the_order_asked():
    assert metrics_of([made(rewards={"r": 1}), made()], ["max", "sum", "mean"]) == [
        {"max": 1},
        {"sum": 1},
        {"mean": 0.5},
    ]
