"""Is one run better than another? The settings of a comparison and its result.

`Question` has the settings and is checked before any file is opened. `Comparison` is the result: runs, common tasks,
differences and verdicts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, Final, NoReturn, Self

from calipers.errors import InputError, NotPassed, UnknownName
from calipers.formats.read import Input
from calipers.metrics import MetricSpec
from calipers.remarks import Remark
from calipers.reports.document import Document, Glance
from calipers.reports.doubts import Doubts
from calipers.reports.page import Page
from calipers.reports.remark_texts import documents_of, note_of
from calipers.reports.result import canonical
from calipers.request import Plan, integer
from calipers.rollouts.checks import Check
from calipers.rollouts.ledger import RANDOM
from calipers.stats.anytime import BETTING
from calipers.stats.claims import Evidence, Reason
from calipers.stats.paired import FLOORED_T, STRICT, McNemar
from calipers.stats.ranks import Winner

TESTS: Final = {  # value of --test -> method in the result
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
SHOWN = 10  # regressions, and as many fixes, that are listed by default
TRAINED: Final = "train"  # the split of the rollouts that a policy was trained on
ORDER: Final = "second run: its plan, when its tasks started, or their first rows"
"""The source of the task order for a sequential test."""


@dataclass(frozen=True, slots=True)
class Primary:
    """The primary question: a metric on all tasks or in one slice, such as ``mean_reward[difficulty=hard]``."""

    text: str
    metric: str
    by: str | None = None
    slice: str | None = None

    @classmethod
    def of(cls, text: str) -> Primary:
        """Parse ``--primary``; InputError if it names no metric."""
        sliced = SLICED.fullmatch(text)
        metric = (sliced["metric"] if sliced else text).strip()
        if not metric or (sliced is None and "[" in metric):
            raise InputError.at("--primary", f"{text!r} is not a metric", "expected METRIC or METRIC[KEY=VALUE]")
        if sliced is None:
            return cls(text, metric)
        return cls(text, metric, sliced["key"].strip(), sliced["value"].strip())

    def means(self, metric: str, by: str | None, value: str | None) -> bool:
        """Whether this is the question about the given metric on the given slice."""
        return (self.by, self.slice) == (by, value) and metric_key(self.metric) == metric_key(metric)


def step_order(name: str) -> tuple[bool, float, str]:
    """The sort key of a step's name, ``40`` or ``eval, 40``: the training split first, then the rest, each by number.

    >>> sorted(["10", "2", "train, 30", "eval, 2"], key=step_order)
    ['train, 30', '2', 'eval, 2', '10']
    """
    split, _, step = name.rpartition(", ")
    try:
        return split != TRAINED, float(step), name
    except ValueError:
        return split != TRAINED, -math.inf, name


def metric_key(metric: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A metric's name and sorted parameters, independent of spacing; a text that is no valid metric is its own key."""
    try:
        request = MetricSpec.of(metric)
    except InputError:
        return metric, ()
    return request.name, tuple(sorted((key, str(value)) for key, value in request.params.items()))


@dataclass(frozen=True, slots=True)
class Question:
    """The checked settings of a comparison."""

    plan: Plan
    test: str  # a value of TESTS, or BETTING
    adjust: str
    margin: float | None
    baseline: str | None
    flips: int
    tables: Sequence[str] | None  # requested numbers of lm-evaluation-harness' tables; None: all of them
    primary: Primary | None = None  # None: the first metric on all tasks
    steps: str = ""  # the key of the training steps, if each step is compared separately; else ""
    trust_reader: bool = False  # whether a run counts whose own numbers differ from ours

    def on(self, benchmark: str | None) -> Question:
        """The question about one benchmark, with the range of its rewards."""
        return replace(self, plan=self.plan.on(benchmark)) if self.plan.ranges else self

    @property
    def gated(self) -> bool:
        """Whether the other steps are claims only if the primary question, the last common step, is decided.

        The primary question keeps its level, and Holm's method adjusts the others among themselves.
        """
        return bool(self.steps) and self.adjust == HOLM

    @property
    def anytime(self) -> bool:
        """Whether the verdict stays valid if it is requested after every batch of tasks."""
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
    trust_reader: bool = False,
) -> Question:
    """Check the settings; InputError if one is invalid or two contradict each other."""
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
    return Question(
        plan,
        BETTING if anytime else TESTS[test],
        adjust,
        largest,
        baseline,
        most,
        tables,
        primary,
        trust_reader=trust_reader,
    )


SCHEMA = "calipers.comparison/1"
VERDICTS: Final = ("better", "worse", "equivalent", "undecided", "higher", "lower")
"""The words of a verdict; higher and lower are for metrics of which no direction is better."""
FIELDS = (
    *("dataset", "first_run", "second_run", "by", "slice", "metric", "first", "second", "delta", "stderr"),
    *("low", "high", "p", "p_holm", "p_bh", "method", "verdict", "sentence", "more_tasks", "more_samples"),
    *("p_equivalent", "p_not_worse", "mcnemar_exact", "mcnemar_mid_p", "tasks", "undefined_tasks", "units"),
    *("first_samples", "second_samples", "higher_is_better", "why", "signature"),
    *("aligned_by", "common_tasks", "only_first", "only_second"),
    *("new_tasks_low", "new_tasks_high"),
    *("lowest", "highest", "first_missing", "second_missing", "worst_verdict", "tipping", "tipping_of"),
    *("undecided_by", "as_observed", "worst_low", "worst_high", "score0", "compared_on"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run on one dataset."""

    name: str  # unique within the contest
    source: str  # the path of the source; "" for a table
    agent: str | None
    model: str | None
    dataset: str | None
    tasks: int
    samples: int
    checks: Sequence[Check] = ()  # numbers that the system which wrote the rollouts reports itself, and ours


@dataclass(frozen=True, slots=True)
class UnmatchedTasks:
    """The tasks that only one run has, with the ids of the first ones."""

    count: int
    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Alignment:
    """The number of tasks that two runs share, and the tasks that only one of them has."""

    by: str  # "id", or "content" if the same prompt or document has other ids
    common: int
    only_first: UnmatchedTasks
    only_second: UnmatchedTasks


@dataclass(frozen=True, slots=True)
class Tipping:
    """How many missing rollouts of one run may be adverse without changing the verdict.

    All missing rollouts of the other run count as adverse.
    """

    run: str  # the run whose adverse rollouts are counted: first or second
    outcome: str  # the adverse outcome: failed or passed
    most: int  # the verdict holds with up to this many adverse rollouts; -1: not even with 0
    missing: int
    exact: bool  # True: for every choice of the adverse rollouts; False: for those that move the difference most
    tasks: int  # tasks with a value after all missing rollouts are filled


@dataclass(frozen=True, slots=True)
class Finding:
    """The difference of one metric between two runs, second minus first, with interval, p and verdict."""

    metric: str
    by: str | None  # the key of a slice; None for all tasks
    slice: str | None
    first: float | None
    second: float | None
    delta: float | None
    stderr: float | None
    interval: tuple[float, float] | None
    p: float | None  # of the null hypothesis of no difference, not adjusted
    p_holm: float | None  # adjusted among all findings of the comparison
    p_bh: float | None  # likewise, by Benjamini and Hochberg
    method: str
    tasks: int  # with a value in both runs
    undefined_tasks: int  # common tasks without a value in one of the runs
    units: int  # tasks, or clusters
    samples: tuple[int, int]
    higher_is_better: bool | None
    verdict: str  # better, worse, equivalent, undecided; higher or lower if no direction is better
    sentence: str
    more_tasks: int | None  # tasks (or clusters) that a new comparison needs if it is tested on its own
    more_samples: int | None  # per task and run of a new comparison on as many tasks
    p_equivalent: float | None  # of the test for equivalence within the margin; None without a margin
    p_not_worse: float | None  # of the test for non-inferiority; None without a margin or a better direction
    mcnemar: McNemar | None  # if each task has exactly one pass or fail in each run
    why: str | None
    signature: str
    floored_stderr: float | None = None  # the standard error of the floored t test; None in other tests
    role: str = "primary"  # "primary" or "secondary"; a secondary finding is a claim only if the primary is decided
    p_adjusted: float | None = None  # the p that decides the verdict
    confidence: float = 0.95  # of the interval
    hint: str | None = None  # the verdict on its own, if the primary question is undecided
    undone_by_one: bool = False  # one more unit with a full loss against the verdict would make it undecided
    margin_method: str | None = None  # the test of the margin; None without a margin
    tasks_for_margin: int | None = None  # equal units that would rule the margin out, if there are too few units
    missing: tuple[int, int] = (0, 0)  # missing rollouts of each run on the common tasks
    bounds: tuple[float, float] | None = None  # of delta over all fillings; None: no rollout missing, or unknown
    worst_verdict: str | None = None  # with every missing rollout against the verdict; None if it has no direction
    tipping: Tipping | None = None  # likewise
    new_tasks: tuple[int, int | None] | None = None  # more_tasks at the ends of the interval; None: no number suffices
    undecided_by: Reason | None = None  # the first reason that applies; None if it is decided
    as_observed: str = "undecided"  # the verdict by the observed difference alone
    worst_interval: tuple[float, float] | None = None  # of delta, over the worst outcomes of missing rollouts
    score0: float | None = None  # the score against losses not yet seen; None if the pair is not lopsided
    compared_on: str = "all_samples"  # or first_samples, or any_of_first_4 for pass@4
    remarks: Sequence[Remark] = ()  # why it is undecided; runs are "first" and "second" in them

    @property
    def question(self) -> str:
        """The question in the syntax of ``--primary``."""
        return self.metric if self.by is None else f"{self.metric}[{self.by}={self.slice}]"


@dataclass(frozen=True, slots=True)
class Changed:
    """A task whose value differs between two runs, and the answer of each run."""

    task: str
    first: float
    second: float
    answers: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Flips:
    """How many tasks became worse, better or stayed the same in the second run, and the largest changes first."""

    metric: str
    worse: int
    better: int
    same: int
    regressions: Sequence[Changed]
    fixes: Sequence[Changed]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of a contest and their findings."""

    first: int  # index of the run in the contest
    second: int
    alignment: Alignment
    findings: Sequence[Finding]
    flips: Flips | None
    notes: Sequence[str] = ()  # differences in settings, prompts and tasks
    remarks: Sequence[Remark] = ()  # missing rollouts and sample counts that a reader must know of


@dataclass(frozen=True, slots=True)
class RunRank:
    """The rank of a run among several."""

    run: int  # index of the run in the contest
    value: float
    rank: float
    ranks: tuple[float, float]  # the central range of its ranks in bootstrap draws, not adjusted for the other runs
    chance_best: (
        float | None
    )  # share of bootstrap draws in which it is best; this is not its probability of being the best
    rank_set: tuple[int, int]  # ranks that are not ruled out; the sets of all runs are valid together


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranking of all runs of a contest by one metric over the tasks that all of them have, the best run first."""

    metric: str
    tasks: int
    places: Sequence[RunRank]
    optimism: float | None  # how much too good the best run would look if all runs were equal
    corrected: float | None  # the best value less the optimism
    why: str | None = None
    winner: Winner | None = None  # the best run, with its value corrected for selection


@dataclass(frozen=True, slots=True)
class Contest:
    """Runs that are compared on one dataset."""

    dataset: str | None
    runs: Sequence[Run]
    pairs: Sequence[Pair]
    ranks: Sequence[Ranks] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Page):
    """The result of a comparison. With one pair of runs, ``comparison["mean_reward"]`` is the finding."""

    dialect: str
    missing: str
    confidence: float
    seed: int
    test: str
    adjust: str  # the method that adjusts the p values of the verdicts
    margin: float | None
    cluster: str | None
    inputs: Sequence[Sequence[Input]]  # the files of each source
    contests: Sequence[Contest]
    tests: int  # the number of different tests, over which p is adjusted
    notes: Sequence[str] = ()
    primary: str | None = None  # the question that keeps its full level
    evidences: Sequence[Evidence] = field(default=(), repr=False, compare=False)  # of all findings, in order
    order: str | None = None  # the order of the tasks in an anytime test; None in other tests

    def __getitem__(self, metric: str) -> Finding:
        if len(self.pairs) != 1:
            raise KeyError(f"{len(self.pairs)} pairs of runs were compared; use .contests[i].pairs[j]")
        by_metric = {finding.metric: finding for finding in self.findings if finding.by is None}
        by_metric = by_metric or {finding.question: finding for finding in self.findings}
        if metric not in by_metric:
            raise UnknownName.of("metric in this comparison", metric, by_metric)
        return by_metric[metric]

    def __bool__(self) -> NoReturn:
        raise TypeError("a comparison is neither true nor false: use .verdict, or .check('better')")

    @property
    def verdict(self) -> str:
        """The verdict on the primary question of the only pair of runs; KeyError if there are other pairs."""
        if len(self.pairs) != 1:
            raise KeyError(f"{len(self.pairs)} pairs of runs were compared; use .contests[i].pairs[j]")
        return self._words[0]

    def check(self, *words: str) -> Self:
        """Itself if the verdict of every pair of runs is among these words; else NotPassed, whose text is the page.

        The verdict of a pair is that on its primary question.
        """
        if not words:
            raise InputError(f"check() has no verdict; expected one or more of {', '.join(VERDICTS)}")
        for word in words:
            if word not in VERDICTS:
                raise UnknownName.of("verdict", word, VERDICTS)
        found = self._words
        if not found or any(word not in words for word in found):
            raise NotPassed(str(self))
        return self

    @property
    def _words(self) -> list[str]:
        """The verdict of every pair of runs on its primary question; undecided if they have no metric in common."""
        from calipers.analyses.compare.page import primary

        findings = [primary(pair) for _, pair in self.pairs]
        return ["undecided" if finding is None else finding.verdict for finding in findings]

    @property
    def pairs(self) -> list[tuple[Contest, Pair]]:
        """Every pair of runs with its contest, in order."""
        return [(contest, pair) for contest in self.contests for pair in contest.pairs]

    @property
    def doubts(self) -> Doubts:
        """The checks of all runs, by the name of the run."""
        runs = chain.from_iterable(contest.runs for contest in self.contests)
        return {run.name: run.checks for run in runs}

    @property
    def findings(self) -> list[Finding]:
        """The findings of all pairs, in order."""
        return [finding for _, pair in self.pairs for finding in pair.findings]

    @property
    def verdicts(self) -> list[str]:
        """The verdict of every finding, in order."""
        return [finding.verdict for finding in self.findings]

    @property
    def digest(self) -> str:
        """The hash of settings and numbers, without paths, names and sentences: equal digests mean equal numbers."""
        left_out = {"tests"} if self.order else {"tests", "order"}
        settings = {key: value for key, value in self._settings().items() if key not in left_out}
        content = {**settings, "contests": [_numbers(contest) for contest in self.contests]}
        return "sha256:" + hashlib.sha256(canonical(content)).hexdigest()

    def page(self) -> Document:
        """The document that renderers show."""
        from calipers.analyses.compare.document import document

        return document(self)

    def glance(self) -> Glance:
        """The verdict, the numbers and the missing rollouts, for a notebook."""
        from calipers.analyses.compare.page import glance

        return glance(self)

    def headline(self) -> str:
        """The answer in one line."""
        from calipers.analyses.compare.page import answer_of

        if len(self.pairs) != 1:
            return f"{len(self.pairs)} pairs of runs"
        ((contest, pair),) = self.pairs
        return f"{answer_of(self, contest, pair).line} {pair.alignment.common:,} common tasks"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            **self._settings(),
            "assumed": RANDOM if self.missing == RANDOM else None,
            "inputs": [[asdict(file) for file in side] for side in self.inputs],
            "contests": [_document(contest) for contest in self.contests],
            "notes": list(self.notes),
            "digest": self.digest,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per finding: the names of both runs and all its numbers."""
        rows = []
        for contest, pair in self.pairs:
            first, second = (contest.runs[index].name for index in (pair.first, pair.second))
            runs = {"dataset": contest.dataset, "first_run": first, "second_run": second}
            aligned = pair.alignment
            tasks = {
                "aligned_by": aligned.by,
                "common_tasks": aligned.common,
                "only_first": aligned.only_first.count,
                "only_second": aligned.only_second.count,
            }
            rows += [{**runs, **_flat(finding), **tasks} for finding in pair.findings]
        return rows

    def _settings(self) -> dict[str, Any]:
        names = ("dialect", "missing", "confidence", "seed", "test", "adjust", "margin", "cluster", "tests")
        return {name: getattr(self, name) for name in (*names, "primary", "order")}


STRICT_ALLOWS = "--test strict allows for that"


def one_more(delta: float | None, cluster: str | None) -> str:
    """``one more task lost outright``: the strongest evidence that one unit can add against a difference."""
    return f"one more {'cluster' if cluster else 'task'} {'lost' if (delta or 0.0) > 0 else 'won'} outright"


def _document(contest: Contest) -> dict[str, Any]:
    """A contest as JSON has it: its remarks have their texts, with the names of the runs."""
    document = asdict(contest)
    for pair, fields in zip(contest.pairs, document["pairs"], strict=True):
        names = {"first": contest.runs[pair.first].name, "second": contest.runs[pair.second].name}
        fields["remarks"] = documents_of(pair.remarks)
        fields["notes"] = [*pair.notes, *map(note_of, pair.remarks)]
        for finding, of_finding in zip(pair.findings, fields["findings"], strict=True):
            of_finding["remarks"] = documents_of(finding.remarks, names)
    return document


def _numbers(contest: Contest) -> dict[str, Any]:
    """A contest without names of runs and without sentences; a run is its index."""
    pairs = [
        {
            "first": pair.first,
            "second": pair.second,
            "alignment": asdict(pair.alignment),
            "findings": [
                {key: value for key, value in asdict(each).items() if key != "sentence"} for each in pair.findings
            ],
        }
        for pair in contest.pairs
    ]
    return {"dataset": contest.dataset, "pairs": pairs, "ranks": [asdict(each) for each in contest.ranks]}


_PAIRS: Final = {  # field with two numbers -> the columns of a row that have them
    "interval": ("low", "high"),
    "samples": ("first_samples", "second_samples"),
    "bounds": ("lowest", "highest"),
    "missing": ("first_missing", "second_missing"),
    "new_tasks": ("new_tasks_low", "new_tasks_high"),
    "worst_interval": ("worst_low", "worst_high"),
}


def _flat(finding: Finding) -> dict[str, Any]:
    fields = asdict(finding)
    for name, (first, second) in _PAIRS.items():
        fields[first], fields[second] = fields.pop(name) or (None, None)
    mcnemar, tipping = fields.pop("mcnemar") or {}, fields.pop("tipping") or {}
    del fields["remarks"]
    fields |= {"mcnemar_exact": mcnemar.get("exact"), "mcnemar_mid_p": mcnemar.get("mid_p")}
    return fields | {"tipping": tipping.get("most"), "tipping_of": tipping.get("missing")}
