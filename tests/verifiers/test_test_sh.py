"""Test scripts: where the reward is read, which rewards are valid, and what a cheat can and cannot do."""

from __future__ import annotations

import asyncio

import pytest

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.isolate import SandboxError, probe
from calipers.tasks import Task
from calipers.verifiers.test_sh import REWARD_JSON, REWARD_TXT, TEST_SH, digest, read_rewards

TXT = "> /logs/verifier/reward.txt"
JSON = "> /logs/verifier/reward.json"


@pytest.fixture
def sandbox():
    try:
        probe()
    except SandboxError as error:
        pytest.skip(str(error))


def task(script, **params):
    return Task("t", "?", "test_sh", params={"test_sh": script, **params})


def judged(script, text="the answer", **params):
    TEST_SH.check(task(script, **params))
    return asyncio.run(TEST_SH.verify(task(script, **params), Completion(text)))


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("script", "reward"),
    [
        (f"echo 1 {TXT}", 1),
        (f"#!/bin/sh\nprintf ' 2.5e-1 ' {TXT}; exit 3", 0.25),  # the exit status says nothing
        (f"echo '{{\"reward\": 0.5}}' {JSON}; echo 1 {TXT}", 0.5),  # reward.json alone is read
        (f"echo '{{\"reward\": true}}' {JSON}", 1),
        (f'grep -q answer "$1" && echo 1 {TXT} || echo 0 {TXT}', 1),
        (f"sh /tests/more.sh {TXT}", 0.75),
        (f"cd /app && touch made && test -w . && echo 1 {TXT}", 1),
        (f"head -c 5000000 /dev/zero; echo 1 {TXT}", 1),  # much noise is no failure
    ],
)
def test_the_reward_it_wrote(script, reward):
    assert judged(script, files={"tests/more.sh": "echo 0.75"}).reward == reward


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(("script", "reward"), [("exit 0", 1), ("exit 1", 0), ("kill -9 $$", 0)])
def test_the_reward_of_its_exit_status(script, reward):
    assert judged(script, reward_from="exit").reward == reward


@pytest.mark.usefixtures("sandbox")
def test_several_rewards_by_their_keys():
    verdict = judged(f'echo \'{{"speed": 0.5, "reward": 1}}\' {JSON}', keys=["reward", "speed"])
    assert (verdict.reward, verdict.rewards) == (1, {"speed": 0.5, "reward": 1})


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("script", "params", "why"),
    [
        ("echo oh >&2", {}, "left neither reward.json nor reward.txt: oh"),
        ("sleep 1000", {"seconds": 0.5}, "it reached its time limit"),
        ("no-such-command", {"reward_from": "exit"}, "could not be run: .*not found"),
        ("#!/no/such/shell\n", {"reward_from": "exit"}, "could not be run"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", {}, "left neither"),
        ("mkfifo /logs/verifier/reward.json", {}, "left neither"),
    ],
)
def test_without_a_reward_nothing_is_judged(script, params, why):
    with pytest.raises(VerifierError, match=why) as failed:
        judged(script, **params)
    assert failed.value.outcome == "verifier_failed"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({REWARD_TXT: b""}, "contains no number"),
        ({REWARD_TXT: b"one"}, "contains no number"),
        ({REWARD_TXT: b"\xff"}, "contains no number"),
        ({REWARD_TXT: b"nan"}, "reward is nan; expected a number from 0 to 1"),
        ({REWARD_TXT: b"inf"}, "reward is inf"),
        ({REWARD_TXT: b"1.01"}, "reward is 1.01"),
        ({REWARD_TXT: b"-0.1"}, "reward is -0.1"),
        ({REWARD_JSON: b"", REWARD_TXT: b"1"}, "reward.json cannot be read"),  # no second chance
        ({REWARD_JSON: b"1"}, "contains no object"),
        ({REWARD_JSON: b"[1]"}, "contains no object"),
        ({REWARD_JSON: b"{}"}, "rewards are none; expected reward"),
        ({REWARD_JSON: b'{"reward": 1, "bonus": 1}'}, "rewards are bonus, reward; expected reward"),
        ({REWARD_JSON: b'{"reward": "1"}'}, "reward is '1'"),
        ({REWARD_JSON: b'{"reward": null}'}, "reward is None"),
        ({REWARD_JSON: b'{"reward": NaN}'}, "reward is nan"),
        ({REWARD_JSON: b'{"reward": 1e999}'}, "reward is inf"),
        ({REWARD_JSON: b'{"reward": 0, "reward": 1}'}, "a key appears twice"),
        ({REWARD_JSON: b"[" * 100_000}, "cannot be read"),
    ],
)
def test_what_is_no_reward(files, why):
    with pytest.raises(VerifierError, match=why):
        read_rewards(files, ["reward"], (0, 1))


def test_another_range():
    assert read_rewards({REWARD_TXT: b"-3"}, ["reward"], (-5, 5)) == {"reward": -3}


@pytest.mark.usefixtures("sandbox")
def test_nothing_runs_any_more_when_the_reward_is_read():
    """The cheat rewrites the reward as long as it lives; the script does not kill it, and writes its reward last."""
    script = f'sh -c "while :; do echo 1 {TXT}; done" & sleep 0.2; rm /logs/verifier/reward.txt; kill $!; echo 0 {TXT}'
    assert judged(script).reward == 0
    with pytest.raises(VerifierError):  # half a write at most: whatever it left, it was dead
        judged("(while :; do rm -f /logs/verifier/reward.txt; done) & sleep 0.2")


@pytest.mark.usefixtures("sandbox")
def test_tests_cannot_be_changed_by_what_they_test():
    script = f"echo 'exit 0' > /tests/test.sh; rm -f /tests/test.sh; test -s /tests/test.sh && echo 1 {TXT}"
    assert judged(script).reward == 1


@pytest.mark.usefixtures("sandbox")
def test_forgeable_means_this():
    """A script that runs the completion shares its sandbox with it; `python_tests` does not."""
    assert judged(f'sh "$1"; test -e {REWARD_TXT} || echo 0 {TXT}', text=f"echo 1 {TXT}").reward == 1
    assert TEST_SH.forgeable


@pytest.mark.usefixtures("sandbox")
def test_the_tests_are_hashed_again():
    good = task(f"echo 1 {TXT}")
    honest = task(f"echo 1 {TXT}", sha256=digest(good))
    TEST_SH.check(honest)
    assert asyncio.run(TEST_SH.verify(honest, Completion("x"))).reward == 1
    changed = task(f"echo  1 {TXT}", sha256=digest(good))
    with pytest.raises(InputError, match="do not match their sha256"):
        TEST_SH.check(changed)
    with pytest.raises(VerifierError, match="do not match their sha256"):
        asyncio.run(TEST_SH.verify(changed, Completion("x")))


@pytest.mark.parametrize(
    ("params", "wrong"),
    [
        ({"test_sh": ""}, "test_sh is missing"),
        ({"test_sh": 3}, "test_sh is missing"),
        ({"files": ["a"]}, "files cannot be read"),
        ({"files": {"../../etc/passwd": "x"}}, "file '../../etc/passwd'"),
        ({"files": {"logs/verifier/reward.txt": "1"}}, "file 'logs/verifier/reward.txt'"),
        ({"dockerfile": "FROM python\nRUN pip install x"}, "dockerfile has RUN"),
        ({"reward_from": "stdout"}, "reward_from is 'stdout'"),
        ({"test_state_py": 5}, "test_state_py is 5"),
        ({"test_state_py": {"a": 1}}, "test_state_py is {'a': 1}"),
        ({"range": [0, 10**400]}, "range is [0, 1000"),
        ({"range": [1, 0]}, "range is [1, 0]"),
        ({"range": 1}, "range is 1"),
        ({"keys": "reward"}, "keys is 'reward'"),
        ({"seconds": -1}, "seconds is -1"),
        ({"script": "x"}, "no param of test_sh named 'script'"),
    ],
)
def test_tasks_that_cannot_be_judged(params, wrong):
    with pytest.raises(InputError) as refused:
        TEST_SH.check(Task("t", "?", "test_sh", params={"test_sh": "true", **params}))
    assert str(refused.value).startswith(f"task 't': {wrong}")


def test_an_image_that_adds_nothing_needs_no_building():
    TEST_SH.check(task("true", dockerfile="# plain\nFROM python:3.12\nWORKDIR /app\n"))
