"""The ledger: counts of planned rollouts by outcome. Every planned rollout has exactly one, so the counts add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from calipers.rollouts.column import Bools, Column, Groups
from calipers.rollouts.record import (
    ASKED_AGAIN,
    CLIENT_FAILED,
    CODE,
    FIRST_GAP,
    FIRST_NIL,
    MISSING,
    NOT_RUN,
    OUTCOMES,
    SCORED,
    STOPPED_EARLY,
)
from calipers.rollouts.table import Rollouts

Missing = Literal["gap", "zero", "fail"]
"""How missing rollouts are treated: excluded (gap), counted as 0 (zero), or refused with an error (fail)."""

Assumed = Literal["random"]
"""What the user of a comparison declares about missing rollouts: their loss does not depend on the answers."""

RANDOM: Final[Assumed] = "random"

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
    lacking: dict[str, int] = field(default_factory=dict)  # requested reward -> scored rollouts with other rewards only
    passed: int | None = None  # scored rollouts with reward 1; None unless every reward is 0 or 1
    rewarded: dict[str, int] = field(default_factory=dict)  # outcome other than scored -> rollouts that keep a reward
    samples_per_task: tuple[int, int] | None = None  # the fewest and the most planned rollouts of a task
    asked_again: int | None = None  # rollouts that were repeated because their worker was lost; None for zero
    tasks_passed: tuple[int, int] | None = None  # tasks with a pass, and with passes only; None like ``passed``
    # missing rollouts that are not filled in, because they were lost before the model was asked; None for zero
    not_filled: int | None = None

    @property
    def filled(self) -> int:
        """The missing rollouts that are filled in to see how much they could change."""
        return self.gaps - (self.not_filled or 0)

    @property
    def stopped_early(self) -> int:
        """Rollouts that were not run because of a stopping rule: planned, but not missing."""
        return self.outcomes.get(OUTCOMES[STOPPED_EARLY], 0)

    @classmethod
    def of(cls, rollouts: Rollouts) -> Ledger:
        """The ledger of a group, including the rollouts not run because of a stopping rule.

        RuntimeError if the outcomes do not add up to the planned rollouts.
        """
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
            samples_per_task=_samples_per_task(parts),
            asked_again=sum(map(_asked_again, parts)) or None,
            not_filled=int(lost_before_answer(rollouts).sum()) or None,
        )
        if sum(ledger.outcomes.values()) != ledger.planned:
            raise RuntimeError(f"the ledger does not add up: {ledger}")
        return ledger


def zero_or_one(column: Column) -> bool:
    """Whether every given value of a column is 0 or 1."""
    kept = column.kept()
    return bool(((kept == 0) | (kept == 1)).all())


def joined_ledgers(ledgers: Sequence[Ledger], rewards: Sequence[tuple[int, bool]]) -> Ledger:
    """The sum of the ledgers of disjoint sets of tasks.

    ``rewards`` has for each set the number of rollouts with the reward that `passed` counts, and whether all of these
    rewards are 0 or 1.
    """
    if len(ledgers) == 1:
        return ledgers[0]
    spans = [ledger.samples_per_task for ledger in ledgers if ledger.samples_per_task]
    pass_or_fail = any(count for count, _ in rewards) and all(binary for count, binary in rewards if count)
    exceptions = _added(ledger.exceptions for ledger in ledgers)
    return replace(
        ledgers[0],
        planned=sum(ledger.planned for ledger in ledgers),
        tasks=sum(ledger.tasks for ledger in ledgers),
        scored=sum(ledger.scored for ledger in ledgers),
        gaps=sum(ledger.gaps for ledger in ledgers),
        attempts=sum(ledger.attempts for ledger in ledgers),
        outcomes=_by_outcome(ledger.outcomes for ledger in ledgers),
        exceptions=dict(sorted(exceptions.items(), key=lambda item: (-item[1], item[0]))),
        lacking=_added(ledger.lacking for ledger in ledgers),
        passed=sum(ledger.passed or 0 for ledger in ledgers) if pass_or_fail else None,
        rewarded=_by_outcome(ledger.rewarded for ledger in ledgers),
        samples_per_task=(min(low for low, _ in spans), max(high for _, high in spans)) if spans else None,
        asked_again=sum(ledger.asked_again or 0 for ledger in ledgers) or None,
        tasks_passed=_added_pairs(ledger.tasks_passed for ledger in ledgers) if pass_or_fail else None,
        not_filled=sum(ledger.not_filled or 0 for ledger in ledgers) or None,
    )


def _added_pairs(pairs: Iterable[tuple[int, int] | None]) -> tuple[int, int]:
    first, second = 0, 0
    for pair in pairs:
        if pair is not None:
            first, second = first + pair[0], second + pair[1]
    return first, second


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in counts:
        for key, count in each.items():
            sums[key] = sums.get(key, 0) + count
    return sums


def _by_outcome(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    sums = _added(counts)
    return {word: sums[word] for word in OUTCOMES if word in sums}


def _asked_again(part: Rollouts) -> int:
    column = part.columns.get(ASKED_AGAIN)
    return 0 if column is None else int((column.given & (column.values > 0)).sum())


def _samples_per_task(parts: Sequence[Rollouts]) -> tuple[int, int] | None:
    """The fewest and the most rows of a task, whose rows may be spread over several parts; None without tasks."""
    counts: dict[str, int] = {}
    if len(parts) == 1:
        rows = np.bincount(parts[0].task, minlength=len(parts[0].tasks))
        return (int(rows.min()), int(rows.max())) if len(rows) else None
    for part in parts:
        rows = np.bincount(part.task, minlength=len(part.tasks))
        for task, number in zip(part.tasks, rows.tolist(), strict=True):
            counts[task] = counts.get(task, 0) + number
    return (min(counts.values()), max(counts.values())) if counts else None


def with_rewards(ledger: Ledger, rollouts: Rollouts, key: str) -> Ledger:
    """The ledger with ``passed`` and ``rewarded`` filled in for one reward."""
    reward = rollouts.rewards.get(key)
    if reward is None:
        return ledger
    counts = contributed(rollouts, key)
    scored = (rollouts.outcome == SCORED) & reward.given
    pass_or_fail = bool(counts.given.any()) and zero_or_one(counts)
    keeps_reward = (rollouts.outcome != SCORED) & (rollouts.outcome < FIRST_NIL) & reward.given
    unscored = rollouts.outcome[keeps_reward]
    rewarded = np.bincount(unscored, minlength=len(OUTCOMES)).tolist() if len(unscored) else []
    return replace(
        ledger,
        passed=int((reward.values[scored] == 1).sum()) if pass_or_fail else None,
        rewarded={word: n for word, n in zip(OUTCOMES, rewarded, strict=False) if n},
        tasks_passed=_tasks_passed(counts, rollouts.by_task) if pass_or_fail else None,
    )


def _tasks_passed(rewards: Column, by: Groups) -> tuple[int, int]:
    """The number of tasks with a reward of 1, and of those whose rewards are all 1; a gap is no reward."""
    samples = by.count(rewards.given)
    passes = by.count(rewards.given & (rewards.values == 1))
    return int((passes > 0).sum()), int(((passes == samples) & (samples > 0)).sum())


def lacking(rollouts: Rollouts, keys: Iterable[str]) -> dict[str, int]:
    """For each of these rewards, the number of scored rollouts that have only other rewards; without zero counts."""
    if len(rollouts.rewards) < 2:
        return {}
    rewarded = np.logical_or.reduce([column.given for column in rollouts.rewards.values()])
    counts = {}
    for key in dict.fromkeys(keys):
        column = rollouts.rewards.get(key) or Column.gaps(len(rollouts))
        counts[key] = int(((rollouts.outcome == SCORED) & rewarded & ~column.given).sum())
    return {key: count for key, count in counts.items() if count}


def _exceptions(rollouts: Rollouts) -> dict[str, int]:
    labels = rollouts.labels.get(ERROR_KIND)
    if labels is None:
        return {}
    counts = np.bincount(labels.code + 1, minlength=len(labels.values) + 1)[1:].tolist()
    kinds = [(str(kind), n) for kind, n in zip(labels.values, counts, strict=True) if n]
    return dict(sorted(kinds, key=lambda item: (-item[1], item[0])))


def contribution(outcome: str | None, reward: float | None) -> float | None:
    """The number that one rollout contributes to a reward metric, or None; `contributed` does this for a table.

    >>> contribution(None, 0.5), contribution("truncated", None), contribution("client_failed", 1.0)
    (0.5, 0.0, None)
    """
    code = (SCORED if reward is not None else MISSING) if outcome is None else CODE[outcome]
    if code >= FIRST_GAP:
        return None
    return 0.0 if code >= FIRST_NIL or (reward is None and code != SCORED) else reward


def lost_before_answer(rollouts: Rollouts) -> Bools:
    """Whether each rollout was lost before the model was asked, so that its answer cannot be the cause, [R].

    These are the rollouts that were not run, and those whose requests all ended before one was accepted: connection
    refused, name not found, HTTP 429. Any other cause (a time limit, HTTP 5xx, a closed connection, an interruption)
    may depend on the answer, and so may a cause that the file does not state.
    """
    lost: Bools = rollouts.outcome == NOT_RUN
    if rollouts.before_answer is not None:
        lost |= (rollouts.outcome == CLIENT_FAILED) & rollouts.before_answer
    return lost


def contributed(rollouts: Rollouts, key: str) -> Column:
    """The number each rollout contributes to a reward metric, [R].

    This is its reward, unless the outcome means that the rollout is missing. Without a reward, it is 0 for an outcome
    that the model caused (`refused`, `truncated`, ...), else a gap; also a gap if only other datasets have this reward.
    A rollout that broke its verifier, or tampered with it, is 0 even with a reward.
    """
    reward = rollouts.rewards.get(key) or Column.gaps(len(rollouts))
    counted = rollouts.outcome < FIRST_GAP
    nil = counted & (rollouts.outcome >= FIRST_NIL)
    if bool((counted & reward.given & ~nil).all()):
        return reward
    failed = counted & (rollouts.outcome != SCORED) & (~reward.given | nil)
    if key in rollouts.elsewhere:
        failed &= ~rollouts.lacks(key)
    return Column(np.where(failed, 0.0, reward.values), (reward.given & counted) | failed)
