"""Which files of a folder are runs."""

import json
import os
import shutil

import pytest
from cli.running import calipers
from systems.harbor.made import GOLDEN

from calipers.errors import InputError
from calipers.formats.read import is_folder_of_runs, is_result, read, runs_inside


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


@pytest.mark.parametrize("name", ["plan.json", "rollouts.jsonl", "result.json", "tasks.jsonl", "results_x.json"])
def test_a_pipe_or_a_device_in_a_folder_is_not_read(folder, name):
    """An agent may leave a named pipe in its folder; opening it would block forever."""
    (folder / "pipes").mkdir()
    os.mkfifo(folder / "pipes" / name)
    os.symlink("/dev/zero", folder / "pipes" / f"zero-{name}")
    for command in ("score", "audit", "convert"):
        more = ["out.jsonl"] if command == "convert" else []
        done = calipers(command, "pipes", *more, cwd=folder)
        assert (done.returncode, "pipes" in done.stderr) == (2, True)
    assert calipers("leaderboard", str(folder), cwd=folder).returncode == 2


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


def test_what_an_agent_leaves_in_a_trial_does_not_make_a_job_a_folder_of_runs(tmp_path):
    job = tmp_path / "jobs" / "job"
    shutil.copytree(GOLDEN, job)
    left = next(path.parent for path in job.glob("*/result.json")) / "agent"
    left.mkdir(exist_ok=True)
    (left / "plan.json").write_text("{}")
    (job / "scored.json").write_text('{"schema": "calipers.result/1"}')
    assert not is_folder_of_runs(str(job))
    assert not is_folder_of_runs(str(job.parent))
    (job.parent / "run").mkdir()
    (job.parent / "run" / "plan.json").write_text("{}")
    assert runs_inside(str(job.parent)) == [str(job), str(job.parent / "run")]


def test_a_folder_without_runs_says_what_is_expected(tmp_path):
    (tmp_path / "readme.txt").write_text("")
    assert is_folder_of_runs(str(tmp_path))
    with pytest.raises(InputError, match="has no runs; expected run folders"):
        runs_inside(str(tmp_path))


STEP_ROW = {"input": "user\n2+2?\nassistant\n", "output": "4", "gts": "4", "score": 1.0, "step": 1}


def step_files(folder):
    folder.mkdir(parents=True)
    for step in (2, 10):
        (folder / f"{step}.jsonl").write_text(json.dumps({**STEP_ROW, "step": step}) + "\n")
    return folder


def test_the_files_of_a_training_are_one_set_and_no_folder_of_runs(tmp_path):
    steps = step_files(tmp_path / "rollouts")
    (steps / "config.json").write_text('{\n  "lr": 1\n}\n')
    assert not is_folder_of_runs(str(steps))
    assert not is_folder_of_runs(str(tmp_path))  # one level above them, too
    (tmp_path / "mine.jsonl").write_text('{"task": "a", "reward": 1}\n')
    assert is_folder_of_runs(str(tmp_path))
    assert runs_inside(str(tmp_path)) == [str(tmp_path / "mine.jsonl"), str(steps)]


def test_a_configuration_beside_runs_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{\n  "lr": 1\n}\n')
    (tmp_path / "results.json").write_text('{"loss": 1}')
    (tmp_path / "mine.jsonl").write_text('{"task": "a", "reward": 1}\n')
    (tmp_path / "list.json").write_text('[{"task": "a", "reward": 1}]')
    assert runs_inside(str(tmp_path)) == [str(tmp_path / "list.json"), str(tmp_path / "mine.jsonl")]


def test_records_of_ours_among_the_files_of_a_system_are_not_passed_over(tmp_path):
    steps = step_files(tmp_path / "rollouts")
    (steps / "mine.jsonl").write_text('{"task": "a", "reward": 1}\n')
    with pytest.raises(InputError, match=r"has files of 2 formats: 2\.jsonl is verl, mine\.jsonl is native"):
        read([str(steps)])


def test_score_of_a_folder_of_steps_is_by_step(tmp_path):
    step_files(tmp_path / "rollouts")
    [group] = json.loads(calipers("score", "rollouts", "--format", "json", cwd=tmp_path).stdout)["groups"]
    assert group["metrics"] == {}
    assert list(group["breakdowns"]["step"]) == ["2", "10"]
    page = calipers("score", "rollouts", cwd=tmp_path).stdout
    assert "The run has a mean_reward of 1.000 on step 10, the last of 2" in page


def test_a_run_of_agents_is_one_run_with_its_result_beside_its_jobs(tmp_path):
    run = tmp_path / "runs" / "agents"
    shutil.copytree(GOLDEN, run / "1")
    (run / "identity.json").write_text("{}")
    (run / "result.json").write_text(calipers("score", str(GOLDEN), "--format", "json", cwd=tmp_path).stdout)
    assert not is_folder_of_runs(str(run))
    assert runs_inside(str(tmp_path / "runs")) == [str(run)]
    assert calipers("score", str(run), cwd=tmp_path).returncode == 0
