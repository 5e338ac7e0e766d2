"""The command and `score_via_harbor` on the real engine, without a container engine."""

import asyncio
import json
import signal
import subprocess
import sys
import time
import warnings
from http.server import BaseHTTPRequestHandler

import pytest
from cli.running import calipers
from harbor_datasets import write_dataset, write_task
from running.loopback import chat_model, served
from waiting import PATIENCE

from calipers import Benchmark
from calipers.systems.harbor.trials import find_engine


def test_it_is_the_version_we_speak_of():
    assert find_engine().version.startswith("0.25")


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_oracle_and_nop(tmp_path, agent, reward):
    dataset = write_dataset(tmp_path / "write")
    out = tmp_path / "out"
    done = calipers(
        "run", str(dataset), "--agent", agent, "--samples", "2", "--out", str(out), "--format", "json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    assert (group["agent"], group["dataset"]) == (agent, "write")
    assert group["metrics"]["mean_reward"]["value"] == reward
    assert group["ledger"]["planned"] == group["ledger"]["scored"] == 6


def test_one_task_alone(tmp_path):
    write_task(tmp_path, "alone")
    asked = ("--out", str(tmp_path / "out"), "--format", "json")
    (group,) = json.loads(calipers("run", str(tmp_path / "alone"), *asked, cwd=tmp_path).stdout)["groups"]
    assert (group["ledger"]["planned"], group["metrics"]["mean_reward"]["value"]) == (1, 1.0)


def test_more_samples_are_another_job(tmp_path):
    dataset = write_dataset(tmp_path / "write", 1)
    for samples in ("1", "3"):
        done = calipers(
            "run", str(dataset), "--samples", samples, "--out", str(tmp_path / "out"), "--format", "json", cwd=tmp_path
        )
    (group,) = json.loads(done.stdout)["groups"]
    assert group["ledger"]["planned"] == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["1", "2"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_what_was_cut_off_goes_on(tmp_path, monkeypatch, end):
    """Harbor writes results for the trials that it cancels, and counts them as done; they are outstanding anyway."""
    dataset, out = tmp_path / "slow", tmp_path / "out"
    write_task(dataset, "quick")
    toml = '[solution.env]\nGO = "${GO:-}"\n'
    write_task(dataset, "slow", toml=toml, solution="#!/bin/sh\nprintf 42 > answer.txt; [ $GO ] || sleep 600\n")
    asked = ["run", str(dataset), "--out", str(out), "--format", "json"]
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # a shell's & may ignore it
    code += "from calipers.cli import main; main()"
    begun = subprocess.Popen([sys.executable, "-c", code, *asked], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while not (list(out.glob("1/quick__*/result.json")) and list(out.glob("1/slow__*/agent"))):
        assert begun.poll() is None, begun.communicate()[1]
        time.sleep(0.1)
    (kept,) = out.glob("1/quick__*/result.json")
    before = kept.read_bytes()
    begun.send_signal(end)
    begun.communicate(timeout=PATIENCE)
    monkeypatch.setenv("GO", "1")
    done = calipers(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    assert group["ledger"]["planned"] == group["ledger"]["scored"] == 2
    assert kept.read_bytes() == before  # not run again


AGENT = """
from harbor.agents.base import BaseAgent

class Mine(BaseAgent):
    name = staticmethod(lambda: "mine")
    def version(self): return "1"
    async def setup(self, environment): pass
    async def run(self, instruction, environment, context):
        await environment.exec("printf 0 > answer.txt")
        context.cost_usd = 0.5
"""


def test_an_agent_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "mine_for_harbor.py").write_text(AGENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    dataset = write_dataset(tmp_path / "write", 2)
    asked = ("--agent", "mine_for_harbor:Mine", "--out", str(tmp_path / "out"), "--format", "json")
    done = calipers("run", str(dataset), *asked, cwd=tmp_path)
    (group,) = json.loads(done.stdout)["groups"]
    assert (group["agent"], group["metrics"]["mean_reward"]["value"]) == ("mine", 0.5)
    assert group["economics"]["cost_per_task"]["value"] == 0.5


def test_the_numbers_are_those_that_harbor_wrote(tmp_path):
    dataset = write_dataset(tmp_path / "write", 2)
    write_task(dataset, "unjudged", tests="#!/bin/sh\n")
    write_task(dataset, "wrong", solution="#!/bin/sh\nexit 1\n")
    out = tmp_path / "out"
    calipers("run", str(dataset), "--samples", "2", "--out", str(out), cwd=tmp_path)
    done = calipers("score", str(out), "--dialect", "harbor", "--format", "json", cwd=tmp_path)
    (group,) = json.loads(done.stdout)["groups"]
    (theirs,) = json.loads((out / "1" / "result.json").read_text())["stats"]["evals"].values()
    assert group["metrics"]["mean"]["value"] == theirs["metrics"][0]["mean"] == 0.5
    assert group["ledger"]["exceptions"] == {kind: len(names) for kind, names in theirs["exception_stats"].items()}


CHEATS = {
    "fills the room with processes": "f() { f | f & }; f",
    "leaves a process that writes the reward": (
        "(while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; sleep 0.05; done) >/dev/null 2>&1 &"
    ),
    "writes the reward itself": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    "patches the shell": "printf '#!/bin/false' > /usr/bin/env; cp /usr/bin/env /bin/sh",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_earn_nothing(tmp_path, cheat):
    dataset = tmp_path / "cheat"
    write_task(dataset, "cheat", solution=f"#!/bin/bash\n{CHEATS[cheat]}\n")
    done = calipers("run", str(dataset), "--out", str(tmp_path / "out"), "--format", "json", cwd=tmp_path)
    (group,) = json.loads(done.stdout)["groups"]
    assert group["metrics"]["mean_reward"]["value"] in (0.0, None)


def ran(tmp_path, dataset, out, *asked, **environment):
    """(the only group, exit code, output) of a run."""
    told = ("run", str(dataset), "--out", str(tmp_path / out), "--format", "json", *asked)
    done = calipers(*told, cwd=tmp_path, **environment)
    (group,) = json.loads(done.stdout)["groups"]
    return group, done.returncode, done.stderr


WITHOUT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CALIPERS_HARBOR": ""}


def test_an_image_is_declined_and_counted(tmp_path):
    """As without Harbor, trials that cannot run in a room are in the ledger, although Harbor does not get them."""
    dataset = write_dataset(tmp_path / "write", 1)
    write_task(dataset, "needs-image", dockerfile="FROM postgres:16\n")
    write_task(dataset, "z-beyond-the-limit")
    group, code, said = ran(tmp_path, dataset, "out", "--limit", "2", "--samples", "2")
    assert code == 3
    assert "needs-image: not run: it needs the image postgres:16; --environment docker runs it" in said
    assert group["metrics"]["mean_reward"]["value"] == 1.0
    assert group["ledger"]["outcomes"] == {"scored": 2, "not_run": 2}
    assert [path.name.partition("__")[0] for path in (tmp_path / "out" / "1").glob("*__*")] == ["write-0"] * 2
    alike, code, _ = ran(tmp_path, dataset, "here", "--limit", "2", "--samples", "2", **WITHOUT)
    assert (alike["ledger"], alike["dataset"], alike["agent"], code) == (group["ledger"], "write", "oracle", 3)
    assert {"planned": 4, "planned_from": "lock.json", "tasks": 2}.items() <= alike["ledger"].items()
    grown, _, _ = ran(tmp_path, dataset, "out", "--limit", "2", "--samples", "3")
    assert grown["ledger"]["outcomes"] == {"scored": 3, "not_run": 3}
    again = json.loads(calipers("score", str(tmp_path / "out"), "--format", "json", cwd=tmp_path).stdout)
    assert again["groups"][0]["ledger"] == grown["ledger"]
    (dataset / "write-0" / "environment" / "Dockerfile").write_text("FROM postgres:16\n")
    (dataset / "needs-image" / "environment" / "Dockerfile").write_text("FROM python:3.12-slim\nWORKDIR /app\n")
    once, _, _ = ran(tmp_path, dataset, "out", "--limit", "2", "--samples", "4")
    assert once["ledger"]["outcomes"] == {"scored": 4, "not_run": 4}  # three and one, and one and three


def test_what_is_declined_counts_for_the_agent_by_the_name_it_gives_itself(tmp_path, monkeypatch):
    (tmp_path / "mine_for_harbor.py").write_text(AGENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    dataset = write_dataset(tmp_path / "write", 1)
    write_task(dataset, "needs-image", dockerfile="FROM postgres:16\n")
    asked = ("--agent", "mine_for_harbor:Mine", "--model", "openai/tiny")
    group, _, _ = ran(tmp_path, dataset, "out", *asked)
    assert (group["agent"], group["model"], group["ledger"]["planned"]) == ("mine", "tiny", 2)


COLLECT = """artifacts = ["/data"]
[[verifier.collect]]
command = "mkdir -p /data; cat /proc/$(cat pid)/comm > /data/running"
[[verifier.collect]]
command = "exit 3"
"""


@pytest.mark.parametrize("environment", [{}, WITHOUT])
def test_what_is_collected_before_the_verdict(tmp_path, environment):
    """With and without Harbor, the agent's processes still run, and a command's failure is no error."""
    dataset = tmp_path / "one"
    solution = "#!/bin/sh\nprintf 42 > answer.txt; sleep 60 > /dev/null 2>&1 & echo $! > pid\n"
    tests = '#!/bin/sh\n[ "$(cat /data/running)" = sleep ] && echo 1 > /logs/verifier/reward.txt\n'
    write_task(dataset, "task", toml=COLLECT, solution=solution, tests=tests)
    group, code, said = ran(tmp_path, dataset, "out", **environment)
    assert (group["metrics"]["mean_reward"]["value"], code) == (1.0, 0), said
    (kept,) = (tmp_path / "out" / "1").glob("task__*/artifacts/**/running")
    assert kept.read_text() == "sleep\n"


METRIC = """import argparse, json
p = argparse.ArgumentParser(); p.add_argument("-i"); p.add_argument("-o"); a = p.parse_args()
json.dump({"lines": sum(1 for _ in open(a.i))}, open(a.o, "w"))
"""


def test_a_dataset_of_a_registry_has_its_whole_name(tmp_path):
    """Harbor would name it after its directory, but its metric must find its rewards by the full name."""
    source = write_dataset(tmp_path / "source", 2)
    write_task(source, "needs-image", dockerfile="FROM postgres:16\n")
    (source / "dataset.toml").write_text('[dataset]\nname = "acme/d"\nversion = "1.0.0"\n')
    (source / "metric.py").write_text(METRIC)
    for command in (("check", ".", "--fix"), ("publish", ".", "--registry", "../registry")):
        assert calipers(*command, cwd=source).returncode == 0
    asked = ("--registry", "registry", "--trust")
    found = [ran(tmp_path, "acme/d@1.0.0", out, *asked, **how)[0] for out, how in (("out", {}), ("here", WITHOUT))]
    for group in found:
        assert (group["dataset"], group["agent"]) == ("acme/d", "oracle")
        assert group["ledger"]["outcomes"] == {"scored": 2, "not_run": 1}
        assert group["metrics"]["metric.py:lines"]["value"] == 2
    assert found[0]["ledger"] == found[1]["ledger"]
    (theirs,) = json.loads((tmp_path / "out" / "1" / "result.json").read_text())["stats"]["evals"]
    assert "acme/d" in theirs  # Harbor's own paper has it, too


ROWS = [
    {
        "task_id": f"a/{number}",
        "instruction": f"Say {number}",
        "verifier": {"kind": "in_process", "fn_name": "exact_match", "expected": str(number)},
        "metadata": {"odd": number % 2},
    }
    for number in range(4)
]


class Echo:
    """The server's model, in this process."""

    def generate(self, *, prompt, max_tokens=256, temperature=0.0, stop=None):
        return answer(prompt)


def answer(prompt):
    number = int(prompt.split()[-1])
    return str(number if number != 2 else 7)


def test_score_via_harbor_gives_the_numbers_of_score(tmp_path, monkeypatch):
    bench = Benchmark.from_iterable("say", ROWS)
    asked = {"metrics": ["pass@1", "pass_rate", "mean_reward"], "breakdown_keys": ["odd"], "num_samples": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two samples at temperature 0
        here = bench.score(Echo(), **asked)
    with chat_model(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        there = asyncio.run(
            bench.score_via_harbor(
                model_name="openai/echo", model_client="litellm", workspace_dir=tmp_path, n_concurrent=2, **asked
            )
        )
    assert {name: there.metrics[name] for name in here.metrics} == here.metrics
    assert there.breakdowns == here.breakdowns
    assert [task.reward for task in there.per_task] == [1.0, 1.0, 0.0, 1.0]
    assert [task.model_output for task in there.per_task] == ["0", "1", "7", "3"]
    assert [len(group.trajectories) for group in there.rollouts] == [2] * 4
    assert there.result.groups[0].ledger.planned == 8


NEEDS = '[environment]\nenv = {{X = "${{{}}}"}}\n'


def test_a_task_that_harbor_refuses_is_left_out_by_name(tmp_path, monkeypatch):
    """Harbor would end the whole job because of it."""
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")  # set here, and not passed to Harbor, which has its own packages
    dataset = write_dataset(tmp_path / "write", 2)
    write_task(dataset, "refused", toml=NEEDS.format("VIRTUAL_ENV"))
    write_task(dataset, "unset", toml=NEEDS.format("NOT_SET_HERE"))
    group, code, stderr = ran(tmp_path, dataset, "out")
    assert (group["ledger"]["outcomes"], code) == ({"scored": 2, "not_run": 2}, 3)
    assert "refused: not run: Harbor rejects it: ValueError: Environment variable 'VIRTUAL_ENV' not found" in stderr
    assert "unset: not run: environment.env: NOT_SET_HERE not set here; export it" in stderr
    again, code, _ = ran(tmp_path, dataset, "out")
    assert (again["ledger"], code) == (group["ledger"], 3)


def test_a_dataset_of_which_harbor_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    write_task(tmp_path / "one", "refused", toml=NEEDS.format("VIRTUAL_ENV"))
    done = calipers("run", str(tmp_path / "one"), "--out", str(tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 2
    assert "Harbor rejects all of" in done.stderr
    assert "'VIRTUAL_ENV' not found" in done.stderr


ALONE = "#!/bin/sh\n[ $(grep -c : /proc/net/dev) = $(grep -c lo: /proc/net/dev) ] && echo alone || echo shared\n"


def test_each_phase_has_the_network_that_its_policy_says(tmp_path):
    """Harbor switches the room's network between the agent's work and the tests."""
    tests = "#!/bin/sh\nsh /tests/alone.sh > now; cat agent now | tr '\\n' ' ' > /logs/verifier/seen\n"
    toml = '[environment]\nworkdir = "/app"\n[agent]\nnetwork_mode = "no-network"\n'
    task = write_task(tmp_path / "one", "task", toml=toml, tests=tests + "echo 1 > /logs/verifier/reward.txt\n")
    (task / "tests" / "alone.sh").write_text(ALONE)
    (task / "solution" / "solve.sh").write_text("#!/bin/sh\nsh /solution/alone.sh > agent\n")
    (task / "solution" / "alone.sh").write_text(ALONE)
    _, code, stderr = ran(tmp_path, tmp_path / "one", "out")
    assert code == 0, stderr
    (seen,) = (tmp_path / "out").glob("1/task__*/verifier/seen")
    assert seen.read_text().split() == ["alone", "shared"]


def test_a_verifier_of_its_own_is_a_room_of_its_own(tmp_path):
    """The environment of a step's tests is built from their Dockerfile, with only the agent's artifacts."""
    separate = 'artifacts = ["/app/answer.txt"]\n[verifier]\nenvironment_mode = "separate"\n'
    toml = separate + '[[steps]]\nname = "first"\n[[steps]]\nname = "second"\n'
    task = write_task(tmp_path / "one", "task", toml=toml)
    for step, reward in (("first", "1"), ("second", "0.5")):
        tests = task / "steps" / step / "tests"
        tests.mkdir(parents=True)
        (tests.parent / "instruction.md").write_text("Write 42.")
        (tests.parent / "solution").mkdir()
        (tests.parent / "solution" / "solve.sh").write_text("#!/bin/sh\nprintf 42 > answer.txt; touch left\n")
        (tests / "Dockerfile").write_text("FROM python:3.12-slim\nWORKDIR /app\nCOPY . /tests\n")
        compared = '[ ! -e left ] && [ "$(cat answer.txt)" = 42 ]'
        (tests / "test.sh").write_text(f"#!/bin/sh\n{compared} && echo {reward} > /logs/verifier/reward.txt\n")
    group, code, stderr = ran(tmp_path, tmp_path / "one", "out")
    assert code == 0, stderr
    assert group["metrics"]["mean_reward"]["value"] == 0.75


@pytest.mark.parametrize("content", ["", '{"id": "0'])
def test_a_result_that_is_empty_or_cut_off_is_run_again(tmp_path, content):
    dataset = write_dataset(tmp_path / "write", 2)
    ran(tmp_path, dataset, "out")
    (path,) = (tmp_path / "out" / "1").glob("write-0__*/result.json")
    path.write_text(content)
    group, code, _ = ran(tmp_path, dataset, "out")
    assert (group["ledger"]["outcomes"], code) == ({"scored": 2}, 0)


def test_a_server_that_fails_gets_a_bounded_number_of_requests_and_is_asked_again_by_the_same_command(tmp_path):
    """After four consecutive trials without a reply, no more requests are sent."""
    requests = []

    class Failing(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(503)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    dataset = write_dataset(tmp_path / "write", 6)
    with served(Failing) as url:
        chat = ("--agent", "chat", "--model", "openai/tiny", "--base-url", url, "--concurrency", "1")
        group, code, _ = ran(tmp_path, dataset, "out", *chat)
        assert len(requests) == 4 * 6
        assert group["ledger"]["exceptions"] == {"ApiInternalServerError": 4, "ServerNotAskedError": 2}
        again, _, _ = ran(tmp_path, dataset, "out", *chat)
    assert code == 3
    assert len(requests) == 6 * 6  # the two that had not asked
    assert again["ledger"]["exceptions"] == {"ApiInternalServerError": 6}
