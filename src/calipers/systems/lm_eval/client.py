"""What a task of lm-evaluation-harness asks of a model: prompts, sampling settings, and the client that sends them.

::

    document ──► requests ──► a task's prompt ──► each sent in turn ──► one completion of the log

The completion of a single request for text is that text. Any other is JSON, with one object per request. The model
``dummy`` is here too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import groupby
from typing import Any, Final, cast

import msgspec

from calipers.clients import (
    Client,
    Completion,
    Continuation,
    Likelihoods,
    Line,
    Request,
    Rolling,
    Scored,
    Text,
    likelihoods,
    read_back,
    texts_of,
)
from calipers.clients import as_prompt as texts_as_prompt
from calipers.clients.huggingface import LoadOptions
from calipers.clients.huggingface.checkpoint import Local
from calipers.errors import ClientError, InputError
from calipers.running import Job
from calipers.systems.lm_eval.entries import GENERATION, ROLLING
from calipers.systems.lm_eval.tasks.loaded import Instance, LoadedTask
from calipers.systems.lm_eval.tasks.prompts import Manner
from calipers.systems.lm_eval.tasks.requests import Asking, requests
from calipers.systems.lm_eval.write import digest
from calipers.tasks import Message, Prompt, Suite

LOCAL: Final = "hf/"  # whose templates are at hand
STORED: Final = "replay/"
SETTABLE: Final = ("max_tokens", "temperature", "stop")  # by a request, where the user says nothing


def manner(job: Job) -> Manner:
    """How the prompts of a run's task are written; InputError where the settings contradict each other."""
    chat = job.chats
    if job.fewshot_as_multiturn and not chat:
        wrong = "needs a chat template"
        raise InputError.at(job.place("fewshot_as_multiturn"), wrong, "add --apply-chat-template")
    if job.system_prompt is not None and (chat or job.system_instruction is not None):
        wrong = "adds a separate system message before the prompt"
        right = "use --system-instruction instead, which is put before the task's description"
        raise InputError.at(job.place("system_prompt"), wrong, right)
    return Manner(chat, job.fewshot_as_multiturn is not False, job.system_instruction)


def check_model(job: Job, *, written: bool) -> None:
    """Refuse a chat of a model that takes none; ``written``: an answer is wanted, and not a likelihood."""
    where, named = job.place("apply_chat_template"), template(job)
    if named is None or job.model.startswith(STORED):
        return
    if named and (not job.model.startswith(LOCAL) or os.path.lexists(named)):
        wrong = f"{named!r} was read as the name of a chat template, which only hf/ models have"
        raise InputError.at(where, wrong, "put the benchmark before the option, or after --")
    if not written and not job.model.startswith(LOCAL):
        wrong = f"the task needs log-likelihoods, which {job.model} does not return for a chat"
        raise InputError.at(where, wrong, "expected hf/PATH, or no chat template")
    if written and job.api == "completions":
        wrong = "the completions route accepts text, not chat messages"
        raise InputError.at(where, wrong, "expected --api chat, or no chat template")


def template(job: Job) -> str | None:
    """The name of the template that a local model puts around turns, "" for its own; None where there are no chats."""
    if not job.chats:
        return None
    return job.apply_chat_template if isinstance(job.apply_chat_template, str) else ""


def shown(prompt: Any, local: Local | None = None) -> Any:
    """A prompt as its samples file has it: a chat as the ``local`` model reads it, else a list of its turns as JSON.

    >>> shown("2 + 2"), shown([{"role": "user", "content": "2 + 2"}])
    ('2 + 2', ['[{"role": "user", "content": "2 + 2"}]'])
    """
    if not isinstance(prompt, list):
        return prompt
    return [json.dumps(prompt, ensure_ascii=False)] if local is None else local.around(prompt)


def local(job: Job) -> Local | None:
    """The template that a run's model puts around turns; None where that is a server's own affair."""
    name = template(job)
    if name is None or not job.model.startswith(LOCAL):
        return None
    options = LoadOptions.of(job.model_args)
    # the plan of a run may say that its code is to be trusted; whoever reads the plan has to say so too
    options = replace(options, trust_remote_code=options.trust_remote_code and job.trust)
    return Local.load(job.model.removeprefix(LOCAL), name, options)


def about(job: Job, local: Local | None) -> dict[str, Any]:
    """What a results file says of how prompts were written; nothing where they are the plain ones."""
    if not job.chats and job.system_instruction is None:
        return {}
    style, words = manner(job), job.system_instruction
    text = local.text if local else "" if style.chat else None
    return {
        "system_instruction": words,
        "system_instruction_sha": digest(words) if words else None,
        "fewshot_as_multiturn": style.multiturn if style.chat else job.fewshot_as_multiturn,
        "chat_template": text,
        "chat_template_sha": digest(text) if text else None,
    }


MOST_TOKENS: Final = 256  # of a completion, where a task does not say: lm-evaluation-harness' own
LENGTHS: Final = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first given counts
DROPPED: Final = ("do_sample",)  # of generation_kwargs: says nothing to a server that temperature does not


def sampling(generation_kwargs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings of a job for some ``generation_kwargs``; greedy unless they sample, whatever temperature they name.

    >>> sampling({"until": ["."], "max_gen_toks": 5, "top_p": 0.9}, "here")
    {'max_tokens': 5, 'temperature': 0.0, 'stop': ('.',), 'gen_kwargs': {'top_p': 0.9}}
    """
    given = dict(generation_kwargs)
    until = given.pop("until", None)
    lengths = {name: given.pop(name) for name in LENGTHS if name in given}
    given_lengths = {name: length for name, length in lengths.items() if length is not None}
    named, most = next(iter(given_lengths.items()), (LENGTHS[0], MOST_TOKENS))
    stops = [] if until is None else [until] if isinstance(until, str) else until
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise InputError.at(f"{where}.until", f"is {until!r}", "expected a text or a list of texts")
    if not isinstance(most, int) or most < 1:
        raise InputError.at(f"{where}.{named}", f"is {most!r}", "expected an integer >= 1")
    temperature, samples = given.pop("temperature", None), given.get("do_sample")
    if samples is False or (temperature is None and samples is not True):
        temperature = 0.0
    extra = {key: value for key, value in given.items() if key not in DROPPED}
    return {
        "max_tokens": most,
        "temperature": temperature,
        "stop": tuple(stop for stop in stops if stop),  # a server that stops at nothing says nothing
        "gen_kwargs": extra,
    }


class _WrittenText(msgspec.Struct):
    text: str


def read_answers(text: str, kinds: Sequence[str]) -> list[Any]:
    """What the log holds of a document, one result per request: texts, ``(logprob, greedy)``, or log-likelihoods.

    InputError where it does not hold one of the right kind for each.

    >>> read_answers("four", ["generate_until"]), read_answers('[{"text":"4"},{"text":"5"}]', ["generate_until"] * 2)
    (['four'], ['4', '5'])
    """
    if list(kinds) == ["generate_until"]:
        return [text]
    try:
        results = msgspec.json.decode(text, type=list[dict[str, Any]])
        if len(results) != len(kinds):
            raise InputError(f"{len(results)} results for {len(kinds)} requests; expected one for each")
        return [_answer_of(result, kind) for result, kind in zip(results, kinds, strict=True)]
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        right = "expected one result per request, as a log-likelihood run logs them"
        raise InputError(f"the completion is {text[:40]!r}; {right}") from None


def _answer_of(result: Mapping[str, Any], kind: str) -> Any:
    if kind == "generate_until":
        return msgspec.convert(result, _WrittenText).text
    line = msgspec.convert(result, Line)
    return line.logprob if kind == "loglikelihood_rolling" else (line.logprob, line.greedy)


class SeveralRequests:
    """A model as a client of the loop: every request of a prompt is sent to it, and the results are one completion.

    ``given`` names the sampling settings that the user gave; they win over those of the requests.
    """

    def __init__(self, client: Client, likelihoods: Likelihoods | None, given: Sequence[str] = ()) -> None:
        self._client, self._likelihoods, self._given = client, likelihoods, frozenset(given)

    @property
    def notes(self) -> Sequence[str]:
        """What the model has to say when all is over."""
        return tuple(getattr(self._client, "notes", ()))

    async def complete(self, request: Request) -> Completion:
        """The results of all requests of a prompt; `ClientError` when one of them fails."""
        if isinstance(request.prompt, str):
            raise ClientError("the prompt contains no requests", kind="prompt", hopeless=True)
        done = [await self._answer(request, part) for part in request.prompt]
        if len(done) == 1 and "prompt" in request.prompt[0]:
            return done[0]
        results: list[Any] = []
        for part, completion in zip(request.prompt, done, strict=True):
            results += [_WrittenText(completion.text)] if "prompt" in part else read_back(completion.text)
        usage: dict[str, float] = {}
        for name in done[0].usage:
            counts = [completion.usage.get(name) for completion in done]
            known = [count for count in counts if count is not None]
            if len(known) == len(counts):  # of all of them, or it would be a guess
                usage[name] = sum(known)
        ended = next((completion for completion in done if completion.ending), done[0])
        text = msgspec.json.encode(results).decode()
        return Completion(text, ended.finish_reason, ended.ending, usage)

    async def _answer(self, request: Request, part: Message) -> Completion:
        if "prompt" not in part:
            if self._likelihoods is None:
                raise ClientError("the model does not return log-likelihoods", kind="prompt", hopeless=True)
            texts_of([part])
            return await self._likelihoods.complete(msgspec.structs.replace(request, prompt=[part]))
        given = {name: part[name] for name in SETTABLE if name in part}
        requested = {name: value for name, value in given.items() if name not in self._given}
        extra = {**part.get("extra", {}), **request.extra}
        inner = msgspec.structs.replace(request, prompt=part["prompt"], extra=extra, **requested)
        return await self._client.complete(inner)

    async def close(self) -> None:
        """Give back what the model holds."""
        await self._client.close()


def prompts(task: LoadedTask) -> Iterator[tuple[int, Prompt]]:
    """Each document's number, and what the model is given: a text, or the texts whose likelihoods are asked for.

    InputError for what is no text.
    """
    if task.own is None and task.config.output_type == GENERATION:
        for request in requests(task, Asking()):
            yield request.doc_id, request.args[0]
        return
    for number, instances in _by_document(task):
        if task.own is None:
            yield number, texts_as_prompt([_text(task, instance) for instance in instances])
        else:
            yield number, [_message(task, instance) for instance in instances]


def kinds(task: LoadedTask) -> Mapping[int, list[str]]:
    """The kinds of each document's requests."""
    if "kinds" not in task.kept:
        task.kept["kinds"] = {number: [each.request_type for each in made] for number, made in _by_document(task)}
    known: Mapping[int, list[str]] = task.kept["kinds"]
    return known


def _by_document(task: LoadedTask) -> Iterator[tuple[int, list[Instance]]]:
    for number, instances in groupby(requests(task, Asking()), key=lambda instance: instance.doc_id):
        yield number, list(instances)


def _text(task: LoadedTask, instance: Instance) -> Text:
    args = instance.args
    for key, value in zip(("doc_to_text", "doc_to_target")[-len(args) :], args, strict=True):
        if not isinstance(value, str) and not (task.manner.chat and key == "doc_to_text"):
            where = task.place(key, instance.doc_id)
            raise InputError.at(where, f"is {value!r}", "expected the text to compute the likelihood of")
    return Continuation(*args) if len(args) > 1 else Rolling(*args)


def _message(task: LoadedTask, instance: Instance) -> Message:
    where, kind, args = task.place("class", instance.doc_id), instance.request_type, instance.args
    chats = task.manner.chat and kind != ROLLING
    for index, value in enumerate(args[: 1 if kind == GENERATION else 2]):
        if not isinstance(value, str) and not (chats and index == 0):
            raise InputError.at(where, f"asks about {value!r}", "expected a text")
    if kind == ROLLING:
        return texts_as_prompt([Rolling(args[0])])[0]
    if kind != GENERATION:
        if len(args) != 2:
            raise InputError.at(where, f"a likelihood of {len(args)} texts", "expected a context and a continuation")
        return texts_as_prompt([Continuation(*args)])[0]
    given = args[1] if len(args) > 1 else {}
    if not isinstance(given, Mapping):
        raise InputError.at(where, f"generation settings are {given!r}", "expected a mapping, such as {until: [...]}")
    settings = sampling(given, f"{where}: generation_kwargs")
    message = {"prompt": args[0], "max_tokens": settings["max_tokens"], "temperature": settings["temperature"]}
    message |= {"stop": list(settings["stop"]) or None, "extra": settings["gen_kwargs"] or None}
    return {key: value for key, value in message.items() if value is not None}


def task_client(client: Client, job: Job, suite: Suite) -> Client:
    """The client for a task's questions: the model itself, or its likelihoods; InputError where it gives none.

    Stored completions hold the likelihoods already.
    """
    described = suite.metadata["lm_eval"]
    of_class = "class" in described
    if of_class:
        likely = any("prompt" not in part for task in suite.tasks for part in cast(Sequence[Any], task.prompt))
    else:
        likely = described["config"]["output_type"] != GENERATION
    check_model(job, written=not likely)
    if not of_class and not likely:
        return client
    if not of_class and job.samples > 1:
        raise InputError.at(
            job.place("samples"),
            f"is {job.samples}",
            ("expected 1, because every sample of a log-likelihood would be the same"),
        )
    if job.system_prompt is not None:
        wrong = "a log-likelihood request is plain text without a system message"
        if of_class:
            wrong = "the task's class writes its own prompts, without a system message"
        raise InputError.at(job.place("system_prompt"), wrong, "expected --system-instruction")
    if job.model.startswith(STORED):
        return client
    scores = Likelihoods(client, likelihoods(client, job.model), job.price) if likely else None
    if scores is not None and not of_class:
        return scores
    return SeveralRequests(client, scores, [name for name in SETTABLE if name in job.origins])


# -- lm-evaluation-harness' model ``dummy``

ANSWER: Final = "lol"
SPEC: Final = f"python/{__name__}:DUMMY"  # as the name of a model


class Dummy:
    """A model that knows nothing and costs nothing, to try a task with: it writes "lol".

    lm-evaluation-harness draws its log-likelihoods one after another; here each is drawn from its own text, so that the
    order in which requests are answered does not matter, and the same text has the same likelihood in every run.
    """

    async def complete(self, request: Request) -> Completion:
        """The same word to whatever is asked."""
        return Completion(ANSWER)

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """A log-likelihood between -1 and 0 for each text, never the likeliest."""
        return [Scored(-_uniform(text), greedy=False, tokens=1) for text in requests]

    async def close(self) -> None:
        """Nothing to give back."""


def _uniform(text: Text) -> float:
    parts = [text.text] if isinstance(text, Rolling) else [repr(text.context), text.continuation]
    digest = sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return math.ldexp(int.from_bytes(digest[:6]), -48)


DUMMY: Final = Dummy()
