"""The export to inspect: read back, its logs give the same score; tests/exports opens them with inspect itself."""

import json
import math
import zipfile

import polars as pl
import pytest
from cli.running import calipers, refused
from formats.given import seen
from systems.inspect.made import LOGS

import calipers as library
from calipers.formats.read import read
from calipers.rollouts.record import OUTCOMES


@pytest.mark.parametrize("out", ["out.eval", "out.json"])
@pytest.mark.parametrize("name", ["one_scorer.eval", "three_scorers.eval", "three_scorers.json"])
def test_a_log_that_goes_out_and_comes_back_is_the_same_score(tmp_path, name, out):
    assert calipers("score", str(LOGS / name), "--export", f"inspect={out}", cwd=tmp_path).returncode == 0
    before, after = (library.score(path, by="level") for path in (LOGS / name, tmp_path / out))
    assert after.digest == before.digest


GOLDEN = LOGS.parents[2] / "golden" / "formats"
WORDLESS = {"broke_verifier", "tampered", "filter_timeout", "stopped_early"}


def test_outcomes_come_back_as_they_were(tmp_path):
    rows = [
        {"task": word, "sample": sample, "outcome": word, **({"reward": 1} if word == "scored" else {}), "model": "m"}
        for word in OUTCOMES
        for sample in (0, 1)
        if word not in WORDLESS
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert calipers("score", "r.jsonl", "--export", "inspect=out.eval", cwd=tmp_path).returncode == 0
    before, after = (seen(read([str(tmp_path / name)])[0]) for name in ("r.jsonl", "out.eval"))
    outcomes = [[(row["task"], row["sample"], row["outcome"]) for row in table] for table in (before, after)]
    assert outcomes[1] == outcomes[0]


def test_what_inspect_has_no_word_for_is_said(tmp_path):
    rows = [{"task": "a", "outcome": "tampered", "reward": 1}, {"task": "b", "reward": 1, "attempt": 3}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = calipers("score", "r.jsonl", "--export", "inspect", cwd=tmp_path)
    assert "inspect has no word for these outcomes, which stand in the metadata of scores: tampered 1" in done.stderr
    assert "inspect keeps the last attempt at a sample; 2 earlier ones are left out" in done.stderr


def test_rollouts_that_only_inspect_plans_are_counted(tmp_path):
    rows = [{"task": "a", "sample": sample, "reward": 1} for sample in range(3)] + [{"task": "b", "reward": 0}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = calipers("score", "r.jsonl", "--export", "inspect=out.eval", cwd=tmp_path)
    assert "read again, the log has 2 rollouts more, which were never run" in done.stderr
    assert library.score(tmp_path / "out.eval").groups[0].ledger.outcomes == {"scored": 4, "not_run": 2}


def test_no_member_of_an_archive_leads_out_of_it(tmp_path):
    tasks = ["../../evil", "/etc/passwd", "a/b", "..\\x", "x" * 1000, "a\u202eb"]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"task": task, "reward": 1}) + "\n" for task in tasks))
    calipers("score", "r.jsonl", "--export", "inspect=out.eval", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "out.eval") as archive:
        names = [name.removeprefix("samples/") for name in archive.namelist() if name.startswith("samples/")]
    assert len(names) == 6
    assert "a/b_epoch_1.json" in names
    assert not [name for name in names if ".." in name.split("/") or name.startswith("/") or "\\" in name]
    assert {row["task"] for row in seen(read([str(tmp_path / "out.eval")])[0])} == {*tasks}


def test_several_groups_are_several_logs(tmp_path):
    rows = [{"task": "a", "reward": 1, "model": model, "dataset": "d"} for model in ("x/y", "z", "..")]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = refused("score", "r.jsonl", "--export", "inspect=out.eval", cwd=tmp_path)
    assert (
        message
        == "--export inspect=out.eval: there are 3 groups, and a log has one; expected a folder, such as inspect=logs"
    )
    assert calipers("score", "r.jsonl", "--export", "inspect", cwd=tmp_path).returncode == 0
    assert len(list((tmp_path / "logs").iterdir())) == 3
    assert refused("score", "r.jsonl", "--export", "inspect", cwd=tmp_path).endswith("--force replaces it")
    wrong = refused("score", "r.jsonl", "--export", "inspect=no/out.eval", cwd=tmp_path)
    assert wrong == "no/out.eval: there is no folder 'no'; create it first"


def test_a_training_of_several_steps_is_a_log_for_each_step(tmp_path):
    steps = str(GOLDEN / "verl" / "validation")
    done = calipers("score", steps, "--export", "inspect=logs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    logs = tmp_path / "logs"
    assert sorted(path.name for path in logs.iterdir()) == ["step-0.eval", "step-20.eval", "step-40.eval"]
    by_step = library.score(steps).groups[0].breakdowns["step"]
    for step, part in by_step.items():
        again = library.score(logs / f"step-{step}.eval", reward="score")
        expected = part.metrics["mean_reward"]
        assert (again["mean_reward"].value, again["mean_reward"].interval) == (expected.value, expected.interval)
        assert again.groups[0].ledger.planned == part.ledger.planned
        with zipfile.ZipFile(logs / f"step-{step}.eval") as log:
            header = json.loads(log.read("header.json"))
        assert header["eval"]["metadata"]["calipers"]["step"] == int(step)
        (scores,) = [each for each in header["results"]["scores"] if each["name"] == "score"]
        assert scores["metrics"]["mean_reward"]["value"] == expected.value
        assert header["eval"]["config"]["epochs"] == 4


def test_training_and_evaluation_of_each_step_are_logs_of_their_own(tmp_path):
    done = calipers(
        "score", str(GOLDEN / "prime_rl" / "rollouts"), "--by", "split", "--export", "inspect=logs", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.name.partition("solver_")[2] for path in (tmp_path / "logs").iterdir() if "solver" in path.name)
    assert names == [f"split-{each}.eval" for each in ("eval_step-0", "eval_step-10", "eval_step-2")] + [
        f"split-train_step-{step}.eval" for step in (1, 2)
    ]


def test_one_log_for_several_steps_is_refused(tmp_path):
    done = calipers("score", str(GOLDEN / "verl" / "validation"), "--export", "inspect=x.eval", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("--export inspect=x.eval: there are 3 steps, and a log has one; expected a folder")


def test_usage_that_is_not_finite_is_left_out_and_a_number_out_of_range_is_named(tmp_path):
    frame = {"task": ["a", "b"], "reward": [1.0, math.nan], "input_tokens": [math.nan, 2.0], "latency_s": [math.inf, 1]}
    pl.DataFrame(frame).write_parquet(tmp_path / "r.parquet")
    assert calipers("score", "r.parquet", "--export", "inspect=out.json", cwd=tmp_path).returncode == 0
    log = json.loads((tmp_path / "out.json").read_text())
    assert [(sample["model_usage"], sample.get("total_time")) for sample in log["samples"]] == [
        ({}, None),
        ({"none/unknown": {"input_tokens": 2, "output_tokens": 0, "total_tokens": 2}}, 1),
    ]
    assert log["results"]["scores"][0]["metrics"].keys() == {"pass_rate", "pass_rate stderr"}
    (tmp_path / "r.jsonl").write_text('{"task": "a", "reward": 1, "metadata": {"x": 1e999}}\n')
    message = refused("score", "r.jsonl", "--export", "inspect=more.json", cwd=tmp_path)
    assert message == "task 'a', sample 0: a number is out of range; expected at most 1.8e308 in size"
