"""What lm-evaluation-harness writes: a line for each document and pipeline, results files, and its output folder.

Its dialect is a mean of each metric over documents, by the names of its results.
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
from calipers.formats.repeated_keys import once_by_raws, refuse_twice, said_twice, twice
from calipers.formats.source import BOM, LARGEST_WHOLE, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.request import Dialect
from calipers.rollouts.column import Column
from calipers.rollouts.table import Part
from calipers.systems.lm_eval import SYSTEM

LIKELIHOODS: Final = {
    "perplexity": "",
    "word_perplexity": "words",
    "byte_perplexity": "bytes",
    "bits_per_byte": "bytes",
}
"""Metrics of log-likelihoods, and what else a document keeps for them."""


@dataclass(slots=True)
class Odd:
    """What the records cannot say themselves, found on the way."""

    numbers: list[tuple[int, str, float]] = field(default_factory=list)  # (row, metric, NaN or an infinity)
    paired: set[str] = field(default_factory=set)  # metrics that are pairs, of which only all together are a number
    rows: int = 0
    seen: Counter[str] = field(default_factory=Counter)  # document -> its rows, for `with_pipeline`


def sizes(name: str, value: Any) -> dict[str, float]:
    """What a document keeps for a perplexity, as columns: its log-likelihood, and the words or bytes it is of."""
    numbers = value if isinstance(value, list) else [value]
    largest = sys.float_info.max  # an integer may be larger
    if name not in LIKELIHOODS or not all(isinstance(n, (int, float)) and abs(n) <= largest for n in numbers):
        return {}
    return {column: float(number) for column, number in zip(("logprob", LIKELIHOODS[name]), numbers, strict=False)}


def lost(answers: Any, fallbacks: Collection[str]) -> bool:
    """Whether all that a pipeline left is a fallback."""
    responses = answers if isinstance(answers, list) else [answers]
    flat = [text for answer in responses for text in (answer if isinstance(answer, list) else [answer])]
    return bool(flat) and all(isinstance(text, str) and text in fallbacks for text in flat)


def finite(value: Any) -> Any:
    """A JSON value with null for every number that strict JSON cannot say."""
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_odd(part: Part, odd: Odd, path: str) -> Part:
    """The rollouts of a file with the numbers that are not finite, and a note on what is a number of all together."""
    rewards = dict(part.rewards)
    for row, name, value in odd.numbers:
        column = rewards[name]
        values = np.array(column.values)
        values[row] = value
        rewards[name] = Column(values, column.given)
    if not odd.paired:
        return replace(part, rewards=rewards)
    names = ", ".join(sorted(odd.paired))
    verb = "is a number" if len(odd.paired) == 1 else "are numbers"
    note = f"{path}: {names} {verb} of all documents together, {COMPARED}"
    return replace(part, rewards=rewards, notes=[*part.notes, note])


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


class _FilterPipeline(msgspec.Struct):
    name: str | None = None
    filter: list[dict[str, Any]] | None = None


class _TaskConfiguration(msgspec.Struct):
    """A task's configuration in a results file, as far as it says what its pipelines are and what they fall back to."""

    filter_list: list[_FilterPipeline] | None = None


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
    about = _about(source.path)
    source.head = source.head.removeprefix(BOM)
    reader, odd = JsonLines(source.path, names, labels), Odd()
    try:
        for block in line_blocks(source.readinto):
            lines = enumerate(bytes(block).split(b"\n"), reader.lines + 1)
            reader.read(b"\n".join([_record(line, number, about, odd) for number, line in lines]))
            progress(len(block))
        part = reader.finish()
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{source.path}:{reader.lines + 1}", wrong, "expected one sample per line") from None
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
        raise InputError.at(source.path, "contains numbers but no rollouts", right)
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
    names = [(other, _NAME.fullmatch(other)) for other in sorted(os.listdir(folder or "."))]
    return [os.path.join(folder, other) for other, match in names if match and match["time"] in (None, time)]


def rows_of(source: Source) -> Iterator[dict[str, Any]]:
    """The lines of a file of samples as they are, NaN and infinities included."""
    source.head = source.head.removeprefix(BOM)
    number, about, seen = 0, _about(source.path), Counter[str]()
    for block in line_blocks(source.readinto):
        for line in bytes(block).split(b"\n"):
            number += 1
            if line.strip():
                row = decoded(line)
                if row is None or not is_row(row):
                    raise InputError.at(
                        f"{source.path}:{number}", "not a sample of lm-eval", "expected doc_id, resps, ..."
                    )
                try:
                    check_once(line, number)
                except LineError as error:
                    raise error.at(source.path) from None
                yield with_pipeline(row, about, seen)


def task_of(path: str) -> str:
    """The task that a file of samples is named after."""
    match = _NAME.fullmatch(os.path.basename(path))
    return match["task"] if match else os.path.basename(path).partition(".")[0]


def results_in(path: str) -> dict[str, Any]:
    """The object that a results file is, NaN and infinities included; empty where it is no object."""
    with Source(path) as source:
        text = source.everything(LARGEST_WHOLE)
    refuse_twice(text.removeprefix(BOM), path, IN_RESULTS)
    return decoded(text) or {}


def results_beside(path: str) -> tuple[str, dict[str, Any]]:
    """The results file that was written together with a file of samples, and its object; empty where there is none."""
    match = _NAME.fullmatch(os.path.basename(path))
    folder, names = os.path.dirname(path), ["results.json"]
    if match and match["time"]:
        of_then = f"_{match['time']}.json"
        names = [f"results{of_then}", *(name for name in sorted(os.listdir(folder or ".")) if name.endswith(of_then))]
    for name in names:
        beside = os.path.join(folder, name)
        if os.path.isfile(beside) and os.path.getsize(beside) <= LARGEST_WHOLE:
            results = results_in(beside)
            if "results" in results:
                return beside, results
    return "", {}


def inner(block: Any, *keys: str | None) -> Mapping[str, Any]:
    """The object below these keys of an object; an empty one where there is none."""
    for key in keys:
        block = block.get(key) if isinstance(block, dict) else None
    return block if isinstance(block, dict) else {}


def listed_aggregation(config: Mapping[str, Any], metric: str) -> str | None:
    """How a task's configuration adds up a metric: a name, or the source of its function; None: it does not say."""
    listed = config.get("metric_list")
    entries = [entry for entry in listed if inner(entry).get("metric") == metric] if isinstance(listed, list) else []
    how = entries[-1].get("aggregation") if entries else None
    return how if isinstance(how, str) else None


class _About(NamedTuple):
    """What is known of a file of samples beside its lines."""

    task: str
    model: str | None
    fallbacks: frozenset[str]  # what its filters fall back to
    pipelines: Sequence[str | None] = ()  # their names, in order


def with_pipeline(row: dict[str, Any], about: _About, seen: Counter[str]) -> dict[str, Any]:
    """A sample with its pipeline. Versions before 0.4.7 do not write it: the n-th row of a document is of the n-th."""
    if "filter" in row or len(about.pipelines) < 2 or None in about.pipelines:
        return row
    document = str(row["doc_id"])
    seen[document] += 1
    number = min(seen[document], len(about.pipelines))  # one more is a row twice, to be refused as such
    return {**row, "filter": about.pipelines[number - 1]}


def _about(path: str) -> _About:
    task, (_, beside) = task_of(path), results_beside(path)
    model = beside.get("model_name")
    fallbacks, pipelines = {INVALID}, list[str | None]()
    with suppress(msgspec.ValidationError, UnicodeEncodeError):  # it is no configuration of theirs
        config = msgspec.convert(inner(beside, "configs", task), _TaskConfiguration)
        pipelines = [pipeline.name for pipeline in config.filter_list or ()]
        steps = [step for pipeline in config.filter_list or () for step in pipeline.filter or ()]
        fallbacks |= {step["fallback"] for step in steps if isinstance(step.get("fallback"), str)}
    return _About(task, model if isinstance(model, str) else None, frozenset(fallbacks), pipelines)


def check_once(text: bytes, number: int) -> None:
    """LineError for a sample with a key twice."""
    if not once_by_raws(text):
        key = None
        with suppress(ValueError, RecursionError):
            key = twice(text)
        if key is not None:
            raise LineError(number, *said_twice(key))


def _record(line: bytes, number: int, about: _About, odd: Odd) -> bytes:
    """A sample as a record of ours; a bad line as it is, to be refused where it stands."""
    row = decoded(line) if line.strip() else None
    if row is None or not is_row(row):
        return line
    check_once(line, number)
    row = with_pipeline(row, about, odd.seen)
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
        "outcome": "unparsed" if lost(answers, about.fallbacks) else None,
        "answer": answers[0] if isinstance(answers, list) and len(answers) == 1 else None,
        "agent": None if pipeline == UNNAMED else str(pipeline),
        "model": about.model,
        "dataset": about.task,
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
    content: Any
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return content if isinstance(content, dict) else None


HEAD: Final = 4096  # bytes of a file that say whether it holds results
NAMED: Final = 3  # files that a note names


@dataclass(frozen=True, slots=True)
class _ResultsFile:
    """A results file."""

    folder: str
    name: str
    time: str  # when it was written, by its name; "" where that does not say
    model: str | None

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)


class _ModelName(msgspec.Struct):
    model_name: str | None = None


def newest(path: str) -> tuple[list[str], list[str]]:
    """The newest results file of each model in a folder, sorted; and notes on those that are passed over.

    Nothing where the folder is none of lm-evaluation-harness'. InputError where a model has two folders.
    """
    by_folder: dict[tuple[str | None, str], list[_ResultsFile]] = {}
    for folder in [path, *_folders(path)]:
        for results in _results_in(folder):
            by_folder.setdefault((results.model, results.folder), []).append(results)
    first: dict[str, str] = {}
    for model, folder in by_folder:
        if model is not None and first.setdefault(model, folder) != folder:
            wrong = f"the model {model!r} also appears in {first[model]}"
            raise InputError.at(folder, wrong, "expected one folder for each model; pass only one of the two")
    taken: list[str] = []
    notes: list[str] = []
    for those in by_folder.values():
        *older, last = sorted(those, key=lambda results: (results.time, results.name))
        taken.append(last.path)
        notes += [_passed_over(last, [results.name for results in reversed(older)])] if older else []
    return sorted(taken), notes


def _passed_over(last: _ResultsFile, older: Sequence[str]) -> str:
    names = ", ".join(older[:NAMED]) + (f" and {len(older) - NAMED} more" if len(older) > NAMED else "")
    what = "is" if len(older) == 1 else "are"
    note = f"{last.path} is the newest file of its model: {names} beside it {what} ignored"
    return f"{note}; to read one of them, pass the file itself"


def _results_in(folder: str) -> Iterator[_ResultsFile]:
    for name in _names(folder):
        match = RESULTS_NAME.fullmatch(name)
        path = os.path.join(folder, name)
        if match and os.path.isfile(path) and is_results(_read(path, HEAD)):
            yield _ResultsFile(folder, name, match["time"] or "", _model(path))


def _model(path: str) -> str | None:
    """The model that a results file tells of; None where it says none."""
    if os.path.getsize(path) > LARGEST_WHOLE:
        raise InputError.at(path, f"larger than {LARGEST_WHOLE >> 20} MiB", "expected a results file")
    raw = _read(path, LARGEST_WHOLE).removeprefix(BOM)
    try:
        return msgspec.json.decode(raw, type=_ModelName).model_name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        content = decoded(raw)  # NaN, as Python writes it
    if content is None:
        raise InputError.at(
            path, "is not complete JSON", ("expected a file that lm_eval wrote; to read another file, pass that file")
        )
    name = content.get("model_name")
    return name if isinstance(name, str) else None


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise InputError.at(folder, f"cannot be read ({error.strerror})") from None


def _folders(path: str) -> list[str]:
    """The folders in a folder, no links, sorted; those that may not be looked into hold nothing."""
    paths = [os.path.join(path, name) for name in _names(path)]
    return [each for each in paths if os.path.isdir(each) and not os.path.islink(each) and os.access(each, os.R_OK)]


_GREEDY = ("True", "False")  # whether a choice is what the model would have said itself, written as text by some


def extras(part: Part, columns: Columns) -> Extras:
    """What each sample of a file says beside numbers: its document is the metadata."""
    with Source(part.places.path) as source:
        for row in rows_of(source):
            answers = row["filtered_resps"]
            known = {
                "prompt": _prompt(row),
                "completion": row["resps"],
                "answer": answers[0] if isinstance(answers, list) and len(answers) == 1 else None,
                "metadata": row["doc"] if isinstance(row["doc"], dict) else None,
            }
            known["answer"] = None if isinstance(known["answer"], dict) else known["answer"]
            yield finite(placed(known, {} if row.get("target") is None else {TARGET: row["target"]}))


def _prompt(row: Mapping[str, Any]) -> str | None:
    arguments = row.get("arguments")
    first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else None
    prompt = first.get("arg_0") if isinstance(first, dict) else None
    return prompt if isinstance(prompt, str) else None


def texts(path: str) -> Iterator[Text]:
    """The texts of every sample in a file; its prompt by its hash where the prompt itself is not kept."""
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
                completion=_chosen(row["resps"]),
                prompt=str(row.get("prompt_hash") or "") if prompt is None else prompt,
                answer=_chosen(row["filtered_resps"]),
                target=target_hash(row.get("target")) or str(row.get("target_hash") or "")[:HASH_DIGITS],
            )


def _chosen(answers: Any) -> Any:
    """The likeliest of several choices by its number; any other answer as it is."""
    pairs = answers if isinstance(answers, list) else []
    if len(pairs) < 2 or not all(
        isinstance(pair, list) and len(pair) == 2 and str(pair[1]) in _GREEDY for pair in pairs
    ):
        return answers
    try:
        return f"choice {max(range(len(pairs)), key=lambda choice: float(pairs[choice][0]))}"
    except (TypeError, ValueError):  # pairs of something else
        return answers


def _is_sample(start: Beginning) -> bool:
    if start.row is None:  # no strict JSON: there may be a NaN in it
        return is_line(start.line)
    return not start.is_record and is_row(start.row)


def _texts_beside(path: str, columns: Columns, wanted: frozenset[str]) -> Iterator[Text]:
    for samples in samples_beside(path):
        yield from texts(samples)


def _settings(path: str, dataset: str | None) -> Settings:
    yield from of_results(results_in(path), dataset)


def of_results(results: Mapping[str, Any], task: str | None) -> Settings:
    """What a results file says of a task: its version, its shots, how answers were drawn."""
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
    provenance=_settings,
    folder=newest,
    stands_for_others=True,
    extras=extras,
    has_documents=True,
)


LM_EVAL = Dialect(
    "lm_eval",
    metrics=SYSTEM.card.words,
    default=SYSTEM.card.default,
    over_datasets=False,  # rewards are of many kinds; groups say which belong together
)
