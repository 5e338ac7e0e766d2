"""A task of lm-evaluation-harness from responses to numbers: filter, score, reduce, aggregate.

::

    responses ──► pipelines ──► scores of each document ──► reduced over repeats ──► numbers of the task
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calipers.errors import InputError
from calipers.systems.lm_eval.metrics.bootstrap import ITERATIONS
from calipers.systems.lm_eval.metrics.task import TaskNumbers, aggregate_task, base, check, reduced
from calipers.systems.lm_eval.pipelines import STOPPED, FilteredAnswers, filtered
from calipers.systems.lm_eval.scores.choice import MORE, Choices, score_choices, score_more
from calipers.systems.lm_eval.scores.entries import (
    CHOICE,
    GENERATION,
    ROLLING,
    Entry,
    match_all,
    process,
    score_answer,
    score_loglikelihood,
    score_rolling,
)
from calipers.systems.lm_eval.scores.scorers import Scoring
from calipers.systems.lm_eval.tasks.loaded import LoadedTask
from calipers.systems.lm_eval.tasks.requests import gold
from calipers.text.patterns import RegexTimeout

Process = Callable[[Mapping[str, Any], list[Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Answered:
    """A document and what a model said to it."""

    doc: Mapping[str, Any]
    target: Any  # what is right: a text, the index of a choice, a list of either, the text itself when rolling
    resps: Sequence[Sequence[Any]]  # [requests x repeats] texts, (log-likelihood, is_greedy), or log-likelihoods
    choices: Sequence[str] | None = None
    delimiter: str = ""  # stood before each of them


@dataclass(frozen=True, slots=True)
class Way:
    """How documents of a task are scored, besides its pipelines and metrics."""

    kind: str = GENERATION
    several: bool = False  # any of several targets is right
    process_results: Process | None = None
    reduction: str | None = None  # of repeats that no filter picked from, where neither metric nor scorer says


@dataclass(frozen=True, slots=True)
class ScoredPipeline:
    """What one pipeline made of all documents."""

    scoring: Scoring
    answers: list[list[Any]]  # [D x requests] what came out of the filters
    outcomes: list[str]  # [D] the ledger's word
    repeats: list[dict[str, list[Any]]]  # [D] each metric's scores, one a repeat; nothing for a gap
    scores: list[dict[str, Any]]  # [D] each metric's score; nothing for a gap


@dataclass(frozen=True, slots=True)
class TaskScores:
    """What a task's documents are worth, pipeline by pipeline."""

    pipelines: list[ScoredPipeline] = field(default_factory=list)

    def values(self) -> dict[str, list[Any]]:
        """The documents' values under ``metric,pipeline``; gaps are not among them."""
        values: dict[str, list[Any]] = {}
        for scored in self.pipelines:
            for scores in scored.scores:
                for metric, value in scores.items():
                    values.setdefault(f"{metric},{scored.scoring.pipeline.name}", []).append(value)
        return values

    def numbers(self, iterations: int = ITERATIONS) -> TaskNumbers:
        """The task's numbers; a metric that a function made up has the aggregation of the one it stands beside."""
        return aggregate_task(self.values(), self._aggregations(), iterations)

    def aggregation(self, metric: str) -> Any:
        """How a metric's values become its number: a name, or somebody's function."""
        known = self._aggregations()
        return known.get(metric, known.get(base(metric), "mean"))

    def _aggregations(self) -> dict[str, Any]:
        known = {entry.name: entry.aggregation for scored in self.pipelines for entry in scored.scoring.metrics}
        return {**self._spread("aggregation"), **known}

    def higher_is_better(self) -> dict[str, bool | None]:
        """Which way each metric is better: those asked for, then those made of them, where that is known."""
        known = {entry.name: entry.higher_is_better for scored in self.pipelines for entry in scored.scoring.metrics}
        spread = self._spread("higher_is_better")
        made = {key.rpartition(",")[0] for key in self.values()} - set(known)
        order = [metric for key in self.values() if (metric := key.rpartition(",")[0]) in made]
        ways = {metric: known.get(base(metric), spread.get(metric)) for metric in order}
        return known | {metric: way for metric, way in ways.items() if way is not None}

    def _spread(self, what: str) -> dict[str, Any]:
        """What the keys of a function's answer inherit: of the only function there is among a pipeline's metrics."""
        inherited = {}
        for scored in self.pipelines:
            functions = [entry for entry in scored.scoring.metrics if entry.function is not None]
            names = {entry.name for entry in scored.scoring.metrics}
            for metric in {key for scores in scored.scores for key in scores} - names if len(functions) == 1 else ():
                inherited[metric] = getattr(functions[0], what)
        return inherited


def answered(task: LoadedTask, resps: Mapping[int, Sequence[Sequence[Any]]]) -> list[Answered]:
    """A task's documents with what is right for each, from the responses to them by their number."""
    delimiter = "" if task.multiple_inputs else task.config.target_delimiter
    documents = []
    for number, responses in resps.items():
        doc = task.docs[number]
        choices = task.choices(doc, number)
        documents.append(Answered(doc, right_answer(task, number), responses, choices, delimiter))
    return documents


def right_answer(task: LoadedTask, number: int) -> Any:
    """What counts as right for a document, as a task of its kind is scored."""
    doc = task.docs[number]
    if task.own is None and task.config.output_type != GENERATION:
        return target_of(task, number)
    if task.own is None and task.config.process_results is None:
        return gold(task, number, doc)
    return task.target(doc, number)


def target_of(task: LoadedTask, number: int) -> Any:
    """What is right where likelihoods are asked for: the target, or the context to choose where those differ."""
    doc = task.docs[number]
    return task.text(doc, number) if task.multiple_inputs else task.target(doc, number)


def score_documents(documents: Sequence[Answered], scorings: Sequence[Scoring], way: Way) -> TaskScores:
    """The scores of all documents, by every pipeline of a task."""
    if way.kind != GENERATION and any(len(each) > 1 for document in documents for each in document.resps):
        raise InputError(f"several repeats of a {way.kind} request; expected one, because all would be the same")
    for scoring in scorings:
        for entry in scoring.metrics:
            check(entry, max((len(each) for document in documents for each in document.resps), default=None))
    return TaskScores([_pipeline(documents, scoring, way) for scoring in scorings])


def _pipeline(documents: Sequence[Answered], scoring: Scoring, way: Way) -> ScoredPipeline:
    flat = [resps for document in documents for resps in document.resps]
    docs = [document.doc for document in documents for _ in document.resps]
    through_filters = filtered(scoring.pipeline, flat, docs)
    matched = _matched(documents, through_filters, scoring, way)
    if matched is not None:
        return matched
    answers, outcomes, repeats, scores, start = [], [], [], [], 0
    for number, document in enumerate(documents):
        rows = range(start, start + len(document.resps))
        start = rows.stop
        answers.append([through_filters.values[row] for row in rows])
        outcomes.append(next((word for word in map(through_filters.outcome, rows)), "scored"))
        kept = None if STOPPED in outcomes[-1:] else [_without_gaps(through_filters, row) for row in rows]
        try:
            each, reduced_scores = ({}, {}) if kept is None else _document(document, kept, scoring, way)
        except RegexTimeout:  # of what exact_match ignores
            (each, reduced_scores), outcomes[-1] = ({}, {}), STOPPED
        except InputError as error:
            raise InputError(f"pipeline {scoring.pipeline.name!r}, document {number}: {error}") from None
        repeats.append(each)
        scores.append(reduced_scores)
    return ScoredPipeline(scoring, answers, outcomes, repeats, scores)


def _matched(
    documents: Sequence[Answered], filtered_answers: FilteredAnswers, scoring: Scoring, way: Way
) -> ScoredPipeline | None:
    """All documents at once, where they are texts and exact_match is all that is asked; None where not."""
    alone = way.kind == GENERATION and way.process_results is None and not way.several
    if not alone or [entry.name for entry in scoring.metrics] != ["exact_match"] or scoring.metrics[0].function:
        return None
    entry = scoring.metrics[0]
    targets = [document.target for document in documents]
    if entry.k is not None or {type(text) for text in (*filtered_answers.values, *targets)} != {str}:
        return None
    try:
        values = match_all(filtered_answers.values, targets, entry.rules)
    except RegexTimeout:
        return None  # one by one, only the document that took too long is a gap
    hit: tuple[dict[str, list[Any]], dict[str, Any]] = _once({"exact_match": 1.0})
    miss = _once({"exact_match": 0.0})
    each = [hit if value else miss for value in values]
    answers = [[value] for value in filtered_answers.values]
    repeats, scores = [pair[0] for pair in each], [pair[1] for pair in each]
    return ScoredPipeline(scoring, answers, filtered_answers.all_outcomes(), repeats, scores)


def _without_gaps(filtered_answers: FilteredAnswers, row: int) -> Any:
    value, words = filtered_answers.values[row], filtered_answers.outcomes(row)
    if not isinstance(value, list) or STOPPED not in words or len(value) != len(words):
        return value
    return [repeat for repeat, word in zip(value, words, strict=True) if word != STOPPED]


def _document(
    document: Answered, results: list[Any], scoring: Scoring, way: Way
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """A document's scores, repeat by repeat and as one."""
    if way.process_results is not None:
        return _once(process(way.process_results, document.doc, results))
    names = [entry.name for entry in scoring.metrics]
    if way.kind != GENERATION:  # a pipeline that picks none of the repeats leaves the only one in a list
        results = [result[0] if isinstance(result, list) and len(result) == 1 else result for result in results]
    if way.kind == CHOICE:
        mutual = "acc_mutual_info" in names
        of = Choices.of(document.choices or (), results, document.target, mutual=mutual)
        if scoring.reduction is None:
            return _once(score_choices(of, names))
        of = replace(of, texts=[f"{document.delimiter}{text}" for text in of.texts])  # a scorer's lengths are of it all
        return _once(score_more(of, [name for name in names if name in MORE], several=way.several))
    if way.kind == ROLLING:
        return _once(score_rolling(float(results[0]), str(document.target), names))
    if way.kind != GENERATION:
        return _once(score_loglikelihood(results[0], names))
    each: dict[str, list[Any]] = {}
    scores: dict[str, Any] = {}
    for entry in scoring.metrics:
        how = entry.reduction or way.reduction or scoring.reduction
        for key, values in _repeats(entry, document.target, results[0], way.several, split=how is not None).items():
            each[key] = values
            scores |= reduced(key, values, how or "take_first", entry.k, document.target)
    return each, scores


def _repeats(entry: Entry, target: Any, answer: Any, several: bool, *, split: bool) -> dict[str, list[Any]]:
    """A metric's scores, one for each repeat where they are to be reduced; else lm-eval's one for all of them."""
    answers = answer if split and isinstance(answer, list) else [answer]
    scores: dict[str, list[Any]] = {}
    for value in answers:
        for key, score in score_answer([entry], target, value, several=several).items():
            scores.setdefault(key, []).append(score)
    return scores


def _once(scores: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    return {key: [value] for key, value in scores.items()}, scores
