"""Register a plan before its runs: the tasks, the number of samples, the metrics and the thresholds."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from calipers.analyses.certify.envelope import PREREGISTRATION, Envelope, private_key, read_envelope, sign, state
from calipers.errors import InputError
from calipers.reports.figures import counted
from calipers.reports.result import covered
from calipers.request import NATIVE, make_plan
from calipers.stores import atomic_file
from calipers.typed import complete

if TYPE_CHECKING:
    from calipers.analyses.certify import CertifiedScoring
    from calipers.reports.result import Result

SCHEMA: Final = "calipers.preregistration/1"
SUITE: Final = "calipersSuiteSha256"
COMPARED: Final = ("tasks", "prompt", "sampling", "judged", "documents", "verifier_code", "model_args", "reasoning")
"""The keys of a run's identity in which a plan and its run must agree."""
IF_SET: Final = ("documents", "model_args", "reasoning")
"""The keys of `COMPARED` that a plan has only if they are set."""
SCORED: Final = (
    *("metrics", "dialect", "by", "cluster", "reward", "threshold"),
    *("missing", "interval", "confidence", "seed"),
)
"""The settings of a plan that say how a run is scored."""
NO_SUCH_RUN: Final = "the plan has no such run"


class _PlannedRun(msgspec.Struct):
    dataset: str | None
    model: str | None
    tasks: int
    samples: int
    metrics: list[str]
    missing: str | None
    confidence: float | None
    seed: int | None
    identity: dict[str, Any]


class _Plan(msgspec.Struct):
    schema: Literal["calipers.preregistration/1"]
    created_at: str
    runs: list[_PlannedRun]


@dataclass(frozen=True, slots=True)
class Preregistration:
    """A certified plan, made before its runs."""

    envelope: Envelope
    predicate: Mapping[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certified plan to a file; an existing file is replaced."""
        with atomic_file(path) as file:
            file.write(self.envelope.encoded())


def preregister(suite: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None) -> Preregistration:
    """Certify the plan of a suite file or a benchmark file before its runs. No model is called.

    The private key in the file ``key`` signs the plan. `Preregistration.save` writes it.
    """
    if key is not None:
        private_key(os.fspath(key))  # a wrong key is an error before the work
    plan = _planned(os.fspath(suite))
    return plan if key is None else replace(plan, envelope=sign(plan.envelope, os.fspath(key)))


def _planned(path: str) -> Preregistration:
    """The plan of a suite file or benchmark file, from a rehearsal of its runs."""
    from calipers import __version__
    from calipers.running.library import loaded_for
    from calipers.running.perform import rehearse
    from calipers.running.provenance import identity
    from calipers.running.settings import jobs_of, suite_file

    if Path(path).suffix not in (".yaml", ".yml"):
        problem = "is no YAML file" if os.path.exists(path) else "no such file"
        raise InputError.at(path, problem, "expected a suite for calipers run, such as suite.yaml")
    jobs, _ = jobs_of([path], {})
    tasks = loaded_for(jobs)
    runs = []
    for job in jobs:
        suite, questions = rehearse(job, tasks)
        run_identity = identity(job, suite)
        runs.append(
            {
                "dataset": suite.name,
                "model": job.model,
                "tasks": len(questions),
                "samples": job.samples,
                **{name: getattr(job, name) for name in SCORED},
                "metrics": [str(metric) for metric in job.metrics or ()],
                "by": list(job.by),
                "identity": {name: run_identity[name] for name in COMPARED if name in run_identity},
            }
        )
    file = suite_file([path])
    content = Path(path).read_bytes() if Path(path).is_file() else b""
    predicate = {
        "schema": SCHEMA,
        "calipers": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": runs,
        "thresholds": None if file is None else file.gate,
    }
    subject = [{"name": Path(path).name, "digest": {SUITE: sha256(content).hexdigest()}}]
    return Preregistration(state(PREREGISTRATION, subject, predicate), predicate)


def read_preregistration(path: str) -> Preregistration:
    """The plan in a file; InputError if the file is not a plan."""
    envelope = read_envelope(path)
    predicate = envelope.statement(path, PREREGISTRATION)["predicate"]
    try:
        msgspec.convert(predicate, complete(_Plan))
    except msgspec.ValidationError as error:
        expected = "expected the file as calipers preregister wrote it"
        raise InputError.at(path, f"is not a plan ({error})", expected) from None
    return Preregistration(envelope, predicate)


def as_planned(path: str, scoring: CertifiedScoring) -> CertifiedScoring:
    """The scoring, with the settings that all runs of a plan share in place of settings that have their default."""
    defaults, planned = type(scoring)(), dict[str, Any]()
    runs = read_preregistration(path).predicate["runs"]
    for name in SCORED:
        value = runs[0].get(name) if runs else None
        agreed = all(run.get(name) == value for run in runs)
        if value and agreed and getattr(scoring, name) == getattr(defaults, name):
            planned[name] = tuple(value) if isinstance(value, list) else value
    return replace(scoring, **planned)


def bound(
    path: str, result: Result, plans: Sequence[Mapping[str, Any]], scoring: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The entry of a certificate about a plan: its hash, the differences from it, and the number of its runs."""
    plan = read_preregistration(path)
    differing = differences(plan.predicate, json.loads(covered(result)), plans, scoring)
    return {"sha256": plan.envelope.digest, "differences": differing, "runs": len(plan.predicate["runs"])}


def others_planned(stated: Mapping[str, Any], groups: int) -> str:
    """The note that a certificate of ``groups`` runs does not have all planned runs; empty if it has all."""
    there = groups - sum(difference.endswith(NO_SUCH_RUN) for difference in stated["differences"])
    planned = stated.get("runs", there)
    return f"the certificate has {there:,} of {planned:,} planned runs" if there < planned else ""


def differences(
    plan: Mapping[str, Any],
    result: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    scoring: Mapping[str, Any] | None,
) -> list[str]:
    """The differences between a plan and its runs: from the numbers of a result, the runs' own plans, and the scoring.

    ``scoring`` is None for a result alone, which does not contain all of its settings.
    """
    planned = {(run["dataset"], run["model"]): run for run in plan["runs"]}
    by_run = {(run["dataset"], run["model"]): run for run in runs}
    differing: list[str] = []
    for group in result["groups"]:
        key = (group["dataset"], group["model"])
        name = f"{key[0]} · {key[1]}"
        if key not in planned:
            differing.append(f"{name}: {NO_SUCH_RUN}")
            continue
        wanted, run = planned[key], by_run.get(key)
        of_scoring = _scoring_differences(wanted, result, group["metrics"], scoring)
        differing += [f"{name}: {difference}" for difference in of_scoring]
        rollouts = wanted["tasks"] * wanted["samples"]
        if group["ledger"]["planned"] != rollouts:
            differing.append(f"{name}: {group['ledger']['planned']:,} rollouts, planned {rollouts:,}")
        if run is None:
            differing.append(f"{name}: the run has no plan of its own, so its prompts and its tasks are not known")
            continue
        differing += [f"{name}: {difference}" for difference in _run_differences(wanted, run, plan["created_at"])]
    return differing


def _scoring_differences(
    wanted: Mapping[str, Any], result: Mapping[str, Any], numbers: Collection[str], scoring: Mapping[str, Any] | None
) -> Iterator[str]:
    """The differences between the planned and the actual scoring of a run; ``numbers`` are the metrics that it has."""
    defaults = make_plan(None, dialect=wanted.get("dialect"))
    expected = {"dialect": defaults.dialect.name, "missing": defaults.missing, "confidence": 0.95, "seed": 0}
    for key, value in expected.items():
        planned = value if wanted.get(key) is None else wanted[key]
        if result[key] != planned:
            yield f"{key} is {result[key]}, planned {planned}"
    requested = scoring or {}
    for key in () if scoring is None else ("by", "cluster", "reward", "threshold", "interval", "range", "exclude"):
        now, planned = requested.get(key) or None, wanted.get(key) or None
        if now != planned:
            yield f"{key} is {_setting_text(now)}, planned {_setting_text(planned)}"
    metrics = wanted["metrics"]
    yield from (f"{metric} was planned and is not there" for metric in metrics if metric not in numbers)
    if not metrics and (requested.get("metrics") or defaults.dialect.name == NATIVE.name):
        metrics = [request.text for request in defaults.requests]  # the metrics of a score by default
    yield from (f"{metric} was not planned" for metric in numbers if metrics and metric not in metrics)


def _setting_text(value: Any) -> str:
    """A setting as text, which is the same for a number before and after it was in a file."""
    if isinstance(value, list):
        return ", ".join(map(_setting_text, value))
    return "not set" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _run_differences(wanted: Mapping[str, Any], run: Mapping[str, Any], registered: str) -> Iterator[str]:
    """The differences between a planned run and the plan in the folder of the run."""
    if run["samples"] != wanted["samples"]:
        yield f"{counted(run['samples'], 'sample')} per task, planned {wanted['samples']}"
    for key in sorted({*wanted["identity"], *IF_SET}):
        value, now = wanted["identity"].get(key), run["identity"].get(key)
        if now == value:
            continue
        if key in ("sampling", "prompt") and isinstance(now, dict) and isinstance(value, dict):
            changed = [inner for inner in sorted({*value, *now}) if now.get(inner) != value.get(inner)]
            yield from (f"{inner} is {now.get(inner)!r}, planned {value.get(inner)!r}" for inner in changed)
        else:
            yield "the tasks have changed" if key == "tasks" else f"{key} has changed"
    began = run.get("created_at")
    if began and began < registered:
        yield f"the run began at {began}, before the plan was registered at {registered}"
