"""Few-shot examples: which are drawn for a document, and how they are written.

One generator per task, seeded once and used document after document, so that the examples of a document
depend on those before it, as they do in lm-evaluation-harness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any

from calipers.errors import InputError
from calipers.tasks.lm_eval.config import shown
from calipers.tasks.lm_eval.loaded import LoadedTask
from calipers.tasks.lm_eval.template import Doc, called, field_of
from calipers.tasks.lm_eval.turns import Turn


class Sampler:
    """Draws the examples of one task."""

    def __init__(self, task: LoadedTask, seed: int | None = None) -> None:
        self._task, self._pool = task, list(task.examples)
        self._random = Random(task.seeds[3] if seed is None else seed)
        shots = task.config.fewshot_config
        self._same = shots.split == task.config.test_split  # the document itself may be drawn

    def draw(self, doc: Doc, count: int) -> Sequence[Mapping[str, Any]]:
        """The examples before a document: at random, or the first ones."""
        sampler, place = self._task.config.fewshot_config.sampler, self._task.place("fewshot_config")
        needed = count + (self._same and sampler == "default")
        if needed > len(self._pool):
            raise InputError.at(place, f"{needed} examples are needed, {len(self._pool)} are there", "take fewer")
        if callable(sampler):
            made = called(sampler, self._pool, place)
            found = list(called(made.sample, count, place))
        elif sampler == "first_n":
            others = (one for one in self._pool if not self._same or one != doc)
            found = list(islice(others, count))
        else:
            found = self._drawn(doc, count, needed)
        if len(found) != count:
            raise InputError.at(place, f"{len(found)} examples differ from the document", f"expected {count}")
        return found

    def _drawn(self, doc: Doc, count: int, needed: int) -> list[Any]:
        """Examples at random. Where several equal the document, they are drawn again from those that do not."""
        found = [one for one in self._random.sample(self._pool, needed) if not self._same or one != doc][:count]
        others = [one for one in self._pool if one != doc] if len(found) < count else []
        return found if len(others) < count else self._random.sample(others, count)


def written(task: LoadedTask, examples: Sequence[Doc]) -> list[Turn]:
    """The examples as they stand before a question."""
    return [turn for example in examples for turn in _example(task, example)]


def _example(task: LoadedTask, example: Doc) -> list[Turn]:
    shots = task.config.fewshot_config
    question, choices, answer = (
        task.text(example, shots=shots),
        task.choices(example, shots=shots),
        task.target(example, shots=shots),
    )
    prefix = field_of(shots.gen_prefix, example, task.place("gen_prefix"))
    if task.multiple_inputs:
        question, choices = _chosen(task, choices, question), None
    return turns(
        task, question, _answer(task, choices, answer), prefix, shots.target_delimiter, shots.fewshot_delimiter
    )


def turns(
    task: LoadedTask, question: Any, answer: str, prefix: str | None, delimiter: str, ending: str = ""
) -> list[Turn]:
    """A question and its answer; without an answer, the question and how its answer begins."""
    if not isinstance(question, str):
        raise InputError.at(task.place("doc_to_text"), f"is {shown(question)}", "expected a text")
    if not (answer or prefix):
        return [Turn("user", question)]
    parted = _needs_space(question, prefix) if prefix else True
    said = Turn("assistant", joined(prefix, answer, " "), ending) if answer else Turn("assistant", prefix or "")
    return [Turn("user", question, delimiter if parted else ""), said]


def joined(left: str | None, right: str | None, delimiter: str) -> str:
    """Two texts with the delimiter between them, unless one is empty or a blank parts them already.

    >>> joined("a", "b", " "), joined("a\\n", "b", " "), joined("", "b", " ")
    ('a b', 'a\\nb', 'b')
    """
    if not left or not right:
        return (left or "") + (right or "")
    return left + (delimiter if _needs_space(left, right) else "") + right


def _needs_space(left: str, right: str) -> bool:
    return bool(left) and not (left[-1].isspace() or right[0].isspace())


def _answer(task: LoadedTask, choices: Sequence[Any] | None, answer: Any) -> str:
    """An example's answer as text: a choice by its index, the first of several."""
    if answer is None:
        return ""
    if choices and isinstance(answer, int):
        found = _chosen(task, choices, answer)
    else:
        found = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(found, str):
        right = "expected a text, or an index with doc_to_choice"
        raise InputError.at(task.place("doc_to_target"), f"the answer of an example is {shown(found)}", right)
    return found


def _chosen(task: LoadedTask, choices: Sequence[Any] | None, index: Any) -> Any:
    if not choices or not isinstance(index, int) or not -len(choices) <= index < len(choices):
        wrong = f"an example points at choice {shown(index)}, and there are {len(choices or ())}"
        raise InputError.at(task.place("doc_to_target"), wrong, "expected the index of a choice")
    return choices[index]
