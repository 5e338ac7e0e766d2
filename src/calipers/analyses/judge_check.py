"""Check a judge model against labels: its errors, its agreement with raters, and the corrected score."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from calipers.analyses.compare.source import ReadSource, paths_of, read_source, settings_of
from calipers.errors import InputError, UnknownName, nearest
from calipers.formats import Named
from calipers.formats.memory import cells_of
from calipers.formats.read import Input, run_or_path
from calipers.formats.run_folder import is_run, read_plan
from calipers.metrics import PASS_THRESHOLD, UNIT, task_mean
from calipers.pipeline import Progress, Source
from calipers.remarks import Remark, Value
from calipers.reports.document import Block, Document, Name, Sentence, Title, plain_table, spaced
from calipers.reports.figures import NONE, counted, ends, figure, percent
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.remark_texts import documents_of, note_of
from calipers.reports.sentences import places, signed_to, to
from calipers.request import make_plan
from calipers.rollouts.column import Bools, Column, Floats
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import GROUP, without_sentences
from calipers.rollouts.table import Rollouts
from calipers.stats.intervals import interval
from calipers.stats.judges import (
    INTERVAL,
    NOMINAL,
    Confusion,
    Corrected,
    LabelledSample,
    PickTest,
    Rate,
    confusion,
    krippendorff_alpha,
    pairwise_agreement,
    pick_tests,
    ppi_by_task,
    rogan_gladen_by_task,
)
from calipers.tally import quietly

SCHEMA = "calipers.judge_check/1"
FIELDS = (
    *("dataset", "model", "agent", "judge", "what", "value", "stderr", "low", "high", "trust"),
    *("labelled", "judged", "why"),
)
PLACES = 4
METHODS = {
    "ppi++": ("PPI++", "labels and the judge's scores, weighted"),
    "labels": ("labels alone", "labels only"),
    "ppi": ("PPI", "the judge's mean, corrected by its mean error"),
    "rogan_gladen": ("Rogan-Gladen", "the judge's pass rate, corrected by its sensitivity and specificity"),
    "judge": ("judge alone", "not corrected"),
}
RANDOM = "All of this is valid only if the labelled rollouts were drawn at random."


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of raters beyond chance: 1 is perfect, 0 is chance."""

    among: str  # "raters and judge", "raters", or "labels and judge"
    level: str  # nominal or interval
    alpha: float | None
    rollouts: int  # with two ratings or more
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """The share of rollouts on which two raters agree."""

    first: str
    second: str
    share: float
    rollouts: int  # rated by both


@dataclass(frozen=True, slots=True)
class CheckedJudge:
    """The check of the judge of one agent, model and dataset."""

    agent: str | None
    model: str | None
    dataset: str | None
    judge: str  # the name of the judge's reward
    tasks: int
    rollouts: int  # scored by the judge
    labelled_tasks: int
    labelled: int  # rollouts with a label and a score of the judge
    raters: Sequence[str]
    confusion: Confusion
    agreement: Sequence[Agreement]
    pairs: Sequence[Shared]
    uncorrected: Corrected  # the judge's mean, as `score` reports it
    bias: Corrected  # judge's score minus label, over the labelled rollouts
    corrected: Sequence[Corrected]  # ppi++, labels, ppi, rogan_gladen
    binary: bool  # whether all labels and all scores of the judge are 0 or 1
    notes: Sequence[str] = ()
    labelled_sample: LabelledSample | None = None  # the test of whether the labelled rollouts are a random sample
    picked: Sequence[PickTest] = ()  # the same for each reward and for the disagreement of two
    remarks: Sequence[Mapping[str, Any]] = ()  # on how the labels were picked, as documents have them

    @property
    def title(self) -> str:
        """``dataset · model · agent``, without the parts that are unknown."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)

    @property
    def score(self) -> Corrected:
        """The corrected score by PPI++."""
        return self.corrected[0]


@dataclass(frozen=True, slots=True, repr=False)
class JudgeCheck(Page):
    """The check of every group that has labels."""

    labels: str  # the file
    threshold: float  # a score or label of at least this is good
    confidence: float
    inputs: Sequence[Input]
    groups: Sequence[CheckedJudge]
    notes: Sequence[str] = ()

    def page(self) -> Document:
        """The page and its data, for renderers."""
        return document(self)

    def headline(self) -> str:
        """The check in one line."""
        return f"{counted(len(self.groups), 'judged run')} against the labels in {self.labels}"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {"schema": SCHEMA, "calipers": __version__, **asdict(self)}

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per number: the scores, the judge's rates, the agreements."""
        return [row for group in self.groups for row in _rows(group)]


def _rows(group: CheckedJudge) -> list[dict[str, Any]]:
    run = {"dataset": group.dataset, "model": group.model, "agent": group.agent, "judge": group.judge}
    empty: dict[str, Any] = dict.fromkeys(FIELDS)
    rows = []
    for score in (*group.corrected, group.uncorrected, group.bias):
        low, high = score.interval or (None, None)
        numbers = {"value": score.value, "stderr": score.stderr, "low": low, "high": high, "trust": score.trust}
        counts = {"labelled": score.labelled, "judged": score.judged, "why": score.why}
        what = score.method if score is group.bias else f"score.{score.method}"
        rows.append({**empty, **run, "what": what, **numbers, **counts})
    for name in ("sensitivity", "specificity", "accuracy"):
        rate = getattr(group.confusion, name)
        low, high = rate.interval or (None, None)
        numbers = {"value": rate.value, "low": low, "high": high, "labelled": rate.of, "why": rate.why}
        rows.append({**empty, **run, "what": name, **numbers})
    cells = ("true_positives", "false_negatives", "false_positives", "true_negatives")
    rows += [{**empty, **run, "what": name, "value": getattr(group.confusion, name)} for name in cells]
    for level in group.agreement:
        name = f"alpha.{level.among.replace(' ', '_')}"
        rows.append({**empty, **run, "what": name, "value": level.alpha, "labelled": level.rollouts, "why": level.why})
    return rows


COLUMN: Final = "judge_sha256"
"""The column of a label file with the hash of the judge and rubric that the labels are bound to."""

OF_A_RUN: Final = ("judges", "verifier_code", "tasks")
"""The parts of a run's identity that determine how it was judged; the tasks have the rubrics and targets."""

_ABOUT_JUDGING: Final = re.compile("judge|rubric|grader|scorer|verifier|metric|dataset|template", re.IGNORECASE)
NEEDED = ("task", "label")
KNOWN = ("task", "sample", "label", "rater", *GROUP, COLUMN)
NUMBERS = "expected a number, such as 1 for good and 0 for bad"
MOST_DIGITS: Final = 18  # of a sample, so that it is a 64-bit integer
LARGEST: Final = 1e100  # the squares of larger labels and scores, or their sum, can overflow


@dataclass(frozen=True, slots=True)
class JudgeBinding:
    """A judge and its rubric, to which labels are bound."""

    reward: str  # the name of the judge's reward
    settings: dict[str, Any]  # of the judge and its rubric; empty if the run does not have them

    @property
    def sha256(self) -> str:
        """The hash of the judge and its settings."""
        content = json.dumps([self.reward, self.settings], sort_keys=True, default=str)
        return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()

    @property
    def sentence(self) -> str:
        """A sentence on what the labels are bound to."""
        if not self.settings:
            return f"Labels are bound to reward {self.reward!r}: the run does not say which judge and rubric gave it."
        bound = f"Labels are bound to the judge of reward {self.reward!r} and its rubric by hash."
        return f"{bound} If either changes, they expire."


def binding_of(paths: Sequence[str], inputs: Sequence[Input], reward: str) -> JudgeBinding:
    """The judge of a run and its rubric: from the run's plan, or from the settings in the files of another system."""
    settings: dict[str, Any] = {}
    for path in paths:
        folder = run_or_path(path)
        if os.path.isdir(folder) and is_run(folder):
            identity = read_plan(folder).identity
            settings |= {key: identity[key] for key in OF_A_RUN if key in identity}
    if not settings:
        settings = {name: value for name, value in settings_of(inputs, None).items() if _ABOUT_JUDGING.search(name)}
    return JudgeBinding(reward, settings)


@dataclass(frozen=True, slots=True)
class Label:
    """The label of one rater for one rollout."""

    line: int
    task: str
    sample: int | None  # None if the file has no such column
    value: float
    rater: str  # "" if the file has no such column
    group: Mapping[str, str]  # those of agent, model and dataset that the file has
    judge: str = ""  # the hash of the judge and rubric that the label is bound to; "" if it is not bound


@dataclass(frozen=True, slots=True)
class LabelFile:
    """All labels of a file, and the number of rows without a label."""

    path: str
    labels: Sequence[Label]
    empty: int
    raters: Sequence[str]  # in the order they appear


Labels = str | os.PathLike[str] | Any
"""A CSV file of labels, or a table in memory with the same columns."""


def read_labels(labels: Labels) -> LabelFile:
    """Read labels; InputError for the first row that cannot be used, or if no row has a label."""
    if not isinstance(labels, (str, os.PathLike)):
        cells = cells_of(labels)
        if cells is None:
            expected = "expected a CSV file, or a table with the columns task, sample and label"
            raise InputError(f"labels are a {type(labels).__name__}; {expected}")
        return _read("labels", enumerate(cells))  # the header is row 0
    name = os.fspath(labels)
    try:
        with open(name, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            return _read(name, ((reader.line_num, row) for row in reader))
    except csv.Error as error:
        raise InputError.at(f"{name}:{reader.line_num}", f"is not CSV ({error})") from None
    except OSError as error:
        raise InputError.at(name, f"cannot be read ({error.strerror})", "expected a CSV of labels") from None
    except UnicodeDecodeError:
        raise InputError.at(name, "is not UTF-8 text", "expected a CSV of labels") from None


def _read(path: str, rows: Iterable[tuple[int, list[str]]]) -> LabelFile:
    """The labels in rows of cells, each with the line on which the row ends."""
    head: list[str] = []
    labels: list[Label] = []
    empty = 0
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        where = f"{path}:{line}"
        if not head:
            head = _head(where, row)
            continue
        if len(row) != len(head):
            raise InputError.at(where, f"has {len(row)} cells", f"expected {len(head)}, as the first line has")
        cells = dict(zip(head, (cell.strip() for cell in row), strict=True))
        if not cells["label"]:
            empty += 1
            continue
        labels.append(_label(where, line, cells))
    if not head:
        raise InputError.at(path, "is empty", f"expected CSV with the columns {', '.join(KNOWN[:3])}")
    if not labels:
        why = f"the label of all {empty:,} rows is empty" if empty else "it has a header only"
        raise InputError.at(path, f"has no label: {why}", NUMBERS)
    return LabelFile(path, labels, empty, list(dict.fromkeys(label.rater for label in labels)))


def _head(where: str, row: Sequence[str]) -> list[str]:
    """The column names of the first row."""
    head = [cell.strip().lower() for cell in row]
    if len(row) == 1 and (between := next((sign for sign in ";\t" if sign in row[0]), None)):
        raise InputError.at(where, f"has {between!r} between its cells", "expected commas")
    for name in NEEDED:
        if name not in head:
            close = nearest(name, head, 1)
            hint = f" (there is {close[0]!r})" if close else ""
            raise InputError.at(where, f"has no column {name!r}{hint}", f"expected the columns {', '.join(KNOWN[:3])}")
    twice = [name for name in KNOWN if head.count(name) > 1]
    if twice:
        raise InputError.at(where, f"has the column {twice[0]!r} twice", "expected it once")
    return head


def _label(where: str, line: int, cells: Mapping[str, str]) -> Label:
    value = math.nan
    with suppress(ValueError):
        value = float(cells["label"])
    if not math.isfinite(value):
        raise InputError.at(where, f"label is {cells['label']!r}", NUMBERS)
    sample = None
    if "sample" in cells:
        if not cells["sample"].isdecimal() or len(cells["sample"]) > MOST_DIGITS:
            raise InputError.at(where, f"sample is {cells['sample']!r:.60}", "expected a whole number from 0 on")
        sample = int(cells["sample"])
    if not cells["task"]:
        raise InputError.at(where, "task is empty", "expected the id of a task")
    group = {name: cells[name] for name in GROUP if cells.get(name)}
    return Label(line, cells["task"], sample, value, cells.get("rater", ""), group, cells.get(COLUMN, ""))


GroupRow = tuple[int, int]  # the index of a group, and a row of it


@dataclass(frozen=True, slots=True)
class Rated:
    """The rollouts of one group, with the judge's scores and the ratings of each rater."""

    part: Rollouts
    judge: str  # the name of the judge's reward
    judged: Column  # [R]
    ratings: Floats  # [R, raters]
    rated: Bools  # [R, raters]
    raters: Sequence[str]


def laid_out(parts: Sequence[Rollouts], labels: LabelFile, reward: str | None) -> list[Rated]:
    """The groups that have labels, each with the ratings of its rollouts."""
    labelled = {label.task for label in labels.labels}
    rows_of: dict[str, list[GroupRow]] = {}  # by task, for tasks with a label
    for number, part in enumerate(parts):
        codes = [code for code, task in enumerate(part.tasks) if task in labelled]
        for row in np.flatnonzero(np.isin(part.task, codes)).tolist():
            rows_of.setdefault(part.tasks[int(part.task[row])], []).append((number, row))
    ratings = [np.zeros((len(part), len(labels.raters))) for part in parts]
    rated = [np.zeros((len(part), len(labels.raters)), dtype=bool) for part in parts]
    lines: dict[tuple[GroupRow, str], int] = {}
    absent: list[Label] = []
    column = {rater: index for index, rater in enumerate(labels.raters)}
    for label in labels.labels:
        matches = [
            (number, row)
            for number, row in rows_of.get(label.task, ())
            if label.sample in (None, int(parts[number].sample[row])) and _fits(parts[number], label)
        ]
        if not matches:
            absent.append(label)
            continue
        if len(matches) > 1:
            raise _ambiguous(labels.path, label, [parts[number] for number, _ in matches])
        (number, row) = matches[0]
        first = lines.setdefault((matches[0], label.rater), label.line)
        if first != label.line:
            sample = int(parts[number].sample[row])
            problem = f"task {label.task!r} sample {sample} appears twice, first on line {first}"
            expected = "expected one label for each, or a column rater"
            raise InputError.at(f"{labels.path}:{label.line}", problem, expected)
        ratings[number][row, column[label.rater]] = label.value
        rated[number][row, column[label.rater]] = True
    if absent:
        raise _absent(labels, absent)
    return [
        Rated(part, key, contributed(part, key), ratings[number], rated[number], labels.raters)
        for number, part in enumerate(parts)
        if rated[number].any()
        for key in [_judge(part, reward)]
    ]


def _fits(part: Rollouts, label: Label) -> bool:
    names = dict(zip(GROUP, part.keys[0], strict=True))
    return all(names[name] == value for name, value in label.group.items())


def _ambiguous(path: str, label: Label, matches: Sequence[Rollouts]) -> InputError:
    """The error for a label that fits several rollouts, given the group of each."""
    where = f"{path}:{label.line}"
    if len({tuple(part.keys[0]) for part in matches}) > 1:
        problem = f"task {label.task!r} is in {len(matches)} groups of the run"
        return InputError.at(where, problem, "expected a column model, agent or dataset that names the group")
    return InputError.at(where, f"task {label.task!r} has {len(matches)} samples", "expected a column sample")


def _absent(labels: LabelFile, absent: Sequence[Label]) -> InputError:
    """The error for labels of rollouts that the run does not have."""
    first = absent[0]
    rollout = f"task {first.task!r}" + ("" if first.sample is None else f" sample {first.sample}")
    problem = f"{rollout} is not in the run"
    if len(absent) > 1:
        count = f"{len(absent):,} of {len(labels.labels):,} labels"
        problem = f"{count} are for rollouts that are not in the run, first {rollout}"
    return InputError.at(f"{labels.path}:{first.line}", problem, "expected the tasks and samples of this run")


def _judge(part: Rollouts, chosen: str | None) -> str:
    """The name of the judge's reward."""
    keys = sorted(part.rewards)
    if chosen:
        if chosen not in keys:
            raise UnknownName.of("reward", chosen, keys)
        return chosen
    if "reward" in keys or not keys:
        return "reward"
    if len(keys) > 1:
        raise InputError(f"there are several rewards ({', '.join(keys)}); choose the judge's with --reward KEY")
    return keys[0]


JUDGE = "judge"
FEW = 20  # labelled tasks; with 8 to 15 the 95 % interval of PPI++ covers in 92 to 95 % of simulated checks
FIXED = "the intervals here are for a fixed number of tasks, and are not valid for a run that its results stopped"
ALIKE = "all ratings are the same, so agreement beyond chance cannot be measured"
NOT_BINARY = "only for labels and scores of 0 and 1"


def judge_check(
    source: Source,
    labels: Labels,
    *,
    reward: str | None = None,
    threshold: float = PASS_THRESHOLD,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> JudgeCheck:
    """Check a judge, the reward of a run, against labels, and correct its score with PPI++.

    ``labels`` is a CSV file or a table with task, sample and label, and a row for each rater. A reward or label of at
    least ``threshold`` is good. With several raters, the label is their mean, and their majority decides whether it
    is good.
    """
    confidence = make_plan(["mean_reward"], confidence=confidence).confidence
    if not math.isfinite(threshold):
        raise InputError(f"--threshold is {threshold}; expected a number that a label can reach")
    label_file = read_labels(labels)
    side = read_source(source, Named(columns or {}, truth, input_format or ""), (), progress)
    groups = laid_out(list(side.rollouts.groups()), label_file, reward)
    _refuse_expired(label_file, source, side, groups)
    with quietly():
        checked = [checked_judge(group, threshold, confidence) for group in groups]
    stops = list(side.rollouts.stops.values())
    notes = without_sentences(side.rollouts.notes, [note for stop in stops for note in stop.notes])
    notes += [f"{stop.fact}: {FIXED}" for stop in stops]
    if label_file.empty:
        rows = "1 row without a label is" if label_file.empty == 1 else f"{label_file.empty:,} rows without a label are"
        notes.append(f"{label_file.path}: {rows} excluded")
    return JudgeCheck(label_file.path, threshold, confidence, side.hashed(), checked, notes)


def _refuse_expired(labels: LabelFile, source: Source, side: ReadSource, groups: Sequence[Rated]) -> None:
    """Raise InputError if labels are bound to another judge or rubric than the run's."""
    bound = [label for label in labels.labels if label.judge]
    if not bound or not (paths := paths_of(source)):
        return
    now = {binding_of(paths, side.hashed(), group.judge).sha256 for group in groups}
    for label in bound:
        if label.judge not in now:
            problem = "the label is bound to another judge or rubric than this run's"
            remedy = f"label again with calipers view --label, or remove the column {COLUMN}"
            raise InputError.at(f"{labels.path}:{label.line}", problem, remedy)


def checked_judge(group: Rated, threshold: float, confidence: float) -> CheckedJudge:
    """The check of one group's judge; InputError if the judge has scored none of the labelled rollouts."""
    part, judged = group.part, group.judged
    labelled: Bools = np.asarray(group.rated.any(axis=1))
    use = labelled & judged.given
    if not use.any():
        title = " · ".join(filter(None, reversed(part.keys[0]))) or "the run"
        raise InputError(f"{title}: the judge has scored none of the {int(labelled.sum())} labelled rollouts")
    if not bool(np.isfinite(judged.kept()).all()):
        problem = "has values that are not finite numbers; a judge must give finite numbers"
        raise InputError(f"reward {group.judge!r} {problem}")
    count = group.rated.sum(axis=1)
    label = np.where(group.rated, group.ratings, 0.0).sum(axis=1) / np.maximum(count, 1)
    votes = (group.rated & (group.ratings >= threshold)).sum(axis=1)
    clear = use & (2 * votes != count)  # raters are not evenly split
    good, called_good = 2 * votes > count, judged.values >= threshold
    values = np.concatenate([group.ratings[group.rated], judged.kept()])
    if not bool((np.abs(values) <= LARGEST).all()):
        problem = f"or its labels have numbers beyond {LARGEST:g}, whose squares overflow"
        raise InputError(f"reward {group.judge!r} {problem}; expected a scale such as 0 to 1")
    binary = bool(((values == 0) | (values == 1)).all())
    limits = UNIT if bool(((values >= 0) & (values <= 1)).all()) else None
    task = part.task[judged.given]
    rows = label[judged.given], use[judged.given], judged.kept(), task
    scores = [ppi_by_task(*rows, trust=trust, limits=limits, confidence=confidence) for trust in (None, 0.0, 1.0)]
    if binary:
        decided = (judged.given & (clear | ~use)).nonzero()[0]  # evenly split raters give no label of 0 or 1
        binary_rows = good[decided].astype(float), clear[decided], judged.values[decided], part.task[decided]
        scores.append(rogan_gladen_by_task(*binary_rows, confidence=confidence))
    else:
        counts = scores[0].labelled, scores[0].judged
        scores.append(Corrected(None, None, None, "rogan_gladen", 1.0, *counts, NOT_BINARY))
    picked = _pick_tests(group, labelled, threshold)
    own = [test for test in picked if test.first == group.judge and test.second is None]
    sample = LabelledSample(own[0].labelled, own[0].others, own[0].p) if own else None
    remarks = _labels_remarks(group.judge, picked, complete=bool(labelled[judged.given].all()))
    errors = confusion(good[clear], called_good[clear], part.task[clear], confidence=confidence)
    agent, model, dataset = part.keys[0]
    return CheckedJudge(
        agent,
        model,
        dataset,
        group.judge,
        len(part.tasks),
        int(judged.given.sum()),
        len(np.unique(part.task[use])),
        int(use.sum()),
        [rater for column, rater in enumerate(group.raters) if rater and group.rated[:, column].any()],
        errors,
        _agreement(group, use, binary),
        _pairs(group, use, threshold),
        _mean("judge", judged, part, limits, confidence),
        _mean("bias", Column(judged.values - label, use), part, limits and (-1.0, 1.0), confidence),
        scores,
        binary,
        [
            *(note_of(remark) for remark in remarks if remark.severity == "warning"),
            *_notes(group, labelled, use, clear, good, binary=binary),
            *_doubts(group, use, errors),
        ],
        sample,
        picked,
        documents_of(remarks),
    )


def _pick_tests(group: Rated, labelled: Bools, threshold: float) -> list[PickTest]:
    """Tests of whether labels were picked by the judge, by another reward, or by a disagreement, on judged rollouts."""
    part, given = group.part, group.judged.given
    rewards = {group.judge: group.judged}
    for name in sorted(part.rewards):
        column = contributed(part, name)
        if name != group.judge and column.given.any():
            rewards[name] = column
    judged = {name: Column(column.values[given], column.given[given]) for name, column in rewards.items()}
    return pick_tests(judged, labelled[given], part.task[given], threshold)


def _labels_remarks(judge: str, picked: Sequence[PickTest], *, complete: bool) -> list[Remark]:
    """Warnings that the labels were picked; without one, what the tests cannot show. Nothing if all are labelled."""
    if complete:
        return []
    warnings = [test for test in picked if test.suspect and test.second is None and test.first == judge]
    others = [test for test in picked if test.suspect and test not in warnings]
    warnings += sorted(others, key=lambda test: test.p)[:1]
    if warnings:
        return [_picked_remark(judge, test) for test in warnings]
    pairs = [(test.first, test.second) for test in picked if test.second is not None]
    names = [name for name in chain.from_iterable(pairs) if name != judge]
    if not names:
        return [Remark("labels_alone", {"judge": judge})]
    smallest = min(test.p for test in picked)
    return [Remark("labels_not_shown", {"judge": judge, "others": list(dict.fromkeys(names)), "p": smallest})]


def _picked_remark(judge: str, test: PickTest) -> Remark:
    """The warning of one test that the labelled rollouts were picked."""
    values: dict[str, Value] = {
        "labelled": test.labelled,
        "others": test.others,
        "labelled_rollouts": test.labelled_rollouts,
        "other_rollouts": test.other_rollouts,
        "p": test.p,
    }
    if test.second is not None:
        return Remark("labels_disagreement", {**values, "reward": test.first, "other": test.second}, "warning")
    if test.first == judge:
        return Remark("labels_score", values, "warning")
    return Remark("labels_other_score", {**values, "reward": test.first}, "warning")


def _mean(
    name: str, column: Column, part: Rollouts, limits: tuple[float, float] | None, confidence: float
) -> Corrected:
    """The mean over tasks of a column, [R], with the default interval."""
    means = task_mean(column, part.by_task).kept()
    estimate = interval(means, np.ones(len(means)), confidence, limits)
    labelled = len(means) if name == "bias" else 0
    return Corrected(float(means.mean()), estimate.stderr, estimate.ends, name, 1.0, labelled, len(means), estimate.why)


def _with_judge(group: Rated, use: Bools) -> tuple[Floats, Bools]:
    """The ratings of the used rollouts and which are given, with the judge in the last column, [use, raters + 1]."""
    ratings = np.hstack([group.ratings[use], group.judged.values[use][:, None]])
    return ratings, np.hstack([group.rated[use], np.ones((int(use.sum()), 1), dtype=bool)])


def _agreement(group: Rated, use: Bools, binary: bool) -> list[Agreement]:
    """Krippendorff's alpha among raters and judge, and among several raters."""
    level = NOMINAL if binary else INTERVAL
    several = group.rated.shape[1] > 1
    tables = {"raters and judge" if several else "labels and judge": _with_judge(group, use)}
    if several:
        tables["raters"] = (group.ratings[use], group.rated[use])
    agreements = []
    for among, (values, given) in tables.items():
        units = int((given.sum(axis=1) >= 2).sum())
        alpha = krippendorff_alpha(values, given, level)
        why = None if alpha is not None else ALIKE if units else "no rollout has two raters"
        agreements.append(Agreement(among, level, alpha, units, why))
    return agreements


def _pairs(group: Rated, use: Bools, threshold: float) -> list[Shared]:
    """The share of rollouts on which each pair agrees on good or bad, with the judge last."""
    names = [*(rater or "labels" for rater in group.raters), JUDGE]
    ratings, given = _with_judge(group, use)
    shares = pairwise_agreement((ratings >= threshold).astype(float), given)
    common = given.astype(np.int64).T @ given.astype(np.int64)
    size = len(names)
    return [
        Shared(names[first], names[second], float(shares.values[first * size + second]), int(common[first, second]))
        for first in range(size)
        for second in range(first + 1, size)
        if shares.given[first * size + second]
    ]


def _doubts(group: Rated, use: Bools, errors: Confusion) -> list[str]:
    """Notes on signs that labels and judge measure different things: different scales, opposite directions."""
    doubts = []
    labels, judged = group.ratings[group.rated & use[:, None]], group.judged.kept()
    in_unit = [bool(((values >= 0) & (values <= 1)).all()) for values in (labels, judged)]
    if in_unit[0] != in_unit[1]:
        ranges = [f"{values.min():g} to {values.max():g}" for values in (labels, judged)]
        doubts.append(
            f"labels range from {ranges[0]} and the judge's scores from {ranges[1]}: the score, its bias and alpha are "
            "meaningful only if both use the same scale"
        )
    accuracy = errors.accuracy.interval
    if accuracy is not None and accuracy[1] < 0.5:
        share = f"{errors.accuracy.value:.0%}".replace("%", " %")
        doubts.append(f"the judge is right for only {share} of these: are good and bad swapped in the labels?")
    return doubts


def _notes(group: Rated, labelled: Bools, use: Bools, clear: Bools, good: Bools, *, binary: bool) -> list[str]:
    """Notes on excluded rollouts, on few labelled tasks, and on labels that are all good or all bad."""
    notes = []
    if lost := int((labelled & ~use).sum()):
        notes.append(f"excluded: {counted(lost, 'labelled rollout')} without a score of the judge")
    if split := int((use & ~clear).sum()):
        notes.append(f"excluded from the judge's errors: {counted(split, 'rollout')} on which raters are evenly split")
    tasks = len(np.unique(group.part.task[use]))
    if 1 < tasks < FEW:
        notes.append(
            f"there are only {tasks} labelled tasks: below about {FEW} the interval of PPI++ is slightly too narrow"
        )
    labels = good[clear]
    if len(labels) and (labels.all() or not labels.any()):
        present, absent = ("good", "bad") if labels.all() else ("bad", "good")
        unknown = "specificity" if labels.all() else "sensitivity"
        remedy = f"also label some {absent} rollouts" + ("" if binary else ", or choose another --threshold")
        notes.append(f"every label ({len(labels):,}) is {present}: the judge's {unknown} is unknown; {remedy}")
    return notes


def document(check: JudgeCheck) -> Document:
    """The page of a check: the corrected score in a sentence, the judge's errors, and agreement."""
    return Document(partial(_blocks, check), check.to_dict, FIELDS, check.rows)


def _blocks(check: JudgeCheck) -> Iterator[Block]:
    blocks = [block for group in check.groups for block in _group(group, check)]
    return spaced([*blocks, Sentence(RANDOM, "note")])


def _group(group: CheckedJudge, check: JudgeCheck) -> Iterator[Block]:
    if group.title or len(check.groups) > 1:
        yield Title(Name(group.title or "(unnamed)", None))
    yield Sentence(verdict(group))
    for remark in group.remarks:
        if remark["severity"] == "note":  # warnings are among the notes
            yield Sentence(str(remark["text"]), "note")
    raters = f" by {counted(len(group.raters), 'rater')}" if len(group.raters) > 1 else ""
    yield Sentence(
        f"judge: {group.judge}, {counted(group.rollouts, 'rollout')} of {counted(group.tasks, 'task')}; "
        f"labels{raters}: {counted(group.labelled, 'rollout')} of {counted(group.labelled_tasks, 'task')}"
    )
    for note in group.notes:
        yield Sentence(note if note.startswith("warning: ") else f"note: {note}")
    interval = f"{percent(check.confidence)} interval"
    yield plain_table(
        ["score", "value", "± stderr", interval, "weight", "what it is"],
        [_score(row) for row in (*group.corrected, group.uncorrected)],
        numbers={1, 2, 4},
        strong={1},
    )
    yield Title("errors of the judge")
    errors = group.confusion
    yield plain_table(
        ["", "judge: good", "judge: bad"],
        [
            ["label: good", f"{errors.true_positives:,}", f"{errors.false_negatives:,}"],
            ["label: bad", f"{errors.false_positives:,}", f"{errors.true_negatives:,}"],
        ],
        numbers={1, 2},
    )
    yield plain_table(
        ["rate", "value", interval, "of", "what it is"],
        [
            _rate("sensitivity", errors.sensitivity, "share of good rollouts that the judge calls good"),
            _rate("specificity", errors.specificity, "share of bad rollouts that the judge calls bad"),
            _rate("accuracy", errors.accuracy, "share of rollouts that the judge calls right"),
        ],
        numbers={1, 3},
        strong={1},
    )
    yield Title("agreement")
    yield plain_table(
        ["Krippendorff's alpha", "value", "rollouts", ""],
        [
            [row.among, figure(row.alpha, PLACES), f"{row.rollouts:,}", row.why or _strength(row.alpha)]
            for row in group.agreement
        ],
        numbers={1, 2},
        strong={1},
    )
    if len(group.pairs) > 1:
        yield plain_table(
            ["rater", "and", "agree", "rollouts"],
            [[row.first, row.second, percent(round(row.share, 3)), f"{row.rollouts:,}"] for row in group.pairs],
            numbers={2, 3},
            names={0, 1},
        )


def verdict(group: CheckedJudge) -> str:
    """The corrected score and the bias of the judge, in a sentence."""
    score, bias = group.score, group.bias
    if score.value is None or score.interval is None:
        return f"No corrected score: {plain_why(score.why or 'the labels do not vary')}."
    digits = places(score.interval)
    sentence = f"The corrected score is {figure(score.value, digits)} (interval {to(score.interval, digits)})."
    sentence += f" The judge alone gives {figure(group.uncorrected.value, digits)}"
    if bias.value is None or bias.interval is None:
        return f"{sentence}."
    if bias.interval[0] <= 0 <= bias.interval[1]:
        return f"{sentence}; a bias of the judge is not shown (interval {signed_to(bias.interval, digits)})."
    low, high = sorted(map(abs, bias.interval))
    amount = f"{figure(abs(bias.value), digits)} too {'high' if bias.value > 0 else 'low'}"
    return f"{sentence}; it rates {amount} (interval {to((low, high), digits)})."


def _score(score: Corrected) -> list[str]:
    name, what = METHODS[score.method]
    weight = figure(score.trust, 3) if score.method in ("ppi++", "ppi", "labels") else ""
    return [
        name,
        figure(score.value, PLACES),
        figure(score.stderr, PLACES),
        ends(score.interval, PLACES) or NONE,
        weight,
        plain_why(score.why) if score.why else what,
    ]


def _rate(name: str, rate: Rate, what: str) -> list[str]:
    return [name, figure(rate.value, PLACES), ends(rate.interval, PLACES) or NONE, f"{rate.of:,}", rate.why or what]


def _strength(alpha: float | None) -> str:
    """Krippendorff's rating of an alpha: reliable from .8, tentative from .667."""
    if alpha is None:
        return ""
    return "reliable" if alpha >= 0.8 else "tentative" if alpha >= 0.667 else "not reliable"
