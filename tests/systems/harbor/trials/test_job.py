"""Harbor's tasks in our own containers: verdicts, failures, resuming, and agents that cheat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from harbor_datasets import write_dataset, write_task
from hypothesis import given
from hypothesis import strategies as st
from rooms import needs_rooms
from waiting import PATIENCE

import calipers
from calipers.errors import InputError
from calipers.systems.harbor.dataset import read_dataset
from calipers.systems.harbor.job_result import document, read_job
from calipers.systems.harbor.task import read_task
from calipers.systems.harbor.trials.agents import find_agent
from calipers.systems.harbor.trials.environment import declined
from calipers.systems.harbor.trials.job import (
    HOPELESS,
    ContainerJob,
    Retry,
    TaskTrials,
    held_interrupts,
    run_here,
    write_declined,
)
from calipers.systems.harbor.trials.run import AgentRequest, perform

pytestmark = needs_rooms


def job(dataset, place, agent="oracle", **more):
    found = read_dataset(dataset)
    return ContainerJob(place, found.name, found.tasks, find_agent(agent), **more)


def results(place):
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(place.glob("*__*/result.json"))}


def only(place):
    (result,) = results(place).values()
    return result


def told(result):
    """(rewards, the exception's name)."""
    verified, failed = result["verifier_result"], result["exception_info"]
    return verified and verified["rewards"], failed and failed["exception_type"]


@pytest.mark.parametrize(
    ("agent", "reward"),
    [("oracle", 1.0), ("nop", 0.0), ("command:cut -d' ' -f2 $INSTRUCTION | tr -d '\\n' > answer.txt", 1.0)],
)
def test_agents(tmp_path, agent, reward):
    write_dataset(tmp_path / "write")
    run_here(job(tmp_path / "write", tmp_path / "job", agent, samples=2))
    assert [told(one) for one in results(tmp_path / "job").values()] == [({"reward": reward}, None)] * 6


def test_the_result_of_a_job_can_be_exported(tmp_path):
    write_dataset(tmp_path / "write")
    run_here(job(tmp_path / "write", tmp_path / "job", "nop"))
    first = json.loads((tmp_path / "job" / "result.json").read_text())
    assert first["started_at"] < first["finished_at"]
    run_here(job(tmp_path / "write", tmp_path / "job", "nop", samples=2))
    second = json.loads((tmp_path / "job" / "result.json").read_text())
    assert (second["id"], second["started_at"]) == (first["id"], first["started_at"])
    exported = document(read_job(str(tmp_path / "job")))
    assert (exported["id"], exported["stats"]["n_completed_trials"]) == (first["id"], 6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "is a file, or is inside one; expected a directory for the run"),
        ("x" * 300, "cannot be written (File name too long); choose another --out"),
    ],
)
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, name, message):
    (tmp_path / "file").write_text("")
    write_dataset(tmp_path / "write")
    request = AgentRequest(str(tmp_path / "write"), "nop", environment="room", out=tmp_path / name)
    with pytest.raises(InputError) as caught:
        perform(request, lambda done, planned: None)
    assert str(caught.value) == f"{tmp_path / name}/1: {message}"


def test_tasks_with_similar_names_have_trials_of_their_own(tmp_path):
    for folder, name in (("one", "acme/a"), ("three", "acme/a_2"), ("two", "other/a")):
        write_task(tmp_path / "write", folder, toml=f'[task]\nname = "{name}"\n')
    run_here(job(tmp_path / "write", tmp_path / "job", "nop"))
    names = {trial: result["task_name"] for trial, result in results(tmp_path / "job").items()}
    assert names == {"a__0001": "acme/a", "a_2__0001": "acme/a_2", "a_3__0001": "other/a"}


def test_a_task_keeps_its_trials_when_a_task_with_a_similar_name_is_added(tmp_path):
    """The new task had the earlier trial of the other, and the other had a second one."""
    write_task(tmp_path / "write", "two", toml='[task]\nname = "other/a"\n')
    run_here(job(tmp_path / "write", tmp_path / "job", "nop"))
    write_task(tmp_path / "write", "one", toml='[task]\nname = "acme/a"\n')
    run_here(job(tmp_path / "write", tmp_path / "job", "nop", samples=2))
    names = {trial: result["task_name"] for trial, result in results(tmp_path / "job").items()}
    assert names == {
        **{"a__0001": "other/a", "a__0002": "other/a"},
        **{"a_2__0001": "acme/a", "a_2__0002": "acme/a"},
    }


SLOW = "[agent]\ntimeout_sec = 0.5\n[verifier]\ntimeout_sec = 0.5\n"
TO = "/logs/verifier"


@pytest.mark.parametrize(
    ("how", "rewards", "failed"),
    [
        # what a test script can leave behind, as spec 2.3 has it
        (
            {"tests": f"#!/bin/sh\necho 0.25 > {TO}/reward.txt; exit 9\n"},
            {"reward": 0.25},
            None,
        ),  # its code says nothing
        ({"tests": f'#!/bin/sh\necho \'{{"a": 1, "b": true}}\' > {TO}/reward.json\n'}, {"a": 1, "b": 1.0}, None),
        ({"tests": "#!/bin/sh\n"}, None, "RewardFileNotFoundError"),
        ({"tests": f"#!/bin/sh\n: > {TO}/reward.txt\n"}, None, "RewardFileEmptyError"),
        ({"tests": f"#!/bin/sh\necho nan > {TO}/reward.txt\n"}, None, "VerifierOutputParseError"),
        ({"tests": f"#!/bin/sh\nln -s /etc/passwd {TO}/reward.txt\n"}, None, "RewardFileNotFoundError"),
        ({"tests": "#!/bin/sh\nsleep 30\n", "toml": SLOW}, None, "VerifierTimeoutError"),
        # an agent that is late, or fails, is judged all the same
        (
            {"solution": "#!/bin/sh\nprintf 42 > answer.txt; sleep 30\n", "toml": SLOW},
            {"reward": 1.0},
            "AgentTimeoutError",
        ),
        # Harbor does not ask how a solution ended, so neither do we
        ({"solution": "#!/bin/sh\nprintf 42 > answer.txt; exit 1\n"}, {"reward": 1.0}, None),
    ],
)
def test_verdicts(tmp_path, how, rewards, failed):
    write_task(tmp_path / "one", "task", **how)
    run_here(job(tmp_path / "one", tmp_path / "job"))
    assert told(only(tmp_path / "job")) == (rewards, failed)


def test_a_solution_may_belong_to_another_user_than_the_agent(tmp_path):
    toml = '[agent]\nuser = "nobody"\n[environment]\nworkdir = "/tmp"\n'
    write_task(
        tmp_path / "one", "task", toml=toml, solution='#!/bin/sh\n[ "$(id -un)" = nobody ] && printf 42 > answer.txt\n'
    )
    run_here(job(tmp_path / "one", tmp_path / "job"))
    assert told(only(tmp_path / "job")) == ({"reward": 1.0}, None)


CHEATS = {
    "writes the reward itself": (f"mkdir -p {TO}; echo 1 > {TO}/reward.txt", (0.0, None)),
    "leaves a writer": (
        f"(while :; do echo 1 > {TO}/reward.txt; sleep 0.02; done) > /dev/null 2>&1 &",
        (0.0, None),
    ),
    "brings its own tests": (
        "mkdir -p /tests; printf '#!/bin/sh\necho 1 > /logs/verifier/reward.txt' > /tests/test.sh",
        (0.0, None),
    ),
    "patches a tool": (
        "printf '#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n' > /usr/bin/env",
        (None, "VerifierRuntimeError"),
    ),
    "preloads a library": ("echo /tmp/evil.so > /etc/ld.so.preload", (None, "VerifierRuntimeError")),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_are_named_and_earn_nothing(tmp_path, cheat):
    line, (reward, failed) = CHEATS[cheat]
    write_task(tmp_path / "one", "task", solution=f"#!/bin/bash\n{line}\n")
    run_here(job(tmp_path / "one", tmp_path / "job"))
    found, why = told(only(tmp_path / "job"))
    assert (found and found["reward"], why) == (reward, failed)
    if cheat == "leaves a writer":
        assert "/solution/solve.sh" in (tmp_path / "job" / "task__0001" / "left-running.txt").read_text()
    if failed:
        assert "which is part of its verifier" in only(tmp_path / "job")["exception_info"]["exception_message"]


def outcomes(place):
    """The outcomes of a job's trials and the mean reward."""
    found = calipers.score(place, "mean_reward", dialect="native")
    return found.groups[0].ledger.outcomes, found["mean_reward"].value


BREAKS = {
    "tampers": ("echo /tmp/evil.so > /etc/ld.so.preload", "tampered"),
    "never ends the tests": ("printf 'sleep 30' > answer.txt", "broke_verifier"),
    "leaves tests without a reward": ("printf 'rm -rf /logs/verifier' > answer.txt", "broke_verifier"),
    "fills the disk": ("cat /dev/zero > fill", "broke_verifier"),
    "has the tests fill the disk": ("printf 'cat /dev/zero > fill' > answer.txt", "broke_verifier"),
}
SMALL = f"{SLOW}[environment]\nstorage_mb = 8\n"


@pytest.mark.parametrize("how", BREAKS)
def test_an_agent_that_breaks_its_judge_earns_zero(tmp_path, how):
    """One of three agents is right; the two that prevent a verdict get no more than for a wrong answer."""
    line, outcome = BREAKS[how]
    tests = f"#!/bin/sh\nif grep -q 42 answer.txt; then echo 1; else sh answer.txt; echo 0; fi > {TO}/reward.txt\n"
    for name in ("first", "second", "third"):
        write_task(tmp_path / "three", name, tests=tests, toml=SMALL)
    agent = f"command:if [ ! -e /tmp/x ] && grep -q right $INSTRUCTION; then printf 42 > answer.txt; else {line}; fi"
    (tmp_path / "three" / "second" / "instruction.md").write_text("Be right.")
    run_here(job(tmp_path / "three", tmp_path / "job", agent, retry=Retry(max_retries=3)))
    assert outcomes(tmp_path / "job") == ({"scored": 1, outcome: 2}, 1 / 3)
    findings = [result["calipers"] for result in results(tmp_path / "job").values() if "calipers" in result]
    tries = 1 if outcome == "tampered" else 2
    assert findings == [{"reference": "judged", "tries": tries, "outcome": outcome}] * 2
    assert not (tmp_path / "job" / "_retries").exists()  # it is their result, and not tried again


@pytest.mark.parametrize("what", ["workdir", "instruction"])
def test_an_agent_that_leaves_no_space_for_the_next_step_earns_zero(tmp_path, what):
    """The first step is verified with reward 1; the files of the second no longer fit."""
    place = write_task(tmp_path / "one", "task", toml=f"{SMALL}{STEPS}", tests=f"#!/bin/sh\necho 1 > {TO}/reward.txt\n")
    for name in ("first", "second"):
        (place / "steps" / name / "workdir").mkdir(parents=True)
        (place / "steps" / name / "instruction.md").write_text(f"Do the {name}.")
    given = "workdir/given" if what == "workdir" else "instruction.md"
    (place / "steps" / "second" / given).write_bytes(b"0" * (1 << 20))
    fill = "head -c $(($(df --output=avail -B1 / | tail -1) - 500000)) /dev/zero > fill"
    run_here(job(tmp_path / "one", tmp_path / "job", f"command:{fill}"))
    assert outcomes(tmp_path / "job") == ({"broke_verifier": 1}, 0)
    assert only(tmp_path / "job")["calipers"] == {"reference": "judged", "tries": 2, "outcome": "broke_verifier"}


def test_a_step_that_nobody_could_prepare_is_nobodys_fault(tmp_path):
    place = write_task(tmp_path / "one", "task", toml=STEPS, tests=f"#!/bin/sh\necho 1 > {TO}/reward.txt\n")
    for name in ("first", "second"):
        (place / "steps" / name / "workdir").mkdir(parents=True)
        (place / "steps" / name / "instruction.md").write_text(f"Do the {name}.")
    (place / "steps" / "second" / "workdir" / "setup.sh").write_text("exit 1\n")
    run_here(job(tmp_path / "one", tmp_path / "job", "command:true"))
    assert outcomes(tmp_path / "job")[0] == {"client_failed": 1}
    assert only(tmp_path / "job")["calipers"] == {"reference": "failed", "tries": 1}


def test_tests_that_judge_nobody_are_nobodys_fault(tmp_path):
    write_task(tmp_path / "one", "task", tests="#!/bin/sh\n")
    run_here(job(tmp_path / "one", tmp_path / "job", "command:true", samples=2))
    assert outcomes(tmp_path / "job") == ({"verifier_failed": 2}, None)
    assert [result["calipers"] for result in results(tmp_path / "job").values()] == [
        {"reference": "failed", "tries": 1}
    ] * 2


HEALTH = '[environment.healthcheck]\ncommand = "{command}"\nretries = 2\ninterval_sec = 0.01\n'


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", ({"reward": 1.0}, None)),
        ("echo x >> /tmp/n; [ $(wc -l < /tmp/n) = 2 ]", ({"reward": 1.0}, None)),  # the second time
        ("false", (None, "HealthcheckError")),
    ],
)
def test_a_room_that_is_not_ready_is_no_zero(tmp_path, command, expected):
    write_task(tmp_path / "one", "task", toml=HEALTH.format(command=command))
    run_here(job(tmp_path / "one", tmp_path / "job"))
    assert told(only(tmp_path / "job")) == expected


def test_artifacts_are_kept(tmp_path):
    named = '"/app/answer.txt", "/app/absent", {source = "/data", destination = "d", exclude = ["*.tmp"]}'
    toml = f"artifacts = [{named}]\n"
    solution = "#!/bin/sh\nprintf 42 > answer.txt; mkdir /data; echo 1 > /data/a; echo 2 > /data/b.tmp\n"
    write_task(tmp_path / "one", "task", toml=toml, solution=solution + "echo 3 > /logs/artifacts/own\n")
    run_here(job(tmp_path / "one", tmp_path / "job"))
    folder = tmp_path / "job" / "task__0001" / "artifacts"
    kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert kept == {"manifest.json", "app/answer.txt", "d/a", "logs/artifacts/own"}
    told = {one["source"]: one["status"] for one in json.loads((folder / "manifest.json").read_text())}
    assert told == {"/logs/artifacts": "ok", "/app/answer.txt": "ok", "/app/absent": "failed", "/data": "ok"}


COLLECT = """
artifacts = ["/data"]
[[verifier.collect]]
command = "mkdir -p /data; cat /proc/$(cat pid)/comm > /data/running"
[[verifier.collect]]
command = "id -un > /data/user; pwd > /data/where; echo $ROOM > /data/room"
user = "root"
[[verifier.collect]]
command = "exit 3"
[[verifier.collect]]
command = "sleep 30"
timeout_sec = 0.2
[environment.env]
ROOM = "small"
"""


def test_what_is_collected_before_the_verdict(tmp_path):
    """The command runs while the agent's processes still run; its output is saved, and its failure is no error."""
    solution = "#!/bin/sh\nprintf 42 > answer.txt; sleep 60 > /dev/null 2>&1 & echo $! > pid\n"
    tests = f'#!/bin/sh\n[ "$(cat /data/running)" = sleep ] && echo 1 > {TO}/reward.txt || echo 0 > {TO}/reward.txt\n'
    write_task(tmp_path / "one", "task", toml=COLLECT, solution=solution, tests=tests)
    run_here(job(tmp_path / "one", tmp_path / "job"))
    assert told(only(tmp_path / "job")) == ({"reward": 1.0}, None)
    place = tmp_path / "job" / "task__0001"
    kept = {path.name: path.read_text() for path in (place / "artifacts" / "data").iterdir()}
    assert kept == {"running": "sleep\n", "user": "root\n", "where": "/app\n", "room": "small\n"}
    said = (place / "collect-failed.txt").read_text()
    assert said == "'exit 3' ended with 3\n'sleep 30' took longer than 0.2 s\n"


def test_what_fails_in_each_step_is_kept(tmp_path):
    collects = [
        f'[[steps]]\nname = "{name}"\n[[steps.verifier.collect]]\ncommand = "exit {code}"\n'
        for name, code in (("first", 4), ("second", 5))
    ]
    task = write_task(tmp_path / "one", "task", toml="".join(collects))
    for name in ("first", "second"):
        (task / "steps" / name).mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text("do")
    run_here(job(tmp_path / "one", tmp_path / "job"))
    said = (tmp_path / "job" / "task__0001" / "collect-failed.txt").read_text()
    assert said == "'exit 4' ended with 4\n'exit 5' ended with 5\n"


STEPS = """
[[steps]]
name = "first"
min_reward = 0.5
[[steps]]
name = "second"
"""


@pytest.mark.parametrize(
    ("given", "rewards", "reached"),
    [(("1", "0"), {"reward": 0.5}, 2), (("0.25", "1"), {"reward": 0.25}, 1)],  # the gate of the first ends it
)
def test_steps(tmp_path, given, rewards, reached):
    place = write_task(tmp_path / "one", "task", toml=STEPS)
    for name, reward in zip(("first", "second"), given, strict=True):
        step = place / "steps" / name
        (step / "tests").mkdir(parents=True)
        (step / "instruction.md").write_text(f"Do the {name}.")
        (step / "tests" / "test.sh").write_text(f"#!/bin/sh\necho {reward} > {TO}/reward.txt\n")
    run_here(job(tmp_path / "one", tmp_path / "job"))
    result = only(tmp_path / "job")
    assert told(result) == (rewards, None)
    assert len(result["step_results"]) == reached


def test_a_step_collects_for_the_task_and_for_itself(tmp_path):
    every = '[[verifier.collect]]\ncommand = "echo all >> /tmp/collected"\n'
    own = '[[steps.verifier.collect]]\ncommand = "echo second >> /tmp/collected"\n'
    place = write_task(tmp_path / "one", "task", toml=f"{every}{STEPS}{own}")
    for name, seen in (("first", "all"), ("second", "all all second")):
        step = place / "steps" / name
        (step / "tests").mkdir(parents=True)
        (step / "instruction.md").write_text(f"Do the {name}.")
        (step / "tests" / "test.sh").write_text(
            f'#!/bin/sh\n[ "$(echo $(cat /tmp/collected))" = "{seen}" ] && echo 1 > {TO}/reward.txt\n'
        )
    run_here(job(tmp_path / "one", tmp_path / "job"))
    assert told(only(tmp_path / "job")) == ({"reward": 1.0}, None)


def test_a_step_finds_its_own_files_and_nothing_of_the_judge_before(tmp_path):
    place = write_task(tmp_path / "one", "task", toml=STEPS)
    for name, test in (("first", "true"), ("second", "[ -e made ] && [ -e given ] && [ ! -e seen ]")):
        step = place / "steps" / name
        for inner in ("tests", "workdir"):
            (step / inner).mkdir(parents=True)
        (step / "instruction.md").write_text(f"Do the {name}.")
        (step / "workdir" / "given").write_text("")
        (step / "workdir" / "setup.sh").write_text("touch made\n")
        (step / "tests" / "test.sh").write_text(
            f"#!/bin/sh\n{test} && echo 1 > {TO}/reward.txt || echo 0 > {TO}/reward.txt\n"
        )
    run_here(
        job(
            tmp_path / "one",
            tmp_path / "job",
            f"command:ls /tests/* {TO}/* 2> /dev/null > seen; [ -s seen ] || rm seen",
        )
    )
    assert told(only(tmp_path / "job")) == ({"reward": 1.0}, None)


def test_the_same_job_goes_on(tmp_path):
    write_dataset(tmp_path / "write", 2)
    run_here(job(tmp_path / "write", tmp_path / "job"))
    before = results(tmp_path / "job")
    (tmp_path / "job" / "write-1__0001" / "result.json").unlink()  # as if it had been cut off
    run_here(job(tmp_path / "write", tmp_path / "job", samples=2))
    after = results(tmp_path / "job")
    assert list(after) == ["write-0__0001", "write-0__0002", "write-1__0001", "write-1__0002"]
    assert after["write-0__0001"] == before["write-0__0001"]  # what was finished was not run again
    assert (tmp_path / "job" / "_retries" / "write-1__0001" / "retry-1").is_dir()  # what was cut off is kept


def test_every_attempt_is_kept(tmp_path):
    write_task(tmp_path / "one", "task")
    run_here(job(tmp_path / "one", tmp_path / "job", "command:exit 1", retry=Retry(max_retries=2, min_wait_sec=0.0)))
    kept = sorted(path.parent.name for path in (tmp_path / "job").glob("_retries/*/*/result.json"))
    assert kept == ["retry-1", "retry-2"]


def test_a_plan_without_trials_counts_beside_a_job(tmp_path):
    """Declined trials have the names that Harbor's trials have, and are in the same group."""
    dataset = write_dataset(tmp_path / "write", 1)
    run_here(job(dataset, tmp_path / "jobs" / "1", samples=2))
    write_task(dataset, "unable")
    (task,) = [task for task in read_dataset(dataset).tasks if task.name == "unable"]
    for trials in ([task], [task, task]):  # written again as there are more
        write_declined(tmp_path / "jobs" / "declined", TaskTrials("oracle", None, "write"), trials)
    result = calipers.score(str(tmp_path / "jobs"))
    (group,) = result.groups
    assert dict(group.ledger.outcomes) == {"scored": 2, "not_run": 2}
    assert (group.ledger.planned, group.ledger.tasks, group.ledger.planned_from) == (4, 2, "lock.json")
    assert not [note for note in result.notes if "not finished" in note]


def test_another_job_is_refused(tmp_path):
    write_dataset(tmp_path / "write", 1)
    run_here(job(tmp_path / "write", tmp_path / "job"))
    with pytest.raises(
        InputError, match=("contains a different job; expected the same agent and dataset, or another --out")
    ):
        run_here(job(tmp_path / "write", tmp_path / "job", "nop"))


def test_an_interrupt_is_raised_where_no_lock_is_held():
    """Raised inside `concurrent.futures.wait`, it can leave a lock acquired: 6 of 79 runs of a loop hung."""
    with held_interrupts() as raise_interrupt:
        raise_interrupt()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            raise_interrupt()
        with pytest.raises(KeyboardInterrupt):  # the second is raised at once
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_somebody_handles_is_left_to_them():
    def handler(number, frame):
        pass

    signal.signal(signal.SIGINT, handler)
    try:
        with held_interrupts():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    "toml",
    ["", '[environment.healthcheck]\ncommand = "false"\ninterval_sec = 600\n'],
    ids=["agent at work", "wait between two checks"],
)
def test_an_interrupt_ends_the_agents_and_keeps_the_rest(tmp_path, toml):
    dataset = write_dataset(tmp_path / "write", 1)
    write_task(dataset, "z-endless", solution="#!/bin/sh\nsleep 600\n", toml=toml)
    code = "from calipers.cli import main; main()"
    asked = ["run", str(dataset), "--agent", "oracle", "--out", str(tmp_path / "out"), "--concurrency", "1"]
    process = subprocess.Popen([sys.executable, "-c", code, *asked], stderr=subprocess.PIPE, start_new_session=True)
    done = tmp_path / "out" / "1" / "write-0__0001" / "result.json"
    begun = tmp_path / "out" / "1" / "z-endless__0001" / "config.json"
    while not (done.is_file() and begun.is_file()):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert list(results(tmp_path / "out" / "1")) == ["write-0__0001"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"dockerfile": "FROM postgres:16\n"}, "it needs the image postgres:16"),
        ({"toml": '[environment]\nos = "windows"\n'}, "it is for windows"),
        ({"toml": "[environment]\ngpus = 1\n"}, "it needs an accelerator"),
        ({"toml": '[verifier]\nenvironment_mode = "separate"\n'}, None),
        (
            {"toml": '[verifier.env]\nKEY = "${NOWHERE_SET}"\n'},
            "verifier.env: NOWHERE_SET not set here; export it, or give a default as in ${NAME:-value}",
        ),
        (
            {"toml": '[environment.env]\nKEY = "${NOWHERE_SET:-x}"\n[solution.env]\nKEY = "${NOWHERE_SET}"\n'},
            None,
        ),
        (
            {"toml": '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n'},
            "it allows only some hosts, and a room allows all or none",
        ),
        (
            {"toml": '[[verifier.collect]]\ncommand = "pg_dump"\nservice = "db"\n'},
            "it collects from the service db, and a room has only main",
        ),
        ({"toml": '[[verifier.collect]]\ncommand = "true"\n'}, None),
        ({}, None),
    ],
)
def test_what_a_room_declines(tmp_path, how, why):
    place = write_task(tmp_path, "task", **how)
    if "windows" in how.get("toml", ""):
        (place / "tests" / "test.bat").write_text("")
    assert declined(read_task(place)) == why


# Which trials are retried, and after what time


@pytest.mark.parametrize(
    ("settings", "exception", "again"),
    [
        ({}, None, False),
        ({}, "RuntimeError", True),
        *(({}, name, False) for name in sorted(HOPELESS)),
        ({"exclude_exceptions": []}, "AgentTimeoutError", True),
        ({"exclude_exceptions": None}, "AgentTimeoutError", True),
        ({"include_exceptions": ["A"]}, "B", False),
        ({"include_exceptions": ["A"]}, "A", True),
        ({"include_exceptions": []}, "A", True),  # none named is all of them
        ({"include_exceptions": ["AgentTimeoutError"]}, "AgentTimeoutError", False),  # excluded all the same
    ],
)
def test_what_is_worth_another_try(settings, exception, again):
    assert Retry(**settings).worthwhile(exception) is again


@given(attempt=st.integers(0, 5000), times=st.floats(1, 10), least=st.floats(0.1, 10), most=st.floats(10, 100))
def test_waits_grow_up_to_their_limit(attempt, times, least, most):
    retry = Retry(wait_multiplier=times, min_wait_sec=least, max_wait_sec=most)
    assert least <= retry.seconds(attempt) <= retry.seconds(attempt + 1) <= most


def test_by_default_a_second_each():
    assert [Retry().seconds(attempt) for attempt in range(3)] == [1.0, 1.0, 1.0]
