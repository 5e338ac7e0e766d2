"""Experiment trackers: the export of a result to W&B, MLflow or Trackio, and of the alarms of a watch.

Each group of a result becomes a run. Its numbers are logged under flat names such as ``pass_at_1/low``, because
trackers have no nested values. The client libraries are optional.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from calipers.analyses.watch.monitor import Raised
from calipers.errors import InputError
from calipers.reports.figures import counted
from calipers.reports.result import Group, Result
from calipers.reports.untrusted_text import clean
from calipers.stats.estimate import Estimate
from calipers.systems import ExportRequest

RESULT: Final = "result.json"
PROJECT: Final = "calipers"
LONGEST: Final = 200  # characters of a client's message
METRICS_AT_ONCE: Final = 500  # metrics per call; MLflow accepts at most 1000
FOLDER: Final = "calipers-watch"  # default folder of TensorBoard's event files, hidden, below the watched folder

Log = Callable[[Result, str | None], Iterator[str]]
"""``log(result, target)``: pass a result to the client; yields a note for each run."""
Send = Callable[[Raised, str, str | None], str]
"""``send(raised, watched folder, target)``: pass an alarm to the client; returns a note that says where it is."""


class Tracker:
    """The export ``--export NAME[=TARGET]`` to a tracker; InputError if its client library is not installed."""

    def __init__(self, name: str, log: Log, request: ExportRequest) -> None:
        self._option, self._target, self._log = f"--export {name}", request.target, log
        _check_installed(name, self._option)
        self.paths, self.files = request.paths, list[str]()

    def begin(self) -> None:
        """Return None: the export needs only the result, not what is read of the files."""

    def contents(self, result: Result) -> tuple[list[Any], list[str]]:
        """Log every group, and return notes that name the runs."""
        with _client_errors(self._option, "is it set up on this machine?"):
            return [], list(self._log(result, self._target))


def alarm_sender(name: str, send: Send, target: str | None) -> Callable[[Raised, str], str]:
    """The sender of alarms for ``--log NAME[=TARGET]``; InputError if the client library is not installed."""
    _check_installed(name, option := f"--log {name}")

    def send_alarm(raised: Raised, path: str) -> str:
        with _client_errors(option):
            return send(raised, path, target)

    return send_alarm


def _check_installed(package: str, option: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise InputError.at(option, f"the package {package} is not installed", f"pip install {package}")


@contextmanager
def _client_errors(option: str, expected: str = "") -> Iterator[None]:
    """Turn any exception of the client into an InputError of one line."""
    try:
        yield
    except Exception as error:
        message = clean((str(error).strip() or "no message").splitlines()[0], LONGEST)
        raise InputError.at(option, f"its client failed ({type(error).__name__}: {message})", expected) from error


BY: Final = "by"  # comes before the key of a slice, so that no key can be mistaken for a number such as "low"
_SIGNS: Final = {"@": "_at_", "^": "_hat_"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def flat_metrics(group: Group) -> dict[str, float]:
    """Every number of a group: value, interval ends, standard error, tasks and samples of each metric.

    Numbers that do not exist or are not finite are left out.
    """
    names = _FlatNames()
    numbers: dict[str, float | None] = {
        "rollouts/planned": group.ledger.planned,
        "rollouts/scored": group.ledger.scored,
        "rollouts/missing": group.ledger.gaps,
    }
    for name, estimate in {**group.metrics, **group.economics}.items():
        numbers |= _numbers(names.of(name), estimate)
    for key, slices in group.breakdowns.items():
        for value, part in slices.items():
            for name, number in part.metrics.items():
                numbers |= _numbers(f"{names.of(name)}/{BY}/{names.of(key)}/{names.of(value)}", number)
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}


def _numbers(name: str, estimate: Estimate) -> dict[str, float | None]:
    low, high = estimate.interval or (None, None)
    return {
        f"{name}/value": estimate.value,
        f"{name}/low": low,
        f"{name}/high": high,
        f"{name}/stderr": estimate.stderr,
        f"{name}/n": estimate.tasks,
        f"{name}/samples": estimate.samples,
    }


def plain_name(name: str) -> str:
    """A name that every tracker accepts: only letters, digits, ``_``, ``-`` and dots.

    >>> plain_name("pass@1"), plain_name("pass^4"), plain_name("mean_reward(reward=a/b)")
    ('pass_at_1', 'pass_hat_4', 'mean_reward_reward_a_b')
    """
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return _UNSAFE.sub("_", name).strip("_.")[:100] or "unnamed"


class _FlatNames:
    """Plain names, a different one for each name."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}  # plain name -> name

    def of(self, name: str) -> str:
        plain, number = plain_name(name), 1
        while self._taken.setdefault(plain, name) != name:
            number += 1
            plain = f"{plain_name(name)}-{number}"
        return plain


def described(result: Result, group: Group) -> dict[str, str]:
    """The configuration of a group's run: what was measured, and how, as short texts."""
    facts: Mapping[str, Any] = {
        "dataset": group.dataset,
        "model": group.model,
        "agent": group.agent,
        "dialect": result.dialect,
        "missing": result.missing,
        "confidence": result.confidence,
        "seed": result.seed,
        "digest": result.digest,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def event_name(raised: Raised) -> str:
    """The metric name under which an alarm is logged: ``calipers_alarm/drop_pass_at_1``."""
    kind = raised.alarm.partition(">")[0]
    return f"calipers_alarm/{plain_name(kind.replace('(', '_').replace(')', '').strip())}"


def log_to_wandb(result: Result, target: str | None) -> Iterator[str]:
    """Log a result to W&B: in the project ``target``, or WANDB_PROJECT. WANDB_MODE=offline keeps it local."""
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


def alarm_in_wandb(raised: Raised, path: str, target: str | None) -> str:
    """Log an alarm to W&B: in the project ``target``, or WANDB_PROJECT. WANDB_MODE=offline keeps it local."""
    import wandb

    project = target or os.environ.get("WANDB_PROJECT") or PROJECT
    name = plain_name(f"watch {os.path.basename(os.path.abspath(path))}")
    run = wandb.init(project=project, name=name, job_type="watch", settings=wandb.Settings(silent=True))
    run.log({event_name(raised): raised.evidence, f"{event_name(raised)}/since": raised.since}, step=raised.step)
    run.alert(title=raised.alarm, text=raised.words)
    run.finish()
    return f"wandb: alarm at step {raised.step} in project {project!r}, run {run.id}"


def log_to_mlflow(result: Result, target: str | None) -> Iterator[str]:
    """Log a result to MLflow, one experiment per dataset, on the server ``target``, or MLFLOW_TRACKING_URI."""
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=target)
    for group in result.groups:
        experiment = plain_name(group.dataset or PROJECT)
        run = client.create_run(_experiment(client, experiment), run_name=plain_name(group.title or PROJECT)).info
        metrics = [Metric(name, value, run.start_time, 0) for name, value in flat_metrics(group).items()]
        params = [Param(name, value[:500]) for name, value in described(result, group).items()]
        client.log_batch(run.run_id, params=params)
        for start in range(0, len(metrics), METRICS_AT_ONCE):
            client.log_batch(run.run_id, metrics=metrics[start : start + METRICS_AT_ONCE])
        client.log_text(run.run_id, result.to_json(), RESULT)
        client.set_terminated(run.run_id)
        yield f"mlflow: {counted(len(metrics), 'number')} in experiment {experiment!r}, run {run.run_id}"


def _experiment(client: Any, name: str) -> Any:
    """The id of an experiment, which is created if it does not exist."""
    existing = client.get_experiment_by_name(name)
    return existing.experiment_id if existing else client.create_experiment(name)


def alarm_in_mlflow(raised: Raised, path: str, target: str | None) -> str:
    """Log an alarm to MLflow, on the server ``target``, or MLFLOW_TRACKING_URI."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=target)
    experiment = plain_name(f"watch {os.path.basename(os.path.abspath(path))}")
    run = client.create_run(_experiment(client, experiment), run_name=plain_name(raised.alarm)).info
    client.log_metric(run.run_id, event_name(raised), raised.evidence, step=raised.step)
    client.set_tag(run.run_id, "calipers.alarm", raised.words)
    client.set_terminated(run.run_id)
    return f"mlflow: alarm at step {raised.step} in experiment {experiment!r}, run {run.run_id}"


def log_to_trackio(result: Result, target: str | None) -> Iterator[str]:
    """Log a result to Trackio: in the project ``target``, in the folder TRACKIO_DIR, with the result as an artefact."""
    import trackio

    project = target or PROJECT
    for group in result.groups:
        name, metrics = plain_name(group.title or PROJECT), flat_metrics(group)
        facts = described(result, group)
        run = trackio.init(
            project=project, name=name, config=facts, embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        trackio.log(metrics)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, RESULT)
            with open(path, "w", encoding="utf-8") as file:
                file.write(result.to_json())
            trackio.log_artifact(path, name=f"{name}-result", type="result")
            trackio.finish()
        yield f"trackio: {counted(len(metrics), 'number')} in project {project!r}, run {run.name!r}"


def alarm_in_tensorboard(raised: Raised, path: str, target: str | None) -> str:
    """Log an alarm as a point at its step, in an event file in ``target``; by default below the watched folder."""
    from tensorboard.summary import Writer

    folder = target or os.path.join(path, f".{FOLDER}", "tensorboard")
    writer = Writer(folder)
    writer.add_scalar(event_name(raised), raised.evidence, raised.step)
    writer.close()
    return f"tensorboard: {event_name(raised)} at step {raised.step} in {folder}"


WANDB: Final = partial(Tracker, "wandb", log_to_wandb)
MLFLOW: Final = partial(Tracker, "mlflow", log_to_mlflow)
TRACKIO: Final = partial(Tracker, "trackio", log_to_trackio)
WANDB_ALARMS: Final = partial(alarm_sender, "wandb", alarm_in_wandb)
MLFLOW_ALARMS: Final = partial(alarm_sender, "mlflow", alarm_in_mlflow)
TENSORBOARD_ALARMS: Final = partial(alarm_sender, "tensorboard", alarm_in_tensorboard)
