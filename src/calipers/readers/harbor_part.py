"""The trials of a job on their way into columns, and what they are before they are numbered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np

from calipers.errors import InputError
from calipers.readers.gather import Gather
from calipers.readers.harbor_folder import JobFolder
from calipers.readers.harbor_rows import COUNTS, TIMES, Row
from calipers.readers.harbor_trial import EXCEPTION, VERIFIED, WRITTEN, failure_cause
from calipers.readers.schema import MOST_COLUMNS
from calipers.rollouts.column import Floats
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import CODE

AT_ONCE: Final = 1024  # rows held as objects
LABELS: Final = (
    *("exception", "failure_cause", "trial_name", "job_name", "source", "provider"),
    *(VERIFIED, EXCEPTION, WRITTEN),
)


@dataclass(frozen=True, slots=True)
class TrialPlaces(Places):
    """The directories of trials; a row that has none stands in the file that planned it."""

    root: str = ""
    folders: Sequence[str] = ()  # [R]

    def of(self, row: int) -> str:
        """The directory of a row's trial."""
        return f"{self.root}/{self.folders[row]}" if self.folders[row] else self.path


@dataclass(frozen=True, slots=True)
class HarborPart(Part):
    """Trials of one job, not yet numbered within their tasks."""

    job: str = ""  # its path
    units: Sequence[str] = ()  # [R] directories, one for all attempts at a trial; "" for what was never started
    ids: Sequence[str | None] = ()  # [R]
    started: Floats = field(default_factory=lambda: np.zeros(0))  # [R]
    changed: frozenset[tuple[str, str]] = frozenset()  # those of which another was seen


class Rows:
    """Rows on their way into columns, a block at a time; `HarborPart` at the end."""

    def __init__(self, path: str, folder: JobFolder, labels: Collection[str]) -> None:
        self._path, self._folder = path, folder
        self._labels = [name for name in LABELS if name in labels]
        self._gather, self._block = Gather(), list[Row]()
        self._keys: set[str] = set()
        self._units: list[str] = []
        self._places: list[str] = []
        self._ids: list[str | None] = []
        self._started: list[float] = []

    def add(self, row: Row) -> None:
        """One more row; InputError when names of rewards are no names but ids."""
        self._block.append(row)
        self._keys.update(row.rewards)
        if len(self._keys) > MOST_COLUMNS:
            wrong = f"its trials have more than {MOST_COLUMNS} kinds of reward"
            raise InputError.at(self._path, wrong, "expected the same few names in all trials")
        if len(self._block) == AT_ONCE:
            self._flush()

    def finish(self, **more: Any) -> HarborPart:
        """Everything added."""
        self._flush()
        part = self._gather.finish(TrialPlaces(self._path, root=self._folder.root, folders=self._places))
        held = {one.name: getattr(part, one.name) for one in fields(Part)}
        own = {"job": self._folder.path, "units": self._units, "ids": self._ids}
        return HarborPart(**{**held, **own, "started": np.array(self._started, dtype=np.float64), **more})

    def _flush(self) -> None:
        block, gather = self._block, self._gather
        if not block:
            return
        gather.tasks([row.who.task for row in block])
        for number, name in enumerate(("agent", "model", "dataset")):
            gather.labels(name, [row.who[number] for row in block])
        gather.whole("attempt", [row.attempt for row in block])
        gather.whole("outcome", [CODE[row.outcome] for row in block])
        for key in sorted(set().union(*(row.rewards for row in block))):
            gather.numbers("reward", key, [row.rewards.get(key) for row in block])
        for names, columns in ((COUNTS, "counts"), (TIMES, "times")):
            for name, column in zip(names, zip(*(getattr(row, columns) for row in block), strict=True), strict=True):
                gather.numbers("column", name, column)
        gather.labels(ERROR_KIND, [row.exception for row in block])
        for name in self._labels:
            gather.labels(name, [self._label(name, row) for row in block])
        self._units += [row.unit or row.place for row in block]
        self._places += [row.place for row in block]
        self._ids += [row.id for row in block]
        self._started += [row.started for row in block]
        gather.rows += len(block)
        block.clear()

    def _label(self, name: str, row: Row) -> str | None:
        found = {
            "exception": row.exception,
            "failure_cause": failure_cause(row.exception),
            "trial_name": row.trial or None,
            "job_name": self._folder.name,
            "source": row.source,
            "provider": row.provider,
            VERIFIED: row.verified,
            EXCEPTION: row.raised,
            WRITTEN: row.written,
        }
        return found[name]
