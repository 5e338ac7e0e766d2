"""Reports of lm-evaluation-harness' tasks in its own format: its table, its files, and intervals.

::

    logs ──► scores of every pipeline ──► its results object ──► table, results_*.json, samples_*.jsonl
                                     ├──► what each document keeps for them ──► the run's documents.jsonl
                                     └──► our interval for each of its numbers ──► the result document's ``lm_eval``
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from calipers.cards import DEFAULT, canonical
from calipers.clients.huggingface.checkpoint import Local
from calipers.errors import CalipersError, InputError
from calipers.formats.run_folder import (
    LOG,
    PLAN,
    DocumentValues,
    Summed,
    document_lines,
    is_run,
    read_plan,
    read_settings,
    whole,
)
from calipers.formats.source import opened
from calipers.running import Job, provenance
from calipers.running.settings import setting
from calipers.systems.lm_eval.aggregations import BOOTSTRAP, DocumentSpread, middle, resampled, spread
from calipers.systems.lm_eval.benchmarks import LoadedTasks, check_documents, document_hashes, request_of, suite
from calipers.systems.lm_eval.client import about, local, shown
from calipers.systems.lm_eval.judges import responses_of, scoring, way_of
from calipers.systems.lm_eval.task_scores import TaskNumbers, TaskScores, answered, score_documents
from calipers.systems.lm_eval.tasks.groups import Node, TaskGroup, every_group, leaves
from calipers.systems.lm_eval.tasks.loaded import LoadedTask, seeded
from calipers.systems.lm_eval.tasks.requests import Asking, requests
from calipers.systems.lm_eval.write import (
    NOT_AVAILABLE,
    RanTask,
    digest,
    dumped,
    file_path,
    file_text,
    line_text,
    results_object,
    run_results,
    sample_row,
    tables,
    task_hash,
)

MANY_DIGITS: Final = 1e6


@dataclass(frozen=True, slots=True)
class TableNumber:
    """A number of a task or a group, and how sure it is; as text, a line.

    ``mc bits_per_byte,none 1.9000, 95% interval [1.8000, 2.1000] from 10,000 resamples, 400 documents``
    """

    name: str  # of the task or group
    key: str  # metric,pipeline
    value: float
    spread: DocumentSpread
    confidence: float
    count: int
    of: str = "documents"  # or of a group, tasks

    def __str__(self) -> str:
        interval = f"no interval ({_plain(self.spread.why)})"
        if self.spread.ends is not None:
            low, high = map(_shown, self.spread.ends)
            drawn = f" from {self.spread.draws:,} resamples" if self.spread.draws else ""
            interval = f"{100 * self.confidence:g}% interval [{low}, {high}]{drawn}"
        return f"{self.name} {self.key} {_shown(self.value)}, {interval}, {self.count:,} {self.of}"


CALLED_ONCE: Final = "the task's own function is called once, as there; --interval default calls it for 200 draws"
_PLAIN: Final = {  # the reasons of the document, as the page prints them
    CALLED_ONCE: "the task's own function is called only once; --interval default calls it on 200 resamples",
    "one document": "there is only one document",
    "some documents are NaN": "some documents have the value NaN",
    "some draws give no finite number": "some resamples have no finite value",
    "every draw gives the same number": "every resample gives the same value",
}


def _plain(why: str | None) -> str:
    return _PLAIN.get(why or "", (why or "").replace("a draw has no number: ", "a resample has no value: "))


def task_numbers(task: str, scores: TaskScores, numbers: TaskNumbers, job: Job) -> Iterator[TableNumber]:
    """How sure each number of a task is.

    A function of the task's own may cost anything: it is called on draws only where the user asks for an interval.
    """
    method = canonical(job.interval) if job.interval else DEFAULT
    for index, (key, values) in enumerate(scores.values().items()):
        value, how = numbers.metrics.get(key), scores.aggregation(key.rpartition(",")[0])
        if not isinstance(value, (int, float)) or how == "bypass":
            continue
        undrawn = not isinstance(how, str) and not hasattr(how, "undrawn") and job.interval is None
        interval = (
            DocumentSpread(why=CALLED_ONCE)
            if undrawn
            else spread(how, values, value, job.confidence, [job.seed, index], method)
        )
        yield TableNumber(task, key, value, interval, job.confidence, len(values))


def group_numbers(
    groups: Sequence[TaskGroup], rows: Mapping[str, Mapping[str, Any]], scores: Mapping[str, TaskScores], job: Job
) -> Iterator[TableNumber]:
    """The same for each number of a group; ``rows`` are those of lm-evaluation-harness' results, by name."""
    for index, group in enumerate({group.name: group for group in groups}.values()):
        names = list(dict.fromkeys(leaf.name for leaf in leaves(group.members)))
        for key in rows[group.name].get("sample_count", {}):
            there = [name for name in names if name in scores and key in rows[name]]
            metric = key.rpartition(",")[0]
            weighted = _weighted(group, key)
            sizes = [float(rows[name]["sample_len"]) if weighted else 1.0 for name in there]
            rng = np.random.Generator(np.random.PCG64([job.seed, 1 << 20, index]))
            ways = [scores[name].aggregation(metric) for name in there]
            if job.interval is None and not all(isinstance(how, str) for how in ways):
                interval = DocumentSpread(why=CALLED_ONCE)
                yield TableNumber(group.name, key, rows[group.name][key], interval, job.confidence, len(there), "tasks")
                continue
            try:
                draws = [resampled(how, scores[name].values()[key], rng) for how, name in zip(ways, there, strict=True)]
            except CalipersError as error:
                interval = DocumentSpread(why=f"a draw has no number: {error}")
            else:
                fewest = min(map(len, draws))
                summed = sum(size * drawn[:fewest] for size, drawn in zip(sizes, draws, strict=True)) / sum(sizes)
                interval = middle(np.asarray(summed), job.confidence)
            yield TableNumber(group.name, key, rows[group.name][key], interval, job.confidence, len(there), "tasks")


def _weighted(group: TaskGroup, key: str) -> bool:
    """Whether a group's number weighs tasks by their documents: as the last entry of its metric and pipeline says."""
    metric, _, pipeline = key.rpartition(",")
    weighted = True
    for entry in group.aggregate_metric_list:
        pipelines = entry.get("filter_list")
        listed = [pipelines] if isinstance(pipelines, str) else pipelines
        if entry["metric"] == metric and (listed is None or pipeline in listed):
            weighted = bool(entry.get("weight_by_size", True))
    return weighted


def _shown(value: float) -> str:
    """A number in few digits; the perplexity of a model that knows nothing has many."""
    return f"{value:.4f}" if abs(value) < MANY_DIGITS else f"{value:.4g}"


Responses = Mapping[int, Sequence[Sequence[Any]]]
"""Document -> what was said to each of its requests, by sample: texts, or likelihoods."""


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """What a run comes to in lm-evaluation-harness' own terms."""

    task: LoadedTask
    responses: Responses
    scores: TaskScores


def score_run(task: LoadedTask, log: Path, repeats: int) -> ScoredRun:
    """The scores of a run, from its log of completions; InputError where not one document was answered in full."""
    full = {number: texts[:repeats] for number, texts in sorted(responses(log).items()) if len(texts) >= repeats}
    if not full:
        raise InputError.at(
            str(log), "no document has all its completions", (f"expected {repeats} completions of one document")
        )
    answers = {number: responses_of(task, number, texts) for number, texts in full.items()}
    scores = score_documents(answered(task, answers), scoring(task), way_of(task))
    return ScoredRun(task, answers, scores)


def responses(log: Path) -> dict[int, list[str]]:
    """What a model said to each document, sample by sample up to the first gap; the last attempt counts."""
    last: dict[tuple[int, int], tuple[int, str | None]] = {}
    for line, record in _records(log):
        try:
            key = int(record["task"]), int(record.get("sample", 0))
            attempt, completion = int(record.get("attempt", 1)), record.get("completion")
        except (TypeError, ValueError, KeyError):
            wrong, right = "is not a rollout of a task of lm-evaluation-harness", "expected the log of its run"
            raise InputError.at(f"{log}:{line}", wrong, right) from None
        if key not in last or attempt > last[key][0]:
            last[key] = attempt, completion if isinstance(completion, str) else None
    documents: dict[int, list[str]] = {}
    for number, sample in sorted(last):
        text, texts = last[number, sample][1], documents.setdefault(number, [])
        if text is not None and len(texts) == sample:
            texts.append(text)
    return documents


def _records(log: Path) -> Iterator[tuple[int, Any]]:
    """The records of a log, each with the number of its line; a last one that a crash cut off is none."""
    with opened(log) as file:
        end = whole(str(log))
        for number, line in enumerate(file, start=1):
            end -= len(line)
            if end < 0:
                return
            if line.strip():
                try:
                    yield number, msgspec.json.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise InputError.at(f"{log}:{number}", f"malformed json: {error}") from None


def ways(scored: ScoredRun) -> dict[str, Summed]:
    """How the documents' values become each number of the table, by its key and in its order."""
    better, summed = scored.scores.higher_is_better(), {}
    for key in scored.scores.values():
        metric, _, pipeline = key.rpartition(",")
        how = scored.scores.aggregation(metric)
        summed[key] = Summed(metric, pipeline, how if isinstance(how, str) else None, better.get(metric))
    return summed


def document_values(scored: ScoredRun) -> Iterator[DocumentValues]:
    """What each document keeps for every number of the table."""
    for index, number in enumerate(scored.responses):
        values = {
            f"{metric},{through.scoring.pipeline.name}": value
            for through in scored.scores.pipelines
            for metric, value in through.scores[index].items()
        }
        yield str(number), digest(dumped(scored.task.docs[number])), values


def sample_rows(scored: ScoredRun, local: Local | None = None) -> Iterator[dict[str, Any]]:
    """The lines of ``samples_<task>.jsonl``: all documents of the first pipeline, then of the next.

    Chats are written as the ``local`` model's template puts them.
    """
    task = scored.task
    arguments: dict[int, list[tuple[Any, ...]]] = {}
    for request in requests(task, Asking()):
        if request.doc_id in scored.responses:
            arguments.setdefault(request.doc_id, []).append((shown(request.args[0], local), *request.args[1:]))
    for through in scored.scores.pipelines:
        name = through.scoring.pipeline.name
        for (number, responses), answers, scores in zip(
            scored.responses.items(), through.answers, through.scores, strict=True
        ):
            doc: Any = task.docs[number]
            target = task.target(doc, number)
            yield sample_row(number, doc, target, arguments[number], responses, answers, name, scores)


NAMED = 5  # tasks in a note


@dataclass(frozen=True, slots=True)
class TaskPart:
    """A finished run: its documents with what was said to them, its numbers, and how sure each is."""

    job: Job
    scored: ScoredRun
    numbers: TaskNumbers
    intervals: list[TableNumber]
    nodes: Sequence[Node]  # what its benchmark stands for: this task, and those that are run beside it

    @property
    def name(self) -> str:
        """The task's."""
        return str(self.scored.task.config.task)


@dataclass(frozen=True, slots=True)
class HarnessReport:
    """Finished runs of one model, as lm-evaluation-harness reports them."""

    model: str
    results: dict[str, Any]  # its results object, without the hashes of samples
    parts: Sequence[TaskPart]
    numbers: list[TableNumber]  # our interval for each of its numbers
    notes: list[str]

    @property
    def sentences(self) -> list[str]:
        """Our interval for each of its numbers, a line each, and why a number is not there."""
        return [*map(str, self.numbers), *self.notes]

    def shown(self, shape: str) -> str:
        """Its table beneath ours, or alone as Markdown; "" for another shape, and where nothing was scored."""
        if self.parts[0].job.predict_only or shape not in ("table", "md"):
            return ""
        if shape == "md":
            return tables(self.results)
        sure = "".join(f"{line}\n" for line in self.sentences)
        return f"\nlm-evaluation-harness' own table\n{tables(self.results)}\nintervals\n{sure}"

    def document(self) -> dict[str, Any]:
        """Every number with its standard error there and its interval here, as strict JSON."""
        document: dict[str, Any] = {"model": self.model, "tasks": {}, "groups": {}}
        for number in self.numbers:
            metric, _, pipeline = number.key.rpartition(",")
            error = self.results["results"][number.name].get(f"{metric}_stderr,{pipeline}", NOT_AVAILABLE)
            kind = "groups" if number.of == "tasks" else "tasks"
            document[kind].setdefault(number.name, {})[number.key] = {
                "value": _finite(number.value),
                "stderr": None if error == NOT_AVAILABLE else _finite(error),
                "interval": None if number.spread.ends is None else list(number.spread.ends),
                "method": number.spread.method,
                number.of: number.count,
                "higher_is_better": self.results["higher_is_better"].get(number.name, {}).get(metric),
                "why": number.spread.why,
            }
        return document

    def write(
        self,
        folder: Path,
        moment: datetime,
        *,
        name: str | None = None,
        blocks: Mapping[str, Any] | None = None,
        with_samples: bool = True,
    ) -> list[Path]:
        """Its results file and its samples files, below a folder, or beside a path that ends in ``.json``.

        ``name`` is the model's in the names of files, ``blocks`` are further ones of the results.
        """
        time = moment.isoformat(timespec="microseconds")
        job = self.parts[0].job
        chats = local(job)
        parts = self.parts if with_samples else ()
        samples = {part.name: list(sample_rows(part.scored, chats)) for part in parts}
        hashes = {task: task_hash(rows) for task, rows in samples.items()}
        results = results_object(**{**self.results, "task_hashes": hashes, **(blocks or {}), **about(job, chats)})
        texts = {file_path(folder, name or self.model, time): file_text(results)}
        for task, rows in samples.items():
            texts[file_path(folder, name or self.model, time, task)] = "".join(map(line_text, rows))
        for path, text in texts.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise InputError.at(str(path), f"cannot be written ({error.strerror})") from None
        return list(texts)


def part(job: Job, folder: Path, tasks: LoadedTasks | None = None) -> TaskPart:
    """A finished run in lm-evaluation-harness' terms.

    InputError where not one document was answered in full, and where its documents are not those that were asked.
    """
    tasks = tasks or LoadedTasks()
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    check_documents(folder, str(task.config.task), document_hashes(task))
    with seeded(task.seeds):  # a metric may draw, too
        scored = score_run(task, folder / LOG, job.samples)
    numbers = scored.scores.numbers()
    intervals = task_numbers(str(task.config.task), scored.scores, numbers, job)
    nodes = tasks.nodes(job.benchmark, job.include_path)
    return TaskPart(job, scored, numbers, list(intervals), nodes)


def documents(run: TaskPart, folder: Path) -> bytes:
    """What each document keeps for the numbers of a run, to lie beside its log."""
    size = (folder / LOG).stat().st_size
    return b"".join(document_lines(ways(run.scored), size, document_values(run.scored)))


def joined(parts: Sequence[TaskPart]) -> Iterator[HarnessReport]:
    """The reports of finished runs, one for each model; tasks of one name in several, as it has but one of a name."""
    for model, alike in groupby(sorted(parts, key=lambda run: run.job.model), key=lambda run: run.job.model):
        rest = list(alike)
        while rest:
            first: dict[str, TaskPart] = {}
            later = [run for run in rest if first.setdefault(run.name, run) is not run]
            yield _together(model, list(first.values()))
            rest = later


def _together(model: str, parts: Sequence[TaskPart]) -> HarnessReport:
    ran = [_ran(run) for run in parts]
    scores = {task.name: task.scores for task in ran}
    whole, notes = [], []
    for group, members in _groups(parts):
        lost = [leaf.name for leaf in leaves(group.members) if leaf.name not in members]
        whole += [] if lost else [group]
        notes += [f"{group.name}: no row, because {', '.join(lost)} has no numbers here"] if lost else []
    results = run_results(ran, whole, model_source="calipers", model_name=model)
    notes += [note for group in whole for note in _lacking(group, results["results"])]
    numbers = [number for run in parts for number in run.intervals]
    numbers += group_numbers(whole, results["results"], scores, parts[0].job)
    notes += _otherwise(numbers, parts[0].job.interval)
    return HarnessReport(model, results, parts, numbers, notes)


def _otherwise(numbers: Sequence[TableNumber], requested: str | None) -> Iterator[str]:
    """A sentence on the numbers whose interval is not by the method that was asked for."""
    drawn = [f"{number.name} {number.key}" for number in numbers if number.spread.method == BOOTSTRAP]
    if requested is not None and canonical(requested) not in (DEFAULT, BOOTSTRAP) and drawn:
        more = f" and {len(drawn) - NAMED} more" if len(drawn) > NAMED else ""
        yield f"--interval {requested} is for means of documents: {', '.join(drawn[:NAMED])}{more} are by draws"


def _lacking(group: TaskGroup, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each number that a group asks for and that none, or not all, of its tasks have."""
    names = [leaf.name for leaf in leaves(group.members)]
    row = rows[group.name]
    for metric in dict.fromkeys(str(entry["metric"]) for entry in group.aggregate_metric_list):
        keys = [key for key in row.get("sample_count", {}) if key.rpartition(",")[0] == metric]
        if not keys:
            yield f"{group.name}: no {metric}, because none of its tasks has it in the pipelines of its filter_list"
        for key in keys:
            without = [name for name in names if key not in rows[name]]
            more = ", ..." if len(without) > NAMED else ""
            if without:
                some = f"{len(names) - len(without)} of {len(names)} tasks"
                yield f"{group.name} {key}: over {some}; none in {', '.join(without[:NAMED])}{more}"


def _groups(parts: Sequence[TaskPart]) -> Iterator[tuple[TaskGroup, set[str]]]:
    """Each group that was asked for, and the tasks that were run as its members."""
    for benchmark in dict.fromkeys(run.job.benchmark for run in parts):
        alike = [run for run in parts if run.job.benchmark == benchmark]
        members = {run.name for run in alike}
        yield from ((group, members) for group in every_group(alike[0].nodes))


def _ran(run: TaskPart) -> RanTask:
    task, scored = run.scored.task, run.scored
    source = task.file.path.name if task.file.path else "inline"
    if task.own is not None:
        source = ""  # a class says itself what is known of it
    return RanTask(task.config, source, scored.scores, len(task.docs), len(scored.responses), numbers=run.numbers)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


KEPT: Final = (  # settings of a run that its numbers depend on
    *("samples", "lm_eval", "num_fewshot", "include_path", "load_seeds"),
    *("confidence", "interval", "seed"),
    *("apply_chat_template", "fewshot_as_multiturn", "system_instruction", "default_metrics", "task_metadata"),
    "model_args",
)


def is_harness_run(path: str) -> bool:
    """Whether a path is the folder of a run of one of lm-evaluation-harness' tasks."""
    return is_run(path) and read_settings(path).get("lm_eval") is not None


def stored_reports(
    paths: Sequence[str], *, trust: bool = False, interval: str | None = None
) -> tuple[list[HarnessReport], list[str]]:
    """The reports of the runs in some folders, and notes on task files that have changed; no model is asked.

    ``interval`` is how sure a mean is; None: as the run was told.

    The documents are read again from the task's own files; what a model said to them stands in the log. A run's own
    word that its code is to be trusted is not enough, as who reads it may be somebody else: ``trust`` is the reader's.
    """
    tasks = LoadedTasks()
    jobs, notes = [], []
    for path in paths:
        plan, settings = str(Path(path) / PLAN), read_settings(path)
        named: dict[str, Any] = {name: settings.get(name) for name in ("benchmark", "model")}
        if not all(isinstance(name, str) for name in named.values()):
            raise InputError.at(plan, "does not record what was run", "expected the plan of a run")
        kept = {name: settings[name] for name in KEPT if settings.get(name) is not None}
        checked = {name: setting(f"{plan}: {name}", name, value) for name, value in kept.items()}
        checked |= {} if interval is None else {"interval": interval}
        job = Job(**named, **checked, trust=trust)
        judged = settings.get("predict_only") is not True  # its plan is of tasks that nobody scores
        request = replace(request_of(job), predict_only=not judged)
        questions = suite(tasks.task(job.benchmark, str(job.lm_eval), request), scored=judged)
        check_documents(Path(path), questions.name, questions.metadata["lm_eval"]["document_hashes"])
        if provenance.identity(job, questions)["tasks"] != read_plan(path).identity.get("tasks"):
            notes.append(f"{path}: {job.benchmark} changed after the run; it is scored in its present form")
        jobs.append(job)
    parts = [part(job, Path(path), tasks) for job, path in zip(jobs, paths, strict=True)]
    return list(joined(parts)), notes
