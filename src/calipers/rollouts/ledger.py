"""The ledger: every planned rollout ends in exactly one outcome, and the counts add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from calipers.rollouts.column import Column
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, MISSING, OUTCOMES, SCORED, STOPPED_EARLY
from calipers.rollouts.table import Rollouts

Missing = Literal["gap", "zero", "fail"]
"""What happens with missing rollouts: they are excluded, count as 0, or stop the score."""

ERROR_KIND = "error.kind"
"""The label for the type of error of a rollout, if the reader knows it."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The outcomes of the planned rollouts of one group."""

    planned: int
    planned_from: str
    tasks: int
    scored: int
    gaps: int
    attempts: int
    outcomes: dict[str, int]  # outcome -> rollouts, only those that occur, in the order of OUTCOMES
    exceptions: dict[str, int] = field(default_factory=dict)  # kind of error -> rollouts, the most frequent first
    lacking: dict[str, int] = field(default_factory=dict)  # reward that is read -> scored rollouts with others alone

    @property
    def stopped_early(self) -> int:
        """Rollouts that were not run because of a stopping rule: planned, but not missing."""
        return self.outcomes.get(OUTCOMES[STOPPED_EARLY], 0)

    @classmethod
    def of(cls, rollouts: Rollouts) -> Ledger:
        """Count the rollouts of a group, also those not run because of a stopping rule; the sums are checked."""
        parts = [rollouts] if rollouts.left is None else [rollouts, rollouts.left]
        counts = np.bincount(np.concatenate([part.outcome for part in parts]), minlength=len(OUTCOMES)).tolist()
        ledger = cls(
            planned=sum(map(len, parts)),
            planned_from=rollouts.planned_from,
            tasks=sum(len(part.tasks) for part in parts),
            scored=counts[SCORED],
            gaps=sum(counts[FIRST_GAP:STOPPED_EARLY]),
            attempts=sum(len(part) if part.tries is None else int(part.tries.sum()) for part in parts),
            outcomes={word: n for word, n in zip(OUTCOMES, counts, strict=False) if n},
            exceptions=_exceptions(rollouts),
        )
        if sum(ledger.outcomes.values()) != ledger.planned:
            raise RuntimeError(f"the ledger does not add up: {ledger}")
        return ledger


def lacking(rollouts: Rollouts, keys: Iterable[str]) -> dict[str, int]:
    """For each reward, how many scored rollouts have other rewards but not this one; only rewards that some lack."""
    if len(rollouts.rewards) < 2:
        return {}
    some = np.logical_or.reduce([column.given for column in rollouts.rewards.values()])
    counts = {}
    for key in dict.fromkeys(keys):
        column = rollouts.rewards.get(key) or Column.gaps(len(rollouts))
        counts[key] = int(((rollouts.outcome == SCORED) & some & ~column.given).sum())
    return {key: count for key, count in counts.items() if count}


def _exceptions(rollouts: Rollouts) -> dict[str, int]:
    labels = rollouts.labels.get(ERROR_KIND)
    if labels is None:
        return {}
    counts = np.bincount(labels.code + 1, minlength=len(labels.values) + 1)[1:].tolist()
    kinds = [(str(kind), n) for kind, n in zip(labels.values, counts, strict=True) if n]
    return dict(sorted(kinds, key=lambda item: (-item[1], item[0])))


def contribution(outcome: str | None, reward: float | None) -> float | None:
    """The number that one rollout contributes to a reward metric, as `contributed` has it for all of them.

    >>> contribution(None, 0.5), contribution("truncated", None), contribution("client_failed", 1.0)
    (0.5, 0.0, None)
    """
    code = (SCORED if reward is not None else MISSING) if outcome is None else CODE[outcome]
    if code >= FIRST_GAP:
        return None
    return 0.0 if code >= FIRST_NIL or (reward is None and code != SCORED) else reward


def contributed(rollouts: Rollouts, key: str) -> Column:
    """The number each rollout contributes to a reward metric, [R].

    Its reward, unless the outcome means that the rollout is missing. Without a reward, 0 for an outcome that the model
    caused (`refused`, `truncated`, ...), else a gap. A rollout that broke its verifier, or tampered with it, is 0 even
    with a reward.
    """
    reward = rollouts.rewards.get(key) or Column.gaps(len(rollouts))
    numbered = rollouts.outcome < FIRST_GAP
    nil = numbered & (rollouts.outcome >= FIRST_NIL)
    if bool((numbered & reward.given & ~nil).all()):
        return reward
    own_doing = numbered & (rollouts.outcome != SCORED) & (~reward.given | nil)
    return Column(np.where(own_doing, 0.0, reward.values), (reward.given & numbered) | own_doing)
