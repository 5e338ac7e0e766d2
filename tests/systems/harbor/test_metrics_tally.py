"""Harbor's job statistics, to which trials can be added and from which they can be removed."""

from __future__ import annotations

import pytest
from harbor_jobs import made
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.systems.harbor.metrics import Tally, evals_key, key_of, ladders, metrics_of

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
