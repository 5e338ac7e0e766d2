"""The files that are removed before an interrupted Harbor job is resumed."""

from __future__ import annotations

import json
import math

import pytest
from harbor_datasets import write_task
from rooms import needs_rooms

from calipers.errors import InputError
from calipers.systems.harbor.trials.environment import HERE
from calipers.systems.harbor.trials.run import AgentRequest, forget_cut_off, perform


def trial(job, name, result=None, config='{"a": 1}'):
    (job / name).mkdir(parents=True)
    (job / name / "config.json").write_text(config)
    if result is not None:
        (job / name / "result.json").write_text(result)


def test_what_a_kill_has_cut_off_is_forgotten(tmp_path):
    trial(tmp_path, "done", json.dumps({"exception_info": None}))
    trial(tmp_path, "failed", json.dumps({"exception_info": {"exception_type": "ValueError"}}))
    trial(tmp_path, "cancelled", json.dumps({"exception_info": {"exception_type": "CancelledError"}}))
    trial(tmp_path, "empty", "")
    trial(tmp_path, "half", '{"exception_info": nul')
    trial(tmp_path, "begun", config='{"a"')
    trial(tmp_path, "running")
    (tmp_path / "result.json").write_text("")
    forget_cut_off(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "failed", "running"]


def test_a_result_with_nan_is_whole(tmp_path):
    """A result with NaN, as Python writes it, is complete: its trial is not run again."""
    trial(tmp_path, "done", json.dumps({"exception_info": None, "verifier_result": {"rewards": {"reward": math.nan}}}))
    assert not forget_cut_off(tmp_path)
    assert (tmp_path / "done" / "result.json").exists()


@needs_rooms
@pytest.mark.parametrize(
    "config", ["", '{"n_attempts"', "[]", json.dumps({"n_attempts": "2", "environment": {"import_path": HERE}})]
)
def test_a_job_whose_configuration_was_cut_off_has_a_name(tmp_path, config):
    write_task(tmp_path / "d", "task")
    (tmp_path / "run" / "1").mkdir(parents=True)
    (tmp_path / "run" / "1" / "config.json").write_text(config)
    request = AgentRequest(str(tmp_path / "d"), "nop", environment="room", out=tmp_path / "run")
    with pytest.raises(InputError, match=r"run/1/config\.json: is not a job's configuration; expected "):
        perform(request, lambda done, planned: None)


def test_a_dataset_without_tasks_has_nothing_to_run(tmp_path):
    (tmp_path / "registry.json").write_text('[{"name": "a/b", "version": "1", "tasks": []}]')
    with pytest.raises(InputError, match=r"^a/b: contains no task$"):
        perform(AgentRequest("a/b", registry=str(tmp_path), environment="room"), lambda done, planned: None)


def test_a_job_that_is_whole_stays_as_it_is(tmp_path):
    trial(tmp_path, "done", json.dumps({"exception_info": None}))
    (tmp_path / "result.json").write_text("{}")
    forget_cut_off(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "result.json"]
