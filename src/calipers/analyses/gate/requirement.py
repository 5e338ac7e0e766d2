"""A requirement as a user writes it: ``EXPR OP NUMBER``.

::

    EXPR    METRIC | lower(METRIC) | upper(METRIC) | delta(METRIC) | lower(delta(METRIC)) | upper(delta(METRIC))
            worst(any of these)    with every missing rollout at the worst end of the range
            worst(METRIC[task])    of the worst task: fails if a task is shown to be below, by Holm over tasks
            missing                the share of planned rollouts that are missing
    METRIC  a metric as in the result, also mean(column=f1); METRIC[KEY=VALUE] for one slice, METRIC[KEY=*]
            for every slice, each of which must meet the requirement: [task=*]
    OP      <  <=  >  >=  ==
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from calipers.analyses.compare.question import SLICED, metric_key
from calipers.analyses.gate.document import CRITICAL
from calipers.errors import InputError, UnknownName, nearest

OPS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
ENDS: Final = ("lower", "upper")
WORST: Final = "worst"
WRAPS: Final = (*ENDS, "delta", WORST)
MISSING: Final = "missing"
EVERY: Final = "*"
TASK: Final = "task"
RATES: Final = ("pass_rate", "pass@1")
"""Metrics that are a share of passes among samples, which have an exact test."""
SHAPE: Final = "expected EXPR OP NUMBER, such as 'lower(pass@1) >= 0.6'"
_WHOLE: Final = re.compile(r"\s*(?P<expr>.*?)\s*(?P<op>[<>=!]+)\s*(?P<number>[^<>=!\s\])]+)\s*", re.DOTALL)
_CALL: Final = re.compile(r"\s*(?P<name>[A-Za-z]+)\s*\((?P<inner>.*)\)\s*", re.DOTALL)
_BY_TASK: Final = re.compile(r"(?P<metric>.*?)\s*\[\s*(?P<key>[^\[\]=]+?)\s*\]\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement, the groups it applies to, and its tier."""

    text: str
    metric: str  # as it was written
    op: str
    number: float
    end: str | None = None  # of the interval: lower, upper; None for the value
    delta: bool = False  # minus the value of the baseline
    by: str | None = None
    slice: str | None = None
    tier: str = CRITICAL
    of: str | None = None  # the result it applies to; None: each
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    worst: bool = False  # with every missing rollout at the worst end of the range
    weakest: bool = False  # of the worst task, tested by Holm over tasks

    @property
    def missing(self) -> bool:
        """Whether it is about the share of missing rollouts, and not about a metric."""
        return self.metric == MISSING

    @property
    def every(self) -> bool:
        """Whether every slice of a key must meet it."""
        return self.slice == EVERY

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What tells the metric from others, however it is spaced."""
        return metric_key(self.metric)

    def met(self, value: float) -> bool:
        """Whether it holds of a value."""
        return OPS[self.op](value, self.number)


def parse(text: str, where: str = "--require") -> Requirement:
    """Read a requirement; InputError that says what is wrong with it.

    >>> wanted = parse("lower(mean(column=f1)[level=hard]) >= 0.5")
    >>> wanted.end, wanted.metric, wanted.by, wanted.slice, wanted.op, wanted.number
    ('lower', 'mean(column=f1)', 'level', 'hard', '>=', 0.5)
    """
    parts = _WHOLE.fullmatch(text)
    if parts is None or not parts["expr"]:
        raise InputError.at(where, f"{text!r} cannot be read", SHAPE)
    if parts["op"] not in OPS:
        close = {"=": "==", "=>": ">=", "=<": "<=", "!=": "=="}.get(parts["op"])
        right = f"did you mean {close!r}?" if close else f"expected one of {', '.join(OPS)}"
        raise InputError.at(where, f"{text!r}: no operator {parts['op']!r}", right)
    number = _number(parts["number"], text, where)
    names, inner = _unwrapped(parts["expr"], text, where)
    by_task = _BY_TASK.fullmatch(inner) if names == [WORST] else None
    sliced = by_task or SLICED.fullmatch(inner)
    metric = (sliced["metric"] if sliced else inner).strip()
    if not metric or "[" in metric:
        right = "expected a metric, or METRIC[KEY=VALUE] for one slice"
        raise InputError.at(where, f"{text!r}: {inner!r} is not a metric", right)
    wanted = Requirement(
        text=text.strip(),
        metric=metric,
        op=parts["op"],
        number=number,
        end=next((name for name in names if name in ENDS), None),
        delta="delta" in names,
        by=sliced["key"].strip() if sliced else None,
        slice=sliced["value"].strip() if sliced and not by_task else None,
        worst=WORST in names and not by_task,
        weakest=by_task is not None,
    )
    _check(wanted, names, where)
    return wanted


def _check(wanted: Requirement, names: list[str], where: str) -> None:
    """InputError for what can be written and means nothing."""
    wrong = right = ""
    if wanted.missing and names:
        wrong, right = f"{names[0]}(missing) has no meaning", "expected missing, the share of planned rollouts"
    elif wanted.weakest and wanted.by != TASK:
        wrong, right = f"[{wanted.by}] is not a slice", "expected worst(METRIC[task]), or METRIC[KEY=VALUE]"
    elif wanted.weakest and wanted.key[0] not in RATES:
        wrong, right = f"{wanted.metric} does not count passes", f"expected worst({RATES[0]}[task]), or {RATES[1]}"
    elif wanted.weakest and wanted.op not in (">", ">="):
        wrong, right = f"the worst task has the lowest rate, but {wanted.op} asks for less", "expected >= or >"
    elif wanted.every and wanted.delta:
        wrong, right = "a difference needs one slice", "expected delta(METRIC[KEY=VALUE])"
    if wrong:
        raise InputError.at(where, f"{wanted.text!r}: {wrong}", right)


def _number(text: str, whole: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        right = "expected a number such as 0.6, shares from 0 to 1"
        raise InputError.at(where, f"{whole!r}: {text!r} is not a finite number", right)
    return number


def _unwrapped(expr: str, whole: str, where: str) -> tuple[list[str], str]:
    """The functions around a metric, the outer one first, and the metric.

    A metric's own brackets hold KEY=VALUE alone; anything else in brackets makes the word before them a function.
    """
    names: list[str] = []
    while (call := _CALL.fullmatch(expr)) and _is_call(call["name"], call["inner"]):
        if call["name"] not in WRAPS:
            close = nearest(call["name"], WRAPS)
            raise InputError.at(where, f"{whole!r}: {UnknownName.of('function', call['name'], close or WRAPS)}")
        names.append(call["name"])
        expr = call["inner"]
    inner = names[1:] if names[:1] == [WORST] else names
    if inner not in ([], ["lower"], ["upper"], ["delta"], ["lower", "delta"], ["upper", "delta"]):
        nested = "(".join(names)
        right = "expected worst(lower(delta(METRIC)))" if WORST in names else "expected lower(delta(METRIC))"
        raise InputError.at(where, f"{whole!r}: {nested}(...) has no meaning", right)
    return names, expr.strip()


def _is_call(name: str, inner: str) -> bool:
    if name in WRAPS:
        return True
    return "=" not in inner.partition("[")[0] and bool(inner.strip())
