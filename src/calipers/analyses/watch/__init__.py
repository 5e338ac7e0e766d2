"""Watches on training runs, and the grammar of their alarms: ``FUNCTION(WHAT) > NUMBER``, as in requirements of a gate.

::

    drop(METRIC) > d              the mean falls by more than d below the best of all earlier steps
    drop(METRIC, base=STEP) > d   the same, below the base step
    rise(METRIC) > d              the mirror image, for metrics that should be low
    rate(OUTCOME) > r             more than this share of rollouts is truncated, refused, missing, ...
    mean(COLUMN) > x              the mean over tasks of a column of 0 or more is above x
    mean(COLUMN) > f * base       the same, for f times its mean in the base steps
    diverge(A, B) > d             A less B, on the same rollouts, grows by more than d above the base steps
    diverge(A[split=train], B[split=eval]) > d
                                  the gain of B is below half of the gain of A by more than d; two splits of one run
    share(zero_variance) > r      more than this share of groups has equal rewards, and therefore no gradient
    WHAT[split=eval]              any of these for one split, or one dataset
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calipers.errors import InputError, UnknownName, nearest
from calipers.rollouts.record import OUTCOMES

DROP, RISE, RATE, MEAN, DIVERGE, SHARE = "drop", "rise", "rate", "mean", "diverge", "share"
KINDS: Final = (DROP, RISE, RATE, MEAN, DIVERGE, SHARE)
ZERO_VARIANCE: Final = "zero_variance"
SHARES: Final = (ZERO_VARIANCE, "all_pass", "all_fail")
RATES: Final = tuple(word for word in OUTCOMES if word not in ("scored", "stopped_early"))
SLICES: Final = ("split", "dataset")
SHAPE: Final = "expected FUNCTION(WHAT) > NUMBER, such as 'drop(pass@1) > 0.02'"
_WHOLE: Final = re.compile(
    r"\s*(?P<kind>[A-Za-z_]+)\s*\((?P<inner>.*)\)\s*(?P<op>[<>=!]+)\s*(?P<limit>.+?)\s*", re.DOTALL
)
_SLICE: Final = re.compile(r"(?P<what>.*?)\s*\[\s*(?P<key>[^\[\]=]+?)\s*=\s*(?P<value>[^\[\]]*?)\s*\]\s*", re.DOTALL)
_TIMES_BASE: Final = re.compile(r"(?P<factor>[0-9.eE+-]+)\s*\*\s*base")


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm; its null hypothesis is that the limit is kept at every step."""

    text: str  # as the user wrote it
    kind: str  # one of KINDS
    what: str  # a metric, a column, an outcome
    limit: float
    other: str = ""  # the second column of diverge
    times_base: bool = False  # the limit is a multiple of the base steps' mean
    base: int | None = None  # the step that a drop is measured from; None: the best of all earlier steps
    key: str = ""  # "split" or "dataset" if the alarm is for a single one
    value: str = ""
    preset: bool = False  # part of a preset, and left out if the rollouts do not have its metric
    other_key: str = ""  # "split" or "dataset" of the second metric, if it differs from that of the first
    other_value: str = ""

    @property
    def across(self) -> bool:
        """Whether the alarm compares two series: training and held-out tasks."""
        return bool(self.other_key)

    @property
    def referenced(self) -> bool:
        """Whether the alarm compares with a number from earlier steps."""
        return self.kind in (DROP, RISE, DIVERGE) or self.times_base

    @property
    def null(self) -> str:
        """The null hypothesis of the alarm in words."""
        amount = f"{self.limit:g}"
        match self.kind:
            case "drop" if self.base is not None:
                return f"{self.what} is at least that of step {self.base} less {amount}"
            case "drop":
                return f"{self.what} is at least the best of all earlier steps less {amount}"
            case "rise" if self.base is not None:
                return f"{self.what} is at most that of step {self.base} plus {amount}"
            case "rise":
                return f"{self.what} is at most the lowest of all earlier steps plus {amount}"
            case "rate":
                return f"at most {100 * self.limit:g} % of rollouts are {self.what}"
            case "share":
                return f"at most {100 * self.limit:g} % of groups are {self.what}"
            case "diverge" if self.across:
                trained = f"{self.what}[{self.key}={self.value}]"
                held_out = f"{self.other}[{self.other_key}={self.other_value}]"
                return f"{held_out} has gained at least half of what {trained} has, less {amount}"
            case "diverge":
                return f"{self.what} less {self.other} is at most that of the base steps plus {amount}"
        return (
            f"the mean of {self.what} is at most {amount}{' times that of the base steps' if self.times_base else ''}"
        )

    def applies(self, split: str, dataset: str | None) -> bool:
        """Whether the alarm is for a series of this split and dataset; if it compares two, for the held-out series."""
        key, value = (self.other_key, self.other_value) if self.across else (self.key, self.value)
        return not key or {"split": split, "dataset": dataset or ""}[key] == value

    def trains(self, split: str, dataset: str | None) -> bool:
        """Whether the alarm compares held-out tasks with a series of this split and dataset."""
        return self.across and {"split": split, "dataset": dataset or ""}[self.key] == self.value


PRESETS: Final[Mapping[str, Sequence[str]]] = {
    "rl": (
        "drop(reward) > 0.02",
        "rate(truncated) > 0.05",
        "rate(refused) > 0.02",
        "rate(verifier_failed) > 0.02",
        "rate(missing) > 0.05",
        "mean(length) > 1.2 * base",
        "share(zero_variance) > 0.8",
    ),
    "eval": (
        "drop(reward) > 0.02",
        "rate(truncated) > 0.05",
        "rate(refused) > 0.02",
        "rate(verifier_failed) > 0.02",
        "rate(missing) > 0.05",
    ),
}
"""Names that ``--alarm`` takes for several alarms at once."""


def alarms_of(texts: Sequence[str]) -> list[Alarm]:
    """The alarms of ``--alarm`` options, each an alarm or the name of a preset; InputError for any other text.

    >>> [alarm.kind for alarm in alarms_of(["drop(pass@1) > 0.02", "rate(truncated) > 0.1"])]
    ['drop', 'rate']
    """
    alarms: list[Alarm] = []
    for text in texts:
        name = text.strip()
        if name in PRESETS:
            alarms += [parse(preset_text, preset=True) for preset_text in PRESETS[name]]
        elif re.fullmatch(r"[A-Za-z_]+", name):
            raise InputError.at("--alarm", str(UnknownName.of("preset", name, PRESETS)))
        else:
            alarms.append(parse(text))
    seen: dict[str, Alarm] = {}
    for alarm in alarms:  # an explicit alarm replaces the same alarm of a preset
        key = re.sub(r"\s+", "", alarm.text)
        if key not in seen or seen[key].preset:
            seen[key] = alarm
    return list(seen.values())


def parse(text: str, where: str = "--alarm", *, preset: bool = False) -> Alarm:
    """Parse an alarm; InputError if it is wrong.

    >>> parse("mean(output_tokens) > 1.2 * base").times_base, parse("drop(pass@1, base=10) > 0").base
    (True, 10)
    """
    parts = _WHOLE.fullmatch(text)
    if parts is None:
        raise InputError.at(where, f"{text!r} cannot be read", SHAPE)
    kind = parts["kind"]
    if kind not in KINDS:
        raise InputError.at(where, f"{text!r}: {UnknownName.of('alarm', kind, nearest(kind, KINDS) or KINDS)}")
    if parts["op"] not in (">", ">="):
        raise InputError.at(where, f"{text!r}: no operator {parts['op']!r}", "expected >, as an alarm is for too much")
    arguments = [part.strip() for part in parts["inner"].split(",")]
    what, key, value = _sliced(arguments[0], text, where)
    base, other, second = None, "", ("", "")
    for extra in arguments[1:]:
        if kind in (DROP, RISE) and extra.replace(" ", "").startswith("base="):
            base = _step(extra.split("=", 1)[1], text, where)
        elif kind == DIVERGE and not other:
            other, *slice_of_other = _sliced(extra, text, where)
            if key and slice_of_other[0] and slice_of_other != [key, value]:
                second = (slice_of_other[0], slice_of_other[1])
            elif not key:
                key, value = slice_of_other
        else:
            expected = "expected diverge(A, B)" if kind == DIVERGE else f"expected {kind}(WHAT)"
            raise InputError.at(where, f"{text!r}: {extra!r} has no meaning", expected)
    limit, times_base = _limit(parts["limit"], kind, text, where)
    alarm = Alarm(text.strip(), kind, what, limit, other, times_base, base, key, value, preset, *second)
    _check(alarm, where)
    return alarm


def _check(alarm: Alarm, where: str) -> None:
    """InputError for an alarm that fits the grammar, but has no meaning."""
    problem = expected = ""
    if not alarm.what:
        problem, expected = "nothing is in the brackets", SHAPE
    elif alarm.kind == DIVERGE and not alarm.other:
        problem, expected = "one column", "expected two on the same rollouts: diverge(reward, second_verifier)"
    elif alarm.kind == RATE and alarm.what not in RATES:
        problem, expected = str(UnknownName.of("outcome", alarm.what, RATES)).partition("; ")[::2]
    elif alarm.kind == SHARE and alarm.what not in SHARES:
        problem, expected = str(UnknownName.of("share of groups", alarm.what, SHARES)).partition("; ")[::2]
    elif alarm.kind in (RATE, SHARE) and not 0 < alarm.limit < 1:
        problem, expected = f"{alarm.limit:g} is not a share", "expected a number between 0 and 1, such as 0.05"
    elif alarm.kind == MEAN and not alarm.limit > 0:
        problem, expected = f"a mean above {alarm.limit:g}", "expected a number above 0: the column must be 0 or more"
    elif alarm.kind in (DROP, RISE, DIVERGE) and alarm.limit < 0:
        problem, expected = f"{alarm.limit:g} is below 0", "expected 0 or more, such as 0.02 for two points"
    if problem:
        raise InputError.at(where, f"{alarm.text!r}: {problem}", expected)


def _sliced(text: str, alarm: str, where: str) -> tuple[str, str, str]:
    """A metric in the text of an alarm, and the key and value of its split or dataset."""
    match = _SLICE.fullmatch(text)
    if match is None:
        if "[" in text or "]" in text:
            raise InputError.at(where, f"{alarm!r}: {text!r} is not a metric", "expected METRIC, or METRIC[split=eval]")
        return text.strip(), "", ""
    if match["key"] not in SLICES:
        expected = f"expected {' or '.join(SLICES)}, such as [split=eval]"
        raise InputError.at(where, f"{alarm!r}: [{match['key']}=...] is no series", expected)
    return match["what"].strip(), match["key"], match["value"]


def _step(text: str, alarm: str, where: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,15}\s*", text):
        problem = f"{alarm!r}: base={text.strip()} is no step"
        raise InputError.at(where, problem, "expected a step number, such as base=0")
    return int(text)


def _limit(text: str, kind: str, alarm: str, where: str) -> tuple[float, bool]:
    """The number of a limit, and whether it is a multiple of the base."""
    times = _TIMES_BASE.fullmatch(text)
    number = times["factor"] if times else text
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise InputError.at(where, f"{alarm!r}: {text!r} is not a finite number", "expected a number such as 0.02")
    if times and kind != MEAN:
        raise InputError.at(where, f"{alarm!r}: only mean() is measured by a multiple of the base", SHAPE)
    return limit, times is not None
