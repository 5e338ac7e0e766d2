"""A benchmark's verifiers tested on known answers: the gold answer must pass, all others must fail.

A verifier can give a better gold answer than the task's target as text with an optional method,
``gold(task) -> str | None``; None means that no gold answer is known for the task.

The errors that a test finds bound a score. For the true share p, of whose right answers a share ``fn`` fails and of
whose wrong answers a share ``fp`` passes, the verifier passes q = p (1 - fn) + (1 - p) fp (Rogan and Gladen 1978). So

    (q - fp) / (1 - fp)  <=  p  <=  q / (1 - fn)

where ``fp`` and ``fn`` are at most their upper limits. Half of 1 - confidence goes to the interval of q, and a quarter
to each limit, so that the bounds hold at the confidence whatever the three have to do with each other.
"""

from __future__ import annotations

import json
import os
import random
import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.metrics import PASS_THRESHOLD, UNIT
from calipers.pipeline import read, score
from calipers.reports.document import Blank, Block, Document, Name, Row, Sentence, Table, TableColumn
from calipers.reports.figures import counted, ends, figure, percent
from calipers.reports.plain_words import plain_why
from calipers.reports.result import Result, Slice
from calipers.reports.untrusted_text import clean
from calipers.request import make_plan
from calipers.rollouts.column import Column
from calipers.rollouts.table import Rollouts
from calipers.running.rollout import Bench, gold
from calipers.stats.estimate import Estimate
from calipers.stats.intervals import interval
from calipers.tasks import Suite, Task
from calipers.verifiers import NamedVerifier
from calipers.verifiers.user_code import judge_of

SHOWN = 5  # ids of a kind that are named in a table

Rate = Literal["false negatives", "false positives"]
WHAT: Final = ("gold", "empty", "echo", "random", "another's")
WORDS: Final = 12  # of a random text
RATES = ("false positives", "false negatives")
KEY = "verifier_errors"


@dataclass(frozen=True, slots=True)
class Probe:
    """One kind of answer, given to every task of one verifier."""

    verifier: str
    what: str  # gold, empty, echo, random, another's
    rate: Rate  # what a wrong verdict on it is
    asked: int  # tasks
    wrong: Sequence[str]  # ids of the tasks where the verdict is wrong
    failed: Sequence[tuple[str, str]]  # ids of the tasks where there was none, and why
    share: float | None  # of the verdicts that are wrong; None without any verdict
    interval: tuple[float, float] | None
    why: str | None = None  # why there is no interval

    @property
    def clean(self) -> bool:
        """Whether the verifier is right: every gold answer has a verdict and passes, and no other answer passes."""
        return not self.wrong and not (self.what == "gold" and self.failed)


@dataclass(frozen=True, slots=True)
class SelfTest:
    """All probes of a benchmark."""

    confidence: float
    probes: Sequence[Probe]
    notes: Sequence[str] = ()

    @property
    def clean(self) -> bool:
        """Whether every gold answer passed and nothing else did."""
        return all(probe.clean for probe in self.probes)

    def to_dict(self) -> dict[str, Any]:
        """The test, ready for strict JSON."""
        return {"clean": self.clean, "confidence": self.confidence, "probes": [asdict(probe) for probe in self.probes]}


def document(test: SelfTest) -> Document:
    """A test as a page: a row for each probe, then the tasks with a wrong verdict."""
    return Document(partial(_blocks, test), test.to_dict)


def _blocks(test: SelfTest) -> Iterator[Block]:
    columns = [
        TableColumn("verifier"),
        TableColumn("answer"),
        TableColumn("tasks", "right"),
        TableColumn("wrong", "right"),
        TableColumn(),
    ]
    rows = []
    for probe in test.probes:
        judged = f"{probe.asked - len(probe.failed):,}"
        share = "–" if probe.share is None else f"{figure(probe.share)} {probe.rate}"
        interval = ends(probe.interval, 4) or plain_why(probe.why or "")
        rows.append(Row([Name(probe.verifier), probe.what, judged, f"{len(probe.wrong):,}", share, interval]))
    yield Table([*columns, TableColumn(f"{percent(test.confidence)} interval")], rows, ruled=False)
    yield Blank()
    for probe in test.probes:
        if probe.wrong:
            verb = "does not pass" if probe.what == "gold" else "passes"
            yield Sentence((Name(probe.verifier), f": {probe.what} answer {verb}: {_named(probe.wrong)}"), whole=True)
        if probe.failed:
            tasks, why = _named([task for task, _ in probe.failed]), clean(probe.failed[0][1], 200)
            unjudged = f": {probe.what} answer cannot be verified: {tasks} ({why})"
            yield Sentence((Name(probe.verifier), unjudged), whole=True)
    wrong = sum(not probe.clean for probe in test.probes)
    fault = f"{wrong:,} of {counted(len(test.probes), 'probe')} found wrong verdicts"
    yield Sentence(fault if wrong else "clean: all verdicts are right", whole=True)


def _named(tasks: Sequence[str]) -> str:
    shown = ", ".join(map(clean, tasks[:SHOWN]))
    return f"{shown} and {len(tasks) - SHOWN:,} more" if len(tasks) > SHOWN else shown


@dataclass(frozen=True, slots=True)
class CheckedBenchmark:
    """A benchmark that can be run: its verifiers by name, and how many tasks each verifies."""

    suite: Suite
    tasks: Sequence[Task]
    verifiers: Mapping[str, NamedVerifier]
    counts: Mapping[str, int]
    unjudged: int  # tasks that no verifier judges


def checked(suite: Suite, limit: int | None = None) -> CheckedBenchmark:
    """The benchmark, if each of its tasks can be verified; InputError for the first task that cannot."""
    tasks = suite.tasks[:limit]
    if not tasks:
        raise InputError.at(suite.name, "no tasks", "expected at least one")
    judges: dict[str, NamedVerifier] = {}
    counts: defaultdict[str, int] = defaultdict(int)
    for task in tasks:
        if task.verifier is not None:
            if task.verifier not in judges:
                judges[task.verifier] = judge_of(task)
            judges[task.verifier].check(task)
            counts[task.verifier] += 1
    return CheckedBenchmark(suite, tasks, judges, dict(counts), len(tasks) - sum(counts.values()))


def selftest(
    benchmark: CheckedBenchmark, *, concurrency: int = 32, seed: int = 0, confidence: float = 0.95
) -> SelfTest:
    """Test every verifier on its tasks; a verifier that needs more than a text is skipped, with a note."""
    notes, probes = [], []
    if benchmark.unjudged:
        notes.append(f"not tested: {counted(benchmark.unjudged, 'task')} without a verifier")
    with Bench(concurrency) as bench:
        for name, judge in benchmark.verifiers.items():
            if not judge.rerunnable:
                notes.append(f"not tested: verifier {name!r}, which needs more than a text")
                continue
            tasks = [task for task in benchmark.tasks if task.verifier == name]
            golds = [gold(judge, task) for task in tasks]
            if unknown := golds.count(None):
                notes.append(f"verifier {name!r}: no gold answer is known for {counted(unknown, 'task')}")
            for what in WHAT:
                cases = list(_cases(what, tasks, golds, seed))
                if cases:
                    probes.append(_probe(name, judge, what, cases, bench, confidence))
        notes += bench.notes
    if not probes:
        raise InputError.at(benchmark.suite.name, "there is no verifier to test", "; ".join(notes))
    return SelfTest(confidence, probes, notes)


def _cases(what: str, tasks: Sequence[Task], golds: Sequence[str | None], seed: int) -> Iterator[tuple[Task, str]]:
    """The tasks that a probe is for, and the text that each of them is given."""
    others = _others(tasks)
    for index, (task, answer) in enumerate(zip(tasks, golds, strict=True)):
        text: str | None = None
        if what == "gold":
            text = answer
        elif what == "empty":
            text = ""
        elif what == "echo":
            text = _prompt(task)
        elif what == "random":
            text = _babble(seed, task.id)
        elif (other := others[index]) is not None:
            text = golds[other]
        if text is not None and (what == "gold" or text != answer):
            yield task, text


def _others(tasks: Sequence[Task]) -> list[int | None]:
    """For each task the next one, around the corner, whose target differs; None where all are alike, [T]."""
    others: list[int | None] = [None] * len(tasks)
    size = len(tasks)
    for index in range(2 * size - 2, -1, -1):  # from behind, twice: the last ones look around the corner
        here, following = index % size, (index + 1) % size
        differs = tasks[here].target != tasks[following].target
        others[here] = following if differs else others[following]
    return others


def _prompt(task: Task) -> str:
    """The prompt as text; of a chat, the last turn that is one."""
    if isinstance(task.prompt, str):
        return task.prompt
    turns = [turn.get("content") for turn in task.prompt]
    return next((text for text in reversed(turns) if isinstance(text, str)), "")


def _babble(seed: int, task: str) -> str:
    """Words of random letters and digits, the same for the same task."""
    rng = random.Random(f"{seed}/{task}")
    letters = string.ascii_lowercase + string.digits
    return " ".join("".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(WORDS))


def _probe(
    name: str, judge: NamedVerifier, what: str, cases: Sequence[tuple[Task, str]], bench: Bench, confidence: float
) -> Probe:
    verdicts = bench.judge([(judge, task, Completion(text)) for task, text in cases])
    wrong, failed = [], []
    for (task, _), verdict in zip(cases, verdicts, strict=True):
        if isinstance(verdict, VerifierError):
            failed.append((task.id, bench.secrets.scrub(str(verdict))))
        elif (verdict.reward is not None and verdict.reward >= PASS_THRESHOLD) != (what == "gold"):
            wrong.append(task.id)
    values = np.zeros(len(cases) - len(failed))
    values[: len(wrong)] = 1.0
    share = float(values.mean()) if len(values) else None
    how = interval(values, np.ones(len(values)), confidence, UNIT) if len(values) else None
    return Probe(
        name,
        what,
        "false negatives" if what == "gold" else "false positives",
        len(cases),
        wrong,
        failed,
        share,
        how.ends if how else None,
        how.why if how else "no verdict",
    )


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """The largest rates of wrong verdicts that a self-test allows, at a confidence of the score."""

    confidence: float
    false_positives: float
    false_negatives: float

    @property
    def confidence_of_shares(self) -> float:
        """The confidence of the interval that the bounds begin from."""
        return 1 - (1 - self.confidence) / 2

    def bounds(self, ends: tuple[float, float]) -> tuple[float, float]:
        """The bounds of a true share, from the ends of an interval of the share of passes."""
        low, high = ends
        passes, fails = self.false_positives, self.false_negatives
        lower = max((low - passes) / (1 - passes), 0.0) if passes < 1 else 0.0
        return lower, min(high / (1 - fails), 1.0) if fails < 1 else 1.0


def allowed_rates(probes: Sequence[Mapping[str, Any]], confidence: float) -> ErrorRates | None:
    """The rates that the probes of a self-test allow; None where it does not say how many verdicts there were.

    The limit of a rate is the largest among its probes, as nobody knows which of them wrong answers resemble. Without a
    verdict anything is possible: 1.
    """
    if not all("asked" in probe for probe in probes):
        return None
    limits = {
        rate: max([_upper(probe, (1 - confidence) / 4) for probe in probes if probe["rate"] == rate], default=1.0)
        for rate in RATES
    }
    return ErrorRates(confidence, limits[RATES[0]], limits[RATES[1]])


def _upper(probe: Mapping[str, Any], tail: float) -> float:
    """The largest rate of wrong verdicts that a probe allows (Clopper and Pearson 1934, one-sided)."""
    from scipy.special import betaincinv

    wrong, verdicts = len(probe["wrong"]), int(probe["asked"]) - len(probe["failed"])
    return float(betaincinv(wrong + 1, verdicts - wrong, 1 - tail)) if wrong < verdicts else 1.0


def rate_bounds(rates: ErrorRates, group: Slice, table: Rollouts) -> dict[str, list[float] | None]:
    """The bounds of each metric of a group that was scored at `confidence_of_shares`; None for no share of passes."""
    whole = all(set(column.values[column.given].tolist()) <= {0.0, 1.0} for column in table.rewards.values())
    return {
        name: list(rates.bounds(estimate.interval)) if estimate.interval and _is_share(estimate, whole) else None
        for name, estimate in group.metrics.items()
    }


def _is_share(estimate: Estimate, whole: bool) -> bool:
    """Whether a number is a share of passes: that of a metric of one sample, or a mean of rewards that are 0 or 1."""
    made = estimate.made
    single = made.metric == "pass_rate" or (made.metric == "pass@{k}" and made.k == 1)
    return single or (made.metric == "mean_reward" and whole)


def with_error_bounds(
    result: Result,
    paths: Sequence[str | os.PathLike[str]],
    check: str,
    metrics: Sequence[str] | None,
    settings: Mapping[str, Any],
    columns: Mapping[str, str] | None = None,
) -> Result:
    """The result with bounds for a verifier that is wrong on the tasks that a self-test names.

    ``check`` is the JSON of ``calipers check BENCHMARK --selftest``. Where a wrong answer passes, every pass of the
    task may be false: the rewards are 0 for the lower bound. Where the gold answer fails, every failure may be: they
    are 1 for the upper bound. The ends are those of the intervals of both, so that sampling error is in them. Shares of
    passes also get the bounds of `error_rates`: for a verifier that is wrong as often as the self-test allows.
    """
    probes = _probes(check)
    accepts, refuses = (
        {str(task) for each in probes if each["rate"] == rate for task in each["wrong"]} for rate in RATES
    )
    known = {key: value for key, value in settings.items() if key != "truth"}
    labels = make_plan(metrics or None, **known).labels
    given = [os.fspath(path) for path in paths]
    table = read(given, columns=columns, truth=settings.get("truth"), labels=labels)
    low, high = (
        score(_filled(table, tasks, worth), metrics or None, **known)
        for tasks, worth in ((accepts, 0.0), (refuses, 1.0))
    )
    tasks = set(table.tasks)
    here = {"wrong answer passes": sorted(accepts & tasks), "gold answer fails": sorted(refuses & tasks)}
    rates, wide = allowed_rates(probes, float(known.get("confidence") or result.confidence)), result
    if rates is not None:
        wide = score(table, metrics or None, **{**known, "confidence": rates.confidence_of_shares})
    groups, notes = [], []
    for group, lower, upper, wider in zip(result.groups, low.groups, high.groups, wide.groups, strict=True):
        bounds = {name: _ends(name, (group, lower, upper)) for name in group.metrics}
        by_rates = {} if rates is None else rate_bounds(rates, wider, table)
        who = {"agent": group.agent, "model": group.model, "dataset": group.dataset}
        groups.append({**who, "bounds": bounds, "rate_bounds": by_rates})
        title = f"{group.title}: " if len(result.groups) > 1 else ""
        for name in group.metrics:
            notes += [f"{title}{text}" for text in _sentences(name, group, bounds[name], by_rates.get(name), rates)]
    counts = [f"a wrong answer passes in {counted(len(here['wrong answer passes']), 'task')}"]
    counts += [f"the gold answer fails in {counted(len(here['gold answer fails']), 'task')}"]
    said = [*notes, f"suspicious tasks, by {check}: {', '.join(counts)}"]
    stated = None if rates is None else asdict(rates)
    own = {**result.own, KEY: {"check": os.path.basename(check), "tasks": here, "rates": stated, "groups": groups}}
    return replace(result, own=own, notes=[*result.notes, *said])


def _probes(path: str) -> list[dict[str, Any]]:
    """The probes of a self-test; InputError where the file is none."""
    right = "expected the output of calipers check BENCHMARK --selftest --format json"
    try:
        with open(path, "rb") as file:
            probes = json.loads(file.read())["selftest"]["probes"]
        for probe in probes:
            known = probe["rate"] in RATES and isinstance(probe["wrong"], list)
            if not known or ("asked" in probe and not 0 <= len(probe["failed"]) <= int(probe["asked"])):
                raise ValueError("a probe is none")
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError.at(path, "is not the self-test of a benchmark", right) from None
    return list(probes)


def _filled(table: Rollouts, tasks: set[str], worth: float) -> Rollouts:
    """The table with this reward for every rollout of some tasks that has one."""
    marked = np.array([task in tasks for task in table.tasks], dtype=bool)[table.task]
    rewards = {
        name: Column(np.where(marked & column.given, worth, column.values), column.given)
        for name, column in table.rewards.items()
    }
    return replace(table, rewards=rewards)


def _ends(name: str, slices: Sequence[Slice]) -> list[float] | None:
    """The lowest and the highest end of the intervals; values where there is none."""
    ends = [
        end
        for each in slices
        if (estimate := each.metrics[name]).value is not None
        for end in (estimate.interval or (estimate.value,))
    ]
    return [min(ends), max(ends)] if ends else None


def _sentences(
    name: str, group: Slice, bounds: list[float] | None, by_rates: list[float] | None, rates: ErrorRates | None
) -> Iterator[str]:
    value = group.metrics[name].value
    if value is None:
        return
    if bounds is not None:
        yield f"{name} {value:.2f}, between {bounds[0]:.2f} and {bounds[1]:.2f} if the suspicious tasks are wrong"
    if by_rates is not None and rates is not None:
        yield (
            f"{name} {value:.2f}, between {by_rates[0]:.2f} and {by_rates[1]:.2f} if up to {rates.false_positives:.1%} "
            f"of wrong answers pass and up to {rates.false_negatives:.1%} of right ones fail"
        )
