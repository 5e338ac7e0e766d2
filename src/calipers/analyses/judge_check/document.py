"""A judge model checked against labels: its errors, its agreement with raters, and the corrected score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from calipers.formats.read import Input
from calipers.reports.document import Block, Document, Name, Sentence, Title, plain_table, spaced
from calipers.reports.figures import NONE, counted, ends, figure, percent
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import places, signed_to, to
from calipers.stats.judges import Confusion, Corrected, LabelledSample, Rate

if TYPE_CHECKING:
    pass

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
    """How well raters agree beyond chance; 1 is perfect, 0 is chance."""

    among: str  # "raters and judge", "raters", or "labels and judge"
    level: str  # nominal or interval
    alpha: float | None
    rollouts: int  # with two ratings or more
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """How often two raters agree on a rollout."""

    first: str
    second: str
    share: float
    rollouts: int  # that both rated


@dataclass(frozen=True, slots=True)
class CheckedJudge:
    """The judge of one agent, model and dataset."""

    agent: str | None
    model: str | None
    dataset: str | None
    judge: str  # the reward that is the judge's
    tasks: int
    rollouts: int  # that the judge has scored
    labelled_tasks: int
    labelled: int  # rollouts with a label and a judgement
    raters: Sequence[str]
    confusion: Confusion
    agreement: Sequence[Agreement]
    pairs: Sequence[Shared]
    uncorrected: Corrected  # the judge's mean, as `score` reports it
    bias: Corrected  # judge's score minus label, over the labelled rollouts
    corrected: Sequence[Corrected]  # ppi++, labels, ppi, rogan_gladen
    binary: bool  # whether all labels and judgements are 0 or 1
    notes: Sequence[str] = ()
    labelled_sample: LabelledSample | None = None  # the judge's means with and without a label; p of a random sample

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)

    @property
    def score(self) -> Corrected:
        """The score by PPI++."""
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
        """What it says, in a line."""
        return f"{len(self.groups)} judged runs against the labels in {self.labels}"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            "labels": self.labels,
            "threshold": self.threshold,
            "confidence": self.confidence,
            "inputs": [asdict(source) for source in self.inputs],
            "groups": [asdict(group) for group in self.groups],
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per number: the scores, the judge's rates, the agreements."""
        return [row for group in self.groups for row in _rows(group)]


def _rows(group: CheckedJudge) -> list[dict[str, Any]]:
    who = {"dataset": group.dataset, "model": group.model, "agent": group.agent, "judge": group.judge}
    empty: dict[str, Any] = dict.fromkeys(FIELDS)
    rows = []
    for score in (*group.corrected, group.uncorrected, group.bias):
        low, high = score.interval or (None, None)
        numbers = {"value": score.value, "stderr": score.stderr, "low": low, "high": high, "trust": score.trust}
        counts = {"labelled": score.labelled, "judged": score.judged, "why": score.why}
        rows.append(
            {
                **empty,
                **who,
                "what": score.method if score is group.bias else f"score.{score.method}",
                **numbers,
                **counts,
            }
        )
    for name in ("sensitivity", "specificity", "accuracy"):
        rate = getattr(group.confusion, name)
        low, high = rate.interval or (None, None)
        numbers = {"value": rate.value, "low": low, "high": high, "labelled": rate.of, "why": rate.why}
        rows.append({**empty, **who, "what": name, **numbers})
    cells = ("true_positives", "false_negatives", "false_positives", "true_negatives")
    rows += [{**empty, **who, "what": name, "value": getattr(group.confusion, name)} for name in cells]
    for level in group.agreement:
        name = f"alpha.{level.among.replace(' ', '_')}"
        rows.append({**empty, **who, "what": name, "value": level.alpha, "labelled": level.rollouts, "why": level.why})
    return rows


def document(check: JudgeCheck) -> Document:
    """A check as a page: the corrected score in a sentence, the judge's errors, and agreement."""
    return Document(partial(_blocks, check), check.to_dict, FIELDS, check.rows)


def _blocks(check: JudgeCheck) -> Iterator[Block]:
    blocks = [block for group in check.groups for block in _group(group, check)]
    return spaced([*blocks, Sentence(RANDOM, "note")])


def _group(group: CheckedJudge, check: JudgeCheck) -> Iterator[Block]:
    if group.title or len(check.groups) > 1:
        yield Title(Name(group.title or "(unnamed)", None))
    yield Sentence(verdict(group))
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
    word = f"The judge alone gives {figure(group.uncorrected.value, digits)}"
    if bias.value is None or bias.interval is None:
        return f"{sentence} {word}."
    if bias.interval[0] <= 0 <= bias.interval[1]:
        ends_of_bias = signed_to(bias.interval, digits)
        return f"{sentence} {word}; a bias of the judge is not shown (interval {ends_of_bias})."
    way = "high" if bias.value > 0 else "low"
    low, high = sorted(map(abs, bias.interval))
    return (
        f"{sentence} {word}; it rates {figure(abs(bias.value), digits)} too {way} (interval {to((low, high), digits)})."
    )


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
    """Krippendorff's thresholds: reliable from .8, tentative from .667."""
    if alpha is None:
        return ""
    return "reliable" if alpha >= 0.8 else "tentative" if alpha >= 0.667 else "not reliable"
