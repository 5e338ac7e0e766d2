"""Reading the reward files of tests, and combining the rewards of steps."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.systems.harbor.rewards import Graded, Unrewarded, misses_minimum, read_rewards, trial_rewards


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, "RewardFileNotFoundError"),
        ({"rewards.json": b"{}"}, "RewardFileNotFoundError"),
        ({"reward.txt": b""}, "RewardFileEmptyError"),
        ({"reward.json": b"", "reward.txt": b"1"}, "RewardFileEmptyError"),  # no way back to the other file
        ({"reward.json": b"{", "reward.txt": b"1"}, "VerifierOutputParseError"),
        ({"reward.txt": b" \n"}, "VerifierOutputParseError"),
        ({"reward.txt": b"-inf"}, "VerifierOutputParseError"),
        ({"reward.txt": b"1e999"}, "VerifierOutputParseError"),
        ({"reward.txt": b"\xff"}, "VerifierOutputParseError"),
        ({"reward.json": b'{"a": ' + b"9" * 400 + b"}"}, "VerifierOutputParseError"),
        ({"reward.json": b"[" * 100_000}, "VerifierOutputParseError"),
        ({"reward.json": b"null"}, "VerifierOutputParseError"),
        ({"reward.json": b"NaN"}, "VerifierOutputParseError"),
        ({"reward.json": b"1"}, "ValidationError"),  # read, and then no map
    ],
)
def test_no_rewards(files, kind):
    found = read_rewards(files)
    assert isinstance(found, Unrewarded)
    assert found.kind == kind
    assert found.why


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_in_a_text_is_that_number(number):
    assert read_rewards({"reward.txt": f" {number!r}\n".encode()}) == {"reward": number}


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.integers(-(2**70), 2**70), st.floats(-1e300, 1e300))))
def test_an_object_of_numbers_is_what_it_is(rewards):
    found = read_rewards({"reward.json": json.dumps(rewards).encode()})
    assert found == rewards
    assert {name: type(value) for name, value in found.items()} == {name: type(rewards[name]) for name in rewards}


GRADED = st.one_of(
    st.none(), st.builds(Graded, st.one_of(st.none(), st.dictionaries(st.sampled_from("ab"), st.floats(0, 1))))
)


@given(steps=st.lists(GRADED, max_size=6), order=st.randoms())
def test_a_mean_knows_no_order_of_steps(steps, order):
    assert trial_rewards(order.sample(steps, len(steps))) == trial_rewards(steps)


@given(st.lists(GRADED, max_size=6))
def test_a_step_that_was_not_graded_is_not_there(steps):
    assert trial_rewards([*steps, None]) == trial_rewards(steps)


@pytest.mark.parametrize(
    ("steps", "strategy", "expected"),
    [
        ([Graded({"a": 1}), Graded({"b": 1})], "mean", {"a": 0.5, "b": 0.5}),
        ([Graded({"a": 1}), Graded(None)], None, {"a": 0.5}),  # graded, though with nothing
        ([Graded({}), Graded(None)], "mean", None),
        ([None, None], "mean", None),
        ([Graded({"a": 1}), Graded({"b": 2})], "final", {"b": 2}),
        ([Graded({"a": 1}), None], "final", None),
        ([Graded({"a": 1}), Graded(None)], "final", None),
        ([], "final", None),
    ],
)
def test_the_rewards_of_steps(steps, strategy, expected):
    assert trial_rewards(steps, strategy) == expected


def test_no_other_strategy():
    with pytest.raises(InputError, match="expected 'mean' or 'final'"):
        trial_rewards([], "best")


@pytest.mark.parametrize(
    ("rewards", "least", "missed"),
    [
        ({"reward": 0.5}, 0.5, False),  # reached is not missed
        ({"reward": 0.5}, 0.6, True),
        ({"acc": 1}, 0.0, True),  # a number is of the reward called reward
        ({"acc": 1}, {"acc": 1}, False),
        ({"acc": 1}, {"acc": 0, "style": 0}, True),
        (None, -1.0, True),
        (None, None, False),
        ({}, {}, False),
    ],
)
def test_the_gate_of_a_step(rewards, least, missed):
    assert misses_minimum(rewards, least) is missed
