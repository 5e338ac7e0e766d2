"""Is one run better than another? The question and the result as values: runs, common tasks, differences, verdicts.

A `Question` is the settings beyond those of a score, checked before any file is opened.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from calipers.errors import InputError, UnknownName
from calipers.formats.read import Input
from calipers.metrics import MetricSpec
from calipers.reports.document import Document, Glance
from calipers.reports.page import Page
from calipers.reports.result import canonical
from calipers.request import Plan, integer
from calipers.stats.anytime import BETTING
from calipers.stats.paired import FLOORED_T, STRICT, Difference, McNemar
from calipers.stats.ranks import Winner

TESTS: Final = {  # what is asked for -> what stands in the document
    "default": FLOORED_T,
    "strict": STRICT,
    "sign-flip": "sign_flip",
    "mcnemar": "mcnemar",
    "mid-p": "mid_p",
    "bootstrap": "paired_bootstrap",
}
SIDAK: Final = "sidak"
HOLM: Final = "holm"
ADJUSTMENTS: Final = (SIDAK, HOLM, "bh", "none")
SLICED: Final = re.compile(r"(?P<metric>.*?)\s*\[(?P<key>[^\[\]=]+)=(?P<value>.*)\]\s*", re.DOTALL)
SHOWN = 10  # flips of a kind
TRAINED: Final = "train"  # the split of rollouts that a policy was trained on
ORDER: Final = "second run: its plan, when its tasks started, or their first rows"
"""The order of tasks for a test that looks at them one after another."""


@dataclass(frozen=True, slots=True)
class Primary:
    """The primary question: a metric on all tasks, or in one slice, ``mean_reward[difficulty=hard]``."""

    text: str
    metric: str
    by: str | None = None
    slice: str | None = None

    @classmethod
    def of(cls, text: str) -> Primary:
        """Read ``--primary``; InputError for what names no metric."""
        sliced = SLICED.fullmatch(text)
        metric = (sliced["metric"] if sliced else text).strip()
        if not metric or (sliced is None and "[" in metric):
            raise InputError.at("--primary", f"{text!r} is not a metric", "expected METRIC or METRIC[KEY=VALUE]")
        if sliced is None:
            return cls(text, metric)
        return cls(text, metric, sliced["key"].strip(), sliced["value"].strip())

    def means(self, metric: str, by: str | None, value: str | None) -> bool:
        """Whether this is the question of a metric in a slice."""
        return (self.by, self.slice) == (by, value) and metric_key(self.metric) == metric_key(metric)


def step_order(name: str) -> tuple[bool, float, str]:
    """The order of training steps by their names, ``40`` or ``eval, 40``: by number, those of evaluations last.

    >>> sorted(["10", "2", "train, 30", "eval, 2"], key=step_order)
    ['train, 30', '2', 'eval, 2', '10']
    """
    split, _, step = name.rpartition(", ")
    try:
        return split != TRAINED, float(step), name
    except ValueError:
        return split != TRAINED, -math.inf, name


def metric_key(metric: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A metric's name and parameters, whatever their order and spacing; a free name is itself."""
    try:
        request = MetricSpec.of(metric)
    except InputError:
        return metric, ()
    return request.name, tuple(sorted((key, str(value)) for key, value in request.params.items()))


@dataclass(frozen=True, slots=True)
class Question:
    """The settings of a comparison, checked and complete."""

    plan: Plan
    test: str  # one of the values of TESTS, or betting
    adjust: str
    margin: float | None
    baseline: str | None
    flips: int
    tables: Sequence[str] | None  # the numbers of lm-evaluation-harness' tables that are asked for; None: all of them
    primary: Primary | None = None  # None: the first metric on all tasks
    filled: tuple[float, float] | None = None  # what the missing rollouts of the first and the second run are
    steps: str = ""  # what tells the training steps apart that are compared one by one; "": there are none

    @property
    def gated(self) -> bool:
        """Whether the last common step is the primary question, and the other steps are claims only if it is decided.

        The primary question keeps its level, and the others are adjusted among themselves by Holm.
        """
        return bool(self.steps) and self.adjust == HOLM

    @property
    def anytime(self) -> bool:
        """Whether the verdict may be asked for after every batch of tasks."""
        return self.test == BETTING


def make_question(
    plan: Plan,
    *,
    test: str = "default",
    adjust: str = SIDAK,
    margin: float | None = None,
    baseline: str | None = None,
    flips: int = 0,
    tables: Sequence[str] | None = (),
    anytime: bool = False,
    primary: Primary | None = None,
    filled: tuple[float, float] | None = None,
) -> Question:
    """Check the settings; InputError where they do not go together."""
    if test not in TESTS:
        raise UnknownName.of("test", test, TESTS)
    if adjust not in ADJUSTMENTS:
        raise UnknownName.of("adjustment", adjust, ADJUSTMENTS)
    if margin is not None and not (margin > 0 and math.isfinite(margin)):
        raise InputError(
            f"margin is {margin:g}; expected a number above 0, the largest difference that does not matter"
        )
    if (most := integer("flips", flips)) < 0:
        raise InputError(f"flips is {flips}; expected an integer >= 0")
    if plan.cluster and test in ("mcnemar", "mid-p"):
        raise InputError(f"--test {test} needs independent tasks; expected another test with --cluster")
    if anytime and test != "default":
        raise InputError(f"--anytime is a test itself; expected no --test {test} with it")
    largest = None if margin is None else float(margin)
    return Question(plan, BETTING if anytime else TESTS[test], adjust, largest, baseline, most, tables, primary, filled)


SCHEMA = "calipers.comparison/1"
FIELDS = (
    *("dataset", "first_run", "second_run", "by", "slice", "metric", "first", "second", "delta", "stderr"),
    *("low", "high", "p", "p_holm", "p_bh", "method", "verdict", "sentence", "more_tasks", "more_samples"),
    *("p_equivalent", "p_not_worse", "mcnemar_exact", "mcnemar_mid_p", "tasks", "undefined_tasks", "units"),
    *("first_samples", "second_samples", "higher_is_better", "why", "signature"),
    *("aligned_by", "common_tasks", "only_first", "only_second"),
    *("new_tasks_low", "new_tasks_high"),
    *("lowest", "highest", "first_missing", "second_missing", "worst_verdict", "tipping", "tipping_of"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One side of a comparison, on one dataset."""

    name: str  # no other run of the contest has it
    source: str  # the path it was read from; "" for a table
    agent: str | None
    model: str | None
    dataset: str | None
    tasks: int
    samples: int


@dataclass(frozen=True, slots=True)
class OneSide:
    """Tasks that only one run has; ``ids`` names the first of them."""

    count: int
    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which tasks two runs share."""

    by: str  # "id", or "content": the same prompt under other ids
    common: int
    only_first: OneSide
    only_second: OneSide


@dataclass(frozen=True, slots=True)
class Tipping:
    """How many missing rollouts of one run may be adverse without changing the verdict, if all of the other run are."""

    run: str  # whose are counted: first or second
    outcome: str  # that is adverse: failed or passed
    most: int  # as many and fewer leave the verdict; -1: not even none of them
    missing: int
    exact: bool  # whichever of them they are; else those that move the difference most
    tasks: int  # with a value once all are filled


@dataclass(frozen=True, slots=True)
class Finding:
    """One metric of two runs on their common tasks: second minus first, with interval, p and verdict."""

    metric: str
    by: str | None  # the key of a slice; None for all tasks
    slice: str | None
    first: float | None
    second: float | None
    delta: float | None
    stderr: float | None
    interval: tuple[float, float] | None
    p: float | None  # of no difference, for itself
    p_holm: float | None  # among all findings of the comparison
    p_bh: float | None
    method: str
    tasks: int  # with a value in both runs
    undefined_tasks: int  # common tasks without one
    units: int  # tasks, or clusters
    samples: tuple[int, int]
    higher_is_better: bool | None
    verdict: str  # better, worse, equivalent, undecided; higher or lower where neither is better
    sentence: str
    more_tasks: int | None  # that a new comparison needs, tested by themselves; clusters, where they are units
    more_samples: int | None  # per task and run of a new comparison on as many tasks
    p_equivalent: float | None  # within the margin; None without one
    p_not_worse: float | None  # than the margin allows
    mcnemar: McNemar | None  # where each task has one pass or fail in each run
    why: str | None
    signature: str
    floored_stderr: float | None = None  # by which the floored t tests; None in other tests
    role: str = "primary"  # primary, or secondary: a claim only when the primary question is decided
    p_adjusted: float | None = None  # by which the verdict goes
    confidence: float = 0.95  # of the interval
    hint: str | None = None  # the verdict it would have, where the primary question is undecided
    undone_by_one: bool = False  # one more unit with a full loss against the verdict would take it back
    margin_method: str | None = None  # what tested the margin; None without one
    tasks_for_margin: int | None = None  # units alike that would rule the margin out, where these are too few
    missing: tuple[int, int] = (0, 0)  # rollouts of each run that are missing on the common tasks
    bounds: tuple[float, float] | None = None  # of delta, whatever the missing ones are; None: none, or none known
    worst_verdict: str | None = None  # with every missing rollout against the verdict; None without a verdict
    tipping: Tipping | None = None  # likewise
    new_tasks: tuple[int, int | None] | None = None  # more_tasks at the ends of the interval; None: no number would do


@dataclass(frozen=True, slots=True)
class Changed:
    """A task with different values in two runs, and the answer of each run."""

    task: str
    first: float
    second: float
    answers: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Flips:
    """The tasks where the second run is worse and better; the largest changes come first."""

    metric: str
    worse: int
    better: int
    same: int
    regressions: Sequence[Changed]
    fixes: Sequence[Changed]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of a contest, by their places in it."""

    first: int
    second: int
    alignment: Alignment
    findings: Sequence[Finding]
    flips: Flips | None
    notes: Sequence[str] = ()  # what differs beside the answers, and what else must be said


@dataclass(frozen=True, slots=True)
class Place:
    """The rank of a run among several."""

    run: int
    value: float
    rank: float
    ranks: tuple[float, float]  # the middle of its ranks in draws of the tasks, for itself
    chance_best: float  # share of draws of the tasks in which it is the best: not its probability of being the best
    rank_set: tuple[int, int]  # ranks that are not ruled out; the sets of all runs are valid together


@dataclass(frozen=True, slots=True)
class Ranks:
    """All runs of a contest by one metric, the best first, over the tasks they all have."""

    metric: str
    tasks: int
    places: Sequence[Place]
    optimism: float | None  # how much too good the best of so many equal runs would look
    corrected: float | None  # the best value less that
    why: str | None = None
    winner: Winner | None = None  # the best value, corrected for selection


@dataclass(frozen=True, slots=True)
class Contest:
    """Runs that are compared on one dataset."""

    dataset: str | None
    runs: Sequence[Run]
    pairs: Sequence[Pair]
    ranks: Sequence[Ranks] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Page):
    """The result of a comparison. ``comparison["mean_reward"]`` is the finding when there is one pair of runs."""

    dialect: str
    missing: str
    confidence: float
    seed: int
    test: str
    adjust: str  # by which adjusted p the verdicts go
    margin: float | None
    cluster: str | None
    inputs: Sequence[Sequence[Input]]  # of each side
    contests: Sequence[Contest]
    tests: int  # different ones, over which p is adjusted
    notes: Sequence[str] = ()
    primary: str | None = None  # the question that keeps its full level
    differences: Sequence[Difference] = field(default=(), repr=False, compare=False)  # of all findings, in order
    order: str | None = None  # in which tasks are looked at, where the verdict may be asked on the way

    def __getitem__(self, metric: str) -> Finding:
        pairs = [pair for contest in self.contests for pair in contest.pairs]
        if len(pairs) != 1:
            raise KeyError(f"{len(pairs)} pairs of runs were compared; use .contests[i].pairs[j]")
        by_metric = {finding.metric: finding for finding in pairs[0].findings if finding.by is None}
        by_metric = by_metric or {f"{each.metric}[{each.by}={each.slice}]": each for each in pairs[0].findings}
        if metric not in by_metric:
            raise UnknownName.of("metric in this comparison", metric, by_metric)
        return by_metric[metric]

    @property
    def verdicts(self) -> list[str]:
        """The word of every finding, in order."""
        return [finding.verdict for contest in self.contests for pair in contest.pairs for finding in pair.findings]

    @property
    def digest(self) -> str:
        """The hash of settings and numbers, without paths, names and sentences: equal digests mean equal numbers."""
        left_out = {"tests"} if self.order else {"tests", "order"}
        settings = {key: value for key, value in self._settings().items() if key not in left_out}
        whole = {**settings, "contests": [_numbers(contest) for contest in self.contests]}
        return "sha256:" + hashlib.sha256(canonical(whole)).hexdigest()

    def page(self) -> Document:
        """The page and its data, for renderers."""
        from calipers.analyses.compare.document import document

        return document(self)

    def glance(self) -> Glance:
        """The verdict, the numbers and what is missing, for a notebook."""
        from calipers.analyses.compare.page import glance

        return glance(self)

    def headline(self) -> str:
        """What it says, in a line."""
        from calipers.analyses.compare.page import answer_of

        pairs = [(contest, pair) for contest in self.contests for pair in contest.pairs]
        if len(pairs) != 1:
            return f"{len(pairs)} pairs of runs"
        return f"{answer_of(self, *pairs[0]).line} {pairs[0][1].alignment.common:,} common tasks"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            **self._settings(),
            "inputs": [[asdict(file) for file in side] for side in self.inputs],
            "contests": [asdict(contest) for contest in self.contests],
            "notes": list(self.notes),
            "digest": self.digest,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per finding: both runs, and every number of it."""
        rows = []
        for contest in self.contests:
            for pair in contest.pairs:
                who = {
                    "dataset": contest.dataset,
                    "first_run": contest.runs[pair.first].name,
                    "second_run": contest.runs[pair.second].name,
                }
                aligned = pair.alignment
                tasks = {
                    "aligned_by": aligned.by,
                    "common_tasks": aligned.common,
                    "only_first": aligned.only_first.count,
                    "only_second": aligned.only_second.count,
                }
                rows += [{**who, **_flat(finding), **tasks} for finding in pair.findings]
        return rows

    def _settings(self) -> dict[str, Any]:
        names = ("dialect", "missing", "confidence", "seed", "test", "adjust", "margin", "cluster", "tests")
        return {name: getattr(self, name) for name in (*names, "primary", "order")}


STRICT_ALLOWS = "--test strict allows for that"


def one_more(delta: float | None, cluster: str | None) -> str:
    """``one more task lost outright``: what would speak most against a difference."""
    return f"one more {'cluster' if cluster else 'task'} {'lost' if (delta or 0.0) > 0 else 'won'} outright"


def _numbers(contest: Contest) -> dict[str, Any]:
    """A contest without what may be called otherwise: runs stand there by their places."""
    pairs = [
        {
            "first": pair.first,
            "second": pair.second,
            "alignment": asdict(pair.alignment),
            "findings": [_without(asdict(each), ("sentence",)) for each in pair.findings],
        }
        for pair in contest.pairs
    ]
    return {"dataset": contest.dataset, "pairs": pairs, "ranks": [asdict(each) for each in contest.ranks]}


def _without(fields: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names}


def _flat(finding: Finding) -> dict[str, Any]:
    fields = _without(asdict(finding), ("interval", "samples", "mcnemar", "missing", "bounds", "tipping", "new_tasks"))
    low, high = finding.interval or (None, None)
    lowest, highest = finding.bounds or (None, None)
    test = finding.mcnemar
    return {
        **fields,
        "low": low,
        "high": high,
        "first_samples": finding.samples[0],
        "second_samples": finding.samples[1],
        "mcnemar_exact": test.exact if test else None,
        "mcnemar_mid_p": test.mid_p if test else None,
        "lowest": lowest,
        "highest": highest,
        "first_missing": finding.missing[0],
        "second_missing": finding.missing[1],
        "tipping": finding.tipping.most if finding.tipping else None,
        "tipping_of": finding.tipping.missing if finding.tipping else None,
        "new_tasks_low": finding.new_tasks[0] if finding.new_tasks else None,
        "new_tasks_high": finding.new_tasks[1] if finding.new_tasks else None,
    }
