"""Harbor's jobs: a rollout for each trial, finished, in progress or owed, whatever state the job is in."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from calipers.errors import InputError
from calipers.readers.divide import Progress
from calipers.readers.harbor_folder import LOCK, RESULT, RETRIES, JobFolder, Unreadable
from calipers.readers.harbor_part import Rows
from calipers.readers.harbor_plan import JobPlan, Known, Result, TaskRef, Wanted, asked_for, decode_result
from calipers.readers.harbor_rows import Row, Who, row_of, spent_with
from calipers.readers.harbor_trial import own_word
from calipers.rollouts.part import Part

NAMED: Final = 10  # trials that have a note of their own, of many that are wrong alike
TOLD_EVERY: Final = 64  # trials
OWN: Final = "calipers.json"  # what our room says of a trial that Harbor ran in it
LARGEST_OWN: Final = 1 << 12  # bytes


def read(folder: JobFolder, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The trials of a job: those that ended, and `not_run` for those in progress or never started."""
    if names:
        raise InputError.at("--columns", "a Harbor job has names of its own", "expected none beside a job")
    return _Reading(folder, labels).parts(progress)


class _Reading:
    """One job while it is read."""

    def __init__(self, folder: JobFolder, labels: Collection[str]) -> None:
        self._folder = folder
        self._known = Known()
        self._plan = JobPlan(folder)
        self._ended = Rows(folder.path, folder, labels)
        self._owed = Rows(folder.of("", LOCK), folder, labels)
        self._earlier: dict[str, list[Row]] = defaultdict(list)  # replaced attempts, by trial
        self._replaced = 0
        self._present = Counter[Who]()
        self._unread: list[tuple[str, str]] = []  # (directory, what is wrong)
        self._odd: list[tuple[str, str]] = []
        self._disowned, self._bare = Counter[str](), 0
        self._checksums: dict[tuple[str, str], str] = {}
        self._changed: set[tuple[str, str]] = set()

    def parts(self, progress: Progress) -> list[Part]:
        """Everything, in two parts: what ended, and what did not."""
        folder = self._folder
        for place in folder.retries():
            if (row := self._row(place)) is not None:
                self._earlier[row.trial].append(row)
                self._replaced += 1
        lost, self._unread = self._unread, []
        self._finished(progress)
        for place, _ in self._unread:
            self._add(self._ended, self._unfinished(place, "missing"))
        for place in folder.unfinished:
            self._add(self._owed, self._unfinished(place, "not_run"))
        for trial in list(self._earlier):  # the last attempt's own directory is gone
            self._add(self._ended, self._earlier[trial].pop())
        for who in self._plan.owed(self._present, self._known):
            self._owed.add(Row(who, "", "", "not_run"))
        checksums = {"digests": self._checksums, "changed": frozenset(self._changed)}
        parts = [part for part in (self._ended.finish(**checksums), self._owed.finish()) if len(part)]
        notes = [*self._notes(lost)]
        return [
            replace(part, planned_from=self._plan.planned_from, notes=[] if number else notes)
            for number, part in enumerate(parts)
        ]

    def _finished(self, progress: Progress) -> None:
        size, done = self._folder.size, 0
        share = size // max(len(self._folder.finished), 1)
        for number, place in enumerate(self._folder.finished, 1):
            if (row := self._row(place)) is not None:
                self._add(self._ended, row)
                self._watch(row)
            if number % TOLD_EVERY == 0:
                progress(share * number - done)
                done = share * number
        progress(size - done)

    def _row(self, place: str) -> Row | None:
        """A trial's result; None when it cannot be read."""
        path = self._folder.of(place, RESULT)
        try:
            raw = self._folder.result(place)
            trial = decode_result(raw or b"", path)
        except Unreadable as error:
            self._unread.append((place, f"{path}: {error}"))
            return None
        except InputError as error:
            self._unread.append((place, str(error)))
            return None
        self._known.learn(trial)
        if trial.calipers is None and trial.exception_info is not None:
            trial.calipers = own_word(self._folder.held(place, OWN, LARGEST_OWN))
        row = row_of(trial, place, trial.id if isinstance(trial, Result) else None)
        if trial.task_checksum:
            task = (row.who.dataset, row.who.task)
            if self._checksums.setdefault(task, trial.task_checksum) != trial.task_checksum:
                self._changed.add(task)
        return row

    def _watch(self, row: Row) -> None:
        """Remember what the user must be told of a trial."""
        if row.odd:
            name, value = next(iter(row.odd.items()))
            said = f"{self._folder.of(row.place, RESULT)}: reward {name!r} is {_shown(value)}; expected a finite number"
            self._odd.append((row.place, said))
        if row.disowned and row.exception:
            self._disowned[row.exception] += 1
        self._bare += row.outcome == "not_run"

    def _add(self, rows: Rows, row: Row) -> None:
        """A trial, after the attempts at it that were replaced: what they cost, it cost."""
        self._present[row.who] += 1
        if earlier := self._earlier.pop(row.trial, None):
            for number, one in enumerate(earlier, 1):
                one = replace(one, who=row.who, unit=row.place, started=row.started)  # what makes it the same trial
                self._ended.add(replace(one, attempt=number, id=None))
            row = replace(row, attempt=len(earlier) + 1, counts=spent_with(row, earlier))
        rows.add(row)

    def _unfinished(self, place: str, outcome: str) -> Row:
        """A trial without a result that can be read, by what it was asked for."""
        wanted = asked_for(self._folder, place) or Wanted(TaskRef(name=place.rpartition("__")[0] or place))
        who = self._known.who(wanted)
        return Row(who, place, place, outcome, source=wanted.task.source)

    def _notes(self, lost: list[tuple[str, str]]) -> Iterator[str]:
        """What the ledger cannot say; ``lost`` are replaced attempts that cannot be read."""
        path, job = self._folder.path, self._plan.job
        yield from self._plan.notes
        if job.started_at and not job.finished_at:
            yield f"{path}: the job is not finished: it is running, or was cut off"
        links = [(name, f"{path}/{name}: a link") for name in self._folder.links]
        yield from self._listed(links, "it is not followed", "directories are links")
        yield from self._listed(self._unread, "the trial counts as missing", "results cannot be read")
        yield from self._listed(lost, "the attempt is not counted", "earlier attempts cannot be read")
        yield from self._listed(self._odd, "it counts as none", "trials have a reward that is no finite number")
        if self._disowned:
            types = ", ".join(f"{name} {count}" for name, count in self._disowned.most_common(NAMED))
            yield (
                f"{path}: natively the reward of {_trials(self._disowned.total())} is left out, since an exception "
                f"beside it was not the agent's doing ({types}): Harbor calls such a reward not valid, yet counts it"
            )
        if self._bare:
            yield (
                f"{path}: {_trials(self._bare)} ended with neither a reward nor an exception, as when verification "
                "is disabled: not_run"
            )
        if self._replaced:
            yield f"{path}: tokens and cost include those of earlier attempts ({self._replaced} in {RETRIES})"
        if (gone := job.stats.n_retries - self._replaced - len(lost)) > 0:
            said = "1 earlier attempt is" if gone == 1 else f"{gone} earlier attempts are"
            yield f"{path}: {said} not there, since Harbor deletes what it retries: tokens and cost are without them"

    def _listed(self, found: list[tuple[str, str]], then: str, more: str) -> Iterator[str]:
        yield from (f"{said}; {then}" for _, said in found[:NAMED])
        if len(found) > NAMED:
            yield f"{self._folder.path}: {len(found) - NAMED} more {more}; {then}"


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count:,} trials"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
