"""A judge's score put right by labels: many rows that only a judge has seen, few that have labels too.

The judge alone is biased, the labels alone are few. Prediction-powered inference adds the judge's mean over all
rows and his mean error on the labelled ones; tuned (PPI++), it leans on him only as far as he is worth it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Floats
from calipers.stats.interval import ONE_TASK, Spread
from calipers.stats.wilson import t_quantile, wilson_ends

NO_JUDGED = "no row without a label was judged"
NO_LABELS = "no row has a label"
BLIND = "the judge's sensitivity and specificity add up to no more than 1: it knows nothing to correct"
ONE_KIND = "all labels are alike: sensitivity or specificity is unknown"
TOO_WIDE = "these labels do not determine it: its standard error would be more than half of the range"
UNIT = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A score put right by labels, or why it cannot be."""

    value: float | None
    stderr: float | None
    interval: tuple[float, float] | None
    method: str  # ppi++, ppi, labels, rogan_gladen
    trust: float  # lambda: 0 leaves the judge out, 1 takes his word plus his mean error
    labelled: int
    judged: int  # rows without a label
    why: str | None = None


def ppi(
    labels: Floats,
    judged_labelled: Floats,
    judged: Floats,
    *,
    trust: float | None = None,
    limits: tuple[float, float] | None = UNIT,
    confidence: float = 0.95,
) -> Corrected:
    """The mean score, from n labels with the judge's scores of the same rows, and his scores of N others.

    ``l mean(f) + mean(y - l f)`` with the variance ``l^2 Var(f)/N + Var(y - l f)/n`` (Angelopoulos et al.
    2023). Without ``trust`` it is tuned, ``l = Cov(y, f) / ((1 + n/N) Var(f))`` over all rows judged:
    PPI++, in the long run never worse than the labels alone, as plain PPI (``trust=1``) can be; 0 is the
    labels alone. Rows are independent: give task means where tasks have several samples.

    The interval is the default rule with n units, so that it has a width where all labels agree.
    """
    n, many = len(labels), len(judged)
    method = {None: "ppi++", 1.0: "ppi", 0.0: "labels"}.get(trust, "ppi")
    if n < 2:
        return Corrected(None, None, None, method, trust or 0.0, n, many, ONE_TASK if n else NO_LABELS)
    if trust is None:
        trust = _tuned(labels, judged_labelled, judged)
    if trust and many < 2:
        return Corrected(None, None, None, method, trust, n, many, NO_JUDGED)
    away = labels - trust * judged_labelled
    value, variance = float(away.mean()), _variance(away) / n
    if trust:
        value += trust * float(judged.mean())
        variance += trust**2 * _variance(judged) / many
    return with_interval(value, variance, method, trust, n, many, limits, confidence)


def rogan_gladen(labels: Floats, judged_labelled: Floats, judged: Floats, *, confidence: float = 0.95) -> Corrected:
    """The share of passes, from the judge's share q of N rows and his errors on n labelled ones; all of 0 and 1.

    ``(q + specificity - 1) / (sensitivity + specificity - 1)`` (Rogan and Gladen 1978), with the error of
    all three by the delta method. It needs a judge that errs on the other rows as he does on the labelled.
    """
    n, many = len(labels), len(judged)
    positive = labels >= 1
    goods, bads = int(np.count_nonzero(positive)), int(np.count_nonzero(~positive))

    def none(why: str) -> Corrected:
        return Corrected(None, None, None, "rogan_gladen", 1.0, n, many, why)

    if not n:
        return none(NO_LABELS)
    if not many:
        return none(NO_JUDGED)
    if not goods or not bads:
        return none(ONE_KIND)
    sensitivity = float(judged_labelled[positive].mean())
    specificity = 1 - float(judged_labelled[~positive].mean())
    informed = sensitivity + specificity - 1
    if informed <= 0:
        return none(BLIND)
    share = float(judged.mean())
    value = (share + specificity - 1) / informed
    variance = (
        share * (1 - share) / many
        + value**2 * sensitivity * (1 - sensitivity) / goods
        + (1 - value) ** 2 * specificity * (1 - specificity) / bads
    ) / informed**2
    return with_interval(value, variance, "rogan_gladen", 1.0, n, many, UNIT, confidence)


def _tuned(labels: Floats, judged_labelled: Floats, judged: Floats) -> float:
    """How far to lean on the judge; not at all where there is nothing to lean on."""
    n, many = len(labels), len(judged)
    spread = _variance(np.concatenate([judged_labelled, judged]))
    if many < 2 or spread == 0:
        return 0.0
    together = float(((labels - labels.mean()) * (judged_labelled - judged_labelled.mean())).sum()) / (n - 1)
    return together / ((1 + n / many) * spread)


def with_interval(
    value: float,
    variance: float,
    method: str,
    trust: float,
    labelled: int,
    judged: int,
    limits: tuple[float, float] | None,
    confidence: float,
) -> Corrected:
    """A score and its variance with the default rule, with as many units as rows or tasks have a label.

    Nothing on a range has a standard error of more than half of it. Where the labels are so few, or the judge so
    close to blind, that the formula gives more, there is neither a standard error nor an interval.
    """
    stderr = math.sqrt(variance)
    if limits is None:
        half = t_quantile((1 + confidence) / 2, labelled - 1.0) * stderr
        ends = (value - half, value + half) if half else None
    else:
        low, high = limits
        value = min(max(value, low), high)  # a correction may overshoot; the truth cannot
        if stderr > (high - low) / 2:
            return Corrected(value, None, None, method, trust, labelled, judged, TOO_WIDE)
        spread = Spread((value - low) / (high - low), variance / (high - low) ** 2, labelled, labelled, 1.0)
        lower, upper = wilson_ends(spread, confidence)
        ends = (low + (high - low) * lower, low + (high - low) * upper)
    return Corrected(value, stderr, ends, method, trust, labelled, judged)


def _variance(values: Floats) -> float:
    return float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
