"""What a comparison amounts to, in one word and one sentence, and what would decide it where it is open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from calipers.stats.equivalence import equivalence
from calipers.stats.paired import Difference
from calipers.stats.power import MOST_TASKS, POWER, PairVariance, quantiles, tasks_needed
from calipers.stats.wilson import t_quantile

Word = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One word on the first run against the second."""

    word: Word
    difference: Difference
    p: float | None  # of no difference, as judged by: adjusted where several were compared
    confidence: float
    margin: float | None = None
    more_tasks: int | None = None  # that would decide it if the truth is what was seen; clusters, where they are units
    more_samples: int | None = None  # per task and run, in place of more tasks; None where they would not
    clustered: bool = False

    @property
    def sentence(self) -> str:
        """The verdict for somebody who has to act on it."""
        value = self.difference.value
        if value is None:
            return f"undecided: {self.difference.why}"
        if self.word in ("better", "worse"):
            return f"{self.word} by {abs(value):.3g}{self._backing()}"
        if self.word == "equivalent":
            return f"equivalent within {self.margin:g}: a difference of {_signed(value)}{self._backing()}"
        return f"undecided: a difference of {_signed(value)}{self._backing()}{self._remedy()}"

    def _backing(self) -> str:
        found = self.difference.interval
        shown = f"{100 * self.confidence:g} % interval {_signed(found[0])} to {_signed(found[1])}" if found else ""
        said = [part for part in (shown, "" if self.p is None else f"p {self.p:.2g}") if part]
        return f" ({', '.join(said)})" if said else f" ({self.difference.why})" if self.difference.why else ""

    def _remedy(self) -> str:
        units = "clusters" if self.clustered else "tasks"
        ways = [f"about {self.more_tasks:,} more {units} like these"] if self.more_tasks else []
        ways += [f"{self.more_samples:,} more samples per task"] if self.more_samples else []
        if ways:
            return f"; {' or '.join(ways)} would decide it, if that is the true difference"
        if self.difference.value == 0 and self.margin is None:
            return "; no difference was seen, and only a margin can show that there is none"
        return ""


def verdict(
    difference: Difference,
    *,
    higher_is_better: bool = True,
    margin: float | None = None,
    confidence: float = 0.95,
    p: float | None = None,
    pair: PairVariance | None = None,
    samples: float | None = None,
    clustered: bool = False,
) -> Verdict:
    """Judge the first run against the second: better, worse, equivalent within a margin, or undecided.

    Equivalent where the difference has been shown to lie within the margin, be it significant or not: a
    margin says which differences do not matter. Else better or worse where p is at most 1 - confidence;
    ``p`` replaces that of the difference where it was adjusted for others. Not significant is undecided,
    never equal.

    What would decide it supposes that the truth is what was seen, and asks for a power of 80 %. With
    ``pair``, the parts of the variance, and the ``samples`` per task that each run has, it also says how
    many more samples would do.
    """
    raw, value = difference.p, difference.value
    p = raw if p is None else p
    # a p that others have made larger must be as much smaller to begin with
    wanted = 1 - (1 - confidence) * min(1.0, raw / p) if raw and p else confidence
    if margin is not None and equivalence(difference, margin, confidence=confidence).shown:
        return Verdict("equivalent", difference, p, confidence, margin, clustered=clustered)
    if value is not None and p is not None and p <= 1 - confidence:
        word: Word = "better" if (value > 0) == higher_is_better else "worse"
        return Verdict(word, difference, p, confidence, margin, clustered=clustered)
    tasks = _more_tasks(difference, margin, wanted)
    more = None
    if pair is not None and samples is not None:
        more = more_samples(difference, pair, samples, margin, wanted)
    return Verdict("undecided", difference, p, confidence, margin, tasks, more, clustered)


def more_samples(
    difference: Difference,
    pair: PairVariance,
    samples: float,
    margin: float | None = None,
    confidence: float = 0.95,
) -> int | None:
    """How many more samples per task and run would decide it on the same tasks; None where none would."""
    if difference.value is None or not pair.divided:
        return None
    most = max((difference.effective_units / needed for needed in _needed(difference, margin, confidence)), default=0.0)
    spare = most - pair.tasks  # what sampling may add to the variance of one task's difference
    if spare <= 0:
        return None
    enough = math.ceil((pair.first + pair.second) / spare)
    return max(1, enough - math.floor(samples)) if enough < MOST_TASKS else None


def _more_tasks(difference: Difference, margin: float | None, confidence: float) -> int | None:
    """How many more units would decide it, by showing the difference or by showing that it is within the margin."""
    if not difference.stderr or difference.value is None:
        return None
    variance = difference.stderr**2 * difference.effective_units
    ways = [math.ceil(variance * needed) for needed in _needed(difference, margin, confidence)]
    if difference.value and (found := tasks_needed(variance, difference.value, POWER, confidence)) is not None:
        ways.append(found)
    fewest = min(ways, default=MOST_TASKS)
    return max(1, fewest - difference.units) if fewest < MOST_TASKS else None


def _needed(difference: Difference, margin: float | None, confidence: float) -> list[float]:
    """Units per variance of one unit, for each way to decide it: ``(z_a + z_b)^2 / distance^2``."""
    value = abs(difference.value or 0.0)
    ways = [(quantiles(POWER, confidence) / value) ** 2] if value else []
    if margin is not None and margin > value:
        # with no difference at all both sides of the margin must be cleared at once
        power = (1 + POWER) / 2 if value == 0 else POWER
        z = t_quantile(confidence, math.inf) + t_quantile(power, math.inf)
        ways.append((z / (margin - value)) ** 2)
    return ways


def _signed(value: float) -> str:
    return f"{value:+.3g}" if value else "0"
