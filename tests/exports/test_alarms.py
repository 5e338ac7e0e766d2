"""Alarms of a watch in trackers of experiments, read back with their own libraries."""

from __future__ import annotations

import glob

from cli.running import started
from exports.conftest import Reads, needed
from watch_steps import write_run

ALARM = ("--alarm", "drop(pass@1) > 0.02")


def watched(folder, tracker, **environment):
    """A run with a drop, watched once; the note of the tracker."""
    write_run(folder / "run", 16, drop=0.3, at=9, tasks=60)
    done = started("watch", "run", "--once", *ALARM, "--log", tracker, cwd=folder, **environment)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_tensorboard_has_a_point_at_the_step_of_an_alarm(tmp_path, reads: Reads):
    needed("tensorboard")
    assert "tensorboard: calipers_alarm/drop_pass_at_1 at step" in watched(tmp_path, "tensorboard=events")
    program = """
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("events")
events.Reload()
print(json.dumps({tag: [point.step for point in events.Tensors(tag)] for tag in events.Tags()["tensors"]}))
"""
    (steps,) = reads("tensorboard", program).values()
    assert 9 <= steps[0] <= 12


def test_mlflow_has_a_run_with_the_sentence_of_an_alarm(tmp_path, reads: Reads):
    needed("mlflow")
    store = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": f"file://{tmp_path}/store"}
    assert "mlflow: alarm at step" in watched(tmp_path, "mlflow", **store)
    program = """
import json
from mlflow.tracking import MlflowClient
client = MlflowClient()
numbers = [each.experiment_id for each in client.search_experiments()]
(run,) = client.search_runs(numbers)
print(json.dumps([run.data.tags["calipers.alarm"], list(run.data.metrics)]))
"""
    sentence, metrics = reads("mlflow", program, **store)
    assert sentence.startswith("drop(pass@1) > 0.02: since step")
    assert metrics == ["calipers_alarm/drop_pass_at_1"]


def test_wandb_has_a_run_for_an_alarm(tmp_path):
    needed("wandb")
    assert "wandb: alarm at step" in watched(tmp_path, "wandb=mine", WANDB_MODE="offline")
    assert glob.glob(f"{tmp_path}/wandb/offline-run-*/run-*.wandb")
