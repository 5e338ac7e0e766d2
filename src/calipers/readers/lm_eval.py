"""What lm-evaluation-harness writes: a line for each document and pipeline, and a results file beside them.

A line becomes a rollout of the document: its task is the document's number, its group the task's name and,
where pipelines have names, the pipeline as the agent. Every metric that is a number is a reward of that
name, but for perplexities, of which a document keeps its log-likelihood: that, per byte of a whole text, is the
reward where there is no other. An answer that is the filter's fallback is `unparsed`, and keeps its score.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.readers.divide import Progress
from calipers.readers.files import BOM, LARGEST_WHOLE, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.readers.jsonl import JsonLines, LineError
from calipers.rollouts.column import Column
from calipers.rollouts.part import Part

KEYS: Final = frozenset({"doc_id", "doc", "resps", "filtered_resps"})
"""What every line has, of any version."""

OTHERS: Final = frozenset(
    {
        *(*KEYS, "target", "arguments", "filter", "metrics", "doc_hash", "prompt_hash", "target_hash"),
        "scores_per_repeat",
    }
)
LIKELIHOODS: Final = {
    "perplexity": "",
    "word_perplexity": "words",
    "byte_perplexity": "bytes",
    "bits_per_byte": "bytes",
}
"""Metrics of log-likelihoods, and what else a document keeps for them."""

INVALID: Final = "[invalid]"
UNNAMED: Final = "none"
_NAME: Final = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+))?\.jsonl(?:\.\w+)?")
_RESULTS: Final = re.compile(rb'\{\s*"results"\s*:\s*\{')


@dataclass(slots=True)
class _Odd:
    """What the records cannot say themselves, found on the way."""

    numbers: list[tuple[int, str, float]] = field(default_factory=list)  # (row, metric, NaN or an infinity)
    paired: set[str] = field(default_factory=set)  # metrics that are pairs, of which only all together are a number
    rows: int = 0


def is_row(row: Mapping[str, Any]) -> bool:
    """Whether a decoded line is one of lm-eval's samples."""
    return row.keys() >= KEYS


def is_line(line: bytes) -> bool:
    """Whether a line that is no strict JSON is one of lm-eval's samples, with a NaN in it."""
    row = decoded(line)
    return row is not None and is_row(row)


def is_results(head: bytes) -> bool:
    """Whether a file that begins like this is a results file."""
    return _RESULTS.match(head.removeprefix(BOM).lstrip()) is not None


def read_samples(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file of samples."""
    task, model, fallbacks = _about(source.path)
    source.head = source.head.removeprefix(BOM)
    reader, odd = JsonLines(source.path, names, labels), _Odd()
    try:
        for block in line_blocks(source.readinto):
            lines = bytes(block).split(b"\n")
            reader.read(b"\n".join([_record(line, task, model, fallbacks, odd) for line in lines]))
            progress(len(block))
        part = reader.finish()
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{source.path}:{reader.lines + 1}", wrong, "expected one sample a line") from None
    except LineError as error:
        raise error.at(source.path) from None
    return [_with_odd(part, odd, source.path)]


def read_results(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts that a results file tells of: those in the files of samples beside it."""
    progress(len(source.everything(LARGEST_WHOLE)))
    beside = samples_beside(source.path)
    if not beside:
        right = "expected samples_*.jsonl of the same time beside it (lm_eval writes them with --log_samples)"
        raise InputError.at(source.path, "holds numbers and no rollouts", right)
    parts = []
    for path in beside:
        with Source(path) as samples:
            parts += read_samples(samples, names, labels, lambda more: None)
    return parts


def samples_beside(path: str) -> list[str]:
    """The files of samples that were written together with a results file."""
    folder, name = os.path.split(path)
    time = name.removeprefix("results_").removesuffix(".json")
    found = [(other, _NAME.fullmatch(other)) for other in sorted(os.listdir(folder or "."))]
    return [os.path.join(folder, other) for other, match in found if match and match["time"] in (None, time)]


def rows_of(source: Source) -> Iterator[dict[str, Any]]:
    """The lines of a file of samples as they are, NaN and infinities included."""
    source.head = source.head.removeprefix(BOM)
    number = 0
    for block in line_blocks(source.readinto):
        for line in bytes(block).split(b"\n"):
            number += 1
            if line.strip():
                row = decoded(line)
                if row is None or not is_row(row):
                    raise InputError.at(
                        f"{source.path}:{number}", "no sample of lm-eval", "expected doc_id, resps, ..."
                    )
                yield row


def task_of(path: str) -> str:
    """The task that a file of samples is named after."""
    match = _NAME.fullmatch(os.path.basename(path))
    return match["task"] if match else os.path.basename(path).partition(".")[0]


def results_beside(path: str) -> dict[str, Any]:
    """The results file that was written together with a file of samples; nothing where there is none."""
    match = _NAME.fullmatch(os.path.basename(path))
    times = [match["time"]] if match and match["time"] else []
    for name in [f"results_{time}.json" for time in times] or ["results.json"]:
        beside = os.path.join(os.path.dirname(path), name)
        if os.path.isfile(beside) and os.path.getsize(beside) <= LARGEST_WHOLE:
            with open(beside, "rb") as file:
                found = decoded(file.read())
            return found if isinstance(found, dict) and "results" in found else {}
    return {}


def _about(path: str) -> tuple[str, str | None, frozenset[str]]:
    """(task, model, what its filters fall back to) of a file of samples."""
    task, beside = task_of(path), results_beside(path)
    model = beside.get("model_name")
    fallbacks = {INVALID}
    config = (beside.get("configs") or {}).get(task) or {}
    for pipeline in config.get("filter_list") or ():
        for step in pipeline.get("filter") or ():
            if isinstance(step, dict) and isinstance(step.get("fallback"), str):
                fallbacks.add(step["fallback"])
    return task, model if isinstance(model, str) else None, frozenset(fallbacks)


def _record(line: bytes, task: str, model: str | None, fallbacks: Collection[str], odd: _Odd) -> bytes:
    """A sample as a record of ours; a bad line as it is, to be refused where it stands."""
    row = decoded(line) if line.strip() else None
    if row is None or not is_row(row):
        return line
    scores: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for name, value in row.items():
        if name in OTHERS or value is None:
            continue
        if name in LIKELIHOODS or not isinstance(value, (int, float)):
            odd.paired.add(name)
            sizes |= _sizes(name, value)
            continue
        if not math.isfinite(value):
            odd.numbers.append((odd.rows, name, value))
        scores[name] = float(value) if math.isfinite(value) else 0.0
    if not scores and "logprob" in sizes:
        scores["reward"] = sizes["logprob"] / max(1.0, sizes.get("bytes", 1.0))
    answers = row["filtered_resps"]
    pipeline = row.get("filter", UNNAMED)
    record = {
        "task": str(row["doc_id"]),
        "rewards": scores,
        "outcome": "unparsed" if _lost(answers, fallbacks) else None,
        "answer": answers[0] if isinstance(answers, list) and len(answers) == 1 else None,
        "agent": None if pipeline == UNNAMED else str(pipeline),
        "model": model,
        "dataset": task,
        "metadata": row["doc"] if isinstance(row["doc"], dict) else None,
        **sizes,
    }
    odd.rows += 1
    return json.dumps(_finite(record), ensure_ascii=False).encode("utf-8", "replace")


def _sizes(name: str, value: Any) -> dict[str, float]:
    """What a document keeps for a perplexity, as columns: its log-likelihood, and the words or bytes it is of."""
    held = value if isinstance(value, list) else [value]
    if name not in LIKELIHOODS or not all(isinstance(one, (int, float)) and math.isfinite(one) for one in held):
        return {}
    return {column: float(one) for column, one in zip(("logprob", LIKELIHOODS[name]), held, strict=False)}


def _lost(answers: Any, fallbacks: Collection[str]) -> bool:
    """Whether all that a pipeline left is a fallback."""
    held = answers if isinstance(answers, list) else [answers]
    flat = [one for answer in held for one in (answer if isinstance(answer, list) else [answer])]
    return bool(flat) and all(isinstance(one, str) and one in fallbacks for one in flat)


def decoded(text: bytes) -> dict[str, Any] | None:
    """A JSON object, with the NaN and Infinity that Python writes; None for anything else."""
    found: Any
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_odd(part: Part, odd: _Odd, path: str) -> Part:
    rewards = dict(part.rewards)
    for row, name, value in odd.numbers:
        held = rewards[name]
        values = np.array(held.values)
        values[row] = value
        rewards[name] = Column(values, held.given)
    if not odd.paired:
        return replace(part, rewards=rewards)
    names = ", ".join(sorted(odd.paired))
    said = "is a number" if len(odd.paired) == 1 else "are numbers"
    note = f"{path}: {names} {said} of all documents together, shown by calipers score --dialect lm_eval --format md"
    return replace(part, rewards=rewards, notes=[*part.notes, note])
