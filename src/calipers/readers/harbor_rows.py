"""A Harbor trial as a rollout of ours: what became of it, its rewards, and what it cost.

The outcome follows Harbor's own classes of failure. An exception that the agent caused leaves the trial its
reward, or 0 without one. Beside any other exception a reward is not valid in Harbor's own terms
(`reward_valid`): the trial is a gap, and its reward is kept but not counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from calipers.readers.harbor_trial import (
    AGENT_CAUSED,
    UNFINISHED,
    Phase,
    Rewards,
    Totals,
    Trial,
    deciding_exception,
    odd_rewards,
    rewards,
    seconds,
    totals,
    trial_failure_cause,
)

ADHOC: Final = "adhoc"  # the dataset of trials without a source

OUTCOME_OF: Final[Mapping[str | None, str]] = {  # by cause; all others are client_failed
    "agent_exhausted_budget": "timed_out",
    "agent_refused_task": "refused",
    "verifier_failed": "verifier_failed",
    "cancelled": "cancelled",
}
OWN_DOING: Final = ("broke_verifier", "tampered")
COUNTS: Final = ("input_tokens", "cached_tokens", "output_tokens", "cost_usd")  # in the order of Totals
TIMES: Final = ("latency_s", "environment_setup_s", "agent_setup_s", "verifier_s", "trial_s")


class Who(NamedTuple):
    """The group and the task of a trial."""

    agent: str | None
    model: str | None
    dataset: str
    task: str


@dataclass(frozen=True, slots=True)
class Row:
    """One trial, or one attempt at it, ready for the table."""

    who: Who
    trial: str  # its name; "" for one that was never started
    place: str  # its directory within the job
    outcome: str
    unit: str = ""  # the directory of the trial that this is an attempt at; "" for its own
    rewards: Mapping[str, float] = field(default_factory=dict)
    counts: Sequence[float | None] = (None,) * len(COUNTS)
    times: Sequence[float | None] = (None,) * len(TIMES)
    exception: str | None = None  # what decides the outcome, of a trial or of one of its steps
    raised: str | None = None  # what ended the trial itself
    verified: str = UNFINISHED  # what the verifier left
    provider: str | None = None
    source: str | None = None
    attempt: int = 1
    started: float = math.inf  # seconds since 1970; after all others when nobody knows
    id: str | None = None
    odd: Mapping[str, Any] = field(default_factory=dict)  # rewards that are no finite number
    disowned: bool = False  # it has a reward that is not valid
    written: str | None = None  # its rewards as the file writes them


def row_of(trial: Trial, place: str, number: str | None = None) -> Row:
    """A finished trial, in the directory ``place`` of its job, as a row."""
    exception, cause = deciding_exception(trial), trial_failure_cause(trial)
    found, odd = rewards(trial), odd_rewards(trial)
    given = {name: float(value) for name, value in (found or {}).items()}
    own = trial.calipers.outcome if trial.calipers is not None else None
    if own in OWN_DOING:
        outcome = str(own)
    elif exception is not None:
        outcome = OUTCOME_OF.get(cause, "client_failed")
    elif given:
        outcome = "scored"
    else:
        outcome = "verifier_failed" if odd else "not_run"
    model = trial.agent_info.model_info
    return Row(
        who=Who(trial.agent_info.name, model.name if model else None, trial.source or ADHOC, trial.task_name),
        trial=trial.trial_name,
        place=place,
        outcome=outcome,
        rewards=given,
        counts=tuple(map(_finite, totals(trial))),
        times=_times(trial),
        exception=exception,
        raised=trial.exception_info.exception_type if trial.exception_info else None,
        verified="nothing" if found is None else "rewards" if found else "empty",
        provider=model.provider if model else None,
        source=trial.source,
        started=_moment(trial.started_at),
        id=number,
        odd=odd,
        disowned=bool(given and exception is not None and cause not in AGENT_CAUSED and own not in OWN_DOING),
        written=_written(trial, found) if found else None,
    )


def _written(trial: Trial, found: Rewards) -> str:
    """The rewards as the file writes them, 1 or 1.0, with what says which trial came first."""
    texts = {name: str(value) for name, value in found.items()}
    return json.dumps([trial.started_at or "~", trial.trial_name, texts])


def spent_with(row: Row, earlier: Sequence[Row]) -> Sequence[float | None]:
    """What a trial used up, its earlier attempts included; None where nobody reported any."""
    columns = zip(*(one.counts for one in (*earlier, row)), strict=True)
    known = [[value for value in column if value is not None] for column in columns]
    return Totals(*(sum(column) if column else None for column in known))


def _finite(value: float | None) -> float | None:
    """A number as a float; None where it is none, or fits into none."""
    try:
        return None if value is None or not math.isfinite(value) else float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None


def _times(trial: Trial) -> tuple[float | None, ...]:
    """Seconds of each of TIMES; of a trial in steps, the sum over its steps."""
    steps = trial.step_results or ()
    return (
        _lasted([step.agent_execution for step in steps] if steps else [trial.agent_execution]),
        _lasted([trial.environment_setup]),
        _lasted([trial.agent_setup]),
        _lasted([step.verifier for step in steps] if steps else [trial.verifier]),
        _lasted([trial]),
    )


def _lasted(phases: Sequence[Trial | Phase | None]) -> float | None:
    """How long some phases took; None when none ended. A clock that ran backwards says nothing."""
    known = [lasted for phase in phases if (lasted := seconds(phase)) is not None and lasted >= 0]
    return math.fsum(known) if known else None


def _moment(text: str | None) -> float:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return math.inf
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
