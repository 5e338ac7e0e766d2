"""How far a share of passes moves if its verifier is wrong as often as a self-test allows.

For the true share p, of whose right answers a share ``fn`` fails and of whose wrong answers a share ``fp`` passes, the
verifier passes q = p (1 - fn) + (1 - p) fp (Rogan and Gladen 1978). So

    (q - fp) / (1 - fp)  <=  p  <=  q / (1 - fn)

where ``fp`` and ``fn`` are at most their upper limits. Half of 1 - confidence goes to the interval of q, and a quarter
to each limit, so that the bounds hold at the confidence whatever the three have to do with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calipers.reports.result import Slice
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate

RATES = ("false positives", "false negatives")


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """The largest rates of wrong verdicts that a self-test allows, at a confidence of the score."""

    confidence: float
    false_positives: float
    false_negatives: float

    @property
    def confidence_of_shares(self) -> float:
        """The confidence of the interval that the bounds begin from."""
        return 1 - (1 - self.confidence) / 2

    def bounds(self, ends: tuple[float, float]) -> tuple[float, float]:
        """The bounds of a true share, from the ends of an interval of the share of passes."""
        low, high = ends
        passes, fails = self.false_positives, self.false_negatives
        lower = max((low - passes) / (1 - passes), 0.0) if passes < 1 else 0.0
        return lower, min(high / (1 - fails), 1.0) if fails < 1 else 1.0


def allowed_rates(probes: Sequence[Mapping[str, Any]], confidence: float) -> ErrorRates | None:
    """The rates that the probes of a self-test allow; None where it does not say how many verdicts there were.

    The limit of a rate is the largest among its probes, as nobody knows which of them wrong answers resemble. Without a
    verdict anything is possible: 1.
    """
    if not all("asked" in probe for probe in probes):
        return None
    limits = {
        rate: max([_upper(probe, (1 - confidence) / 4) for probe in probes if probe["rate"] == rate], default=1.0)
        for rate in RATES
    }
    return ErrorRates(confidence, limits[RATES[0]], limits[RATES[1]])


def _upper(probe: Mapping[str, Any], tail: float) -> float:
    """The largest rate of wrong verdicts that a probe allows (Clopper and Pearson 1934, one-sided)."""
    from scipy.special import betaincinv

    wrong, verdicts = len(probe["wrong"]), int(probe["asked"]) - len(probe["failed"])
    return float(betaincinv(wrong + 1, verdicts - wrong, 1 - tail)) if wrong < verdicts else 1.0


def rate_bounds(rates: ErrorRates, group: Slice, table: Rollouts) -> dict[str, list[float] | None]:
    """The bounds of each metric of a group that was scored at `confidence_of_shares`; None for no share of passes."""
    whole = all(set(column.values[column.given].tolist()) <= {0.0, 1.0} for column in table.rewards.values())
    return {
        name: list(rates.bounds(estimate.interval)) if estimate.interval and _is_share(estimate, whole) else None
        for name, estimate in group.metrics.items()
    }


def _is_share(estimate: Estimate, whole: bool) -> bool:
    """Whether a number is a share of passes: that of a metric of one sample, or a mean of rewards that are 0 or 1."""
    made = estimate.made
    single = made.metric == "pass_rate" or (made.metric == "pass@{k}" and made.k == 1)
    return single or (made.metric == "mean_reward" and whole)
