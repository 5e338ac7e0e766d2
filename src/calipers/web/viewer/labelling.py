"""Blind labelling: rollouts in random order without the judge's verdict, and labels that `judge-check` reads.

Every label is on disk before the next rollout is shown. How wide the interval of the corrected score is may be shown
meanwhile, never where it is: a running score steers whoever labels.
"""

from __future__ import annotations

import csv
import io
import math
import os
import shlex
import threading
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from calipers.analyses.judge_check import (
    COLUMN,
    CheckedJudge,
    JudgeBinding,
    Rated,
    binding_of,
    checked_judge,
    verdict,
)
from calipers.errors import CalipersError, InputError
from calipers.metrics import PASS_THRESHOLD
from calipers.reports.figures import counted, figure
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import GROUP
from calipers.rollouts.table import Rollouts
from calipers.stores import atomic_file
from calipers.tally import quietly
from calipers.web.markup import visible
from calipers.web.viewer.index import LogIndex, RunSource, current_index
from calipers.web.viewer.rollouts import TextBlock, blocks_of, group_rows, record_of
from calipers.web.viewer.summary import read_of

HEAD: Final = ("task", "sample", *GROUP, "label", "comment", COLUMN)
FEWEST: Final = 10  # labels below which a width says too little
SHOWN: Final = ("prompt", "completion", "target")  # nothing else of a record: an answer or a score would steer
LONGEST_COMMENT: Final = 2_000  # characters
CONFIDENCE: Final = 0.95  # as judge-check has it where nobody says otherwise
RIGHT: Final = "expected 1, 0 or skip"


@dataclass(frozen=True, slots=True)
class Given:
    """What was said of one rollout; no label where it was skipped."""

    row: int
    label: str  # "1", "0" or ""
    comment: str = ""


class Labelling:
    """The labelling of some rollouts of one run, going on where it was left."""

    def __init__(self, source: RunSource, wanted: int, path: str, seed: int) -> None:
        self.source, self.path, self.seed = source, path, seed
        self.index: LogIndex = current_index(source)
        own = group_rows(self.index, 0)
        if len(self.index.groups) > 1:
            names = f"{len(self.index.groups)} groups of agent, model and dataset"
            raise InputError.at(
                source.name, f"has {names}", "expected the rollouts of one, for labels are of one judge"
            )
        judged = own.rows[own.numbers.given[own.rows]]
        if not len(judged):
            raise InputError.at(source.name, "the judge has scored no rollout", "expected rollouts with a reward")
        self.order: list[int] = np.random.default_rng(seed).permutation(judged)[:wanted].tolist()
        self.numbers = own.numbers
        self._rated: Rated | None = None
        self._places: dict[int, int] = {}
        self.binding = self._binding()
        self.given: list[Given] = self._read()
        self.finished = False
        self._lock = threading.Lock()
        if not self.given:
            self._write()  # a path that cannot be written is an error now, not after the first label

    def _binding(self) -> JudgeBinding:
        inputs = read_of(self.source, self.index).hashed() if self.source.kind == "other" else []
        return binding_of([self.source.path], inputs, self.index.usual_reward)

    def state(self) -> dict[str, Any]:
        """What the page shows: the next rollout, how far one is, and how wide the interval is."""
        with self._lock:
            labels = sum(bool(each.label) for each in self.given)
            state: dict[str, Any] = {
                "position": len(self.given),
                "total": len(self.order),
                "labels": labels,
                "finished": self.finished,
                "file": visible(os.path.basename(self.path)),
                "bound": visible(self.binding.sentence),
                "widths": self._widths(),
            }
            if self.finished:
                state["result"] = self._result()
            elif len(self.given) < len(self.order):
                _, record = record_of(self.index, self.order[len(self.given)])
                state["blocks"] = [asdict(_named(block)) for block in blocks_of(record) if block.key in SHOWN]
            return state

    def put(self, position: int, label: Any, comment: str = "") -> None:
        """Label the rollout at a position, which must be the next: a key that was pressed twice labels one rollout."""
        if label not in (0, 1, "0", "1", "skip") or isinstance(label, (bool, float)):
            raise InputError(f"the label is {str(label)[:40]!r}; {RIGHT}")
        with self._lock:
            if self.finished:
                raise InputError("the labelling is finished; start it again to label more")
            if position != len(self.given) or position >= len(self.order):
                return
            said = "" if label == "skip" else str(label)
            self.given.append(Given(self.order[position], said, comment[:LONGEST_COMMENT]))
            try:
                self._write()
            except InputError:
                self.given.pop()
                raise

    def undo(self) -> None:
        """Take back the last label."""
        with self._lock:
            if self.finished:
                raise InputError("the labelling is finished; start it again to change labels")
            if self.given:
                last = self.given.pop()
                try:
                    self._write()
                except InputError:
                    self.given.append(last)
                    raise

    def finish(self) -> None:
        """End the labelling; only now are scores shown."""
        with self._lock:
            self.finished = True

    def _write(self) -> None:
        """Write all labels, whole or not at all."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(HEAD)
        columns, group = self.index.columns, self.index.groups[0]
        for each in self.given:
            task, sample = self.index.name(int(columns["task"][each.row])), int(columns["sample"][each.row])
            writer.writerow(
                [task, sample, *(name or "" for name in group), each.label, each.comment, self.binding.sha256]
            )
        try:
            with atomic_file(self.path, 0o644) as file:
                file.write(text.getvalue().encode("utf-8", "replace"))
        except OSError as error:
            raise InputError.at(
                self.path, f"cannot be written ({error.strerror})", "choose another with --labels"
            ) from None

    def _read(self) -> list[Given]:
        """The labels that are there already, in their order; InputError where they are of something else."""
        try:
            with open(self.path, encoding="utf-8-sig", newline="") as file:
                rows = list(csv.DictReader(file))
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError.at(self.path, f"cannot be read ({error})", "choose another with --labels") from None
        columns = self.index.columns
        row_of = {
            (self.index.name(int(columns["task"][row])), str(int(columns["sample"][row]))): row for row in self.order
        }
        given: list[Given] = []
        for number, cells in enumerate(rows, 2):
            where = f"{self.path}:{number}"
            if cells.get(COLUMN) != self.binding.sha256:
                wrong = "is bound to another judge or rubric than this run's"
                raise InputError.at(where, wrong, "choose another file with --labels")
            row = row_of.get((cells.get("task") or "", cells.get("sample") or ""))
            if row is None or row not in self.order[len(given) : len(given) + 1]:
                wrong = "is not the rollout that this labelling has here"
                raise InputError.at(where, wrong, "use the same run, --label and --seed, or another file with --labels")
            label = cells.get("label") or ""
            if label and not _is_number(label):
                raise InputError.at(where, f"label is {label!r}", "expected 1, 0 or nothing")
            given.append(Given(row, label, cells.get("comment") or ""))
        return given

    def _check(self) -> CheckedJudge | None:
        """What `judge-check` finds so far; None where it finds nothing yet."""
        if self._rated is None:
            [table] = read_of(self.source, self.index).rollouts.groups()
            self._rated = Rated(
                table, self.index.usual_reward, contributed(table, self.index.usual_reward),
                np.zeros((len(table), 1)), np.zeros((len(table), 1), dtype=bool), [""],
            )  # fmt: skip
            self._places = self._rows_in(table)
        rated = np.zeros_like(self._rated.rated)
        ratings = np.zeros_like(self._rated.ratings)
        for each in self.given:
            if each.label:
                rated[self._places[each.row], 0], ratings[self._places[each.row], 0] = True, float(each.label)
        if not rated.any():
            return None
        try:
            with quietly():
                return checked_judge(replace(self._rated, ratings=ratings, rated=rated), PASS_THRESHOLD, CONFIDENCE)
        except CalipersError:
            return None

    def _rows_in(self, table: Rollouts) -> dict[int, int]:
        """The row of the table that each rollout to be labelled is."""
        columns = self.index.columns
        wanted = {row: self.index.name(int(columns["task"][row])) for row in self.order}
        names = set(wanted.values())
        code_of = {name: code for code, name in enumerate(table.tasks) if name in names}
        starts = table.by_task.starts
        rows = {}
        for row, name in wanted.items():
            first, end = (int(starts[code_of[name] + step]) for step in (0, 1))
            rows[row] = first + int(np.searchsorted(table.sample[first:end], int(columns["sample"][row])))
        return rows

    def _widths(self) -> dict[str, Any] | None:
        """How wide the interval of the corrected score is, and about how wide more labels would make it."""
        labels = sum(bool(each.label) for each in self.given)
        checked = self._check() if labels >= FEWEST else None
        if checked is None or checked.score.interval is None or not checked.score.stderr:
            left = max(FEWEST - labels, 1)
            return {"sentence": f"The width of the interval is shown after {counted(left, 'more label')}.", "bars": []}
        now = checked.score.interval[1] - checked.score.interval[0]
        target = len(self.order) - sum(not each.label for each in self.given)
        bars = [{"word": f"now, {counted(labels, 'label')}", "width": now}]
        sentence = f"{counted(labels, 'label')} give the corrected score an interval {figure(now, 2)} wide."
        more = target - labels if target > labels else labels  # when all are labelled: as many again
        wide = now * width_factor(checked, labels, labels + more)
        bars.append({"word": f"with {labels + more:,} labels", "width": wide})
        sentence += f" {more:,} more: about {figure(wide, 2)}."
        return {"sentence": sentence, "bars": bars}

    def _result(self) -> dict[str, Any]:
        """The scores and the disagreements, for the end."""
        checked = self._check()
        if checked is None:
            return {"sentence": "There are too few labels for a corrected score.", "rows": [], "disagreements": []}
        rows = [
            {"name": name, "value": score.value, "interval": score.interval}
            for name, score in (("corrected (PPI++)", checked.score), ("judge alone", checked.uncorrected))
        ]
        errors = checked.confusion
        rows += [
            {"name": name, "value": rate.value, "interval": rate.interval}
            for name, rate in (("sensitivity", errors.sensitivity), ("specificity", errors.specificity))
        ]
        differ = [
            {"row": each.row, "task": visible(self.index.name(int(self.index.columns["task"][each.row]))),
             "sample": int(self.index.columns["sample"][each.row]), "label": each.label,
             "judge": float(self.numbers.values[each.row])}
            for each in self.given
            if each.label and (float(each.label) >= PASS_THRESHOLD) != (self.numbers.values[each.row] >= PASS_THRESHOLD)
        ]  # fmt: skip
        command = shlex.join(["calipers", "judge-check", self.source.name, "--labels", str(self.path)])
        return {
            "sentence": verdict(checked), "rows": rows, "disagreements": differ,
            "command": visible(command), "run": self.source.id,
        }  # fmt: skip


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def width_factor(checked: CheckedJudge, labels: int, more: int) -> float:
    """By how much the width of the corrected score's interval changes with more labels.

    Its variance is ``a / n + b``: ``a`` from n labels, ``b`` from the judge's mean over all rollouts, which labels do
    not change (Angelopoulos et al. 2023, PPI++, with its weight as it is now).
    """
    variance = (checked.score.stderr or 0.0) ** 2
    judge = (checked.score.trust or 0.0) * (checked.uncorrected.stderr or 0.0)
    fixed = min(judge**2, variance)
    if not variance:
        return 1.0
    return math.sqrt(((variance - fixed) * labels / more + fixed) / variance)


def _named(block: TextBlock) -> TextBlock:
    return replace(block, name="Reference answer") if block.key == "target" else block
