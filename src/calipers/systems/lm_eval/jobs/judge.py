"""How a run judges an answer to a task of lm-evaluation-harness while it goes: one response at a time.

Its numbers proper need all responses to a document and all documents; they are made from the log when the
run is over. What is said here is what the same filters and metrics say of one response alone: a column
``metric,pipeline`` each, and the first of them as the reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from calipers.clients.client import Completion
from calipers.errors import CalipersError, InputError, PluginError, UnknownName, VerifierError
from calipers.systems.lm_eval.filters import Select
from calipers.systems.lm_eval.metrics.aggregations import NAMES, aggregate
from calipers.systems.lm_eval.metrics.task import check
from calipers.systems.lm_eval.pipelines import Pipeline, check_ends, filtered, patterns_of, pipeline
from calipers.systems.lm_eval.scores.entries import GENERATION, Entry, process, score_answer
from calipers.systems.lm_eval.scores.scorers import Scoring, metrics_of, scorer_of, scorings
from calipers.systems.lm_eval.tasks.config import TaskFields
from calipers.systems.lm_eval.tasks.loaded import LoadedTask
from calipers.systems.lm_eval.words import AVERAGED
from calipers.tasks.task import Task
from calipers.verifiers.user_code import ObjectVerifier
from calipers.verifiers.verifier import Verdict, Verifier


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
    own = [bool(entry.get("metric_list")) for entry in config.filter_list or ()] or [False]
    for number, (inner, one) in enumerate(zip(own, scorings, strict=True)):
        place = f"{file.place('filter_list')}[{number}].metric_list" if inner else file.place("metric_list")
        left = kept_repeats(one.pipeline, config.repeats)
        for metric in one.metrics:
            _at(place, check, metric, config.repeats, place)
            if metric.k is not None and (most := metric.k if isinstance(metric.k, int) else max(metric.k)) > left:
                wrong = f"k is {most}, and pipeline {one.pipeline.name!r} keeps {left} of {config.repeats} repeats"
                raise InputError.at(place, wrong, "expected a pipeline without take_first, such as filter: [noop]")
            _at(place, _check_patterns, metric.settings)
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


def _at(place: str, look: Callable[..., None], *arguments: Any) -> None:
    try:
        look(*arguments)
    except CalipersError as error:
        text = str(error) if str(error).startswith(place) else f"{place}: {error}"
        raise (UnknownName if isinstance(error, UnknownName) else InputError)(text) from None


VERIFIER = "lm_eval"
UNPARSED, STOPPED = "unparsed", "filter_timeout"


def judge(task: LoadedTask) -> ObjectVerifier:
    """The verifier of a task; InputError with file and key for a filter, metric or scorer that there is not."""
    return ObjectVerifier(VERIFIER, cast(Verifier, ResponseJudge(task, scoring(task))))


def scoring(task: LoadedTask) -> list[Scoring]:
    """The pipelines of a task and their metrics, every name in them found and every setting checked."""
    config, file = task.config, task.file
    if task.own is not None and not config.metric_list:
        own, place = task.own.metrics, file.place("class")
        return scorings(GENERATION, filter_list=config.filter_list, metric_list=own, scored=False, location=place)
    scored = config.process_results is None
    for number, entry in enumerate(config.filter_list or ()):
        here = f"{file.place('filter_list')}[{number}]"
        _placed(here, pipeline, entry, here)
        _placed(f"{here}.metric_list", _metrics, entry.get("metric_list"), config, scored)
        for step in entry["filter"]:
            _check_step(task, step, here)
    _placed(file.place("scorer"), scorer_of, config.scorer, config.output_type)
    _placed(file.place("metric_list"), _metrics, config.metric_list, config, scored)
    found = scorings(
        config.output_type,
        filter_list=config.filter_list,
        metric_list=config.metric_list,
        scorer=config.scorer,
        scored=scored,
        location=file.place(),
    )
    return checked(task, found)


def _metrics(asked: Any, config: TaskFields, scored: bool) -> list[Entry]:
    named = config.scorer is not None
    found = metrics_of(asked, config.output_type, scored=scored, named=named) if asked else []
    for entry in found:
        if isinstance(entry.aggregation, str) and entry.aggregation not in NAMES:
            raise UnknownName.of("lm_eval aggregation", entry.aggregation, NAMES)  # there, only when the run is over
    return found


def _placed(place: str, check: Callable[..., Any], *arguments: Any) -> None:
    """Check something; what is wrong with it is said with the place where it stands."""
    try:
        check(*arguments)
    except CalipersError as error:
        text = str(error) if str(error).startswith(place) else f"{place}: {error}"
        raise (UnknownName if isinstance(error, UnknownName) else InputError)(text) from None


def _check_step(task: LoadedTask, step: Mapping[str, Any], place: str) -> None:
    settings = {**step, **(step.get("kwargs") or {})}
    if step["function"] == "take_first_k" and settings["k"] > task.config.repeats:
        wrong = f"take_first_k takes {settings['k']} of {task.config.repeats} responses"
        raise InputError.at(place, wrong, f"expected repeats: {settings['k']} or more, or as many --samples")
    if step["function"] == "multi_choice_regex" and "choices" not in task.columns:
        wrong = "multi_choice_regex needs a column 'choices'"
        raise InputError.at(place, wrong, f"the documents have {', '.join(task.columns)}")


@dataclass(frozen=True, slots=True)
class ResponseJudge:
    """A task's filters and metrics, over one response."""

    task: LoadedTask
    scorings: list[Scoring]

    def check(self, task: Task) -> None:
        """Nothing: the documents were worked out when the suite was made."""

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
        for place, one in enumerate(self.scorings):
            found = _answer(one.pipeline, responses, doc)
            if found is None:
                continue
            value, word = found
            if place == 0:
                answer, outcome = _scalar(value), UNPARSED if word == UNPARSED else ""
                if word == STOPPED:
                    raise VerifierError(f"pipeline {one.pipeline.name!r}: a pattern did not end", outcome=STOPPED)
            columns |= self._scores(one, target, value, doc)
        first = next(iter(columns), "")
        if first and not math.isfinite(columns[first]):
            raise VerifierError(self._no_number(first, columns[first]), blameless=True)  # as its number has it
        return Verdict(columns.get(first), averaged(columns), answer, outcome, columns)

    def _no_number(self, key: str, value: float) -> str:
        hows = {entry.name: entry.aggregation for one in self.scorings for entry in one.metrics}
        how = hows.get(key.rpartition(",")[0], "mean")
        told = f"{key} is {value} for this document, which has no reward then; lm-evaluation-harness' number"
        return f"{told} leaves it out, too" if how == "nanmean" and math.isnan(value) else f"{told} counts it"

    def _scores(self, one: Scoring, target: Any, value: Any, doc: Mapping[str, Any]) -> dict[str, float]:
        function = self.task.config.process_results
        if function is not None:
            scores = process(function, doc, [value])
        else:
            scores = {}
            for entry in one.metrics:
                alone = (entry.reduction or one.reduction) and isinstance(value, list) and value
                answer = value[0] if alone else value  # a reduction looks at each repeat by itself
                scores |= score_answer([entry], target, answer, several=self.task.multiple_targets)
        hows = {entry.name: entry.aggregation for entry in one.metrics}
        numbers = {name: number_of(score, hows.get(name, "mean")) for name, score in scores.items()}
        return {f"{name},{one.pipeline.name}": score for name, score in numbers.items() if score is not None}


def _answer(through: Pipeline, responses: list[str], doc: Mapping[str, Any]) -> tuple[Any, str] | None:
    """A pipeline's answer to some responses and the ledger's word for it; None where they are too few."""
    try:
        found = filtered(through, [responses], [doc])
    except InputError:
        return None
    return found.values[0], found.outcome(0)


def averaged(columns: Mapping[str, float]) -> dict[str, float]:
    """The scores that the dialect knows by a name of their own, such as acc; of several pipelines, the first's."""
    found: dict[str, float] = {}
    for key, value in columns.items():
        name = key.rpartition(",")[0]
        if name in AVERAGED and math.isfinite(value):
            found.setdefault(name, value)
    return found


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
    held = value[0] if isinstance(value, list) and len(value) == 1 else value
    return held if isinstance(held, (str, int, float, bool, list)) else None
