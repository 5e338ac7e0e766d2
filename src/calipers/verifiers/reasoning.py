"""Verifiers see the answer of a completion, without the reasoning before it.

A text such as ``<think>could be 4, no</think>It is 9`` would pass `contains` with the target 4. So the reasoning is
split off before a completion is verified, here and nowhere else. It is kept for tasks that are about it: if a param
says so (``"reasoning": "keep"``), or if the task's tags, target or params contain one of its markers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, Final, TypeVar

import msgspec

from calipers.clients import Completion
from calipers.remarks import Remark
from calipers.tasks import Task
from calipers.text.reasoning import Split, has_marker, split
from calipers.verifiers import KEEP, REASONING, SPLIT, Verdict

TAGGED: Final = frozenset({"format_only"})  # verifiers that look for the markers themselves

Verify = TypeVar("Verify", bound=Callable[..., Awaitable[Verdict]])


def splits(task: Task) -> bool:
    """Whether reasoning is split off the completions of a task.

    >>> splits(Task("a", "?", "contains", "4")), splits(Task("a", "?", "regex_match", "</think>4"))
    (True, False)
    """
    choice = task.params.get(REASONING)
    if choice in (SPLIT, KEEP):
        return bool(choice == SPLIT)
    return task.verifier not in TAGGED and not has_marker(task.target) and not has_marker(task.params)


def split_of(task: Task, text: str) -> Split | None:
    """The completion of a task without its reasoning; None if it has none, or if the reasoning is kept."""
    found = split(text)
    return found if found is not None and splits(task) else None


def answer_of(task: Task, text: str) -> str:
    """The text that is verified: the completion of a task, without its reasoning unless that is kept."""
    found = split_of(task, text)
    return text if found is None else found.answer


def keeping(task: Task) -> Task:
    """The task with its reasoning kept, as its system verifies the whole completion."""
    return replace(task, params={**task.params, REASONING: KEEP})


def own_params(task: Task) -> dict[str, Any]:
    """The params of a task without the choice of `splits`, which a user's verifier need not know."""
    is_ours = task.params.get(REASONING) in (SPLIT, KEEP)
    return {name: value for name, value in task.params.items() if not (is_ours and name == REASONING)}


def split_remarks(splits: Mapping[str, int], completions: int) -> Iterator[Remark]:
    """What to say of completions whose reasoning was split off, by its marker; nothing if there are none."""
    if any(splits.values()):
        markers = [marker for marker, _ in sorted(splits.items(), key=lambda item: (-item[1], item[0]))]
        yield Remark("reasoning_split", {"split": sum(splits.values()), "completions": completions, "markers": markers})


def of_answer(verify: Verify) -> Verify:
    """The method ``verify`` of a verifier, which then sees only the answer of a completion.

    Reasoning that never ends has no answer: the outcome is `truncated`, and the verifier is not asked. The reward is 0,
    but absent for a verifier that may have several rewards (``several_rewards``), each of which then counts as 0.
    """

    @wraps(verify)
    async def verify_answer(self: Any, task: Task, completion: Completion) -> Verdict:
        found = split_of(task, completion.text)
        if found is None:
            return await verify(self, task, completion)
        if not found.closed:
            return unfinished(self)
        return await verify(self, task, msgspec.structs.replace(completion, text=found.answer))

    return verify_answer  # type: ignore[return-value]  # it has the parameters and the result of `verify`


def unfinished(verifier: Any) -> Verdict:
    """The verdict on a completion that ends inside its reasoning."""
    reward = None if getattr(verifier, "several_rewards", False) else 0.0
    return Verdict(reward, outcome="truncated")
