"""Reads the files of lm-evaluation-harness: samples files, results files, and its output folder.

A samples file has a line for each document and pipeline. The dialect's metrics are means over documents, with the
names that they have in a results file.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import (
    COMPARED,
    HASH_DIGITS,
    TARGET,
    Beginning,
    Columns,
    Extras,
    Format,
    Progress,
    Settings,
    Text,
    flat,
    target_hash,
)
from calipers.formats.jsonl import JsonLines, placed
from calipers.formats.lines import LineError
from calipers.formats.own_numbers import labels_of, numbers_in, pooled_mean
from calipers.formats.repeated_keys import once_by_raws, refuse_repeated_key, repeated_key, repeated_key_fault
from calipers.formats.source import BOM, LARGEST_WHOLE, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.request import Dialect
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.column import Column
from calipers.rollouts.table import Part
from calipers.systems.lm_eval import INVALID, SYSTEM
from calipers.typed import complete

LIKELIHOODS: Final = {
    "perplexity": "",
    "word_perplexity": "words",
    "byte_perplexity": "bytes",
    "bits_per_byte": "bytes",
}
"""Metrics of log-likelihoods, with the name of the second number of a document's value, if there is one."""


@dataclass(slots=True)
class _Collected:
    """What the reader of a samples file collects besides the converted records."""

    not_finite: list[tuple[int, str, float]] = field(default_factory=list)  # (row, metric, NaN or an infinity)
    corpus_metrics: set[str] = field(default_factory=set)  # metrics that only all documents together determine
    rows: int = 0
    seen: Counter[str] = field(default_factory=Counter)  # document -> its rows so far, for `with_pipeline`


def likelihood_columns(name: str, value: Any) -> dict[str, float]:
    """A document's value of a perplexity as columns: its log-likelihood, and its number of words or bytes."""
    numbers = value if isinstance(value, list) else [value]
    largest = sys.float_info.max  # an integer may be larger
    if name not in LIKELIHOODS or not all(isinstance(n, (int, float)) and abs(n) <= largest for n in numbers):
        return {}
    return {column: float(number) for column, number in zip(("logprob", LIKELIHOODS[name]), numbers, strict=False)}


def only_fallbacks(answers: Any, fallbacks: Collection[str]) -> bool:
    """Whether all answers of a pipeline are fallbacks; false if there are no answers."""
    responses = answers if isinstance(answers, list) else [answers]
    texts = [text for answer in responses for text in (answer if isinstance(answer, list) else [answer])]
    return bool(texts) and all(isinstance(text, str) and text in fallbacks for text in texts)


def finite(value: Any) -> Any:
    """A JSON value with null in place of NaN and infinities, which strict JSON does not have."""
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _completed(part: Part, collected: _Collected, path: str) -> Part:
    """The rollouts of a file with their numbers that are not finite, and a note on its corpus metrics."""
    rewards = dict(part.rewards)
    for row, name, value in collected.not_finite:
        column = rewards[name]
        values = np.array(column.values)
        values[row] = value
        rewards[name] = Column(values, column.given)
    if not collected.corpus_metrics:
        return replace(part, rewards=rewards)
    names = ", ".join(sorted(collected.corpus_metrics))
    verb = "is a number" if len(collected.corpus_metrics) == 1 else "are numbers"
    note = f"{path}: {names} {verb} of all documents together, {COMPARED}"
    return replace(part, rewards=rewards, notes=[*part.notes, note])


KEYS: Final = frozenset({"doc_id", "doc", "resps", "filtered_resps"})
"""The keys that a line of every version has."""

NOT_METRICS: Final = frozenset(
    {
        *(*KEYS, "target", "arguments", "filter", "metrics", "doc_hash", "prompt_hash", "target_hash"),
        "scores_per_repeat",
    }
)
RESULTS_BLOCKS: Final = ("results", "groups", "group_subtasks", "versions", "n-shot", "higher_is_better")
"""The blocks of a results file that numbers are taken from."""

MEANS: Final = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")
"""Metrics that are means over documents unless the task's configuration says otherwise."""

SYSTEM_NAME: Final = "lm_eval"
UNNAMED: Final = "none"
_TIME: Final = r"_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+)"
_NAME: Final = re.compile(rf"samples_(?P<task>.+?)(?:{_TIME})?\.jsonl(?:\.\w+)?")
RESULTS_NAME: Final = re.compile(rf"(?:results|.+{_TIME})\.json")  # with --output_path STEM.json it is STEM_TIME.json
_RESULTS: Final = re.compile(rb'\{\s*"results"\s*:\s*\{')


class _FilterPipeline(msgspec.Struct):
    name: str | None = None
    filter: list[dict[str, Any]] | None = None


class _TaskConfiguration(msgspec.Struct):
    """The part of a task's configuration in a results file that defines its pipelines and their fallbacks."""

    filter_list: list[_FilterPipeline] | None = None


def is_row(row: Mapping[str, Any]) -> bool:
    """Whether a decoded line is one of lm-eval's samples."""
    return row.keys() >= KEYS


def is_results(head: bytes) -> bool:
    """Whether a file with this beginning is a results file."""
    return _RESULTS.match(head.removeprefix(BOM).lstrip()) is not None


def holds_results(path: str) -> bool:
    """Whether a file is a results file."""
    with Source(path) as source:
        return is_results(source.head)


def read_samples(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a samples file."""
    context = _file_context(source.path)
    source.head = source.head.removeprefix(BOM)
    reader, collected = JsonLines(source.path, names, labels), _Collected()
    try:
        for block in line_blocks(source.readinto):
            lines = enumerate(bytes(block).split(b"\n"), reader.lines + 1)
            reader.read(b"\n".join([_record(line, number, context, collected) for number, line in lines]))
            progress(len(block))
        part = reader.finish()
    except LongLine:
        problem = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{source.path}:{reader.lines + 1}", problem, "expected one sample per line") from None
    except LineError as error:
        raise error.at(source.path) from None
    part = _completed(part, collected, source.path)
    return [replace(part, checks=own_checks(part, context.task, context.results))]


def own_checks(part: Part, task: str, results: Mapping[str, Any]) -> list[Check]:
    """The means over documents in the results file of a task, and ours, for each metric and pipeline."""
    table, config = inner(results, "results", task), inner(results, "configs", task)
    pairs = []
    for name in part.rewards:
        how = listed_aggregation(config, name)
        if how != "mean" and (how is not None or name not in MEANS):
            continue
        for pipeline in (None, *labels_of([part], "agent")):
            key = f"{name},{pipeline or UNNAMED}"
            ours = pooled_mean([part], name, {"agent": pipeline})
            pairs.append((f"{task} {key}", table.get(key), ours))
    return compared(SYSTEM_NAME, pairs, numbers_in(table))


def read_results(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a results file, from the samples files beside it."""
    text = source.everything(LARGEST_WHOLE)
    refuse_repeated_key(text.removeprefix(BOM), source.path, RESULTS_BLOCKS)
    progress(len(text))
    sample_paths = samples_beside(source.path)
    if not sample_paths:
        expected = "expected samples_*.jsonl of the same time beside it (lm_eval writes them with --log_samples)"
        raise InputError.at(source.path, "contains numbers but no rollouts", expected)
    parts = []
    for path in sample_paths:
        with Source(path) as samples:
            parts += read_samples(samples, names, labels, lambda size: None)
    return parts


def samples_beside(path: str) -> list[str]:
    """The paths of the samples files that were written together with a results file."""
    folder, name = os.path.split(path)
    results = RESULTS_NAME.fullmatch(name)
    time = results["time"] if results else None
    matches = [_NAME.fullmatch(other) for other in sorted(os.listdir(folder or "."))]
    return [os.path.join(folder, match.string) for match in matches if match and match["time"] in (None, time)]


def rows_of(source: Source) -> Iterator[dict[str, Any]]:
    """The decoded lines of a samples file, including NaN and infinities."""
    source.head = source.head.removeprefix(BOM)
    number, context, seen = 0, _file_context(source.path), Counter[str]()
    for block in line_blocks(source.readinto):
        for line in bytes(block).split(b"\n"):
            number += 1
            if line.strip():
                row = decoded(line)
                if row is None or not is_row(row):
                    location = f"{source.path}:{number}"
                    raise InputError.at(location, "not a sample of lm-eval", "expected doc_id, resps, ...")
                try:
                    check_once(line, number)
                except LineError as error:
                    raise error.at(source.path) from None
                yield with_pipeline(row, context, seen)


def task_of(path: str) -> str:
    """The task of a samples file, by the file's name."""
    match = _NAME.fullmatch(os.path.basename(path))
    return match["task"] if match else os.path.basename(path).partition(".")[0]


def results_in(path: str) -> dict[str, Any]:
    """The object of a results file, including NaN and infinities; empty if the file is not a JSON object."""
    with Source(path) as source:
        text = source.everything(LARGEST_WHOLE)
    refuse_repeated_key(text.removeprefix(BOM), path, RESULTS_BLOCKS)
    return decoded(text) or {}


def results_beside(path: str) -> tuple[str, dict[str, Any]]:
    """The path and object of the results file that was written together with a samples file; empty if there is none."""
    match = _NAME.fullmatch(os.path.basename(path))
    folder, names = os.path.dirname(path), ["results.json"]
    if match and match["time"]:
        ending = f"_{match['time']}.json"
        names = [f"results{ending}", *(name for name in sorted(os.listdir(folder or ".")) if name.endswith(ending))]
    for name in names:
        results_path = os.path.join(folder, name)
        if os.path.isfile(results_path) and os.path.getsize(results_path) <= LARGEST_WHOLE:
            results = results_in(results_path)
            if "results" in results:
                return results_path, results
    return "", {}


def inner(block: Any, *keys: str | None) -> Mapping[str, Any]:
    """The object at this path of keys in an object; an empty one if there is none."""
    for key in keys:
        block = block.get(key) if isinstance(block, dict) else None
    return block if isinstance(block, dict) else {}


_DEFINITION: Final = re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+(\w+)|^<(?:function|class) '?(?:\S*\.)?(\w+)", re.M)


def listed_aggregation(config: Mapping[str, Any], metric: str) -> str | None:
    """The aggregation of a metric in a task's configuration: a name, or a function's source; None if not given.

    A listed function is written as its source. A metric that is not listed is a key of a function's result, which has
    the aggregation of its function; if the functions have several, it is not known, and the source of one is returned.
    """
    listed = config.get("metric_list")
    how_by_name: dict[str, str | None] = {}
    of_functions: dict[str | None, str] = {}
    for entry in map(inner, listed if isinstance(listed, list) else []):
        name, aggregation = entry.get("metric"), entry.get("aggregation")
        how = aggregation if isinstance(aggregation, str) else None
        if isinstance(name, str) and (definition := _DEFINITION.search(name)):
            of_functions[how] = name
            name = definition[1] or definition[2]
        how_by_name[str(name)] = how
    if metric in how_by_name or "process_results" in config:
        return how_by_name.get(metric)
    return next(iter(of_functions if len(of_functions) < 2 else of_functions.values()), None)


class _FileContext(NamedTuple):
    """The facts on a samples file from its name and from the results file beside it."""

    task: str
    model: str | None
    fallbacks: frozenset[str]  # of its filters
    pipelines: Sequence[str | None] = ()  # their names, in order
    results: Mapping[str, Any] = MappingProxyType({})  # the results file beside it


def with_pipeline(row: dict[str, Any], context: _FileContext, seen: Counter[str]) -> dict[str, Any]:
    """A sample with the name of its pipeline.

    Versions before 0.4.7 do not write the name; in their files the n-th row of a document belongs to the n-th pipeline.
    """
    if "filter" in row or len(context.pipelines) < 2 or None in context.pipelines:
        return row
    document = str(row["doc_id"])
    seen[document] += 1
    number = min(seen[document], len(context.pipelines))  # a further row is a duplicate, which is refused later
    return {**row, "filter": context.pipelines[number - 1]}


def _file_context(path: str) -> _FileContext:
    task, (_, results) = task_of(path), results_beside(path)
    model = results.get("model_name")
    fallbacks, pipelines = {INVALID}, list[str | None]()
    with suppress(msgspec.ValidationError, UnicodeEncodeError):  # not a configuration of lm-evaluation-harness
        config = msgspec.convert(inner(results, "configs", task), complete(_TaskConfiguration))
        pipelines = [pipeline.name for pipeline in config.filter_list or ()]
        steps = [step for pipeline in config.filter_list or () for step in pipeline.filter or ()]
        fallbacks |= {step["fallback"] for step in steps if isinstance(step.get("fallback"), str)}
    return _FileContext(task, model if isinstance(model, str) else None, frozenset(fallbacks), pipelines, results)


def check_once(text: bytes, number: int) -> None:
    """LineError for a sample that has a key twice."""
    if not once_by_raws(text):
        key = None
        with suppress(ValueError, RecursionError):
            key = repeated_key(text)
        if key is not None:
            raise LineError(number, *repeated_key_fault(key))


def _record(line: bytes, number: int, context: _FileContext, collected: _Collected) -> bytes:
    """A sample as a record of our format; a bad line unchanged, so that the reader refuses it with its line number."""
    row = decoded(line) if line.strip() else None
    if row is None or not is_row(row):
        return line
    check_once(line, number)
    row = with_pipeline(row, context, collected.seen)
    scores: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name, value in row.items():
        if name in NOT_METRICS or value is None:
            continue
        if name in LIKELIHOODS or not isinstance(value, (int, float)):
            collected.corpus_metrics.add(name)
            counts |= likelihood_columns(name, value)
            continue
        try:
            score = float(value)
        except OverflowError:  # an integer of hundreds of digits; the reader refuses this record's reward, too
            return b'{"task":"","reward":1e999}'
        if not math.isfinite(score):
            collected.not_finite.append((collected.rows, name, score))
        scores[name] = score if math.isfinite(score) else 0.0
    if not scores and "logprob" in counts:
        scores["reward"] = counts["logprob"] / max(1.0, counts.get("bytes", 1.0))
    answers = row["filtered_resps"]
    pipeline = row.get("filter", UNNAMED)
    record = {
        "task": str(row["doc_id"]),
        "rewards": scores,
        "outcome": "unparsed" if only_fallbacks(answers, context.fallbacks) else None,
        "answer": answers[0] if isinstance(answers, list) and len(answers) == 1 else None,
        "agent": None if pipeline == UNNAMED else str(pipeline),
        "model": context.model,
        "dataset": context.task,
        "metadata": row["doc"] if isinstance(row["doc"], dict) else None,
        **counts,
    }
    try:
        encoded = json.dumps(finite(record), ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError:
        return line
    collected.rows += 1
    return encoded


def decoded(text: bytes) -> dict[str, Any] | None:
    """A decoded JSON object, which may contain NaN and Infinity as Python writes them; None for anything else.

    Half of a surrogate pair, which no text in UTF-8 can contain, becomes a question mark.
    """
    content: Any
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            content = json.loads(text)
            if b"\\ud" in text.lower():
                content = json.loads(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return content if isinstance(content, dict) else None


MAX_NAMED: Final = 3  # files in a note


@dataclass(frozen=True, slots=True)
class _ResultsFile:
    folder: str
    name: str
    time: str  # when it was written, from its name; "" if the name does not contain it
    model: str | None

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)


class _ModelName(msgspec.Struct):
    model_name: str | None = None


def newest(path: str) -> tuple[list[str], list[str]]:
    """The newest results file of each model in a folder, sorted, and notes on the files that are ignored.

    Both are empty if the folder has no results files. InputError if a model has results in two folders.
    """
    by_folder: dict[tuple[str | None, str], list[_ResultsFile]] = {}
    for folder in [path, *_folders(path)]:
        for results in _results_in(folder):
            by_folder.setdefault((results.model, results.folder), []).append(results)
    first: dict[str, str] = {}
    for model, folder in by_folder:
        if model is not None and first.setdefault(model, folder) != folder:
            problem = f"the model {model!r} also appears in {first[model]}"
            raise InputError.at(folder, problem, "expected one folder for each model; pass only one of the two")
    paths: list[str] = []
    notes: list[str] = []
    for files in by_folder.values():
        *older, last = sorted(files, key=lambda results: (results.time, results.name))
        paths.append(last.path)
        notes += [_ignored_note(last, [results.name for results in reversed(older)])] if older else []
    return sorted(paths), notes


def _ignored_note(last: _ResultsFile, older: Sequence[str]) -> str:
    names = ", ".join(older[:MAX_NAMED]) + (f" and {len(older) - MAX_NAMED} more" if len(older) > MAX_NAMED else "")
    verb = "is" if len(older) == 1 else "are"
    note = f"{last.path} is the newest file of its model: {names} beside it {verb} ignored"
    return f"{note}; to read one of them, pass the file itself"


def _results_in(folder: str) -> Iterator[_ResultsFile]:
    for name in _names(folder):
        match = RESULTS_NAME.fullmatch(name)
        path = os.path.join(folder, name)
        if match and os.path.isfile(path) and holds_results(path):
            yield _ResultsFile(folder, name, match["time"] or "", _model(path))


def _model(path: str) -> str | None:
    """The name of the model in a results file; None if the file does not name it."""
    with Source(path) as source:
        raw = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    try:
        return msgspec.json.decode(raw, type=complete(_ModelName)).model_name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        content = decoded(raw)  # it may contain NaN, as Python writes it
    if content is None:
        expected = "expected a file that lm_eval wrote; to read another file, pass that file"
        raise InputError.at(path, "is not complete JSON", expected)
    name = content.get("model_name")
    return name if isinstance(name, str) else None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise InputError.at(folder, f"cannot be read ({error.strerror})") from None


def _folders(path: str) -> list[str]:
    """The folders in a folder, sorted, without links and unreadable folders."""
    paths = [os.path.join(path, name) for name in _names(path)]
    return [each for each in paths if os.path.isdir(each) and not os.path.islink(each) and os.access(each, os.R_OK)]


_GREEDY: Final = ("True", "False")  # whether a choice is the model's greedy completion; some versions write text


def extras(part: Part, columns: Columns) -> Extras:
    """The fields of each sample that are not numbers; its document is the metadata."""
    with Source(part.places.path) as source:
        for row in rows_of(source):
            answers = row["filtered_resps"]
            answer = answers[0] if isinstance(answers, list) and len(answers) == 1 else None
            fields = {
                "prompt": _prompt(row),
                "completion": row["resps"],
                "answer": None if isinstance(answer, dict) else answer,
                "metadata": row["doc"] if isinstance(row["doc"], dict) else None,
            }
            yield finite(placed(fields, {} if row.get("target") is None else {TARGET: row["target"]}))


def _prompt(row: Mapping[str, Any]) -> str | None:
    arguments = row.get("arguments")
    first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else None
    prompt = first.get("arg_0") if isinstance(first, dict) else None
    return prompt if isinstance(prompt, str) else None


def texts(path: str) -> Iterator[Text]:
    """The texts of every sample in a file; the hash of a prompt if the file does not contain the prompt."""
    task = task_of(path)
    with Source(path) as source:
        for row in rows_of(source):
            pipeline = row.get("filter", UNNAMED)
            prompt = _prompt(row)
            yield Text(
                agent=None if pipeline == UNNAMED else str(pipeline),
                model=None,
                dataset=task,
                task=str(row["doc_id"]),
                sample=0,
                document=str(row.get("doc_hash") or ""),
                completion=_likeliest(row["resps"]),
                prompt=str(row.get("prompt_hash") or "") if prompt is None else prompt,
                answer=_likeliest(row["filtered_resps"]),
                target=target_hash(row.get("target")) or str(row.get("target_hash") or "")[:HASH_DIGITS],
            )


def _likeliest(answers: Any) -> Any:
    """The number of the likeliest choice, for the log-likelihoods of several choices; any other answer unchanged."""
    pairs = answers if isinstance(answers, list) else []
    if len(pairs) < 2 or not all(
        isinstance(pair, list) and len(pair) == 2 and str(pair[1]) in _GREEDY for pair in pairs
    ):
        return answers
    try:
        return f"choice {max(range(len(pairs)), key=lambda choice: float(pairs[choice][0]))}"
    except (TypeError, ValueError, OverflowError):  # not log-likelihoods
        return answers


def _is_sample(start: Beginning) -> bool:
    if start.row is None:  # not strict JSON, but perhaps a sample with NaN
        row = decoded(start.line)
        return row is not None and is_row(row)
    return not start.is_record and is_row(start.row)


def _texts_beside(path: str, columns: Columns, wanted: frozenset[str]) -> Iterator[Text]:
    for samples in samples_beside(path):
        yield from texts(samples)


def of_results(results: Mapping[str, Any], task: str | None) -> Settings:
    """A task's settings in a results file: its version, its number of shots, and how completions were sampled."""
    for key, name in (("versions", "task version"), ("n-shot", "number of shots")):
        by_task = inner(results, key)
        if task is not None and task in by_task:
            yield name, by_task[task]
    config = inner(results, "configs", task)
    for name in ("generation_kwargs", "dataset_path", "dataset_name", "output_type"):
        if name in config:
            yield from flat(config[name], name)
    gen_kwargs = inner(results, "config").get("gen_kwargs")
    if gen_kwargs is not None:
        yield from flat(gen_kwargs, "gen_kwargs")
    for name in ("chat_template_sha", "system_instruction_sha"):
        if name in results:
            yield name, results[name]


SAMPLES = Format(
    "lm_eval_samples",
    read_samples,
    _is_sample,
    texts=lambda path, columns, wanted: texts(path),
    provenance=lambda path, dataset: of_results(results_beside(path)[1], dataset or task_of(path)),
    extras=extras,
    has_documents=True,
)
RESULTS = Format(
    "lm_eval_results",
    read_results,
    recognise=lambda start: is_results(start.head),
    texts=_texts_beside,
    provenance=lambda path, dataset: of_results(results_in(path), dataset),
    folder=newest,
    stands_for_others=True,
    extras=extras,
    has_documents=True,
)


LM_EVAL = Dialect(
    "lm_eval",
    metrics=SYSTEM.card.words,
    default=SYSTEM.card.default,
    over_datasets=False,  # rewards of different tasks are not comparable; lm-eval's groups define which to combine
)
