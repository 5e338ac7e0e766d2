"""A result in Weights & Biases: a run for each group, its numbers in the summary; and the alarms of a watch."""

from __future__ import annotations

import os
from collections.abc import Iterator

from calipers.analyses.watch.document import AlarmSender, event_name, sender_of
from calipers.analyses.watch.monitor import Raised
from calipers.reports.figures import counted
from calipers.reports.result import Result
from calipers.reports.tracker import PROJECT, RESULT, Tracker, described, flat_metrics, plain_name
from calipers.systems.system import ExportRequest


def export(request: ExportRequest) -> Tracker:
    """``--export wandb[=PROJECT]``: the project of WANDB_PROJECT, or PROJECT; WANDB_MODE=offline keeps it here."""
    return Tracker("wandb", request.target, request.paths, log)


def log(result: Result, target: str | None) -> Iterator[str]:
    """A run for each group; a note with its name."""
    import wandb

    project = target or os.environ.get("WANDB_PROJECT") or PROJECT
    for group in result.groups:
        name, metrics = plain_name(group.title or PROJECT), flat_metrics(group)
        silent = wandb.Settings(silent=True)
        run = wandb.init(project=project, name=name, config=described(result, group), settings=silent)
        run.log(metrics)
        artifact = wandb.Artifact(f"{name}-result", type="result")
        with artifact.new_file(RESULT) as file:
            file.write(result.to_json())
        run.log_artifact(artifact)
        run.finish()
        yield f"wandb: {counted(len(metrics), 'number')} in project {project!r}, run {run.id}"


def sender(target: str | None) -> AlarmSender:
    """``--log wandb[=PROJECT]``: the project of WANDB_PROJECT, or PROJECT; WANDB_MODE=offline keeps it here."""

    def send(raised: Raised, path: str) -> str:
        import wandb

        project = target or os.environ.get("WANDB_PROJECT") or PROJECT
        name = plain_name(f"watch {os.path.basename(os.path.abspath(path))}")
        run = wandb.init(project=project, name=name, job_type="watch", settings=wandb.Settings(silent=True))
        run.log({event_name(raised): raised.evidence, f"{event_name(raised)}/since": raised.since}, step=raised.step)
        run.alert(title=raised.alarm, text=raised.words)
        run.finish()
        return f"wandb: alarm at step {raised.step} in project {project!r}, run {run.id}"

    return sender_of("wandb", send)
