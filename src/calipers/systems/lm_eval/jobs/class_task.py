"""Tasks of lm-evaluation-harness that are Python classes: what they ask, of whom, and how a run judges an answer.

::

    document ──► the class's requests ──► results, one per request ──► the class's own scores
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, cast

from calipers.clients.client import Client, Completion
from calipers.clients.likelihood import Continuation, Likelihoods, Rolling, likelihoods
from calipers.errors import CalipersError, InputError, VerifierError
from calipers.running.job import Job
from calipers.systems.lm_eval.jobs.chat import check_model
from calipers.systems.lm_eval.jobs.judge import VERIFIER, averaged, number_of, scoring
from calipers.systems.lm_eval.jobs.mixed import Mixed, Part, Writing, read_answers
from calipers.systems.lm_eval.jobs.sampling import sampling
from calipers.systems.lm_eval.pipelines import filtered
from calipers.systems.lm_eval.scores.entries import GENERATION, ROLLING, process
from calipers.systems.lm_eval.scores.scorers import Scoring
from calipers.systems.lm_eval.task_scores import Way, answered, score_documents
from calipers.systems.lm_eval.tasks.loaded import Instance, LoadedTask
from calipers.systems.lm_eval.tasks.requests import Asking, requests
from calipers.tasks.task import Suite, Task
from calipers.verifiers.user_code import ObjectVerifier
from calipers.verifiers.verifier import Verdict, Verifier

TRIED: Final = {GENERATION: "", ROLLING: -1.0}
"""Made-up results on which a class is tried before the first call; of any other request, a likelihood."""


def asking(client: Client, job: Job, suite: Suite) -> Client:
    """The client for a class's requests; InputError for a model that gives no likelihoods where some are asked for."""
    likely = any("prompt" not in part for task in suite.tasks for part in cast(Sequence[Any], task.prompt))
    check_model(job, written=not likely)
    if job.system_prompt is not None:
        wrong = "the class writes its prompts itself, and they have no system turn"
        raise InputError.at(job.place("system_prompt"), wrong, "expected --system-instruction")
    if job.model.startswith("replay/"):
        return client
    scores = Likelihoods(client, likelihoods(client, job.model), job.price) if likely else None
    return Mixed(client, scores, [name for name in ("max_tokens", "temperature", "stop") if name in job.origins])


def by_document(task: LoadedTask) -> Iterator[tuple[int, list[Instance]]]:
    """Each document's number and its requests."""
    for number, made in groupby(requests(task, Asking()), key=lambda one: one.doc_id):
        yield number, list(made)


def parts(task: LoadedTask) -> Iterator[tuple[int, list[Part]]]:
    """Each document's number and what the model is asked; InputError for what is no text."""
    for number, made in by_document(task):
        yield number, [_part(task, one) for one in made]


def _part(task: LoadedTask, one: Instance) -> Part:
    place = task.place("class", one.doc_id)
    chats = task.manner.chat and one.request_type != ROLLING
    for at, value in enumerate(one.args[: 1 if one.request_type == GENERATION else 2]):
        if not isinstance(value, str) and not (chats and at == 0):
            raise InputError.at(place, f"asks about {value!r}", "expected a text")
    if one.request_type == ROLLING:
        return Rolling(one.args[0])
    if one.request_type != GENERATION:
        if len(one.args) != 2:
            raise InputError.at(
                place, f"a likelihood of {len(one.args)} texts", "expected a context and a continuation"
            )
        return Continuation(*one.args)
    given = one.args[1] if len(one.args) > 1 else {}
    if not isinstance(given, Mapping):
        raise InputError.at(place, f"generation settings are {given!r}", "expected a mapping, such as {until: [...]}")
    told = sampling(given, f"{place}: generation_kwargs")
    return Writing(one.args[0], told["max_tokens"], told["temperature"], told["stop"], told["gen_kwargs"])


def responses_of(task: LoadedTask, number: int, said: Sequence[str]) -> list[list[Any]]:
    """What a log holds of a document, [requests x repeats], from its completions."""
    each = [read_answers(text, kinds(task)[number]) for text in said]
    return [list(one) for one in zip(*each, strict=True)]


def kinds(task: LoadedTask) -> Mapping[int, list[str]]:
    """The kinds of each document's requests."""
    if "kinds" not in task.kept:
        task.kept["kinds"] = {number: [one.request_type for one in made] for number, made in by_document(task)}
    found: Mapping[int, list[str]] = task.kept["kinds"]
    return found


def way(task: LoadedTask) -> Way:
    """How documents are scored: by the class itself, unless nothing is to be scored."""
    bypassed = any(entry["metric"] == "bypass" for entry in task.config.metric_list or ())
    return Way(GENERATION, process_results=task.own.process if task.own is not None and not bypassed else None)


def tried(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """A note for what of the class's scoring fails on the first document, before a model is asked for all of them."""
    if task.own is None or not plan:
        return
    made_up = [TRIED.get(kind, (-1.0, False)) for kind in kinds(task)[0]]
    place = task.place("class")
    try:
        scores = process(task.own.process, task.docs[0], made_up)
    except CalipersError as error:
        yield f"{place}: tried on the first document with an empty answer: {error}"
        return
    for entry in plan[0].metrics:
        if callable(entry.aggregation) and entry.name in scores:
            try:
                entry.aggregation([scores[entry.name]])
            except Exception as error:  # of every class there is, such as a metric that is to be downloaded
                first = str(error).strip().partition("\n")[0]
                told = f"the aggregation of {entry.name} failed ({type(error).__name__}: {first})"
                yield f"{place}: tried on the first document: {told}"
                return


def judge_class(task: LoadedTask) -> ObjectVerifier:
    """The verifier of a task that is a class."""
    return ObjectVerifier(VERIFIER, cast(Verifier, Judge(task, scoring(task))))


@dataclass(frozen=True, slots=True)
class Judge:
    """A class's own scores, over the results of one document."""

    task: LoadedTask
    scorings: list[Scoring]

    def check(self, task: Task) -> None:
        """Nothing: the documents were worked out when the suite was made."""

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """What the class gives for the document by itself.

        The reward is the first score that is a number; where there is none, the first that its aggregation makes one.
        """
        number = int(task.id)
        try:
            results = responses_of(self.task, number, [completion.text])
            found = score_documents(answered(self.task, {number: results}), self.scorings, way(self.task))
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        columns: dict[str, float] = {}
        summed: list[tuple[str, Any, Any]] = []
        for one in found.pipelines:
            hows = {entry.name: entry.aggregation for entry in one.scoring.metrics}
            for name, score in one.scores[0].items():
                key, how = f"{name},{one.scoring.pipeline.name}", hows.get(name, "mean")
                if callable(how) and not isinstance(score, (bool, int, float)):
                    summed.append((key, score, how))  # the class's own function, which may take long
                elif (value := number_of(score, how)) is not None and math.isfinite(value):
                    columns[key] = value
        for key, score, how in summed:
            if columns:
                break
            if (value := number_of(score, how)) is not None and math.isfinite(value):
                columns[key] = value
        answer = _answer(self.scorings[0], results, self.task.docs[number], kinds(self.task)[number])
        return Verdict(next(iter(columns.values()), None), averaged(columns), answer, fields=columns)


def _answer(one: Scoring, results: list[list[Any]], doc: Mapping[str, Any], asked: Sequence[str]) -> str | None:
    """What the first request for text was answered, as the first pipeline leaves it."""
    place = next((at for at, kind in enumerate(asked) if kind == GENERATION), None)
    if place is None:
        return None
    value = filtered(one.pipeline, [results[place]], [doc]).values[0]
    return value if isinstance(value, str) else None
