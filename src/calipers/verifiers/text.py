"""The answer as text: equal to the target, holding it, or matching it as a pattern.

The functions have EvSys' signature and are exactly EvSys' arithmetic: ``expected or ""`` is compared as
text, so that null, but also 0, false, [] and {}, are the empty text. The verifiers around them refuse such
a target, null for `exact_match` excepted, before a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calipers.clients.client import Completion
from calipers.errors import VerifierError
from calipers.tasks.task import Task
from calipers.text import patterns
from calipers.verifiers.verifier import Verdict, check_flag, check_names, check_number, fault, is_number

PARAMS: Final = ("ignore_case",)


def exact_match(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 when output and target, trimmed, are the same text, else 0.0; ``ignore_case`` compares lower case.

    >>> exact_match(" 42 ", 42, {}), exact_match("1", 1.0, {}), exact_match("0", 0, {})
    (1.0, 0.0, 0.0)
    """
    return float(_answer(model_output, params) == _answer(str(expected or ""), params))


def contains(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 when the target, untrimmed, stands somewhere in the output, else 0.0; an empty target never does."""
    needle, output = str(expected or ""), model_output or ""
    if params.get("ignore_case"):
        needle, output = needle.lower(), output.lower()
    return float(bool(needle) and needle in output)


def regex_match(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 when the target, as a pattern of Python's `re`, is found in the output, else 0.0; an empty one never is.

    A bad pattern raises a `re.error`, one that runs out of time `regexes.RegexTimeout`.
    """
    return float(_search(model_output, expected, params) is not None)


def _answer(text: str, params: Mapping[str, Any]) -> str:
    trimmed = (text or "").strip()
    return trimmed.lower() if params.get("ignore_case") else trimmed


def _search(model_output: str, expected: Any, params: Mapping[str, Any]) -> patterns.Found | None:
    pattern = str(expected or "")
    if not pattern:
        return None
    return patterns.search(pattern, model_output or "", ignore_case=bool(params.get("ignore_case")))


@dataclass(frozen=True, slots=True)
class ExactMatch:
    """Reward 1 for the target itself, else 0; the answer is the trimmed completion."""

    name: str = "exact_match"
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Refuse a target that is no text; null stands for the empty text."""
        _check_text(task)

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        answer = _answer(completion.text, task.params)
        return Verdict(float(answer == _answer(str(task.target or ""), task.params)), answer=answer)


@dataclass(frozen=True, slots=True)
class Contains:
    """Reward 1 for a completion that holds the target, else 0; the answer is the target, if it is there."""

    name: str = "contains"
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Refuse a target that is no text, or an empty one, which would never be found."""
        _check_text(task)
        _check_given(task)

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        reward = contains(completion.text, task.target, task.params)
        return Verdict(reward, answer=str(task.target) if reward else None)


@dataclass(frozen=True, slots=True)
class RegexMatch:
    """Reward 1 for a completion in which the target, a pattern, is found, else 0; the answer is what it found."""

    name: str = "regex_match"
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Refuse a target that is no pattern, or an empty one, which would never be found."""
        _check_text(task)
        _check_given(task)
        try:
            patterns.check(str(task.target), ignore_case=bool(task.params.get("ignore_case")))
        except (patterns.BadPattern, patterns.RegexTimeout) as error:
            raise fault(task, str(error), "") from None

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the pattern itself, where it matches itself; no other is known."""
        text = str(task.target or "")
        return text if text and regex_match(text, text, task.params) else None

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; none within the limit of time is a `filter_timeout`."""
        try:
            match = _search(completion.text, task.target, task.params)
        except patterns.RegexTimeout as error:
            raise VerifierError(str(error), outcome="filter_timeout") from error
        except patterns.BadPattern as error:
            raise VerifierError(str(error)) from error
        return Verdict(float(match is not None), answer=match and match[0])


def _check_text(task: Task) -> None:
    check_names(task, PARAMS)
    check_flag(task, "ignore_case")
    if isinstance(task.target, (list, dict)):
        raise fault(task, f"target is {task.target!r}", "expected text or a number")
    if not task.target and not isinstance(task.target, str) and task.target is not None:
        text = str(task.target)
        raise fault(task, f"target is {task.target!r}, which {task.verifier} reads as no text", f"write {text!r}")


def _check_given(task: Task) -> None:
    if not task.target:
        raise fault(task, f"target is {task.target!r}", f"{task.verifier} needs one to look for")


EXACT_MATCH: Final = ExactMatch()
CONTAINS: Final = Contains()
REGEX_MATCH: Final = RegexMatch()


WORTH: Final[Mapping[str, float]] = {"has_think_reward": 0.5, "has_answer_reward": 0.5}


def tags(text: str) -> dict[str, bool]:
    """Which pairs of tags occur in a text; order and nesting do not count.

    >>> tags("</think> 4 <think>")
    {'has_think': True, 'has_answer': False}
    """
    return {f"has_{tag}": f"<{tag}>" in text and f"</{tag}>" in text for tag in ("think", "answer")}


def worth(present: Mapping[str, bool], rewards: Mapping[str, float]) -> float:
    """The sum of the rewards of the pairs that were found, 0.5 each unless ``has_..._reward`` says otherwise."""
    each = {**WORTH, **rewards}
    return float(sum(each[f"{tag}_reward"] for tag, there in present.items() if there))


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
        present = tags(completion.text)
        return Verdict(worth(present, rewards), fields={tag: float(there) for tag, there in present.items()})


FORMAT_ONLY: Final = FormatOnly()
