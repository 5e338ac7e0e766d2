"""The module of the worker process of `math`: Math-Verify, with limits on the size of its input.

The text of this file is sent to the process and imports nothing of Calipers. Model text is only parsed: LaTeX by a
grammar, plain arithmetic by sympy's `parse_expr`, which evaluates Python but gets only digits, dots, blanks and
``+-*/^()``. Both leave powers and factorials unevaluated, so that their size can be checked before they are computed.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from importlib import import_module
from typing import Any

LONGEST = 10_000  # characters at the end of an answer that are read
NESTED = 40  # levels of brackets
DIGITS = 2_000  # of the largest number that may have to be computed
NODES = 1_000  # of an expression
TERMS = 1_000  # of a sum or product
TINY = 0.01  # numbers below this are compared by relative and not only by decimal places
CLOSE = 1e-4


class TooLarge(Exception):
    """An expression that is too large to compute."""


def prepare() -> None:
    """Import the libraries, and parse an expression of each kind, which fills the caches of the grammar."""
    logging.disable(logging.CRITICAL)  # Math-Verify would write model text to standard error
    sys.setrecursionlimit(3_000)
    for text in ("1/2", r"$\frac{1}{2}$", r"\boxed{x^2 = 4}", r"$\sqrt{2}, \{1, 2\}, (1, 2]$"):
        parsed(text)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """``{"gold": error}`` for a gold answer alone ("" for a valid one); with a text, also the answer in it.

    The answer is under ``answer`` with its correctness under ``right``, or the reason for none under ``unparsed``.
    """
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
    """The gold answer in a list: read as LaTeX, also without dollar signs, else as plain arithmetic."""
    if len(text) > LONGEST:
        raise TooLarge(f"it has {len(text)} characters; the maximum is {LONGEST}")
    marked = re.search(r"\$|\\boxed|\\\(|\\\[", text)
    return parsed(text) if marked else parsed(f"${text}$") or parsed(text)


def parsed(text: str) -> list[Any]:
    """The last mathematical expression of a text, in a list; an empty list if there is none."""
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
    """Whether an answer equals the gold answer; not symmetric, as the gold answer decides which form is required.

    In addition to Math-Verify's rules, an answer with a false equation (``5 = 1``) is wrong, and small numbers must
    agree relative to their size.
    """
    verify, equation = import_module("math_verify").verify, import_module("sympy").Eq

    def equations(expression: Any) -> list[Any]:
        parts = getattr(expression, "_unsorted_args", None) or [expression]
        return [part for part in parts if isinstance(part, equation)]

    if not equations(gold) and any(false(equality.lhs, equality.rhs) for equality in equations(given)):
        return False
    if not verify([gold], [given], float_rounding=digits, timeout_seconds=None):
        return False
    expected, value = number(gold), number(given)
    if expected is None or value is None or min(abs(expected), abs(value)) >= TINY:
        return True
    return math.isclose(expected, value, rel_tol=CLOSE)


def false(left: Any, right: Any) -> bool:
    """Whether the two sides of an equation are different numbers."""
    first, second = number(left), number(right)
    return first is not None and second is not None and not math.isclose(first, second, rel_tol=CLOSE, abs_tol=1e-9)


def number(expression: Any) -> float | None:
    """The value of an expression; None if it is not a real number."""
    try:
        return float(expression) if expression.is_number else None
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None


def check_size(expression: Any) -> None:
    """TooLarge for an expression with too many parts, or with a number of too many digits."""
    for count, _ in enumerate(import_module("sympy").preorder_traversal(expression)):
        if count > NODES:
            raise TooLarge(f"it has more than {NODES} parts")
    size = digits_of(expression)
    if size > DIGITS:
        raise TooLarge(f"it is a number of more than {DIGITS} digits")


def digits_of(expression: Any) -> float:
    """An upper bound of the digits of the numbers in an expression after computing it, found without computing it."""
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
        return max(parts) + terms if terms <= 10 * TERMS else math.inf  # times 10, because 1000 has four digits
    if name in ("factorial", "factorial2", "subfactorial", "gamma", "binomial", "fibonacci"):
        return max(parts) * power(max(parts))
    return sum(parts) if name == "Mul" else max(parts) + 0.5


def power(digits: float) -> float:
    """Ten to the power of ``digits``, at most 1e9."""
    return float(10 ** min(digits, 9))
