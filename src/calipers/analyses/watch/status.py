"""The status of an alarm at a step or a night, and the sentences about it.

An alarm is quiet until its evidence reaches what is needed. Then it is open, at that step and at all later ones, until
a test for recovery closes it or the user accepts the change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from calipers.analyses.watch import DROP, RISE, Alarm
from calipers.remarks import Remark, Value
from calipers.reports.remark_texts import text_of
from calipers.stats.alarms import CLOSE_AT

State = Literal["quiet", "open", "closed", "accepted"]
QUIET: Final = "quiet"
OPEN: Final = "open"
CLOSED: Final = "closed"
ACCEPTED: Final = "accepted"
Measure = Literal["mean", "rate", "difference"]
NIGHT, STEP = "night", "step"
FINEST: Final = 8  # decimals


@dataclass(frozen=True, slots=True)
class AlarmStatus:
    """What is known of an alarm at one step or night. Its values are in the unit of the alarm's metric."""

    state: State
    at: int  # the step or night that this is about
    since: int | None = None  # the step since which the evidence for the change has grown
    raised: int | None = None  # the step at which the alarm was raised
    evidence: float | None = None  # for the change: so far, or that which raised the alarm
    needed: float | None = None  # the evidence that raises it
    reference: float | None = None  # the level that the alarm's null states: at least so much for a drop, else at most
    now: float | None = None  # the value at this step
    close_at: float | None = None  # an open alarm closes if the mean is shown to be beyond this level again
    recovery_evidence: float | None = None  # that the mean is beyond it; 20 closes the alarm
    closed: int | None = None  # the step at which the alarm was closed or accepted
    measure: Measure = "mean"  # what reference, now and close_at are
    p: float | None = None  # of a rule that tests each night by itself; of an open alarm, that which raised it
    p_level: float | None = None  # at or below which p raises an alarm


def sentence_of(status: AlarmStatus, alarm: Alarm, unit: str) -> str:
    """The state of an alarm as a sentence."""
    return text_of(remark_of(status, alarm, unit))


def remark_of(status: AlarmStatus, alarm: Alarm, unit: str) -> Remark:
    """The state of an alarm; ``unit`` is what a step is called."""
    match status.state:
        case "quiet":
            return _quiet(status, unit)
        case "open":
            return _open(status, alarm, unit)
        case "accepted":
            return Remark("alarm_accepted", {"unit": unit, "accepted": status.closed})
    values: dict[str, Value] = {
        "unit": unit,
        "closed": status.closed,
        "level": _bound(status.close_at, status.close_at, up=alarm.kind != DROP),
        **_recovery(status),
    }
    if alarm.kind == DROP:
        return Remark("alarm_closed_above", values)
    return Remark("alarm_closed_below", values)


def _quiet(status: AlarmStatus, unit: str) -> Remark:
    values: dict[str, Value] = {"unit": unit, "at": status.at}
    if status.p is not None:
        return Remark("alarm_quiet_by_p", {**values, "p": status.p, "level": _short(status.p_level)})
    if status.evidence is None or status.needed is None:
        return Remark("alarm_not_tested", values)
    needed = _short(status.needed)
    return Remark("alarm_quiet", {**values, "evidence": _evidence(status.evidence, status.needed), "needed": needed})


def _open(status: AlarmStatus, alarm: Alarm, unit: str) -> Remark:
    values: dict[str, Value] = {"unit": unit, "raised": status.raised, **_recovery(status)}
    if status.close_at is None:
        return Remark("alarm_open_until_accepted", {**values, "accept": unit.upper()}, "warning")
    if status.now is None or status.reference is None:
        return Remark("alarm_open_without_value", values, "warning")
    digits = _digits(status.now, status.reference)
    low = alarm.kind == DROP
    values |= {"now": round(status.now, digits), "reference": _bound(status.reference, status.now, up=not low)}
    if alarm.kind in (DROP, RISE) and not alarm.limit and status.measure == "mean":
        if low:
            return Remark("alarm_open_low", values, "warning")
        return Remark("alarm_open_high", values, "warning")
    values["quantity"] = status.measure.capitalize()
    if low:
        return Remark("alarm_open_below", values, "warning")
    return Remark("alarm_open_above", values, "warning")


def raised_remark(status: AlarmStatus, alarm: Alarm, unit: str) -> Remark | None:
    """When an alarm was raised and by which evidence; None if there is none."""
    if status.raised is None:
        return None
    change = "lower" if alarm.kind == DROP else "higher"
    values: dict[str, Value] = {"unit": unit, "raised": status.raised, "since": status.since, "change": change}
    if status.evidence is None or status.needed is None:
        return Remark("alarm_raised_by_p", {**values, "p": status.p, "level": _short(status.p_level)})
    strength: dict[str, Value] = {
        "evidence": _evidence(status.evidence, status.needed),
        "needed": _short(status.needed),
    }
    return Remark("alarm_raised", {**values, **strength})


def baseline_remark(compared: int, *, begins: bool) -> Remark:
    """How often the baseline of a history has been compared by a night, or that it begins with this night."""
    if begins:
        return Remark("baseline_begins")
    if compared == 1:
        return Remark("baseline_compared_once")
    return Remark("baseline_compared", {"count": compared})


def _recovery(status: AlarmStatus) -> dict[str, float | None]:
    evidence = status.recovery_evidence
    shown = None if evidence is None else _evidence(evidence, CLOSE_AT)
    return {"evidence": shown, "close": CLOSE_AT}


def _evidence(value: float, needed: float) -> float:
    """Evidence with two digits, or in whole numbers from 10 to a million; it is not rounded up to what is needed."""
    digits = 1 - math.floor(math.log10(value)) if value > 0 else 0
    if 10 <= value < 1e6:
        digits = 0
    shown = round(value, digits)
    if value < needed <= shown:
        return _down(value, digits + 1)
    return shown


def _short(value: float | None) -> float | None:
    """A number with three digits, or in whole numbers from 100 on."""
    if not value:
        return value
    return round(value, max(0, 2 - math.floor(math.log10(abs(value)))))


def _digits(value: float, other: float) -> int:
    """The decimals of a value beside another: two digits at least, and enough to tell them apart."""
    size = max(abs(value), abs(other))
    digits = 2 if size == 0 else min(max(0, 1 - math.floor(math.log10(size))), FINEST)
    digits = max(digits, 2 if size < 10 else 0)
    while digits < FINEST and value != other and round(value, digits) in (_down(other, digits), _up(other, digits)):
        digits += 1
    return digits


def _bound(bound: float | None, beside: float | None, *, up: bool) -> float | None:
    """A bound rounded away from what it excludes, with the decimals that it has beside another value."""
    if bound is None or beside is None:
        return bound
    digits = _digits(beside, bound)
    return _up(bound, digits) if up else _down(bound, digits)


def _up(value: float, digits: int) -> float:
    return -_down(-value, digits)


def _down(value: float, digits: int) -> float:
    """A value rounded down; 1e-9 of its last digit is the noise of a float."""
    scale = 10.0**digits
    return math.floor(value * scale + 1e-9) / scale
