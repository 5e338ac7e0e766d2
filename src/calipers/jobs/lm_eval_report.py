"""What runs of lm-evaluation-harness' tasks come to in its own terms: its table, its files, and how sure.

::

    logs ──► scores of every pipeline ──► its results object ──► table, results_*.json, samples_*.jsonl
                                     ├──► what each document keeps for them ──► the run's documents.jsonl
                                     └──► our interval for each of its numbers ──► the result document's ``lm_eval``
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from calipers.comparison.values import lines
from calipers.dialects.lm_eval_results import Ran, file_name, run_results
from calipers.jobs.job import Job
from calipers.jobs.lm_eval import Loaded, found, groups, wanted
from calipers.jobs.lm_eval_chat import about, local
from calipers.jobs.lm_eval_documents import check_documents, document_hashes
from calipers.jobs.lm_eval_numbers import Scored, document_values, sample_lines, score_run, ways
from calipers.jobs.lm_eval_sure import Sure, sure, sure_groups
from calipers.metrics.lm_eval_task import TaskNumbers
from calipers.readers.run_plan import LOG
from calipers.reports.lm_eval import NOT_AVAILABLE, file_text, results_object, task_hash
from calipers.reports.lm_eval_table import table
from calipers.tasks.lm_eval.groups import Group, leaves
from calipers.tasks.lm_eval.seeds import seeded

NAMED = 5  # tasks in a note


@dataclass(frozen=True, slots=True)
class Part:
    """A finished run: its documents with what was said to them, its numbers, and how sure each is."""

    job: Job
    scored: Scored
    numbers: TaskNumbers
    sure: list[Sure]

    @property
    def name(self) -> str:
        """The task's."""
        return str(self.scored.task.config.task)


@dataclass(frozen=True, slots=True)
class Theirs:
    """Finished runs of one model, as lm-evaluation-harness reports them."""

    model: str
    results: dict[str, Any]  # its results object, without the hashes of samples
    parts: Sequence[Part]
    numbers: list[Sure]  # our interval for each of its numbers
    notes: list[str]

    @property
    def sure(self) -> list[str]:
        """Our interval for each of its numbers, a line each, and why a number is not there."""
        return [*map(str, self.numbers), *self.notes]

    def tables(self) -> str:
        """The table it prints, and that of its groups where there are some."""
        blocks = [table(self.results), *([table(self.results, "groups")] if self.results.get("groups") else [])]
        return "\n".join(blocks)

    def document(self) -> dict[str, Any]:
        """Every number with its standard error there and its interval here, as strict JSON."""
        told: dict[str, Any] = {"model": self.model, "tasks": {}, "groups": {}}
        for one in self.numbers:
            metric, _, pipeline = one.key.rpartition(",")
            error = self.results["results"][one.name].get(f"{metric}_stderr,{pipeline}", NOT_AVAILABLE)
            kind = "groups" if one.of == "tasks" else "tasks"
            told[kind].setdefault(one.name, {})[one.key] = {
                "value": _finite(one.value),
                "stderr": None if error == NOT_AVAILABLE else _finite(error),
                "interval": None if one.spread.ends is None else list(one.spread.ends),
                "method": one.spread.method,
                one.of: one.count,
                "higher_is_better": self.results["higher_is_better"].get(one.name, {}).get(metric),
                "why": one.spread.why,
            }
        return told

    def write(self, folder: Path, moment: datetime) -> list[Path]:
        """Its results file and its samples files, below a folder."""
        time = moment.isoformat(timespec="microseconds")
        job = self.parts[0].job
        chats = local(job)
        samples = {part.name: list(sample_lines(part.scored, chats)) for part in self.parts}
        hashes = {name: task_hash([json.loads(line) for line in lines]) for name, lines in samples.items()}
        results = results_object(**{**self.results, "task_hashes": hashes, **about(job, chats)})
        texts = {file_name(self.model, time): file_text(results)}
        texts |= {file_name(self.model, time, task): "".join(lines) for task, lines in samples.items()}
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in texts]


def part(job: Job, folder: Path, tasks: Loaded | None = None) -> Part:
    """A finished run in lm-evaluation-harness' terms.

    InputError where not one document was answered in full, and where its documents are not those that were asked.
    """
    task = (tasks or Loaded()).task(job.benchmark, str(job.lm_eval), wanted(job))
    check_documents(folder, str(task.config.task), document_hashes(task))
    with seeded(task.seeds):  # a metric may draw, too
        scored = score_run(task, folder / LOG, job.samples)
    numbers = scored.scores.numbers()
    name = str(scored.task.config.task)
    return Part(job, scored, numbers, list(sure(name, scored.scores, job.confidence, job.seed)))


def documents(found: Part, folder: Path) -> bytes:
    """What each document keeps for the numbers of a run, to lie beside its log."""
    size = (folder / LOG).stat().st_size
    return b"".join(lines(ways(found.scored), size, document_values(found.scored)))


def theirs(runs: Sequence[tuple[Job, Path]], tasks: Loaded | None = None) -> Iterator[Theirs]:
    """The reports of finished runs, from their folders."""
    tasks = tasks or Loaded()
    return joined([part(job, folder, tasks) for job, folder in runs])


def joined(parts: Sequence[Part]) -> Iterator[Theirs]:
    """The reports of finished runs, one for each model; tasks of one name in several, as it has but one of a name."""
    for model, alike in groupby(sorted(parts, key=lambda one: one.job.model), key=lambda one: one.job.model):
        rest = list(alike)
        while rest:
            first: dict[str, Part] = {}
            later = [one for one in rest if first.setdefault(one.name, one) is not one]
            yield _together(model, list(first.values()))
            rest = later


def _together(model: str, parts: Sequence[Part]) -> Theirs:
    ran = [_ran(one) for one in parts]
    scores = {one.name: one.scores for one in ran}
    whole, notes = [], []
    for group, members in _groups(parts):
        lost = [leaf.name for leaf in leaves(group.members) if leaf.name not in members]
        whole += [] if lost else [group]
        notes += [f"{group.name}: no row, as {', '.join(lost)} has no numbers here"] if lost else []
    results = run_results(ran, whole, model_source="calipers", model_name=model)
    notes += [note for group in whole for note in _lacking(group, results["results"])]
    numbers = [one for each in parts for one in each.sure]
    numbers += sure_groups(whole, results["results"], scores, parts[0].job)
    return Theirs(model, results, parts, numbers, notes)


def _lacking(group: Group, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each number that a group asks for and that none, or not all, of its tasks have."""
    names = [leaf.name for leaf in leaves(group.members)]
    row = rows[group.name]
    for metric in dict.fromkeys(str(entry["metric"]) for entry in group.aggregate_metric_list):
        keys = [key for key in row.get("sample_count", {}) if key.rpartition(",")[0] == metric]
        if not keys:
            yield f"{group.name}: no {metric}, as none of its tasks has it, or none in the pipelines of its filter_list"
        for key in keys:
            without = [name for name in names if key not in rows[name]]
            more = ", ..." if len(without) > NAMED else ""
            if without:
                some = f"{len(names) - len(without)} of {len(names)} tasks"
                yield f"{group.name} {key}: over {some}; none in {', '.join(without[:NAMED])}{more}"


def _groups(parts: Sequence[Part]) -> Iterator[tuple[Group, set[str]]]:
    """Each group that was asked for, and the tasks that were run as its members."""
    for benchmark in dict.fromkeys(one.job.benchmark for one in parts):
        alike = [one for one in parts if one.job.benchmark == benchmark]
        members = {one.name for one in alike}
        yield from ((group, members) for group in groups(found(benchmark, wanted(alike[0].job))))


def _ran(one: Part) -> Ran:
    task, scored = one.scored.task, one.scored
    source = task.file.path.name if task.file.path else "inline"
    if task.own is not None:
        source = ""  # a class says itself what is known of it
    return Ran(task.config, source, scored.scores, len(task.docs), len(scored.responses), numbers=one.numbers)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
