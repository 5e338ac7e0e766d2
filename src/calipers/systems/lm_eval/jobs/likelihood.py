"""Tasks of lm-evaluation-harness that ask for log-likelihoods: what is asked, of whom, and how it is judged.

::

    document ──► texts ──► likelihoods ──► its scores as columns, and one of them as the reward

The reward is the first score that is averaged, such as acc; where there is none, the log-likelihood: of a whole
text per byte, so that long ones do not outweigh the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, cast

from calipers.clients.client import Client, Completion
from calipers.clients.likelihood import Continuation, Likelihoods, Line, Rolling, Text, likelihoods, read_back
from calipers.errors import CalipersError, InputError, VerifierError
from calipers.running.job import Job
from calipers.systems.lm_eval.jobs.chat import check_model
from calipers.systems.lm_eval.jobs.judge import VERIFIER, averaged, number_of, scoring
from calipers.systems.lm_eval.scores.choice import NEWER, NOWHERE, argmax, gold_of
from calipers.systems.lm_eval.scores.entries import CHOICE, GENERATION, ROLLING, passed_by, words
from calipers.systems.lm_eval.scores.scorers import Scoring
from calipers.systems.lm_eval.task_scores import Way, answered, score_documents, target_of
from calipers.systems.lm_eval.tasks.loaded import LoadedTask
from calipers.systems.lm_eval.tasks.requests import Asking, requests
from calipers.tasks.task import Suite, Task
from calipers.verifiers.user_code import ObjectVerifier
from calipers.verifiers.verifier import Verdict, Verifier

OF_MANY: Final = ("f1", "matthews_corrcoef")  # of one document by itself they say nothing


def asking(client: Client, job: Job, suite: Suite) -> Client:
    """The client for a task's questions: the model itself, or its likelihoods; InputError where it gives none.

    Stored completions hold the likelihoods already.
    """
    if "class" in suite.metadata["lm_eval"]:
        from calipers.systems.lm_eval.jobs.class_task import asking as asking_class

        return asking_class(client, job, suite)
    written = suite.metadata["lm_eval"]["config"]["output_type"] == GENERATION
    check_model(job, written=written)
    if written:
        return client
    if job.samples > 1:
        raise InputError.at(job.place("samples"), f"is {job.samples}", "expected 1: every likelihood would be the same")
    if job.system_prompt is not None:
        wrong = "a likelihood is asked of one text, which has no system turn"
        raise InputError.at(job.place("system_prompt"), wrong, "expected --system-instruction")
    if job.model.startswith("replay/"):
        return client
    return Likelihoods(client, likelihoods(client, job.model), job.price)


def texts(task: LoadedTask) -> Iterator[tuple[int, list[Text]]]:
    """Each document's number and the texts whose likelihoods it asks for; InputError for what is no text."""
    for number, made in groupby(requests(task, Asking()), key=lambda one: one.doc_id):
        yield number, [_text(task, number, one.args) for one in made]


def _text(task: LoadedTask, number: int, args: tuple[Any, ...]) -> Text:
    for field, value in zip(("doc_to_text", "doc_to_target")[-len(args) :], args, strict=True):
        if not isinstance(value, str) and not (task.manner.chat and field == "doc_to_text"):
            raise InputError.at(task.place(field, number), f"is {value!r}", "expected a text to ask the likelihood of")
    return Continuation(*args) if len(args) > 1 else Rolling(*args)


def doubts(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """What lm-evaluation-harness does here without a word: metrics passed by, targets that are no choice.

    InputError for a target or a choice that it would stumble over.
    """
    kind = task.config.output_type
    if kind == GENERATION or task.config.process_results is not None or task.own is not None or not plan:
        return
    known = [entry for one in plan for entry in one.metrics if entry.name not in NEWER]
    for name in dict.fromkeys(passed_by(known, kind)):
        yield f"{task.place('metric_list')}: {name} has no value for {kind}, and is left out as there"
    lost = [number for number in range(len(task.docs)) if kind == CHOICE and _nowhere(task, number)]
    beyond = [number for number in lost if _beyond(task, number) is not None]
    place = task.place("doc_to_target")
    if texts := [number for number in lost if number not in beyond]:
        yield f"{place}: {len(texts)} documents ({_some(texts)}) have a target that is no choice, and count 0"
    if beyond:
        told = f"{len(beyond)} documents ({_some(beyond)}) have the index of a choice that there is not"
        yield f"{place}: {told}: they have no reward, and count 0 in lm-evaluation-harness' numbers"


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")


def _beyond(task: LoadedTask, number: int) -> str | None:
    """What is wrong with a target that is the index of no choice; None for any other.

    One of several targets may be wrong: then the others still say what is right.
    """
    target, choices = target_of(task, number), task.choices(task.docs[number], number) or []
    several = list(target) if isinstance(target, (list, tuple)) else [target]
    known = (*range(len(choices)), NOWHERE)  # NOWHERE is its own word for a target that is meant to be no choice
    if not several or not all(isinstance(one, int) and one not in known for one in several):
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


def responses_of(kind: str, held: Sequence[Line]) -> list[list[Any]]:
    """What a log holds of a document as lm-evaluation-harness has it, [requests x 1]."""
    return [[one.logprob] if kind == ROLLING else [(one.logprob, one.greedy)] for one in held]


def judge_likelihoods(task: LoadedTask) -> ObjectVerifier:
    """The verifier of a task that asks for likelihoods."""
    way = Way(task.config.output_type, task.multiple_targets, task.config.process_results)
    return ObjectVerifier(VERIFIER, cast(Verifier, LikelihoodJudge(task, scoring(task), way)))


@dataclass(frozen=True, slots=True)
class LikelihoodJudge:
    """A task's metrics, over the likelihoods of one document."""

    task: LoadedTask
    scorings: list[Scoring]
    way: Way

    def check(self, task: Task) -> None:
        """Nothing: the documents were worked out when the suite was made."""

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """What each metric gives for the document by itself."""
        try:
            held = read_back(completion.text)
            document = answered(self.task, {int(task.id): responses_of(self.way.kind, held)})
            found = score_documents(document, self.scorings, self.way)
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        if self.way.kind == CHOICE and self.way.process_results is None:
            wrong = _beyond(self.task, int(task.id))
            if wrong is not None:
                raise VerifierError(f"{wrong}; lm-evaluation-harness' number counts this document 0")
        columns: dict[str, float] = {}
        first = None
        for one in found.pipelines:
            hows = {entry.name: entry.aggregation for entry in one.scoring.metrics}
            for name, score in one.scores[0].items():
                how = hows.get(name, "mean")
                value = None if how in OF_MANY else number_of(score, how)
                if value is None or not math.isfinite(value):
                    continue  # such as the perplexity of one hopeless text; its log-likelihood says as much
                columns[f"{name},{one.scoring.pipeline.name}"] = value
                if first is None and how == "mean":
                    first = value
        text = str(document[0].target)
        named = averaged(columns)
        if self.way.kind == CHOICE:
            likeliest = argmax([one.logprob for one in held[: len(document[0].choices or ())]])
            answer = (document[0].choices or ("",))[likeliest]
            return Verdict(held[likeliest].logprob if first is None else first, named, answer, fields=columns)
        columns |= _sizes(held[0], text if self.way.kind == ROLLING else None)
        share = held[0].logprob / max(1, held[0].bytes) if self.way.kind == ROLLING else held[0].logprob
        return Verdict(share if first is None else first, named, fields=columns)


def _sizes(held: Line, text: str | None) -> Mapping[str, float]:
    """What a perplexity is made of, as columns: the log-likelihood, and how much text it is of."""
    found: dict[str, float] = {"logprob": held.logprob, "scored_tokens": held.tokens, "bytes": held.bytes}
    return found if text is None else found | {"words": words(text)}
