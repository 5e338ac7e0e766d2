"""Chats for tasks of lm-evaluation-harness: what ``--apply-chat-template`` and its neighbours ask of a run."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from calipers.clients.huggingface.template import Local
from calipers.errors import InputError
from calipers.running.job import Job
from calipers.systems.lm_eval.tasks.prompts import Manner
from calipers.systems.lm_eval.write import digest

LOCAL: Final = "hf/"  # whose templates are at hand
STORED: Final = "replay/"


def manner(job: Job) -> Manner:
    """How the prompts of a run's task are written; InputError where the settings contradict each other."""
    chat = job.chats
    if job.fewshot_as_multiturn and not chat:
        wrong = "without a chat template there are no turns"
        raise InputError.at(job.place("fewshot_as_multiturn"), wrong, "expected --apply-chat-template beside it")
    if job.system_prompt is not None and (chat or job.system_instruction is not None):
        wrong = "is a system turn of its own before the prompt"
        right = "expected --system-instruction alone, whose words stand before the task's description"
        raise InputError.at(job.place("system_prompt"), wrong, right)
    return Manner(chat, job.fewshot_as_multiturn is not False, job.system_instruction)


def check_model(job: Job, *, written: bool) -> None:
    """Refuse a chat of a model that takes none; ``written``: an answer is wanted, and not a likelihood."""
    place, named = job.place("apply_chat_template"), template(job)
    if named is None or job.model.startswith(STORED):
        return
    if named and (not job.model.startswith(LOCAL) or os.path.lexists(named)):
        wrong = f"{named!r} was taken for the name of a chat template, which only hf/ models have"
        raise InputError.at(place, wrong, "a benchmark stands before the option, or after --")
    if not written and not job.model.startswith(LOCAL):
        wrong = f"the task asks for likelihoods, and a chat with {job.model} tells none"
        raise InputError.at(place, wrong, "expected hf/PATH, or no chat template")
    if written and job.api == "completions":
        wrong = "the completions route takes one text, and no turns"
        raise InputError.at(place, wrong, "expected --api chat, or no chat template")


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
    return Local.load(job.model.removeprefix(LOCAL), name) if name is not None and job.model.startswith(LOCAL) else None


def about(job: Job, local: Local | None) -> dict[str, Any]:
    """What a results file says of how prompts were written; nothing where they are the plain ones."""
    if not job.chats and job.system_instruction is None:
        return {}
    asked, words = manner(job), job.system_instruction
    text = local.text if local else "" if asked.chat else None
    return {
        "system_instruction": words,
        "system_instruction_sha": digest(words) if words else None,
        "fewshot_as_multiturn": asked.multiturn if asked.chat else job.fewshot_as_multiturn,
        "chat_template": text,
        "chat_template_sha": digest(text) if text else None,
    }
