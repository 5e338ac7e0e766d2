"""The metric that a run shows while it runs, valid at any stopping time, and the rule that may stop the run.

::

    settled rollouts ──► tasks, in planned order ──► longest settled prefix ──► Live ──► Until: go on, or stop

Only the prefix counts: tasks that finish early are easier, or harder, than the others.
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
from calipers.rollouts.ledger import Missing
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, SCORED, Stop
from calipers.running.loop import Status
from calipers.stats.sequence import Ends, finite, population

BATCH = 1024  # settled tasks that wait to be reduced together; more would be memory, fewer would be calls
NOT_YET = "no task is complete"


@dataclass(frozen=True, slots=True)
class Live:
    """The current estimate of a metric during a run, with its interval."""

    value: float | None  # over the settled prefix
    interval: Ends | None  # holds the number the run will end with, however often one looks
    settled: int  # tasks with a value in the prefix
    planned: int  # tasks, without those found undefined
    metric: str
    why: str | None = None  # why there is no value, or no interval
    population: Ends | None = None  # holds the mean of tasks like these, likewise; the report after an early stop
    samples: int = 0  # of the settled tasks


class Headline:
    """One metric, followed through a run.

    ``settle`` is cheap and is called for every rollout; arithmetic waits for ``estimate`` or for a
    batch. A task is settled when all its samples are, and keeps no more than its value and its
    number of samples; one with a gap among several samples keeps them too, as a gap may be tried again.
    """

    def __init__(
        self, request: RequestedMetric, planned: int, samples: int, confidence: float = 0.95, missing: Missing = "gap"
    ) -> None:
        self._asked, self._planned, self._samples = request, planned, samples
        self._confidence, self._zero = confidence, missing == "zero"
        self._metric = request.metric if isinstance(request.metric, Metric) else None
        self._unfit = _no_value(request)
        self._held: dict[int, dict[int, float | None]] = {}  # position -> sample -> what it contributes, None a gap
        self._whole: set[int] = set()  # positions whose samples are all there, not yet reduced
        self._values: Floats | None = None  # [N] or [N, S]
        self._counts = np.zeros(planned, dtype=np.int32)  # [N] samples that entered
        self._known, self._given = np.zeros(planned, dtype=bool), np.zeros(planned, dtype=bool)  # [N]
        self._prefix = 0
        self._within = True  # all rewards so far lie in [0, 1]

    def settle(self, position: int, sample: int, outcome: str, reward: float | None) -> None:
        """Add a rollout of the task at this position of the planned order; a later attempt replaces a missing one."""
        if self._unfit:
            return
        code = CODE[outcome]
        if (reward is None and SCORED < code < FIRST_GAP) or FIRST_NIL <= code < FIRST_GAP:
            reward = 0.0  # the model's own doing
        samples = self._held.get(position)
        if samples is None:
            samples = self._held[position] = {}
        samples[sample] = None if code >= FIRST_GAP else reward
        if len(samples) == self._samples:
            self._whole.add(position)
            if len(self._whole) >= BATCH:
                self._reduce()

    def estimate(self) -> Live:
        """The current estimate, over the longest complete prefix of tasks."""
        self._reduce()
        if self._unfit or self._metric is None:
            return Live(None, None, 0, self._planned, self._asked.text, self._unfit)
        ahead = self._known[self._prefix :]
        self._prefix += int(np.argmin(ahead)) if not ahead.all() else len(ahead)
        given = self._given[: self._prefix]
        settled = int(np.count_nonzero(given))
        planned = self._planned - (self._prefix - settled)
        if self._values is None or not settled:
            return Live(None, None, 0, planned, self._asked.text, NOT_YET)
        kept = self._values[: self._prefix][given]
        value = float(self._metric.aggregate(kept)) + 0.0  # -0.0 becomes 0.0
        samples = int(self._counts[: self._prefix][given].sum())
        why = self._no_interval(value)
        if why:
            shown = value if math.isfinite(value) else None
            return Live(shown, None, settled, planned, self._asked.text, why, samples=samples)
        low, high = _limits(self._asked)
        amount = min(max(float(total((kept - low) / (high - low))), 0.0), float(settled))
        run, beyond = (
            (low + (high - low) * ends[0], low + (high - low) * ends[1])
            for ends in (
                finite(amount, settled, planned, self._confidence),
                population(amount, settled, self._confidence),
            )
        )
        return Live(value, run, settled, planned, self._asked.text, None, beyond, samples)

    def settled_all(self, count: int) -> bool:
        """Whether the first ``count`` tasks of the planned order are complete."""
        self._reduce()
        return bool(self._known[:count].all())

    def _no_interval(self, value: float) -> str | None:
        if not math.isfinite(value):
            return "a reward is not a finite number"
        why = no_sequence(self._asked)
        if why is None and not self._within and self._metric and self._metric.range is None:
            return "rewards are outside [0, 1], and the metric declares no other range"
        return why

    def _reduce(self) -> None:
        """Compute the values of the tasks whose samples are all there."""
        metric = self._metric
        if not self._whole or metric is None:
            return
        places = sorted(self._whole)
        tasks = [self._held[position] for position in places]
        rows = [task[sample] for task in tasks for sample in sorted(task)]
        rewards = Column.of([row or 0.0 for row in rows], [row is not None for row in rows])
        by = Groups.of(np.repeat(np.arange(len(tasks)), self._samples), len(tasks))
        kept = rewards.kept()
        self._within = self._within and bool(((kept >= 0) & (kept <= 1)).all())
        counted = rewards.filled(0.0) if self._zero else rewards
        params = {key: self._asked.params[key] for key in metric.params if key not in metric.aggregated}
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                reduced = metric.reduce(counted, by=by, **params)
        except Exception as error:
            if not self._asked.foreign:
                raise
            self._unfit = (
                f"the metric's code failed: {type(error).__name__}: {error}"  # the report will say so again, aloud
            )
            self._held.clear()
            self._whole.clear()
            return
        if self._values is None:
            self._values = np.zeros((self._planned, *reduced.values.shape[1:]))
        looked_at = metric.uses(counted, by, self._asked.params["k"]) if metric.uses else counted
        self._values[places], self._given[places], self._known[places] = reduced.values, reduced.given, True
        self._counts[places] = by.count(looked_at.given)
        for position, task in zip(places, tasks, strict=True):
            if self._samples == 1 or None not in task.values():
                del self._held[position]
        self._whole.clear()


def no_sequence(request: RequestedMetric) -> str | None:
    """Why a metric has no interval that is valid at any stopping time; None when it has one."""
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
    """Why a metric cannot be followed at all: it is not a mean of task values that rewards alone decide."""
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
    """A reason to stop a run early: ``width(pass@1) < 0.05``, ``lower(pass@1) > 0.6``, ``upper(pass@1) < 0.4``.

    It looks at the interval of tasks like these, which may be looked at, and stopped by, at any
    time. What is in flight is finished, so that the tasks of the report are a prefix of the plan.
    """

    text: str
    side: str  # width, lower or upper
    asked: RequestedMetric
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
        request = resolve(name.strip(), plan.dialect)
        why = no_sequence(request)
        if why:
            wrong = f"{request.text} has no interval that is valid at any stopping time: {why}"
            raise InputError.at("--until", wrong, "expected a mean of task values, such as pass@1 or mean_reward")
        if plan.cluster:
            wrong = "with --cluster no interval is valid at any stopping time"
            raise InputError.at("--until", wrong, "remove one of the two")
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
        """Whether the run may stop; never without an interval."""
        if live.population is None:
            return False
        low, high = live.population
        return _COMPARE[self.than]({"width": high - low, "lower": low, "upper": high}[self.side], self.bound)

    def stop(self, live: Live) -> Stop:
        """The stop of a run that has come so far."""
        return Stop(self.text, self.asked.text, self.side, live.settled, live.planned)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Screen(Protocol):
    """Where a run is shown."""

    def due(self) -> bool:
        """Whether it is time to update the display."""
        ...

    def show(self, status: Status, headline: Live | None) -> None:
        """Show the progress of the run."""
        ...


class Watcher:
    """Follows one metric over the run, shows it, and stops the run when ``until`` is reached.

    ``reached`` is told of the stop at once, before the calls in flight have ended: a run that is killed
    meanwhile was stopped all the same.
    """

    def __init__(
        self,
        headline: Headline | None,
        until: Until | None,
        screen: Screen | None,
        reached: Callable[[Stop], None] = lambda _: None,
    ) -> None:
        self.headline, self._until, self._screen, self._tell = headline, until, screen, reached
        self._reached = False

    @property
    def stop(self) -> Stop | None:
        """How the rule stopped the run; None without a rule, and for a run that was complete anyway."""
        if self._until is None or self.headline is None or not self._reached:
            return None
        now = self.headline.estimate()
        return self._until.stop(now) if now.settled < now.planned else None

    def settled(self, position: int, sample: int, outcome: str, reward: float | None) -> None:
        """Count a rollout."""
        if self.headline is not None:
            self.headline.settle(position, sample, outcome, reward)

    def look(self, status: Status) -> str:
        """Show the progress; returns the rule that stops the run when it is reached."""
        due = self._screen is not None and self._screen.due()
        if not due and self._until is None:
            return ""
        now = self.headline.estimate() if self.headline is not None else None
        if self._screen is not None and due:
            self._screen.show(status, now)
        if self._until is None or now is None or status.stopped or not self._until.reached(now):
            return ""
        self._reached = True
        self._tell(self._until.stop(now))
        return f"{self._until.text} was reached"

    def last(self, status: Status) -> None:
        """Show the final progress."""
        if self._screen is not None:
            self._screen.show(status, self.headline.estimate() if self.headline is not None else None)
