"""Which files of a folder are runs."""

import json

import pytest

from calipers.errors import InputError
from calipers.formats.folder_of_runs import is_folder_of_runs, is_result, runs_inside


@pytest.fixture
def folder(tmp_path):
    for path, text in {
        "a/plan.json": "{}",
        "a/result.json": '{"schema": "calipers.result/1"}',
        "a/rollouts.jsonl": "",
        "deep/er/b/plan.json": "{}",
        "deep/c.CSV.gz": "",
        "d.json": '{"schema": "calipers.result/1"}',
        "matrix.json": '{"schema": "calipers.matrix/1"}',
        "notes.md": "",
        ".hidden/e.jsonl": "",
        ".f.jsonl": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_runs_results_and_files_of_rollouts_and_nothing_else(folder):
    names = [path.removeprefix(f"{folder}/") for path in runs_inside(str(folder))]
    assert names == ["a", "d.json", "deep/c.CSV.gz", "deep/er/b"]


def test_what_is_a_folder_of_runs(folder):
    assert is_folder_of_runs(str(folder))
    assert not is_folder_of_runs(str(folder / "a"))  # a run itself
    assert not is_folder_of_runs(str(folder / "d.json"))
    assert not is_folder_of_runs(str(folder / "absent"))
    assert is_result(str(folder / "d.json"))
    assert not is_result(str(folder / "matrix.json"))


def test_a_folder_of_another_system_is_read_by_its_own_reader(tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    trial = {"task_name": "t", "trial_name": "t__1"}
    (job / "t__1").mkdir()
    (job / "t__1" / "result.json").write_text(json.dumps(trial))
    assert not is_folder_of_runs(str(job))
    (tmp_path / "x.jsonl").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").write_text("{}")
    assert runs_inside(str(tmp_path)) == [str(job), str(tmp_path / "run"), str(tmp_path / "x.jsonl")]


def test_a_folder_without_runs_says_what_is_expected(tmp_path):
    (tmp_path / "readme.txt").write_text("")
    assert is_folder_of_runs(str(tmp_path))
    with pytest.raises(InputError, match="has no runs; expected run folders"):
        runs_inside(str(tmp_path))
