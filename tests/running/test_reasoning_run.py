"""Runs and rescores of completions that start with reasoning: what is verified, logged and said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cli.running import calipers as command
from running.loopback import chat_model
from running.scene import records

import calipers
from calipers.analyses.rescore import Rescoring, changed_verdicts, rejudge
from calipers.errors import InputError
from calipers.remarks import Remark
from calipers.running import Job
from calipers.running.library import check_of_library
from calipers.running.perform import perform

ANSWERS = {
    "wrong": "<think>could be 4, no</think>It is 9",
    "right": "<think>hm</think>\n\n4",
    "open": "<think>it must be 4, or",
    "template": "it is 4 </think> no, 9",
    "plain": "It is 4",
    "middle": "It is 4 <think>or 9?</think> I think",
    "nothing": "<think>4</think> \n",
    "apart": {"content": "It is 9", "reasoning_content": "could be 4"},
    "other": {"content": "It is 9", "reasoning": "could be 4", "reasoning_content": None},
}
EXPECTED = {  # the outcome and the reward of `contains` with the target 4
    "wrong": ("scored", 0.0),
    "right": ("scored", 1.0),
    "open": ("truncated", 0.0),
    "template": ("scored", 0.0),
    "plain": ("scored", 1.0),
    "middle": ("scored", 1.0),
    "nothing": ("empty", 0.0),
    "apart": ("scored", 0.0),
    "other": ("scored", 0.0),
}
SPLIT = Remark("reasoning_split", {"split": 5, "completions": 9, "markers": ["<think>"]})
SAID = "reasoning was split off in 5 of 9 completions (`<think>`)"


@pytest.fixture(scope="module")
def server():
    with chat_model(ANSWERS.__getitem__) as url:
        yield url


@pytest.fixture
def job(tmp_path, server):
    home = tmp_path / "four"
    home.mkdir()
    verifier = {"kind": "in_process", "fn_name": "contains", "expected": "4"}
    lines = [{"task_id": name, "instruction": name, "verifier": verifier} for name in ANSWERS]
    (home / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Job(str(home), "openai/m", base_url=server, out=tmp_path / "run")


def verdicts(folder):
    return {row["task"]: (row["outcome"], row["reward"]) for row in records(folder)}


def test_the_answer_is_verified_and_the_log_keeps_the_whole_completion(job):
    report = perform(job)
    assert verdicts(job.out) == EXPECTED
    rows = {row["task"]: row for row in records(job.out)}
    texts = {name: answer if isinstance(answer, str) else answer["content"] for name, answer in ANSWERS.items()}
    assert {name: row["completion"] for name, row in rows.items()} == texts
    assert {name: row["reasoning_chars"] for name, row in rows.items() if "reasoning_chars" in row} == {
        "wrong": len("<think>could be 4, no</think>"),
        "right": len("<think>hm</think>\n\n"),
        "open": len(ANSWERS["open"]),
        "template": len("it is 4 </think> "),
        "nothing": len(ANSWERS["nothing"]),
    }
    assert {row["reasoning_marker"] for row in rows.values() if "reasoning_marker" in row} == {"<think>"}
    assert {name: row["reasoning"] for name, row in rows.items() if "reasoning" in row} == {
        "apart": "could be 4",
        "other": "could be 4",
    }
    assert report.remarks == (SPLIT,)
    assert SAID in report.notes
    assert report.complete  # none of it is missing
    assert report.result["mean_reward"].value == pytest.approx(3 / 9)
    again = perform(job)  # which reads the log
    assert (again.remarks, again.result.digest) == ((SPLIT,), report.result.digest)


def test_the_whole_completion_is_verified_if_the_user_says_so(job):
    report = perform(replace(job, reasoning="keep"))
    wrong = {name for name, (_, reward) in verdicts(job.out).items() if not reward}
    assert wrong == {"apart", "other"}  # what the server returned apart is never verified
    assert report.remarks == ()
    assert not any("reasoning_chars" in row for row in records(job.out))


def test_another_systems_dialect_verifies_the_whole_completion(job):
    perform(replace(job, dialect="evsys"))
    assert verdicts(job.out)["wrong"] == ("scored", 1.0)
    perform(replace(job, dialect="evsys", reasoning="split", out=job.out.with_name("split")))
    assert verdicts(job.out.with_name("split")) == EXPECTED


def test_a_run_with_the_other_choice_is_another_run(job):
    perform(job)
    with pytest.raises(InputError, match="reasoning: split here, keep requested"):
        perform(replace(job, reasoning="keep"))
    kept = replace(job, reasoning="keep", out=job.out.with_name("kept"))
    perform(kept)
    with pytest.raises(InputError, match=r"kept here, split requested \(--reasoning keep resumes that run\)"):
        perform(replace(kept, reasoning=None))
    assert "reasoning" not in json.loads((kept.out / "plan.json").read_text())["identity"]  # as in earlier versions
    assert perform(kept).complete


def test_a_param_of_a_task_keeps_it(job, tmp_path):
    params = {"reasoning": "keep"}
    perform(replace(job, params=params))
    assert verdicts(job.out)["wrong"] == ("scored", 1.0)
    assert "reasoning" not in json.loads((job.out / "plan.json").read_text())["identity"]


def test_predictions_alone_are_not_split(job):
    perform(replace(job, predict_only=True))
    assert not any("reasoning_chars" in row for row in records(job.out))


def test_from_python_the_result_says_it(job, server, tmp_path):
    result = calipers.run(job.benchmark, "openai/m", base_url=server, out=tmp_path / "python")
    assert SAID in result.notes
    result = calipers.run(job.benchmark, "openai/m", base_url=server, out=tmp_path / "kept", reasoning="keep")
    assert result["mean_reward"].value == pytest.approx(7 / 9)
    with pytest.raises(InputError, match="reasoning: is 'both'; expected split or keep"):
        calipers.run(job.benchmark, "openai/m", base_url=server, reasoning="both")


def test_a_replayed_log_is_split_as_the_run_was(job):
    first = perform(job)
    replayed = replace(job, model=f"replay/{job.out}/rollouts.jsonl", base_url=None, out=job.out.with_name("replayed"))
    assert perform(replayed).result["mean_reward"].value == first.result["mean_reward"].value
    assert verdicts(replayed.out) == EXPECTED
    assert {row["task"] for row in records(replayed.out) if "reasoning" in row} == {"apart", "other"}


def test_a_rescore_splits_the_log_of_a_run_that_did_not(job):
    perform(replace(job, dialect="evsys"))
    kept = rejudge(Rescoring(str(job.out), name="whole"))
    assert (kept.remarks, kept.after["mean_reward"].value) == ([], pytest.approx(7 / 9))
    split = rejudge(Rescoring(str(job.out), name="answers", reasoning="split"))
    assert split.remarks == [SPLIT]
    assert split.after["mean_reward"].value == pytest.approx(3 / 9)
    assert {flip.what: flip.count for flip in split.flips if flip.count} == {"pass to fail": 4, "the same": 5}
    assert SAID in str(split)
    document = split.to_dict()
    assert document["remarks"][0]["code"] == "reasoning_split"
    assert type(split).from_dict(document).remarks == [SPLIT]
    with open(split.path) as file:
        rows = {row["task"]: row for row in map(json.loads, file)}
    outcomes = {name: row.get("answers_outcome", "scored") for name, row in rows.items()}
    assert outcomes == {name: outcome for name, (outcome, _) in EXPECTED.items()}


def test_a_rescore_of_a_run_follows_its_choice(job):
    perform(job)
    assert rejudge(Rescoring(str(job.out))).remarks == [SPLIT]
    assert changed_verdicts(str(job.out))[1] == []
    kept = replace(job, reasoning="keep", out=job.out.with_name("kept"))
    perform(kept)
    assert rejudge(Rescoring(str(kept.out))).remarks == []
    assert changed_verdicts(str(kept.out))[1] == []
    assert rejudge(Rescoring(str(kept.out), reasoning="split")).flips[0].count == 4


@pytest.mark.parametrize("filters", [("after_marker=</think>",), ("tag=think",), (r"regex=(?s)</think>\s*(.*)",)])
def test_a_filter_that_looks_for_the_marker_finds_it(job, filters):
    perform(job)
    found = rejudge(Rescoring(str(job.out), filters=filters, verifier="contains", name="own"))
    assert found.remarks == []
    assert found.outcomes["unparsed"][1] < 9


def test_a_rescore_of_a_plain_file_splits(job, tmp_path):
    perform(replace(job, reasoning="keep"))
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes((job.out / "rollouts.jsonl").read_bytes())
    found = rejudge(Rescoring(str(plain), benchmark=job.benchmark))
    assert found.remarks == [SPLIT]
    with pytest.raises(InputError, match="--reasoning: is 'both'; expected split or keep"):
        Rescoring(str(plain), reasoning="both")


def test_a_task_of_another_library_is_not_split():
    job = Job("tasks", "openai/m", lm_eval="arith", reasoning="split")
    assert not job.splits_reasoning
    with pytest.raises(InputError, match=r"--reasoning: tasks is a task of lm-evaluation-harness, .*; remove it"):
        check_of_library(job)
    check_of_library(replace(job, reasoning="keep"))


def test_without_texts_there_is_no_reasoning_either(job, tmp_path):
    perform(job)
    calipers.convert(job.out, tmp_path / "bare.jsonl", texts=False)
    assert "could be 4" not in (tmp_path / "bare.jsonl").read_text()


def test_the_commands_have_the_option(job, server, tmp_path):
    where = ("--model", "openai/m", "--base-url", server)
    done = command("run", job.benchmark, *where, "--out", "split", cwd=tmp_path)
    assert f"note: {SAID}" in done.stderr
    assert done.returncode == 0
    done = command("run", job.benchmark, *where, "--out", "split", "--reasoning", "keep", cwd=tmp_path)
    assert "reasoning: split here, keep requested" in done.stderr
    assert done.returncode == 2
    done = command("rescore", "split", "--reasoning", "keep", "--name", "whole", cwd=tmp_path)
    assert "fail to pass" in done.stdout
    assert SAID not in done.stdout
    assert SAID in command("rescore", "split", cwd=tmp_path).stdout
    suite = tmp_path / "run.yaml"
    suite.write_text(f"benchmark: {job.benchmark}\nmodel: openai/m\nreasoning: both\n")
    done = command("run", "run.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "run.yaml: reasoning: is 'both'; expected split or keep or null\n")
