"""Equal enough: a difference shown to be smaller than a margin, which is more than one not shown to exist.

A difference that is not significant has not been shown to be small. To show that takes a margin, chosen
before looking.
"""

from __future__ import annotations

from dataclasses import dataclass

from calipers.stats.paired import Difference


@dataclass(frozen=True, slots=True)
class Shown:
    """Whether a claim about a difference and a margin has been shown, at which p."""

    margin: float
    p: float | None  # None where there is no test
    shown: bool


def equivalence(difference: Difference, margin: float, *, confidence: float = 0.95) -> Shown:
    """Whether the true difference lies within the margin on both sides: two one-sided tests.

    The larger of the p of "at most -margin" and that of "at least +margin" (Schuirmann 1987). At 95 % it is
    shown when the 90 % interval lies inside the margin.
    """
    _check(margin)
    lower, upper = difference.p_at_most(-margin), difference.p_at_least(margin)
    p = None if lower is None or upper is None else max(lower, upper)
    return _shown(margin, p, confidence)


def non_inferiority(
    difference: Difference, margin: float, *, higher_is_better: bool = True, confidence: float = 0.95
) -> Shown:
    """Whether the first run is worse than the second by less than the margin: one one-sided test."""
    _check(margin)
    p = difference.p_at_most(-margin) if higher_is_better else difference.p_at_least(margin)
    return _shown(margin, p, confidence)


def _shown(margin: float, p: float | None, confidence: float) -> Shown:
    return Shown(margin, p, p is not None and p <= 1 - confidence)


def _check(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"a margin of {margin}; expected a number above 0")
