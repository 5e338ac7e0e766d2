"""Reports of lm-evaluation-harness' tasks in its own format: its table, its files, and our intervals.

`LIBRARY`, at the end, is what runs and commands call of this system.

::

    logs ──► scores of every pipeline ──► its results object ──► table, results_*.json, samples_*.jsonl
                                     ├──► the documents' values ──► the run's documents.jsonl
                                     └──► our interval for each of its numbers ──► the result document's ``lm_eval``
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
from calipers.reports.figures import counted
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean
from calipers.running import Job, provenance
from calipers.running.library import CheckedTask, TaskLibrary
from calipers.running.settings import setting
from calipers.systems import OwnPage
from calipers.systems.lm_eval import benchmarks, client
from calipers.systems.lm_eval.aggregations import BOOTSTRAP, DocumentSpread, percentile_interval, resampled, spread
from calipers.systems.lm_eval.benchmarks import (
    LoadedTasks,
    check_documents,
    document_hashes,
    request_of,
    responses_of,
    scoring,
    scoring_settings,
    suite,
)
from calipers.systems.lm_eval.client import chat_template, prompt_settings, recorded_prompt
from calipers.systems.lm_eval.task_scores import TaskNumbers, TaskScores, answered_documents, score_documents
from calipers.systems.lm_eval.tasks.groups import Node, TaskGroup, every_group, leaves
from calipers.systems.lm_eval.tasks.loaded import LoadedTask, requests, seeded
from calipers.systems.lm_eval.write import (
    NOT_AVAILABLE,
    RanTask,
    digest,
    dumped,
    environment,
    file_path,
    file_text,
    line_text,
    model_blocks,
    results_object,
    run_results,
    sample_row,
    sanitized,
    table_of,
    tables,
    task_hash,
)
from calipers.tasks import Suite

if TYPE_CHECKING:
    from calipers.running.perform import Report

_MAX_FIXED: Final = 1e6  # larger numbers are printed with an exponent


@dataclass(frozen=True, slots=True)
class TableNumber:
    """A number of a task or a group with its interval; as text, a line.

    ``mc bits_per_byte,none 1.9000, 95% interval [1.8000, 2.1000] from 10,000 resamples, 400 documents``
    """

    name: str  # of the task or group
    key: str  # metric,pipeline
    value: float
    spread: DocumentSpread
    confidence: float
    count: int
    of: str = "documents"  # what is counted; "tasks" for a group

    def __str__(self) -> str:
        interval = f"no interval ({_plain_reason(self.spread.why)})"
        if self.spread.ends is not None:
            low, high = map(_digits, self.spread.ends)
            resamples = f" from {self.spread.draws:,} resamples" if self.spread.draws else ""
            interval = f"{100 * self.confidence:g}% interval [{low}, {high}]{resamples}"
        count = counted(self.count, self.of.removesuffix("s"))
        return f"{self.name} {self.key} {_digits(self.value)}, {interval}, {count}"


CALLED_ONCE: Final = "the task's own function is called once, as there; --interval default calls it for 200 draws"
_PLAIN_REASONS: Final = {  # reason in the result document -> wording on the page
    CALLED_ONCE: "the task's own function is called only once; --interval default calls it on 200 resamples",
    "one document": "there is only one document",
    "some documents are NaN": "some documents have the value NaN",
    "some draws give no finite number": "some resamples have no finite value",
    "every draw gives the same number": "every resample gives the same value",
}


def _plain_reason(why: str | None) -> str:
    return _PLAIN_REASONS.get(why or "", (why or "").replace("a draw has no number: ", "a resample has no value: "))


def task_numbers(task: str, scores: TaskScores, numbers: TaskNumbers, job: Job) -> Iterator[TableNumber]:
    """The numbers of a task with their intervals.

    A task's own aggregation function may be slow, so it is called on resamples only if the user asks for an interval.
    """
    method = canonical(job.interval) if job.interval else DEFAULT
    for index, (key, values) in enumerate(scores.values().items()):
        value, how = numbers.metrics.get(key), scores.aggregation(key.rpartition(",")[0])
        if not isinstance(value, (int, float)) or how == "bypass":
            continue
        if not isinstance(how, str) and not hasattr(how, "undrawn") and job.interval is None:
            interval = DocumentSpread(why=CALLED_ONCE)
        else:
            interval = spread(how, values, value, job.confidence, [job.seed, index], method)
        yield TableNumber(task, key, value, interval, job.confidence, len(values))


def group_numbers(
    groups: Sequence[TaskGroup], rows: Mapping[str, Mapping[str, Any]], scores: Mapping[str, TaskScores], job: Job
) -> Iterator[TableNumber]:
    """The numbers of groups with their intervals; ``rows`` are those of lm-evaluation-harness' results, by name."""
    for index, group in enumerate({group.name: group for group in groups}.values()):
        row = rows[group.name]
        tasks = dict.fromkeys(leaf.name for leaf in leaves(group.members))
        for key in row.get("sample_count", {}):
            members = [name for name in tasks if name in scores and key in rows[name]]
            weighted = _weighted(group, key)
            sizes = [float(rows[name]["sample_len"]) if weighted else 1.0 for name in members]
            rng = np.random.Generator(np.random.PCG64([job.seed, 1 << 20, index]))
            interval = _group_spread(key, [scores[name] for name in members], sizes, job, rng)
            yield TableNumber(group.name, key, row[key], interval, job.confidence, len(members), "tasks")


def _group_spread(
    key: str, scores: Sequence[TaskScores], sizes: Sequence[float], job: Job, rng: np.random.Generator
) -> DocumentSpread:
    """The interval of a mean over tasks, weighted by ``sizes``, from resamples of each task's documents."""
    hows = [task.aggregation(key.rpartition(",")[0]) for task in scores]
    if job.interval is None and not all(isinstance(how, str) for how in hows):
        return DocumentSpread(why=CALLED_ONCE)
    try:
        draws = [resampled(how, task.values()[key], rng) for how, task in zip(hows, scores, strict=True)]
    except CalipersError as error:
        return DocumentSpread(why=f"a draw has no number: {error}")
    fewest = min(map(len, draws))
    summed = sum(size * replicates[:fewest] for size, replicates in zip(sizes, draws, strict=True)) / sum(sizes)
    return percentile_interval(np.asarray(summed), job.confidence)


def _weighted(group: TaskGroup, key: str) -> bool:
    """Whether a group's number weights tasks by their documents; the last entry for its metric and pipeline decides."""
    metric, _, pipeline = key.rpartition(",")
    weighted = True
    for entry in group.aggregate_metric_list:
        pipelines = entry.get("filter_list")
        listed = [pipelines] if isinstance(pipelines, str) else pipelines
        if entry["metric"] == metric and (listed is None or pipeline in listed):
            weighted = bool(entry.get("weight_by_size", True))
    return weighted


def _digits(value: float) -> str:
    """Format a number with four decimals, or four digits if it is huge, as the perplexity of a random model can be."""
    return f"{value:.4f}" if abs(value) < _MAX_FIXED else f"{value:.4g}"


Responses = Mapping[int, Sequence[Sequence[Any]]]
"""Document -> the responses to each of its requests, by sample: texts or likelihoods."""


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run with lm-evaluation-harness' scores of its documents."""

    task: LoadedTask
    responses: Responses
    scores: TaskScores


def score_run(task: LoadedTask, log: Path, repeats: int) -> ScoredRun:
    """Score a run from its log of completions; InputError unless at least one document has all its completions."""
    complete = {number: texts[:repeats] for number, texts in sorted(responses(log).items()) if len(texts) >= repeats}
    if not complete:
        expected = f"expected {repeats} completions of one document"
        raise InputError.at(str(log), "no document has all its completions", expected)
    answers = {number: responses_of(task, number, texts) for number, texts in complete.items()}
    scores = score_documents(answered_documents(task, answers), scoring(task), scoring_settings(task))
    return ScoredRun(task, answers, scores)


def responses(log: Path) -> dict[int, list[str]]:
    """The completions of each document in sample order, up to the first missing one; the last attempt counts."""
    last: dict[tuple[int, int], tuple[int, str | None]] = {}
    for line, record in _records(log):
        try:
            key = int(record["task"]), int(record.get("sample", 0))
            attempt, completion = int(record.get("attempt", 1)), record.get("completion")
        except (TypeError, ValueError, KeyError):
            problem = "is not a rollout of a task of lm-evaluation-harness"
            raise InputError.at(f"{log}:{line}", problem, "expected the log of its run") from None
        if key not in last or attempt > last[key][0]:
            last[key] = attempt, completion if isinstance(completion, str) else None
    documents: dict[int, list[str]] = {}
    for number, sample in sorted(last):
        text, texts = last[number, sample][1], documents.setdefault(number, [])
        if text is not None and len(texts) == sample:
            texts.append(text)
    return documents


def _records(log: Path) -> Iterator[tuple[int, Any]]:
    """The records of a log with their line numbers; a last line that a crash cut off is ignored."""
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


def _summaries(scored: ScoredRun) -> dict[str, Summed]:
    """How each number of the table is computed from the documents' values, by its key and in the table's order."""
    better, summaries = scored.scores.higher_is_better(), {}
    for key in scored.scores.values():
        metric, _, pipeline = key.rpartition(",")
        how = scored.scores.aggregation(metric)
        summaries[key] = Summed(metric, pipeline, how if isinstance(how, str) else None, better.get(metric))
    return summaries


def _document_values(scored: ScoredRun) -> Iterator[DocumentValues]:
    """Each document's number, hash, and value for every number of the table."""
    for index, number in enumerate(scored.responses):
        values = {
            f"{metric},{scored_pipeline.scoring.pipeline.name}": value
            for scored_pipeline in scored.scores.pipelines
            for metric, value in scored_pipeline.scores[index].items()
        }
        yield str(number), digest(dumped(scored.task.docs[number])), values


def sample_rows(scored: ScoredRun, chat_template: Local | None = None) -> Iterator[dict[str, Any]]:
    """The lines of ``samples_<task>.jsonl``: all documents of the first pipeline, then of the next.

    Chat prompts are written through ``chat_template``.
    """
    task = scored.task
    arguments: dict[int, list[tuple[Any, ...]]] = {}
    for request in requests(task):
        if request.doc_id in scored.responses:
            prompt = recorded_prompt(request.args[0], chat_template)
            arguments.setdefault(request.doc_id, []).append((prompt, *request.args[1:]))
    for scored_pipeline in scored.scores.pipelines:
        name = scored_pipeline.scoring.pipeline.name
        for (number, responses), answers, scores in zip(
            scored.responses.items(), scored_pipeline.answers, scored_pipeline.scores, strict=True
        ):
            doc: Any = task.docs[number]
            target = task.target(doc, number)
            yield sample_row(number, doc, target, arguments[number], responses, answers, name, scores)


_MAX_NAMED: Final = 5  # tasks in a note


@dataclass(frozen=True, slots=True)
class TaskPart:
    """A finished run of one task: its responses and scores, its numbers, and their intervals."""

    job: Job
    scored: ScoredRun
    numbers: TaskNumbers
    intervals: list[TableNumber]
    nodes: Sequence[Node]  # the tasks and groups that its benchmark resolves to, this task among them

    @property
    def name(self) -> str:
        """The task's name."""
        return str(self.scored.task.config.task)


@dataclass(frozen=True, slots=True)
class HarnessReport:
    """Finished runs of one model, as lm-evaluation-harness reports them."""

    model: str
    results: dict[str, Any]  # its results object, without the hashes of samples
    parts: Sequence[TaskPart]
    numbers: list[TableNumber]  # its numbers with our intervals
    notes: list[str]

    @property
    def sentences(self) -> list[str]:
        """Lines with the interval of each number, and notes on numbers that are missing."""
        return [*map(str, self.numbers), *self.notes]

    def shown(self, shape: str) -> str:
        """The text to print below our table, or instead of it for Markdown; "" for other shapes and unscored runs."""
        if self.parts[0].job.predict_only or shape not in ("table", "md"):
            return ""
        if shape == "md":
            return tables(self.results)
        intervals = "".join(f"{line}\n" for line in self.sentences)
        return f"\nlm-evaluation-harness' own table\n{tables(self.results)}\nintervals\n{intervals}"

    def document(self) -> dict[str, Any]:
        """Every number with its standard error by lm-evaluation-harness and our interval, as strict JSON."""
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
        """Write the results file and the samples files below a folder, or beside a path that ends in ``.json``.

        ``name`` is the model's name in file names; ``blocks`` are added to the results object. Returns the paths.
        """
        time = moment.isoformat(timespec="microseconds")
        job = self.parts[0].job
        template = chat_template(job)
        parts = self.parts if with_samples else ()
        samples = {part.name: list(sample_rows(part.scored, template)) for part in parts}
        hashes = {task: task_hash(rows) for task, rows in samples.items()}
        prompts = prompt_settings(job, template)
        results = results_object(**{**self.results, "task_hashes": hashes, **(blocks or {}), **prompts})
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
    """The finished run in a folder, scored as lm-evaluation-harness scores it.

    InputError if no document has all its completions, or if the task's documents have changed since the run.
    """
    tasks = tasks or LoadedTasks()
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    check_documents(folder, str(task.config.task), document_hashes(task))
    with seeded(task.seeds):  # a metric may use random numbers, too
        scored = score_run(task, folder / LOG, job.samples)
    numbers = scored.scores.numbers()
    intervals = task_numbers(str(task.config.task), scored.scores, numbers, job)
    nodes = tasks.nodes(job.benchmark, job.include_path)
    return TaskPart(job, scored, numbers, list(intervals), nodes)


def documents(run: TaskPart, folder: Path) -> bytes:
    """The content of a run's ``documents.jsonl``: the value of each document for every number of the table."""
    size = (folder / LOG).stat().st_size
    return b"".join(document_lines(_summaries(run.scored), size, _document_values(run.scored)))


def joined(parts: Sequence[TaskPart]) -> Iterator[HarnessReport]:
    """The reports of finished runs: one per model, or more if several runs of the model have the same task name.

    A results object of lm-evaluation-harness has only one task of a name.
    """
    for model, runs in groupby(sorted(parts, key=lambda run: run.job.model), key=lambda run: run.job.model):
        remaining = list(runs)
        while remaining:
            first: dict[str, TaskPart] = {}
            repeated = [run for run in remaining if first.setdefault(run.name, run) is not run]
            yield _report(model, list(first.values()))
            remaining = repeated


def _report(model: str, parts: Sequence[TaskPart]) -> HarnessReport:
    ran = [_ran(run) for run in parts]
    scores = {task.name: task.scores for task in ran}
    groups, notes = [], []
    for group, members in _groups(parts):
        if missing := [leaf.name for leaf in leaves(group.members) if leaf.name not in members]:
            have = "has" if len(missing) == 1 else "have"
            notes.append(f"{group.name}: no row, because {', '.join(missing)} {have} no numbers here")
        else:
            groups.append(group)
    results = run_results(ran, groups, model_source="calipers", model_name=model)
    notes += [note for group in groups for note in _missing_numbers(group, results["results"])]
    numbers = [number for run in parts for number in run.intervals]
    numbers += group_numbers(groups, results["results"], scores, parts[0].job)
    notes += _other_methods(numbers, parts[0].job.interval)
    return HarnessReport(model, results, parts, numbers, notes)


def _other_methods(numbers: Sequence[TableNumber], requested: str | None) -> Iterator[str]:
    """A note on the numbers whose interval is a bootstrap one although another method was requested."""
    bootstrapped = [f"{number.name} {number.key}" for number in numbers if number.spread.method == BOOTSTRAP]
    if requested is not None and canonical(requested) not in (DEFAULT, BOOTSTRAP) and bootstrapped:
        more = f" and {len(bootstrapped) - _MAX_NAMED} more" if len(bootstrapped) > _MAX_NAMED else ""
        names = ", ".join(bootstrapped[:_MAX_NAMED])
        yield f"--interval {requested} is for means of documents: {names}{more} are by draws"


def _missing_numbers(group: TaskGroup, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A note for each number that a group asks for and that none, or only some, of its tasks have."""
    names = [leaf.name for leaf in leaves(group.members)]
    row = rows[group.name]
    for metric in dict.fromkeys(str(entry["metric"]) for entry in group.aggregate_metric_list):
        keys = [key for key in row.get("sample_count", {}) if key.rpartition(",")[0] == metric]
        if not keys:
            yield f"{group.name}: no {metric}, because none of its tasks has it in the pipelines of its filter_list"
        for key in keys:
            without = [name for name in names if key not in rows[name]]
            more = ", ..." if len(without) > _MAX_NAMED else ""
            if without:
                over = f"{len(names) - len(without)} of {len(names)} tasks"
                yield f"{group.name} {key}: over {over}; none in {', '.join(without[:_MAX_NAMED])}{more}"


def _groups(parts: Sequence[TaskPart]) -> Iterator[tuple[TaskGroup, set[str]]]:
    """The groups of each benchmark, with the names of the tasks that were run for this benchmark."""
    for benchmark in dict.fromkeys(run.job.benchmark for run in parts):
        runs = [run for run in parts if run.job.benchmark == benchmark]
        members = {run.name for run in runs}
        yield from ((group, members) for group in every_group(runs[0].nodes))


def _ran(run: TaskPart) -> RanTask:
    task, scored = run.scored.task, run.scored
    source = task.file.path.name if task.file.path else "inline"
    if task.own is not None:
        source = ""  # the metadata of a class contains its config_source already
    return RanTask(task.config, source, scored.scores, run.numbers, len(task.docs), len(scored.responses))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


_NUMBER_SETTINGS: Final = (  # the settings of a run that its numbers depend on
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
    """The reports of the runs in some folders, and notes on task files that have changed; no model is called.

    ``interval`` is the interval method of means; None: the method of the run.

    The documents are read again from the task's files, and the completions from the log. ``trust`` must be given by
    the reader: a plan that says its code may be run is not enough, because someone else may have written it.
    """
    tasks = LoadedTasks()
    jobs, notes = [], []
    for path in paths:
        plan, settings = str(Path(path) / PLAN), read_settings(path)
        subject: dict[str, Any] = {name: settings.get(name) for name in ("benchmark", "model")}
        if not all(isinstance(name, str) for name in subject.values()):
            raise InputError.at(plan, "does not record what was run", "expected the plan of a run")
        recorded = {name: settings[name] for name in _NUMBER_SETTINGS if settings.get(name) is not None}
        checked = {name: setting(f"{plan}: {name}", name, value) for name, value in recorded.items()}
        checked |= {} if interval is None else {"interval": interval}
        job = Job(**subject, **checked, trust=trust)
        scored = settings.get("predict_only") is not True  # the plan of a --predict-only run has unscored tasks
        request = replace(request_of(job), predict_only=not scored)
        questions = suite(tasks.task(job.benchmark, str(job.lm_eval), request), scored=scored)
        check_documents(Path(path), questions.name, questions.metadata["lm_eval"]["document_hashes"])
        if provenance.identity(job, questions)["tasks"] != read_plan(path).identity.get("tasks"):
            notes.append(f"{path}: {job.benchmark} changed after the run; it is scored in its present form")
        jobs.append(job)
    parts = [part(job, Path(path), tasks) for job, path in zip(jobs, paths, strict=True)]
    return list(joined(parts)), notes


NAME: Final = "lm_eval"
FILES: Final = ("lm_eval_samples", "lm_eval_results")  # formats that lm-evaluation-harness wrote
REQUESTED: Final = ("num_fewshot", "predict_only", "trust")  # the options that decide how tasks are loaded


def _settings(benchmark: str, include_path: Sequence[str], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = {key: given[key] for key in REQUESTED if key in given}
    return benchmarks.settings(benchmark, benchmarks.TaskRequest(tuple(include_path), **known))


def _checked(benchmark: str, include_path: Sequence[str], given: Mapping[str, Any]) -> list[CheckedTask]:
    return benchmarks.checked(benchmark, benchmarks.TaskRequest(tuple(include_path), **given))


def _check_documents(path: Path, suite: Suite) -> None:
    benchmarks.check_documents(path, suite.name, suite.metadata[NAME]["document_hashes"])


def with_own_numbers(result: Result, paths: Sequence[str], trust: bool) -> Result:
    """Add the numbers of lm-evaluation-harness' table to a result, if all paths are our runs of its tasks.

    A task that has changed gets a note. A task that cannot be read, or that has functions and no ``trust``, gets a
    note in place of the numbers.
    """
    if not all(map(is_harness_run, paths)):
        return result
    try:
        reports, notes = stored_reports(paths, trust=trust, interval=result.interval)
        lines = [note for each in reports for note in each.notes if note.startswith("--interval")]
        notes = [*notes, *lines]
        return replace(result, own={NAME: [each.document() for each in reports]}, notes=[*result.notes, *notes])
    except CalipersError as error:
        return replace(result, notes=[*result.notes, f"lm-evaluation-harness' own numbers: {error}"])


def own_page(result: Result, shape: str, paths: Sequence[str], trust: bool) -> OwnPage | None:
    """lm-evaluation-harness' Markdown tables, for files that it wrote and for our runs of its tasks; None for others.

    ``trust`` permits running the functions of those tasks.
    """
    if shape != "md" or not paths:
        return None
    formats = [source.format for source in result.inputs]
    of_files = all(name in FILES for name in formats)
    if not of_files and not (all(name == "run" for name in formats) and all(map(is_harness_run, paths))):
        return None
    if not all(map(is_run, paths)):
        return OwnPage(table_of(paths), alone=True)
    reports, notes = stored_reports(paths, trust=trust, interval=result.interval)
    sentences = [line for each in reports for line in each.sentences]
    remarks = [*sentences, *(f"note: {clean(note, None)}" for note in notes)]
    return OwnPage("\n".join(tables(each.results) for each in reports), alone=True, remarks=remarks)


def run_page(reports: Sequence[Report], shape: str, export: Path | None) -> OwnPage:
    """lm-evaluation-harness' tables of the runs that have just ended; with ``export``, also write its files."""
    parts = [each.part for each in reports if each.part is not None]
    if export is not None and not any(each.job.lm_eval for each in reports):
        problem = "none of the runs is of a task of lm-evaluation-harness"
        raise InputError.at("--export", problem, "expected a task of lm-evaluation-harness")
    if not parts or (shape not in ("table", "md") and export is None):
        return OwnPage("")
    own_reports = list(joined(parts))
    texts = [text for each in own_reports if (text := each.shown(shape))]
    written: list[str] = []
    if export is not None:
        for each in own_reports:
            _, tokenizer_block = model_blocks(each.parts[0].job)
            blocks = {**environment(), **tokenizer_block, "date": time.time()}
            blocks["model_name_sanitized"] = sanitized(each.model)
            written += map(str, each.write(export, datetime.now(UTC).replace(tzinfo=None), blocks=blocks))
    return OwnPage(("\n" if shape == "md" else "").join(texts), remarks=written)


LIBRARY = TaskLibrary(
    name=NAME,
    is_known=benchmarks.is_known,
    settings=_settings,
    checked=_checked,
    loaded=benchmarks.LoadedTasks,
    suite=benchmarks.suite_of,
    check_documents=_check_documents,
    client=client.task_client,
    template=client.template_name,
    report=part,
    documents=documents,
    joined=joined,
    integrity=benchmarks.integrity,
    written_out=benchmarks.written_out,
    shown_config=benchmarks.shown_config,
    listed=benchmarks.listed,
)
