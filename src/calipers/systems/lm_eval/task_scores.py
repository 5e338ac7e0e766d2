"""A task of lm-evaluation-harness from responses to numbers: filter, score, reduce, aggregate.

::

    responses ──► pipelines ──► scores of each document ──► reduced over repeats ──► numbers of the task, of its groups

Of multiple choice the responses are the log-likelihoods of the choices, and a score has lm-eval's name for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from calipers.systems.lm_eval.tasks.loaded import LoadedTask
from calipers.systems.lm_eval.tasks.requests import gold
from calipers.text.patterns import RegexTimeout

NOWHERE: Final = -100
"""lm-eval's index for a gold answer that is none of the choices."""

Gold = int | list[int]


@dataclass(frozen=True, slots=True)
class Choices:
    """What a model said of one document's choices."""

    texts: Sequence[str]  # [C]
    lls: Sequence[float]  # [C] log-likelihood of each, given the question
    greedy: Sequence[bool]  # [C] whether it is what the model would have said
    gold: Gold
    unconditional: Sequence[float] | None = None  # [C] log-likelihood of each on its own

    @classmethod
    def of(cls, texts: Sequence[str], results: Sequence[Sequence[Any]], gold: Any, *, mutual: bool = False) -> Choices:
        """From a document's results, ``[log-likelihood, is_greedy]`` a request.

        With ``mutual`` there may be twice as many, the second half without the question.
        """
        lls = [float(ll) for ll, _ in results]
        count = len(texts)
        if len(lls) not in (count, 2 * count) or (len(lls) != count and not mutual):
            raise InputError.at("multiple_choice", f"{len(lls)} results for {count} choices", "expected one for each")
        rest = lls[count:] if len(lls) > count else None
        return cls(texts, lls[:count], [bool(flag) for _, flag in results[:count]], gold_of(gold, texts), rest)


def gold_of(target: Any, texts: Sequence[str]) -> Gold:
    """The index of the right choice, or the list of several; a text is looked up; NOWHERE for what is no choice.

    >>> gold_of("no", ["yes", "no"]), gold_of([0, 7], ["a", "b"]), gold_of("maybe", ["yes", "no"])
    (1, [0, -100], -100)
    """
    if isinstance(target, (list, tuple)):
        return [index for choice in target if isinstance(index := gold_of(choice, texts), int)]
    if isinstance(target, str):
        return texts.index(target) if target in texts else NOWHERE
    if not isinstance(target, int):
        right = "expected the index or the text of a choice"
        raise InputError.at("multiple_choice", f"the target is {target!r}", right)
    return target if 0 <= target < len(texts) else NOWHERE  # there a negative one is no choice of acc either


def argmax(values: Sequence[float]) -> int:
    """The place of the largest value, the first of equals; the first NaN counts as the largest."""
    best = 0
    for index, value in enumerate(values):
        if math.isnan(value):
            return index
        if value > values[best]:
            best = index
    return best


def softmax(values: Sequence[float]) -> list[float]:
    """The values as chances that add up to 1."""
    highest = max(values)
    weights = [math.exp(value - highest) for value in values]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]


def acc(of: Choices) -> float:
    """1.0 when the likeliest choice is right."""
    return _right(of, of.lls)


def acc_norm(of: Choices) -> float:
    """1.0 when the choice that is likeliest per character is right."""
    return _right(of, [_per(ll, len(text)) for ll, text in zip(of.lls, of.texts, strict=True)])


def acc_bytes(of: Choices) -> float:
    """1.0 when the choice that is likeliest per UTF-8 byte is right."""
    return _right(of, _per_byte(of))


def acc_mutual_info(of: Choices) -> float:
    """1.0 when the choice that the question makes likelier by most is right."""
    if of.unconditional is None:
        right = "expected the unconditional log-likelihoods, too"
        raise InputError.at("acc_mutual_info", "no log-likelihoods of the choices on their own", right)
    if isinstance(of.gold, list) and len(of.gold) > 1:
        raise InputError.at("acc_mutual_info", "several targets", "expected a single one")
    return _right(of, [ll - alone for ll, alone in zip(of.lls, of.unconditional, strict=True)])


def exact_match(of: Choices) -> int:
    """1 when a right choice is just what the model would have said."""
    return int(any(of.greedy[choice] for choice in _golds(of) if choice != NOWHERE))


def pair(of: Choices) -> tuple[Gold, int]:
    """(gold, likeliest): for f1 and mcc, which look at all documents together."""
    return of.gold, argmax(of.lls)


def brier_pair(of: Choices) -> tuple[Gold, list[float]]:
    """(gold, the chance of each choice): for brier_score."""
    return of.gold, softmax(of.lls)


def likelihood(of: Choices) -> tuple[Gold, list[float]]:
    """(gold, log-likelihoods)."""
    return of.gold, list(of.lls)


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


def score_choices(of: Choices, names: Sequence[str]) -> dict[str, Any]:
    """A document's scores, of the names that mean something here; in lm-eval's order, whatever was asked first."""
    return {name: score(of) for name, score in SCORES.items() if name in names}


def brier(of: Choices) -> float:
    """The squared distance between the chances and the truth, 0 to 2."""
    gold = _only(of, "brier_score")
    return squared_distance(softmax(of.lls), gold)


def bpb(of: Choices) -> float:
    """Bits per byte of the right choice."""
    return -_per_byte(of)[_only(of, "bpb")] / math.log(2)


def logprob(of: Choices) -> float:
    """The log-likelihood of the right choice."""
    return of.lls[_only(of, "logprob")]


def choice_logprob(of: Choices) -> float:
    """The log of the right choice's chance among the choices."""
    return _log_softmax(of.lls)[_only(of, "choice_logprob")]


def choice_prob_norm(of: Choices) -> float:
    """The right choice's chance among the choices, by log-likelihoods per byte."""
    return softmax(_per_byte(of))[_only(of, "choice_prob_norm")]


def choice_logprob_norm(of: Choices) -> float:
    """The log of `choice_prob_norm`."""
    return _log_softmax(_per_byte(of))[_only(of, "choice_logprob_norm")]


MORE: Final[Mapping[str, Callable[[Choices], Any]]] = {  # of the unreleased 0.5 line, whose brier_score is per document
    **SCORES,
    "exact_match_mc": exact_match,
    "brier_score": brier,
    "bpb": bpb,
    "logprob": logprob,
    "choice_logprob": choice_logprob,
    "choice_prob_norm": choice_prob_norm,
    "choice_logprob_norm": choice_logprob_norm,
}


def score_more(of: Choices, names: Sequence[str], *, several: bool = False) -> dict[str, Any]:
    """A document's scores by the names of the 0.5 line, in the order asked for; one target unless ``several``."""
    if isinstance(of.gold, list) and not several:
        raise InputError.at("multiple_choice", f"the target is {of.gold!r}", "expected one, or multiple_targets: true")
    for name in names:
        if name not in MORE:
            raise UnknownName.of("lm_eval metric", name, MORE)
    return {name: MORE[name](of) for name in names}


def _golds(of: Choices) -> list[int]:
    return of.gold if isinstance(of.gold, list) else [of.gold]


def _right(of: Choices, values: Sequence[float]) -> float:
    return float(argmax(values) in _golds(of))


def _only(of: Choices, name: str) -> int:
    golds = _golds(of)
    if len(golds) == 1 and golds[0] != NOWHERE:
        return golds[0]
    raise InputError.at(name, f"the target is {of.gold!r}", "expected the index of one choice")


def _per(ll: float, length: int) -> float:
    """The share of each unit of length; nothing at all weighs infinitely, and 0 / 0 is no number."""
    if length:
        return ll / length
    return math.nan if ll == 0 or math.isnan(ll) else math.copysign(math.inf, ll)


def _per_byte(of: Choices) -> list[float]:
    return [_per(ll, len(text.encode("utf-8", "surrogatepass"))) for ll, text in zip(of.lls, of.texts, strict=True)]


def _log_softmax(values: Sequence[float]) -> list[float]:
    highest = max(values)
    whole = highest + math.log(math.fsum(math.exp(value - highest) for value in values))
    return [value - whole for value in values]


STEPS: Final = (1, 3, 5, 10, 20, 50, 100)
NAMES: Final = ("take_first", "mean", "pass_at_k", "pass@k", "majority")

Reduction = str | Callable[..., Any]


def pass_at_k(scores: Sequence[Any], k: int | Sequence[int] | None = None) -> dict[str, float]:
    """Chance that k of a document's n repeats include a pass, for each k; a score that is not 0 is a pass.

    ``1 - C(n - c, k) / C(n, k)`` for c passes (Chen et al. 2021). Without k: 1, 3, 5, 10, 20, 50 and 100 as
    far as they go, n itself, and points between 100 and n. A k beyond n is an error where nothing passed:
    then nobody knows.

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
    """The k that are worth a number for n repeats.

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
    """One document's scores of a metric as one number, or as several under ``part(metric)``.

    A single value is passed on as it is.

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
    """Refuse a reduction that does not exist, and a k that no document could have."""
    how = entry.reduction
    if isinstance(how, str) and how not in NAMES:
        raise UnknownName.of("reduction", how, NAMES)
    if entry.k is not None:
        if how not in ("pass_at_k", "pass@k"):
            raise InputError.at(location, f"metric {entry.name!r} has k", "expected reduction: pass_at_k with it")
        pass_at_k([1] * (repeats or 1), entry.k)
        most = entry.k if isinstance(entry.k, int) else max(entry.k)
        if repeats is not None and most > repeats:
            raise InputError.at(location, f"k is {most}, but repeats is {repeats}", f"expected repeats: {most} or more")


def base(key: str) -> str:
    """The metric that a key of a reduction belongs to: ``pass@1(exact_match)`` to exact_match."""
    head, opened, rest = key.partition("(")
    return rest.removesuffix(")") if opened and head and rest.endswith(")") else key


def _chance(n: int, passes: int, k: int) -> float:
    if n - passes < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - passes + 1, n + 1)))


Numbers = dict[str, Any]
"""``metric,pipeline`` to its value, ``metric_stderr,pipeline`` to its standard error or None."""

OF_TEXT: Final = 100
"""The most iterations for the metrics called bleu, chrf, chrf++ and ter, which are slow to resample."""

_GROUP_KEYS: Final = ("metric", "aggregation", "weight_by_size", "filter_list")


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """What a task comes to."""

    metrics: Numbers
    sample_len: int  # documents of the metric that has most


def aggregate_task(
    values: Mapping[str, Sequence[Any]], aggregations: Mapping[str, How], iterations: int = ITERATIONS
) -> TaskNumbers:
    """The numbers of a task, from its documents' values under ``metric,pipeline``; an unknown metric is averaged."""
    numbers: Numbers = {}
    for key, items in values.items():
        metric, _, pipeline = key.rpartition(",")
        how = aggregations.get(metric, aggregations.get(base(metric), "mean"))
        numbers[key] = aggregate(how, items)
        most = min(iterations, OF_TEXT) if metric in OVERLAP else iterations
        numbers[f"{metric}_stderr,{pipeline}"] = stderr(how, items, most)
    return TaskNumbers(numbers, max((len(items) for items in values.values()), default=0))


def leaves(tree: Sequence[Any]) -> Iterator[str]:
    """The tasks of a group, those of its groups included; a group is a mapping of its name to its members."""
    for member in tree:
        if isinstance(member, Mapping):
            for inner in member.values():
                yield from leaves(inner)
        else:
            yield member


def aggregate_group(
    name: str,
    tree: Sequence[Any],
    tasks: Mapping[str, Mapping[str, Any]],
    aggregate_metric_list: Sequence[Mapping[str, Any]] = (),
    alias: str | None = None,
) -> dict[str, Any]:
    """A group's row, from the rows of its tasks.

    A mean is weighted by documents unless ``weight_by_size: false``. Its standard error is that of the
    pooled sample when weighted, ``sqrt(sum s^2) / k`` when not, and none when a task has none. Tasks
    without a row, or without the metric, are passed by; where none has it, the group has no number of it either.
    """
    names = [task for task in dict.fromkeys(leaves(tree)) if task in tasks]
    row: dict[str, Any] = {"alias": alias or name, "name": name}
    if not aggregate_metric_list:
        return row
    row["sample_len"] = sum(tasks[task].get("sample_len", 0) for task in names)
    counts: dict[str, int] = {}
    for entry in aggregate_metric_list:
        metric = _checked(entry)
        for pipeline in _pipelines(entry, metric, [tasks[task] for task in names]):
            key, beside = f"{metric},{pipeline}", f"{metric}_stderr,{pipeline}"
            there = [tasks[task] for task in names if key in tasks[task]]
            if not there:
                continue
            sizes = [task["sample_len"] for task in there]
            errors = [_number(task.get(beside)) for task in there]
            weighted = entry.get("weight_by_size", True)
            row[key] = _mean([task[key] for task in there], sizes if weighted else [1] * len(there))
            row[beside] = _error(errors, sizes, weighted)
            counts[key] = sum(sizes)
    if counts:
        row["sample_count"] = counts
    return row


def _checked(entry: Mapping[str, Any]) -> str:
    for key in entry:
        if key not in _GROUP_KEYS:
            raise UnknownName.of("key of aggregate_metric_list", key, _GROUP_KEYS)
    if not isinstance(entry.get("metric"), str):
        raise InputError.at("aggregate_metric_list", f"an entry is {dict(entry)!r}", "expected a key 'metric'")
    how = entry.get("aggregation", "mean")
    if how != "mean" and not callable(how):
        raise InputError.at("aggregate_metric_list", f"aggregation is {how!r}", "expected mean")
    return str(entry["metric"])


def _pipelines(entry: Mapping[str, Any], metric: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    listed = entry.get("filter_list")
    if listed is not None:
        return [listed] if isinstance(listed, str) else list(listed)
    keys = {key for row in rows for key in row if "," in key}
    return sorted({pipeline for head, _, pipeline in (key.rpartition(",") for key in keys) if head == metric})


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    whole = sum(weights)
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / whole


def _error(errors: Sequence[float | None], sizes: Sequence[int], weighted: bool) -> float | None:
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    if not weighted:
        return math.sqrt(math.fsum(error * error for error in known)) / len(known)
    whole, k = sum(sizes), len(sizes)
    if whole <= k:
        return None
    pooled = math.fsum((n - 1) * n * error * error for n, error in zip(sizes, known, strict=True)) / (whole - k)
    return math.sqrt(pooled / whole)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


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
        answers = results[0] if how is not None and isinstance(results[0], list) else [results[0]]
        for key, values in _repeats(entry, document.target, answers, way.several, scoring.typed).items():
            each[key] = values
            scores |= reduced(key, values, how or "take_first", entry.k, document.target)
    return each, scores


def _repeats(entry: Entry, target: Any, answers: Sequence[Any], several: bool, typed: bool) -> dict[str, list[Any]]:
    """A metric's scores, one for each answer: each repeat where they are to be reduced, else what there is of them."""
    scores: dict[str, list[Any]] = {}
    for answer in answers:
        for key, score in score_answer([entry], target, answer, several=several, typed=typed).items():
            scores.setdefault(key, []).append(score)
    return scores


def _once(scores: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    return {key: [value] for key, value in scores.items()}, scores
