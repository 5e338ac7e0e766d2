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
from fractions import Fraction
from importlib import import_module
from typing import Any, NamedTuple

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
    statement = stated(question["text"][-LONGEST:])
    refuted = (false_chain(statement) and not equations(gold[0])) or (hedged(statement) and not several(gold[0]))
    right = not refuted and same(gold[0], answers[0], question["digits"])
    return {"gold": "", "right": right, "answer": str(answers[0])[:1_000]}


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
    verify = import_module("math_verify").verify
    if not equations(gold) and any(false(equality.lhs, equality.rhs) for equality in equations(given)):
        return False
    if not verify([gold], [given], float_rounding=digits, timeout_seconds=None):
        return False
    expected, value = number(gold), number(given)
    if expected is None or value is None or min(abs(expected), abs(value)) >= TINY:
        return True
    return math.isclose(expected, value, rel_tol=CLOSE)


def equations(expression: Any) -> list[Any]:
    """The equations that an expression consists of."""
    parts = getattr(expression, "_unsorted_args", None) or [expression]
    return [part for part in parts if isinstance(part, import_module("sympy").Eq)]


def several(gold: Any) -> bool:
    """Whether a gold answer has several values, such as a set."""
    sympy = import_module("sympy")
    return isinstance(gold, (sympy.Set, sympy.Tuple, sympy.Or, sympy.And)) or len(equations(gold)) > 1


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


# What follows reads the sentence of the answer as a person does, because Math-Verify sees only one expression of it:
# in "13 = 12" the 12, and in "5 or 7" one of the two.

RUN = frozenset("0123456789.+-*/^()% ")  # the characters of a constant
OPERATORS = tuple("+-*/^")
MOST_BITS = 10_000  # of a power that is computed
LONGEST_RUN = 200  # characters of a constant
NEAR = 60  # characters before a constant that are looked at
REPLACED = (
    (r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox|textit)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\[dt]?frac\s*\{([-0-9.]+)\}\s*\{([-0-9.]+)\}", r"((\1)/(\2))"),
    (r"\\(?:cdot|times|ast)(?![A-Za-z])|[×·⋅∙]", "*"),
    (r"\\div(?![A-Za-z])|÷", "/"),
    (r"\\(?:lor|vee)(?![A-Za-z])|∨", " or "),
    (r"\\(?:left|right|displaystyle)(?![A-Za-z])", ""),
    (r"\\q?quad(?![A-Za-z])|\\[,;:! ]|~|\\[()\[\]]", " "),
    (r"[−–]", "-"),
    (r"\\%|\bper ?cent\b", "%"),
    (r"\\\$|\$|`", ""),
    (r"(?<=[0-9)])\*\*(?=[0-9(])", "^"),
    (r"\*\*|__", ""),
    (r"\{,\}", ","),
    (r"(?<=[0-9])\^\{(-?[0-9]+)\}", r"^(\1)"),
    (r"\s+", " "),
)
THOUSANDS = re.compile(r"(?<![0-9,.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9]|,[0-9])")
JOINING = frozenset({
    "is", "are", "be", "was", "so", "that", "get", "gets", "got", "gives", "give", "giving", "have", "has",
    "then", "thus", "hence", "therefore", "and", "or", "because", "since", "as", "answer", "answers",
    "value", "result", "results", "equals", "equal", "implies", "means", "obtain", "obtains", "yields",
    "yield", "compute", "find", "where", "but", "which", "either", "maybe", "probably", "perhaps",
    "possibly", "think", "guess", "say", "it's", "its",
    "about", "around", "roughly", "approximately", "exactly", "just", "between", "only",
})  # fmt: skip
"""Words before a number that is a value, and no label as in "set 2"."""

NOT_CONSTANT = re.compile(
    r"[\s(]*(?:\\?[pb]?mod|remainder|rem|r ?[0-9]*|base|in base|choose|cents)\b|\s*[A-Za-z]\b(?!')", re.IGNORECASE
)
DENIED = re.compile(
    r"\s*[,;]?\s*(?:which )?(?:is|are|would be) (?:impossible|false|absurd|wrong|not|never|a contra|an? inc)"
)
EQUALS = re.compile(r"(?<![<>!:=~])==?(?![=>])")
OR = re.compile(
    r"(?:[,;] ?)?\b(?:and/)?or\b[ ,]*"
    r"(?:(?:maybe|possibly|perhaps|probably|else|even|it could be|could be|it is|it's)[ ,]+)*(?:[A-Za-z] ?= ?)?",
    re.IGNORECASE,
)
ANSWER = re.compile(r"answers?\b[^.0-9]{0,30}$", re.IGNORECASE)
EXPRESSION = re.compile(r"[0-9$]|\\[(\[A-Za-z]")
BREAK = re.compile(r"(?<=[.!?])\s+(?=[^\s=])|\n(?!\s*(?:=|or\b))")


class Constant(NamedTuple):
    """A constant in a sentence."""

    value: Fraction
    text: str
    start: int
    end: int


def stated(text: str) -> str:
    """The sentence that states the answer, in plain signs: that of the last box, else the last with an expression."""
    box = text.rfind(r"\boxed")
    chosen, start = "", 0
    for end in [*(match.start() for match in BREAK.finditer(text)), len(text)]:
        sentence = text[start:end]
        if start <= box < end or (box < 0 and EXPRESSION.search(sentence)):
            chosen = sentence
        start = end
    chosen = unboxed(chosen)
    for pattern, plain in REPLACED:
        chosen = re.sub(pattern, plain, chosen)
    return THOUSANDS.sub(lambda match: match[0].replace(",", ""), chosen)


def unboxed(text: str) -> str:
    """A text with the content of each box in place of the box."""
    for _ in range(20):
        start = text.find(r"\boxed{")
        if start < 0:
            return text
        first = end = start + len(r"\boxed{")
        depth = 1
        while end < len(text) and depth:
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        text = text[:start] + text[first : end - 1] + text[end:]
    return text


def false_chain(sentence: str) -> bool:
    """Whether a sentence has ``=`` between unequal constants, as ``13 = 12``, unless it says itself that they are."""
    for sign in EQUALS.finditer(sentence):
        left, right = constant_before(sentence, sign.start()), constant_after(sentence, sign.end())
        if left is not None and right is not None and not equal(left, right):
            return DENIED.match(sentence, right.end) is None
    return False


def hedged(sentence: str) -> bool:
    """Whether a sentence ends with unequal values joined by "or", or says that they are the answer."""
    for word in OR.finditer(sentence):
        right = constant_after(sentence, word.end())
        end = len(sentence[: word.start()].rstrip(" ("))
        unit = re.search(r"[0-9%] ([A-Za-z]{1,20}) ?$", sentence[max(0, end - NEAR) : end])
        if right is None or (unit is not None and not re.match(rf" {unit[1]}\b", sentence[right.end :])):
            continue  # "3 hours or 180 minutes"
        end -= len(unit[0]) - 1 if unit is not None else 0
        left = constant_before(sentence, end)
        if left is None or equal(left, right):
            continue
        if not re.search("[0-9]", sentence[right.end :]) or ANSWER.search(sentence[: left.start][-NEAR:]):
            return True
    return False


def constant_before(sentence: str, end: int) -> Constant | None:
    """The constant that ends here; None if what ends here is no constant."""
    start = end
    while start > 0 and end - start < LONGEST_RUN and sentence[start - 1] in RUN:
        start -= 1
    run = sentence[start:end]
    text = balanced(run.strip(), opening=True)
    if not re.search("[0-9]", text):
        return None
    before = sentence[max(0, start - NEAR) : start].rstrip()
    last_word = re.search(r"(?<![A-Za-z'])[A-Za-z']+$", before)
    word = last_word[0].lower() if last_word is not None else ""
    if before and not run.startswith((" ", "(")) and not re.search(r"[,;=\"'“>]$|(?<![0-9]):$", before):
        return None  # a part of a name, such as x2
    if text.startswith(OPERATORS) and before and (text[0] != "-" or (word not in JOINING and before[-1] not in ",;:=")):
        return None  # the constant continues something else
    if word and (run.startswith("(") or (word not in JOINING and re.fullmatch(r"[0-9]+|\(.*", text))):
        return None  # f(3), or a label as in "set 2"
    if word in ("and", "or") and re.search(r"[0-9] (?:and|or)$", before) and "=" not in before:
        return None  # "the average of 3 and 5"
    value = computed(text)
    return None if value is None else Constant(value, text, start, end)


def constant_after(sentence: str, start: int) -> Constant | None:
    """The constant that starts here; None if what starts here is no constant."""
    end = start
    while end < len(sentence) and end - start < LONGEST_RUN and sentence[end] in RUN:
        end += 1
    run = sentence[start:end].rstrip(" (")
    last = start + len(run)
    if run.endswith(OPERATORS) or NOT_CONSTANT.match(sentence, last):
        return None
    if last == end and re.match(r"[A-Za-z_\\]|[:,][0-9]", sentence[end:]):
        return None  # 12x, or 12:30
    text = balanced(run.strip().rstrip("."), opening=False)
    value = computed(text) if re.search("[0-9]", text) else None
    return None if value is None else Constant(value, text, start, last)


def balanced(text: str, *, opening: bool) -> str:
    """A text without brackets at one of its ends that have no partner."""
    while text.count("(") > text.count(")") and opening and text.startswith("("):
        text = text[1:].strip()
    while text.count(")") > text.count("(") and not opening and text.endswith(")"):
        text = text[:-1].strip()
    return text


def equal(first: Constant, other: Constant) -> bool:
    """Whether two constants are equal, also as a rounded decimal number or a share in per cent."""
    for (value, text, *_), (exact, *_) in ((first, other), (other, first)):
        if value == exact or ("%" in text and value * 100 == exact):  # 50% is 0.5, and 50 as in Math-Verify
            return True
        if (decimals := re.fullmatch(r"-?[0-9]*\.([0-9]+)", text)) is not None:
            scaled, unit = exact * 10 ** len(decimals[1]), value * 10 ** len(decimals[1])
            if abs(scaled - unit) <= Fraction(1, 2) or math.trunc(scaled) == unit:
                return True
    return False


def computed(text: str) -> Fraction | None:
    """The value of plain arithmetic with rational numbers; None if it cannot be read, or is too large."""
    mixed = re.fullmatch(r"(-?)([0-9]+) +([0-9]+)/([0-9]+)", text)
    if mixed is not None and int(mixed[4]):
        value = int(mixed[2]) + Fraction(int(mixed[3]), int(mixed[4]))
        return -value if mixed[1] else value
    tokens = re.findall(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+|[-+*/^()%]", text)
    if "".join(tokens) != text.replace(" ", "") or re.search(r"[0-9.] +[0-9.]", text) or len(tokens) > LONGEST_RUN:
        return None
    try:
        value, rest = _sum(tokens[::-1])
    except (IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return None if rest else value


def _sum(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _product(tokens)
    while tokens and tokens[-1] in "+-":
        sign = tokens.pop()
        term, tokens = _product(tokens)
        value = value + term if sign == "+" else value - term
    return value, tokens


def _product(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _power(tokens)
    while tokens and tokens[-1] in ("*", "/", "("):
        sign = tokens.pop() if tokens[-1] != "(" else "*"
        factor, tokens = _power(tokens)
        value = value / factor if sign == "/" else value * factor
    return value, tokens


def _power(tokens: list[str]) -> tuple[Fraction, list[str]]:
    token = tokens.pop()
    if token in "+-":
        value, tokens = _power(tokens)
        return (-value if token == "-" else value), tokens
    if token == "(":
        value, tokens = _sum(tokens)
        if tokens.pop() != ")":
            raise ValueError(token)
    elif len(token) <= LONGEST_RUN:
        value = Fraction(token.removesuffix("."))
    else:
        raise ValueError(token)
    if tokens and tokens[-1] == "%":
        tokens.pop()
        value /= 100
    if tokens and tokens[-1] == "^":
        tokens.pop()
        exponent, tokens = _power(tokens)
        size = max(value.numerator.bit_length(), value.denominator.bit_length())
        if exponent.denominator != 1 or abs(exponent) * size > MOST_BITS:
            raise ValueError(token)
        value = value ** int(exponent)
    return value, tokens
