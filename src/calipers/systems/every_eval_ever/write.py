"""A result in Every Eval Ever's form: a file of numbers with their uncertainty, and a file of samples, for each group.

::

    data/<benchmark>/<developer>/<model>/<uuid>.json             the numbers, with standard errors and intervals
    data/<benchmark>/<developer>/<model>/<uuid>_samples.jsonl    a line for each rollout and reward that counts

Everything that the schema has no place for is text under ``details``: missing rollouts, tasks against samples, bounds.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from calipers import __version__
from calipers.metrics.metric import PASS_THRESHOLD, Metric
from calipers.names import METRICS
from calipers.reports.figures import counted
from calipers.reports.group_files import GroupFiles, GroupRecords, Record, key_of, numbers_of, safe_name
from calipers.reports.result import Group, Result
from calipers.rollouts.table import Part
from calipers.stats.estimate import Estimate
from calipers.systems.system import ExportRequest

SCHEMA: Final = "0.3.0"
UNKNOWN: Final = "unknown"
NO_SCORE: Final = "Every Eval Ever has no score for a missing rollout"


class StandardError(msgspec.Struct, omit_defaults=True):
    """The standard error of a score."""

    value: float
    method: str = ""


class ConfidenceInterval(msgspec.Struct, omit_defaults=True):
    """The interval of a score."""

    lower: float
    upper: float
    confidence_level: float
    method: str = ""


class Uncertainty(msgspec.Struct, omit_defaults=True):
    """How sure a score is; ``num_samples`` counts tasks, as in the converters of Every Eval Ever itself."""

    standard_error: StandardError | None = None
    confidence_interval: ConfidenceInterval | None = None
    num_samples: int | None = None


class ScoreDetails(msgspec.Struct):
    """A score."""

    score: float
    details: dict[str, str]
    uncertainty: Uncertainty


class MetricConfig(msgspec.Struct, omit_defaults=True):
    """What a score is of; a continuous one must have a range, so that one without says nothing of its type."""

    metric_id: str
    metric_name: str
    metric_kind: str
    metric_parameters: dict[str, Any]
    lower_is_better: bool
    additional_details: dict[str, str]
    score_type: str = ""
    min_score: float | None = None
    max_score: float | None = None


class EvaluationResult(msgspec.Struct):
    """One number of a group."""

    evaluation_result_id: str
    evaluation_name: str
    source_data: dict[str, Any]
    metric_config: MetricConfig
    score_details: ScoreDetails


class EveryEvalEver:
    """``--export every_eval_ever[=DIR]``: the folder ``data`` below the current folder, or below DIR."""

    def __init__(self, request: ExportRequest) -> None:
        self.paths, self.files = request.paths, list[str]()
        self._folder, self._force = request.target or ".", request.force
        self._records = GroupRecords(request.paths, request.columns)

    def begin(self) -> list[Part]:
        """The samples are made of the parts that are read."""
        return self._records.parts

    def contents(self, result: Result) -> tuple[list[Any], list[str]]:
        """Write the two files of each group; notes say where, and what has no place in them."""
        notes: list[str] = []
        moment = str(int(time.time()))
        with GroupFiles(self._folder, force=self._force) as files:
            pairs = {key_of(group): _Pair(result, group, moment, files) for group in result.groups}
            for key, record in self._records.each():
                if key in pairs:
                    pairs[key].add(record)
            for pair in pairs.values():
                notes += pair.finish()
        return [], notes


class _Pair:
    """The two files of a group."""

    def __init__(self, result: Result, group: Group, moment: str, files: GroupFiles) -> None:
        self._result, self._group, self._moment, self._files = result, group, moment, files
        self._model = group.model or UNKNOWN
        developer, slash, name = self._model.partition("/")
        self._developer = developer if slash and developer and name else UNKNOWN
        self._dataset = group.dataset or "rollouts"
        agent = f"_{safe_name(group.agent)}" if group.agent else ""
        short = name if self._developer != UNKNOWN else self._model
        self._folder = f"data/{safe_name(self._dataset)}/{safe_name(self._developer)}/{safe_name(short)}{agent}"
        self._id = f"{safe_name(self._dataset)}/{safe_name(self._model)}{agent}/{moment}"
        seed = json.dumps([result.digest, group.agent, group.model, group.dataset])
        self._uuid = uuid.UUID(bytes=hashlib.sha256(seed.encode()).digest()[:16], version=4)

        self._numbers = [*self._every_number()]
        self._readers = _readers(group.metrics)
        self._rows = self._missing = 0
        self._path = f"{self._folder}/{self._uuid}_samples.jsonl"
        self._samples = files.open(self._path) if self._numbers else None

    def add(self, record: Record) -> None:
        """A line for each reward of a rollout; a missing one has none, as there is no score for it."""
        if self._samples is None:
            return
        names = list(self._readers) or ["reward"]
        numbers = numbers_of(record, names)
        if not numbers and record.get("outcome") != "stopped_early":
            numbers = dict.fromkeys(names, 0.0) if self._result.missing == "zero" else {}
            self._missing += not numbers
        for name, number in numbers.items():
            self._rows += 1
            line = self._sample(record, name, number, self._readers.get(name))
            self._samples.write(msgspec.json.encode(line) + b"\n")

    def finish(self) -> Iterator[str]:
        """Write the numbers; notes."""
        title = self._group.title or self._dataset
        if self._samples is None:
            yield f"{title}: no number has a value, so nothing is written for Every Eval Ever"
            return
        checksum = self._samples.close()
        document: dict[str, Any] = {
            "schema_version": SCHEMA,
            "evaluation_id": self._id,
            "retrieved_timestamp": self._moment,
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
                    "digest": self._result.digest,
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
        aggregate = f"{self._folder}/{self._uuid}.json"
        self._files.write(aggregate, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
        path = os.path.normpath(os.path.join(self._files.folder, aggregate))
        what = f"{counted(len(self._numbers), 'number')} and {counted(self._rows, 'sample')}"
        yield f"{path}: {what} for Every Eval Ever"
        if self._developer == UNKNOWN:
            yield f"{title}: the model has no developer; Every Eval Ever expects a name such as acme/tiny-1"
        if self._missing:
            subject = "1 missing rollout has" if self._missing == 1 else f"{self._missing} missing rollouts have"
            yield f"{title}: {subject} no line among the samples, because {NO_SCORE}; details has the counts"

    def _every_number(self) -> Iterator[EvaluationResult]:
        for name, estimate in self._group.metrics.items():
            if estimate.value is not None:
                yield self._number(name, estimate, {})
        for key, slices in self._group.breakdowns.items():
            for value, part in slices.items():
                for name, estimate in part.metrics.items():
                    if estimate.value is not None:
                        yield self._number(name, estimate, {key: value})

    def _number(self, name: str, estimate: Estimate, cut: Mapping[str, str]) -> EvaluationResult:
        where = "".join(f"[{key}={value}]" for key, value in cut.items())
        definition = METRICS.load(estimate.made.metric) if estimate.made.metric in METRICS.entries else None
        ends = _range(estimate) or (definition.range if isinstance(definition, Metric) else None)
        config = MetricConfig(
            metric_id=name,
            metric_name=f"{name}{where}",
            metric_kind=estimate.made.metric,
            metric_parameters={} if estimate.made.k is None else {"k": estimate.made.k},
            lower_is_better=estimate.higher_is_better is False,
            score_type="continuous" if ends else "",
            min_score=ends[0] if ends else None,
            max_score=ends[1] if ends else None,
            additional_details={
                "signature": estimate.signature,
                **({"direction": "neither is better"} if estimate.higher_is_better is None else {}),
            },
        )
        return EvaluationResult(
            f"{self._dataset}:{name}{where}",
            f"{self._dataset}{where}",
            {"dataset_name": self._dataset, "source_type": "other"},
            config,
            ScoreDetails(estimate.value or 0.0, self._details(estimate, cut), self._uncertainty(estimate)),
        )

    def _uncertainty(self, estimate: Estimate) -> Uncertainty:
        error, interval = None, None
        if estimate.stderr is not None:
            error = StandardError(estimate.stderr, "over tasks")
        if estimate.interval is not None:
            interval = ConfidenceInterval(*estimate.interval, self._result.confidence, estimate.method or "")
        return Uncertainty(error, interval, estimate.tasks)

    def _details(self, estimate: Estimate, cut: Mapping[str, str]) -> dict[str, str]:
        """What the schema has no place for, as text."""
        part = self._group
        ledger = part.ledger
        for key, value in cut.items():
            ledger = part.breakdowns[key][value].ledger
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
        usage = record.get("usage") or {}
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
            **_usage(usage),
            "metadata": {key: _text(value) for key, value in {**metadata, **known}.items()},
        }


def _range(estimate: Estimate) -> tuple[float, float] | None:
    """The range of the rewards that the user stated, where the number is a mean of them."""
    stated = [part.removeprefix("range:") for part in estimate.made.settings if part.startswith("range:")]
    if not stated or estimate.made.metric != "mean_reward":
        return None
    low, high = map(float, stated[0].split(","))
    return low, high


def _readers(metrics: Mapping[str, Estimate]) -> dict[str, str | None]:
    """Each reward that some metric reads, and the mean of it, which its samples are of; None where nobody asked."""
    readers: dict[str, str | None] = {}
    for name, estimate in metrics.items():
        settings = dict(part.split(":", 1) for part in estimate.made.settings if ":" in part)
        reward = settings.get("reward", "reward")
        if readers.get(reward) is None:
            readers[reward] = name if estimate.made.metric == "mean_reward" else None
    return readers


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    read, wrote = usage.get("input_tokens"), usage.get("output_tokens")
    tokens: dict[str, Any] = {}
    if read is not None and wrote is not None:
        tokens = {"input_tokens": int(read), "output_tokens": int(wrote), "total_tokens": int(read + wrote)}
        for ours, theirs in (("cached_tokens", "input_tokens_cache_read"), ("reasoning_tokens", "reasoning_tokens")):
            if usage.get(ours) is not None:
                tokens[theirs] = int(usage[ours])
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
    every: Sequence[Any] = target if isinstance(target, list) else [] if target is None else [target]
    return [_text(each) for each in every]


def _text(value: Any) -> str:
    """A value as text: text as it is, nothing as nothing, all else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)
