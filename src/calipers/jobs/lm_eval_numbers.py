"""A finished run of a task of lm-evaluation-harness to its numbers: the log, through its filters and metrics.

A document counts once every repeat of it was answered; one that was not is a gap, and is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from calipers.comparison.values import Document, Summed
from calipers.dialects.lm_eval_scoring import TaskScores, Way, answered, score_documents
from calipers.errors import InputError
from calipers.jobs import lm_eval_class
from calipers.jobs.lm_eval_chat import shown
from calipers.jobs.lm_eval_judge import scoring
from calipers.jobs.lm_eval_likelihood import responses_of
from calipers.readers.run_plan import whole
from calipers.reports.lm_eval import digest, dumped, line_text, sample_row
from calipers.run.clients.hf_template import Local
from calipers.run.likelihood import read_back
from calipers.scores.entries import GENERATION
from calipers.tasks.lines import opened
from calipers.tasks.lm_eval.loaded import LoadedTask
from calipers.tasks.lm_eval.requests import Asking, requests

Responses = Mapping[int, Sequence[Sequence[Any]]]
"""Document -> what was said to each of its requests, by sample: texts, or likelihoods."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a run comes to in lm-evaluation-harness' own terms."""

    task: LoadedTask
    responses: Responses
    scores: TaskScores
    gaps: Sequence[int]  # documents that were begun and not answered in full


def score_run(task: LoadedTask, log: Path, repeats: int) -> Scored:
    """The scores of a run, from its log of completions; InputError where not one document was answered in full."""
    held, kind = responses(log), task.config.output_type
    full = {number: said[:repeats] for number, said in sorted(held.items()) if len(said) >= repeats}
    if not full:
        raise InputError.at(str(log), "no document was answered in full", f"expected {repeats} completions of one")
    several: dict[int, list[list[Any]]]
    if task.own is not None:
        several = {number: lm_eval_class.responses_of(task, number, said) for number, said in full.items()}
        way = lm_eval_class.way(task)
    else:
        several = {
            number: [said] if kind == GENERATION else responses_of(kind, read_back(said[0]))
            for number, said in full.items()
        }
        way = Way(kind, task.multiple_targets, task.config.process_results)
    scores = score_documents(answered(task, several), scoring(task), way)
    return Scored(task, several, scores, [number for number in held if number not in full])


def responses(log: Path) -> dict[int, list[str]]:
    """What a model said to each document, sample by sample up to the first gap; the last attempt counts."""
    last: dict[tuple[int, int], tuple[int, str | None]] = {}
    for line, record in _records(log):
        try:
            key = int(record["task"]), int(record.get("sample", 0))
            attempt, said = int(record.get("attempt", 1)), record.get("completion")
        except (TypeError, ValueError, KeyError):
            raise InputError.at(
                f"{log}:{line}", "is no rollout of such a task", "expected the log of its run"
            ) from None
        if key not in last or attempt > last[key][0]:
            last[key] = attempt, said if isinstance(said, str) else None
    found: dict[int, list[str]] = {}
    for number, sample in sorted(last):
        said, held = last[number, sample][1], found.setdefault(number, [])
        if said is not None and len(held) == sample:
            held.append(said)
    return found


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


def ways(scored: Scored) -> list[Summed]:
    """How the documents' values become each number of the table, in its order."""
    better, found = scored.scores.higher_is_better(), []
    for key in scored.scores.values():
        metric, _, pipeline = key.rpartition(",")
        how = scored.scores.aggregation(metric)
        found.append(Summed(metric, pipeline, how if isinstance(how, str) else None, better.get(metric)))
    return found


def document_values(scored: Scored) -> Iterator[Document]:
    """What each document keeps for every number of the table."""
    for at, number in enumerate(scored.responses):
        held = {
            f"{metric},{one.scoring.pipeline.name}": value
            for one in scored.scores.pipelines
            for metric, value in one.scores[at].items()
        }
        yield str(number), digest(dumped(scored.task.docs[number])), held


def sample_lines(scored: Scored, local: Local | None = None) -> Iterator[str]:
    """The lines of ``samples_<task>.jsonl``: all documents of the first pipeline, then of the next.

    Chats are written as the ``local`` model's template puts them.
    """
    task = scored.task
    asked: dict[int, list[tuple[Any, ...]]] = {}
    for request in requests(task, Asking()):
        if request.doc_id in scored.responses:
            asked.setdefault(request.doc_id, []).append((shown(request.args[0], local), *request.args[1:]))
    for one in scored.scores.pipelines:
        for at, (number, said) in enumerate(scored.responses.items()):
            doc: Any = task.docs[number]
            name, target = one.scoring.pipeline.name, task.target(doc, number)
            yield line_text(sample_row(number, doc, target, asked[number], said, one.answers[at], name, one.scores[at]))
