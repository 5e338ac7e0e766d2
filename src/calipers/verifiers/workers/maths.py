"""What runs in the worker process of `math`: Math-Verify, with a limit on the size of what it is given.

This text is sent there and loads nothing of Calipers. Model text is only ever parsed: LaTeX by a grammar, plain
arithmetic by sympy's `parse_expr`, which evaluates Python but is given nothing except digits, dots, blanks
and ``+-*/^()``. Both leave powers and factorials as they are, so that their size is known before they are computed.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from importlib import import_module
from typing import Any

LONGEST = 10_000  # characters of an answer, from its end, where it is given
NESTED = 40  # brackets
DIGITS = 2_000  # of the largest number that may have to be computed
NODES = 1_000  # of an expression
TERMS = 1_000  # of a sum or product
TINY = 0.01  # below this, decimal places say nothing about whether two numbers are the same
CLOSE = 1e-4


class TooLarge(Exception):
    """An expression that nobody should compute."""


def prepare() -> None:
    """Load what takes long, and parse something of each kind once: the grammar learns from it."""
    logging.disable(logging.CRITICAL)  # it would write model text to standard error
    sys.setrecursionlimit(3_000)
    for text in ("1/2", r"$\frac{1}{2}$", r"\boxed{x^2 = 4}", r"$\sqrt{2}, \{1, 2\}, (1, 2]$"):
        parsed(text)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """``{"gold": ok}`` for a gold answer alone; with a text what was found in it, and whether that is right."""
    try:
        gold = gold_of(question["gold"])
    except (TooLarge, RecursionError, MemoryError) as error:
        return {"gold": str(error) or "it is nested too deeply"}
    if not gold:
        return {"gold": "it cannot be read as mathematics"}
    if "text" not in question:
        return {"gold": ""}
    try:
        answers = parsed(question["text"][-LONGEST:])
    except (TooLarge, RecursionError) as error:
        return {"gold": "", "unparsed": str(error)}
    if not answers:
        return {"gold": "", "unparsed": "there is none"}
    return {"gold": "", "right": same(gold[0], answers[0], question["digits"]), "answer": str(answers[0])[:1_000]}


def gold_of(text: str) -> list[Any]:
    """The gold answer: as LaTeX whether or not it is marked as such, else as plain arithmetic."""
    if len(text) > LONGEST:
        raise TooLarge(f"it has {len(text)} characters; the maximum is {LONGEST}")
    marked = re.search(r"\$|\\boxed|\\\(|\\\[", text)
    return parsed(text) if marked else parsed(f"${text}$") or parsed(text)


def parsed(text: str) -> list[Any]:
    """The mathematics that a text ends on, in a list; an empty one when there is none."""
    depth = deepest = 0
    for mark in re.findall(r"[][(){}]", text):
        depth = depth + 1 if mark in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    if deepest > NESTED:
        raise TooLarge(f"brackets are nested {deepest} deep; the maximum is {NESTED}")
    expressions: list[Any] = import_module("math_verify").parse(text, fallback_mode="no_fallback", parsing_timeout=None)
    for expression in expressions:
        check_size(expression)
    return expressions[:1]


def same(gold: Any, given: Any, digits: int) -> bool:
    """Whether an answer is the gold one; never the other way round, as the gold one decides what form is asked for.

    Beyond Math-Verify: an answer that states a falsehood (``5 = 1``) is wrong, whatever it ends on, and small numbers
    must agree relative to their size.
    """
    verify, equation = import_module("math_verify").verify, import_module("sympy").Eq

    def equations(expression: Any) -> list[Any]:
        parts = getattr(expression, "_unsorted_args", None) or [expression]
        return [part for part in parts if isinstance(part, equation)]

    if not equations(gold) and any(false(equality.lhs, equality.rhs) for equality in equations(given)):
        return False
    if not verify([gold], [given], float_rounding=digits, timeout_seconds=None):
        return False
    right, value = number(gold), number(given)
    if right is None or value is None or min(abs(right), abs(value)) >= TINY:
        return True
    return math.isclose(right, value, rel_tol=CLOSE)


def false(left: Any, right: Any) -> bool:
    """Whether two sides are numbers, and not the same one."""
    first, other = number(left), number(right)
    return first is not None and other is not None and not math.isclose(first, other, rel_tol=CLOSE, abs_tol=1e-9)


def number(expression: Any) -> float | None:
    """What an expression is worth; None for one that is no real number."""
    try:
        return float(expression) if expression.is_number else None
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None


def check_size(expression: Any) -> None:
    """TooLarge for an expression with too many parts, or with a number in it of too many digits."""
    for count, _ in enumerate(import_module("sympy").preorder_traversal(expression)):
        if count > NODES:
            raise TooLarge(f"it has more than {NODES} parts")
    size = digits_of(expression)
    if size > DIGITS:
        raise TooLarge(f"it is a number of more than {DIGITS} digits")


def digits_of(expression: Any) -> float:
    """How many digits the numbers in an expression may have once it is computed: a bound, found without doing so."""
    name = type(expression).__name__
    if getattr(expression, "is_Rational", False):
        return 0.302 * max(int(expression.p).bit_length(), int(expression.q).bit_length())
    if getattr(expression, "is_Float", False):
        return float(min(1e9, abs(expression._mpf_[2] + expression._mpf_[3]) * 0.302 + 1))
    parts = [digits_of(part) for part in getattr(expression, "args", ())]
    if not parts:
        return max(map(digits_of, expression), default=1.0) if name.endswith("Matrix") else 1.0
    if name == "Pow" or name == "exp":
        base, exponent = (parts[0], expression.args[1]) if name == "Pow" else (0.5, expression.args[0])
        times = abs(float(exponent)) if getattr(exponent, "is_Rational", False) and parts[-1] < 9 else power(parts[-1])
        return max(*parts, max(base, 0.5) * times)
    if name in ("Sum", "Product"):
        terms = power(max(digits_of(bound) for limits in expression.limits for bound in limits[1:]))
        return max(parts) + terms if terms <= 10 * TERMS else math.inf  # 1000 has four digits
    if name in ("factorial", "factorial2", "subfactorial", "gamma", "binomial", "fibonacci"):
        return max(parts) * power(max(parts))
    return sum(parts) if name == "Mul" else max(parts) + 0.5


def power(digits: float) -> float:
    """Ten to the digits, as far as it matters."""
    return float(10 ** min(digits, 9))
