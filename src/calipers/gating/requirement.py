"""A requirement as a user writes it: ``EXPR OP NUMBER``.

::

    EXPR    METRIC | lower(METRIC) | upper(METRIC) | delta(METRIC) | lower(delta(METRIC)) | upper(delta(METRIC))
    METRIC  a metric as in the result, mean(column=f1) too; of one slice with [KEY=VALUE] behind it
    OP      <  <=  >  >=  ==
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from calipers.errors import InputError, UnknownName, nearest
from calipers.metrics.request import Request
from calipers.reports.gate import CRITICAL

OPS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
ENDS: Final = ("lower", "upper")
WRAPS: Final = (*ENDS, "delta")
SHAPE: Final = "expected EXPR OP NUMBER, such as 'lower(pass@1) >= 0.6'"
_WHOLE: Final = re.compile(r"\s*(?P<expr>.*?)\s*(?P<op>[<>=!]+)\s*(?P<number>[^<>=!\s\])]+)\s*", re.DOTALL)
_CALL: Final = re.compile(r"\s*(?P<name>[A-Za-z]+)\s*\((?P<inner>.*)\)\s*", re.DOTALL)
_SLICED: Final = re.compile(r"(?P<metric>.*?)\s*\[(?P<key>[^\[\]=]+)=(?P<value>.*)\]\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What must hold, of which groups, and how much hangs on it."""

    text: str
    metric: str  # as it was written
    op: str
    number: float
    end: str | None = None  # of the interval: lower, upper; None for the value
    delta: bool = False  # less the baseline's
    by: str | None = None
    slice: str | None = None
    tier: str = CRITICAL
    of: str | None = None  # the result it is asked of; None: each
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What tells the metric from others, however it is spaced."""
        return metric_key(self.metric)

    def met(self, value: float) -> bool:
        """Whether it holds of a value."""
        return OPS[self.op](value, self.number)


def metric_key(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A metric's name and parameters, whatever their order and spacing; a free name is itself."""
    try:
        request = Request.of(text)
    except InputError:
        return text, ()
    return request.name, tuple(sorted((key, str(value)) for key, value in request.params.items()))


def parse(text: str, place: str = "--require") -> Requirement:
    """Read a requirement; InputError that says what is wrong with it.

    >>> found = parse("lower(mean(column=f1)[level=hard]) >= 0.5")
    >>> found.end, found.metric, found.by, found.slice, found.op, found.number
    ('lower', 'mean(column=f1)', 'level', 'hard', '>=', 0.5)
    """
    found = _WHOLE.fullmatch(text)
    if found is None or not found["expr"]:
        raise InputError.at(place, f"{text!r} cannot be read", SHAPE)
    if found["op"] not in OPS:
        close = {"=": "==", "=>": ">=", "=<": "<=", "!=": "=="}.get(found["op"])
        right = f"did you mean {close!r}?" if close else f"expected one of {', '.join(OPS)}"
        raise InputError.at(place, f"{text!r}: no operator {found['op']!r}", right)
    number = _number(found["number"], text, place)
    names, inner = _unwrapped(found["expr"], text, place)
    sliced = _SLICED.fullmatch(inner)
    metric = (sliced["metric"] if sliced else inner).strip()
    if not metric or "[" in metric:
        right = "expected a metric, or METRIC[KEY=VALUE] for one slice"
        raise InputError.at(place, f"{text!r}: {inner!r} is no metric", right)
    return Requirement(
        text=text.strip(),
        metric=metric,
        op=found["op"],
        number=number,
        end=names[0] if names and names[0] in ENDS else None,
        delta="delta" in names,
        by=sliced["key"].strip() if sliced else None,
        slice=sliced["value"].strip() if sliced else None,
    )


def _number(text: str, whole: str, place: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        right = "expected a number such as 0.6, shares from 0 to 1"
        raise InputError.at(place, f"{whole!r}: {text!r} is no finite number", right)
    return number


def _unwrapped(expr: str, whole: str, place: str) -> tuple[list[str], str]:
    """The functions around a metric, the outer one first, and the metric.

    A metric's own brackets hold KEY=VALUE alone; anything else in brackets makes the word before them a function.
    """
    names: list[str] = []
    while (call := _CALL.fullmatch(expr)) and _is_call(call["name"], call["inner"]):
        if call["name"] not in WRAPS:
            close = nearest(call["name"], WRAPS)
            raise InputError.at(place, f"{whole!r}: {UnknownName.of('function', call['name'], close or WRAPS)}")
        names.append(call["name"])
        expr = call["inner"]
    if names not in ([], ["lower"], ["upper"], ["delta"], ["lower", "delta"], ["upper", "delta"]):
        nested = "(".join(names)
        raise InputError.at(place, f"{whole!r}: {nested}(...) means nothing", "expected lower(delta(METRIC))")
    return names, expr.strip()


def _is_call(name: str, inner: str) -> bool:
    if name in WRAPS:
        return True
    return "=" not in inner.partition("[")[0] and bool(inner.strip())
