"""``calipers score JOBDIR``, as a Harbor user types it."""

import os
import pty
import subprocess
import sys

import pytest
from cli.running import MAIN, calipers, refused, scored
from systems.harbor.made import GOLDEN, job, result

from calipers.formats.read import EXPECTED

JOB = str(GOLDEN)


def test_one_command_on_a_finished_job(tmp_path):
    done = calipers("score", JOB, "--metric", "mean_reward", "--metric", "pass@3", cwd=tmp_path)
    assert done.returncode == 0
    assert "coder-1 passes " in done.stdout.splitlines()[1]
    assert "exceptions in 2 of 18 planned rollouts: AgentTimeoutError 1," in done.stdout
    details = calipers("score", JOB, "--metric", "mean_reward", "--metric", "pass@3", "--details", cwd=tmp_path).stdout
    lines = details.splitlines()
    assert lines[:4] == [
        "arith-mini · coder-1 · terminus-2",
        "6 tasks; 18 planned (from lock.json) = 16 scored + 1 timed_out + 1 client_failed;",
        "  1 missing (excluded)",
        "exceptions in 2 of 18 planned rollouts: AgentTimeoutError 1, EnvironmentStartTimeoutError 1",
    ]
    for name in ("mean_reward", "pass@3", "time_per_task", "cost_per_task", "cost_per_solved"):
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert f"{JOB}: harbor, 18 rollouts" in details.replace("\n  ", " ")
    assert done.stderr.startswith(
        f"note: {JOB}: 1 earlier attempt is not there, because Harbor deletes retried attempts"
    )


def test_the_document(tmp_path):
    document = scored(JOB, "--by", "failure_cause", cwd=tmp_path)
    (group,) = document["groups"]
    assert group["ledger"]["exceptions"] == {"AgentTimeoutError": 1, "EnvironmentStartTimeoutError": 1}
    slices = group["breakdowns"]["failure_cause"]
    assert slices["sandbox_failed"]["ledger"]["exceptions"] == {"EnvironmentStartTimeoutError": 1}
    assert "exceptions" not in slices["__missing__"]["ledger"]  # where there are none, nothing is said
    (source,) = document["inputs"]
    assert (source["format"], source["rollouts"]) == ("harbor", 18)


def test_markdown_has_the_exceptions_too(tmp_path):
    done = calipers("score", JOB, "--format", "md", cwd=tmp_path)
    assert "exceptions in 2 of 18 planned rollouts: AgentTimeoutError 1, EnvironmentStartTimeoutError 1" in done.stdout


def test_a_hostile_name_does_not_reach_the_terminal(tmp_path):
    job(tmp_path / "job", result("a__1", None, "Oh\x1b[2J\nno"))
    done = calipers("score", "job", cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "exceptions in 1 of 1 planned rollouts: Oh" in done.stdout


def test_of_many_kinds_of_exception_the_most_frequent_are_named(tmp_path):
    raised = [f"Error{number:02d}" for number in range(25)]
    job(tmp_path / "job", *(result(f"a__{n}", None, kind) for n, kind in enumerate([*raised, "Error07"])))
    done = calipers("score", "job", cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert "exceptions in 26 of 26 planned rollouts: Error07 2, Error00 1, Error01 1" in said
    assert "Error18 1, Error19 1, and 5 kinds more" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["."], f".: has no runs; {EXPECTED}"),
        ([JOB, JOB], f"{JOB}: appears twice, first as {JOB}; expected each job once"),
        ([JOB, "--columns", "task=id"], "--columns: a Harbor job has its own field names; remove this option"),
        ([JOB, "--reward", "accuracy"], "no reward named 'accuracy'; known: reward"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, arguments, said):
    assert refused("score", *arguments, cwd=tmp_path) == said


def test_a_gap_may_be_forbidden(tmp_path):
    said = refused("score", JOB, "--missing", "fail", cwd=tmp_path, code=3)
    assert said.startswith("1 of 18 rollouts is missing (scored 16, timed_out 1, client_failed 1)")


def test_what_is_printed_to_a_terminal_names_the_exceptions(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", MAIN, "score", JOB]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 1 << 16):
            said += piece
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)
    assert child.wait() == 0
    assert b"exceptions in 2 of 18 planned rollouts: AgentTimeoutError 1," in said
