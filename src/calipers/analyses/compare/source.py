"""The sources of a comparison: their rollouts, texts, settings and tables; and whether they may be compared.

The table of rollouts keeps no texts, so that the files are read once more, and only what is wanted kept. Where a source
says nothing, is a pipe, or is of a kind that keeps no texts, there is nothing here. A table is that of a task of
lm-evaluation-harness: its numbers are computed from all documents together.
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
from calipers.formats.read import Input, begin, found_format
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
from calipers.reports.figures import POLICY, counted
from calipers.reports.page import load as load_document
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean
from calipers.request import Plan, RequestedMetric, make_plan
from calipers.rollouts.column import Bools, Ints, total
from calipers.rollouts.labels import STEP, over_steps
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.table import Part, Rollouts
from calipers.stats.estimate import Estimate
from calipers.stores import local

if TYPE_CHECKING:
    from calipers.analyses.compare.measure import Measured


COST: Final = "cost_usd"
Key = tuple[str | None, ...]  # agent, model, dataset
Digests = Mapping[tuple[str, str], str]  # (dataset, task) -> that of the task's content


@dataclass(frozen=True, slots=True)
class ReadSource:
    """What was read from one source."""

    path: str  # what it is called; "" for a table
    rollouts: Rollouts
    digests: Digests
    columns: Mapping[str, str]
    hashed: Callable[[], list[Input]]  # the files, once they are hashed
    unnumbered: frozenset[str] = frozenset()  # the files whose samples are numbered in order of appearance
    known: list[dict[Key, Texts]] = field(default_factory=list)  # what was read before
    tables: dict[Key, DocumentTable | None] = field(default_factory=dict)  # likewise

    def texts_by_group(self, wanted: frozenset[str]) -> Iterator[tuple[Key, Text]]:
        """What the files say, each text with its group: the first of every task, all of the wanted ones."""
        owner: dict[Key, Key | None] = {}
        before = Counter[tuple[Any, ...]]()  # the samples of a task in earlier files
        for file in self.hashed():
            samples = Counter[tuple[Any, ...]]()
            for text in _texts(file, self.columns, wanted):
                if file.path in self.unnumbered:  # each file begins to number at 0
                    unit = text[:4]
                    samples[unit] = max(samples[unit], int(text.sample) + 1)
                    text = text._replace(sample=text.sample + before[unit])
                who = text[:3]
                if who not in owner:
                    owner[who] = _owner(who, self.rollouts.keys)
                key = owner[who]
                if key is not None:
                    yield key, text
            before.update(samples)

    def texts(self, wanted: Mapping[Key, Collection[str]]) -> dict[Key, Texts]:
        """Prompts of all tasks, and the answers to the wanted ones, by group."""
        by_group = {key: Texts() for key in self.rollouts.keys}
        for key, text in self.texts_by_group(frozenset(task for tasks in wanted.values() for task in tasks)):
            texts, task = by_group[key], text.task
            if task not in texts.prompts and (prompt := prompt_of(text)) is not None:
                texts.prompts[task] = _hash(prompt)
            if text.document and task not in texts.documents:
                texts.documents[task] = text.document.encode()
            if text.target and task not in texts.targets:
                texts.targets[task] = text.target.encode()
            # of several attempts at one sample, the later record is the later attempt
            first = task not in texts.answers or text.sample <= texts.answers[task][0]
            if first and task in wanted.get(key, ()) and (answer := _answer(text)):
                texts.answers[task] = text.sample, answer[:LONGEST]
        return by_group

    def prompts(self, key: Key) -> Texts:
        """What a group says but for its answers; read once, however many runs it meets."""
        if not self.known:
            self.known.append(self.texts({}))
        return self.known[0].get(key) or Texts()

    def settings(self, dataset: str | None) -> dict[str, Any]:
        """How the run on a dataset was made, as far as the files say."""
        return settings_of(self.hashed(), dataset)

    def table(self, key: Key) -> DocumentTable | None:
        """What its documents keep for the numbers of lm-evaluation-harness' table of a group; read once."""
        if key not in self.tables:
            self.tables[key] = table_of(self.hashed(), key)
        return self.tables[key]

    @property
    def documented(self) -> bool:
        """Whether its records carry the hash of the document each task is made of."""
        return any(FORMATS.load(file.format).has_documents for file in self.hashed())


@dataclass(frozen=True, slots=True)
class CalledTable:
    """A table in memory, and what it is to be called in place of a path."""

    name: str
    table: Source


def read_source(
    source: Source, columns: Mapping[str, str], labels: Collection[str], progress: Progress | None
) -> ReadSource:
    """Read one source: anything that can be scored."""
    if isinstance(source, CalledTable):
        return replace(read_source(source.table, columns, labels, progress), path=source.name)
    given = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    paths = [os.fspath(path) for path in given if isinstance(path, (str, os.PathLike))]
    if paths and len(paths) == len(given):
        parts: list[Part] = []
        rollouts, inputs = begin(paths, columns=columns, labels=labels, progress=progress, kept=parts)
        digests = {key: digest for part in parts for key, digest in part.digests.items()}
        in_order = columns.get("sample") == NUMBERED
        unnumbered = frozenset(display(part.places.path) for part in parts if in_order or part.unnumbered)
        return ReadSource(display(" ".join(paths)), rollouts, digests, columns, cache(inputs), unnumbered)
    return ReadSource("", read(source, columns=columns, labels=labels), {}, columns, list)


@dataclass(frozen=True, slots=True)
class FinishedResult:
    """A result that was given instead of rollouts."""

    path: str  # "" for one in memory
    result: Result


def finished_results(sources: Sequence[Source]) -> tuple[list[FinishedResult], list[Source]]:
    """Results that are finished, and what has rollouts to read; of a folder of runs, what is inside."""
    from calipers.formats.read import is_result, unfolded

    finished, others = [], []
    for source in unfolded(sources):
        if isinstance(source, Result):
            finished.append(FinishedResult("", source))
        elif isinstance(source, (str, os.PathLike)) and is_result(os.fspath(source)):
            result = load_document(source)
            assert isinstance(result, Result)
            finished.append(FinishedResult(os.fspath(source), result))
        else:
            others.append(source)
    return finished, others


def on_tasks(rollouts: Rollouts, tasks: Collection[str]) -> Rollouts:
    """The rollouts of some tasks."""
    there = np.array([task in tasks for task in rollouts.tasks], dtype=np.bool_)
    return rollouts if there.all() else rollouts.where(there[rollouts.task])


def cost_of(rollouts: Rollouts) -> float | None:
    """What some rollouts cost; None where no cost was recorded."""
    column = rollouts.columns.get(COST)
    return None if column is None or not column.given.any() else float(total(column.kept()))


def estimate_of(part: Rollouts, request: RequestedMetric, plan: Plan) -> Estimate:
    """A metric of some rollouts as `score` has it; what is missing was looked for before."""
    policy = "gap" if plan.missing == "fail" else plan.missing
    result = score_rollouts(part, replace(plan, asked=[request], by=(), missing=policy, afterwards=None))
    return next(iter(result.groups[0].metrics.values()))


LONGEST = 4_000  # characters of an answer that are kept
DEEPEST = 32  # lists and objects within each other in which a text is looked for


@dataclass(slots=True)
class Texts:
    """What one group of rollouts says."""

    prompts: dict[str, bytes] = field(default_factory=dict)  # task -> hash of its prompt
    documents: dict[str, bytes] = field(default_factory=dict)  # task -> hash of the document it is made of
    targets: dict[str, bytes] = field(default_factory=dict)  # task -> hash of its right answer
    answers: dict[str, tuple[float, str]] = field(default_factory=dict)  # task -> (sample, text) of its first sample


def _texts(file: Input, columns: Mapping[str, str], wanted: frozenset[str]) -> Iterator[Text]:
    kind: Format = FORMATS.load(file.format)
    texts = kind.texts or (texts_of_rows if kind.line_extras or kind.extras else None)
    if texts is not None and (os.path.isfile(path := local(file.path)) or os.path.isdir(path)):
        yield from texts(path, columns, wanted)  # a pipe gives its bytes once


def _owner(who: Key, keys: Sequence[Key]) -> Key | None:
    """The group that a record belongs to, by what it says of itself; None where several may be meant."""
    matches = [key for key in keys if all(name is None or name == known for name, known in zip(who, key, strict=True))]
    exact = [key for key in matches if key == who]
    return (exact or matches)[0] if len(exact or matches) == 1 else None


def prompt_of(text: Text) -> str | None:
    """The text of a prompt: what the only message says, or all of them as they are; None without one."""
    value = _value(text.prompt)
    if value is None or value == "":
        return None
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    words = spoken(alone) if isinstance(alone, (str, dict)) else None
    return _written(value) if words is None else words


def said(stored: Any) -> str | None:
    """What a stored value says, decoded where that was left to be done."""
    return spoken(_value(stored))


def spoken(value: Any, deepest: int = DEEPEST) -> str | None:
    """What a JSON value says: a text, the last text of messages or parts, a number as it is written.

    >>> spoken([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": [{"text": "42"}]}])
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
    texts = (spoken(inner, deepest - 1) for inner in inside) if deepest else iter(())
    return next((text for text in texts if text is not None), None)


def error_of(text: Text) -> str | None:
    """What went wrong in a rollout: ``timeout: no answer after 60 s``; None where the record has no error."""
    value = _value(text.error)
    if isinstance(value, dict):
        parts = [str(value[key]) for key in ("kind", "message") if value.get(key)]
        return ": ".join(parts) or _written(value)
    return spoken(value)


def _answer(text: Text) -> str | None:
    answers = (said(stored) for stored in (text.answer, text.completion))
    return next((answer for answer in answers if answer is not None), None)


def _value(stored: Any) -> Any:
    """A value, decoded where that was left to be done; None for what is no JSON."""
    if not isinstance(stored, Raw):
        return stored
    try:
        return msgspec.json.decode(stored) if stored else None
    except BAD:
        return None


def _written(value: Any) -> str | None:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return None


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()


LONGEST_SETTING = 60
MOST = 12  # settings that are named one by one
ABSENT = object()
CALLED: Final = {
    "tasks": "the content of the tasks (with targets and verifiers)",
    "judged": "whether a verifier was used",
}
"""Plainer names for settings of a plan."""


def settings_of(inputs: Sequence[Input], dataset: str | None) -> dict[str, Any]:
    """How the files of a source say that a dataset's run was made; of several files only what they agree on."""
    settings: dict[str, Any] = {}
    for file in inputs:
        provenance = FORMATS.load(file.format).provenance
        for name, value in provenance(file.path, dataset) if provenance else ():
            settings[name] = ABSENT if name in settings and settings[name] != value else value
    return {name: value for name, value in settings.items() if value is not ABSENT}


def settings_differ(first: Mapping[str, Any], second: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    """The settings that both runs have and have differently, a sentence each."""
    notes = []
    for name, value in first.items():
        if name in second and _json(value) != _json(second[name]):
            shown = f"{_shown(value)} in {names[0]}, {_shown(second[name])} in {names[1]}"
            notes.append(f"{CALLED.get(name, name)} differs: {shown}")
    return [*notes[:MOST], f"and {len(notes) - MOST} more settings"] if len(notes) > MOST else notes


def tasks_differ(first: Digests, second: Digests, tasks: Sequence[str]) -> list[str]:
    """Whether the content of tasks has changed, a sentence or none."""
    common = set(tasks)
    changed = [
        task
        for (dataset, task), digest in first.items()
        if task in common and second.get((dataset, task), digest) != digest
    ]
    if not changed:
        return []
    return [f"{counted(len(changed), 'task')} changed between the runs ({_some(changed)}): their digests differ"]


def prompts_differ(first: Mapping[str, bytes], second: Mapping[str, bytes], tasks: Sequence[str]) -> list[str]:
    """Whether tasks of one id were asked with different prompts, a sentence or none."""
    known = [task for task in tasks if task in first and task in second]
    changed = [task for task in known if first[task] != second[task]]
    if not changed:
        return []
    notes = [f"the prompt differs in {len(changed):,} of {counted(len(known), 'common task')} ({_some(changed)})"]
    there = set(second.values())
    moved = sum(first[task] in there for task in changed)
    if moved:
        notes.append(f"{moved:,} of these prompts have another id in the other run; tasks were paired by id")
    return notes


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    return clean(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), LONGEST_SETTING)


def _some(tasks: Sequence[str]) -> str:
    return ", ".join(clean(task) for task in tasks[:3]) + (", …" if len(tasks) > 3 else "")


AGAIN: Final = "run the same calipers run command again to write it, or to see why that is not possible"
UNSCORED: Final = "run the same command without --predict-only and with --model replay/{}/{} to score its log"
_Line = TypeVar("_Line")


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """The numbers of a table, by ``metric,pipeline``, and what each document keeps for them; or why there are none."""

    ways: Mapping[str, Summed] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # key -> document -> value
    hashes: Mapping[str, str] = field(default_factory=dict)  # document -> hash of what it says
    whole: bool = True  # whether its means are here, too; else they are rewards of the rollouts
    why: str | None = None
    cure: str = AGAIN  # what would bring them, where there are none

    def named(self, name: str) -> list[str]:
        """The keys that a name means: itself, or a metric in each of its pipelines."""
        return [name] if name in self.ways else [key for key, way in self.ways.items() if way.metric == name]


@dataclass(slots=True)
class TableDifferences:
    """What was measured of two tables, and what must be said of the rest."""

    measured: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # where all numbers are asked for
    refused: dict[str, str] = field(default_factory=dict)  # a name that was asked for -> why it has no difference


@dataclass(frozen=True, slots=True)
class TableReader:
    """What another system makes of the documents of a task together, as functions."""

    read: Callable[[Sequence[Input], tuple[str | None, ...]], DocumentTable]
    """``read(inputs, (agent, model, dataset))``: the table of a group; an empty one where there is none."""
    compare: Callable[..., TableDifferences]
    """``compare(two tables, names, common tasks, clusters, question)``."""
    value: Callable[[str, Sequence[Any]], float]
    """``value(aggregation, values of all documents)``."""
    spread: Callable[[str, Sequence[Any], float, float, Sequence[int]], Any]
    """``spread(aggregation, values, value, confidence, seed)``: with ``ends``, or ``why`` there are none."""


def table_reader() -> TableReader:
    """The reader of document tables; it loads the other system."""
    reader: TableReader = load(DOCUMENT_TABLES)
    return reader


def table_of(inputs: Sequence[Input], key: tuple[str | None, ...]) -> DocumentTable | None:
    """The table of a group (agent, model, dataset) of a source; None where no file of it has one."""
    for file in inputs:
        theirs = file.format == "run" and is_theirs(os.path.dirname(file.path))
        if theirs or FORMATS.load(file.format).has_documents:
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
    """The differences of all numbers that both tables have, or of those that the question names; None without any."""
    if question.tables is None and not any(table and (table.ways or table.why) for table in (first, second)):
        return None
    tables = first or DocumentTable(whole=False), second or DocumentTable(whole=False)
    return table_reader().compare(tables, names, common, clusters, question)


def short(keys: Iterable[str]) -> list[str]:
    """The shortest names of some numbers: their metrics, where one pipeline has it.

    >>> short(["bleu,none", "exact_match,strict", "exact_match,loose"])
    ['bleu', 'exact_match,strict', 'exact_match,loose']
    """
    every = list(dict.fromkeys(keys))
    metrics = [key.rpartition(",")[0] for key in every]
    return [metric if metrics.count(metric) == 1 else key for metric, key in zip(metrics, every, strict=True)]


def is_theirs(folder: str) -> bool:
    """Whether the folder of a run is of one of lm-evaluation-harness' tasks."""
    return _setting(folder, TASK_LIBRARY_NAME) is not None


def _setting(folder: str, name: str) -> Any:
    """A setting of a run's plan; None where it has none."""
    try:
        return read_settings(folder).get(name)
    except InputError:
        return None  # the reader of rollouts says what is wrong with it


def stored(folder: str) -> DocumentTable:
    """The table of a run, from its folder."""
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


def _decoded(text: bytes, kind: type[_Line], where: str) -> _Line:
    try:
        return msgspec.json.decode(text, type=kind)
    except BAD as error:
        wrong = f"not a line of document values ({str(error).rstrip('.')})"
        raise InputError.at(where, wrong, "expected the file as calipers run wrote it") from None


MetricRequest = str | Mapping[str, Any]
ONE_SHARED_OF: Final = 10  # of so many tasks of the smaller run, at least one is common to runs of one benchmark


def ours_and_theirs(
    metrics: str | Sequence[MetricRequest] | None, dialect: str | None, sources: Sequence[Any]
) -> tuple[Sequence[MetricRequest] | None, dict[str, CalipersError]]:
    """Metrics by whose they are: ours, None where none was named and the dialect's own are meant; and those that may
    be numbers of a table, each with why it is none of ours. Where no source can have a table, all are taken for ours.

    A name that is ours means ours, whatever a table has: acc in lm_eval's dialect is the mean of a reward.
    """
    if not metrics:
        return None, {}
    every = [metrics] if isinstance(metrics, (str, Mapping)) else list(metrics)
    if not any(map(may_have_table, sources)):
        return every, {}
    ours: list[MetricRequest] = []
    theirs: dict[str, CalipersError] = {}
    for metric in every:
        try:
            make_plan([metric], dialect=dialect)
            ours.append(metric)
        except CalipersError as error:
            if not isinstance(metric, str):
                raise
            theirs[metric.strip()] = error
    return ours, theirs


def may_have_table(source: Any) -> bool:
    """Whether a source is a run of one of lm-evaluation-harness' tasks, or of its files; looked at, not read."""
    if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == STDIN:
        return False
    path = os.fspath(source)
    if os.path.isdir(path):
        return is_theirs(path) if is_run(path) else True  # of its results, perhaps
    if not os.path.isfile(path):  # a pipe gives its bytes once, and not to who merely looks
        return False
    try:
        with File(path) as file:
            return found_format(file).has_documents
    except InputError:  # the reader says it better
        return False


def gap_notes(name: str, part: Rollouts, missing: str) -> list[str]:
    """A note on the missing rollouts of a run; none where no rollout is missing."""
    gaps = Ledger.of(part).gaps
    if not gaps:
        return []
    are = "is" if gaps == 1 else "are"
    return [f"{name}: {gaps:,} of {len(part):,} rollouts of these tasks {are} missing ({POLICY[missing]})"]


def waiting_notes(settled: Bools) -> list[str]:
    """A note on the tasks that are not compared yet, because a task before them is unfinished."""
    waiting = int((~settled).sum())
    if not waiting:
        return []
    return [f"{counted(waiting, 'task')} excluded, from the first unfinished task on: finish the runs to include them"]


def check_gaps(contest: Sequence[ReadRun], question: Question) -> None:
    """Raise Incomplete where rollouts are missing and --missing fail is given."""
    if question.plan.missing != "fail":
        return
    for run in contest:
        if gaps := Ledger.of(run.rollouts).gaps:
            refusal = f"{run.name}: {gaps:,} of {len(run.rollouts):,} rollouts are missing"
            raise Incomplete(f"{refusal}; --missing gap excludes them, --missing zero counts them as 0")


def check_sources(sources: Sequence[Source]) -> None:
    """InputError where there is nothing to compare, or a file would be compared with itself."""
    if not sources:
        raise InputError("nothing to compare; expected two runs or more")
    paths = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
    real = [path if path == STDIN else os.path.realpath(path) for path in paths]
    for index, path in enumerate(real):
        if path in real[:index]:
            raise InputError.at(paths[index], "is given twice", "expected two different runs")


def unrelated(runs: tuple[ReadRun, ReadRun], common: Common, sources: Sequence[ReadSource]) -> str | None:
    """Why two runs with common ids are of different benchmarks; None where they are comparable.

    A new template changes the prompts and neither the targets nor the dataset's name; the tasks of a pilot are all in
    the full run; and where one benchmark has two names, its targets are the same.
    """
    sizes = [len(run.rollouts.tasks) for run in runs]
    shared = common.alignment.common
    if shared * ONE_SHARED_OF < min(sizes):
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
    """How many common tasks of datasets with two names have other targets or, without targets, other prompts."""
    datasets = {run.key[2] for run in runs}
    if common.alignment.by != "id" or len(datasets) < 2 or None in datasets:
        return Counter()
    texts = [sources[run.source].prompts(run.key) for run in runs]
    digests = [{task: digest for (_, task), digest in sources[run.source].digests.items()} for run in runs]
    equal: list[Sequence[Mapping[str, object]]] = [digests, [each.documents for each in texts]]
    ways: dict[str, Sequence[Mapping[str, object]]] = {
        "target": [each.targets for each in texts],
        "prompt": [each.prompts for each in texts],
    }
    differing = Counter[str]()
    for task in common.first.tasks:
        if any(task in first and first[task] == second.get(task) for first, second in equal):
            continue
        known = (word for word, (first, second) in ways.items() if task in first and task in second)
        word = next(known, None)
        if word is not None and ways[word][0][task] != ways[word][1][task]:
            differing[word] += 1
    return differing


def check_tables(
    theirs: Mapping[str, CalipersError],
    measured: Collection[str],
    refused: Sequence[Mapping[str, str]],
    sources: Sequence[ReadSource],
) -> list[str]:
    """Why some pairs of runs lack a number of lm-evaluation-harness' table; an error where all of them do."""
    notes: list[str] = []
    names = short(key for source in sources for table in source.tables.values() if table for key in table.ways)
    for name, unknown in theirs.items():
        why = list(dict.fromkeys(text for reasons in refused for key, text in reasons.items() if _means(name, key)))
        if any(_means(name, text) for text in measured):
            notes += why
        elif why:
            raise InputError(f"metric {name!r}: {'; '.join(why)}")
        elif any(name in source.rollouts.rewards for source in sources):
            right = f"expected mean_reward(reward={name}), or --dialect lm_eval"
            raise InputError(f"{name!r} is a reward of these runs, not a metric; {right}")
        elif names and nearest(name, names):
            raise UnknownName.of("metric of these runs", name, names)
        else:
            raise type(unknown)(f"{unknown}; the tables of these runs have {', '.join(names)}") if names else unknown
    return notes


def _means(name: str, key: str) -> bool:
    """Whether a name is a number of a table, or its metric in some pipeline."""
    return name in (key, key.rpartition(",")[0])


def source_notes(sources: Sequence[ReadSource], by: Collection[str] = ()) -> list[str]:
    """Notes of the readers, and notes on files with the same content and on several training steps in one number."""
    notes = [note for source in sources for note in source.rollouts.notes if not note.endswith(COMPARED)]
    if STEP not in by:
        notes += [f"{source.path}: {note}" for source in sources for note in over_steps(source.rollouts)]
    seen: dict[tuple[str, ...], str] = {}
    for source in sources:
        whole = [file for file in source.hashed() if file.format != "lm_eval_results"]  # whose rollouts stand beside it
        hashes = tuple(file.sha256 for file in whole)
        if hashes and hashes in seen:
            notes.append(f"{source.path} and {seen[hashes]} have the same content, so there is no difference")
        seen.setdefault(hashes, source.path)
    return notes
