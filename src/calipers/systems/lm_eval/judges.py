"""The verifiers of lm-evaluation-harness' tasks: they score one response at a time while a run is in progress.

The task's numbers need all responses to a document and all documents, so they are computed from the log when the run
is over. A verifier applies the same filters and metrics to a single response: each gives a column ``metric,pipeline``,
and the first column is the reward.

For log-likelihoods the reward is the first score that is averaged, such as acc. If there is none, it is the
log-likelihood; for a whole text the log-likelihood per byte, so that long texts do not outweigh short ones.
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
    Scoring,
    metrics_of,
    process,
    score_answer,
    scorer_of,
    scorings,
    silently_ignored,
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
    NO_CHOICE,
    ScoringSettings,
    answered_documents,
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
CORPUS_ONLY: Final = ("f1", "matthews_corrcoef")  # aggregations that are meaningless for a single document
TRIAL_RESULTS: Final = {GENERATION: "", ROLLING: -1.0}
"""Made-up results, by kind of request, for a trial of a class before the first call; TRIAL_LIKELIHOOD for others."""
TRIAL_LIKELIHOOD: Final = (-1.0, False)


def judge_of(task: LoadedTask) -> ObjectVerifier:
    """The verifier of a task; InputError, with file and key, for an unknown filter, metric or scorer."""
    judge: Any = ResponseJudge(task, scoring(task))
    if task.own is not None:
        judge = ClassJudge(task, judge.scorings)
    elif task.config.output_type != GENERATION:
        judge = LikelihoodJudge(task, judge.scorings, scoring_settings(task))
    return ObjectVerifier(VERIFIER, judge)


def scoring_settings(task: LoadedTask) -> ScoringSettings:
    """The scoring settings of a task; a class scores its documents itself, unless ``bypass`` is a metric."""
    if task.own is None:
        return ScoringSettings(task.config.output_type, task.multiple_targets, task.config.process_results)
    bypass = any(entry["metric"] == "bypass" for entry in task.config.metric_list or ())
    return ScoringSettings(GENERATION, process_results=None if bypass else task.own.process)


def responses_of(task: LoadedTask, number: int, completions: Sequence[str]) -> list[list[Any]]:
    """A document's logged completions as lm-evaluation-harness' responses, [requests x repeats]."""
    if task.own is not None:
        repeats = [read_answers(text, request_kinds(task)[number]) for text in completions]
        return [list(answers) for answers in zip(*repeats, strict=True)]
    if task.config.output_type == GENERATION:
        return [list(completions)]
    return _likelihoods(task.config.output_type, read_back(completions[0]))


def _likelihoods(kind: str, lines: Sequence[Line]) -> list[list[Any]]:
    return [[line.logprob] if kind == ROLLING else [(line.logprob, line.greedy)] for line in lines]


def scoring(task: LoadedTask) -> list[Scoring]:
    """The pipelines of a task and their metrics; InputError for an unknown name or a wrong setting."""
    config, file = task.config, task.file
    if task.own is not None and not config.metric_list:
        metrics, where = task.own.metrics, file.location("class")
        return scorings(GENERATION, filter_list=config.filter_list, metric_list=metrics, scored=False, location=where)
    scored = config.process_results is None
    for number, entry in enumerate(config.filter_list or ()):
        location = f"{file.location('filter_list')}[{number}]"
        _located(location, pipeline, entry, location)
        _located(f"{location}.metric_list", _check_metrics, entry.get("metric_list"), config, scored)
        for step in entry["filter"]:
            _check_step(task, step, location)
    _located(file.location("scorer"), scorer_of, config.scorer, config.output_type, file.location("scorer"))
    _located(file.location("metric_list"), _check_metrics, config.metric_list, config, scored)
    plan = scorings(
        config.output_type,
        filter_list=config.filter_list,
        metric_list=config.metric_list,
        scorer=config.scorer,
        scored=scored,
        location=file.location(),
    )
    _check_plan(task, plan)
    return plan


def _check_metrics(metric_list: Any, config: TaskFields, scored: bool) -> None:
    if not metric_list:
        return
    for entry in metrics_of(metric_list, config.output_type, scored=scored, has_scorer=config.scorer is not None):
        if isinstance(entry.aggregation, str) and entry.aggregation not in NAMES:
            # lm-evaluation-harness notices it only when the run is over
            raise UnknownName.of("lm_eval aggregation", entry.aggregation, NAMES)


def _check_step(task: LoadedTask, step: Mapping[str, Any], where: str) -> None:
    settings = settings_of(step)
    if step["function"] == "take_first_k" and settings["k"] > task.config.repeats:
        problem = f"take_first_k takes {settings['k']} of {task.config.repeats} responses"
        raise InputError.at(where, problem, f"expected repeats: {settings['k']} or more, or as many --samples")
    if step["function"] == "multi_choice_regex" and "choices" not in task.columns:
        problem = "multi_choice_regex needs a column 'choices'"
        raise InputError.at(where, problem, f"the documents have {', '.join(task.columns)}")


def _check_plan(task: LoadedTask, plan: Sequence[Scoring]) -> None:
    """InputError, with file and key, for scoring that could not be completed once the run is over.

    That is an unknown reduction, a k larger than the number of repeats that will be run (``task.config.repeats``) or
    that a pipeline keeps, and a pattern that may take exponential time.
    """
    config, file = task.config, task.file
    for number, entry in enumerate(config.filter_list or ()):
        for step in entry["filter"]:
            _located(f"{file.location('filter_list')}[{number}]", _check_patterns, step)
    for step in scorer_of(config.scorer, config.output_type).default_filter_cfg:
        _located(file.location("scorer"), _check_patterns, step)
    has_own_metrics = [bool(entry.get("metric_list")) for entry in config.filter_list or ()] or [False]
    for number, (own_metrics, scoring) in enumerate(zip(has_own_metrics, plan, strict=True)):
        where = f"{file.location('filter_list')}[{number}].metric_list" if own_metrics else file.location("metric_list")
        kept = kept_repeats(scoring.pipeline, config.repeats)
        for metric in scoring.metrics:
            _located(where, check, metric, config.repeats, where)
            if metric.k is not None and (max_k := metric.k if isinstance(metric.k, int) else max(metric.k)) > kept:
                pipeline_name = scoring.pipeline.name
                problem = f"k is {max_k}, but pipeline {pipeline_name!r} keeps only {kept} of {config.repeats} repeats"
                raise InputError.at(where, problem, "expected a pipeline without take_first, such as filter: [noop]")
            _located(where, _check_patterns, metric.settings)


def kept_repeats(through: Pipeline, repeats: int) -> int:
    """The number of repeats per document that a pipeline keeps, as far as its built-in filters determine it."""
    for step in through.steps:
        if isinstance(step, Select):
            repeats = len(step.keep([""] * repeats))
    return repeats


def _check_patterns(settings: Mapping[str, Any]) -> None:
    for pattern in patterns_of(settings):
        check_ends(pattern)


def _located(where: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function that raises for bad input; prefix its error message with ``where`` if it is not there yet."""
    try:
        function(*arguments)
    except CalipersError as error:
        text = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise (UnknownName if isinstance(error, UnknownName) else InputError)(text) from None


@dataclass(frozen=True, slots=True)
class ResponseJudge:
    """Scores one response with a task's filters and metrics."""

    task: LoadedTask
    scorings: list[Scoring]

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The scores of the response by every pipeline and metric.

        If no metric can score a single response, as with a function that needs all repeats, every repeat is assumed to
        have the same response.
        """
        doc, repeats = self.task.docs[int(task.id)], self.task.config.repeats
        try:
            verdict = self._verdict(task.target, [completion.text], doc)
        except PluginError:
            if repeats == 1:
                raise
            verdict = Verdict(None)
        if repeats > 1 and not verdict.fields:
            return self._verdict(task.target, [completion.text] * repeats, doc)
        return verdict

    def _verdict(self, target: Any, responses: list[str], doc: Mapping[str, Any]) -> Verdict:
        columns: dict[str, float] = {}
        answer, outcome = None, ""
        for index, scoring in enumerate(self.scorings):
            try:
                filtered_answers = filtered(scoring.pipeline, [responses], [doc])
            except InputError:  # too few responses for this pipeline
                continue
            value, word = filtered_answers.values[0], filtered_answers.outcome(0)
            if index == 0:
                answer, outcome = _scalar(value), UNPARSED if word == UNPARSED else ""
                if word == STOPPED:
                    problem = f"pipeline {scoring.pipeline.name!r}: a pattern did not finish matching in time"
                    raise VerifierError(problem, outcome=STOPPED)
            scores: dict[str, Any] = {}
            if self.task.config.process_results is not None:
                scores = process(self.task.config.process_results, doc, [value])
            for entry in scoring.metrics if self.task.config.process_results is None else ():
                is_reduced = (entry.reduction or scoring.reduction) and isinstance(value, list) and value
                repeat = value[0] if is_reduced else value  # a metric with a reduction scores each repeat by itself
                options = {"multiple_targets": self.task.multiple_targets, "typed": scoring.typed}
                scores |= score_answer([entry], target, repeat, **options)
            aggregations = _aggregations(scoring)
            for name, score in scores.items():
                number = number_of(score, aggregations.get(name, "mean"))
                if number is not None:
                    columns[f"{name},{scoring.pipeline.name}"] = number
        first = next(iter(columns), "")
        if first and not math.isfinite(columns[first]):
            raise VerifierError(self._not_finite(first, columns[first]), blameless=True)
        return Verdict(columns.get(first), averaged(columns), answer, outcome, columns)

    def _not_finite(self, key: str, value: float) -> str:
        aggregations = {name: how for scoring in self.scorings for name, how in _aggregations(scoring).items()}
        sentence = f"{key} is {value} for this document, so it has no reward; lm-evaluation-harness' number"
        excluded = aggregations.get(key.rpartition(",")[0], "mean") == "nanmean" and math.isnan(value)
        return f"{sentence} excludes it, too" if excluded else f"{sentence} includes it"


def _aggregations(scoring: Scoring) -> dict[str, Any]:
    return {entry.name: entry.aggregation for entry in scoring.metrics}


def averaged(columns: Mapping[str, float]) -> dict[str, float]:
    """The scores that the dialect has a metric for, such as acc, by metric; from the first pipeline that has them."""
    by_metric: dict[str, float] = {}
    for key, value in columns.items():
        name = key.rpartition(",")[0]
        if name in AVERAGED and math.isfinite(value):
            by_metric.setdefault(name, value)
    return by_metric


def number_of(score: Any, how: Any) -> float | None:
    """A document's score as a number: the score itself, or its aggregate over only this document."""
    if isinstance(score, (bool, int, float)) and how != "perplexity":  # whose score is a log-likelihood
        return float(score)
    try:
        value = aggregate(how, [score])
    except CalipersError:
        return None
    return float(value) if isinstance(value, (int, float)) else None


def _scalar(value: Any) -> Any:
    """An answer as the verdict records it: a list of one answer as this answer; None for other types of values."""
    answer = value[0] if isinstance(value, list) and len(value) == 1 else value
    return answer if isinstance(answer, (str, int, float, bool, list)) else None


@dataclass(frozen=True, slots=True)
class LikelihoodJudge:
    """Scores the log-likelihoods of one document with a task's metrics."""

    task: LoadedTask
    scorings: list[Scoring]
    settings: ScoringSettings

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The scores of the document by every metric that is meaningful for one document."""
        try:
            lines = read_back(completion.text)
            document = answered_documents(self.task, {int(task.id): _likelihoods(self.settings.kind, lines)})
            scores = score_documents(document, self.scorings, self.settings)
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        if self.settings.kind == CHOICE and self.settings.process_results is None:
            problem = _bad_target_index(self.task, int(task.id))
            if problem is not None:
                raise VerifierError(f"{problem}; lm-evaluation-harness' number counts this document as 0")
        columns: dict[str, float] = {}
        reward = None
        for scored in scores.pipelines:
            aggregations = _aggregations(scored.scoring)
            for name, score in scored.scores[0].items():
                how = aggregations.get(name, "mean")
                value = None if how in CORPUS_ONLY else number_of(score, how)
                if value is None or not math.isfinite(value):
                    continue  # such as the infinite perplexity of a very unlikely text
                columns[f"{name},{scored.scoring.pipeline.name}"] = value
                if reward is None and how == "mean":
                    reward = value
        metrics = averaged(columns)
        if self.settings.kind == CHOICE:
            choices = document[0].choices or ()
            likeliest = argmax([line.logprob for line in lines[: len(choices)]])
            answer = (choices or ("",))[likeliest]
            return Verdict(lines[likeliest].logprob if reward is None else reward, metrics, answer, fields=columns)
        line = lines[0]
        columns |= {"logprob": line.logprob, "scored_tokens": line.tokens, "bytes": line.bytes}
        logprob = line.logprob
        if self.settings.kind == ROLLING:
            columns["words"] = words(str(document[0].target))
            logprob /= max(1, line.bytes)
        return Verdict(logprob if reward is None else reward, metrics, fields=columns)


@dataclass(frozen=True, slots=True)
class ClassJudge:
    """Scores the results of one document with the task's own class."""

    task: LoadedTask
    scorings: list[Scoring]

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The class's scores of the document.

        The reward is the first score that is a number; if there is none, the first that its aggregation turns into one.
        """
        number = int(task.id)
        try:
            results = responses_of(self.task, number, [completion.text])
            scores = score_documents(
                answered_documents(self.task, {number: results}), self.scorings, scoring_settings(self.task)
            )
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        columns: dict[str, float] = {}
        unaggregated: list[tuple[str, Any, Any]] = []  # (key, score, the class's own function, which may be slow)
        for scored in scores.pipelines:
            aggregations = _aggregations(scored.scoring)
            for name, score in scored.scores[0].items():
                key, how = f"{name},{scored.scoring.pipeline.name}", aggregations.get(name, "mean")
                if callable(how) and not isinstance(score, (bool, int, float)):
                    unaggregated.append((key, score, how))
                elif (value := number_of(score, how)) is not None and math.isfinite(value):
                    columns[key] = value
        for key, score, how in unaggregated:
            if columns:
                break
            if (value := number_of(score, how)) is not None and math.isfinite(value):
                columns[key] = value
        answer = _first_text(self.scorings[0], results, self.task.docs[number], request_kinds(self.task)[number])
        return Verdict(next(iter(columns.values()), None), averaged(columns), answer, fields=columns)


def _first_text(scoring: Scoring, results: list[list[Any]], doc: Mapping[str, Any], kinds: Sequence[str]) -> str | None:
    """The response to the first request for text, filtered by the pipeline; None if it is not text."""
    index = next((index for index, kind in enumerate(kinds) if kind == GENERATION), None)
    if index is None:
        return None
    value = filtered(scoring.pipeline, [results[index]], [doc]).values[0]
    return value if isinstance(value, str) else None


def scoring_notes(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """Notes on what lm-evaluation-harness does silently: it ignores metrics, and accepts targets that are no choice.

    InputError for a target or a choice of a type that it fails on.
    """
    kind = task.config.output_type
    if kind == GENERATION or task.config.process_results is not None or task.own is not None or not plan:
        return
    known = [entry for scoring in plan for entry in scoring.metrics if entry.name not in NEWER]
    for name in dict.fromkeys(silently_ignored(known, kind)):
        location = task.location("metric_list")
        yield f"{location}: {name} has no value for {kind}; it is skipped, as in lm-evaluation-harness"
    if kind != CHOICE:
        return
    no_choice = [number for number in range(len(task.docs)) if _is_no_choice(task, number)]
    bad_index = [number for number in no_choice if _bad_target_index(task, number) is not None]
    where = task.location("doc_to_target")
    if texts := [number for number in no_choice if number not in bad_index]:
        yield (
            f"{where}: {len(texts)} documents ({_first_three(texts)}) have a target "
            "that is not one of the choices, and count as 0"
        )
    if bad_index:
        sentence = f"{len(bad_index)} documents ({_first_three(bad_index)}) have a target index beyond their choices"
        yield f"{where}: {sentence}: they have no reward, and count as 0 in lm-evaluation-harness' numbers"


def _first_three(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")


def _bad_target_index(task: LoadedTask, number: int) -> str | None:
    """The description of a target that is an index beyond the choices; None for any other target.

    Also None if at least one of several targets is the index of a choice.
    """
    target, choices = target_of(task, number), task.choices(task.docs[number], number) or []
    indices = list(target) if isinstance(target, (list, tuple)) else [target]
    valid = (*range(len(choices)), NO_CHOICE)  # with NO_CHOICE a task says that no choice is correct
    if not indices or not all(isinstance(index, int) and index not in valid for index in indices):
        return None
    return f"the target is choice {indices[0]} of {len(choices)}, counted from 0"


def _is_no_choice(task: LoadedTask, number: int) -> bool:
    """Whether a document's target, or one of its targets, is not one of its choices."""
    doc = task.docs[number]
    choices = task.choices(doc, number) or []
    for choice in choices:
        if not isinstance(choice, str):
            raise InputError.at(task.location("doc_to_choice", number), f"a choice is {choice!r}", "expected texts")
    target = target_of(task, number)
    try:
        gold = gold_of(target, choices)
    except InputError as error:
        raise InputError(f"{task.location('doc_to_target', number)}: {error}") from None
    return NO_CHOICE in gold if isinstance(gold, list) else gold == NO_CHOICE


def trial_notes(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """A note if a class's scoring fails in a trial on its first document, before the model is called."""
    if task.own is None or not plan:
        return
    results = [TRIAL_RESULTS.get(kind, TRIAL_LIKELIHOOD) for kind in request_kinds(task)[0]]
    where = task.location("class")
    try:
        scores = process(task.own.process, task.docs[0], results)
    except CalipersError as error:
        yield f"{where}: tried on the first document with an empty answer: {error}"
        return
    for entry in plan[0].metrics:
        if callable(entry.aggregation) and entry.name in scores:
            try:
                entry.aggregation([scores[entry.name]])
            except Exception as error:  # the task's code may raise anything, as when it downloads a metric
                first_line = str(error).strip().partition("\n")[0]
                sentence = f"the aggregation of {entry.name} failed ({type(error).__name__}: {first_line})"
                yield f"{where}: tried on the first document: {sentence}"
                return
