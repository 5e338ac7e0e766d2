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
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from calipers.errors import InputError
from calipers.readers.divide import Progress
from calipers.readers.files import BOM, LARGEST_WHOLE, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.readers.jsonl import JsonLines, LineError
from calipers.readers.lm_eval_rows import LIKELIHOODS, Odd, finite, lost, sizes, with_odd
from calipers.readers.twice import once_by_raws, refuse_twice, said_twice, twice
from calipers.rollouts.part import Part

KEYS: Final = frozenset({"doc_id", "doc", "resps", "filtered_resps"})
"""What every line has, of any version."""

OTHERS: Final = frozenset(
    {
        *(*KEYS, "target", "arguments", "filter", "metrics", "doc_hash", "prompt_hash", "target_hash"),
        "scores_per_repeat",
    }
)
IN_RESULTS: Final = ("results", "groups", "group_subtasks", "versions", "n-shot", "higher_is_better")
"""What of a results file numbers are taken from."""

INVALID: Final = "[invalid]"
UNNAMED: Final = "none"
_TIME: Final = r"_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+)"
_NAME: Final = re.compile(rf"samples_(?P<task>.+?)(?:{_TIME})?\.jsonl(?:\.\w+)?")
RESULTS_NAME: Final = re.compile(rf"(?:results|.+{_TIME})\.json")  # of --output_path STEM.json it is STEM_TIME
_RESULTS: Final = re.compile(rb'\{\s*"results"\s*:\s*\{')


class _Pipeline(msgspec.Struct):
    filter: list[dict[str, Any]] | None = None


class _Config(msgspec.Struct):
    """A task's configuration in a results file, as far as it says what a filter falls back to."""

    filter_list: list[_Pipeline] | None = None


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
    told = _about(source.path)
    source.head = source.head.removeprefix(BOM)
    reader, odd = JsonLines(source.path, names, labels), Odd()
    try:
        for block in line_blocks(source.readinto):
            lines = enumerate(bytes(block).split(b"\n"), reader.lines + 1)
            reader.read(b"\n".join([_record(line, number, told, odd) for number, line in lines]))
            progress(len(block))
        part = reader.finish()
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{source.path}:{reader.lines + 1}", wrong, "expected one sample a line") from None
    except LineError as error:
        raise error.at(source.path) from None
    return [with_odd(part, odd, source.path)]


def read_results(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts that a results file tells of: those in the files of samples beside it."""
    text = source.everything(LARGEST_WHOLE)
    refuse_twice(text.removeprefix(BOM), source.path, IN_RESULTS)
    progress(len(text))
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
    results = RESULTS_NAME.fullmatch(name)
    time = results["time"] if results else None
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
                try:
                    check_once(line, number)
                except LineError as error:
                    raise error.at(source.path) from None
                yield row


def task_of(path: str) -> str:
    """The task that a file of samples is named after."""
    match = _NAME.fullmatch(os.path.basename(path))
    return match["task"] if match else os.path.basename(path).partition(".")[0]


def results_beside(path: str) -> dict[str, Any]:
    """The results file that was written together with a file of samples; nothing where there is none."""
    match = _NAME.fullmatch(os.path.basename(path))
    folder, names = os.path.dirname(path), ["results.json"]
    if match and match["time"]:
        of_then = f"_{match['time']}.json"
        names = [f"results{of_then}", *(name for name in sorted(os.listdir(folder or ".")) if name.endswith(of_then))]
    for name in names:
        beside = os.path.join(folder, name)
        if os.path.isfile(beside) and os.path.getsize(beside) <= LARGEST_WHOLE:
            with open(beside, "rb") as file:
                text = file.read()
            found = decoded(text)
            if found is not None and "results" in found:
                refuse_twice(text, beside, IN_RESULTS)
                return found
    return {}


class _About(NamedTuple):
    """What is known of a file of samples beside its lines."""

    task: str
    model: str | None
    fallbacks: frozenset[str]  # what its filters fall back to


def _about(path: str) -> _About:
    task, beside = task_of(path), results_beside(path)
    model = beside.get("model_name")
    fallbacks = {INVALID}
    configs = beside.get("configs")
    with suppress(msgspec.ValidationError):  # it is no configuration of theirs
        config = msgspec.convert(configs.get(task, {}) if isinstance(configs, dict) else {}, _Config)
        steps = [step for pipeline in config.filter_list or () for step in pipeline.filter or ()]
        fallbacks |= {step["fallback"] for step in steps if isinstance(step.get("fallback"), str)}
    return _About(task, model if isinstance(model, str) else None, frozenset(fallbacks))


def check_once(text: bytes, number: int) -> None:
    """LineError for a sample with a key twice."""
    if not once_by_raws(text):
        key = None
        with suppress(ValueError, RecursionError):
            key = twice(text)
        if key is not None:
            raise LineError(number, *said_twice(key))


def _record(line: bytes, number: int, told: _About, odd: Odd) -> bytes:
    """A sample as a record of ours; a bad line as it is, to be refused where it stands."""
    row = decoded(line) if line.strip() else None
    if row is None or not is_row(row):
        return line
    check_once(line, number)
    scores: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name, value in row.items():
        if name in OTHERS or value is None:
            continue
        if name in LIKELIHOODS or not isinstance(value, (int, float)):
            odd.paired.add(name)
            counts |= sizes(name, value)
            continue
        try:
            score = float(value)
        except OverflowError:  # an integer of hundreds of digits: refused as any number that no double holds
            return b'{"task":"","reward":1e999}'
        if not math.isfinite(score):
            odd.numbers.append((odd.rows, name, score))
        scores[name] = score if math.isfinite(score) else 0.0
    if not scores and "logprob" in counts:
        scores["reward"] = counts["logprob"] / max(1.0, counts.get("bytes", 1.0))
    answers = row["filtered_resps"]
    pipeline = row.get("filter", UNNAMED)
    record = {
        "task": str(row["doc_id"]),
        "rewards": scores,
        "outcome": "unparsed" if lost(answers, told.fallbacks) else None,
        "answer": answers[0] if isinstance(answers, list) and len(answers) == 1 else None,
        "agent": None if pipeline == UNNAMED else str(pipeline),
        "model": told.model,
        "dataset": told.task,
        "metadata": row["doc"] if isinstance(row["doc"], dict) else None,
        **counts,
    }
    try:
        written = json.dumps(finite(record), ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError:
        return line
    odd.rows += 1
    return written


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
