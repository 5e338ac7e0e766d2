"""The requests that a task makes of a model, document by document, exactly as lm-evaluation-harness makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from calipers.errors import InputError
from calipers.tasks.lm_eval.config import shown
from calipers.tasks.lm_eval.fewshot import Sampler, joined, turns, written
from calipers.tasks.lm_eval.loaded import LoadedTask, check_index
from calipers.tasks.lm_eval.seeds import seeded
from calipers.tasks.lm_eval.selection import selected
from calipers.tasks.lm_eval.template import Doc, field_of
from calipers.tasks.lm_eval.turns import Manner, Turn, prompt
from calipers.tasks.task import Prompt


@dataclass(frozen=True, slots=True)
class Instance:
    """One request: its kind, its document, its number among that document's, and what the model is given."""

    request_type: str
    doc_id: int
    idx: int
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Asking:
    """How a task's requests are made, where the command says so."""

    limit: float | None = None
    samples: Sequence[int] | None = None
    rank: int = 0  # of `world` processes that share the documents
    world: int = 1
    seed: int | None = None  # of the examples; None: the one that the task was loaded with
    manner: Manner | None = None  # None: the task's own


def requests(task: LoadedTask, asking: Asking = Asking()) -> Iterator[Instance]:  # noqa: B008
    """Every request, in order. Examples are drawn document after document, so order is part of the matter.

    They are made once: a prompt that is drawn at random is the same whenever somebody looks at it.
    """
    manner = asking.manner or task.manner
    kept: list[tuple[Asking, Manner, list[Instance]]] = task.kept.setdefault("requests", [])
    made = next((made for one, how, made in kept if (one, how) == (asking, manner)), None)
    if made is None:
        with seeded(task.seeds):
            made = list(_requests(task, asking, manner))
        kept.append((asking, manner, made))
    yield from made


def _requests(task: LoadedTask, asking: Asking, manner: Manner) -> Iterator[Instance]:
    if task.own is not None:
        seed = task.seeds[3] if asking.seed is None else asking.seed
        for number, one in task.own.requests(chosen(task, asking), manner, seed):
            yield Instance(one.request_type, number, one.idx, one.args)
        return
    sampler = Sampler(task, asking.seed)
    for doc_id, doc in chosen(task, asking):
        yield from _of(task, doc_id, doc, contexts(task, sampler, doc_id, doc, manner), manner.chat)


def chosen(task: LoadedTask, asking: Asking) -> Iterator[tuple[int, Doc]]:
    """The documents that are asked, and the row of each in its split."""
    rows = selected(len(task.docs), asking.limit, asking.samples)[asking.rank :: asking.world]
    if not rows:
        raise InputError.at(task.place("dataset_path"), "no documents are left to ask", "expected at least one")
    yield from ((row, task.docs[row]) for row in rows)


def contexts(task: LoadedTask, sampler: Sampler, number: int, doc: Doc, manner: Manner) -> list[Prompt]:
    """What the model sees before the answer: one prompt, or one per choice where the choices are contexts."""
    config = task.config
    description = field_of(config.description, doc, task.place("description", number))
    system = joined(manner.system, description, config.fewshot_delimiter)
    head = [Turn("system", system)] if system else []
    count = config.num_fewshot or 0
    if count:
        head += written(task, sampler.draw(doc, count))
    prefix = task.prefix(doc, number)
    if task.multiple_inputs:
        choices = task.choices(doc, number) or []
        return [prompt([*head, *turns(task, one, "", prefix, "")], manner) for one in choices]
    return [prompt([*head, *turns(task, task.text(doc, number), "", prefix, config.target_delimiter)], manner)]


def _of(task: LoadedTask, doc_id: int, doc: Doc, before: list[Prompt], chat: bool) -> Iterator[Instance]:
    config = task.config
    if config.output_type == "multiple_choice":
        pairs = _pairs(task, doc_id, doc, before, chat)
        yield from (Instance("loglikelihood", doc_id, idx, pair) for idx, pair in enumerate(pairs))
        return
    if task.multiple_inputs and config.output_type != "loglikelihood_rolling":
        wrong = f"choices are contexts only in multiple_choice, and this is {config.output_type}"
        raise InputError.at(task.place("doc_to_text", doc_id), wrong, "expected a text")
    if config.output_type == "generate_until":
        args: tuple[Any, ...] = (before[0], deepcopy(dict(config.generation_kwargs or {})))
    else:
        target = task.target(doc, doc_id)
        args = (before[0], target) if config.output_type == "loglikelihood" else (target,)
    yield Instance(config.output_type, doc_id, 0, args)


def _pairs(task: LoadedTask, doc_id: int, doc: Doc, before: list[Prompt], chat: bool) -> list[tuple[Prompt, str]]:
    config, delimiter = task.config, task.config.target_delimiter
    if chat and (not config.gen_prefix or config.gen_prefix[-1].isspace()):
        delimiter = ""
    choices = task.choices(doc, doc_id)
    if choices is None:
        wrong = "a task of multiple_choice without doc_to_choice"
        raise InputError.at(task.place("output_type"), wrong, "expected doc_to_choice")
    if task.multiple_inputs:
        target = task.target(doc, doc_id)
        pairs = [(one, f"{delimiter}{target}") for one in before]
    else:
        pairs = [(before[0], f"{delimiter}{choice}") for choice in choices]
    if any(entry["metric"] == "acc_mutual_info" for entry in config.metric_list or ()):
        pairs += [("", f"{delimiter}{choice}") for choice in choices]
    return pairs


def gold(task: LoadedTask, doc_id: int, doc: Doc) -> Any:
    """What a generated answer is compared with: the target, or the choice it points at."""
    target, choices = task.target(doc, doc_id), task.choices(doc, doc_id)
    if choices is None:
        return target
    if not isinstance(target, int):
        right = "expected its index: a task with doc_to_choice points at a choice"
        raise InputError.at(task.place("doc_to_target", doc_id), f"the target is {shown(target)}", right)
    check_index(task, choices, target, doc_id)
    return choices[target]
