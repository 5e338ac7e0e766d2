"""Harbor's own account: the whole ``result.json`` of a job, of any age, its tables of a result, and its dialect.

Statistics are over the trials that ended, and what is missing counts 0. Printed, a job has a part for each eval: a line
of numbers, how often each reward was given, each exception raised. Where an eval has several rewards each value stands
beside the reward it is of; Harbor mixes them.
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
from calipers.systems.harbor import DEFAULT, WORDS
from calipers.systems.harbor.metrics import (
    BUILT_IN,
    STATISTICS,
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
OLD: Final = {"n_trials": "n_completed_trials", "n_errors": "n_errored_trials"}  # what `stats` once called them
USED: Final = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
Document = Mapping[str, Any]
KEY: Final = "harbor"
MOST: Final = 20  # rows of a table of counts

Table = Sequence[tuple[str, ...]]  # the head, then rows


def load_job_result(document: Any, path: str = "result.json") -> dict[str, Any]:
    """A job's result in today's form, its keys in Harbor's order; InputError for what is none.

    Counters go by their new names, whether they stood in ``stats`` under old ones or in a ``status`` of their
    own; what is pending is worked out where nobody said it. The values of rewards are written as floats.
    """
    try:
        return _current(document)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        wrong = f"not a job's result ({type(error).__name__}: {error})"
        raise InputError.at(path, wrong, "expected a file that Harbor wrote") from error


def _current(document: Document) -> dict[str, Any]:
    total = int(document.get("n_total_trials") or 0)
    stats = document["stats"]
    counts = _counters(stats, document.get("status") or {}, total)
    started, finished = _time(document.get("started_at")), _time(document.get("finished_at"))
    evals = stats.get("evals") or {}
    return {
        "id": str(document["id"]),
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
    known_counts: dict[str, int] = {}
    for name, value in (*status.items(), *stats.items()):  # the newer place wins
        known = OLD.get(name) or next((new for new in COUNTERS if name in (new, _short(new))), None)
        if known is not None and value is not None:
            known_counts[known] = int(value)
    counts = {name: known_counts.get(name, 0) for name in COUNTERS}
    if "n_pending_trials" not in known_counts:
        counts["n_pending_trials"] = max(total - counts["n_completed_trials"] - counts["n_running_trials"], 0)
    return counts


def _short(counter: str) -> str:
    """A counter without what says that it is one: ``n_running_trials`` is ``running``."""
    return counter.removeprefix("n_").removesuffix("_trials")


def _eval(entry: Document) -> dict[str, Any]:
    rewards = entry.get("reward_stats") or {}
    return {
        "n_trials": int(entry.get("n_trials") or 0),
        "n_errors": int(entry.get("n_errors") or 0),
        "metrics": [dict(metric) for metric in entry.get("metrics") or ()],
        "pass_at_k": {str(int(k)): value for k, value in (entry.get("pass_at_k") or {}).items()},
        "reward_stats": {name: _values(values) for name, values in rewards.items()},
        "exception_stats": {kind: list(trials) for kind, trials in (entry.get("exception_stats") or {}).items()},
    }


def _values(values: Document) -> dict[str, list[str]]:
    """The trials by the value of a reward, "1" and "1.0" being the same."""
    by_value: dict[str, list[str]] = {}
    for value, trials in values.items():
        by_value.setdefault(str(float(value)), []).extend(trials)
    return by_value


def _time(text: str | None) -> str | None:
    """A time as Harbor writes it: UTC is Z, no time zone is none."""
    if text is None:
        return None
    return datetime.fromisoformat(text).isoformat().replace("+00:00", "Z")


T = TypeVar("T")

OURS: Final = uuid.UUID("3b0f0c4e-6f5e-5d0b-9d55-6c1d9a0c7f43")
"""The space of the ids we give to jobs that have none."""


@dataclass(frozen=True, slots=True)
class EvalCounts:
    """What the trials themselves cannot say."""

    total: int = 0
    running: int = 0
    retries: int = 0


NO_COUNTS: Final = EvalCounts()


@dataclass(frozen=True, slots=True)
class JobRead:
    """A job directory: its finished trials, what its own files say, and what could not be used."""

    path: str
    trials: Sequence[Trial]
    counts: EvalCounts
    stored: Mapping[str, Any] | None  # its result.json in today's form
    names: Sequence[str]  # the metrics of every dataset
    notes: Sequence[str]


def aggregate(
    trials: Sequence[Trial],
    metrics: Mapping[str, Sequence[str]],
    counts: EvalCounts = NO_COUNTS,
    *,
    by_last_part: bool = False,
) -> dict[str, Any]:
    """The ``stats`` of a job at its end: counters, and per eval its metrics, pass@k, rewards and exceptions.

    ``metrics`` are names by dataset; a dataset that is not among them has none. Harbor looks a dataset up by
    the last ``__`` part of the eval's key, so that of ``my__bench`` it finds those of ``bench``, or none:
    ``by_last_part`` does so too.
    """
    computed = {}
    for key, some in by_eval(trials).items():
        dataset = key.rpartition("__")[2] if by_last_part else dataset_of(some[0])
        computed[key] = metrics_of(some, metrics.get(dataset, ()))
    return Tally(trials).to_dict(
        total=counts.total, running=counts.running, retries=counts.retries, metrics=computed, ladders=ladders(trials)
    )


def metric_names(entries: Sequence[MetricEntry], path: str) -> tuple[list[str], list[str]]:
    """The built-in metrics asked for, and a note for each that is a script: code is not run from here."""
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
    """All that a job directory says; a trial that cannot be read is told of in the notes, as Harbor passes it over."""
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


def asked_metrics(path: str) -> list[str]:
    """The built-in metrics that a job's ``config.json`` asks for, or those of the jobs in a directory; else none."""
    kind = kind_of(path) if os.path.isdir(path) else None
    folders = jobs_inside(path) if kind == "jobs" else [path] if kind == "job" else []
    configs = ((_decoded(folder, CONFIG, JobMetrics), f"{folder}/{CONFIG}") for folder in folders)
    return [name for config, location in configs for name in metric_names(config.metrics, location)[0]]


def _decoded(folder: str, name: str, kind: type[T]) -> T:
    """One of a job's own files; what it holds by default when it is not there."""
    return decode_of_job(_contents(folder, name) or b"{}", kind, f"{folder}/{name}")


def _contents(folder: str, name: str) -> bytes | None:
    try:
        return contents(f"{folder}/{name}")
    except UnreadableFile as error:
        raise InputError.at(f"{folder}/{name}", f"cannot be read ({error})") from None


def document(job: JobRead) -> dict[str, Any]:
    """The job's ``result.json``, computed anew from its trials; its id and times are those it had."""
    stored = job.stored or {}
    trials = sorted(job.trials, key=lambda trial: (trial.started_at or "~", trial.trial_name))  # as they were submitted
    started = stored.get("started_at") or (trials[0].started_at if trials else None)
    names = {dataset_of(trial): job.names for trial in trials}
    return {
        "id": stored.get("id") or str(uuid.uuid5(OURS, "\n".join(sorted(each.trial_name for each in trials)))),
        "started_at": started,
        "updated_at": stored.get("updated_at") or started,
        "finished_at": stored.get("finished_at"),
        "n_total_trials": job.counts.total,
        "stats": aggregate(trials, names, job.counts),
    }


def encoded(result: Mapping[str, Any]) -> bytes:
    """A job's result as the bytes of its file: four spaces, no final newline, as Harbor writes it."""
    return json.dumps(result, indent=4, ensure_ascii=False).encode()


def lost(job: JobRead, result: Mapping[str, Any]) -> list[str]:
    """A note for each eval whose stored metrics the directory alone cannot compute again."""
    notes = []
    for key, before in ((job.stored or {}).get("stats") or {}).get("evals", {}).items():
        now = result["stats"]["evals"].get(key, {}).get("metrics", [])
        gone = {name for metric in before["metrics"] for name in metric} - {name for metric in now for name in metric}
        if gone:
            names = ", ".join(sorted(gone))
            notes.append(f"{job.path}: {key}: {names} is not in the new file: only the dataset defines that metric")
    return notes


class JobExport:
    """The ``result.json`` of a Harbor job, computed anew from its trials: in the job's directory, or at ``target``."""

    def __init__(self, target: str | None, paths: Sequence[str], hooks: str | None) -> None:
        if hooks is not None:
            raise InputError.at("--hooks", "they are options of NeMo Gym", "add --export nemo_gym")
        if target == "":
            raise InputError.at("--export", "'harbor=' has no file name", "expected harbor, or harbor=PATH")
        if len(paths) != 1 or not os.path.isdir(paths[0]) or kind_of(paths[0]) != "job":
            wrong = f"{paths[0]} is not a job" if len(paths) == 1 else f"{len(paths)} paths are given"
            raise InputError.at("--export harbor", wrong, "expected the directory of one Harbor job")
        self.paths, self.files = paths, [target or os.path.join(paths[0], RESULT)]

    def begin(self) -> None:
        """It needs no more than the job's directory."""

    def contents(self, result: Result) -> tuple[Sequence[Iterable[bytes]], Sequence[str]]:
        """The file as Harbor would write it; the job's notes, and what the directory alone cannot compute again."""
        job = read_job(self.paths[0])
        written = document(job)
        notes = [note for note in job.notes if note not in result.notes]
        return [[encoded(written)]], [*notes, *lost(job, written)]


def own_page(result: Result, shape: str, paths: Sequence[str], trust: bool) -> OwnPage | None:
    """What Harbor prints of a result, beneath our own table."""
    if shape not in ("table", "md"):
        return None
    return OwnPage(render_markdown(result) if shape == "md" else f"\nHarbor's own table\n{render(result)}")


def render(result: Result) -> str:
    """Harbor's tables of every eval, as plain lines; nothing for a result that is not Harbor's."""
    return _page(result, lambda title: clean(title, None), _lines)


def render_markdown(result: Result) -> str:
    """The same as Markdown, in which no name can become anything else."""
    return _page(result, lambda title: f"### {code(title, None)}", _markdown)


def _page(result: Result, heading: Callable[[str], str], shown: Callable[[Table], str]) -> str:
    blocks = []
    for group in result.groups:
        if KEY in group.own:
            blocks += [heading(_title(group)), *map(shown, _tables(group))]
    return "".join(f"\n{block}\n" for block in blocks)


def _title(group: Group) -> str:
    """Dataset, agent and model, as far as they are known, in Harbor's order."""
    return " • ".join(part for part in (group.dataset or "adhoc", group.agent, group.model) if part)


def _tables(group: Group) -> Iterator[Table]:
    """The numbers, the rewards and the exceptions; of what there is none, no table."""
    numbers = group.own[KEY]
    metrics = []
    for number, values in enumerate(numbers["metrics"], 1):
        before = f"Metric {number}: " if len(numbers["metrics"]) > 1 else ""
        metrics += [(before + name.replace("_", " ").title(), value) for name, value in values.items()]
    ladder = [(f"Pass@{k}", value) for k, value in numbers["pass_at_k"].items()]
    columns = [("Trials", numbers["n_trials"]), ("Exceptions", numbers["n_errors"]), *metrics, *ladder]
    yield [tuple(name for name, _ in columns), tuple(_figure(value) for _, value in columns)]
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


def _figure(value: Any) -> str:
    """Three decimals for what is no integer; a dash for what is no number."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _lines(table: Table) -> str:
    """Columns side by side: the first set to the left, numbers to the right."""
    rows = [tuple(map(clean, row)) for row in table]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    named = rows[0][-1] == "Count"  # its first column holds words
    lines = []
    for row in rows:
        pads = [" " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)]
        cells = [pad + cell for pad, cell in zip(pads, row, strict=True)]
        lines.append("  ".join([row[0] + pads[0], *cells[1:]] if named else cells).rstrip())
    return "\n".join(lines)


def _markdown(table: Table) -> str:
    head, *rows = [tuple(map(code, row)) for row in table]
    rule = tuple("---" if head[-1] == "`Count`" and not n else "---:" for n in range(len(head)))
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


RAISED: Final = (
    *("refused", "timed_out", "broke_verifier", "tampered"),
    *("verifier_failed", "judge_failed", "client_failed", "cancelled"),
)
"""Outcomes that are exceptions in Harbor's eyes, for rollouts that name none."""


def seen(rollouts: Rollouts) -> Rollouts:
    """The rollouts as Harbor counts them: only what ended, and a reward counts whatever else went wrong."""
    rewarded = np.zeros(len(rollouts), dtype=bool)
    for column in rollouts.rewards.values():
        rewarded |= column.given
    unfinished = _labelled(rollouts, VERIFIED, UNFINISHED)
    ended = np.where(_labelled(rollouts, VERIFIED), ~unfinished, rollouts.outcome != CODE["not_run"])
    counts = replace(rollouts, outcome=np.where(rewarded, SCORED, rollouts.outcome).astype(np.uint8))
    if ended.all():
        return counts
    left = int(np.count_nonzero(~ended))
    note = (
        f"{left} planned {'trial' if left == 1 else 'trials'} did not end: "
        "Harbor's numbers cover only the trials that ended"
    )
    kept = counts.where(ended)
    groups = np.unique(kept.owner) if len(kept.tasks) else np.zeros(1, dtype=np.int64)  # nothing at all is one group
    return replace(
        kept,
        keys=[kept.keys[group] for group in groups],
        owner=np.searchsorted(groups, kept.owner),
        planned_from="trials that ended",
        notes=[*rollouts.notes, note],
    )


def own(part: Rollouts, requested: Sequence[str]) -> Mapping[str, Any]:
    """An eval as Harbor's job result holds it, with numbers of trials where Harbor lists their names."""
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
    """The values, None for what strict JSON cannot hold: somebody sent NaN, or numbers too large to be added."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _labelled(rollouts: Rollouts, name: str, value: str | None = None) -> Bools:
    """Which rollouts carry a label, or this value of it, [R]."""
    labels = rollouts.labels.get(name)
    if labels is None:
        return np.zeros(len(rollouts), dtype=bool)
    if value is None:
        return labels.code >= 0
    return np.isin(labels.code, [code for code, word in enumerate(labels.values) if word == value])


def _written(part: Rollouts) -> dict[str, dict[float, str]]:
    """How the files write each value of each reward: 1 or 1.0 as in the trial that began first, as Harbor does."""
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
    """How many rollouts ended in which exception, the most frequent first.

    A trial of Harbor's says its own; another rollout says the kind of its error, or what became of it.
    """
    counts: dict[str, int] = {}
    theirs = _labelled(part, VERIFIED)
    for name in (EXCEPTION, ERROR_KIND):
        labels = part.labels.get(name)
        if labels is None:
            continue
        codes = labels.code[(labels.code >= 0) & (theirs == (name == EXCEPTION))]
        for number, count in zip(*np.unique(codes, return_counts=True), strict=True):
            word = str(labels.values[number])
            counts[word] = counts.get(word, 0) + int(count)
    unnamed = ~theirs & ~_labelled(part, ERROR_KIND)
    outcomes = np.bincount(part.outcome[unnamed], minlength=len(OUTCOMES)).tolist()
    for word in RAISED:
        if outcomes[CODE[word]]:
            counts[word] = counts.get(word, 0) + outcomes[CODE[word]]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def asks(source: Any) -> Sequence[str] | None:
    """The metrics that the jobs among some paths ask for in their ``config.json``; None when they ask for none."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    return list(dict.fromkeys(name for path in paths for name in asked_metrics(os.fspath(path)))) or None


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
