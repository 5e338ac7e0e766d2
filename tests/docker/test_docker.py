"""Datasets run by the real Harbor in containers of a real Docker engine, and of Podman where it is installed."""

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.running import calipers
from harbor_datasets import write_task
from running.loopback import chat_model
from waiting import PATIENCE, until

ARITH = Path(__file__).parents[1] / "golden" / "harbor" / "dataset_arith_mini"
DOCKER = ("--environment", "docker")
NO_PODMAN, NO_SIDECAR = (os.environ.get(f"CALIPERS_NO_{name}", "") for name in ("PODMAN", "SIDECAR"))
needs_podman = pytest.mark.skipif(bool(NO_PODMAN), reason=f"no Podman: {NO_PODMAN}")


def ran(tmp_path, dataset, *options, **environment):
    """(the only group, the process) of a run."""
    command = ("run", str(dataset), "--out", str(tmp_path / "out"), "--format", "json", *options)
    done = calipers(*command, cwd=tmp_path, **environment)
    assert done.stdout, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    return group, done


def engine(name, *arguments):
    """What an engine's own command prints, by lines."""
    kept = {key: value for key, value in os.environ.items() if key != "DOCKER_CONFIG" or name == "docker"}
    return subprocess.run([name, *arguments], capture_output=True, text=True, check=True, env=kept).stdout.splitlines()


def left_of(name, out):
    """The containers, networks and images that an engine has of the trials in a run's folder."""
    trials = tuple(path.name.lower() for path in out.glob("[0-9]*/*__*"))
    lines = [
        *engine(name, "ps", "--all", "--format", "{{.Names}}"),
        *engine(name, "network", "ls", "--format", "{{.Name}}"),
        *engine(name, "image", "ls", "--format", "{{.Repository}}"),
    ]
    return [line for line in lines if line.removeprefix("localhost/").startswith(trials)]


@pytest.mark.parametrize(("agent", "limit", "reward"), [("oracle", "6", 1.0), ("nop", "2", 0.0)])
def test_oracle_and_nop(tmp_path, agent, limit, reward):
    check_run(tmp_path, "docker", agent, limit, reward)


@needs_podman
def test_the_oracle_in_podman(tmp_path):
    check_run(tmp_path, "podman", "oracle", "2", 1.0)


def check_run(tmp_path, name, agent, limit, reward):
    """Run some tasks in the engine that ``auto`` means, again once no engine answers, and look for what is left."""
    options = ("--agent", agent, "--limit", limit)
    elsewhere = {"DOCKER_HOST": "unix:///none"} if name == "podman" else {}
    group, done = ran(tmp_path, ARITH, *options, **elsewhere)  # an engine answers, and nobody wants another environment
    assert done.returncode == 0, done.stderr
    assert group["ledger"]["outcomes"] == {"scored": int(limit)}
    assert group["metrics"]["mean_reward"]["value"] == reward
    trials = list((tmp_path / "out").glob("1/*__*/result.json"))
    assert {json.loads(path.read_text())["config"]["environment"]["type"] for path in trials} == {name}
    gone = {"DOCKER_HOST": "unix:///none", "CONTAINERS_STORAGE_CONF": "/none"}
    again = calipers("run", str(ARITH), "--out", str(tmp_path / "out"), *options, cwd=tmp_path, **gone)
    assert f"environment: {name} (this run was started in it)\n" in again.stdout, again.stderr
    assert left_of(name, tmp_path / "out") == []


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
JUDGED_ELSEWHERE = """#!/bin/sh
[ -e /app/solved ] && exit 1  # this is the agent's container, and no reward
[ "$(cat /app/answer.txt)" = 42 ]; echo $((1 - $?)) > /logs/verifier/reward.txt
"""


def write_steps(dataset, name, scripts, toml=STEPS):
    """A task of two steps, each with its solution and its tests."""
    task = write_task(dataset, name, toml=toml)
    for step, (solution, tests) in zip(("first", "second"), scripts, strict=True):
        folder = task / "steps" / step
        for inner in ("tests", "solution"):
            (folder / inner).mkdir(parents=True)
        (folder / "instruction.md").write_text(f"Do the {step}.")
        (folder / "solution" / "solve.sh").write_text(f"#!/bin/sh\n{solution}\n")
        (folder / "tests" / "test.sh").write_text(tests)
        (folder / "tests" / "Dockerfile").write_text("FROM python:3.12-slim\nWORKDIR /app\nCOPY . /tests\n")


def judging(condition, reward):
    return f"#!/bin/sh\n{condition} && echo {reward} > /logs/verifier/reward.txt\n"


def rewards_and_failures(out):
    """The rewards and the exceptions of a run's trials, by task."""
    rewards, failed = {}, {}
    for path in out.glob("1/*__*/result.json"):
        trial = json.loads(path.read_text())
        if trial["exception_info"]:
            failed[trial["task_name"]] = trial["exception_info"]["exception_type"]
        if trial["verifier_result"]:
            rewards[trial["task_name"]] = trial["verifier_result"]["rewards"]["reward"]
    return rewards, failed


SLOW_AGENT = {"toml": "[agent]\ntimeout_sec = 2.0\n", "solution": "#!/bin/sh\nsleep 600\n"}


def write_two_kinds_of_steps(dataset):
    """Steps judged where the agent works, with 0.75 in all, and steps that inherit a verifier of their own."""
    rewards = (("first", "1"), ("second", "0.5"))
    touched = [(f"touch /app/{step}", judging(f"[ -e /app/{step} ]", reward)) for step, reward in rewards]
    write_steps(dataset, "steps", touched)
    solved = [("printf 42 > /app/answer.txt; touch /app/solved", JUDGED_ELSEWHERE)] * 2
    write_steps(dataset, "steps-separate", solved, SEPARATE + STEPS)


def test_every_kind_of_task(tmp_path):
    """One job, as each is small: steps, verifiers in containers of their own, both timeouts, three cheats."""
    dataset = tmp_path / "kinds"
    write_two_kinds_of_steps(dataset)
    write_task(dataset, "separate", toml=SEPARATE)
    write_task(dataset, "cheat-separate", toml=SEPARATE, solution=f"#!/bin/bash\n{WRITES_ON}\n")
    write_task(dataset, "cheat-shared", toml="", solution="#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")
    forged = "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod +x /tests/test.sh"
    write_task(dataset, "cheat-tests", toml="", solution=f"#!/bin/sh\n{forged}\n")
    write_task(dataset, "slow-agent", **SLOW_AGENT)
    write_task(dataset, "slow-tests", toml="[verifier]\ntimeout_sec = 2.0\n", tests="#!/bin/sh\nsleep 600\n")
    write_task(
        dataset,
        "built",
        toml="",
        dockerfile="FROM python:3.12-slim\nWORKDIR /app\nRUN printf 42 > answer.txt\n",
        solution="#!/bin/sh\ntrue\n",
    )
    group, done = ran(tmp_path, dataset, *DOCKER)
    rewards, failed = rewards_and_failures(tmp_path / "out")
    assert failed == {"slow-agent": "AgentTimeoutError", "slow-tests": "VerifierTimeoutError"}, done.stderr
    assert {name: rewards.get(name) for name in ("steps", "steps-separate", "separate", "built")} == {
        "steps": 0.75,
        "steps-separate": 1.0,
        "separate": 1.0,
        "built": 1.0,
    }
    assert {name: rewards[name] for name in rewards if name.startswith("cheat")} == {
        "cheat-separate": 0.0,
        "cheat-shared": 0.0,
        "cheat-tests": 0.0,
    }
    assert group["ledger"]["planned"] == 9
    assert done.returncode == 3  # slow-tests has no number


@needs_podman
def test_podman_has_steps_verifiers_of_their_own_and_timeouts_and_declines_a_policy_by_name(tmp_path):
    """Harbor's image for network policies comes from a registry, and Podman has none under that name."""
    dataset = tmp_path / "kinds"
    write_two_kinds_of_steps(dataset)
    write_task(dataset, "slow-agent", **SLOW_AGENT)
    write_task(dataset, "off", toml=f"[environment]\n{OFF}")
    group, done = ran(tmp_path, dataset, "--environment", "podman")
    rewards, failed = rewards_and_failures(tmp_path / "out")
    assert failed == {"slow-agent": "AgentTimeoutError"}, done.stderr
    assert (rewards["steps"], rewards["steps-separate"]) == (0.75, 1.0)
    assert group["ledger"]["outcomes"]["not_run"] == 1
    assert done.returncode == 3
    assert "off: not run: Harbor rejects it: ValueError: " in done.stderr
    assert "no-network" in done.stderr
    assert left_of("podman", tmp_path / "out") == []


OFF = 'network_mode = "no-network"\n'
REACHED = """exec 3<>/dev/tcp/{host}/{port} && read -r line <&3; printf "$line" > {to}"""


@contextmanager
def saying(line, host):
    """The port of a server at one of this machine's addresses that says a line to whoever comes."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(f"{line}\n".encode())

    with socketserver.ThreadingTCPServer((host, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


@pytest.mark.skipif(bool(NO_SIDECAR), reason=f"no image for network policies: {NO_SIDECAR}")
def test_network_policies_are_followed(tmp_path):
    """A server on this machine, which a container reaches by the engine's bridge, if its task lets it."""
    (host,) = engine("docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}")
    listed, other = (f'network_mode = "allowlist"\nallowed_hosts = ["{address}"]\n' for address in (host, "192.0.2.1"))
    policies = {  # the agent reaches it, the tests reach it
        "public": ("", 1, 1),
        "none": (f"[environment]\n{OFF}", 0, 0),
        "listed": (f"[environment]\n{listed}", 1, 1),
        "other": (f"[environment]\n{other}", 0, 0),
        "agent-none": (f"[agent]\n{OFF}", 0, 1),
        "verifier-none": (f"[verifier]\n{OFF}", 1, 0),
        "agent-listed": (f"[environment]\n{OFF}[agent]\n{listed}", 1, 0),
    }
    with saying("42", host) as port:
        line = REACHED.format(host=host, port=port, to="{}")
        compared = '[ "$(cat answer.txt)" = 42 ] && agent=1; [ "$(cat seen.txt)" = 42 ] && tests=1'
        reward = 'printf \'{"agent": %d, "tests": %d, "reward": 1}\' "$agent" "$tests" > /logs/verifier/reward.json'
        for name, (toml, *_) in policies.items():
            solution = f"#!/bin/bash\n{line.format('answer.txt')}\n"
            tests = f"#!/bin/bash\n({line.format('seen.txt')})\n{compared}\n{reward}\n"
            write_task(tmp_path / "nets", name, toml=toml, solution=solution, tests=tests)
        _, done = ran(tmp_path, tmp_path / "nets", *DOCKER)
    reached = {}
    for path in (tmp_path / "out").glob("1/*__*/result.json"):
        trial = json.loads(path.read_text())
        reached[trial["task_name"]] = (trial["verifier_result"] or {}).get("rewards"), trial["exception_info"]
    want = {name: ({"agent": agent, "tests": tests, "reward": 1}, None) for name, (_, agent, tests) in policies.items()}
    assert reached == want, done.stderr


@pytest.mark.parametrize("name", ["docker", pytest.param("podman", marks=needs_podman)])
def test_what_was_killed_goes_on(tmp_path, monkeypatch, name):
    dataset, out = tmp_path / "slow", tmp_path / "out"
    write_task(dataset, "quick", toml="")
    toml = '[solution.env]\nGO = "${GO:-}"\n'
    write_task(dataset, "slow", toml=toml, solution="#!/bin/sh\nprintf 42 > answer.txt; [ $GO ] || sleep 600\n")
    command = ["run", str(dataset), "--out", str(out), "--format", "json", "--environment", name]
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
    (cut_off,) = (path.name.lower() for path in out.glob("1/slow__*"))

    def containers():
        return {line for line in engine(name, "ps", "--all", "--format", "{{.Names}}") if "slow__" in line}

    abandoned = {line for line in containers() if line.startswith(cut_off)}
    assert abandoned, containers()
    other = f"slow__other__env-{os.getpid()}"  # of somebody else's trial of the same task
    engine(name, "run", "--detach", "--name", other, "--label", f"com.docker.compose.project={other}", IMAGE, *SLEEP)
    monkeypatch.setenv("GO", "1")
    group, done = ran(tmp_path, dataset, "--environment", name)
    assert done.returncode == 0, done.stderr
    assert group["ledger"]["outcomes"] == {"scored": 2}
    assert kept.read_bytes() == before  # not run again
    assert not containers() & abandoned
    assert other in containers()
    engine(name, "rm", "--force", other)
    left = engine(name, "network", "ls", "--format", "{{.Name}}")
    assert not [line for line in left if line.startswith(cut_off)]
    assert left_of(name, out) == []


IMAGE, SLEEP = "python:3.12-slim", ("sh", "-c", "sleep 600")
