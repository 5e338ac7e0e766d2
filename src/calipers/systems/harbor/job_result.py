"""Harbor's own results: the ``result.json`` of a job in any version, Harbor's tables, and the dialect ``harbor``.

Statistics cover the trials that ended, and a missing reward counts as 0. The printed tables have a section for each
eval: its numbers, the count of each reward value, and the count of each exception. If an eval has several rewards, each
value has the name of its reward before it, whereas Harbor mixes them.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from calipers.errors import InputError, UnknownName
from calipers.reports.markdown import code
from calipers.reports.result import Group, Result
from calipers.reports.untrusted_text import clean, width
from calipers.request import Dialect
from calipers.rollouts.column import Bools
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, OUTCOMES, SCORED
from calipers.rollouts.table import Rollouts
from calipers.systems import OwnPage
from calipers.systems.harbor import DEFAULT, STATISTICS, WORDS
from calipers.systems.harbor.metrics import (
    BUILT_IN,
    Tally,
    by_eval,
    counted,
    dataset_of,
    evals_key,
    ladder,
    ladders,
    metrics_of,
    statistic,
)
from calipers.systems.harbor.wire import (
    ADHOC,
    CONFIG,
    EXCEPTION,
    LOCK,
    RESULT,
    SCRIPT,
    UNFINISHED,
    VERIFIED,
    WRITTEN,
    JobFile,
    JobFolder,
    JobLockSize,
    JobMetrics,
    MetricEntry,
    Trial,
    UnreadableFile,
    contents,
    decode_of_job,
    decode_trial,
    jobs_inside,
    kind_of,
)

COUNTERS: Final = (
    "n_completed_trials",
    "n_errored_trials",
    "n_running_trials",
    "n_pending_trials",
    "n_cancelled_trials",
    "n_retries",
)
OLD_COUNTERS: Final = {"n_trials": "n_completed_trials", "n_errors": "n_errored_trials"}  # old name -> new name
USED: Final = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
Document = Mapping[str, Any]
KEY: Final = "harbor"
MOST: Final = 20  # rows in a table of counts

Table = Sequence[tuple[str, ...]]  # the header, then the rows


def load_job_result(document: Any, path: str = "result.json") -> dict[str, Any]:
    """A job's result in the current format, with the keys in Harbor's order; InputError if it is not a job's result.

    Counters get their current names, whether they were in ``stats`` under old names or in a separate ``status``. The
    number of pending trials is computed if it is missing. Reward values are written as floats.
    """
    try:
        return _current(document)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        message = f"not a job's result ({type(error).__name__}: {error})"
        raise InputError.at(path, message, "expected a file that Harbor wrote") from error


def _current(document: Document) -> dict[str, Any]:
    total = int(document.get("n_total_trials") or 0)
    stats = document["stats"]
    counts = _counters(stats, document.get("status") or {}, total)
    started, finished = _time(document.get("started_at")), _time(document.get("finished_at"))
    evals = stats.get("evals") or {}
    return {
        "id": None if document.get("id") is None else str(document["id"]),
        "started_at": started,
        "updated_at": _time(document.get("updated_at")) or finished or started,
        "finished_at": finished,
        "n_total_trials": total,
        "stats": {
            **counts,
            "evals": {key: _eval(entry) for key, entry in evals.items()},
            **{name: stats.get(name) for name in USED},
        },
    }


def _counters(stats: Document, status: Document, total: int) -> dict[str, int]:
    stated: dict[str, int] = {}
    for name, value in (*status.items(), *stats.items()):  # ``stats`` is newer and takes precedence
        counter = OLD_COUNTERS.get(name) or next((new for new in COUNTERS if name in (new, _short(new))), None)
        if counter is not None and value is not None:
            stated[counter] = int(value)
    counts = {name: stated.get(name, 0) for name in COUNTERS}
    if "n_pending_trials" not in stated:
        counts["n_pending_trials"] = max(total - counts["n_completed_trials"] - counts["n_running_trials"], 0)
    return counts


def _short(counter: str) -> str:
    """A counter's short name: ``running`` for ``n_running_trials``."""
    return counter.removeprefix("n_").removesuffix("_trials")


def _eval(entry: Document) -> dict[str, Any]:
    rewards = entry.get("reward_stats") or {}
    return {
        "n_trials": int(entry.get("n_trials") or 0),
        "n_errors": int(entry.get("n_errors") or 0),
        "metrics": [dict(metric) for metric in entry.get("metrics") or ()],
        "pass_at_k": {str(int(k)): value for k, value in (entry.get("pass_at_k") or {}).items()},
        "reward_stats": {name: _trials_by_value(values) for name, values in rewards.items()},
        "exception_stats": {kind: list(trials) for kind, trials in (entry.get("exception_stats") or {}).items()},
    }


def _trials_by_value(values: Document) -> dict[str, list[str]]:
    """The trials by reward value; "1" and "1.0" are the same value."""
    by_value: dict[str, list[str]] = {}
    for value, trials in values.items():
        by_value.setdefault(str(float(value)), []).extend(trials)
    return by_value


def _time(text: str | None) -> str | None:
    """A time as Harbor writes it: with Z for UTC, and without a time zone if it has none."""
    if text is None:
        return None
    return datetime.fromisoformat(text).isoformat().replace("+00:00", "Z")


T = TypeVar("T")

OURS: Final = uuid.UUID("3b0f0c4e-6f5e-5d0b-9d55-6c1d9a0c7f43")
"""The UUID namespace for the ids of jobs that have none."""


@dataclass(frozen=True, slots=True)
class EvalCounts:
    """The counts that cannot be derived from the finished trials."""

    total: int = 0
    running: int = 0
    retries: int = 0


NO_COUNTS: Final = EvalCounts()


@dataclass(frozen=True, slots=True)
class JobRead:
    """The content of a job directory: its finished trials, its own files, and notes on unreadable files."""

    path: str
    trials: Sequence[Trial]
    counts: EvalCounts
    stored: Mapping[str, Any] | None  # its result.json in the current format
    names: Sequence[str]  # the metrics, which are the same for every dataset
    notes: Sequence[str]


def aggregate(
    trials: Sequence[Trial],
    metrics: Mapping[str, Sequence[str]],
    counts: EvalCounts = NO_COUNTS,
    *,
    by_last_part: bool = False,
) -> dict[str, Any]:
    """The ``stats`` of a finished job: counters, and the metrics, pass@k, rewards and exceptions of each eval.

    ``metrics`` are names by dataset; a dataset that is not in it has no metrics. Harbor uses the last ``__`` part of
    the eval's key as the dataset, so that ``my__bench`` gets the metrics of ``bench`` or none; with ``by_last_part``
    this function does the same.
    """
    computed = {}
    for key, eval_trials in by_eval(trials).items():
        dataset = key.rpartition("__")[2] if by_last_part else dataset_of(eval_trials[0])
        computed[key] = metrics_of(eval_trials, metrics.get(dataset, ()))
    return Tally(trials).to_dict(
        total=counts.total, running=counts.running, retries=counts.retries, metrics=computed, ladders=ladders(trials)
    )


def metric_names(entries: Sequence[MetricEntry], path: str) -> tuple[list[str], list[str]]:
    """The names of the requested built-in metrics, and a note for each metric that is a script, which is not run."""
    names, notes = [], []
    for entry in entries:
        if entry.type == SCRIPT:
            script = entry.kwargs.get("script_path", "a script")
            notes.append(
                f"{path}: the metric {script} is a script, so it is not in the file: only calipers score runs it"
            )
        elif entry.type in BUILT_IN:
            names.append(entry.type)
        else:
            raise UnknownName(f"{path}: {UnknownName.of('Harbor metric', entry.type, [*BUILT_IN, SCRIPT])}")
    return names, notes


def read_job(path: str) -> JobRead:
    """The content of a job directory; a trial that cannot be read is excluded with a note, because Harbor skips it."""
    folder = JobFolder(path)
    trials, notes = [], []
    for name in folder.finished:
        result_path = folder.path_in(name, RESULT)
        try:
            trials.append(decode_trial(folder.result(name) or b"", result_path))
        except (InputError, UnreadableFile) as error:
            notes.append(f"{result_path}: excluded, because it cannot be read ({error})")
    job, stored = JobFile(), None
    if (raw := _contents(path, RESULT)) is not None:
        own_path = f"{path}/{RESULT}"
        job = decode_of_job(raw, JobFile, own_path)
        stored = load_job_result(decode_of_job(raw, dict[str, Any], own_path), own_path)
    names, script_notes = metric_names(_decoded(path, CONFIG, JobMetrics).metrics, f"{path}/{CONFIG}")
    total = job.n_total_trials
    if total is None:
        total = len(_decoded(path, LOCK, JobLockSize).trials) or len(folder.finished) + len(folder.unfinished)
    running = 0 if job.finished_at else len(folder.unfinished)
    counts = EvalCounts(total, running, job.stats.n_retries)
    return JobRead(path, trials, counts, stored, names or DEFAULT, [*notes, *script_notes])


def requested_metrics(path: str) -> list[str]:
    """The built-in metrics that the ``config.json`` of a job, or of each job in a directory, requests; else none."""
    kind = kind_of(path) if os.path.isdir(path) else None
    folders = jobs_inside(path) if kind == "jobs" else [path] if kind == "job" else []
    configs = ((_decoded(folder, CONFIG, JobMetrics), f"{folder}/{CONFIG}") for folder in folders)
    return [name for config, location in configs for name in metric_names(config.metrics, location)[0]]


def _decoded(folder: str, name: str, kind: type[T]) -> T:
    """One of a job's own files; the default values if it does not exist."""
    return decode_of_job(_contents(folder, name) or b"{}", kind, f"{folder}/{name}")


def _contents(folder: str, name: str) -> bytes | None:
    try:
        return contents(f"{folder}/{name}")
    except UnreadableFile as error:
        raise InputError.at(f"{folder}/{name}", f"cannot be read ({error})") from None


def document(job: JobRead) -> dict[str, Any]:
    """A job's ``result.json``, computed again from its trials; the id and the times are those of the stored file."""
    stored = job.stored or {}
    trials = sorted(job.trials, key=lambda trial: (trial.started_at or "~", trial.trial_name))  # in order of submission
    started = stored.get("started_at") or (trials[0].started_at if trials else None)
    names = {dataset_of(trial): job.names for trial in trials}
    return {
        "id": stored.get("id") or str(uuid.uuid5(OURS, "\n".join(sorted(trial.trial_name for trial in trials)))),
        "started_at": started,
        "updated_at": stored.get("updated_at") or started,
        "finished_at": stored.get("finished_at"),
        "n_total_trials": job.counts.total,
        "stats": aggregate(trials, names, job.counts),
    }


def encoded(result: Mapping[str, Any]) -> bytes:
    """The bytes of a job's result file as Harbor writes it: indented by four spaces, without a final newline.

    NaN and infinite numbers, such as a sum of huge rewards, become null.
    """
    return msgspec.json.format(msgspec.json.encode(result), indent=4)


def lost(job: JobRead, result: Mapping[str, Any]) -> list[str]:
    """A note for each eval with stored metrics that cannot be computed again from the job's directory."""
    notes = []
    for key, stored in ((job.stored or {}).get("stats") or {}).get("evals", {}).items():
        metrics = result["stats"]["evals"].get(key, {}).get("metrics", [])
        missing = {name for metric in stored["metrics"] for name in metric}.difference(*metrics)
        if missing:
            names = ", ".join(sorted(missing))
            notes.append(f"{job.path}: {key}: {names} is not in the new file: only the dataset defines that metric")
    return notes


class JobExport:
    """Writes the ``result.json`` of a Harbor job, computed from its trials, to its directory or to ``target``."""

    def __init__(self, target: str | None, paths: Sequence[str], hooks: str | None) -> None:
        if hooks is not None:
            raise InputError.at("--hooks", "they are options of NeMo Gym", "add --export nemo_gym")
        if target == "":
            raise InputError.at("--export", "'harbor=' has no file name", "expected harbor, or harbor=PATH")
        if len(paths) != 1 or not os.path.isdir(paths[0]) or kind_of(paths[0]) != "job":
            message = f"{paths[0]} is not a job" if len(paths) == 1 else f"{len(paths)} paths are given"
            raise InputError.at("--export harbor", message, "expected the directory of one Harbor job")
        self.paths, self.files = paths, [target or os.path.join(paths[0], RESULT)]

    def begin(self) -> None:
        """Do nothing: the export needs only the job's directory."""

    def contents(self, result: Result) -> tuple[Sequence[Iterable[bytes]], Sequence[str]]:
        """The file as Harbor would write it, the job's notes, and a note on metrics that cannot be computed again."""
        job = read_job(self.paths[0])
        job_result = document(job)
        notes = [note for note in job.notes if note not in result.notes]
        return [[encoded(job_result)]], [*notes, *lost(job, job_result)]


def own_page(result: Result, shape: str, paths: Sequence[str], trust: bool) -> OwnPage | None:
    """Harbor's tables of a result, which follow our own table."""
    if shape not in ("table", "md"):
        return None
    return OwnPage(render_markdown(result) if shape == "md" else f"\nHarbor's own table\n{render(result)}")


def render(result: Result) -> str:
    """Harbor's tables of every eval, as plain text; "" for a result of another dialect."""
    return _page(result, lambda title: clean(title, None), _lines)


def render_markdown(result: Result) -> str:
    """Harbor's tables of every eval as Markdown, with names escaped as code; "" for a result of another dialect."""
    return _page(result, lambda title: f"### {code(title, None)}", _markdown)


def _page(result: Result, heading: Callable[[str], str], shown: Callable[[Table], str]) -> str:
    blocks = []
    for group in result.groups:
        if KEY in group.own:
            blocks += [heading(_title(group)), *map(shown, _tables(group))]
    return "".join(f"\n{block}\n" for block in blocks)


def _title(group: Group) -> str:
    """The known ones of dataset, agent and model, in Harbor's order."""
    return " • ".join(part for part in (group.dataset or ADHOC, group.agent, group.model) if part)


def _tables(group: Group) -> Iterator[Table]:
    """The tables of numbers, of rewards and of exceptions; the last two only if they have rows."""
    numbers = group.own[KEY]
    metrics = []
    for number, values in enumerate(numbers["metrics"], 1):
        prefix = f"Metric {number}: " if len(numbers["metrics"]) > 1 else ""
        metrics += [(prefix + name.replace("_", " ").title(), value) for name, value in values.items()]
    pass_rates = [(f"Pass@{k}", value) for k, value in numbers["pass_at_k"].items()]
    columns = [("Trials", numbers["n_trials"]), ("Exceptions", numbers["n_errors"]), *metrics, *pass_rates]
    yield [tuple(name for name, _ in columns), tuple(_formatted(value) for _, value in columns)]
    several = len(numbers["reward_stats"]) > 1
    rewards = [
        (f"{name} {value}" if several else value, str(count))
        for name, values in numbers["reward_stats"].items()
        for value, count in values.items()
    ]
    exceptions = [(name, str(count)) for name, count in numbers["exception_stats"].items()]
    for title, rows in (("Reward", rewards), ("Exception", exceptions)):
        if rows:
            more = [(f"and {len(rows) - MOST} more", "")] if len(rows) > MOST else []
            yield [(title, "Count"), *rows[:MOST], *more]


def _formatted(value: Any) -> str:
    """A number with three decimals (none for integers), or a dash for a value that is not a finite number."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _lines(table: Table) -> str:
    """A table as aligned lines: numbers to the right, the names in a table of counts to the left."""
    rows = [tuple(map(clean, row)) for row in table]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    has_names = rows[0][-1] == "Count"  # in its first column
    lines = []
    for row in rows:
        pads = [" " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)]
        cells = [pad + cell for pad, cell in zip(pads, row, strict=True)]
        lines.append("  ".join([row[0] + pads[0], *cells[1:]] if has_names else cells).rstrip())
    return "\n".join(lines)


def _markdown(table: Table) -> str:
    header, *rows = [tuple(map(code, row)) for row in table]
    rule = tuple("---" if header[-1] == "`Count`" and not n else "---:" for n in range(len(header)))
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


RAISED: Final = (
    *("refused", "timed_out", "broke_verifier", "tampered"),
    *("verifier_failed", "judge_failed", "client_failed", "cancelled"),
)
"""The outcomes that Harbor counts as exceptions, for rollouts that do not name an exception."""


def seen(rollouts: Rollouts) -> Rollouts:
    """The rollouts as Harbor counts them: only trials that ended, and a reward counts despite an exception."""
    rewarded = np.zeros(len(rollouts), dtype=bool)
    for column in rollouts.rewards.values():
        rewarded |= column.given
    unfinished = _labelled(rollouts, VERIFIED, UNFINISHED)
    ended = np.where(_labelled(rollouts, VERIFIED), ~unfinished, rollouts.outcome != CODE["not_run"])
    counts = replace(rollouts, outcome=np.where(rewarded, SCORED, rollouts.outcome).astype(np.uint8))
    if ended.all():
        return counts
    outstanding = int(np.count_nonzero(~ended))
    note = (
        f"{outstanding} planned {'trial' if outstanding == 1 else 'trials'} did not end: "
        "Harbor's numbers cover only the trials that ended"
    )
    kept = counts.where(ended)
    groups = np.unique(kept.owner) if len(kept.tasks) else np.zeros(1, dtype=np.int64)  # no rollouts are one group
    return replace(
        kept,
        keys=[kept.keys[group] for group in groups],
        owner=np.searchsorted(groups, kept.owner),
        planned_from="trials that ended",
        notes=[*rollouts.notes, note],
    )


def own(part: Rollouts, requested: Sequence[str]) -> Mapping[str, Any]:
    """An eval in the form of Harbor's job result, with the number of trials where Harbor lists their names."""
    agent, model, dataset = part.keys[0]
    exceptions, written = _exceptions(part), _written(part)
    empty = _labelled(part, VERIFIED, "empty")
    rewards = {key: column for key, column in part.rewards.items() if column.given.any()}
    rewarded = empty.copy()
    for column in rewards.values():
        rewarded |= column.given
    names = [name for name in requested if name in STATISTICS] if len(part) else []
    return {
        "harbor": {
            "eval": evals_key(agent, model, dataset or ADHOC),
            "n_trials": int(np.count_nonzero(rewarded)),
            "n_errors": sum(exceptions.values()),
            "metrics": [_finite(statistic(name, rewards, len(part))) for name in names],
            "pass_at_k": {str(k): value for k, value in ladder(rewards, part.by_task, empty).items()},
            "reward_stats": {key: counted(column, written.get(key, {})) for key, column in sorted(rewards.items())},
            "exception_stats": exceptions,
        }
    }


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """The values, with None for NaN and infinity, which JSON does not have; sums of huge rewards can be infinite."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _labelled(rollouts: Rollouts, name: str, value: str | None = None) -> Bools:
    """Whether each rollout has a label, or this value of it, [R]."""
    labels = rollouts.labels.get(name)
    if labels is None:
        return np.zeros(len(rollouts), dtype=bool)
    if value is None:
        return labels.code >= 0
    return np.isin(labels.code, [code for code, label in enumerate(labels.values) if label == value])


def _written(part: Rollouts) -> dict[str, dict[float, str]]:
    """The text of each value of each reward: 1 or 1.0, as in the trial that started first, as in Harbor."""
    labels = part.labels.get(WRITTEN)
    if labels is None:
        return {}
    trials = [json.loads(labels.values[code]) for code in np.unique(labels.code[labels.code >= 0]).tolist()]
    written: dict[str, dict[float, str]] = {}
    for _, _, texts in sorted(trials, key=lambda trial: trial[:2]):
        for name, text in texts.items():
            written.setdefault(name, {}).setdefault(float(text), text)
    return written


def _exceptions(part: Rollouts) -> dict[str, int]:
    """The number of rollouts by exception, most frequent first.

    A Harbor trial has the label EXCEPTION. Another rollout counts by the kind of its error, or else by its outcome.
    """
    counts: dict[str, int] = {}
    from_harbor = _labelled(part, VERIFIED)
    for name in (EXCEPTION, ERROR_KIND):
        labels = part.labels.get(name)
        if labels is None:
            continue
        codes = labels.code[(labels.code >= 0) & (from_harbor == (name == EXCEPTION))]
        for number, count in zip(*np.unique(codes, return_counts=True), strict=True):
            exception = str(labels.values[number])
            counts[exception] = counts.get(exception, 0) + int(count)
    unnamed = ~from_harbor & ~_labelled(part, ERROR_KIND)
    outcomes = np.bincount(part.outcome[unnamed], minlength=len(OUTCOMES)).tolist()
    for outcome in RAISED:
        if outcomes[CODE[outcome]]:
            counts[outcome] = counts.get(outcome, 0) + outcomes[CODE[outcome]]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def asks(source: Any) -> Sequence[str] | None:
    """The metrics that jobs among the paths request in their ``config.json``; None if there are none."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    return list(dict.fromkeys(name for path in paths for name in requested_metrics(os.fspath(path)))) or None


HARBOR = Dialect(
    "harbor",
    metrics=WORDS,
    default=DEFAULT,
    missing="zero",
    labels=(VERIFIED, EXCEPTION, WRITTEN, ERROR_KIND),
    every_reward=True,
    seen=seen,
    own=own,
    asks=asks,
)
