"""Estimates as a page shows them: shares and rewards with three decimals; times, money and tokens with their units."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from calipers.reports.figures import NONE, figure
from calipers.reports.sentences import duration, minus, money, places, to
from calipers.stats.estimate import Estimate

UNITS = {"latency_s": "s", "cost_usd": "USD", "input_tokens": "tokens", "output_tokens": "tokens"}
PER = {
    "time_per_task": "sample",
    "tokens_per_task": "sample",
    "cost_per_task": "sample",
    "total_cost_per_task": "task",
    "cost_per_solved": "solved task",
    "time_per_solved": "solved task",
}
"""What one of a metric is for: the released names say task, and mean one sample of a task."""
OF_METRIC = {
    "time_per_task": "s",
    "tokens_per_task": "tokens",
    "cost_per_task": "USD",
    "total_cost_per_task": "USD",
    "cost_per_solved": "USD",
    "time_per_solved": "s",
    "latency_p50": "s",
    "latency_p90": "s",
    "latency_p99": "s",
}
"""The units of the metrics that have one, as their cards say; no page has to read all cards for it."""
_OF_A_SAMPLE = ("mean", "median", "min", "max", "percentile")  # statistics of a column over rollouts


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number for people: its value, its interval, what it is per, such as ``per 1,000 samples``, and its stderr."""

    value: str
    interval: str
    per: str = ""
    stderr: str = ""


def unit(estimate: Estimate) -> str:
    """The unit of a number: ``s``, ``USD``, ``tokens``; "" for a reward or a share."""
    column = next((part[7:] for part in estimate.made.settings if part.startswith("column:")), "")
    return UNITS.get(column) or OF_METRIC.get(estimate.made.metric, "")


def digits(estimates: Iterable[Estimate]) -> int:
    """The decimals of rewards and shares in one table: three, or four where an interval is narrow."""
    return places(*(each.interval for each in estimates if not unit(each) and _plain(each)))


def quantity(estimate: Estimate, decimals: int = 3) -> Quantity:
    """An estimate in words, with its unit where it has one."""
    value, ends, per = estimate.value, estimate.interval, PER.get(estimate.made.metric, "")
    kind = unit(estimate)
    if value is None or not math.isfinite(value):
        return Quantity(NONE, "", f"per {per}" if per else "")
    if kind == "USD":
        per = "sample" if estimate.made.metric in _OF_A_SAMPLE else per
        return _price(value, ends, per, estimate.stderr)
    if kind == "s":
        low_high = "" if ends is None else _times(max(ends[0], 0.0), ends[1])
        error = "" if estimate.stderr is None else duration(estimate.stderr)
        return Quantity(duration(value), low_high, f"per {per}" if per else "", error)
    if kind == "tokens":
        places_of = 0 if abs(value) >= 10 else 1
        counts = "" if ends is None else to((max(ends[0], 0.0), ends[1]), places_of)
        error = "" if estimate.stderr is None else figure(estimate.stderr, 1)
        return Quantity(figure(value, places_of), counts, f"tokens per {per}" if per else "tokens", error)
    decimals = decimals if _plain(estimate) else _own_decimals(estimate)
    return Quantity(minus(figure(value, decimals)), "" if ends is None else to(ends, decimals))


def _price(value: float, ends: tuple[float, float] | None, per: str, stderr: float | None) -> Quantity:
    """Dollars, for a thousand or a million of what they are per where one costs less than a tenth of a cent."""
    times, many = 1.0, f"per {per}" if per else ""
    if 0 < abs(value) < 0.001 and per:
        times, many = (1e3, f"per 1,000 {per}s") if abs(value) >= 1e-5 else (1e6, f"per million {per}s")
    low_high = "" if ends is None else f"{money(max(ends[0], 0.0) * times)} to {money(ends[1] * times)}"
    return Quantity(money(value * times), low_high, many, "" if stderr is None else money(stderr * times))


def _times(low: float, high: float) -> str:
    """Two times; a unit that both have is said once: ``2.4 to 3.0 s``."""
    first, second = duration(low), duration(high)
    number, _, name = first.partition(" ")
    alike = name == second.partition(" ")[2] and " " not in name
    return f"{number} to {second}" if alike else f"{first} to {second}"


def _size(estimate: Estimate) -> float:
    """The largest of a number and the ends of its interval, without its sign."""
    numbers = (estimate.value or 0.0, *(estimate.interval or ()))
    return max(map(abs, filter(math.isfinite, numbers)), default=0.0)


def _plain(estimate: Estimate) -> bool:
    """Whether the usual decimals suit a number: neither tiny nor large."""
    size = _size(estimate)
    return size == 0 or 0.01 <= size < 10


def _own_decimals(estimate: Estimate) -> int:
    """Four digits of a number that is tiny or large."""
    return min(max(3 - math.floor(math.log10(_size(estimate))), 0), 12)
