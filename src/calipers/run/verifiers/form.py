"""The answer's form: whether it thinks and answers between the tags for it, whatever it says there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calipers.errors import VerifierError
from calipers.run.client import Completion
from calipers.run.verifier import Verdict
from calipers.run.verifiers.params import check_names, check_number, is_number
from calipers.tasks.task import Task

WORTH: Final[Mapping[str, float]] = {"has_think_reward": 0.5, "has_answer_reward": 0.5}


def tags(text: str) -> dict[str, bool]:
    """Which pairs of tags occur in a text; order and nesting do not count.

    >>> tags("</think> 4 <think>")
    {'has_think': True, 'has_answer': False}
    """
    return {f"has_{tag}": f"<{tag}>" in text and f"</{tag}>" in text for tag in ("think", "answer")}


def worth(found: Mapping[str, bool], rewards: Mapping[str, float]) -> float:
    """The sum of the rewards of the pairs that were found, 0.5 each unless ``has_..._reward`` says otherwise."""
    each = {**WORTH, **rewards}
    return float(sum(each[f"{tag}_reward"] for tag, there in found.items() if there))


@dataclass(frozen=True, slots=True)
class FormatOnly:
    """Reward for ``<think>`` and ``<answer>`` tags; the fields say which were there. The target is not looked at."""

    name: str = "format_only"
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Refuse rewards that are no numbers."""
        check_names(task, tuple(WORTH))
        for name in WORTH:
            check_number(task, name)

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: both pairs of tags."""
        return "<think>so</think><answer>that</answer>"

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        rewards: dict[str, Any] = {name: task.params[name] for name in WORTH if name in task.params}
        for name, value in rewards.items():
            if not is_number(value):
                raise VerifierError(f"{name} is {value!r}; expected a number")
        found = tags(completion.text)
        return Verdict(worth(found, rewards), fields={tag: float(there) for tag, there in found.items()})


FORMAT_ONLY: Final = FormatOnly()
