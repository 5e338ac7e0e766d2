"""``calipers compare`` with answers side by side, for runs of every system, as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from cli.running import calipers, lines, refused
from systems.harbor.made import job, result, write

from calipers.formats.read import EXPECTED

E2E = Path(__file__).parent.parent / "golden" / "lm_eval" / "e2e" / "mc_group"
TIME = "2026-01-02T03-04-05.678901"


def compared(*arguments, cwd):
    """The only pair of a comparison, and the text on standard error."""
    done = calipers("compare", *arguments, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    ((pair,),) = (contest["pairs"] for contest in json.loads(done.stdout)["contests"])
    return pair, done.stderr


def harbor_run(folder, reward, instruction, answer):
    """A job of two tasks, one of which always passes."""
    same = {"task_checksum": f"sum of {instruction}"}
    job(folder, result("t__1", {"reward": reward}, **same), result("u__1", {"reward": 1}, **same))
    for name in ("t__1", "u__1"):
        steps = [{"source": "user", "message": instruction}, {"source": "agent", "message": answer}]
        write(folder / name / "agent" / "trajectory.json", {"steps": steps})


def test_jobs_of_harbor(tmp_path):
    harbor_run(tmp_path / "before", 1, "Add them.", "It is 4.")
    harbor_run(tmp_path / "after", 0, "Add both.", "It is \x1b[31m5.")
    pair, _ = compared("before", "after", cwd=tmp_path)
    (flip,) = pair["flips"]["regressions"]
    assert (flip["task"], flip["answers"]) == ("t", ["It is 4.", "It is \x1b[31m5."])
    assert "the prompt differs in 2 of 2 common tasks (t, u)" in pair["notes"]
    page = calipers("compare", "before", "after", "--details", cwd=tmp_path).stdout
    assert "It is 4." in page
    assert "\x1b" not in page


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables(tmp_path, kind):
    for name, reward in (("a", 1.0), ("b", 0.0)):
        held = {"id": ["t", "u"], "ok": [reward, 1.0], "q": [f"{name}?", "same"], "reply": [f"{name} said", "yes"]}
        frame = pl.DataFrame(held)
        path = tmp_path / f"{name}.{kind}"
        frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    columns = ["--columns", "task=id,reward=ok,prompt=q,completion=reply"]
    pair, _ = compared(f"a.{kind}", f"b.{kind}", *columns, cwd=tmp_path)
    assert pair["flips"]["regressions"][0]["answers"] == ["a said", "b said"]
    assert pair["notes"] == ["the prompt differs in 1 of 2 common tasks (t)"]


def test_tables_without_texts_are_compared_all_the_same(tmp_path):
    for name, reward in (("a", 1.0), ("b", 0.0)):
        pl.DataFrame({"task": ["t", "u"], "reward": [reward, 1.0]}).write_csv(tmp_path / f"{name}.csv")
    pair, _ = compared("a.csv", "b.csv", cwd=tmp_path)
    assert pair["flips"]["regressions"][0]["answers"] == [None, None]
    assert pair["notes"] == []


def output(folder, time=TIME, **replaced):
    """What lm_eval --output_path wrote, on one task, with some words replaced in its samples; its path."""
    model = folder / "fixture-v1"
    model.mkdir(parents=True, exist_ok=True)
    shutil.copy(E2E / "results.json", model / f"results_{time}.json")
    text = (E2E / "samples_e2e_mc_alpha.jsonl").read_text()
    for old, new in replaced.items():
        text = text.replace(f'"{old}": 1.0', f'"{old}": {new}')
    (model / f"samples_e2e_mc_alpha_{time}.jsonl").write_text(text)
    return folder.name


def test_the_folders_lm_eval_writes(tmp_path):
    first, second = output(tmp_path / "first"), output(tmp_path / "second", acc=0.0)
    output(tmp_path / "first", "2025-01-02T03-04-05", acc=0.0)
    pair, said = compared(first, second, "--metric", "mean_reward(reward=acc)", cwd=tmp_path)
    assert [one["task"] for one in pair["flips"]["regressions"]] == ["0", "2", "4"]
    assert pair["flips"]["regressions"][0]["answers"] == ["choice 0", "choice 0"]
    assert (
        f"first/fixture-v1/results_{TIME}.json is the newest file of its model: results_2025-01-02T03-04-05.json"
    ) in said
    score = calipers("score", "first/fixture-v1", "--details", cwd=tmp_path)
    assert (score.returncode, "lm_eval_results, 6 rollouts" in score.stdout) == (0, True)


def test_a_folder_of_lm_eval_against_a_file(tmp_path):
    rows = [{"task": str(n), "reward": 0, "completion": "?"} for n in range(6)]
    pair, _ = compared(output(tmp_path / "out"), lines(tmp_path, *rows), "--reward", "acc", cwd=tmp_path)
    assert pair["flips"]["regressions"][0]["answers"] == ["choice 0", "?"]


@pytest.mark.parametrize("made", [[], ["notes.txt"], ["results.json"]])
def test_a_folder_without_rollouts(tmp_path, made):
    (tmp_path / "folder").mkdir()
    for name in made:
        (tmp_path / "folder" / name).write_text("{}")
    assert refused("compare", "folder", "folder2", cwd=tmp_path) == f"folder: has no runs; {EXPECTED}"
