"""How a run verifies answers to a task of lm-evaluation-harness: one response at a time.

Its numbers proper need all responses to a document and all documents; they are made from the log when the
run is over. What is said here is what the same filters and metrics say of one response alone: a column
``metric,pipeline`` each, and the first of them as the reward.

Of likelihoods the reward is the first score that is averaged, such as acc; where there is none, the log-likelihood:
of a whole text per byte, so that long ones do not outweigh the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.clients import Completion, Line, read_back
from calipers.errors import CalipersError, InputError, PluginError, UnknownName, VerifierError
from calipers.systems.lm_eval import AVERAGED
from calipers.systems.lm_eval.aggregations import NAMES, aggregate
from calipers.systems.lm_eval.client import read_answers, request_kinds
from calipers.systems.lm_eval.entries import (
    CHOICE,
    GENERATION,
    NEWER,
    ROLLING,
    Entry,
    Scoring,
    metrics_of,
    passed_by,
    process,
    score_answer,
    scorer_of,
    scorings,
    words,
)
from calipers.systems.lm_eval.pipelines import (
    Pipeline,
    Select,
    check_ends,
    filtered,
    patterns_of,
    pipeline,
    settings_of,
)
from calipers.systems.lm_eval.task_scores import (
    NOWHERE,
    Way,
    answered,
    argmax,
    check,
    gold_of,
    score_documents,
    target_of,
)
from calipers.systems.lm_eval.tasks.loaded import LoadedTask
from calipers.systems.lm_eval.tasks.task_file import TaskFields
from calipers.tasks import Task
from calipers.verifiers import Verdict
from calipers.verifiers.user_code import ObjectVerifier

VERIFIER = "lm_eval"
UNPARSED, STOPPED = "unparsed", "filter_timeout"
OF_MANY: Final = ("f1", "matthews_corrcoef")  # of one document by itself they say nothing
TRIED: Final = {GENERATION: "", ROLLING: -1.0}
"""Made-up results on which a class is tried before the first call; of any other request, a likelihood."""


def judge_of(task: LoadedTask) -> ObjectVerifier:
    """The verifier of a task; InputError with file and key for a filter, metric or scorer that there is not."""
    judge: Any = ResponseJudge(task, scoring(task))
    if task.own is not None:
        judge = ClassJudge(task, judge.scorings)
    elif task.config.output_type != GENERATION:
        judge = LikelihoodJudge(task, judge.scorings, way_of(task))
    return ObjectVerifier(VERIFIER, judge)


def way_of(task: LoadedTask) -> Way:
    """How a task's documents are scored; those of a class by the class itself, unless nothing is to be scored."""
    if task.own is None:
        return Way(task.config.output_type, task.multiple_targets, task.config.process_results)
    bypassed = any(entry["metric"] == "bypass" for entry in task.config.metric_list or ())
    return Way(GENERATION, process_results=None if bypassed else task.own.process)


def responses_of(task: LoadedTask, number: int, completions: Sequence[str]) -> list[list[Any]]:
    """What a log holds of a document as lm-evaluation-harness has it, [requests x repeats]."""
    if task.own is not None:
        repeats = [read_answers(text, request_kinds(task)[number]) for text in completions]
        return [list(answers) for answers in zip(*repeats, strict=True)]
    if task.config.output_type == GENERATION:
        return [list(completions)]
    return _likelihoods(task.config.output_type, read_back(completions[0]))


def _likelihoods(kind: str, lines: Sequence[Line]) -> list[list[Any]]:
    return [[line.logprob] if kind == ROLLING else [(line.logprob, line.greedy)] for line in lines]


def scoring(task: LoadedTask) -> list[Scoring]:
    """The pipelines of a task and their metrics, every name in them found and every setting checked."""
    config, file = task.config, task.file
    if task.own is not None and not config.metric_list:
        metrics, where = task.own.metrics, file.place("class")
        return scorings(GENERATION, filter_list=config.filter_list, metric_list=metrics, scored=False, location=where)
    scored = config.process_results is None
    for number, entry in enumerate(config.filter_list or ()):
        here = f"{file.place('filter_list')}[{number}]"
        _at(here, pipeline, entry, here)
        _at(f"{here}.metric_list", _metrics, entry.get("metric_list"), config, scored)
        for step in entry["filter"]:
            _check_step(task, step, here)
    _at(file.place("scorer"), scorer_of, config.scorer, config.output_type, file.place("scorer"))
    _at(file.place("metric_list"), _metrics, config.metric_list, config, scored)
    plan = scorings(
        config.output_type,
        filter_list=config.filter_list,
        metric_list=config.metric_list,
        scorer=config.scorer,
        scored=scored,
        location=file.place(),
    )
    return checked(task, plan)


def _metrics(metric_list: Any, config: TaskFields, scored: bool) -> list[Entry]:
    named = config.scorer is not None
    entries = metrics_of(metric_list, config.output_type, scored=scored, named=named) if metric_list else []
    for entry in entries:
        if isinstance(entry.aggregation, str) and entry.aggregation not in NAMES:
            raise UnknownName.of("lm_eval aggregation", entry.aggregation, NAMES)  # there, only when the run is over
    return entries


def _check_step(task: LoadedTask, step: Mapping[str, Any], where: str) -> None:
    settings = settings_of(step)
    if step["function"] == "take_first_k" and settings["k"] > task.config.repeats:
        wrong = f"take_first_k takes {settings['k']} of {task.config.repeats} responses"
        raise InputError.at(where, wrong, f"expected repeats: {settings['k']} or more, or as many --samples")
    if step["function"] == "multi_choice_regex" and "choices" not in task.columns:
        wrong = "multi_choice_regex needs a column 'choices'"
        raise InputError.at(where, wrong, f"the documents have {', '.join(task.columns)}")


def checked(task: LoadedTask, scorings: list[Scoring]) -> list[Scoring]:
    """The scorings of a task as they are; InputError with file and key for one that cannot come to its end.

    Held against the samples that are really taken, ``task.config.repeats``: a reduction that there is not, a k
    that no document could have. And no pattern may explode.
    """
    config, file = task.config, task.file
    for number, entry in enumerate(config.filter_list or ()):
        for step in entry["filter"]:
            _at(f"{file.place('filter_list')}[{number}]", _check_patterns, step)
    for step in scorer_of(config.scorer, config.output_type).default_filter_cfg:
        _at(file.place("scorer"), _check_patterns, step)
    inner_lists = [bool(entry.get("metric_list")) for entry in config.filter_list or ()] or [False]
    for number, (inner, scoring) in enumerate(zip(inner_lists, scorings, strict=True)):
        where = f"{file.place('filter_list')}[{number}].metric_list" if inner else file.place("metric_list")
        left = kept_repeats(scoring.pipeline, config.repeats)
        for metric in scoring.metrics:
            _at(where, check, metric, config.repeats, where)
            if metric.k is not None and (most := metric.k if isinstance(metric.k, int) else max(metric.k)) > left:
                wrong = (
                    f"k is {most}, but pipeline {scoring.pipeline.name!r} keeps only {left} of {config.repeats} repeats"
                )
                raise InputError.at(where, wrong, "expected a pipeline without take_first, such as filter: [noop]")
            _at(where, _check_patterns, metric.settings)
    return scorings


def kept_repeats(through: Pipeline, repeats: int) -> int:
    """How many of a document's repeats a pipeline keeps, as far as its own filters say."""
    for step in through.steps:
        if isinstance(step, Select):
            repeats = len(step.keep([""] * repeats))
    return repeats


def _check_patterns(settings: Mapping[str, Any]) -> None:
    for pattern in patterns_of(settings):
        check_ends(pattern)


def _at(where: str, check: Callable[..., Any], *arguments: Any) -> None:
    """Check something; what is wrong with it is said with the place where it stands."""
    try:
        check(*arguments)
    except CalipersError as error:
        text = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise (UnknownName if isinstance(error, UnknownName) else InputError)(text) from None


@dataclass(frozen=True, slots=True)
class ResponseJudge:
    """A task's filters and metrics, over one response."""

    task: LoadedTask
    scorings: list[Scoring]

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """What each pipeline makes of the response, and what its metrics give for that.

        Where one response is too few for all of them, as for a metric that counts passes, it is judged as if
        every repeat had said the same.
        """
        doc, repeats = self.task.docs[int(task.id)], self.task.config.repeats
        try:
            alone = self._verdict(task.target, [completion.text], doc)
        except PluginError:
            if repeats == 1:
                raise
            alone = Verdict(None)
        several = repeats > 1 and not alone.fields
        return self._verdict(task.target, [completion.text] * repeats, doc) if several else alone

    def _verdict(self, target: Any, responses: list[str], doc: Mapping[str, Any]) -> Verdict:
        columns: dict[str, float] = {}
        answer, outcome = None, ""
        for index, scoring in enumerate(self.scorings):
            try:
                filtered_answers = filtered(scoring.pipeline, [responses], [doc])
            except InputError:  # they are too few for this pipeline
                continue
            value, word = filtered_answers.values[0], filtered_answers.outcome(0)
            if index == 0:
                answer, outcome = _scalar(value), UNPARSED if word == UNPARSED else ""
                if word == STOPPED:
                    wrong = f"pipeline {scoring.pipeline.name!r}: a pattern did not finish matching in time"
                    raise VerifierError(wrong, outcome=STOPPED)
            scores: dict[str, Any] = {}
            if self.task.config.process_results is not None:
                scores = process(self.task.config.process_results, doc, [value])
            for entry in scoring.metrics if self.task.config.process_results is None else ():
                alone = (entry.reduction or scoring.reduction) and isinstance(value, list) and value
                repeat = value[0] if alone else value  # a reduction looks at each repeat by itself
                several = self.task.multiple_targets
                scores |= score_answer([entry], target, repeat, several=several, typed=scoring.typed)
            aggregations = _aggregations(scoring)
            for name, score in scores.items():
                number = number_of(score, aggregations.get(name, "mean"))
                if number is not None:
                    columns[f"{name},{scoring.pipeline.name}"] = number
        first = next(iter(columns), "")
        if first and not math.isfinite(columns[first]):
            raise VerifierError(self._no_number(first, columns[first]), blameless=True)  # as its number has it
        return Verdict(columns.get(first), averaged(columns), answer, outcome, columns)

    def _no_number(self, key: str, value: float) -> str:
        aggregations = {name: how for scoring in self.scorings for name, how in _aggregations(scoring).items()}
        sentence = f"{key} is {value} for this document, so it has no reward; lm-evaluation-harness' number"
        left_out = aggregations.get(key.rpartition(",")[0], "mean") == "nanmean" and math.isnan(value)
        return f"{sentence} excludes it, too" if left_out else f"{sentence} includes it"


def _aggregations(scoring: Scoring) -> dict[str, Any]:
    return {entry.name: entry.aggregation for entry in scoring.metrics}


def averaged(columns: Mapping[str, float]) -> dict[str, float]:
    """The scores that the dialect knows by a name of their own, such as acc; of several pipelines, the first's."""
    named: dict[str, float] = {}
    for key, value in columns.items():
        name = key.rpartition(",")[0]
        if name in AVERAGED and math.isfinite(value):
            named.setdefault(name, value)
    return named


def number_of(score: Any, how: Any) -> float | None:
    """A score as a number; of a metric that adds up documents, the metric over this one alone."""
    if isinstance(score, (bool, int, float)) and how != "perplexity":  # there a document keeps its log-likelihood
        return float(score)
    try:
        value = aggregate(how, [score])
    except CalipersError:
        return None
    return float(value) if isinstance(value, (int, float)) else None


def _scalar(value: Any) -> Any:
    """An answer as a vote: the only one of a list, nothing where there are several kinds."""
    only = value[0] if isinstance(value, list) and len(value) == 1 else value
    return only if isinstance(only, (str, int, float, bool, list)) else None


@dataclass(frozen=True, slots=True)
class LikelihoodJudge:
    """A task's metrics, over the likelihoods of one document."""

    task: LoadedTask
    scorings: list[Scoring]
    way: Way

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """What each metric gives for the document by itself."""
        try:
            lines = read_back(completion.text)
            document = answered(self.task, {int(task.id): _likelihoods(self.way.kind, lines)})
            scores = score_documents(document, self.scorings, self.way)
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        if self.way.kind == CHOICE and self.way.process_results is None:
            wrong = _beyond(self.task, int(task.id))
            if wrong is not None:
                raise VerifierError(f"{wrong}; lm-evaluation-harness' number counts this document as 0")
        columns: dict[str, float] = {}
        first = None
        for scored in scores.pipelines:
            aggregations = _aggregations(scored.scoring)
            for name, score in scored.scores[0].items():
                how = aggregations.get(name, "mean")
                value = None if how in OF_MANY else number_of(score, how)
                if value is None or not math.isfinite(value):
                    continue  # such as the perplexity of one hopeless text; its log-likelihood says as much
                columns[f"{name},{scored.scoring.pipeline.name}"] = value
                if first is None and how == "mean":
                    first = value
        text = str(document[0].target)
        named = averaged(columns)
        if self.way.kind == CHOICE:
            likeliest = argmax([scored.logprob for scored in lines[: len(document[0].choices or ())]])
            answer = (document[0].choices or ("",))[likeliest]
            return Verdict(lines[likeliest].logprob if first is None else first, named, answer, fields=columns)
        columns |= _sizes(lines[0], text if self.way.kind == ROLLING else None)
        share = lines[0].logprob / max(1, lines[0].bytes) if self.way.kind == ROLLING else lines[0].logprob
        return Verdict(share if first is None else first, named, fields=columns)


def _sizes(line: Line, text: str | None) -> Mapping[str, float]:
    """What a perplexity is made of, as columns: the log-likelihood, and how much text it is of."""
    sizes: dict[str, float] = {"logprob": line.logprob, "scored_tokens": line.tokens, "bytes": line.bytes}
    return sizes if text is None else sizes | {"words": words(text)}


@dataclass(frozen=True, slots=True)
class ClassJudge:
    """A class's own scores, over the results of one document."""

    task: LoadedTask
    scorings: list[Scoring]

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """What the class gives for the document by itself.

        The reward is the first score that is a number; where there is none, the first that its aggregation makes one.
        """
        number = int(task.id)
        try:
            results = responses_of(self.task, number, [completion.text])
            scores = score_documents(answered(self.task, {number: results}), self.scorings, way_of(self.task))
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        columns: dict[str, float] = {}
        summed: list[tuple[str, Any, Any]] = []
        for scored in scores.pipelines:
            aggregations = _aggregations(scored.scoring)
            for name, score in scored.scores[0].items():
                key, how = f"{name},{scored.scoring.pipeline.name}", aggregations.get(name, "mean")
                if callable(how) and not isinstance(score, (bool, int, float)):
                    summed.append((key, score, how))  # the class's own function, which may take long
                elif (value := number_of(score, how)) is not None and math.isfinite(value):
                    columns[key] = value
        for key, score, how in summed:
            if columns:
                break
            if (value := number_of(score, how)) is not None and math.isfinite(value):
                columns[key] = value
        answer = _first_text(self.scorings[0], results, self.task.docs[number], request_kinds(self.task)[number])
        return Verdict(next(iter(columns.values()), None), averaged(columns), answer, fields=columns)


def _first_text(
    scoring: Scoring, results: list[list[Any]], doc: Mapping[str, Any], kinds_asked: Sequence[str]
) -> str | None:
    """What the first request for text was answered, as the first pipeline leaves it."""
    index = next((at for at, kind in enumerate(kinds_asked) if kind == GENERATION), None)
    if index is None:
        return None
    value = filtered(scoring.pipeline, [results[index]], [doc]).values[0]
    return value if isinstance(value, str) else None


def doubts(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """What lm-evaluation-harness does here without a word: metrics passed by, targets that are no choice.

    InputError for a target or a choice that it would stumble over.
    """
    kind = task.config.output_type
    if kind == GENERATION or task.config.process_results is not None or task.own is not None or not plan:
        return
    known = [entry for scoring in plan for entry in scoring.metrics if entry.name not in NEWER]
    for name in dict.fromkeys(passed_by(known, kind)):
        yield f"{task.place('metric_list')}: {name} has no value for {kind}; it is skipped, as in lm-evaluation-harness"
    lost = [number for number in range(len(task.docs)) if kind == CHOICE and _nowhere(task, number)]
    beyond = [number for number in lost if _beyond(task, number) is not None]
    where = task.place("doc_to_target")
    if texts := [number for number in lost if number not in beyond]:
        yield (
            f"{where}: {len(texts)} documents ({_some(texts)}) have a target "
            "that is not one of the choices, and count as 0"
        )
    if beyond:
        sentence = f"{len(beyond)} documents ({_some(beyond)}) have a target index beyond their choices"
        yield f"{where}: {sentence}: they have no reward, and count as 0 in lm-evaluation-harness' numbers"


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")


def _beyond(task: LoadedTask, number: int) -> str | None:
    """What is wrong with a target that is the index of no choice; None for any other.

    One of several targets may be wrong: then the others still say what is right.
    """
    target, choices = target_of(task, number), task.choices(task.docs[number], number) or []
    several = list(target) if isinstance(target, (list, tuple)) else [target]
    known = (*range(len(choices)), NOWHERE)  # NOWHERE is its own word for a target that is meant to be no choice
    if not several or not all(isinstance(index, int) and index not in known for index in several):
        return None
    return f"the target is choice {several[0]} of {len(choices)}, counted from 0"


def _nowhere(task: LoadedTask, number: int) -> bool:
    doc = task.docs[number]
    choices = task.choices(doc, number) or []
    for choice in choices:
        if not isinstance(choice, str):
            raise InputError.at(task.place("doc_to_choice", number), f"a choice is {choice!r}", "expected texts")
    target = target_of(task, number)
    try:
        gold = gold_of(target, choices)
    except InputError as error:
        raise InputError(f"{task.place('doc_to_target', number)}: {error}") from None
    return NOWHERE in gold if isinstance(gold, list) else gold == NOWHERE


def tried(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """A note for what of the class's scoring fails on the first document, before a model is asked for all of them."""
    if task.own is None or not plan:
        return
    made_up = [TRIED.get(kind, (-1.0, False)) for kind in request_kinds(task)[0]]
    where = task.place("class")
    try:
        scores = process(task.own.process, task.docs[0], made_up)
    except CalipersError as error:
        yield f"{where}: tried on the first document with an empty answer: {error}"
        return
    for entry in plan[0].metrics:
        if callable(entry.aggregation) and entry.name in scores:
            try:
                entry.aggregation([scores[entry.name]])
            except Exception as error:  # of every class there is, such as a metric that is to be downloaded
                first = str(error).strip().partition("\n")[0]
                sentence = f"the aggregation of {entry.name} failed ({type(error).__name__}: {first})"
                yield f"{where}: tried on the first document: {sentence}"
                return
