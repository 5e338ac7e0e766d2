"""The settings of a comparison beyond those of a score, checked before any file is opened."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calipers.errors import InputError, UnknownName
from calipers.metrics.metric import MetricSpec
from calipers.request import Plan
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
SIDAK: Final = "sidak"
HOLM: Final = "holm"
ADJUSTMENTS: Final = (SIDAK, HOLM, "bh", "none")
SLICED: Final = re.compile(r"(?P<metric>.*?)\s*\[(?P<key>[^\[\]=]+)=(?P<value>.*)\]\s*", re.DOTALL)
SHOWN = 10  # flips of a kind
TRAINED: Final = "train"  # the split of rollouts that a policy was trained on
ORDER: Final = "second run: its plan, when its tasks started, or their first rows"
"""The order of tasks for a test that looks at them one after another."""


@dataclass(frozen=True, slots=True)
class Primary:
    """The primary question: a metric on all tasks, or in one slice, ``mean_reward[difficulty=hard]``."""

    text: str
    metric: str
    by: str | None = None
    slice: str | None = None

    @classmethod
    def of(cls, text: str) -> Primary:
        """Read ``--primary``; InputError for what names no metric."""
        sliced = SLICED.fullmatch(text)
        metric = (sliced["metric"] if sliced else text).strip()
        if not metric or (sliced is None and "[" in metric):
            raise InputError.at("--primary", f"{text!r} is not a metric", "expected METRIC or METRIC[KEY=VALUE]")
        if sliced is None:
            return cls(text, metric)
        return cls(text, metric, sliced["key"].strip(), sliced["value"].strip())

    def means(self, metric: str, by: str | None, value: str | None) -> bool:
        """Whether this is the question of a metric in a slice."""
        return (self.by, self.slice) == (by, value) and metric_key(self.metric) == metric_key(metric)


def step_order(name: str) -> tuple[bool, float, str]:
    """The order of training steps by their names, ``40`` or ``eval, 40``: by number, those of evaluations last.

    >>> sorted(["10", "2", "train, 30", "eval, 2"], key=step_order)
    ['train, 30', '2', 'eval, 2', '10']
    """
    split, _, step = name.rpartition(", ")
    try:
        return split != TRAINED, float(step), name
    except ValueError:
        return split != TRAINED, -math.inf, name


def metric_key(metric: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A metric's name and parameters, whatever their order and spacing; a free name is itself."""
    try:
        request = MetricSpec.of(metric)
    except InputError:
        return metric, ()
    return request.name, tuple(sorted((key, str(value)) for key, value in request.params.items()))


@dataclass(frozen=True, slots=True)
class Question:
    """The settings of a comparison, checked and complete."""

    plan: Plan
    test: str  # one of the values of TESTS, or betting
    adjust: str
    margin: float | None
    baseline: str | None
    flips: int
    tables: Sequence[str] | None  # the numbers of lm-evaluation-harness' tables that are asked for; None: all of them
    primary: Primary | None = None  # None: the first metric on all tasks
    filled: tuple[float, float] | None = None  # what the missing rollouts of the first and the second run are
    steps: str = ""  # what tells the training steps apart that are compared one by one; "": there are none

    @property
    def gated(self) -> bool:
        """Whether the last common step is the primary question, and the other steps are claims only if it is decided.

        The primary question keeps its level, and the others are adjusted among themselves by Holm.
        """
        return bool(self.steps) and self.adjust == HOLM

    @property
    def anytime(self) -> bool:
        """Whether the verdict may be asked for after every batch of tasks."""
        return self.test == BETTING


def make_question(
    plan: Plan,
    *,
    test: str = "default",
    adjust: str = SIDAK,
    margin: float | None = None,
    baseline: str | None = None,
    flips: int = 0,
    tables: Sequence[str] | None = (),
    anytime: bool = False,
    primary: Primary | None = None,
    filled: tuple[float, float] | None = None,
) -> Question:
    """Check the settings; InputError where they do not go together."""
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
        raise InputError(f"--test {test} needs independent tasks; expected another test with --cluster")
    if anytime and test != "default":
        raise InputError(f"--anytime is a test itself; expected no --test {test} with it")
    return Question(plan, BETTING if anytime else TESTS[test], adjust, margin, baseline, flips, tables, primary, filled)
