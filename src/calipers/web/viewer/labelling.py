"""Blind labelling: rollouts in random order without the judge's verdict, and labels that `judge-check` reads.

Every label is on disk before the next rollout is shown. During the labelling, only the width of the corrected score's
interval is shown, never the score, because a running score would bias the labels.
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
from calipers.web.viewer.rollouts import blocks_of, group_rows, record_of
from calipers.web.viewer.summary import read_of

HEAD: Final = ("task", "sample", *GROUP, "label", "comment", COLUMN)
FEWEST: Final = 10  # with fewer labels, the width of the interval is not meaningful
SHOWN: Final = ("prompt", "completion", "target")  # other texts, such as a parsed answer or a score, would bias labels
LONGEST_COMMENT: Final = 2_000  # characters
CONFIDENCE: Final = 0.95  # the default of judge-check
EXPECTED: Final = "expected 1, 0 or skip"


@dataclass(frozen=True, slots=True)
class Given:
    """The label of one rollout; "" for a skipped one."""

    row: int
    label: str  # "1", "0" or ""
    comment: str = ""


class Labelling:
    """The labelling of some rollouts of one run, which continues from the labels in its file."""

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
        self._rated: Rated | None = None  # the table of the run, without ratings
        self._table_rows: dict[int, int] = {}  # row of the index -> row of that table
        inputs = read_of(source, self.index).hashed() if source.kind == "other" else []
        self.binding: JudgeBinding = binding_of([source.path], inputs, self.index.usual_reward)
        self.given: list[Given] = self._read()
        self.finished = False
        self._lock = threading.Lock()
        if not self.given:
            self._write()  # so that an unwritable path is an error now, and not after the first label

    def state(self) -> dict[str, Any]:
        """The data of the page: the next rollout, the progress, and the width of the interval."""
        with self._lock:
            labels = sum(bool(given.label) for given in self.given)
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
                blocks = [asdict(block) for block in blocks_of(record) if block.key in SHOWN]
                names = {"target": "Reference answer"}
                state["blocks"] = [{**block, "name": names.get(block["key"], block["name"])} for block in blocks]
            return state

    def put(self, position: int, label: Any, comment: str = "") -> None:
        """Label the rollout at a position; ignored unless it is the next, so that a double key press labels one."""
        if label not in (0, 1, "0", "1", "skip") or isinstance(label, (bool, float)):
            raise InputError(f"the label is {str(label)[:40]!r}; {EXPECTED}")
        with self._lock:
            if self.finished:
                raise InputError("the labelling is finished; start it again to label more")
            if position != len(self.given) or position >= len(self.order):
                return
            text = "" if label == "skip" else str(label)
            self.given.append(Given(self.order[position], text, comment[:LONGEST_COMMENT]))
            try:
                self._write()
            except InputError:
                self.given.pop()
                raise

    def undo(self) -> None:
        """Remove the last label."""
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
        """End the labelling; from now on scores are shown."""
        with self._lock:
            self.finished = True

    def _write(self) -> None:
        """Write all labels atomically."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(HEAD)
        columns, group = self.index.columns, self.index.groups[0]
        for given in self.given:
            task, sample = self.index.name(int(columns["task"][given.row])), int(columns["sample"][given.row])
            writer.writerow(
                [task, sample, *(name or "" for name in group), given.label, given.comment, self.binding.sha256]
            )
        try:
            with atomic_file(self.path, 0o644) as file:
                file.write(text.getvalue().encode("utf-8", "replace"))
        except OSError as error:
            raise InputError.at(
                self.path, f"cannot be written ({error.strerror})", "choose another with --labels"
            ) from None

    def _read(self) -> list[Given]:
        """The labels in the file, in their order; InputError if they belong to another labelling."""
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
            location = f"{self.path}:{number}"
            if cells.get(COLUMN) != self.binding.sha256:
                problem = "is bound to another judge or rubric than this run's"
                raise InputError.at(location, problem, "choose another file with --labels")
            row = row_of.get((cells.get("task") or "", cells.get("sample") or ""))
            if row is None or row not in self.order[len(given) : len(given) + 1]:
                advice = "use the same run, --label and --seed, or another file with --labels"
                raise InputError.at(location, "is not the rollout that this labelling has here", advice)
            label = cells.get("label") or ""
            if label and not _is_number(label):
                raise InputError.at(location, f"label is {label!r}", "expected 1, 0 or nothing")
            given.append(Given(row, label, cells.get("comment") or ""))
        return given

    def _check(self) -> CheckedJudge | None:
        """The result of `judge-check` so far; None if there are no labels, or too few."""
        if self._rated is None:
            [table] = read_of(self.source, self.index).rollouts.groups()
            reward, none = self.index.usual_reward, np.zeros((len(table), 1))
            self._rated = Rated(table, reward, contributed(table, reward), none, none.astype(bool), [""])
            self._table_rows = self._rows_in(table)
        rated = np.zeros_like(self._rated.rated)
        ratings = np.zeros_like(self._rated.ratings)
        for given in self.given:
            if given.label:
                row = self._table_rows[given.row]
                rated[row, 0], ratings[row, 0] = True, float(given.label)
        if not rated.any():
            return None
        try:
            with quietly():
                return checked_judge(replace(self._rated, ratings=ratings, rated=rated), PASS_THRESHOLD, CONFIDENCE)
        except CalipersError:
            return None

    def _rows_in(self, table: Rollouts) -> dict[int, int]:
        """The row in the table of each rollout that is to be labelled."""
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
        """The width of the corrected score's interval, and its approximate width with more labels."""
        labels = sum(bool(given.label) for given in self.given)
        checked = self._check() if labels >= FEWEST else None
        if checked is None or checked.score.interval is None or not checked.score.stderr:
            left = max(FEWEST - labels, 1)
            return {"sentence": f"The width of the interval is shown after {counted(left, 'more label')}.", "bars": []}
        now = checked.score.interval[1] - checked.score.interval[0]
        target = len(self.order) - sum(not given.label for given in self.given)
        bars = [{"word": f"now, {counted(labels, 'label')}", "width": now}]
        sentence = f"{counted(labels, 'label')} give the corrected score an interval {figure(now, 2)} wide."
        more = target - labels if target > labels else labels  # if all are labelled, as many labels again
        width = now * width_factor(checked, labels, labels + more)
        bars.append({"word": f"with {labels + more:,} labels", "width": width})
        sentence += f" {more:,} more: about {figure(width, 2)}."
        return {"sentence": sentence, "bars": bars}

    def _result(self) -> dict[str, Any]:
        """The scores and the disagreements, which are shown at the end."""
        checked = self._check()
        if checked is None:
            return {"sentence": "There are too few labels for a corrected score.", "rows": [], "disagreements": []}
        numbers: dict[str, Any] = {
            "corrected (PPI++)": checked.score,
            "judge alone": checked.uncorrected,
            "sensitivity": checked.confusion.sensitivity,
            "specificity": checked.confusion.specificity,
        }
        rows = [{"name": name, "value": number.value, "interval": number.interval} for name, number in numbers.items()]
        columns, values = self.index.columns, self.numbers.values
        disagreements = [
            {
                "row": given.row,
                "task": visible(self.index.name(int(columns["task"][given.row]))),
                "sample": int(columns["sample"][given.row]),
                "label": given.label,
                "judge": float(values[given.row]),
            }
            for given in self.given
            if given.label and (float(given.label) >= PASS_THRESHOLD) != (values[given.row] >= PASS_THRESHOLD)
        ]
        command = shlex.join(["calipers", "judge-check", self.source.name, "--labels", str(self.path)])
        return {
            "sentence": verdict(checked),
            "rows": rows,
            "disagreements": disagreements,
            "command": visible(command),
            "run": self.source.id,
        }


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def width_factor(checked: CheckedJudge, labels: int, more: int) -> float:
    """The factor by which the width of the corrected score's interval changes from ``labels`` to ``more`` labels.

    The variance of the score is ``a / n + b``: ``a`` comes from the n labels, and ``b`` from the judge's mean over all
    rollouts, which labels do not change (Angelopoulos et al. 2023, PPI++, with its current weight).
    """
    variance = (checked.score.stderr or 0.0) ** 2
    judge = (checked.score.trust or 0.0) * (checked.uncorrected.stderr or 0.0)
    fixed = min(judge**2, variance)
    if not variance:
        return 1.0
    return math.sqrt(((variance - fixed) * labels / more + fixed) / variance)
