"""The reader of Every Eval Ever's samples, schema 0.3, and the export of a result as two files per group.

::

    data/<benchmark>/<developer>/<model>/<uuid>.json             the numbers, with standard errors and intervals
    data/<benchmark>/<developer>/<model>/<uuid>_samples.jsonl    a line for each rollout and reward that counts

The reader joins the rows of one repeat: they are the rewards of one rollout. The export writes what the schema has no
field for (missing rollouts, tasks and samples, bounds) as text under ``details``.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np

from calipers import __version__
from calipers.errors import InputError
from calipers.formats import Beginning, Columns, Format, Progress, Raw
from calipers.formats.lines import NOTHING
from calipers.formats.own_numbers import document_at, inside, mean_of_task_means, pooled_mean, text_inside
from calipers.formats.source import BOM, Source
from calipers.formats.system_rows import (
    Layout,
    Number,
    Remembered,
    RowBlock,
    SystemPart,
    conversation,
    decoded,
    joined,
    own_names,
    ranks,
    read_rows,
    some_rows,
    with_notes,
)
from calipers.metrics import PASS_THRESHOLD, Metric
from calipers.names import METRICS
from calipers.reports.figures import counted
from calipers.reports.group_files import GroupFiles, GroupRecords, Record, key_of, numbers_of, safe_name, usage_of
from calipers.reports.result import Group, Result, finite
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import Part, paired, renumbered
from calipers.stats.estimate import Estimate
from calipers.systems import ExportRequest
from calipers.typed import complete

SYSTEM: Final = "every_eval_ever"
SCORE: Final = "score"  # the reward of rows without an evaluation_result_id
RESULT: Final = "result of the row"  # a label of rows; rollouts do not have it
VALUE: Final = "score of the row"  # a column of rows; rollouts do not have it
CORRECT: Final = "is_correct"
SAMPLES_END: Final = "_samples.jsonl"
MEANS: Final = frozenset({"accuracy", "mean", "mean_reward"})  # names of metrics that are means of scores
PER_CENT: Final = ("percent", "percentage", "%")
NO_REPEAT: Final = -1  # stands for the repeat of a row that does not name one
NO_ERROR: Final = (b"", b"null", b'""')
AVERAGED: Final = "the scores are already averaged over repeats: all repeats of a task have the same score"
USAGE_KEYS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "input_tokens_cache_read",
    "reasoning_tokens": "reasoning_tokens",
}


class Evaluation(msgspec.Struct, gc=False):
    """The score of a row."""

    score: Number = None
    is_correct: Number = None


class SampleData(msgspec.Struct, gc=False):
    """The metadata that names a row's repeat; Every Eval Ever itself writes every value as text."""

    epoch: str | int | None = None
    sample: str | int | None = None


class SampleTokens(msgspec.Struct, gc=False):
    """The token counts of a rollout."""

    input_tokens: Number = None
    output_tokens: Number = None
    input_tokens_cache_read: Number = None
    reasoning_tokens: Number = None


class Performance(msgspec.Struct, gc=False):
    """The times of a rollout."""

    latency_ms: Number = None


class SampleTexts(msgspec.Struct, gc=False):
    """The texts and the metadata of a row."""

    input: Any = None
    output: Any = None
    messages: Any = None
    metadata: Any = None


ROW: Final[list[tuple[str, Any, Any]]] = [
    ("sample_id", str | int, msgspec.NODEFAULT),
    ("evaluation", Evaluation | None, msgspec.NODEFAULT),
    ("model_id", str | None, None),
    ("evaluation_name", str | None, None),
    ("evaluation_result_id", str | None, None),
    ("error", Raw, NOTHING),
    ("metadata", Raw, NOTHING),
    ("token_usage", SampleTokens | None, None),
    ("performance", Performance | None, None),
]


_TEXTS: Final = msgspec.json.Decoder(complete(SampleTexts))
_DATA: Final = msgspec.json.Decoder(complete(list[SampleData | None]))


def take(rows: RowBlock) -> None:
    """Add a block of rows. `_rollouts` joins the rows of a repeat."""
    builder = rows.builder
    builder.tasks(rows["sample_id"])
    builder.labels("model", rows["model_id"])
    builder.labels("dataset", rows["evaluation_name"])
    builder.labels(RESULT, rows["evaluation_result_id"])
    repeats: Remembered = rows.memory.setdefault("repeats", Remembered(_repeat))
    data = decoded(_DATA, rows["metadata"])
    builder.whole("sample", repeats.of([(None, None) if row is None else (row.sample, row.epoch) for row in data]))
    evaluations = rows["evaluation"]
    if any(map(len, rows["error"])):
        failed = [bytes(raw) not in NO_ERROR for raw in rows["error"]]
        rows.outcomes(["client_failed" if failure else None for failure in failed])
        evaluations = [None if failure else score for score, failure in zip(evaluations, failed, strict=True)]
    builder.numbers("column", VALUE, [evaluation and evaluation.score for evaluation in evaluations])
    scored = [evaluation if evaluation and evaluation.score is not None else None for evaluation in evaluations]
    builder.numbers("column", CORRECT, [evaluation and evaluation.is_correct for evaluation in scored])
    for name, key in USAGE_KEYS.items():
        builder.numbers("column", name, [usage and getattr(usage, key) for usage in rows["token_usage"]])
    times = [performance and performance.latency_ms for performance in rows["performance"]]
    builder.numbers("column", "latency_s", [None if time is None else time / 1000 for time in times])
    rows.metadata(rows["metadata"])
    rows.labelled.update(path.split(".")[0] for path in rows.labels)


def _repeat(sample_and_epoch: tuple[str | int | None, str | int | None]) -> int:
    """The number of a row's repeat, counted from 0: its ``sample``, or else its ``epoch``, which is counted from 1.

    The sample comes first because Calipers writes it; an epoch beside it is the rollout's own metadata.
    """
    for value, first in zip(sample_and_epoch, (0, 1), strict=True):
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= first:
            return int(text) - first
    return NO_REPEAT


LAYOUT: Final = Layout(SYSTEM, ROW, take, unnumbered=False)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a file of samples; InputError for the aggregate file beside it, which has only results."""
    own_names(names, SYSTEM)
    if is_aggregate(source.head):
        expected = "expected the file of its samples, {uuid}_samples.jsonl"
        raise InputError.at(source.path, "is a result of Every Eval Ever, without rollouts", expected)
    rows = joined(read_rows("calipers.systems.every_eval_ever:LAYOUT", source, names, labels, progress))
    if not len(rows):
        return []
    rollouts = _rollouts(rows)
    rollouts = replace(rollouts, checks=own_checks(rollouts, source.path))
    notes = [f"{source.path}: {AVERAGED}"] if _averaged(rollouts) else []
    return with_notes([rollouts], source.path, notes)


def own_checks(rollouts: SystemPart, path: str) -> list[Check]:
    """The means in the aggregate beside a file of samples, and ours of the samples of the same result.

    The schema does not say whether a mean is over tasks or over samples. Its own converters average over tasks; if only
    the mean over samples agrees, that is the definition. Other metrics, and means in per cent, are not compared.
    """
    name, found, _ = os.path.basename(path).partition(SAMPLES_END)
    document = document_at(os.path.join(os.path.dirname(path), f"{name}.json")) if found else None
    pairs, written = [], []
    results = inside(document, "evaluation_results")
    for result in results if isinstance(results, list) else ():
        theirs = inside(result, "score_details", "score")
        written.append(theirs)
        config, reward = inside(result, "metric_config"), text_inside(result, "evaluation_result_id")
        if reward not in rollouts.rewards or not _is_mean(config):
            continue
        ours = mean_of_task_means([rollouts], reward)
        over_samples = pooled_mean([rollouts], reward)
        over_tasks_agrees = all(check.agrees for check in compared(SYSTEM, [(reward, theirs, ours)]))
        over_samples_agrees = all(check.agrees for check in compared(SYSTEM, [(reward, theirs, over_samples)]))
        if over_samples_agrees and not over_tasks_agrees:
            ours = over_samples
        pairs.append((reward, theirs, ours))
    return compared(SYSTEM, pairs, written)


def _is_mean(config: Any) -> bool:
    """Whether the configuration of a metric says that it is a mean of the samples' scores, on their scale."""
    names = {text_inside(config, key) for key in ("metric_id", "metric_kind", "metric_name")}
    return bool(names & MEANS) and text_inside(config, "metric_unit") not in PER_CENT


def _rollouts(rows: SystemPart) -> SystemPart:
    """Join the rows of each repeat into one rollout.

    If a result has several scores for a repeat, the last one counts. Everything else is taken from the first row.
    """
    task_codes, sample = _task_codes(rows), rows.sample.copy()
    unnumbered = sample == NO_REPEAT
    result = rows.labels[RESULT]
    sample[unnumbered] = ranks(_pair_codes(task_codes, result.code)[unnumbered])  # the order of each result's rows
    first, owner = _by_appearance(_pair_codes(task_codes, sample))
    failed = np.zeros(len(first), dtype=np.bool_)
    failed[owner[rows.outcome == CODE["client_failed"]]] = True
    columns = {name: column.take(first) for name, column in rows.columns.items() if name not in (VALUE, CORRECT)}
    if CORRECT in rows.columns:
        columns[CORRECT] = _last_values(rows.columns[CORRECT], np.arange(len(rows))[::-1], owner, len(first))
    rewards = {}
    for name in dict.fromkeys(value or SCORE for value in (*result.values, None)):
        named = [code for code, value in enumerate(result.values) if (value or SCORE) == name]
        scored = np.flatnonzero(np.isin(result.code, [*named, -1] if name == SCORE else named))
        if VALUE in rows.columns and rows.columns[VALUE].given[scored].any():
            rewards[name] = _last_values(rows.columns[VALUE], scored, owner, len(first))
    return replace(
        some_rows(rows, first),
        sample=sample[first],
        outcome=np.where(failed, CODE["client_failed"], UNSTATED).astype(np.uint8),
        rewards=dict(sorted(rewards.items(), key=lambda reward: int(reward[1].given.argmax()))),
        columns={name: column for name, column in columns.items() if column.given.any()},
        labels={name: labels.take(first) for name, labels in rows.labels.items() if name != RESULT},
    )


def _last_values(column: Column, rows: Ints, owner: Ints, size: int) -> Column:
    """For each of ``size`` rollouts, the value from the last of ``rows`` that has one; ``owner`` is a row's rollout."""
    values, given = np.zeros(size), np.zeros(size, dtype=np.bool_)
    rows = rows[column.given[rows]]
    values[owner[rows]], given[owner[rows]] = column.values[rows], True
    return Column(values, given)


def _task_codes(part: SystemPart) -> Ints:
    """A code for each (model, dataset, task)."""
    return _pair_codes(_pair_codes(part.labels["model"].code, part.labels["dataset"].code), part.task)


def _pair_codes(first: Ints, second: Ints) -> Ints:
    """A code for each pair of codes, which are at least -1."""
    return renumbered(paired(first + 1, second + 1))


def _by_appearance(codes: Ints) -> tuple[Ints, Ints]:
    """The first row of each code, by appearance; and for each row, the position of its code in that order."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return first[order], position[inverse]


def _averaged(rollouts: SystemPart) -> bool:
    """Whether the scores are means over repeats: equal in all repeats of every task, and some neither 0 nor 1."""
    task_codes = _task_codes(rollouts)
    repeated, between = False, False
    for column in rollouts.rewards.values():
        rows = np.flatnonzero(column.given & (rollouts.outcome != CODE["client_failed"]))
        values, task = column.values[rows], task_codes[rows]
        task_score = np.zeros(len(rollouts))
        task_score[task] = values
        if (task_score[task] != values).any():
            return False
        repeated = repeated or len(np.unique(task)) < len(task)
        between = between or bool(((values != 0) & (values != 1)).any())
    return repeated and between


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The prompt, the completion and the metadata of a sample."""
    sample = _TEXTS.decode(msgspec.json.encode(row))
    texts = conversation(sample.messages) if isinstance(sample.messages, list) else {}
    prompt, outputs = (side.get("raw") if isinstance(side, dict) else None for side in (sample.input, sample.output))
    if not texts and isinstance(prompt, str):
        texts["prompt"] = prompt
    if "completion" not in texts and isinstance(outputs, list) and len(outputs) == 1:
        texts["completion"] = outputs[0]
    return [{**texts, **({"metadata": sample.metadata} if isinstance(sample.metadata, dict) else {})}]


def is_aggregate(head: bytes) -> bool:
    """Whether a file with this beginning is an aggregate: one object, with results and without a sample."""
    text = head.removeprefix(BOM).lstrip()
    first_line = text.partition(b"\n")[0]
    one_line = first_line.rstrip().endswith(b"}")
    return (
        b'"evaluation_id"' in text
        and b'"sample_id"' not in (first_line if one_line else text)
        and (not one_line or b'"evaluation_results"' in first_line)
    )


def recognise(start: Beginning) -> bool:
    """Whether a file is an aggregate, or its first row a sample: ``schema_version evaluation_id sample_id evaluation``.

    `read` refuses an aggregate with a message that names the right file.
    """
    if start.row is None:
        return is_aggregate(start.head)
    return {"schema_version", "evaluation_id", "sample_id", "evaluation"} <= start.row.keys()


def of_folder(paths: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The files of a folder without the aggregates, which have no rollouts; and no notes."""
    kept = []
    for path in paths:
        with Source(path) as source:
            if not is_aggregate(source.head):
                kept.append(path)
    return kept, []


SAMPLES: Final = Format(SYSTEM, read, recognise, in_folders=True, of_folder=of_folder, line_extras=line_extras)

# -- the export

SCHEMA: Final = "0.3.0"
UNKNOWN: Final = "unknown"
NO_SCORE: Final = "Every Eval Ever has no score for a missing rollout"


class EveryEvalEver:
    """The export ``--export every_eval_ever[=DIR]``: files in the folder ``data`` of DIR, or of the current folder."""

    def __init__(self, request: ExportRequest) -> None:
        self.paths, self.files = request.paths, list[str]()
        self._folder, self._force = request.target or ".", request.force
        self._records = GroupRecords(request.paths, request.columns)

    def begin(self) -> list[Part]:
        """Return the list to collect the parts that are read: the samples are made of them."""
        return self._records.parts

    def contents(self, result: Result) -> tuple[list[Any], list[str]]:
        """Write the two files of each group; the notes name them, and say what they could not include."""
        notes: list[str] = []
        timestamp = str(int(time.time()))
        with GroupFiles(self._folder, force=self._force) as files:
            digest = result.digest  # computed once, because it covers every group
            pairs = {key_of(group): _FilePair(result, digest, group, timestamp, files) for group in result.groups}
            for key, record in self._records.each():
                if key in pairs:
                    pairs[key].add(record)
            for pair in pairs.values():
                notes += pair.finish()
        return [], notes


class _FilePair:
    """The two files of a group."""

    def __init__(self, result: Result, digest: str, group: Group, timestamp: str, files: GroupFiles) -> None:
        self._result, self._digest, self._group = result, digest, group
        self._timestamp, self._files = timestamp, files
        self._model = group.model or UNKNOWN
        developer, slash, name = self._model.partition("/")
        self._developer = developer if slash and developer and name else UNKNOWN
        self._dataset = group.dataset or "rollouts"
        agent = f"_{safe_name(group.agent)}" if group.agent else ""
        short = name if self._developer != UNKNOWN else self._model
        self._folder = f"data/{safe_name(self._dataset)}/{safe_name(self._developer)}/{safe_name(short)}{agent}"
        self._id = f"{safe_name(self._dataset)}/{safe_name(self._model)}{agent}/{timestamp}"
        seed = json.dumps([digest, group.agent, group.model, group.dataset])
        self._uuid = uuid.UUID(bytes=hashlib.sha256(seed.encode()).digest()[:16], version=4)

        self._numbers = [*self._every_number()]
        self._metric_of = _metric_of_reward(group.metrics)
        for part in chain.from_iterable(slices.values() for slices in group.breakdowns.values()):
            for reward in _metric_of_reward(part.metrics):  # if only training steps have metrics, the group has none
                self._metric_of.setdefault(reward, None)
        self._rows = self._missing = self._not_finite = 0
        self._path = f"{self._folder}/{self._uuid}_samples.jsonl"
        self._samples = files.open(self._path) if self._numbers else None

    def add(self, record: Record) -> None:
        """Write a line for each reward of a rollout. A missing reward has no line, because the schema needs a score."""
        if self._samples is None:
            return
        names = list(self._metric_of) or ["reward"]
        numbers = numbers_of(record, names)
        if not numbers and record.get("outcome") != "stopped_early":
            numbers = dict.fromkeys(names, 0.0) if self._result.missing == "zero" else {}
            self._missing += not numbers
        for name, number in numbers.items():
            if finite(number) is None:
                self._not_finite += 1
                continue
            self._rows += 1
            line = self._sample(record, name, number, self._metric_of.get(name))
            self._samples.write(msgspec.json.encode(line) + b"\n")

    def finish(self) -> Iterator[str]:
        """Write the numbers, and yield notes."""
        title = self._group.title or self._dataset
        if self._samples is None:
            yield f"{title}: no number has a value, so nothing is written for Every Eval Ever"
            return
        document = self._document(self._samples.close())
        aggregate = f"{self._folder}/{self._uuid}.json"
        self._files.write(aggregate, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
        path = os.path.normpath(os.path.join(self._files.folder, aggregate))
        counts = f"{counted(len(self._numbers), 'number')} and {counted(self._rows, 'sample')}"
        yield f"{path}: {counts} for Every Eval Ever"
        if self._developer == UNKNOWN:
            yield f"{title}: the model has no developer; Every Eval Ever expects a name such as acme/tiny-1"
        if self._missing:
            subject = "1 missing rollout has" if self._missing == 1 else f"{self._missing} missing rollouts have"
            yield f"{title}: {subject} no line among the samples, because {NO_SCORE}; details has the counts"
        if self._not_finite:
            verb = "is" if self._not_finite == 1 else "are"
            yield f"{title}: {counted(self._not_finite, 'reward')} {verb} NaN or infinite: no line among the samples"

    def _document(self, checksum: str) -> dict[str, Any]:
        """The content of the aggregate file; ``checksum`` is that of the file of samples."""
        document: dict[str, Any] = {
            "schema_version": SCHEMA,
            "evaluation_id": self._id,
            "retrieved_timestamp": self._timestamp,
            "source_metadata": {
                "source_name": "Calipers",
                "source_type": "evaluation_run",
                "source_organization_name": UNKNOWN,
                "evaluator_relationship": "other",
            },
            "eval_library": {
                "name": "calipers",
                "version": __version__,
                "additional_details": {
                    "digest": self._digest,
                    "dialect": self._result.dialect,
                    "missing": self._result.missing,
                    "seed": str(self._result.seed),
                    **({"agent": self._group.agent} if self._group.agent else {}),
                },
            },
            "model_info": {
                "name": self._model,
                "id": self._model,
                "developer": self._developer,
                "additional_details": {"deployment_type": UNKNOWN, "model_availability": UNKNOWN},
            },
            "evaluation_results": self._numbers,
        }
        if self._rows:
            document["detailed_evaluation_results"] = {
                "format": "jsonl",
                "file_path": self._path,
                "hash_algorithm": "sha256",
                "checksum": checksum,
                "total_rows": self._rows,
            }
        return document

    def _every_number(self) -> Iterator[dict[str, Any]]:
        """The metrics of the group that have a value, over all rollouts and over each slice."""
        for name, estimate in self._group.metrics.items():
            if finite(estimate.value) is not None:
                yield self._number(name, estimate, {})
        for key, slices in self._group.breakdowns.items():
            for value, part in slices.items():
                for name, estimate in part.metrics.items():
                    if finite(estimate.value) is not None:
                        yield self._number(name, estimate, {key: value})

    def _number(self, name: str, estimate: Estimate, slice_labels: Mapping[str, str]) -> dict[str, Any]:
        suffix = "".join(f"[{key}={value}]" for key, value in slice_labels.items())
        definition = METRICS.load(estimate.made.metric) if estimate.made.metric in METRICS.entries else None
        score_range = _range(estimate) or (definition.range if isinstance(definition, Metric) else None)
        # the schema requires a range for the type "continuous"; without one, the type is left out
        bounds = dict(zip(("min_score", "max_score"), score_range or (), strict=False))
        return {
            "evaluation_result_id": f"{self._dataset}:{name}{suffix}",
            "evaluation_name": f"{self._dataset}{suffix}",
            "source_data": {"dataset_name": self._dataset, "source_type": "other"},
            "metric_config": {
                "metric_id": name,
                "metric_name": f"{name}{suffix}",
                "metric_kind": estimate.made.metric,
                "metric_parameters": {} if estimate.made.k is None else {"k": estimate.made.k},
                "lower_is_better": estimate.higher_is_better is False,
                "additional_details": {
                    "signature": estimate.signature,
                    **({"direction": "neither is better"} if estimate.higher_is_better is None else {}),
                },
                **({"score_type": "continuous"} if bounds else {}),
                **bounds,
            },
            "score_details": {
                "score": estimate.value,
                "details": self._details(estimate, slice_labels),
                "uncertainty": self._uncertainty(estimate),
            },
        }

    def _uncertainty(self, estimate: Estimate) -> dict[str, Any]:
        """The uncertainty of a score; ``num_samples`` counts tasks, as in Every Eval Ever's own converters."""
        uncertainty: dict[str, Any] = {}
        if estimate.stderr is not None:
            uncertainty["standard_error"] = {"value": estimate.stderr, "method": "over tasks"}
        if estimate.interval is not None:
            low, high = estimate.interval
            interval = {"lower": low, "upper": high, "confidence_level": self._result.confidence}
            uncertainty["confidence_interval"] = interval | ({"method": estimate.method} if estimate.method else {})
        return uncertainty | {"num_samples": estimate.tasks}

    def _details(self, estimate: Estimate, slice_labels: Mapping[str, str]) -> dict[str, str]:
        """What the schema has no field for, as text."""
        ledger = self._group.ledger
        for key, value in slice_labels.items():
            ledger = self._group.breakdowns[key][value].ledger
        details = {
            "tasks": estimate.tasks,
            "samples": estimate.samples,
            "undefined_tasks": estimate.undefined_tasks,
            "planned": ledger.planned,
            "planned_from": ledger.planned_from,
            "scored": ledger.scored,
            "missing": ledger.gaps,
            "outcomes": json.dumps(ledger.outcomes),
        }
        if estimate.bounds:
            details |= dict(zip(("lowest_with_missing", "highest_with_missing"), estimate.bounds, strict=True))
        if estimate.why:
            details["why"] = estimate.why
        return {key: str(value) for key, value in details.items()}

    def _sample(self, record: Record, reward: str, number: float, metric: str | None) -> dict[str, Any]:
        raw, reference = _text(record.get("prompt")), _references(record)
        metadata = record.get("metadata") or {}
        known = {"sample": record["sample"], "attempt": record.get("attempt", 1), "reward": reward}
        known["outcome"] = record.get("outcome") or "scored"
        answer = record.get("answer")
        return {
            "schema_version": SCHEMA,
            "evaluation_id": self._id,
            "model_id": self._model,
            "evaluation_name": self._dataset,
            **({"evaluation_result_id": f"{self._dataset}:{metric}"} if metric else {}),
            "sample_id": record["task"],
            "sample_hash": hashlib.sha256("".join([raw, *reference]).encode("utf-8", "surrogatepass")).hexdigest(),
            "interaction_type": "single_turn",
            "input": {"raw": raw, "reference": reference},
            "output": {"raw": [_text(record.get("completion"))]},
            "answer_attribution": [] if answer is None else [_attribution(answer)],
            "evaluation": {"score": number, "is_correct": number >= PASS_THRESHOLD},
            **_usage(usage_of(record)),
            "metadata": {key: _text(value) for key, value in {**metadata, **known}.items()},
        }


def _range(estimate: Estimate) -> tuple[float, float] | None:
    """The range of the rewards that the user stated, if the number is their mean; else None."""
    stated = [part.removeprefix("range:") for part in estimate.made.settings if part.startswith("range:")]
    if not stated or estimate.made.metric != "mean_reward":
        return None
    low, high = map(float, stated[0].split(","))
    return low, high


def _metric_of_reward(metrics: Mapping[str, Estimate]) -> dict[str, str | None]:
    """Map each reward that a metric reads to the name of its mean, which its samples belong to; None without a mean."""
    names: dict[str, str | None] = {}
    for name, estimate in metrics.items():
        settings = dict(part.split(":", 1) for part in estimate.made.settings if ":" in part)
        reward = settings.get("reward", "reward")
        if names.get(reward) is None:
            names[reward] = name if estimate.made.metric == "mean_reward" else None
    return names


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    given, written = usage.get("input_tokens"), usage.get("output_tokens")
    tokens: dict[str, Any] = {}
    if given is not None and written is not None:
        tokens = {"input_tokens": int(given), "output_tokens": int(written), "total_tokens": int(given) + int(written)}
        for name in ("cached_tokens", "reasoning_tokens"):
            if usage.get(name) is not None:
                tokens[USAGE_KEYS[name]] = int(usage[name])
    seconds = usage.get("latency_s")
    return {
        **({"token_usage": tokens} if tokens and min(tokens.values()) >= 0 else {}),
        **({"performance": {"latency_ms": seconds * 1000}} if seconds is not None and seconds >= 0 else {}),
    }


def _attribution(answer: Any) -> dict[str, Any]:
    return {
        "turn_idx": 0,
        "source": "output.raw",
        "extracted_value": _text(answer),
        "extraction_method": "verifier",
        "is_terminal": True,
    }


def _references(record: Record) -> list[str]:
    target = record.get("target")
    if target is None:
        target = (record.get("metadata") or {}).get("target")
    targets: Sequence[Any] = target if isinstance(target, list) else [] if target is None else [target]
    return list(map(_text, targets))


def _text(value: Any) -> str:
    """A value as text: a string as it is, None as the empty string, any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)
