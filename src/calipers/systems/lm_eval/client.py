"""The requests of an lm-evaluation-harness task: prompts, sampling settings, and the client that sends them.

::

    document ──► requests ──► a task's prompt ──► each request is sent in turn ──► one completion of the log

If a document has a single request and it is for text, the completion is that text. Otherwise it is JSON, with one
object per request. The model ``dummy`` is defined here too.
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
from calipers.systems.lm_eval.tasks.loaded import Instance, LoadedTask, requests
from calipers.systems.lm_eval.tasks.prompts import Manner
from calipers.systems.lm_eval.write import digest
from calipers.tasks import Message, Prompt, Suite
from calipers.typed import complete

LOCAL: Final = "hf/"  # models whose chat template can be read here
STORED: Final = "replay/"
SETTABLE: Final = ("max_tokens", "temperature", "stop")  # settings that a request may set unless the user set them


def manner(job: Job) -> Manner:
    """How the prompts of a run's task are written; InputError if the settings contradict each other."""
    chat = job.chats
    if job.fewshot_as_multiturn and not chat:
        problem = "needs a chat template"
        raise InputError.at(job.location("fewshot_as_multiturn"), problem, "add --apply-chat-template")
    if job.system_prompt is not None and (chat or job.system_instruction is not None):
        problem = "adds a separate system message before the prompt"
        expected = "use --system-instruction instead, which is put before the task's description"
        raise InputError.at(job.location("system_prompt"), problem, expected)
    return Manner(chat, job.fewshot_as_multiturn is not False, job.system_instruction)


def check_model(job: Job, *, written: bool) -> None:
    """Refuse chat messages for a model that does not accept them; ``written``: the task asks for text, not likelihoods.

    Also refuses the name of a chat template for a model that has none.
    """
    where, name = job.location("apply_chat_template"), template_name(job)
    if name is None or job.model.startswith(STORED):
        return
    if name and (not job.model.startswith(LOCAL) or os.path.lexists(name)):
        problem = f"{name!r} was read as the name of a chat template, which only hf/ models have"
        raise InputError.at(where, problem, "put the benchmark before the option, or after --")
    if not written and not job.model.startswith(LOCAL):
        problem = f"the task needs log-likelihoods, which {job.model} does not return for a chat"
        raise InputError.at(where, problem, "expected hf/PATH, or no chat template")
    if written and job.api == "completions":
        problem = "the completions route accepts text, not chat messages"
        raise InputError.at(where, problem, "expected --api chat, or no chat template")


def template_name(job: Job) -> str | None:
    """The name of the chat template, "" for the model's default one; None if prompts are not chat messages."""
    if not job.chats:
        return None
    return job.apply_chat_template if isinstance(job.apply_chat_template, str) else ""


def recorded_prompt(prompt: Any, chat_template: Local | None = None) -> Any:
    """A prompt as the samples file records it: chat messages through the template, or as JSON if there is none.

    >>> recorded_prompt("2 + 2"), recorded_prompt([{"role": "user", "content": "2 + 2"}])
    ('2 + 2', ['[{"role": "user", "content": "2 + 2"}]'])
    """
    if not isinstance(prompt, list):
        return prompt
    return [json.dumps(prompt, ensure_ascii=False)] if chat_template is None else chat_template.around(prompt)


def chat_template(job: Job) -> Local | None:
    """The chat template of a run's local model; None without chat messages, and for a server, which applies its own."""
    name = template_name(job)
    if name is None or not job.model.startswith(LOCAL):
        return None
    options = LoadOptions.of(job.model_args)
    # a run's plan may ask to trust remote code, but only the command that reads the plan can grant it
    options = replace(options, trust_remote_code=options.trust_remote_code and job.trust)
    return Local.load(job.model.removeprefix(LOCAL), name, options)


def prompt_settings(job: Job, chat_template: Local | None) -> dict[str, Any]:
    """The keys of a results file that describe how prompts were written; empty if they were written by default."""
    if not job.chats and job.system_instruction is None:
        return {}
    style, instruction = manner(job), job.system_instruction
    text = chat_template.text if chat_template else "" if style.chat else None
    return {
        "system_instruction": instruction,
        "system_instruction_sha": digest(instruction) if instruction else None,
        "fewshot_as_multiturn": style.multiturn if style.chat else job.fewshot_as_multiturn,
        "chat_template": text,
        "chat_template_sha": digest(text) if text else None,
    }


MAX_TOKENS: Final = 256  # per completion if the task does not set it: lm-evaluation-harness' default
MAX_TOKENS_NAMES: Final = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # in this order


def sampling(generation_kwargs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The sampling settings of a job for a task's ``generation_kwargs``.

    Greedy if ``do_sample`` is false, whatever the temperature, or if neither ``do_sample`` nor a temperature asks for
    sampling.

    >>> sampling({"until": ["."], "max_gen_toks": 5, "top_p": 0.9}, "here")
    {'max_tokens': 5, 'temperature': 0.0, 'stop': ('.',), 'gen_kwargs': {'top_p': 0.9}}
    """
    remaining = dict(generation_kwargs)
    until = remaining.pop("until", None)
    limits = {name: remaining.pop(name, None) for name in MAX_TOKENS_NAMES}
    name, max_tokens = next(
        ((name, limit) for name, limit in limits.items() if limit is not None), (MAX_TOKENS_NAMES[0], MAX_TOKENS)
    )
    stops = [] if until is None else [until] if isinstance(until, str) else until
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise InputError.at(f"{where}.until", f"is {until!r}", "expected a text or a list of texts")
    if type(max_tokens) is not int or max_tokens < 1:
        raise InputError.at(f"{where}.{name}", f"is {max_tokens!r}", "expected an integer >= 1")
    # do_sample is not sent on, because to a server the temperature says the same
    temperature, do_sample = remaining.pop("temperature", None), remaining.pop("do_sample", None)
    if do_sample is False or (temperature is None and do_sample is not True):
        temperature = 0.0
    return {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stop": tuple(stop for stop in stops if stop),  # an empty stop text would end every completion at once
        "gen_kwargs": remaining,
    }


class _WrittenText(msgspec.Struct):
    text: str


def read_answers(text: str, kinds: Sequence[str]) -> list[Any]:
    """The results in a document's logged completion, one per request: text, ``(logprob, greedy)``, or log-likelihood.

    InputError unless the completion holds one result of the right kind for each request.

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
        expected = "expected one result per request, as a log-likelihood run logs them"
        raise InputError(f"the completion is {text[:40]!r}; {expected}") from None


def _answer_of(result: Mapping[str, Any], kind: str) -> Any:
    if kind == "generate_until":
        return msgspec.convert(result, complete(_WrittenText)).text
    line = msgspec.convert(result, complete(Line))
    return line.logprob if kind == "loglikelihood_rolling" else (line.logprob, line.greedy)


class SeveralRequests:
    """A client that sends every request of a prompt to a model and returns the results as one completion.

    ``given`` names the sampling settings that the user gave; they override those of the requests.
    """

    def __init__(self, client: Client, likelihoods: Likelihoods | None, given: Sequence[str] = ()) -> None:
        self._client, self._likelihoods, self._given = client, likelihoods, frozenset(given)

    @property
    def notes(self) -> Sequence[str]:
        """The model's closing notes."""
        return tuple(getattr(self._client, "notes", ()))

    async def complete(self, request: Request) -> Completion:
        """The results of all requests of a prompt; `ClientError` if one of them fails."""
        if isinstance(request.prompt, str):
            raise ClientError("the prompt contains no requests", kind="prompt", hopeless=True)
        completions = [await self._answer(request, part) for part in request.prompt]
        if len(completions) == 1 and "prompt" in request.prompt[0]:
            return completions[0]
        results: list[Any] = []
        for part, completion in zip(request.prompt, completions, strict=True):
            results += [_WrittenText(completion.text)] if "prompt" in part else read_back(completion.text)
        usage: dict[str, float] = {}
        for name in completions[0].usage:
            counts = [completion.usage.get(name) for completion in completions]
            known = [count for count in counts if count is not None]
            if len(known) == len(counts):  # a sum over some of the completions would be wrong
                usage[name] = sum(known)
        ended = next((completion for completion in completions if completion.ending), completions[0])
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
        """Close the model's client."""
        await self._client.close()


def prompts(task: LoadedTask) -> Iterator[tuple[int, Prompt]]:
    """Each document's number and prompt: a text (or chat messages) to complete, or the texts to score.

    InputError for a prompt that is not text.
    """
    if task.own is None and task.config.output_type == GENERATION:
        for request in requests(task):
            yield request.doc_id, request.args[0]
        return
    for number, instances in _by_document(task):
        if task.own is None:
            yield number, texts_as_prompt([_text(task, instance) for instance in instances])
        else:
            yield number, [_message(task, instance) for instance in instances]


def request_kinds(task: LoadedTask) -> Mapping[int, list[str]]:
    """The kind of each request, by document number."""
    if "kinds" not in task.cache:
        task.cache["kinds"] = {
            number: [instance.request_type for instance in instances] for number, instances in _by_document(task)
        }
    kinds: Mapping[int, list[str]] = task.cache["kinds"]
    return kinds


def _by_document(task: LoadedTask) -> Iterator[tuple[int, Iterator[Instance]]]:
    return groupby(requests(task), key=lambda instance: instance.doc_id)


def _text(task: LoadedTask, instance: Instance) -> Text:
    args = instance.args
    for key, value in zip(("doc_to_text", "doc_to_target")[-len(args) :], args, strict=True):
        if not isinstance(value, str) and not (task.manner.chat and key == "doc_to_text"):
            where = task.location(key, instance.doc_id)
            raise InputError.at(where, f"is {value!r}", "expected the text to compute the likelihood of")
    return Continuation(*args) if len(args) > 1 else Rolling(*args)


def _message(task: LoadedTask, instance: Instance) -> Message:
    where, kind, args = task.location("class", instance.doc_id), instance.request_type, instance.args
    may_be_chat = task.manner.chat and kind != ROLLING
    for index, value in enumerate(args[: 1 if kind == GENERATION else 2]):
        if not isinstance(value, str) and not (may_be_chat and index == 0):
            raise InputError.at(where, f"asks about {value!r}", "expected a text")
    if kind == ROLLING:
        return texts_as_prompt([Rolling(args[0])])[0]
    if kind != GENERATION:
        if len(args) != 2:
            raise InputError.at(where, f"a likelihood of {len(args)} texts", "expected a context and a continuation")
        return texts_as_prompt([Continuation(*args)])[0]
    kwargs = args[1] if len(args) > 1 else {}
    if not isinstance(kwargs, Mapping):
        raise InputError.at(where, f"generation settings are {kwargs!r}", "expected a mapping, such as {until: [...]}")
    settings = sampling(kwargs, f"{where}: generation_kwargs")
    message = {"prompt": args[0], "max_tokens": settings["max_tokens"], "temperature": settings["temperature"]}
    message |= {"stop": list(settings["stop"]) or None, "extra": settings["gen_kwargs"] or None}
    return {key: value for key, value in message.items() if value is not None}


def task_client(client: Client, job: Job, suite: Suite) -> Client:
    """The client that runs a task's requests: the model's own, or one around it that computes log-likelihoods.

    InputError if the task needs log-likelihoods and the model does not return them. Stored completions contain the
    log-likelihoods already.
    """
    described = suite.metadata["lm_eval"]
    of_class = "class" in described
    if of_class:
        needs_likelihoods = any(
            "prompt" not in part for task in suite.tasks for part in cast(Sequence[Any], task.prompt)
        )
    else:
        needs_likelihoods = described["config"]["output_type"] != GENERATION
    check_model(job, written=not needs_likelihoods)
    if not of_class and not needs_likelihoods:
        return client
    if not of_class and job.samples > 1:
        expected = "expected 1, because every sample of a log-likelihood would be the same"
        raise InputError.at(job.location("samples"), f"is {job.samples}", expected)
    if job.system_prompt is not None:
        problem = "a log-likelihood request is plain text without a system message"
        if of_class:
            problem = "the task's class writes its own prompts, without a system message"
        raise InputError.at(job.location("system_prompt"), problem, "expected --system-instruction")
    if job.model.startswith(STORED):
        return client
    scorer = Likelihoods(client, likelihoods(client, job.model), job.price) if needs_likelihoods else None
    if scorer is not None and not of_class:
        return scorer
    return SeveralRequests(client, scorer, [name for name in SETTABLE if name in job.origins])


# -- lm-evaluation-harness' model ``dummy``

ANSWER: Final = "lol"
SPEC: Final = f"python/{__name__}:DUMMY"  # its name for --model


class Dummy:
    """A model for trying out a task: it completes every prompt with "lol" and costs nothing.

    lm-evaluation-harness draws the log-likelihoods in the order of the requests. Here each one is derived from its
    text, so that it does not depend on the order and is the same in every run.
    """

    async def complete(self, request: Request) -> Completion:
        """The same completion for every request."""
        return Completion(ANSWER)

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """A log-likelihood between -1 and 0 for each text; no text is the greedy completion."""
        return [Scored(-_uniform(text), greedy=False, tokens=1) for text in requests]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _uniform(text: Text) -> float:
    parts = [text.text] if isinstance(text, Rolling) else [repr(text.context), text.continuation]
    digest = sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return math.ldexp(int.from_bytes(digest[:6]), -48)


DUMMY: Final = Dummy()
