"""From the responses to an lm-evaluation-harness task to its numbers: filter, score, reduce, aggregate.

::

    responses ──► pipelines ──► scores of each document ──► reduced over repeats ──► numbers of the task and its groups

The responses to a multiple-choice document are the log-likelihoods of its choices. Scores have lm-eval's names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.aggregations import ITERATIONS, OVERLAP, How, aggregate, squared_distance, stderr
from calipers.systems.lm_eval.entries import (
    CHOICE,
    GENERATION,
    ROLLING,
    Entry,
    Scoring,
    match_all,
    process,
    score_answer,
    score_loglikelihood,
    score_rolling,
)
from calipers.systems.lm_eval.pipelines import STOPPED, FilteredAnswers, filtered
from calipers.systems.lm_eval.tasks.loaded import LoadedTask, gold
from calipers.text.patterns import RegexTimeout

NO_CHOICE: Final = -100
"""lm-eval's index for a target that is not one of the choices."""

Gold = int | list[int]


@dataclass(frozen=True, slots=True)
class Choices:
    """The log-likelihoods of the choices of one document."""

    texts: Sequence[str]  # [C]
    lls: Sequence[float]  # [C] log-likelihood of each choice, given the question
    greedy: Sequence[bool]  # [C] whether the choice is the model's greedy completion
    gold: Gold
    unconditional: Sequence[float] | None = None  # [C] log-likelihood of each choice without the question

    @classmethod
    def of(cls, texts: Sequence[str], results: Sequence[Sequence[Any]], gold: Any, *, mutual: bool = False) -> Choices:
        """The choices of a document, from its results: ``[log-likelihood, is_greedy]`` per request.

        With ``mutual`` there may be twice as many requests, the second half of them without the question.
        """
        lls = [float(ll) for ll, _ in results]
        count = len(texts)
        if len(lls) not in (count, 2 * count) or (len(lls) != count and not mutual):
            raise InputError.at("multiple_choice", f"{len(lls)} results for {count} choices", "expected one for each")
        unconditional = lls[count:] if len(lls) > count else None
        greedy = [bool(flag) for _, flag in results[:count]]
        return cls(texts, lls[:count], greedy, gold_of(gold, texts), unconditional)


def gold_of(target: Any, texts: Sequence[str]) -> Gold:
    """The index (or list of indices) of the correct choice, from indices or texts; NO_CHOICE for any other target.

    >>> gold_of("no", ["yes", "no"]), gold_of([0, 7], ["a", "b"]), gold_of("maybe", ["yes", "no"])
    (1, [0, -100], -100)
    """
    if isinstance(target, (list, tuple)):
        return [index for choice in target if isinstance(index := gold_of(choice, texts), int)]
    if isinstance(target, str):
        return texts.index(target) if target in texts else NO_CHOICE
    if not isinstance(target, int):
        expected = "expected the index or the text of a choice"
        raise InputError.at("multiple_choice", f"the target is {target!r}", expected)
    return target if 0 <= target < len(texts) else NO_CHOICE  # acc of lm-eval has no negative index either


def argmax(values: Sequence[float]) -> int:
    """The index of the largest value, the first of equal ones; the first NaN counts as the largest."""
    best = 0
    for index, value in enumerate(values):
        if math.isnan(value):
            return index
        if value > values[best]:
            best = index
    return best


def softmax(values: Sequence[float]) -> list[float]:
    """The probabilities, which sum to 1, from unnormalised log-probabilities."""
    highest = max(values)
    weights = [math.exp(value - highest) for value in values]
    sum_of_weights = math.fsum(weights)
    return [weight / sum_of_weights for weight in weights]


def acc(choices: Choices) -> float:
    """1.0 if the likeliest choice is correct, else 0.0."""
    return _correct(choices, choices.lls)


def acc_norm(choices: Choices) -> float:
    """1.0 if the choice with the highest log-likelihood per character is correct, else 0.0."""
    return _correct(choices, [_per_unit(ll, len(text)) for ll, text in zip(choices.lls, choices.texts, strict=True)])


def acc_bytes(choices: Choices) -> float:
    """1.0 if the choice with the highest log-likelihood per UTF-8 byte is correct, else 0.0."""
    return _correct(choices, _per_byte(choices))


def acc_mutual_info(choices: Choices) -> float:
    """1.0 if the choice whose log-likelihood the question raises most is correct, else 0.0."""
    if choices.unconditional is None:
        expected = "expected the unconditional log-likelihoods, too"
        raise InputError.at("acc_mutual_info", "no log-likelihoods of the choices on their own", expected)
    if isinstance(choices.gold, list) and len(choices.gold) > 1:
        raise InputError.at("acc_mutual_info", "several targets", "expected a single one")
    return _correct(
        choices, [ll - unconditional for ll, unconditional in zip(choices.lls, choices.unconditional, strict=True)]
    )


def exact_match(choices: Choices) -> int:
    """1 if a correct choice is the model's greedy completion, else 0."""
    return int(any(choices.greedy[choice] for choice in _golds(choices) if choice != NO_CHOICE))


def pair(choices: Choices) -> tuple[Gold, int]:
    """(gold, likeliest choice), for f1 and mcc, which are computed from all documents together."""
    return choices.gold, argmax(choices.lls)


def brier_pair(choices: Choices) -> tuple[Gold, list[float]]:
    """(gold, probability of each choice), for brier_score."""
    return choices.gold, softmax(choices.lls)


def likelihood(choices: Choices) -> tuple[Gold, list[float]]:
    """(gold, log-likelihood of each choice)."""
    return choices.gold, list(choices.lls)


SCORES: Final[Mapping[str, Callable[[Choices], Any]]] = {  # in the order of lm-eval's results
    "acc": acc,
    "f1": pair,
    "mcc": pair,
    "matthews_corrcoef": pair,
    "acc_norm": acc_norm,
    "acc_bytes": acc_bytes,
    "exact_match": exact_match,
    "brier_score": brier_pair,
    "likelihood": likelihood,
    "acc_mutual_info": acc_mutual_info,
}


def score_choices(choices: Choices, names: Sequence[str]) -> dict[str, Any]:
    """A document's scores, in lm-eval's order; names that are not metrics of choices are ignored."""
    return {name: score(choices) for name, score in SCORES.items() if name in names}


def brier(choices: Choices) -> float:
    """The squared distance of the probabilities from the truth, 0 to 2."""
    gold = _only(choices, "brier_score")
    return squared_distance(softmax(choices.lls), gold)


def bpb(choices: Choices) -> float:
    """Bits per byte of the correct choice."""
    return -_per_byte(choices)[_only(choices, "bpb")] / math.log(2)


def logprob(choices: Choices) -> float:
    """The log-likelihood of the correct choice."""
    return choices.lls[_only(choices, "logprob")]


def choice_logprob(choices: Choices) -> float:
    """The log of the correct choice's probability among the choices."""
    return _log_softmax(choices.lls)[_only(choices, "choice_logprob")]


def choice_prob_norm(choices: Choices) -> float:
    """The correct choice's probability among the choices, from log-likelihoods per byte."""
    return softmax(_per_byte(choices))[_only(choices, "choice_prob_norm")]


def choice_logprob_norm(choices: Choices) -> float:
    """The log of `choice_prob_norm`."""
    return _log_softmax(_per_byte(choices))[_only(choices, "choice_logprob_norm")]


NEWER_SCORES: Final[Mapping[str, Callable[[Choices], Any]]] = {  # of lm-eval 0.5, not released yet
    **SCORES,
    "exact_match_mc": exact_match,
    "brier_score": brier,
    "bpb": bpb,
    "logprob": logprob,
    "choice_logprob": choice_logprob,
    "choice_prob_norm": choice_prob_norm,
    "choice_logprob_norm": choice_logprob_norm,
}


def score_newer_choices(choices: Choices, names: Sequence[str], *, multiple_targets: bool = False) -> dict[str, Any]:
    """A document's scores by lm-eval 0.5, in the order of ``names``; several targets need ``multiple_targets``."""
    if isinstance(choices.gold, list) and not multiple_targets:
        problem = f"the target is {choices.gold!r}"
        raise InputError.at("multiple_choice", problem, "expected one, or multiple_targets: true")
    for name in names:
        if name not in NEWER_SCORES:
            raise UnknownName.of("lm_eval metric", name, NEWER_SCORES)
    return {name: NEWER_SCORES[name](choices) for name in names}


def _golds(choices: Choices) -> list[int]:
    return choices.gold if isinstance(choices.gold, list) else [choices.gold]


def _correct(choices: Choices, values: Sequence[float]) -> float:
    return float(argmax(values) in _golds(choices))


def _only(choices: Choices, name: str) -> int:
    golds = _golds(choices)
    if len(golds) == 1 and golds[0] != NO_CHOICE:
        return golds[0]
    raise InputError.at(name, f"the target is {choices.gold!r}", "expected the index of one choice")


def _per_unit(ll: float, length: int) -> float:
    """The log-likelihood per unit of length; for an empty text infinite, or NaN if the log-likelihood is 0."""
    if length:
        return ll / length
    return math.nan if ll == 0 or math.isnan(ll) else math.copysign(math.inf, ll)


def _per_byte(choices: Choices) -> list[float]:
    sizes = (len(text.encode("utf-8", "surrogatepass")) for text in choices.texts)
    return [_per_unit(ll, size) for ll, size in zip(choices.lls, sizes, strict=True)]


def _log_softmax(values: Sequence[float]) -> list[float]:
    highest = max(values)
    log_sum = highest + math.log(math.fsum(math.exp(value - highest) for value in values))
    return [value - log_sum for value in values]


STEPS: Final = (1, 3, 5, 10, 20, 50, 100)  # the default k of pass_at_k
NAMES: Final = ("take_first", "mean", "pass_at_k", "pass@k", "majority")

Reduction = str | Callable[..., Any]


def pass_at_k(scores: Sequence[Any], k: int | Sequence[int] | None = None) -> dict[str, float]:
    """The probability that k of a document's n repeats include a pass, for each k; a nonzero score is a pass.

    ``1 - C(n - c, k) / C(n, k)`` for c passes (Chen et al. 2021). The default k are those of `default_ks`. A k larger
    than n is an error if no repeat passed, because the estimate is then undefined.

    >>> pass_at_k([1, 0, 0, 1], 1)
    {'pass@1': 0.5}
    """
    n, passes = len(scores), sum(map(bool, scores))
    ks = default_ks(n) if k is None else [k] if isinstance(k, int) else list(k)
    for size in ks:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError.at("pass_at_k", f"k is {size!r}", "expected a positive integer")
        if size > n and not passes:
            raise InputError.at("pass_at_k", f"k is {size}, but there are only {n} repeats", f"expected at most {n}")
    return {f"pass@{size}": _chance(n, passes, size) for size in ks}


def default_ks(n: int) -> list[int]:
    """The default k for n repeats: 1, 3, 5, 10, 20, 50 and 100 up to n, n, and for a larger n values from 100 to n.

    >>> default_ks(12)
    [1, 3, 5, 10, 12]
    """
    ks = {step for step in STEPS if step <= n} | ({n} if n else set())
    if n > STEPS[-1]:
        decades = math.log10(n) - 2
        pieces = max(2, 3 * int(decades))
        ks |= {int(10 ** (2 + i * decades / pieces)) for i in range(1, pieces)}
    return sorted(ks)


def reduced(name: str, values: Sequence[Any], how: Reduction, k: Any = None, reference: Any = None) -> dict[str, Any]:
    """Reduce a metric's values over one document's repeats: to one number, or several under ``part(metric)``.

    A single value without k is returned unchanged.

    >>> reduced("exact_match", [1, 0], "pass_at_k")
    {'pass@1(exact_match)': 0.5, 'pass@2(exact_match)': 1.0}
    """
    if len(values) == 1 and k is None:
        return {name: values[0]}
    if not values:
        raise InputError(f"metric {name!r}: a document has no repeats; expected at least one")
    if callable(how):
        try:
            result = how(reference, list(values))
        except Exception as error:
            raise PluginError(f"the reduction of {name!r} failed: {type(error).__name__}: {error}") from error
    elif how == "take_first":
        result = values[0]
    elif how == "mean":
        result = math.fsum(values) / len(values)
    elif how in ("pass_at_k", "pass@k"):
        result = pass_at_k(values, k)
    elif how == "majority":
        result = Counter(values).most_common(1)[0][0]
    else:
        raise UnknownName.of("reduction", how, NAMES)
    if not isinstance(result, Mapping):
        return {name: result}
    return {f"{part}({name})": score for part, score in result.items()}


def check(entry: Entry, repeats: int | None = None, location: str = "metric_list") -> None:
    """InputError for a reduction that does not exist, and for a k larger than the number of repeats."""
    how = entry.reduction
    if isinstance(how, str) and how not in NAMES:
        raise UnknownName.of("reduction", how, NAMES)
    if entry.k is not None:
        if how not in ("pass_at_k", "pass@k"):
            raise InputError.at(location, f"metric {entry.name!r} has k", "expected reduction: pass_at_k with it")
        pass_at_k([1] * (repeats or 1), entry.k)
        max_k = entry.k if isinstance(entry.k, int) else max(entry.k)
        if repeats is not None and max_k > repeats:
            expected = f"expected repeats: {max_k} or more"
            raise InputError.at(location, f"k is {max_k}, but repeats is {repeats}", expected)


def base(key: str) -> str:
    """The metric that a reduction's key belongs to: exact_match for ``pass@1(exact_match)``."""
    part, parenthesis, metric = key.partition("(")
    return metric.removesuffix(")") if part and parenthesis and metric.endswith(")") else key


def _chance(n: int, passes: int, k: int) -> float:
    if n - passes < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - passes + 1, n + 1)))


Numbers = dict[str, Any]
"""``metric,pipeline`` -> value, ``metric_stderr,pipeline`` -> standard error or None."""

OVERLAP_ITERATIONS: Final = 100
"""The most bootstrap iterations for bleu, chrf, chrf++ and ter, which are slow to resample."""


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """The numbers of a task."""

    metrics: Numbers
    sample_len: int  # the largest number of documents that any metric has


def aggregate_task(
    values: Mapping[str, Sequence[Any]], aggregations: Mapping[str, How], iterations: int = ITERATIONS
) -> TaskNumbers:
    """The numbers of a task, from its documents' values by ``metric,pipeline``; an unknown metric is averaged."""
    numbers: Numbers = {}
    for key, items in values.items():
        metric, _, pipeline = key.rpartition(",")
        how = aggregations.get(metric, aggregations.get(base(metric), "mean"))
        numbers[key] = aggregate(how, items)
        draws = min(iterations, OVERLAP_ITERATIONS) if metric in OVERLAP else iterations
        numbers[f"{metric}_stderr,{pipeline}"] = stderr(how, items, draws)
    return TaskNumbers(numbers, max(map(len, values.values()), default=0))


def aggregate_group(
    name: str,
    members: Iterable[str],
    tasks: Mapping[str, Mapping[str, Any]],
    aggregate_metric_list: Sequence[Mapping[str, Any]] = (),
    alias: str | None = None,
) -> dict[str, Any]:
    """A group's row, from the rows of the tasks below it, ``members``.

    A mean is weighted by documents unless ``weight_by_size: false``. The standard error of a weighted mean is that of
    the pooled sample, of an unweighted one ``sqrt(sum s^2) / k``; it is None if any task has none. Tasks without a row,
    or without the metric, are ignored; if no task has the metric, the group has no number for it.
    """
    names = [task for task in dict.fromkeys(members) if task in tasks]
    row: dict[str, Any] = {"alias": alias or name, "name": name}
    if not aggregate_metric_list:
        return row
    row["sample_len"] = sum(tasks[task].get("sample_len", 0) for task in names)
    counts: dict[str, int] = {}
    for entry in aggregate_metric_list:
        metric = str(entry["metric"])
        for pipeline in _pipelines(entry, metric, [tasks[task] for task in names]):
            key, stderr_key = f"{metric},{pipeline}", f"{metric}_stderr,{pipeline}"
            rows = [tasks[task] for task in names if key in tasks[task]]
            if not rows:
                continue
            sizes = [task["sample_len"] for task in rows]
            errors = [_number(task.get(stderr_key)) for task in rows]
            weighted = entry.get("weight_by_size", True)
            row[key] = _mean([task[key] for task in rows], sizes if weighted else [1] * len(rows))
            row[stderr_key] = _error(errors, sizes, weighted)
            counts[key] = sum(sizes)
    if counts:
        row["sample_count"] = counts
    return row


def _pipelines(entry: Mapping[str, Any], metric: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    listed = entry.get("filter_list")
    if listed is not None:
        return [listed] if isinstance(listed, str) else list(listed)
    keys = {key for row in rows for key in row if "," in key}
    return sorted({pipeline for name, _, pipeline in (key.rpartition(",") for key in keys) if name == metric})


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _error(errors: Sequence[float | None], sizes: Sequence[int], weighted: bool) -> float | None:
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    if not weighted:
        return math.sqrt(math.fsum(error * error for error in known)) / len(known)
    documents, k = sum(sizes), len(sizes)
    if documents <= k:
        return None
    pooled = math.fsum((n - 1) * n * error * error for n, error in zip(sizes, known, strict=True)) / (documents - k)
    return math.sqrt(pooled / documents)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


Process = Callable[[Mapping[str, Any], list[Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class AnsweredDocument:
    """A document and the responses to it."""

    doc: Mapping[str, Any]
    target: Any  # a text, the index of a choice, or a list of either; for a rolling log-likelihood, the scored text
    resps: Sequence[Sequence[Any]]  # [requests x repeats] texts, (log-likelihood, is_greedy), or log-likelihoods
    choices: Sequence[str] | None = None
    delimiter: str = ""  # between the context and each choice


@dataclass(frozen=True, slots=True)
class ScoringSettings:
    """The settings of a task's scoring other than its pipelines and metrics."""

    kind: str = GENERATION  # the output type
    multiple_targets: bool = False  # whether a document has several targets, any of which is correct
    process_results: Process | None = None


@dataclass(frozen=True, slots=True)
class ScoredPipeline:
    """The answers and scores of all documents under one pipeline."""

    scoring: Scoring
    answers: list[list[Any]]  # [D x requests] output of the filters
    outcomes: list[str]  # [D] outcome words
    repeats: list[dict[str, list[Any]]]  # [D] each metric's score per repeat; empty for a gap
    scores: list[dict[str, Any]]  # [D] each metric's score; empty for a gap
    sources: Mapping[str, Entry] = field(default_factory=dict)  # metric -> the entry that it was computed for


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The scores of a task's documents, by pipeline."""

    pipelines: list[ScoredPipeline] = field(default_factory=list)

    def values(self) -> dict[str, list[Any]]:
        """The documents' values by ``metric,pipeline``, without gaps."""
        values: dict[str, list[Any]] = {}
        for scored in self.pipelines:
            for scores in scored.scores:
                for metric, value in scores.items():
                    values.setdefault(f"{metric},{scored.scoring.pipeline.name}", []).append(value)
        return values

    def numbers(self, iterations: int = ITERATIONS) -> TaskNumbers:
        """The task's numbers."""
        return aggregate_task(self.values(), self._known("aggregation"), iterations)

    def aggregation(self, metric: str) -> Any:
        """The aggregation of a metric: a name, or a user's function."""
        known = self._known("aggregation")
        return known.get(metric, known.get(base(metric), "mean"))

    def higher_is_better(self) -> dict[str, bool | None]:
        """Whether higher is better: for each listed metric, then for each computed one for which it is known."""
        listed, known = self._listed("higher_is_better"), self._known("higher_is_better")
        computed = [metric for key in self.values() if (metric := key.rpartition(",")[0]) not in listed]
        directions = {metric: known.get(metric, known.get(base(metric))) for metric in computed}
        return listed | {metric: higher for metric, higher in directions.items() if higher is not None}

    def _listed(self, attribute: str) -> dict[str, Any]:
        """An attribute of each metric that the task lists."""
        entries = (entry for scored in self.pipelines for entry in scored.scoring.metrics)
        return {entry.name: getattr(entry, attribute) for entry in entries}

    def _known(self, attribute: str) -> dict[str, Any]:
        """An attribute of each metric: as listed, else for a key of a function's result that of the function."""
        sources = (source for scored in self.pipelines for source in scored.sources.items())
        return {metric: getattr(entry, attribute) for metric, entry in sources} | self._listed(attribute)


def answered_documents(task: LoadedTask, resps: Mapping[int, Sequence[Sequence[Any]]]) -> list[AnsweredDocument]:
    """A task's documents with their targets and responses; ``resps`` are by document number."""
    delimiter = "" if task.multiple_inputs else task.config.target_delimiter
    documents = []
    for number, responses in resps.items():
        doc = task.docs[number]
        choices = task.choices(doc, number)
        documents.append(AnsweredDocument(doc, right_answer(task, number), responses, choices, delimiter))
    return documents


def right_answer(task: LoadedTask, number: int) -> Any:
    """The target of a document, in the form that tasks of its output type are scored with."""
    doc = task.docs[number]
    if task.own is None and task.config.output_type != GENERATION:
        return target_of(task, number)
    if task.own is None and task.config.process_results is None:
        return gold(task, number, doc)
    return task.target(doc, number)


def target_of(task: LoadedTask, number: int) -> Any:
    """The target of a document with log-likelihoods; with multiple inputs, it is the context to choose."""
    doc = task.docs[number]
    return task.text(doc, number) if task.multiple_inputs else task.target(doc, number)


def score_documents(
    documents: Sequence[AnsweredDocument], scorings: Sequence[Scoring], settings: ScoringSettings
) -> TaskScores:
    """Score all documents with every pipeline of a task."""
    repeats = max((len(each) for document in documents for each in document.resps), default=None)
    if settings.kind != GENERATION and repeats is not None and repeats > 1:
        raise InputError(f"several repeats of a {settings.kind} request; expected one, because all would be the same")
    for scoring in scorings:
        for entry in scoring.metrics:
            check(entry, repeats)
    return TaskScores([_pipeline(documents, scoring, settings) for scoring in scorings])


def _pipeline(documents: Sequence[AnsweredDocument], scoring: Scoring, settings: ScoringSettings) -> ScoredPipeline:
    flat = [resps for document in documents for resps in document.resps]
    docs = [document.doc for document in documents for _ in document.resps]
    filtered_answers = filtered(scoring.pipeline, flat, docs)
    matched = _matched(documents, filtered_answers, scoring, settings)
    if matched is not None:
        return matched
    answers, outcomes, repeats, scores, start = [], [], [], [], 0
    sources: dict[str, Entry] = {}
    for number, document in enumerate(documents):
        rows = range(start, start + len(document.resps))
        start = rows.stop
        answers.append([filtered_answers.values[row] for row in rows])
        outcome = filtered_answers.outcome(rows[0]) if rows else "scored"
        by_repeat: dict[str, list[Any]] = {}
        document_scores: dict[str, Any] = {}
        if outcome != STOPPED:
            results = [_without_gaps(filtered_answers, row) for row in rows]
            try:
                by_repeat, document_scores = _document(document, results, scoring, settings, sources)
            except RegexTimeout:  # of a pattern in regexes_to_ignore
                outcome = STOPPED
            except InputError as error:
                raise InputError(f"pipeline {scoring.pipeline.name!r}, document {number}: {error}") from None
        outcomes.append(outcome)
        repeats.append(by_repeat)
        scores.append(document_scores)
    return ScoredPipeline(scoring, answers, outcomes, repeats, scores, sources)


def _matched(
    documents: Sequence[AnsweredDocument], answers: FilteredAnswers, scoring: Scoring, settings: ScoringSettings
) -> ScoredPipeline | None:
    """The scores of all documents at once, if exact_match of single texts is the only metric; otherwise None."""
    single = settings.kind == GENERATION and settings.process_results is None and not settings.multiple_targets
    if not single or [entry.name for entry in scoring.metrics] != ["exact_match"] or scoring.metrics[0].function:
        return None
    entry = scoring.metrics[0]
    targets = [document.target for document in documents]
    if entry.k is not None or {type(text) for text in (*answers.values, *targets)} != {str}:
        return None
    try:
        values = match_all(answers.values, targets, entry.rules)
    except RegexTimeout:
        return None  # scored one by one, only the document that took too long is a gap
    repeats: dict[float, dict[str, list[Any]]] = {value: {"exact_match": [value]} for value in (0.0, 1.0)}
    scores: dict[float, dict[str, Any]] = {value: {"exact_match": value} for value in (0.0, 1.0)}
    return ScoredPipeline(
        scoring,
        [[answer] for answer in answers.values],
        answers.all_outcomes(),
        [repeats[value] for value in values],
        [scores[value] for value in values],
    )


def _without_gaps(filtered_answers: FilteredAnswers, row: int) -> Any:
    value, words = filtered_answers.values[row], filtered_answers.outcomes(row)
    if not isinstance(value, list) or STOPPED not in words or len(value) != len(words):
        return value
    return [repeat for repeat, word in zip(value, words, strict=True) if word != STOPPED]


def _document(
    document: AnsweredDocument,
    results: list[Any],
    scoring: Scoring,
    settings: ScoringSettings,
    sources: dict[str, Entry],
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """A document's scores: of each repeat, and reduced over the repeats; ``sources`` gets the entry of each metric."""
    if settings.process_results is not None:
        return _once(process(settings.process_results, document.doc, results))
    names = [entry.name for entry in scoring.metrics]
    if settings.kind != GENERATION:  # a pipeline without a selection of repeats returns the only one in a list
        results = [result[0] if isinstance(result, list) and len(result) == 1 else result for result in results]
    if settings.kind == CHOICE:
        mutual = "acc_mutual_info" in names
        choices = Choices.of(document.choices or (), results, document.target, mutual=mutual)
        if scoring.reduction is None:
            return _once(score_choices(choices, names))
        # with a scorer, the delimiter counts for the length of a choice
        choices = replace(choices, texts=[f"{document.delimiter}{text}" for text in choices.texts])
        names = [name for name in names if name in NEWER_SCORES]
        return _once(score_newer_choices(choices, names, multiple_targets=settings.multiple_targets))
    if settings.kind == ROLLING:
        return _once(score_rolling(float(results[0]), str(document.target), names))
    if settings.kind != GENERATION:
        return _once(score_loglikelihood(results[0], names))
    by_repeat: dict[str, list[Any]] = {}
    scores: dict[str, Any] = {}
    for entry in scoring.metrics:
        how = entry.reduction or scoring.reduction
        answers = results[0] if how is not None and isinstance(results[0], list) else [results[0]]
        values: dict[str, list[Any]] = {}  # of this metric, or of each metric that its function returns
        for answer in answers:
            options = {"multiple_targets": settings.multiple_targets, "typed": scoring.typed}
            for key, score in score_answer([entry], document.target, answer, **options).items():
                values.setdefault(key, []).append(score)
        by_repeat |= values
        for key in values:
            sources.setdefault(key, entry)
            scores |= reduced(key, values[key], how or "take_first", entry.k, document.target)
    return by_repeat, scores


def _once(scores: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    return {key: [value] for key, value in scores.items()}, scores
