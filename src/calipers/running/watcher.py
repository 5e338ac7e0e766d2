"""The metric that a run shows while it runs, valid at any stopping time, and the rule that may stop the run.

::

    settled rollouts ──► tasks, in planned order ──► longest settled prefix ──► Live ──► Until: continue, or stop

Only the prefix of settled tasks is used, because tasks that finish early may be easier or harder than the others.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from calipers.errors import InputError
from calipers.metrics import UNIT, Metric
from calipers.request import Plan, RequestedMetric, resolve
from calipers.rollouts.column import Column, Floats, Groups, total
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, SCORED, Stop
from calipers.running.loop import Status
from calipers.stats.sequence import Ends, finite, population

BATCH = 1024  # settled tasks that are reduced together; more need more memory, fewer need more calls
NOT_YET = "no task is complete"


@dataclass(frozen=True, slots=True)
class Live:
    """The current estimate of a metric during a run, with its interval."""

    value: float | None  # over the settled prefix
    interval: Ends | None  # for the final number of the run; valid at any stopping time
    settled: int  # number of tasks with a value in the prefix
    planned: int  # number of tasks, without those whose value is undefined
    metric: str
    why: str | None = None  # the reason why there is no value, or no interval
    population: Ends | None = None  # for the mean of tasks like these; valid at any time, reported after an early stop
    samples: int = 0  # number of samples of the settled tasks


class Headline:
    """One metric, followed through a run.

    ``settle`` is fast and is called for every rollout; values are computed at ``estimate`` or for a batch of tasks. A
    task is settled when all its samples are. Then only its value and its number of samples are kept, except for a task
    with a gap among several samples, whose samples are kept because the gap may be retried.
    """

    def __init__(
        self, request: RequestedMetric, planned: int, samples: int, confidence: float = 0.95, missing: str = "gap"
    ) -> None:
        self._request, self._planned, self._samples = request, planned, samples
        self._confidence, self._zero = confidence, missing == "zero"
        self._metric = request.metric if isinstance(request.metric, Metric) else None
        self._unfit = _no_value(request)
        # position -> sample -> its contribution, None for a gap
        self._contributions: dict[int, dict[int, float | None]] = {}
        self._unreduced: set[int] = set()  # positions of tasks with all samples that are not yet reduced
        self._values: Floats | None = None  # [N] or [N, S]
        self._counts = np.zeros(planned, dtype=np.int32)  # [N] number of samples that were used
        # [N] whether the task is settled, and whether it has a value
        self._known, self._given = np.zeros(planned, dtype=bool), np.zeros(planned, dtype=bool)
        self._prefix = 0
        self._within = True  # all rewards so far lie in [0, 1]

    def settle(self, position: int, sample: int, outcome: str, reward: float | None) -> None:
        """Add a rollout of the task at this position of the planned order; a later attempt replaces a missing one."""
        if self._unfit:
            return
        code = CODE[outcome]
        if (reward is None and SCORED < code < FIRST_GAP) or FIRST_NIL <= code < FIRST_GAP:
            reward = 0.0  # the model is responsible
        samples = self._contributions.get(position)
        if samples is None:
            samples = self._contributions[position] = {}
        samples[sample] = None if code >= FIRST_GAP else reward
        if len(samples) == self._samples:
            self._unreduced.add(position)
            if len(self._unreduced) >= BATCH:
                self._reduce()

    def estimate(self) -> Live:
        """The current estimate, over the longest complete prefix of tasks."""
        self._reduce()
        if self._unfit or self._metric is None:
            return Live(None, None, 0, self._planned, self._request.text, self._unfit)
        after_prefix = self._known[self._prefix :]
        self._prefix += int(np.argmin(after_prefix)) if not after_prefix.all() else len(after_prefix)
        given = self._given[: self._prefix]
        settled = int(np.count_nonzero(given))
        planned = self._planned - (self._prefix - settled)
        if self._values is None or not settled:
            return Live(None, None, 0, planned, self._request.text, NOT_YET)
        kept = self._values[: self._prefix][given]
        value = float(self._metric.aggregate(kept)) + 0.0  # -0.0 becomes 0.0
        samples = int(self._counts[: self._prefix][given].sum())
        why = self._no_interval(value)
        if why:
            shown = value if math.isfinite(value) else None
            return Live(shown, None, settled, planned, self._request.text, why, samples=samples)
        low, high = _limits(self._request)
        amount = min(max(float(total((kept - low) / (high - low))), 0.0), float(settled))
        of_run, of_population = (
            (low + (high - low) * ends[0], low + (high - low) * ends[1])
            for ends in (
                finite(amount, settled, planned, self._confidence),
                population(amount, settled, self._confidence),
            )
        )
        return Live(value, of_run, settled, planned, self._request.text, None, of_population, samples)

    def settled_all(self, count: int) -> bool:
        """Whether the first ``count`` tasks of the planned order are complete."""
        self._reduce()
        return bool(self._known[:count].all())

    def _no_interval(self, value: float) -> str | None:
        if not math.isfinite(value):
            return "a reward is not a finite number"
        why = no_sequence(self._request)
        if why is None and not self._within and self._metric and self._metric.range is None:
            return "rewards are outside [0, 1], and the metric declares no other range"
        return why

    def _reduce(self) -> None:
        """Compute the values of the tasks that have all their samples."""
        metric = self._metric
        if not self._unreduced or metric is None:
            return
        positions = sorted(self._unreduced)
        tasks = [self._contributions[position] for position in positions]
        rows = [task[sample] for task in tasks for sample in sorted(task)]
        rewards = Column.of([row or 0.0 for row in rows], [row is not None for row in rows])
        by = Groups.of(np.repeat(np.arange(len(tasks)), self._samples), len(tasks))
        kept = rewards.kept()
        self._within = self._within and bool(((kept >= 0) & (kept <= 1)).all())
        counted = rewards.filled(0.0) if self._zero else rewards
        params = {key: self._request.params[key] for key in metric.params if key not in metric.aggregated}
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                reduced = metric.reduce(counted, by=by, **params)
        except Exception as error:
            if not self._request.user_code:
                raise
            # only a note here: the score at the end of the run reports the error
            self._unfit = f"the metric's code failed: {type(error).__name__}: {error}"
            self._contributions.clear()
            self._unreduced.clear()
            return
        if self._values is None:
            self._values = np.zeros((self._planned, *reduced.values.shape[1:]))
        used = metric.uses(counted, by, self._request.params["k"]) if metric.uses else counted
        self._values[positions], self._given[positions], self._known[positions] = reduced.values, reduced.given, True
        self._counts[positions] = by.count(used.given)
        for position, task in zip(positions, tasks, strict=True):
            if self._samples == 1 or None not in task.values():
                del self._contributions[position]
        self._unreduced.clear()


def no_sequence(request: RequestedMetric) -> str | None:
    """The reason why a metric has no interval that is valid at any stopping time; None if it has one."""
    metric = request.metric
    unfit = _no_value(request)
    if unfit or not isinstance(metric, Metric):
        return unfit
    if metric.interval == "pooled":
        return "it weights tasks by their number of samples"
    if metric.range is None and not metric.of_rewards:
        return "its range is unknown"
    return None


def _no_value(request: RequestedMetric) -> str | None:
    """The reason why a metric cannot be followed; None if it is a mean of task values that depend only on rewards."""
    metric = request.metric
    if not isinstance(metric, Metric):
        return "it is a user-defined function of all rewards"
    if metric.reads != ("reward",):
        return "it uses more than the rewards"
    if metric.rows or not metric.is_mean:
        return "it is not a mean of task values"
    return None


def _limits(request: RequestedMetric) -> Ends:
    return (request.metric.range if isinstance(request.metric, Metric) else None) or UNIT


_SHAPE = re.compile(r"\s*(width|lower|upper)\s*\((.+)\)\s*(<=|>=|<|>)\s*(\S+)\s*", re.DOTALL)
_EXAMPLES = "expected a rule such as 'width(pass@1) < 0.05', 'lower(pass@1) > 0.6' or 'upper(pass@1) < 0.4'"
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Until:
    """A rule that stops a run early: ``width(pass@1) < 0.05``, ``lower(pass@1) > 0.6``, ``upper(pass@1) < 0.4``.

    It uses the interval for the mean of tasks like these, which stays valid if the run is stopped by it at any time.
    Rollouts in flight are finished, so that the tasks of the report are a prefix of the plan.
    """

    text: str
    side: str  # width, lower or upper
    request: RequestedMetric
    than: str  # < <= > >=
    bound: float

    @classmethod
    def of(cls, text: str, plan: Plan) -> Until:
        """Parse ``--until``; InputError for a rule that cannot be parsed, can never be true, or is always true."""
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise InputError.at("--until", f"{text!r} cannot be read", _EXAMPLES)
        side, name, than, number = match.groups()
        if (than[0] == ">") != (side == "lower"):
            raise InputError.at("--until", f"{text!r}: {side} cannot be compared with {than}", _EXAMPLES)
        request = resolve(name.strip(), plan.dialect).passing_from(plan.threshold)
        why = no_sequence(request)
        if why:
            problem = f"{request.text} has no interval that is valid at any stopping time: {why}"
            raise InputError.at("--until", problem, "expected a mean of task values, such as pass@1 or mean_reward")
        if plan.cluster:
            problem = "with --cluster no interval is valid at any stopping time"
            raise InputError.at("--until", problem, "remove one of the two")
        if plan.missing == "zero":
            raise InputError.at(
                "--until", "--missing zero would count the tasks that were not run as 0", "remove one of the two"
            )
        low, high = _limits(request)
        least, most = (0.0, high - low) if side == "width" else (low, high)
        bound = _number(number)
        if bound is None or not least < bound < most:
            raise InputError.at(
                "--until", f"{text!r}: {number} is not a number between {least:g} and {most:g}", _EXAMPLES
            )
        return cls(text, side, request, than, bound)

    def reached(self, live: Live) -> bool:
        """Whether the rule is reached; false if there is no interval."""
        if live.population is None:
            return False
        low, high = live.population
        return _COMPARE[self.than]({"width": high - low, "lower": low, "upper": high}[self.side], self.bound)

    def stop(self, live: Live) -> Stop:
        """The record of a stop at this estimate."""
        return Stop(self.text, self.request.text, self.side, live.settled, live.planned)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Screen(Protocol):
    """Where a run is shown."""

    def due(self) -> bool:
        """Whether it is time to update the display."""

    def show(self, status: Status, headline: Live | None) -> None:
        """Show the progress of the run."""


class Watcher:
    """Follows one metric over the run, shows it, and stops the run when ``until`` is reached.

    ``reached`` is called with the stop at once, before the rollouts in flight have ended, so that the stop is recorded
    even if the run is killed meanwhile.
    """

    def __init__(
        self,
        headline: Headline | None,
        until: Until | None,
        screen: Screen | None,
        reached: Callable[[Stop], None] = lambda _: None,
    ) -> None:
        self.headline, self._until, self._screen, self._on_stop = headline, until, screen, reached
        self._reached = False

    @property
    def stop(self) -> Stop | None:
        """The stop of the run by the rule; None without a rule, and if the run was completed anyway."""
        if self._until is None or self.headline is None or not self._reached:
            return None
        now = self.headline.estimate()
        return self._until.stop(now) if now.settled < now.planned else None

    def settled(self, position: int, sample: int, outcome: str, reward: float | None) -> None:
        """Add a finished rollout."""
        if self.headline is not None:
            self.headline.settle(position, sample, outcome, reward)

    def look(self, status: Status) -> str:
        """Show the progress; returns the reason to stop the run when the rule is reached, else ""."""
        due = self._screen is not None and self._screen.due()
        if not due and self._until is None:
            return ""
        now = self.headline.estimate() if self.headline is not None else None
        if self._screen is not None and due:
            self._screen.show(status, now)
        if self._until is None or now is None or status.stopped or not self._until.reached(now):
            return ""
        self._reached = True
        self._on_stop(self._until.stop(now))
        return f"{self._until.text} was reached"

    def last(self, status: Status) -> None:
        """Show the final progress."""
        if self._screen is not None:
            self._screen.show(status, self.headline.estimate() if self.headline is not None else None)
