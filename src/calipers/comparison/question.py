"""What is asked of a comparison beside what is asked of a scoring, checked before anything is opened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calipers.errors import InputError, UnknownName
from calipers.plan import Plan
from calipers.stats.anytime import BETTING
from calipers.stats.paired import FLOORED_T, STRICT

TESTS: Final = {  # what is asked for -> what stands in the document
    "default": FLOORED_T,
    "strict": STRICT,
    "sign-flip": "sign_flip",
    "mcnemar": "mcnemar",
    "mid-p": "mid_p",
    "bootstrap": "paired_bootstrap",
}
ADJUSTMENTS: Final = ("holm", "bh", "none")
SHOWN = 10  # flips of a kind
ORDER: Final = "second run: its plan, when its tasks started, or their first rows"
"""Whose order tasks have where they are looked at one after another."""


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison, fully decided."""

    plan: Plan
    test: str  # one of the values of TESTS, or betting
    adjust: str
    margin: float | None
    baseline: str | None
    flips: int
    tables: Sequence[str] | None  # the numbers of lm-evaluation-harness' tables that are asked for; None: all of them

    @property
    def anytime(self) -> bool:
        """Whether the verdict may be asked for after every batch of tasks."""
        return self.test == BETTING


def make_question(
    plan: Plan,
    *,
    test: str,
    adjust: str,
    margin: float | None,
    baseline: str | None,
    flips: int,
    tables: Sequence[str] | None,
    anytime: bool = False,
) -> Question:
    """Check what is asked; InputError for what cannot be done."""
    if test not in TESTS:
        raise UnknownName.of("test", test, TESTS)
    if adjust not in ADJUSTMENTS:
        raise UnknownName.of("adjustment", adjust, ADJUSTMENTS)
    if margin is not None and not (margin > 0 and math.isfinite(margin)):
        raise InputError(
            f"margin is {margin:g}; expected a number above 0, the largest difference that does not matter"
        )
    if flips < 0:
        raise InputError(f"flips is {flips}; expected an integer >= 0")
    if plan.cluster and test in ("mcnemar", "mid-p"):
        raise InputError(f"--test {test} takes every task for itself; expected another test beside --cluster")
    if anytime and test != "default":
        raise InputError(f"--anytime is a test of its own; expected no --test {test} beside it")
    return Question(plan, BETTING if anytime else TESTS[test], adjust, margin, baseline, flips, tables)
