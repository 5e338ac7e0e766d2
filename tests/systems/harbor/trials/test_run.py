"""A job of Harbor's that was cut off: what has to go before it can go on."""

from __future__ import annotations

import json

from calipers.systems.harbor.trials.run import forget_cut_off


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


def test_a_job_that_is_whole_stays_as_it_is(tmp_path):
    trial(tmp_path, "done", json.dumps({"exception_info": None}))
    (tmp_path / "result.json").write_text("{}")
    forget_cut_off(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "result.json"]
