"""promptfoo's results (version 3) as rollouts.

The JSON of ``promptfoo eval -o results.json``, or the JSON Lines of its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import BAD, Beginning, Columns, Extras, Format, Progress, Raw
from calipers.formats.lines import ABSENT, NOTHING, LineError
from calipers.formats.source import BOM, LARGEST_WHOLE, Source
from calipers.formats.system_rows import (
    HASH_DIGITS,
    REMEMBERED,
    SHOWN,
    Layout,
    Number,
    RowBlock,
    SystemLines,
    SystemPart,
    Whole,
    hashed,
    own_names,
    read_rows,
    with_notes,
)
from calipers.rollouts.table import Labels, Part, Places


class Provider(msgspec.Struct, gc=False):
    """Who answered; two providers may share an id."""

    id: str | None = None
    label: str | None = None


class Prompt(msgspec.Struct, gc=False):
    """The template of the prompt."""

    label: str | None = None


class TestCase(msgspec.Struct, rename={"assertions": "assert"}, gc=False):
    """The test, the same in each of its repeats."""

    description: Raw = NOTHING
    assertions: Raw = NOTHING
    threshold: Raw = NOTHING


class Response(msgspec.Struct, gc=False):
    """What the provider returned."""

    cached: bool | None = None


class AssertionData(msgspec.Struct, rename="camel", gc=False):
    """What promptfoo noted of an assertion."""

    grader_error: bool | None = None


class Component(msgspec.Struct, gc=False):
    """The result of one assertion."""

    reason: str | None = None
    metadata: AssertionData | None = None


class Grading(msgspec.Struct, rename="camel", gc=False):
    """The results of all assertions."""

    component_results: list[Component | None] | None = None


class TokenUsage(msgspec.Struct, gc=False):
    """The tokens of a request."""

    prompt: Number = None
    completion: Number = None
    cached: Number = None


class ResultTable(msgspec.Struct, gc=False):
    """The rows of a results file."""

    results: list[Raw]


class ResultFile(msgspec.Struct, gc=False):
    """A results file in one piece."""

    results: ResultTable


class SaidPrompt(msgspec.Struct, gc=False):
    """The prompt with its variables filled in."""

    raw: Any = None


class SaidResponse(msgspec.Struct, gc=False):
    """What the provider returned, text as a rule."""

    output: Any = None


class SaidRow(msgspec.Struct, gc=False):
    """What a row says beside numbers."""

    prompt: SaidPrompt | None = None
    response: SaidResponse | None = None
    metadata: Any = None


ROW: Final[list[tuple[str, Any, Any]]] = [
    ("id", str | None, None),
    ("testIdx", Whole, msgspec.NODEFAULT),
    ("promptIdx", int, msgspec.NODEFAULT),
    ("provider", Provider | str | None, None),
    ("prompt", Prompt | None, None),
    ("vars", Raw, NOTHING),
    ("testCase", TestCase | None, None),
    ("response", Response | None, None),
    ("success", bool | None, None),
    ("score", Number, ABSENT),
    ("namedScores", dict[str, Any] | None, None),
    ("gradingResult", Grading | None, None),
    ("failureReason", int | None, None),
    ("latencyMs", Number, ABSENT),
    ("cost", Number, ABSENT),
    ("tokenUsage", TokenUsage | None, None),
    ("metadata", Raw, NOTHING),
]


SYSTEM: Final = "promptfoo"
ERROR: Final = 2  # of failureReason: the provider failed, and no assertion was made
COLUMN: Final = "promptIdx"  # provider x prompt
THREW: Final = "Custom function threw error"
CACHED: Final = "cached answers"
AT_ONCE: Final = 1024  # rows
CSV_HEADER: Final = b",Status,Score,Named Scores,"
_ROW: Final = msgspec.json.Decoder(dict[str, Raw])
_TEXTS: Final = msgspec.json.Decoder(SaidRow)
_FILE: Final = msgspec.json.Decoder(ResultFile)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def take(rows: RowBlock) -> None:
    """A block of rows, each a rollout; a repeat of a test is a sample of its task."""
    gather = rows.gather
    known: dict[tuple[bytes, ...], str] = rows.memory.setdefault("tasks", {})
    gather.tasks([_task(*each, known) for each in zip(rows["vars"], rows["testCase"], strict=True)])
    gather.whole("sample", rows["testIdx"])  # ranked within each task later
    gather.labels("model", [_model(provider) for provider in rows["provider"]])
    gather.labels("agent", [prompt.label if prompt else None for prompt in rows["prompt"]])
    gather.labels(COLUMN, rows[COLUMN])
    rows.labelled.add(COLUMN)
    gradings = rows["gradingResult"]
    if ERROR in rows["failureReason"] or any(map(_grader_failed, gradings)):
        pairs = zip(rows["failureReason"], gradings, strict=True)
        rows.outcomes([_outcome(reason, grading) for reason, grading in pairs])
    gather.numbers("reward", "pass", rows["success"])
    gather.numbers("reward", "score", rows["score"])
    rows.named_numbers("reward", rows["namedScores"])
    rows.counts[THREW] += sum(map(_threw, gradings))
    rows.counts[CACHED] += sum(response is not None and bool(response.cached) for response in rows["response"])
    _take_usage(rows)
    rows.metadata(rows["metadata"])
    rows.ids.extend([-1 if each is None else hashed(each) for each in rows["id"]])


def _take_usage(rows: RowBlock) -> None:
    used = rows["tokenUsage"]
    for name, key in (("input_tokens", "prompt"), ("output_tokens", "completion"), ("cached_tokens", "cached")):
        rows.gather.numbers("column", name, [None if each is None else getattr(each, key) for each in used])
    rows.gather.numbers("column", "cost_usd", rows["cost"])
    times = [value / 1000 if isinstance(value, float) else None for value in rows["latencyMs"]]
    rows.gather.numbers("column", "latency_s", times)


def _task(variables: Any, test: TestCase | None, known: dict[tuple[bytes, ...], str]) -> str:
    """The task of a row: its variables, description, assertions and threshold, which all its repeats share."""
    case = test or TestCase()
    parts = tuple(map(bytes, (variables, case.description, case.assertions, case.threshold)))
    if (task := known.get(parts)) is None:
        if len(known) > REMEMBERED:
            known.clear()
        known[parts] = task = _named(parts)
    return task


def _named(parts: Sequence[bytes]) -> str:
    values = []
    for part in parts:
        try:
            values.append(msgspec.json.decode(part) if part else None)
        except BAD:
            values.append(part.decode("utf-8", "replace"))
    digest = hashlib.sha256(_ENCODER.encode(values)).hexdigest()[:HASH_DIGITS]
    variables, description = values[:2]
    shown = description if isinstance(description, str) and description else ""
    if not shown and isinstance(variables, dict):
        shown = ", ".join(f"{key}={value}" for key, value in variables.items())
    return f"{' '.join(shown.split())[:SHOWN]} #{digest}".strip()


def _model(provider: Provider | str | None) -> str | None:
    if isinstance(provider, Provider):
        return provider.label or provider.id
    return provider


def _outcome(reason: int | None, grading: Grading | None) -> str | None:
    if reason == ERROR:
        return "client_failed"
    return "verifier_failed" if _grader_failed(grading) else None


def _grader_failed(grading: Grading | None) -> bool:
    for each in (grading.component_results if grading else None) or ():
        if each is not None and each.metadata is not None and each.metadata.grader_error:
            return True
    return False


def _threw(grading: Grading | None) -> bool:
    for each in (grading.component_results if grading else None) or ():
        if each is not None and each.reason and each.reason.startswith(THREW):
            return True
    return False


LAYOUT: Final = Layout(SYSTEM, ROW, take, headline="pass")


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a results file."""
    if CSV_HEADER in source.head.partition(b"\n")[0]:
        wrong = "is a table of promptfoo's as CSV, which lacks errors, token counts and the names of columns"
        raise InputError.at(source.path, wrong, "expected promptfoo eval -o results.json, or -o results.jsonl")
    if _is_file(source.head):
        own_names(names, SYSTEM)
        parts = [_read_file(source, labels, progress)]
    else:
        parts = read_rows("calipers.systems.promptfoo:LAYOUT", source, names, labels, progress)
    return with_notes(_told_apart(parts), source.path, _notes(parts, source.path)) if parts and len(parts[0]) else []


def _read_file(source: Source, labels: Collection[str], progress: Progress) -> SystemPart:
    """The rows of a results file in one piece."""
    text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    progress(len(text))
    try:
        rows = iter(_FILE.decode(text).results.results)
    except BAD as error:
        right = "expected results.results, a list of rows, as promptfoo eval -o results.json writes it"
        raise InputError.at(source.path, f"cannot be read ({str(error).partition(chr(10))[0]})", right) from None
    reader = SystemLines(source.path, LAYOUT, labels)
    try:
        while block := [msgspec.json.format(bytes(row), indent=-1) for row in islice(rows, AT_ONCE)]:
            reader.read(b"\n".join(block) + b"\n")
        part = reader.finish()
    except LineError as error:
        row, wrong, right = error.args
        raise InputError.at(f"{source.path}:row {row}", wrong, right) from None
    return replace(part, places=Places(source.path, "row ", part.places.blocks))


def _told_apart(parts: Sequence[SystemPart]) -> list[SystemPart]:
    """The parts with a number after the model where two columns have the same provider and the same prompt."""
    columns: dict[tuple[Any, Any], set[Any]] = {}
    triples = []
    for part in parts:
        labels = [part.labels[name] for name in ("model", "agent", COLUMN)]
        code = np.stack([each.code for each in labels])
        some, inverse = np.unique(code, axis=1, return_inverse=True)
        named = [
            tuple(each.values[at] if at >= 0 else None for each, at in zip(labels, row, strict=True))
            for row in some.T.tolist()
        ]
        triples.append((named, inverse.reshape(-1)))
        for model, agent, column in named:
            columns.setdefault((model, agent), set()).add(column)
    if all(len(each) < 2 for each in columns.values()):
        return list(parts)
    apart = []
    for part, (named, inverse) in zip(parts, triples, strict=True):
        models = [
            f"{model or ''} (column {column})".strip() if len(columns[model, agent]) > 1 else model
            for model, agent, column in named
        ]
        values = [model for model in dict.fromkeys(models) if model is not None]
        code = np.array([-1 if model is None else values.index(model) for model in models], dtype=np.int64)
        apart.append(replace(part, labels={**part.labels, "model": Labels(code[inverse], values)}))
    return apart


def _notes(parts: Sequence[SystemPart], path: str) -> list[str]:
    threw = sum(part.counts.get(THREW, 0) for part in parts)
    cached = sum(part.counts.get(CACHED, 0) for part in parts)
    notes = []
    if threw:
        rows = "1 row has" if threw == 1 else f"{threw:,} rows have"
        notes.append(f"{path}: {rows} an assertion that raised an error, which promptfoo counts as a failed assertion")
    if 2 * cached > sum(map(len, parts)):
        notes.append(f"{path}: {cached:,} answers come from promptfoo's cache: they are those of an earlier run")
    return notes


def said(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row, and its metadata."""
    texts = _TEXTS.decode(msgspec.json.encode(row))
    prompt, output = (texts.prompt or SaidPrompt()).raw, (texts.response or SaidResponse()).output
    metadata = {"metadata": texts.metadata} if isinstance(texts.metadata, dict) and texts.metadata else {}
    parts = {"prompt": prompt, "completion": output}
    return [{**metadata, **{name: _text(part) for name, part in parts.items() if part is not None}}]


def _text(value: Any) -> str:
    """A text as it is, and anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def extras(part: Part, names: Columns) -> Extras:
    """What the rows of a results file in one piece say, in their order."""
    with Source(part.places.path) as source:
        text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    for row in _FILE.decode(text).results.results:
        yield from said(_ROW.decode(row))


def _is_file(head: bytes) -> bool:
    return head.removeprefix(BOM).lstrip()[1:].lstrip().startswith(b'"evalId"')


def recognise(start: Beginning) -> bool:
    """Whether a file is promptfoo's: one object that begins with ``evalId``, rows of it, or its CSV, to refuse it."""
    if start.row is not None:
        return {"testIdx", "promptIdx", "provider", "failureReason"} <= start.row.keys()
    return _is_file(start.head) or CSV_HEADER in start.head.partition(b"\n")[0]


RESULTS: Final = Format(SYSTEM, read, recognise, in_folders=True, extras=extras, line_extras=said)
