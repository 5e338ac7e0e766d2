"""An alarm in MLflow: a run with the sentence as a tag, and a point at its step."""

from __future__ import annotations

import os

from calipers.analyses.watch.alarm_event import AlarmSender, event_name, sender_of
from calipers.analyses.watch.monitor import Raised
from calipers.reports.tracker import plain_name


def sender(target: str | None) -> AlarmSender:
    """``--log mlflow[=URI]``: the tracking server of MLFLOW_TRACKING_URI, or URI."""

    def send(raised: Raised, path: str) -> str:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=target)
        experiment = plain_name(f"watch {os.path.basename(os.path.abspath(path))}")
        known = client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else client.create_experiment(experiment)
        run = client.create_run(number, run_name=plain_name(raised.alarm)).info
        client.log_metric(run.run_id, event_name(raised), raised.evidence, step=raised.step)
        client.set_tag(run.run_id, "calipers.alarm", raised.words)
        client.set_terminated(run.run_id)
        return f"mlflow: alarm at step {raised.step} in experiment {experiment!r}, run {run.run_id}"

    return sender_of("mlflow", send)
