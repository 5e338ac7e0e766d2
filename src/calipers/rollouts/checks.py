"""The numbers that a system reports about its own rollouts, compared with ours for the same rollouts.

A reader that misunderstands a file gives wrong numbers without an error: it may take the steps of a rollout for
rollouts, or half of a task for a task. Most systems write a number of their own beside their rollouts. The reader of a
system computes ours by the definition of that system, and `compared` says whether the two agree. The checks travel with
the rollouts, as `Part.checks` and `Rollouts.checks`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from calipers.remarks import Remark

MOST_NAMED: Final = 3  # numbers that are named if several differ
CLOSEST: Final = 1e-9
"""The least tolerance for a number up to 1; a larger number has it in proportion to its size."""
FEWEST_DECIMALS: Final = 4  # of two numbers that differ
MOST_DECIMALS: Final = 12
_FRACTION: Final = re.compile(r"-?\d+(?:\.(?P<digits>\d*))?(?:e(?P<exponent>[+-]\d+))?")


@dataclass(frozen=True, slots=True)
class Check:
    """A number that the system which wrote the rollouts reports itself, and ours for the same rollouts."""

    system: str
    metric: str  # its name in that system
    theirs: float
    ours: float
    agrees: bool

    @property
    def remark(self) -> Remark:
        """The warning that the two numbers differ."""
        places = decimals_apart(self.theirs, self.ours)
        numbers = {"theirs": round(self.theirs, places), "ours": round(self.ours, places)}
        return Remark("reader_disagrees", {"system": self.system, "metric": self.metric, **numbers}, "warning")


def failed_checks(checks: Sequence[Check]) -> list[Check]:
    """The numbers in which the system that wrote the rollouts and Calipers differ."""
    return [check for check in checks if not check.agrees]


def disagreements(checks: Sequence[Check]) -> list[Remark]:
    """The warnings that numbers differ: the first ones, and how many more there are of each system."""
    failed = failed_checks(checks)
    remarks = [check.remark for check in failed[:MOST_NAMED]]
    more = Counter(check.system for check in failed[MOST_NAMED:])
    for system, count in more.items():
        remarks.append(Remark("reader_disagrees_more", {"system": system, "count": count}, "warning"))
    return remarks


def compared(system: str, pairs: Iterable[tuple[str, Any, float | None]], beside: Iterable[Any] = ()) -> list[Check]:
    """A check for each (metric, theirs, ours) of one document in which both are finite numbers.

    They agree within half a unit of the last decimal that the system printed, and within 1e-9 in any case. The last
    decimal is that of the number with the most decimals: a system that writes 0.4583333333333333 does not round, so its
    0.5 is exactly 0.5. ``beside`` are more numbers of the document, which show only how the system rounds. A whole
    number without a decimal point is not rounded.

    >>> [check.agrees for check in compared("x", [("score", 0.46, 0.4583)])]
    [True]
    >>> [check.agrees for check in compared("x", [("score", 0.46, 0.4583), ("other", 0.458333333333, 0.458333333333)])]
    [False, True]
    """
    both = []
    for metric, theirs, ours in pairs:
        if _is_number(theirs) and _is_number(ours):
            both.append((metric, theirs, float(ours)))
    decimals = 0
    for number in (*(theirs for _, theirs, _ in both), *beside):
        if isinstance(number, float):
            decimals = max(decimals, printed_decimals(number))
    checks = []
    for metric, theirs, ours in both:
        tolerance = CLOSEST * max(1.0, abs(theirs))
        if isinstance(theirs, float):
            tolerance += 0.5 * 10.0**-decimals
        checks.append(Check(system, metric, float(theirs), ours, abs(theirs - ours) <= tolerance))
    return checks


def printed_decimals(number: float) -> int:
    """The decimals with which writers of JSON print a number: as few as tell it from all others.

    >>> printed_decimals(0.4583), printed_decimals(1.0), printed_decimals(1.5e-05), printed_decimals(1e22)
    (4, 1, 6, 0)
    """
    match = _FRACTION.match(repr(number))
    if match is None:  # NaN, or infinite
        return 0
    return max(len(match["digits"] or "") - int(match["exponent"] or 0), 0)


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def decimals_apart(theirs: float, ours: float) -> int:
    """The decimals with which two numbers that differ are shown: at least 4, and enough to see that they differ.

    >>> decimals_apart(0.4583333, 0.284), decimals_apart(0.4583333, 0.4583321)
    (4, 6)
    """
    places = FEWEST_DECIMALS
    while places < MOST_DECIMALS and f"{theirs:.{places}f}" == f"{ours:.{places}f}":
        places += 1
    return places
