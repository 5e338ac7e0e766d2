"""A trial's result.json of any version, and Harbor's conclusions from it."""

from __future__ import annotations

import json
import math

import pytest
from harbor_jobs import document, made

from calipers.errors import InputError
from calipers.systems.harbor.wire import (
    AGENT_CAUSED,
    CAUSES,
    JobFile,
    Totals,
    deciding_exception,
    decode_of_job,
    decode_trial,
    exceptions,
    failure_cause,
    odd_rewards,
    primary_reward,
    reward_valid,
    rewards,
    seconds,
    totals,
)


@pytest.mark.parametrize(
    ("result", "given", "odd"),
    [
        (None, None, {}),
        ({"rewards": None}, None, {}),
        ({"rewards": {}}, {}, {}),  # a map without rewards is not no map
        ({"rewards": {"a": 1, "b": 0.5}}, {"a": 1, "b": 0.5}, {}),
        ({"rewards": {"a": True}}, {"a": 1.0}, {}),
        ({"rewards": {"a": "high", "b": None, "c": 1}}, {"c": 1}, {"a": "high", "b": None}),
        ({"rewards": {"a": 10**400}}, None, {"a": 10**400}),  # no float holds it: none is given
        ({"reward": 0.5}, {"reward": 0.5}, {}),  # before there were maps
        ({"rewards": {"a": 1}, "unknown": [1]}, {"a": 1}, {}),
    ],
)
def test_rewards(result, given, odd):
    raw = json.dumps({**document(), "verifier_result": result, "new_in_2030": {"x": 1}})
    trial = decode_trial(raw.encode(), "result.json")
    assert rewards(trial) == given
    assert odd_rewards(trial) == odd


def test_a_file_that_spells_out_nan_is_read():
    raw = json.dumps({**document(), "verifier_result": {"rewards": {"a": math.nan}}})
    trial = decode_trial(raw.encode(), "result.json")
    assert rewards(trial) is None
    assert math.isnan(odd_rewards(trial)["a"])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b'{"task',
        b"\xff\xfe",
        b'{"task_name": 3}',
        b'{"trial_name": "x"}',
        b'{"x": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_trial_says_where(raw):
    with pytest.raises(
        InputError, match=r"^jobs/x/result\.json: not a trial's result: .*; expected a file that Harbor wrote"
    ):
        decode_trial(raw, "jobs/x/result.json")


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"n_total_trials": "many"}'])
def test_what_is_no_job_says_where(raw):
    with pytest.raises(InputError, match=r"^jobs/result\.json: not a job's result"):
        decode_of_job(raw, JobFile, "jobs/result.json")


def test_a_job_of_any_age():
    assert decode_of_job(b'{"n_total_trials": 3, "stats": {"n_trials": 2}}', JobFile, "p").n_total_trials == 3
    assert decode_of_job(b"{}", JobFile, "p").n_total_trials is None
    assert decode_of_job(b'{"stats": {"n_retries": 2}}', JobFile, "p").stats.n_retries == 2


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (None, None),
        ("AgentTimeoutError", "agent_exhausted_budget"),
        ("RewardFileEmptyError", "verifier_failed"),
        ("ApiOverloadedError", "model_provider_failed"),  # of a family
        ("ApiUsageLimitError", "model_provider_failed"),
        ("SandboxBuildFailedError", "sandbox_failed"),
        ("RegradeError", "harbor_failed"),
        ("CancelledError", "cancelled"),
        ("NonZeroAgentExitCodeError", "unclassified"),
        ("ApiProxy", "unclassified"),  # the family's names end in Error
        ("", "unclassified"),
    ],
)
def test_whose_fault_an_exception_is(name, cause):
    assert failure_cause(name) == cause


@pytest.mark.parametrize(
    ("own", "steps", "cause"),
    [
        (None, [], None),
        (None, [None, None], None),
        (None, [None, "AgentTimeoutError"], "agent_exhausted_budget"),
        (None, ["AgentTimeoutError", "OutputLengthExceededError"], "agent_exhausted_budget"),
        ("AgentTimeoutError", [None], "agent_exhausted_budget"),
        (None, ["AgentTimeoutError", "KeyError"], "unclassified"),  # it makes the reward not valid
        ("CancelledError", ["AgentTimeoutError"], "cancelled"),
    ],
)
def test_whose_fault_a_trial_is_steps_included(own, steps, cause):
    one = made(exception_type=own, steps=[{"exception_type": name} for name in steps], rewards={"reward": 1})
    assert failure_cause(deciding_exception(one)) == cause
    assert reward_valid(one) == (cause in (None, *AGENT_CAUSED))


def test_no_exception_has_two_causes():
    names = [name for names in CAUSES.values() for name in names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("short", "valid"),
    [
        ({"rewards": {"r": 0}}, True),
        ({"rewards": {}}, False),
        ({}, False),
        ({"rewards": {"r": 1}, "exception_type": "AgentTimeoutError"}, True),
        ({"rewards": {"r": 1}, "exception_type": "RuntimeError"}, False),
        ({"rewards": {"r": 1}, "steps": [{"exception_type": "AgentSafetyRefusalError"}]}, True),
        ({"rewards": {"r": 1}, "steps": [{}, {"exception_type": "ApiRateLimitError"}]}, False),  # hidden in a step
    ],
)
def test_when_rewards_may_be_believed(short, valid):
    assert reward_valid(made(**short)) is valid


def test_exceptions_of_steps_come_after_the_trial_s_own():
    trial = made(exception_type="A", steps=[{"exception_type": "B"}, {}, {"exception_type": "C"}])
    assert list(exceptions(trial)) == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("given", "primary"),
    [({"a": 1, "reward": 0}, 0), ({"a": 1}, 1), ({"a": 1, "b": 2}, None), ({}, None), (None, None)],
)
def test_the_primary_reward(given, primary):
    assert primary_reward(made(rewards=given)) == primary


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        ({}, Totals()),
        ({"agent_result": {"n_input_tokens": 5}}, Totals(5)),
        (
            {"steps": [{"agent_result": {"cost_usd": 0.5}}, {}, {"agent_result": {"cost_usd": 0.25}}]},
            Totals(cost_usd=0.75),
        ),
        ({"agent_result": {"cost_usd": 1.0}, "steps": [{"agent_result": {"cost_usd": 0.5}}]}, Totals(cost_usd=1.0)),
    ],
)
def test_what_a_trial_used_up(short, expected):
    assert totals(made(**short)) == expected


def test_how_long_a_trial_took():
    assert seconds(made()) == 60.0
    assert seconds(made(started_at="2026-04-02T09:00:00")) is None  # a clock without a zone says nothing here
    assert seconds(made(started_at="yesterday")) is None
    assert seconds(made(started_at=None)) is None
    assert seconds(None) is None
