"""The reader of promptfoo's results (version 3).

It reads the JSON file of ``promptfoo eval -o results.json``, and the JSON Lines of its rows.
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
from calipers.formats.lines import ABSENT, NOTHING, LineError, unreadable
from calipers.formats.own_numbers import EVERYWHERE, Where, inside, rows_where
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
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.column import Column
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Labels, Part, Places
from calipers.typed import complete


class Provider(msgspec.Struct, gc=False):
    """The provider of an answer; two providers may share an id."""

    id: str | None = None
    label: str | None = None


class Prompt(msgspec.Struct, gc=False):
    """The prompt template."""

    label: str | None = None


class TestCase(msgspec.Struct, rename={"assertions": "assert"}, gc=False):
    """The test case, which is the same in all its repeats."""

    description: Raw = NOTHING
    assertions: Raw = NOTHING
    threshold: Raw = NOTHING


class Response(msgspec.Struct, gc=False):
    """The response of a provider."""

    cached: bool | None = None


class AssertionData(msgspec.Struct, rename="camel", gc=False):
    """The metadata of an assertion."""

    grader_error: bool | None = None


class Component(msgspec.Struct, gc=False):
    """The result of one assertion."""

    reason: str | None = None
    metadata: AssertionData | None = None


class Grading(msgspec.Struct, rename="camel", gc=False):
    """The results of all assertions."""

    component_results: list[Component | None] | None = None


class TokenUsage(msgspec.Struct, gc=False):
    """The token counts of a request."""

    prompt: Number = None
    completion: Number = None
    cached: Number = None


class ResultTable(msgspec.Struct, gc=False):
    """The rows of a results file, and promptfoo's own counts."""

    results: list[Raw]
    stats: Any = None
    prompts: Any = None


class ResultFile(msgspec.Struct, gc=False):
    """A results file that is one JSON document."""

    results: ResultTable


class FilledPrompt(msgspec.Struct, gc=False):
    """The prompt with its variables filled in."""

    raw: Any = None


class ResponseOutput(msgspec.Struct, gc=False):
    """The output of a provider, usually text."""

    output: Any = None


class RowTexts(msgspec.Struct, gc=False):
    """The texts and the metadata of a row."""

    prompt: FilledPrompt | None = None
    response: ResponseOutput | None = None
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
ERROR: Final = 2  # a failureReason: the provider failed, and no assertion was checked
COLUMN: Final = "promptIdx"  # the index of a (provider, prompt) pair
THREW: Final = "Custom function threw error"
CACHED: Final = "cached answers"
AT_ONCE: Final = 1024  # rows
CSV_HEADER: Final = b",Status,Score,Named Scores,"
_ROW: Final = msgspec.json.Decoder(dict[str, Raw])
_TEXTS: Final = msgspec.json.Decoder(complete(RowTexts))
_FILE: Final = msgspec.json.Decoder(complete(ResultFile))
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def take(rows: RowBlock) -> None:
    """Add a block of rows; each row is a rollout. A test case is a task, and its repeats are samples."""
    builder = rows.builder
    known: dict[tuple[bytes, ...], str] = rows.memory.setdefault("tasks", {})
    tests = zip(rows["vars"], rows["testCase"], strict=True)
    builder.tasks([_task(variables, test, known) for variables, test in tests])
    builder.whole("sample", rows["testIdx"])  # replaced later by the rank within the task
    builder.labels("model", [_model(provider) for provider in rows["provider"]])
    builder.labels("agent", [prompt.label if prompt else None for prompt in rows["prompt"]])
    builder.labels(COLUMN, rows[COLUMN])
    rows.labelled.add(COLUMN)
    gradings = rows["gradingResult"]
    if ERROR in rows["failureReason"] or any(map(_grader_failed, gradings)):
        pairs = zip(rows["failureReason"], gradings, strict=True)
        rows.outcomes([_outcome(reason, grading) for reason, grading in pairs])
    builder.numbers("reward", "pass", rows["success"])
    builder.numbers("reward", "score", rows["score"])
    rows.named_numbers("reward", rows["namedScores"])
    rows.counts[THREW] += sum(map(_threw, gradings))
    rows.counts[CACHED] += sum(response is not None and bool(response.cached) for response in rows["response"])
    _take_usage(rows)
    rows.metadata(rows["metadata"])
    rows.ids.extend([-1 if row_id is None else hashed(row_id) for row_id in rows["id"]])


def _take_usage(rows: RowBlock) -> None:
    usages = rows["tokenUsage"]
    for name, key in (("input_tokens", "prompt"), ("output_tokens", "completion"), ("cached_tokens", "cached")):
        rows.builder.numbers("column", name, [None if usage is None else getattr(usage, key) for usage in usages])
    rows.builder.numbers("column", "cost_usd", rows["cost"])
    times = [value / 1000 if isinstance(value, float) else None for value in rows["latencyMs"]]
    rows.builder.numbers("column", "latency_s", times)


def _task(variables: Any, test: TestCase | None, known: dict[tuple[bytes, ...], str]) -> str:
    """The name of a row's task, identified by its variables, description, assertions and threshold."""
    case = test or TestCase()
    parts = tuple(map(bytes, (variables, case.description, case.assertions, case.threshold)))
    if (task := known.get(parts)) is None:
        if len(known) > REMEMBERED:
            known.clear()
        known[parts] = task = _task_name(parts)
    return task


def _task_name(parts: Sequence[bytes]) -> str:
    """The description, or else the variables, and a hash of all parts."""
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
    return any(part.metadata is not None and part.metadata.grader_error for part in _components(grading))


def _threw(grading: Grading | None) -> bool:
    return any(part.reason is not None and part.reason.startswith(THREW) for part in _components(grading))


def _components(grading: Grading | None) -> list[Component]:
    return [part for part in (grading.component_results if grading else None) or () if part is not None]


LAYOUT: Final = Layout(SYSTEM, ROW, take, headline="pass")


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a results file; InputError for promptfoo's CSV, which lacks what a score needs."""
    if CSV_HEADER in source.head.partition(b"\n")[0]:
        problem = "is a table of promptfoo's as CSV, which lacks errors, token counts and the names of columns"
        raise InputError.at(source.path, problem, "expected promptfoo eval -o results.json, or -o results.jsonl")
    if _is_file(source.head):
        own_names(names, SYSTEM)
        parts = [_read_file(source, labels, progress)]
    else:
        parts = read_rows("calipers.systems.promptfoo:LAYOUT", source, names, labels, progress)
    if not parts or not len(parts[0]):
        return []
    return with_notes(_with_distinct_models(parts), source.path, _notes(parts, source.path))


def _read_file(source: Source, labels: Collection[str], progress: Progress) -> SystemPart:
    """Read the rows of a results file that is one JSON document."""
    text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    progress(len(text))
    try:
        table = _FILE.decode(text).results
        rows = iter(table.results)
    except BAD as error:
        expected = "expected results.results, a list of rows, as promptfoo eval -o results.json writes it"
        raise InputError.at(source.path, f"cannot be read ({str(error).partition(chr(10))[0]})", expected) from None
    reader = SystemLines(source.path, LAYOUT, labels)
    try:
        while block := [msgspec.json.format(bytes(row), indent=-1) for row in islice(rows, AT_ONCE)]:
            reader.read(b"\n".join(block) + b"\n")
        part = reader.finish()
    except LineError as error:
        row, problem, expected = error.args
        raise InputError.at(f"{source.path}:row {row}", problem, expected) from None
    return replace(part, places=Places(source.path, "row ", part.places.blocks), checks=own_checks(part, table))


def own_checks(part: SystemPart, table: ResultTable) -> list[Check]:
    """The counts of passed, failed and erring rows that promptfoo wrote, in all and for each column, and ours."""
    totals = _counts(part, EVERYWHERE)
    names = ("successes", "failures", "errors")
    pairs = [(name, inside(table.stats, name), ours) for name, ours in zip(names, totals, strict=True)]
    columns = table.prompts if isinstance(table.prompts, list) else []
    for column in range(len(columns)):
        counts = _counts(part, {COLUMN: column})
        for name, ours in zip(("testPassCount", "testFailCount", "testErrorCount"), counts, strict=True):
            metric = f"prompts[{column}].metrics.{name}"
            pairs.append((metric, inside(columns, column, "metrics", name), ours))
    return compared(SYSTEM, pairs)


def _counts(part: SystemPart, where: Where) -> tuple[int, int, int]:
    """The rows with these labels that passed, that failed, and that have an error of the provider."""
    rows = rows_where(part, where)
    erring = rows & (part.outcome == CODE["client_failed"])
    column = part.rewards.get("pass") or Column.gaps(len(part))
    passed = rows & column.given & (column.values > 0) & ~erring
    failed = rows & ~passed & ~erring
    return int(passed.sum()), int(failed.sum()), int(erring.sum())


def _with_distinct_models(parts: Sequence[SystemPart]) -> list[SystemPart]:
    """The parts, with the column's number after the model if two columns have the same provider and prompt."""
    columns: dict[tuple[Any, Any], set[Any]] = {}
    triples = []  # of each part: its distinct (model, agent, column), and the index of each row's triple
    for part in parts:
        labels = [part.labels[name] for name in ("model", "agent", COLUMN)]
        codes = np.stack([label.code for label in labels])
        distinct_codes, inverse = np.unique(codes, axis=1, return_inverse=True)
        distinct = [
            tuple(label.values[code] if code >= 0 else None for label, code in zip(labels, triple, strict=True))
            for triple in distinct_codes.T.tolist()
        ]
        triples.append((distinct, inverse.reshape(-1)))
        for model, agent, column in distinct:
            columns.setdefault((model, agent), set()).add(column)
    if all(len(numbers) < 2 for numbers in columns.values()):
        return list(parts)
    renamed = []
    for part, (distinct, inverse) in zip(parts, triples, strict=True):
        models = [
            f"{model or ''} (column {column})".strip() if len(columns[model, agent]) > 1 else model
            for model, agent, column in distinct
        ]
        values = [model for model in dict.fromkeys(models) if model is not None]
        code = np.array([-1 if model is None else values.index(model) for model in models], dtype=np.int64)
        renamed.append(replace(part, labels={**part.labels, "model": Labels(code[inverse], values)}))
    return renamed


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


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row, and its metadata."""
    texts = _TEXTS.decode(msgspec.json.encode(row))
    prompt, output = (texts.prompt or FilledPrompt()).raw, (texts.response or ResponseOutput()).output
    metadata = {"metadata": texts.metadata} if isinstance(texts.metadata, dict) and texts.metadata else {}
    parts = {"prompt": prompt, "completion": output}
    return [{**metadata, **{name: _text(part) for name, part in parts.items() if part is not None}}]


def _text(value: Any) -> str:
    """A string as it is; any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def extras(part: Part, names: Columns) -> Extras:
    """The texts of each row of a results file that is one JSON document, in their order."""
    with Source(part.places.path) as source:
        text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    for number, row in enumerate(_FILE.decode(text).results.results, 1):
        try:
            yield from line_extras(_ROW.decode(row))
        except BAD as error:
            raise InputError.at(f"{part.places.path}:row {number}", *unreadable(error)) from None


def _is_file(head: bytes) -> bool:
    return head.removeprefix(BOM).lstrip()[1:].lstrip().startswith(b'"evalId"')


def recognise(start: Beginning) -> bool:
    """Whether a file is promptfoo's: a JSON document that begins with ``evalId``, rows, or CSV (refused on reading)."""
    if start.row is not None:
        return {"testIdx", "promptIdx", "provider", "failureReason"} <= start.row.keys()
    return _is_file(start.head) or CSV_HEADER in start.head.partition(b"\n")[0]


RESULTS: Final = Format(SYSTEM, read, recognise, in_folders=True, extras=extras, line_extras=line_extras)
