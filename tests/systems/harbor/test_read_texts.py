"""The texts of a Harbor job's trials; odd files from an agent do no harm."""

from __future__ import annotations

import json
import math
import os

import pytest
from systems.harbor.made import GOLDEN, at, job, result, write

from calipers.systems.harbor import read as harbor_texts
from calipers.systems.harbor.read import texts

USER = {"step_id": 1, "source": "user", "message": "Add two numbers."}
PARTS = [{"type": "text", "text": "4"}]
SAID = {"step_id": 2, "source": "agent", "message": "It is 4."}


def said(folder, *wanted):
    """(task, prompt, answer) of every trial with texts."""
    return [(one.task, one.prompt, one.answer) for one in texts(str(folder), wanted)]


def trial(folder, *steps, name="t__1", where="agent/trajectory.json", **more):
    """Write a job with one trial whose agent left a trajectory; returns its path."""
    job(folder, result(name, {"reward": 1}))
    write(folder / name / where, {"schema_version": "ATIF-v1.8", "steps": list(steps), **more})
    return folder


def test_the_job_that_harbor_wrote():
    found = list(texts(str(GOLDEN), {"add-two"}))
    assert {one.task for one in found} == {
        "add-two",
        "csv-sum",
        "acme/fizz-buzz",
        "json-merge",
        "log-parse",
        "regex-fix",
    }
    assert {one[:3] for one in found} == {("terminus-2", "coder-1", "arith-mini")}
    prompts = {one.task: one.prompt for one in found if one.prompt}
    assert prompts["csv-sum"] == "Solve the csv-sum exercise and write the answer to /app/answer.txt."
    answers = [one.answer for one in found if one.task == "add-two"]
    assert set(answers) == {"Finished; the output file is written."}
    assert not any(one.answer for one in found if one.task != "add-two")  # nobody asked
    times = [one.sample for one in found if one.task == "add-two"]
    assert times == sorted(times)


def test_a_trial_alone():
    assert said(GOLDEN / "add-two__FzwhamM", "add-two")[0][2] == "Finished; the output file is written."


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([USER, SAID], ("Add two numbers.", "It is 4.")),
        # a step that only calls a tool says nothing, nor does what a tool prints
        ([USER, SAID, {"source": "agent", "message": " "}, {"source": "agent"}], ("Add two numbers.", "It is 4.")),
        ([USER, SAID, {"source": "user", "message": "Thanks."}], ("Add two numbers.", "It is 4.")),
        ([{"source": "system", "message": "Be terse."}, USER], ("Add two numbers.", None)),
        ([USER, {"source": "agent", "message": PARTS}], ("Add two numbers.", PARTS)),
    ],
)
def test_first_the_user_and_last_the_agent(tmp_path, steps, expected):
    assert said(trial(tmp_path / "j", *steps), "t") == [("t", *expected)]


def test_what_the_agent_wrote_down_goes_before_its_trajectory(tmp_path):
    folder = trial(tmp_path / "j", USER, SAID) / "t__1" / "agent"
    (folder / "instruction.md").write_text("Add them.\n")
    (folder / "completion.txt").write_bytes(b"four \xff")
    assert said(tmp_path / "j", "t") == [("t", "Add them.\n", "four �")]
    (folder / "completion.txt").write_text(" \n")  # blank: it says nothing
    assert said(tmp_path / "j", "t") == [("t", "Add them.\n", "It is 4.")]


def test_a_trajectory_that_goes_on_in_another_file(tmp_path):
    folder = trial(tmp_path / "j", USER, SAID, continued_trajectory_ref="trajectory.cont-1.json") / "t__1" / "agent"
    write(folder / "trajectory.cont-1.json", {"steps": [{"source": "agent", "message": "No, 5."}]})
    assert said(tmp_path / "j", "t") == [("t", "Add two numbers.", "No, 5.")]


@pytest.mark.parametrize(
    "ref", ["../../u__1/agent/trajectory.json", "trajectory.json", "gone.json", "", "..", "a\0b", 7]
)
def test_it_goes_on_nowhere_else_and_not_for_ever(tmp_path, ref):
    trial(tmp_path / "j", USER, SAID, continued_trajectory_ref=ref)
    write(tmp_path / "j" / "u__1" / "agent" / "trajectory.json", {"steps": [{"source": "agent", "message": "secret"}]})
    assert said(tmp_path / "j", "t") == [("t", "Add two numbers.", "It is 4.")]


def test_steps_of_a_trial_have_rooms_of_their_own(tmp_path):
    steps = [{"step_name": name} for name in ("one", "two", "three")]
    job(tmp_path / "j", result("t__1", {"reward": 1}, step_results=steps))
    for name in ("one", "two"):
        told = [{"source": "user", "message": f"do {name}"}, {"source": "agent", "message": f"did {name}"}]
        write(tmp_path / "j" / "t__1" / "steps" / name / "agent" / "trajectory.json", {"steps": told})
    assert said(tmp_path / "j", "t") == [("t", "do one", "did two")]  # the third left nothing


@pytest.mark.parametrize("name", ["../../../secret", "..", ".", "a\0b", ""])
def test_a_step_is_no_way_out(tmp_path, name):
    job(tmp_path / "j", result("t__1", {"reward": 1}, step_results=[{"step_name": name}]))
    for place in (tmp_path / "secret", tmp_path / "j" / "t__1" / "steps"):
        write(place / "agent" / "trajectory.json", {"steps": [USER, SAID]})
    assert said(tmp_path / "j", "t") == []


@pytest.mark.parametrize("linked", ["agent/completion.txt", "agent/trajectory.json", "agent"])
def test_links_are_not_followed(tmp_path, linked):
    secret = tmp_path / "secret"
    write(secret / "trajectory.json", {"steps": [USER, SAID]})
    (secret / "completion.txt").write_text("a key")
    job(tmp_path / "j", result("t__1", {"reward": 1}))
    link = tmp_path / "j" / "t__1" / linked
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(secret if linked == "agent" else secret / link.name)
    assert said(tmp_path / "j", "t") == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"steps": 3}',
        b'{"steps": [3]}',
        b'{"steps": [{"source": "agent", "message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        b'{"steps": [], "extra": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
    ],
)
def test_what_is_no_trajectory_says_nothing(tmp_path, content):
    trial(tmp_path / "j", USER)
    (tmp_path / "j" / "t__1" / "agent" / "trajectory.json").write_bytes(content)
    assert said(tmp_path / "j", "t") == []


def test_numbers_that_strict_json_cannot_say_are_no_harm(tmp_path):
    odd = {"source": "agent", "message": "It is 4.", "metrics": {"logprobs": [-math.inf, math.nan]}}
    assert said(trial(tmp_path / "j", USER, odd), "t") == [("t", "Add two numbers.", "It is 4.")]


def test_a_device_and_a_file_too_large_say_nothing(tmp_path, monkeypatch):
    folder = trial(tmp_path / "j", USER, SAID) / "t__1" / "agent"
    os.mkfifo(folder / "completion.txt")  # nobody writes to it: to read it would be to wait for ever
    assert said(tmp_path / "j", "t") == [("t", "Add two numbers.", "It is 4.")]
    monkeypatch.setattr(harbor_texts, "LARGEST_TEXT", len(json.dumps(USER)))
    assert said(tmp_path / "j", "t") == []


def test_the_first_to_begin_comes_first_and_an_unreadable_trial_does_not(tmp_path):
    names = {"t__b": at(5), "t__a": at(9), "t__c": None}
    job(tmp_path / "j", *(result(name, {"reward": 1}, started_at=started) for name, started in names.items()), "t__d")
    for name in (*names, "t__d"):
        write(tmp_path / "j" / name / "agent" / "trajectory.json", {"steps": [{"source": "agent", "message": name}]})
    (tmp_path / "j" / "t__e").mkdir()
    (tmp_path / "j" / "t__e" / "result.json").write_text("{")
    assert [one.answer for one in texts(str(tmp_path / "j"), {"t"})] == ["t__b", "t__a", "t__c"]
