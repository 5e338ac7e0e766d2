"""Tool-call verifier: the answer is a JSON object, compared with the target.

The function has EvSys' signature and is exactly EvSys' rule; the verifier around it refuses, before a run
begins, a target that no action could match.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calipers.clients.client import Completion
from calipers.errors import VerifierError
from calipers.tasks.task import Task
from calipers.verifiers.verifier import Verdict, check_names, fault, is_number

TOLERANCE: Final = 25  # of a coordinate, in its own unit


def tool_calls_match(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 when the output's JSON object is the action that is expected, else 0.0.

    ``tool`` and ``action`` must be equal, where absent is null; ``ref`` and ``text`` if they are expected;
    each axis of ``coordinate``, if expected, within ``coordinate_tolerance`` (25). Other keys are ignored.

    >>> tool_calls_match('Sure: {"tool": "t", "x": 1}', {"tool": "t"}, {})
    1.0
    """
    return _compare(parse_action(model_output), expected, params)


def parse_action(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, from its first brace to its last; a code fence, which has none, is passed over."""
    stripped = (text or "").strip()  # which no list has: an expected one is an AttributeError, as in EvSys
    first, last = stripped.find("{"), stripped.rfind("}")
    if first < 0 or last < first:
        return None
    try:
        action: dict[str, Any] = json.loads(stripped[first : last + 1])
    except (ValueError, RecursionError):  # a model may nest as deeply as it likes
        return None
    return action


def _compare(predicted: dict[str, Any] | None, expected: Any, params: Mapping[str, Any]) -> float:
    if predicted is None:
        return 0.0
    wanted = expected if isinstance(expected, dict) else parse_action(expected or "")
    if wanted is None:
        return 0.0
    exact = ["tool", "action", *(key for key in ("ref", "text") if key in wanted)]
    if any(predicted.get(key) != wanted.get(key) for key in exact):
        return 0.0
    if "coordinate" in wanted:
        tolerance = int(params.get("coordinate_tolerance", TOLERANCE))
        return float(_near(predicted.get("coordinate"), wanted["coordinate"], tolerance))
    return 1.0


def _near(point: Any, wanted: Any, tolerance: int) -> bool:
    if not isinstance(point, list) or len(point) != 2 or not all(map(is_number, point)):
        return False
    try:
        return all(abs(axis - goal) <= tolerance for axis, goal in zip(point, wanted, strict=True))
    except OverflowError:  # an integer too large to be anywhere near
        return False


@dataclass(frozen=True, slots=True)
class ToolCallsMatch:
    """Reward 1 for the expected tool call, else 0; the answer is the tool call as JSON with sorted keys."""

    name: str = "tool_calls_match"
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Refuse a target that is no JSON object, a coordinate that is no point, a tolerance that is no number."""
        check_names(task, ("coordinate_tolerance",))
        target = task.target
        wanted = target if isinstance(target, dict) else parse_action(target) if isinstance(target, str) else None
        if wanted is None:
            raise fault(task, f"target is {target!r}", "expected a JSON object, or text that contains one")
        point = wanted.get("coordinate", [0, 0])
        if not (isinstance(point, list) and len(point) == 2 and all(map(is_number, point))):
            raise fault(task, f"target's coordinate is {point!r}", "expected two numbers")
        try:
            int(task.params.get("coordinate_tolerance", TOLERANCE))
        except (TypeError, ValueError, OverflowError):
            wrong = f"coordinate_tolerance is {task.params['coordinate_tolerance']!r}"
            raise fault(task, wrong, "expected a whole number") from None

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the expected action as JSON."""
        return task.target if isinstance(task.target, str) else json.dumps(task.target)

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; `unparsed` without a JSON object."""
        action = parse_action(completion.text)
        try:
            reward = _compare(action, task.target, task.params)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:  # the target's fault, or a param's
            raise VerifierError(f"{self.name}: {type(error).__name__}: {error}") from error
        if action is None:
            return Verdict(reward, outcome="unparsed")
        return Verdict(reward, answer=json.dumps(action, sort_keys=True))


TOOL_CALLS_MATCH: Final = ToolCallsMatch()
