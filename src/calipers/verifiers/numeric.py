"""Numeric verifier: the last number in the text, or the first after a marker, compared with the target.

It reads ``-1,234.5``, ``.5``, ``6.02e23``, ``3/4`` and any typographic minus sign. A currency or
percent sign is a unit and is ignored, also in the target: 50% is 50. A comma (or ``_``, ``'`` or a narrow
space) only separates thousands, so ``3,14`` is two numbers. Digits that follow a letter (``x2``, ``H2O``)
are part of a name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from calipers.clients import Completion
from calipers.errors import VerifierError
from calipers.tasks import Task
from calipers.verifiers import Verdict, check_names, check_number, fault, is_number
from calipers.verifiers.reasoning import of_answer

REL_TOL: Final = 1e-9
DIGITS: Final = 300  # a longer number does not fit a float
MINUS: Final = "-\u2212\u2013\uff0d"  # hyphen, minus, en dash, full-width hyphen; first in a class, as - is a range
SPACE: Final = "\u00a0\u2009\u202f"  # no-break, thin, narrow no-break

_SIGNS = rf"(?:(?<![A-Za-z\d.)\]])(?P<sign>[{MINUS}+]))?"
_PLAIN = rf"(?:\d{{1,3}}(?:(?P<mark>[,_'’{SPACE}])\d{{3}}(?:(?P=mark)\d{{3}})*(?!\d))|\d+)(?:\.\d*)?|\.\d+"
DIGIT: Final = re.compile(r"\d")
NUMBER: Final = re.compile(
    rf"{_SIGNS}[$€£¥₹]?(?P<late>(?<=[$€£¥₹])[{MINUS}])?(?<![A-Za-z\d.])"
    rf"(?P<digits>{_PLAIN})(?P<exponent>[eE][{MINUS}+]?\d+)?(?:/(?P<under>\d+)(?!\d|[/.]\d))?"
)


def last_number(text: str, marker: str = "") -> int | float | None:
    """The last number in a text, or the first after the last marker; None if there is none.

    >>> last_number("3 + 4 = 7, so it costs $1,007.50."), last_number("a: 4 of 5", marker="a:"), last_number("?")
    (1007.5, 4, None)
    """
    if marker:
        _, found, text = text.rpartition(marker)
        first = NUMBER.search(text) if found else None
        return first and _value(first)
    end = len(text)
    while end > 0:  # word by word from the end, where the number usually is; no number contains a space
        start = text.rfind(" ", 0, end)
        word = text[start + 1 : end]
        if DIGIT.search(word) and (matches := list(NUMBER.finditer(word))):
            return _value(matches[-1])
        end = start
    return None


def _value(match: re.Match[str]) -> int | float | None:
    """The value of a match, as an int if it is whole; None if it does not fit a float."""
    digits = re.sub(rf"[,_'’{SPACE}]", "", match["digits"])
    denominator, exponent = match["under"] or "1", re.sub(f"[{MINUS}]", "-", match["exponent"] or "")
    if len(digits) > DIGITS or len(denominator) > DIGITS or not int(denominator):
        return None
    negative = any(sign and sign in MINUS for sign in (match["sign"], match["late"]))
    value: int | float = int(digits) if digits.isdecimal() and not exponent else float(digits + exponent)
    if match["under"]:
        is_date = match.start() > 0 and match.string[match.start() - 1] == "/"  # 3/4/2024 is not a fraction
        value = int(denominator) if is_date else value / int(denominator)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if not is_number(value):
        return None
    return -value if negative else value


def as_number(value: Any) -> int | float | None:
    """A target as a number: a number, or text that is a number with an optional unit; None for anything else."""
    if isinstance(value, str):
        match = NUMBER.fullmatch(value.strip().removesuffix("%").rstrip())
        return match and _value(match)
    return value if is_number(value) else None


def same(answer: float, target: float, params: Mapping[str, Any]) -> bool:
    """Whether two numbers agree within the tolerances; without tolerances, integers exactly and others to 1e-9."""
    tolerances = {name: float(params[name]) for name in ("rel_tol", "abs_tol") if name in params}
    if not tolerances and isinstance(answer, int) and isinstance(target, int):
        return answer == target
    rel_tol, abs_tol = tolerances.get("rel_tol", REL_TOL), tolerances.get("abs_tol", 0.0)
    return math.isclose(answer, target, rel_tol=rel_tol, abs_tol=abs_tol)


class NumericMatch:
    """Reward 1 if the answer, a number in the completion, equals the target, else 0; `unparsed` without a number."""

    name = "numeric_match"
    rerunnable = True

    def check(self, task: Task) -> None:
        """Reject a target that is not a number, a marker that is not text, or a tolerance below 0."""
        check_names(task, ("marker", "rel_tol", "abs_tol"))
        marker = task.params.get("marker", "####")
        if not isinstance(marker, str) or not marker:
            raise fault(task, f"marker is {marker!r}", "expected the text before the number")
        check_number(task, "rel_tol", least=0)
        check_number(task, "abs_tol", least=0)
        if as_number(task.target) is None:
            raise fault(task, f"target is {task.target!r}", "expected a number, or text that is a number")

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the target, after the marker if there is one."""
        return f"{task.params.get('marker') or ''} {task.target}".strip()

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        target = as_number(task.target)
        if target is None:
            raise VerifierError(f"target is {task.target!r}; expected a number, or text that is a number")
        answer = last_number(completion.text, str(task.params.get("marker", "")))
        if answer is None:
            return Verdict(0.0, outcome="unparsed")
        try:
            return Verdict(float(same(answer, target, task.params)), answer=answer)
        except (TypeError, ValueError, OverflowError) as error:  # an invalid tolerance
            raise VerifierError(f"{self.name}: {error}") from error


NUMERIC_MATCH: Final = NumericMatch()
