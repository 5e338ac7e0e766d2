"""The sources of a comparison: their rollouts, texts, settings and tables, and checks whether they are comparable.

`Rollouts` has no texts, so the files are read a second time and only the requested texts are kept. A pipe and a format
without texts yield none. A table has the numbers of a task of lm-evaluation-harness that are computed from all
documents together.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np

from calipers.analyses.compare import Question
from calipers.analyses.compare.align import Common, ReadRun
from calipers.errors import CalipersError, Incomplete, InputError, UnknownName, display, nearest
from calipers.formats import BAD, COMPARED, NUMBERED, Format, Raw, Text
from calipers.formats.convert import texts_of_rows
from calipers.formats.read import Input, begin, format_of, run_or_path
from calipers.formats.run_folder import (
    DOCUMENTS,
    DOCUMENTS_SCHEMA,
    LOG,
    DocumentLine,
    DocumentsHead,
    Summed,
    is_run,
    read_settings,
)
from calipers.formats.source import STDIN
from calipers.formats.source import Source as File
from calipers.names import DOCUMENT_TABLES, FORMATS, TASK_LIBRARY_NAME, load
from calipers.pipeline import Progress, Source, read, score_rollouts
from calipers.reports.doubts import Doubts, doubts_about
from calipers.reports.figures import counted, is_or_are
from calipers.reports.page import load as load_document
from calipers.reports.result import Group, Result
from calipers.reports.untrusted_text import clean
from calipers.request import Plan, RequestedMetric, make_plan
from calipers.rollouts.checks import Check, failed_checks
from calipers.rollouts.column import Bools, Ints, total
from calipers.rollouts.labels import STEP, over_steps, without
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.table import Part, Rollouts
from calipers.stats.estimate import Estimate
from calipers.stores import local
from calipers.typed import complete

if TYPE_CHECKING:
    from calipers.analyses.compare.measure import Measured


COST: Final = "cost_usd"
Key = tuple[str | None, ...]  # agent, model, dataset
Digests = Mapping[tuple[str, str], str]  # (dataset, task) -> digest of the task's content


@dataclass(frozen=True, slots=True)
class ReadSource:
    """The rollouts of one source, and access to its texts, settings and tables."""

    path: str  # the displayed path or name; "" for a table
    rollouts: Rollouts
    digests: Digests
    columns: Mapping[str, str]
    hashed: Callable[[], list[Input]]  # the files with their hashes, which are computed once
    unnumbered: frozenset[str] = frozenset()  # the files whose samples are numbered in order of appearance
    known: list[dict[Key, Texts]] = field(default_factory=list)  # cache of `prompts`: empty, or the texts by group
    tables: dict[Key, DocumentTable | None] = field(default_factory=dict)  # cache of `table`

    def texts_by_group(self, wanted: frozenset[str]) -> Iterator[tuple[Key, Text]]:
        """The texts of the files, each with its group: the first text of every task, and all texts of wanted tasks."""
        group_of: dict[Key, Key | None] = {}
        before = Counter[tuple[Any, ...]]()  # the number of samples of each task in earlier files
        for file in self.hashed():
            samples = Counter[tuple[Any, ...]]()
            for text in _texts(file, self.columns, wanted):
                if file.path in self.unnumbered:  # the numbers of each file start at 0
                    unit = text[:4]
                    samples[unit] = max(samples[unit], int(text.sample) + 1)
                    text = text._replace(sample=text.sample + before[unit])
                names = text[:3]
                if names not in group_of:
                    group_of[names] = _group_of(names, self.rollouts.keys)
                key = group_of[names]
                if key is not None:
                    yield key, text
            before.update(samples)

    def texts(self, wanted: Mapping[Key, Collection[str]]) -> dict[Key, Texts]:
        """The prompts of all tasks and the answers to the wanted tasks, by group."""
        by_group = {key: Texts() for key in self.rollouts.keys}
        for key, text in self.texts_by_group(frozenset(task for tasks in wanted.values() for task in tasks)):
            texts, task = by_group[key], text.task
            if task not in texts.prompts and (prompt := prompt_of(text)) is not None:
                texts.prompts[task] = _hash(prompt)
            if text.document and task not in texts.documents:
                texts.documents[task] = text.document.encode()
            if text.target and task not in texts.targets:
                texts.targets[task] = text.target.encode()
            # `<=`: if a sample was attempted several times, the later record is the later attempt
            is_first = task not in texts.answers or text.sample <= texts.answers[task][0]
            if is_first and task in wanted.get(key, ()) and (answer := _answer(text)):
                texts.answers[task] = text.sample, answer[:LONGEST]
        return by_group

    def prompts(self, key: Key) -> Texts:
        """The texts of a group without its answers. The files are read only once for all pairs of runs."""
        if not self.known:
            self.known.append(self.texts({}))
        return self.known[0].get(key) or Texts()

    def settings(self, dataset: str | None) -> dict[str, Any]:
        """The settings of the run on a dataset that the files record."""
        return settings_of(self.hashed(), dataset)

    def table(self, key: Key) -> DocumentTable | None:
        """The document table of a group, see `table_of`; read only once."""
        if key not in self.tables:
            self.tables[key] = table_of(self.hashed(), key)
        return self.tables[key]

    @property
    def documented(self) -> bool:
        """Whether its records have the hash of the document from which each task is made."""
        return any(FORMATS.load(file.format).has_documents for file in self.hashed())


@dataclass(frozen=True, slots=True)
class CalledTable:
    """A table in memory, with a name in place of a path."""

    name: str
    table: Source


def paths_of(source: Source) -> list[str]:
    """The paths of a source; empty for a source in memory."""
    items = source if isinstance(source, (list, tuple)) else [source]
    paths = [os.fspath(path) for path in items if isinstance(path, (str, os.PathLike))]
    return paths if len(paths) == len(items) else []


def read_sources(
    sources: Sequence[Source], columns: Mapping[str, str], plan: Plan, progress: Progress | None
) -> list[ReadSource]:
    """Read the sources of a comparison, without the rollouts that the plan excludes."""
    read = [read_source(source, columns, plan.labels, progress) for source in sources]
    tables = without([source.rollouts for source in read], plan.exclude, plan.dialect.label)
    return [replace(source, rollouts=table) for source, table in zip(read, tables, strict=True)]


def read_source(
    source: Source, columns: Mapping[str, str], labels: Collection[str], progress: Progress | None
) -> ReadSource:
    """Read one source: anything that `score` accepts."""
    if isinstance(source, CalledTable):
        return replace(read_source(source.table, columns, labels, progress), path=source.name)
    if paths := paths_of(source):
        parts: list[Part] = []
        rollouts, inputs = begin(paths, columns=columns, labels=labels, progress=progress, kept=parts)
        digests = {key: digest for part in parts for key, digest in part.digests.items()}
        in_order = columns.get("sample") == NUMBERED
        unnumbered = frozenset(display(part.places.path) for part in parts if in_order or part.unnumbered)
        path = display(" ".join(map(run_or_path, paths)))
        return ReadSource(path, rollouts, digests, columns, cache(inputs), unnumbered)
    return ReadSource("", read(source, columns=columns, labels=labels), {}, columns, list)


@dataclass(frozen=True, slots=True)
class FinishedResult:
    """A finished result that was given instead of rollouts."""

    path: str  # "" for a result in memory
    result: Result

    def estimate(self, group: Group, metric: str, plan: Plan) -> Estimate | None:
        """The estimate of a metric in a group, without its interval if that has another confidence than the plan."""
        estimate = group.metrics.get(metric)
        if estimate is None or self.result.confidence == plan.confidence:
            return estimate
        why = f"the result has an interval of {100 * self.result.confidence:.4g} %"
        return replace(estimate, interval=None, stderr=None, why=why)


def finished_results(sources: Sequence[Source]) -> tuple[list[FinishedResult], list[Source]]:
    """Split sources into finished results and sources of rollouts. A folder of runs counts as the runs inside."""
    from calipers.formats.read import is_result, unfolded

    finished, with_rollouts = [], []
    for source in unfolded(sources):
        if isinstance(source, Result):
            finished.append(FinishedResult("", source))
        elif isinstance(source, (str, os.PathLike)) and is_result(os.fspath(source)):
            result = load_document(source)
            assert isinstance(result, Result)
            finished.append(FinishedResult(os.fspath(source), result))
        else:
            with_rollouts.append(source)
    return finished, with_rollouts


def on_tasks(rollouts: Rollouts, tasks: Collection[str]) -> Rollouts:
    """The rollouts of the given tasks."""
    kept = np.array([task in tasks for task in rollouts.tasks], dtype=np.bool_)
    return rollouts if kept.all() else rollouts.where(kept[rollouts.task])


def cost_of(rollouts: Rollouts) -> float | None:
    """The total cost of the rollouts; None if no cost was recorded."""
    column = rollouts.columns.get(COST)
    return None if column is None or not column.given.any() else float(total(column.kept()))


def estimate_of(part: Rollouts, request: RequestedMetric, plan: Plan) -> Estimate:
    """The estimate of a metric as `score` computes it. Missing rollouts never fail here, as callers check before."""
    policy = plan.missing if plan.missing == "zero" else "gap"
    result = score_rollouts(part, replace(plan, requests=[request], by=(), missing=policy, afterwards=None))
    return next(iter(result.groups[0].metrics.values()))


LONGEST = 4_000  # characters of an answer that are kept
DEEPEST = 32  # nesting levels of lists and objects that are searched for a text


@dataclass(slots=True)
class Texts:
    """The prompts, documents, targets and answers of one group of rollouts."""

    prompts: dict[str, bytes] = field(default_factory=dict)  # task -> hash of its prompt
    documents: dict[str, bytes] = field(default_factory=dict)  # task -> hash of the document it is made from
    targets: dict[str, bytes] = field(default_factory=dict)  # task -> its target
    answers: dict[str, tuple[float, str]] = field(default_factory=dict)  # task -> (sample, text) of its first sample

    def answer(self, task: str) -> str | None:
        """The answer of a task's first sample; None if there is none."""
        return self.answers.get(task, (0.0, None))[1]


def _texts(file: Input, columns: Mapping[str, str], wanted: frozenset[str]) -> Iterator[Text]:
    kind: Format = FORMATS.load(file.format)
    texts = kind.texts or (texts_of_rows if kind.line_extras or kind.extras else None)
    if texts is not None and (os.path.isfile(path := local(file.path)) or os.path.isdir(path)):
        yield from texts(path, columns, wanted)  # a pipe cannot be read a second time


def _group_of(names: Key, keys: Sequence[Key]) -> Key | None:
    """The group of a record with these names, of which any may be missing; None if several groups match."""
    matches = [
        key for key in keys if all(name is None or name == known for name, known in zip(names, key, strict=True))
    ]
    exact = [key for key in matches if key == names]
    return (exact or matches)[0] if len(exact or matches) == 1 else None


def prompt_of(text: Text) -> str | None:
    """The text of a prompt: of its only message, or all messages as JSON; None without a prompt."""
    value = _value(text.prompt)
    if value is None or value == "":
        return None
    message = value[0] if isinstance(value, list) and len(value) == 1 else value
    words = json_text(message) if isinstance(message, (str, dict)) else None
    return _json_or_none(value) if words is None else words


def stored_text(stored: Any) -> str | None:
    """The text in a stored value, which may still be encoded as JSON."""
    return json_text(_value(stored))


def json_text(value: Any, deepest: int = DEEPEST) -> str | None:
    """The text in a JSON value: a string, the last text of messages or parts, or a number or boolean as JSON.

    >>> json_text([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": [{"text": "42"}]}])
    '42'
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        inside = reversed(value)
    elif isinstance(value, dict):
        inside = iter([value.get(key) for key in ("content", "text", "output")])
    else:
        return json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)
    texts = (json_text(inner, deepest - 1) for inner in inside) if deepest else iter(())
    return next((text for text in texts if text is not None), None)


def error_of(text: Text) -> str | None:
    """The error of a rollout, such as ``timeout: no answer after 60 s``; None if the record has no error."""
    value = _value(text.error)
    if isinstance(value, dict):
        parts = [str(value[key]) for key in ("kind", "message") if value.get(key)]
        return ": ".join(parts) or _json_or_none(value)
    return json_text(value)


def _answer(text: Text) -> str | None:
    answers = (stored_text(stored) for stored in (text.answer, text.completion))
    return next((answer for answer in answers if answer is not None), None)


def _value(stored: Any) -> Any:
    """A stored value, decoded if it is raw JSON; None for invalid JSON."""
    if not isinstance(stored, Raw):
        return stored
    try:
        return msgspec.json.decode(stored) if stored else None
    except BAD:
        return None


def _json_or_none(value: Any) -> str | None:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return None


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()


LONGEST_SETTING = 60  # characters of a setting's value in a note
MOST = 12  # differing settings that are listed
ABSENT = object()
SETTING_NAMES: Final = {
    "tasks": "the content of the tasks (with targets and verifiers)",
    "judged": "whether a verifier was used",
}
"""Plain names of settings of a plan."""


def settings_of(inputs: Sequence[Input], dataset: str | None) -> dict[str, Any]:
    """The settings of a dataset's run that the files record; if files disagree on a setting, it is left out."""
    settings: dict[str, Any] = {}
    for file in inputs:
        provenance = FORMATS.load(file.format).provenance
        for name, value in provenance(file.path, dataset) if provenance else ():
            settings[name] = ABSENT if name in settings and settings[name] != value else value
    return {name: value for name, value in settings.items() if value is not ABSENT}


def settings_differ(first: Mapping[str, Any], second: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    """A note for each setting whose values differ between the runs."""
    notes = []
    for name, value in first.items():
        if name in second and _json(value) != _json(second[name]):
            shown = f"{_shown(value)} in {names[0]}, {_shown(second[name])} in {names[1]}"
            notes.append(f"{SETTING_NAMES.get(name, name)} differs: {shown}")
    return [*notes[:MOST], f"and {len(notes) - MOST} more settings"] if len(notes) > MOST else notes


def tasks_differ(first: Digests, second: Digests, tasks: Sequence[str]) -> list[str]:
    """A note if the content of tasks differs between the runs, by their digests."""
    common = set(tasks)
    changed = [
        task
        for (dataset, task), digest in first.items()
        if task in common and second.get((dataset, task), digest) != digest
    ]
    if not changed:
        return []
    return [f"{counted(len(changed), 'task')} changed between the runs ({_first_names(changed)}): their digests differ"]


def prompts_differ(first: Mapping[str, bytes], second: Mapping[str, bytes], tasks: Sequence[str]) -> list[str]:
    """Notes if tasks with the same id have different prompts."""
    known = [task for task in tasks if task in first and task in second]
    changed = [task for task in known if first[task] != second[task]]
    if not changed:
        return []
    notes = [
        f"the prompt differs in {len(changed):,} of {counted(len(known), 'common task')} ({_first_names(changed)})"
    ]
    second_prompts = set(second.values())
    moved = sum(first[task] in second_prompts for task in changed)
    if moved:
        notes.append(f"{moved:,} of these prompts have another id in the other run; tasks were paired by id")
    return notes


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    return clean(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), LONGEST_SETTING)


def _first_names(tasks: Sequence[str]) -> str:
    return ", ".join(clean(task) for task in tasks[:3]) + (", …" if len(tasks) > 3 else "")


RUN_AGAIN: Final = "run the same calipers run command again to write it, or to see why that is not possible"
UNSCORED: Final = "run the same command without --predict-only and with --model replay/{}/{} to score its log"
_Line = TypeVar("_Line")


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """The metrics of a table, by key ``metric,pipeline``, with their values for each document; or why it is empty."""

    ways: Mapping[str, Summed] = field(default_factory=dict)  # key -> how its values are aggregated
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # key -> document -> value
    hashes: Mapping[str, str] = field(default_factory=dict)  # document -> hash of its content
    whole: bool = True  # whether it includes means; if not, they are rewards of the rollouts
    why: str | None = None  # why there is no table
    cure: str = RUN_AGAIN  # what creates the table, if there is none

    def named(self, name: str) -> list[str]:
        """The keys that a name means: the key itself, or a metric in each of its pipelines."""
        return [name] if name in self.ways else [key for key, way in self.ways.items() if way.metric == name]


@dataclass(slots=True)
class TableDifferences:
    """The differences between two tables, with notes and with the reason for each number that is not compared."""

    measured: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # if all numbers are requested
    refused: dict[str, str] = field(default_factory=dict)  # requested name -> why it has no difference


@dataclass(frozen=True, slots=True)
class TableReader:
    """The functions of another system that read and aggregate document tables."""

    read: Callable[[Sequence[Input], tuple[str | None, ...]], DocumentTable]
    """``read(inputs, (agent, model, dataset))``: the table of a group; an empty table if there is none."""
    compare: Callable[..., TableDifferences]
    """``compare(two tables, names, common tasks, clusters, question)``."""
    value: Callable[[str, Sequence[Any]], float]
    """``value(aggregation, values of all documents)``."""
    spread: Callable[[str, Sequence[Any], float, float, Sequence[int]], Any]
    """``spread(aggregation, values, value, confidence, seed)``: an interval in ``ends``, or ``why`` there is none."""


def table_reader() -> TableReader:
    """Load the reader of document tables from its system."""
    reader: TableReader = load(DOCUMENT_TABLES)
    return reader


def table_of(inputs: Sequence[Input], key: tuple[str | None, ...]) -> DocumentTable | None:
    """The table of a group (agent, model, dataset) of a source; None if no file of the source has tables."""
    for file in inputs:
        from_library = file.format == "run" and is_task_library_run(os.path.dirname(file.path))
        if from_library or FORMATS.load(file.format).has_documents:
            return table_reader().read(inputs, key)
    return None


def compared_tables(
    first: DocumentTable | None,
    second: DocumentTable | None,
    names: tuple[str, str],
    common: Common,
    clusters: Ints | None,
    question: Question,
) -> TableDifferences | None:
    """Compare all numbers that both tables have, or those that the question names; None if there are no tables."""
    if question.tables is None and not any(table and (table.ways or table.why) for table in (first, second)):
        return None
    tables = first or DocumentTable(whole=False), second or DocumentTable(whole=False)
    return table_reader().compare(tables, names, common, clusters, question)


def short(keys: Iterable[str]) -> list[str]:
    """The shortest unique names of the keys: the metric alone if it has only one pipeline.

    >>> short(["bleu,none", "exact_match,strict", "exact_match,loose"])
    ['bleu', 'exact_match,strict', 'exact_match,loose']
    """
    unique_keys = list(dict.fromkeys(keys))
    metrics = [key.rpartition(",")[0] for key in unique_keys]
    return [metric if metrics.count(metric) == 1 else key for metric, key in zip(metrics, unique_keys, strict=True)]


def is_task_library_run(folder: str) -> bool:
    """Whether a run's folder has a task of lm-evaluation-harness."""
    return _setting(folder, TASK_LIBRARY_NAME) is not None


def _setting(folder: str, name: str) -> Any:
    """A setting of a run's plan; None if the plan does not have it."""
    try:
        return read_settings(folder).get(name)
    except InputError:
        return None  # the reader of rollouts reports what is wrong with the folder


def stored(folder: str) -> DocumentTable:
    """The document table in a run's folder; InputError if it cannot be read."""
    path = os.path.join(folder, DOCUMENTS)
    try:
        with open(path, "rb") as file:
            first, *rest = file.read().splitlines()
    except FileNotFoundError:
        if _setting(folder, "predict_only") is True:
            return DocumentTable(
                why=f"{folder} was run with --predict-only, which scores nothing", cure=UNSCORED.format(folder, LOG)
            )
        return DocumentTable(why=f"{path} does not exist")
    except (OSError, ValueError) as error:
        raise InputError.at(path, f"cannot be read ({getattr(error, 'strerror', None) or 'it is empty'})") from None
    head = _decoded(first, DocumentsHead, f"{path}:1")
    if head.schema != DOCUMENTS_SCHEMA:
        raise InputError.at(path, f"its schema is {head.schema[:60]!r}", f"expected {DOCUMENTS_SCHEMA!r}")
    if head.log_bytes != os.path.getsize(os.path.join(folder, LOG)):
        return DocumentTable(why=f"{path} is older than the log of the run")
    documents = [_decoded(text, DocumentLine, f"{path}:{number}") for number, text in enumerate(rest, start=2)]
    ways = {way.key: way for way in head.metrics}
    values: dict[str, dict[str, Any]] = {key: {} for key in ways}
    for line in documents:
        for key in ways.keys() & line.values.keys():
            value = line.values[key]
            values[key][line.document] = math.nan if value is None else value
    return DocumentTable(ways, values, {line.document: line.hash for line in documents})


def _decoded(text: bytes, kind: type[_Line], location: str) -> _Line:
    try:
        return msgspec.json.decode(text, type=complete(kind))
    except BAD as error:
        problem = f"not a line of document values ({str(error).rstrip('.')})"
        raise InputError.at(location, problem, "expected the file as calipers run wrote it") from None


MetricRequest = str | Mapping[str, Any]
MIN_SHARED_DIVISOR: Final = 10  # runs of one benchmark share at least one task in ten of the smaller run


def split_metrics(
    metrics: str | Sequence[MetricRequest] | None, dialect: str | None, sources: Sequence[Any]
) -> tuple[Sequence[MetricRequest] | None, dict[str, CalipersError]]:
    """Split the requested metrics into metrics of Calipers and possible numbers of a document table.

    The first are None if no metric was requested: then the dialect's defaults apply. Each of the second has the error
    that it is as a metric of Calipers. If no source can have a table, all are metrics of Calipers. A name that
    Calipers knows never means a table: acc in the dialect lm_eval is the mean of a reward.
    """
    if not metrics:
        return None, {}
    requested = [metrics] if isinstance(metrics, (str, Mapping)) else list(metrics)
    if not any(map(may_have_table, sources)):
        return requested, {}
    known: list[MetricRequest] = []
    table_metrics: dict[str, CalipersError] = {}
    for metric in requested:
        try:
            make_plan([metric], dialect=dialect)
            known.append(metric)
        except CalipersError as error:
            if not isinstance(metric, str):
                raise
            table_metrics[metric.strip()] = error
    return known, table_metrics


def may_have_table(source: Any) -> bool:
    """Whether a source may have a document table: a run of lm-evaluation-harness' tasks, or its own result files.

    Only the format of the source is detected; nothing is read.
    """
    if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == STDIN:
        return False
    path = run_or_path(os.fspath(source))
    if os.path.isdir(path):
        return is_task_library_run(path) if is_run(path) else True  # it may contain results of lm-evaluation-harness
    if not os.path.isfile(path):  # detecting the format of a pipe would consume its bytes
        return False
    try:
        with File(path) as file:
            return format_of(file).has_documents
    except InputError:  # the reader of rollouts reports the error with more detail
        return False


def waiting_notes(settled: Bools) -> list[str]:
    """A note on the tasks that are not compared yet because an earlier task is unfinished, if there are any."""
    waiting = int((~settled).sum())
    if not waiting:
        return []
    return [f"{counted(waiting, 'task')} excluded, from the first unfinished task on: finish the runs to include them"]


def check_gaps(contest: Sequence[ReadRun], question: Question) -> None:
    """Raise Incomplete if rollouts are missing under ``--missing fail``."""
    if question.plan.missing != "fail":
        return
    for run in contest:
        if gaps := Ledger.of(run.rollouts).gaps:
            refusal = f"{run.name}: {gaps:,} of {len(run.rollouts):,} rollouts {is_or_are(gaps)} missing"
            raise Incomplete(f"{refusal}; --missing gap excludes them, --missing zero counts them as 0")


def check_sources(sources: Sequence[Source]) -> None:
    """Raise InputError if there is no source, or if a path is given twice."""
    if not sources:
        raise InputError("nothing to compare; expected two runs or more")
    paths = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
    real = [path if path == STDIN else os.path.realpath(path) for path in paths]
    for index, path in enumerate(real):
        if path in real[:index]:
            raise InputError.at(paths[index], "is given twice", "expected two different runs")


def unrelated(runs: tuple[ReadRun, ReadRun], common: Common, sources: Sequence[ReadSource]) -> str | None:
    """Why two runs with common ids seem to be of different benchmarks; None if they are comparable.

    Three cases are comparable: a new prompt template changes neither targets nor the dataset's name; all tasks of a
    pilot run are in the full run; and a benchmark under two names has the same targets.
    """
    sizes = [len(run.rollouts.tasks) for run in runs]
    shared = common.alignment.common
    if shared * MIN_SHARED_DIVISOR < min(sizes):
        of_each = " and ".join(f"{size:,}" for size in sizes)
        why = f"only {shared:,} of their {of_each} tasks are in both, fewer than a tenth of the smaller run"
    else:
        differing = _differing(runs, common, sources)
        if differing.total() * 2 <= shared:
            return None
        why = " and ".join(
            f"{count:,} {'has' if count == 1 else 'have'} another {word}" for word, count in differing.items()
        )
        why = f"of {counted(shared, 'task')} with the same id, {why}"
    names = [run.name if (name := run.key[2]) is None else f"{run.name} (dataset {name!r})" for run in runs]
    return f"{' and '.join(names)} look like runs of different benchmarks: {why}"


def _differing(runs: tuple[ReadRun, ReadRun], common: Common, sources: Sequence[ReadSource]) -> Counter[str]:
    """The number of common tasks with different targets or, without targets, different prompts.

    Empty unless the tasks are paired by id and the datasets have different names.
    """
    datasets = {run.key[2] for run in runs}
    if common.alignment.by != "id" or len(datasets) < 2 or None in datasets:
        return Counter()
    texts = [sources[run.source].prompts(run.key) for run in runs]
    digests = [{task: digest for (_, task), digest in sources[run.source].digests.items()} for run in runs]
    contents: list[Sequence[Mapping[str, object]]] = [digests, [each.documents for each in texts]]
    texts_by_kind: dict[str, Sequence[Mapping[str, object]]] = {
        "target": [each.targets for each in texts],
        "prompt": [each.prompts for each in texts],
    }
    differing = Counter[str]()
    for task in common.first.tasks:
        if any(task in first and first[task] == second.get(task) for first, second in contents):
            continue
        for kind, (first, second) in texts_by_kind.items():
            if task in first and task in second:
                if first[task] != second[task]:
                    differing[kind] += 1
                break
    return differing


def check_tables(
    table_metrics: Mapping[str, CalipersError],
    measured: Collection[str],
    refused: Sequence[Mapping[str, str]],
    sources: Sequence[ReadSource],
) -> list[str]:
    """Notes on pairs of runs that lack a requested number of a document table; an error if all pairs lack it."""
    notes: list[str] = []
    names = short(key for source in sources for table in source.tables.values() if table for key in table.ways)
    for name, unknown in table_metrics.items():
        why = list(dict.fromkeys(text for reasons in refused for key, text in reasons.items() if _matches(name, key)))
        if any(_matches(name, text) for text in measured):
            notes += why
        elif why:
            raise InputError(f"metric {name!r}: {'; '.join(why)}")
        elif any(name in source.rollouts.rewards for source in sources):
            expectation = f"expected mean_reward(reward={name}), or --dialect lm_eval"
            raise InputError(f"{name!r} is a reward of these runs, not a metric; {expectation}")
        elif names and nearest(name, names):
            raise UnknownName.of("metric of these runs", name, names)
        else:
            raise type(unknown)(f"{unknown}; the tables of these runs have {', '.join(names)}") if names else unknown
    return notes


def _matches(name: str, key: str) -> bool:
    """Whether a requested name means a table's key: the key itself or its metric."""
    return name in (key, key.rpartition(",")[0])


def doubts_of(sources: Sequence[ReadSource], finished: Sequence[FinishedResult] = ()) -> Doubts:
    """The sources with a number of their own system that differs from ours, by path."""
    doubts: dict[str, list[Check]] = {}
    every = [(source.path, source.rollouts.checks) for source in sources]
    every += [(document.path, document.result.checks) for document in finished]
    for path, checks in every:
        if failed := failed_checks(checks):
            doubts.setdefault(path or "a table", []).extend(failed)
    return doubts


def source_notes(sources: Sequence[ReadSource], by: Collection[str] = ()) -> list[str]:
    """Notes of the readers, on numbers over several training steps, and on sources with the same content."""
    notes = doubts_about(doubts_of(sources))
    for source in sources:
        notes += [note for note in source.rollouts.notes if not note.endswith(COMPARED)]
    if STEP not in by:
        for source in sources:
            notes += [f"{source.path}: {note}" for note in over_steps(source.rollouts)]
    seen: dict[tuple[str, ...], str] = {}
    for source in sources:
        # files of results are left out: their rollouts are in files beside them
        hashes = tuple(file.sha256 for file in source.hashed() if file.format != "lm_eval_results")
        if hashes and hashes in seen:
            notes.append(f"{source.path} and {seen[hashes]} have the same content, so there is no difference")
        seen.setdefault(hashes, source.path)
    return notes
