"""An alarm in Weights & Biases: an alert of a run, and a point at its step."""

from __future__ import annotations

import os

from calipers.analyses.watch.alarm_event import AlarmSender, event_name, sender_of
from calipers.analyses.watch.monitor import Raised
from calipers.reports.tracker import PROJECT, plain_name


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
