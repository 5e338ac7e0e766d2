"""The best checkpoint of a run: its value corrected for the selection, the steps that may be best, and advice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from calipers.analyses.watch.monitor import follows_remark
from calipers.analyses.watch.sums import StepSums, read_step_file
from calipers.errors import InputError
from calipers.formats import Named
from calipers.formats.run_folder import is_run
from calipers.reports.document import Block, Document, Glance, Name, Row, Sentence, Table, TableColumn, Title, spaced
from calipers.reports.figures import NONE, counted, figure
from calipers.reports.page import Page
from calipers.reports.remark_texts import text_of
from calipers.reports.sentences import minus, to
from calipers.reports.untrusted_text import clean
from calipers.request import make_plan
from calipers.rollouts.column import Floats
from calipers.stats.intervals import Weighted, named_interval
from calipers.stats.paired import apart, paired
from calipers.stats.power import POWER, tasks_needed
from calipers.stats.steps import AGAIN, best_step

SCHEMA: Final = "calipers.best_step/1"
FIELDS: Final = ("series", "metric", "step", "value", "low", "high", "may_be_best", "picked")
SHOWN: Final = 12  # steps of a table
MOST_TASKS: Final = 1_000_000  # of an evaluation of a usual size


@dataclass(frozen=True, slots=True)
class Candidate:
    """A step that may be selected."""

    step: int
    value: float
    interval: tuple[float, float] | None  # of this step alone, without a correction for the selection
    may_be_best: bool


@dataclass(frozen=True, slots=True)
class Pick:
    """The best step of one series."""

    series: str
    metric: str
    step: int
    observed: float  # the mean by which it was selected
    optimism: float  # the estimated part of the mean that is luck
    value: float  # observed less optimism
    interval: tuple[float, float] | None  # valid after the selection
    tasks: int  # that all steps have
    excluded_tasks: int
    members: Sequence[int]  # the steps that may be best
    candidates: Sequence[Candidate]
    again: Sequence[int]  # the steps to evaluate again
    new_tasks: int | None  # for 80 % power between the first two members, if their true difference is the observed one
    why: str | None = None  # why there is no interval
    # for the differences at the ends of the interval of that difference; the second is None if no number is enough
    new_tasks_range: tuple[int, int | None] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class BestSteps(Page):
    """The best step of every series with the same tasks at every step."""

    path: str
    confidence: float
    picks: Sequence[Pick]
    notes: Sequence[str] = ()

    def headline(self) -> str:
        """The result in one line."""
        if self.picks:
            return pick_sentence(self.picks[0])
        return f"No best step: {self.notes[0]}." if self.notes else "No best step: there is no series."

    def page(self) -> Document:
        """The page and its data, for renderers."""
        return Document(lambda: spaced(_blocks(self)), self.to_dict, FIELDS, partial(_rows, self), paged=True)

    def glance(self) -> Glance:
        """The answer and the steps, for a notebook."""
        return Glance(self.headline(), _table(self.picks[0]) if self.picks else None)

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {"schema": SCHEMA, "calipers": __version__, **asdict(self)}


def best_in(
    paths: Sequence[str],
    metric: str | None = None,
    *,
    confidence: float = 0.95,
    columns: Named | None = None,
    reward: str | None = None,
) -> BestSteps:
    """The best step in files and folders of steps, without a watch; a note lists each file that cannot be read."""
    from calipers.analyses.watch.watch import RunWatch

    make_plan(["mean_reward"], confidence=confidence)  # checks it
    steps: list[StepSums] = []
    notes: list[str] = []
    for path in paths:
        if not os.path.isdir(path) or is_run(path):
            steps += read_step_file(path, columns, reward=reward)[0]
            continue
        with (
            TemporaryDirectory() as state,
            closing(RunWatch(path, {"alarms": []}, state=state, columns=columns, reward=reward)) as watching,
        ):
            watching.look()
            steps += watching.steps_read()
            notes += watching.notes
    if not steps:
        first = f"the first of {len(notes):,} problems: " if len(notes) > 1 else ""
        why = first + notes[0].removeprefix("not read: ") if notes else "expected a file of rollouts for each step"
        raise InputError.at(paths[0], "no step could be read", why)
    best = best_steps(", ".join(paths), steps, metric, confidence)
    return replace(best, notes=[*best.notes, *notes])


def best_steps(path: str, all_steps: Sequence[StepSums], metric: str | None, confidence: float = 0.95) -> BestSteps:
    """The best step of each series, from the sums of its steps; series of fresh prompts are left out, with a note."""
    series: dict[str, list[StepSums]] = {}
    for sums in all_steps:
        series.setdefault(sums.series, []).append(sums)
    picks, notes = [], []
    for name, series_steps in sorted(series.items()):
        shown = name or "the run"
        ordered = sorted(series_steps, key=lambda sums: sums.step)
        forcing = next((sums for sums in ordered if sums.follows is not None), None)
        if forcing is not None and forcing.follows is not None:
            notes.append(f"{shown}: {text_of(follows_remark(forcing.step, *forcing.follows))}")
            ordered = [sums.on_first_samples() for sums in ordered]
        what = metric or ordered[0].headline
        try:
            steps, values, excluded = _common(ordered, what)
        except InputError as error:
            notes.append(f"{shown}: {error}")
            continue
        if left := [str(sums.step) for sums in ordered if sums.step not in steps]:
            notes.append(f"{shown}: steps that share few tasks with the others are left out: {', '.join(left)}")
        if len(steps) < 2:
            notes.append(f"{shown}: fewer than two steps, so there is nothing to pick from")
        elif values.shape[1] < 2:
            notes.append(f"{shown}: its steps have no tasks in common, and a best step needs the same tasks at each")
        else:
            picks.append(_pick(name, what, steps, values, excluded, confidence))
    if not picks and metric is not None and notes and all("has no" in note for note in notes):
        raise InputError(notes[0])
    if any(sums.clusters is not None for sums in all_steps):
        notes.append("clusters take the place of tasks: the mean of a step is over them, each counts alike")
    return BestSteps(path, confidence, picks, notes)


def _common(ordered: Sequence[StepSums], what: str) -> tuple[list[int], Floats, int]:
    """The steps, the values of the tasks (or clusters) that all steps have, [S, M], and the number of tasks left out.

    A step that shares few tasks with the others is left out, so that the others keep their tasks.
    """
    sets = [sums.tasks for sums in ordered]
    usual = max(sets, key=lambda tasks: sum(len(np.intersect1d(tasks, other)) for other in sets[:50]))
    kept = [sums for sums in ordered if 2 * len(np.intersect1d(sums.tasks, usual)) >= len(usual)]
    if len(kept) < 2:
        kept = list(ordered)
    step_units = [sums.units(what) for sums in kept]
    common = step_units[0][0]
    known = set(common.tolist())
    for units, _, given in step_units:
        common = np.intersect1d(common, units[given], assume_unique=True)
        known |= set(units.tolist())
    rows = [values[np.searchsorted(units, common)] for units, values, _ in step_units]
    matrix = np.array(rows).reshape(len(kept), len(common))
    if matrix.size and (matrix.min() < 0 or matrix.max() > 1):
        raise InputError(f"{what} is not between 0 and 1, and the best step needs a known range; pick another --metric")
    return [sums.step for sums in kept], matrix, len(known) - len(common)


def _pick(series: str, metric: str, steps: Sequence[int], values: Floats, excluded: int, confidence: float) -> Pick:
    best = best_step(values, confidence=confidence)
    members = [steps[index] for index in best.members]
    ones = np.ones(values.shape[1])
    candidates = []
    for step, row in zip(steps, values, strict=True):
        ends = named_interval("default", Weighted(row, ones, (0.0, 1.0), None, confidence)).ends
        candidates.append(Candidate(step, float(row.mean()), ends, step in members))
    new_tasks, new_tasks_range = None, None
    if best.second is not None:
        lead = best.observed - float(values[best.second].mean())
        if lead > 0 and best.deviation > 0:
            new_tasks = tasks_needed(best.deviation**2, lead, POWER, confidence)
        new_tasks_range = _tasks_to_decide(apart(values[best.step], values[best.second]), confidence)
    return Pick(
        series,
        metric,
        steps[best.step],
        best.observed,
        best.optimism,
        best.value,
        best.interval.ends,
        best.tasks,
        excluded,
        members,
        candidates,
        members[:AGAIN] if len(members) > 1 else [],
        new_tasks,
        best.interval.why,
        new_tasks_range,
    )


def _tasks_to_decide(lead: Floats, confidence: float) -> tuple[int, int | None] | None:
    """The new tasks that show which of two steps is better, for the largest and the smallest lead that the data allow.

    The observed lead of the best of many steps is partly luck, so that a number for it alone would promise too much. On
    a flat curve the true lead may be 0, and then no number is enough.
    """
    found = paired(lead, limits=(0.0, 1.0), confidence=confidence)
    deviation = float(lead.std(ddof=1)) if len(lead) > 1 else 0.0
    if found.interval is None or deviation == 0:
        return None
    low, high = found.interval
    least = tasks_needed(deviation**2, high, POWER, confidence)
    most = tasks_needed(deviation**2, low, POWER, confidence) if low > 0 else None
    return None if least is None else (least, most)


def pick_sentence(pick: Pick) -> str:
    """The best step of a series, in a sentence."""
    of_series = f" of {pick.series}" if pick.series else ""
    interval = f" ({to(pick.interval)})" if pick.interval else ""
    equal = sum(candidate.value == pick.observed for candidate in pick.candidates)
    first = f", the first of {equal:,} with the same value," if equal > 1 else ""
    return (
        f"Step {pick.step}{of_series}{first} has the highest {pick.metric}, {figure(pick.observed)}; about "
        f"{pick.optimism:.4f} of it is luck, and {figure(pick.value)}{interval} is left."
    )


def _blocks(best: BestSteps) -> Iterator[Block]:
    yield Title("", markdown="Best step")
    yield Sentence(("best step · ", Name(clean(best.path, None), None)), markdown="")
    if not best.picks:
        yield Sentence(clean(best.headline(), None), "strong")
    for pick in best.picks:
        if len(best.picks) > 1:
            yield Title(Name(pick.series, None, clean(pick.series, None)))
        yield Sentence(clean(pick_sentence(pick), None), "strong")
        yield Sentence(
            f"The interval covers after the picking, with {100 * best.confidence:g} % confidence; it is over "
            f"{counted(pick.tasks, 'task')} that all {len(pick.candidates)} steps have."
        )
        yield Sentence(advice(pick))
        yield _table(pick)


def advice(pick: Pick) -> str:
    """Advice on how to decide between the steps that may be best."""
    if len(pick.members) == 1:
        return f"No other step may be best: step {pick.step} is ahead of all of them."
    listed = ", ".join(str(step) for step in pick.again)
    count = f"{_members(pick)} may be best."
    if pick.new_tasks_range is None:
        return f"{count} The first two do not differ on any task, so no number of new tasks is known to be enough."
    least, most = pick.new_tasks_range
    if least > MOST_TASKS:
        return f"{count} Their values are so close that no evaluation of a usual size tells them apart."
    again = f"{count} Evaluate steps {listed} again, on"
    if most is not None:
        return f"{again} {least:,} to {most:,} new tasks: new tasks, not new samples of these."
    return (
        f"{again} at least {least:,} new tasks (new tasks, not new samples of these): so many show which of the first "
        "two is better if they differ by as much as these tasks allow. If they are equal, no number is enough."
    )


def _members(pick: Pick) -> str:
    """The steps that may be best, as a range of steps."""
    first, last = min(pick.members), max(pick.members)
    between = sum(first <= candidate.step <= last for candidate in pick.candidates)
    if len(pick.members) == len(pick.candidates):
        return f"All {between:,} steps, {first:,} to {last:,},"
    if len(pick.members) == between:
        return f"Steps {first:,} to {last:,}, {between:,} of {len(pick.candidates):,},"
    return f"{len(pick.members):,} of {len(pick.candidates):,} steps, between {first:,} and {last:,},"


def _table(pick: Pick) -> Table:
    columns = [
        TableColumn("step", "right", "strong"),
        TableColumn(Name(pick.metric, 40, clean(pick.metric, 40)), "point", "value"),
        TableColumn("interval of one look"),
        TableColumn("may be best"),
    ]
    rows = []
    for candidate in sorted(pick.candidates, key=lambda candidate: (-candidate.value, candidate.step))[:SHOWN]:
        interval = to(candidate.interval) if candidate.interval else NONE
        may_be_best = "yes" if candidate.may_be_best else NONE
        rows.append(Row([f"{candidate.step:,}", minus(figure(candidate.value)), interval, may_be_best]))
    return Table(columns, rows)


def _rows(best: BestSteps) -> Sequence[Mapping[str, Any]]:
    rows = []
    for pick in best.picks:
        for candidate in pick.candidates:
            step, ends = candidate.step, candidate.interval or (None, None)
            picked = step == pick.step
            values = (pick.series, pick.metric, step, candidate.value, *ends, candidate.may_be_best, picked)
            rows.append(dict(zip(FIELDS, values, strict=True)))
    return rows
