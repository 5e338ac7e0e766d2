"""Datasets run by the real Harbor in containers of a real Docker engine."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import calipers
from harbor_datasets import write_task
from running.loopback import chat_model
from waiting import PATIENCE, until

ARITH = Path(__file__).parents[1] / "golden" / "harbor" / "dataset_arith_mini"
DOCKER = ("--environment", "docker")


def ran(tmp_path, dataset, *options):
    """(the only group, the process) of a run."""
    done = calipers("run", str(dataset), "--out", str(tmp_path / "out"), "--format", "json", *options, cwd=tmp_path)
    assert done.stdout, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    return group, done


def engine(*arguments):
    """What the engine's own command prints, by lines."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(("agent", "limit", "reward"), [("oracle", "6", 1.0), ("nop", "2", 0.0)])
def test_oracle_and_nop(tmp_path, agent, limit, reward):
    options = ("--agent", agent, "--limit", limit)
    group, done = ran(tmp_path, ARITH, *options)  # Docker answers, and nobody wants another environment
    assert done.returncode == 0, done.stderr
    assert group["ledger"]["outcomes"] == {"scored": int(limit)}
    assert group["metrics"]["mean_reward"]["value"] == reward
    trials = list((tmp_path / "out").glob("1/*__*/result.json"))
    assert {json.loads(path.read_text())["config"]["environment"]["type"] for path in trials} == {"docker"}
    again = calipers(
        "run", str(ARITH), "--out", str(tmp_path / "out"), *options, cwd=tmp_path, DOCKER_HOST="unix:///none"
    )
    assert "environment: docker (this run began in it)\n" in again.stdout, again.stderr
    left = engine("ps", "--all", "--format", "{{.Names}}")
    assert not [name for name in left for path in trials if name.startswith(path.parent.name.lower())]


def test_a_chat_agent(tmp_path):
    """The agent asks from Harbor's process, and the tests find its answer inside the container."""
    dataset = tmp_path / "chat"
    for name, answer in (("right", "42"), ("wrong", "41")):
        compared = f'[ "$(cat /logs/agent/completion.txt)" = {answer} ]'
        tests = f"#!/bin/sh\n{compared}; echo $((1 - $?)) > /logs/verifier/reward.txt\n"
        write_task(dataset, name, tests=tests)
    with chat_model(lambda _: "42") as url:
        group, done = ran(tmp_path, dataset, "--agent", "chat", "--model", "openai/tiny", "--base-url", url, *DOCKER)
    assert done.returncode == 0, done.stderr
    assert (group["model"], group["metrics"]["mean_reward"]["value"]) == ("tiny", 0.5)


SEPARATE = """artifacts = ["/app/answer.txt"]
[verifier]
environment_mode = "separate"
"""
STEPS = '[[steps]]\nname = "first"\n[[steps]]\nname = "second"\n'
WRITES_ON = "(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.05; done) > /dev/null 2>&1 &"


def write_steps(dataset):
    """A task of two steps, whose tests give 1 and 0.5."""
    task = write_task(dataset, "steps", toml=STEPS)
    for name, reward in (("first", "1"), ("second", "0.5")):
        for folder in ("tests", "solution"):
            (task / "steps" / name / folder).mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text(f"Do the {name}.")
        (task / "steps" / name / "solution" / "solve.sh").write_text(f"#!/bin/sh\ntouch /app/{name}\n")
        script = f"#!/bin/sh\n[ -e /app/{name} ] && echo {reward} > /logs/verifier/reward.txt\n"
        (task / "steps" / name / "tests" / "test.sh").write_text(script)


def test_every_kind_of_task(tmp_path):
    """One job, as each is small: steps, a verifier in a container of its own, both timeouts, two cheats."""
    dataset = tmp_path / "kinds"
    write_steps(dataset)
    write_task(dataset, "separate", toml=SEPARATE)
    write_task(dataset, "cheat-separate", toml=SEPARATE, solution=f"#!/bin/bash\n{WRITES_ON}\n")
    write_task(dataset, "cheat-shared", solution="#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")
    write_task(dataset, "slow-agent", toml="[agent]\ntimeout_sec = 2.0\n", solution="#!/bin/sh\nsleep 600\n")
    write_task(dataset, "slow-tests", toml="[verifier]\ntimeout_sec = 2.0\n", tests="#!/bin/sh\nsleep 600\n")
    write_task(
        dataset,
        "built",
        dockerfile="FROM python:3.12-slim\nWORKDIR /app\nRUN printf 42 > answer.txt\n",
        solution="#!/bin/sh\ntrue\n",
    )
    group, done = ran(tmp_path, dataset, *DOCKER)
    rewards, failed = {}, {}
    for path in (tmp_path / "out").glob("1/*__*/result.json"):
        trial = json.loads(path.read_text())
        if trial["exception_info"]:
            failed[trial["task_name"]] = trial["exception_info"]["exception_type"]
        if trial["verifier_result"]:
            rewards[trial["task_name"]] = trial["verifier_result"]["rewards"]["reward"]
    assert failed == {"slow-agent": "AgentTimeoutError", "slow-tests": "VerifierTimeoutError"}, done.stderr
    assert {name: rewards.get(name) for name in ("steps", "separate", "built")} == {
        "steps": 0.75,
        "separate": 1.0,
        "built": 1.0,
    }
    assert {name: rewards[name] for name in rewards if name.startswith("cheat")} == {
        "cheat-separate": 0.0,
        "cheat-shared": 0.0,
    }
    assert group["ledger"]["planned"] == 7
    assert done.returncode == 3  # slow-tests has no number


def test_what_was_killed_goes_on(tmp_path, monkeypatch):
    dataset, out = tmp_path / "slow", tmp_path / "out"
    write_task(dataset, "quick")
    toml = '[solution.env]\nGO = "${GO:-}"\n'
    write_task(dataset, "slow", toml=toml, solution="#!/bin/sh\nprintf 42 > answer.txt; [ $GO ] || sleep 600\n")
    command = ["run", str(dataset), "--out", str(out), "--format", "json", *DOCKER]
    begun = subprocess.Popen(
        [sys.executable, "-m", "calipers", *command], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )

    def under_way():
        assert begun.poll() is None, begun.communicate()[1]
        return list(out.glob("1/quick__*/result.json")) and list(out.glob("1/slow__*/agent"))

    until(under_way, "a finished trial and one at work")
    (kept,) = out.glob("1/quick__*/result.json")
    before = kept.read_bytes()
    begun.send_signal(signal.SIGKILL)
    begun.communicate(timeout=PATIENCE)
    monkeypatch.setenv("GO", "1")
    group, done = ran(tmp_path, dataset, *DOCKER)
    assert done.returncode == 0, done.stderr
    assert group["ledger"]["outcomes"] == {"scored": 2}
    assert kept.read_bytes() == before  # not run again
