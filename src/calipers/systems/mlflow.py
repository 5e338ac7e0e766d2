"""A result in MLflow: an experiment for each dataset, a run for each group; and the alarms of a watch."""

from __future__ import annotations

import os
from collections.abc import Iterator

from calipers.analyses.watch.document import AlarmSender, event_name, sender_of
from calipers.analyses.watch.monitor import Raised
from calipers.reports.figures import counted
from calipers.reports.result import Result
from calipers.reports.tracker import PROJECT, RESULT, Tracker, described, flat_metrics, plain_name
from calipers.systems.system import ExportRequest

AT_ONCE = 500  # metrics of one call; MLflow takes no more than 1000


def export(request: ExportRequest) -> Tracker:
    """``--export mlflow[=URI]``: the tracking server of MLFLOW_TRACKING_URI, or URI."""
    return Tracker("mlflow", request.target, request.paths, log)


def log(result: Result, target: str | None) -> Iterator[str]:
    """A run for each group; a note with its address."""
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=target)
    for group in result.groups:
        experiment = plain_name(group.dataset or PROJECT)
        known = client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else client.create_experiment(experiment)
        run = client.create_run(number, run_name=plain_name(group.title or PROJECT)).info
        metrics = [Metric(name, value, run.start_time, 0) for name, value in flat_metrics(group).items()]
        params = [Param(name, value[:500]) for name, value in described(result, group).items()]
        client.log_batch(run.run_id, params=params)
        for start in range(0, len(metrics), AT_ONCE):
            client.log_batch(run.run_id, metrics=metrics[start : start + AT_ONCE])
        client.log_text(run.run_id, result.to_json(), RESULT)
        client.set_terminated(run.run_id)
        yield f"mlflow: {counted(len(metrics), 'number')} in experiment {experiment!r}, run {run.run_id}"


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
