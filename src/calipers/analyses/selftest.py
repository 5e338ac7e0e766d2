"""Test the verifiers of a benchmark on known answers: the gold answer must pass, all other answers must fail.

By default the gold answer is the task's target as text. A verifier can give a better one with an optional method,
``gold(task) -> str | None``; None means that no gold answer is known for the task.

The errors that a test finds give bounds of a score. If p is the true share of right answers, a share ``fn`` of right
answers fails and a share ``fp`` of wrong answers passes, the verifier passes the share q = p (1 - fn) + (1 - p) fp
(Rogan and Gladen 1978). Therefore

    (q - fp) / (1 - fp)  <=  p  <=  q / (1 - fn)

where ``fp`` and ``fn`` are at most their upper limits. Half of 1 - confidence is spent on the interval of q, and a
quarter on each limit, so that the bounds hold at the confidence under any dependence of the three.
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

SHOWN = 5  # task ids that are listed for a probe

Rate = Literal["false negatives", "false positives"]
WHAT: Final = ("gold", "empty", "echo", "random", "another's")
WORDS: Final = 12  # in a random text
RATES = ("false positives", "false negatives")
KEY = "verifier_errors"


@dataclass(frozen=True, slots=True)
class Probe:
    """One kind of answer, given to every task of one verifier."""

    verifier: str
    what: str  # gold, empty, echo, random, another's
    rate: Rate  # the rate to which a wrong verdict counts
    asked: int  # number of tasks
    wrong: Sequence[str]  # ids of the tasks with a wrong verdict
    failed: Sequence[tuple[str, str]]  # ids of the tasks without a verdict, and the reason
    share: float | None  # of wrong verdicts; None without any verdict
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
        """Whether every probe is clean."""
        return all(probe.clean for probe in self.probes)

    def to_dict(self) -> dict[str, Any]:
        """The test, ready for strict JSON."""
        return {"clean": self.clean, "confidence": self.confidence, "probes": [asdict(probe) for probe in self.probes]}


def document(test: SelfTest) -> Document:
    """The page of a test: a row for each probe, then the tasks with a wrong verdict."""
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
    """A benchmark whose tasks can all be verified, with its verifiers by name."""

    suite: Suite
    tasks: Sequence[Task]
    verifiers: Mapping[str, NamedVerifier]
    counts: Mapping[str, int]  # number of tasks of each verifier
    unjudged: int  # number of tasks without a verifier


def checked(suite: Suite, limit: int | None = None) -> CheckedBenchmark:
    """The benchmark, with each task checked by its verifier; InputError for the first task that cannot be verified."""
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
    """Test every verifier on its tasks. A verifier that needs more than a text is skipped, with a note."""
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
    """Yield the tasks of a probe, each with the answer to judge."""
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
            text = _random_text(seed, task.id)
        elif (other := others[index]) is not None:
            text = golds[other]
        if text is not None and (what == "gold" or text != answer):
            yield task, text


def _others(tasks: Sequence[Task]) -> list[int | None]:
    """The index of the next task with another target for each task, cyclically, [T]; None if all targets are equal."""
    others: list[int | None] = [None] * len(tasks)
    size = len(tasks)
    for index in range(2 * size - 2, -1, -1):  # backwards and twice, so that the last tasks see the first ones
        task, following = index % size, (index + 1) % size
        differs = tasks[task].target != tasks[following].target
        others[task] = following if differs else others[following]
    return others


def _prompt(task: Task) -> str:
    """The prompt as text; for a chat, the last turn whose content is text."""
    if isinstance(task.prompt, str):
        return task.prompt
    turns = [turn.get("content") for turn in task.prompt]
    return next((text for text in reversed(turns) if isinstance(text, str)), "")


def _random_text(seed: int, task: str) -> str:
    """Words of random letters and digits, which are the same for the same seed and task."""
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
    estimate = interval(values, np.ones(len(values)), confidence, UNIT) if len(values) else None
    return Probe(
        name,
        what,
        "false negatives" if what == "gold" else "false positives",
        len(cases),
        wrong,
        failed,
        share,
        estimate.ends if estimate else None,
        estimate.why if estimate else "no verdict",
    )


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """The largest rates of wrong verdicts that a self-test allows, at a confidence of the score."""

    confidence: float
    false_positives: float
    false_negatives: float

    @property
    def confidence_of_shares(self) -> float:
        """The confidence of the interval of the share of passes, from which the bounds are computed."""
        return 1 - (1 - self.confidence) / 2

    def bounds(self, ends: tuple[float, float]) -> tuple[float, float]:
        """The bounds of the true share of right answers, from the interval of the share of passes."""
        low, high = ends
        fp, fn = self.false_positives, self.false_negatives
        lower = max((low - fp) / (1 - fp), 0.0) if fp < 1 else 0.0
        return lower, min(high / (1 - fn), 1.0) if fn < 1 else 1.0


def allowed_rates(probes: Sequence[Mapping[str, Any]], confidence: float) -> ErrorRates | None:
    """The upper limits of the error rates from the probes of a self-test; None if it lacks the number of verdicts.

    The limit of a rate is the largest limit of its probes, because it is unknown which probe wrong answers resemble. A
    rate without any verdict has the limit 1.
    """
    if not all("asked" in probe for probe in probes):
        return None
    limits = {
        rate: max([_upper_limit(probe, (1 - confidence) / 4) for probe in probes if probe["rate"] == rate], default=1.0)
        for rate in RATES
    }
    return ErrorRates(confidence, limits[RATES[0]], limits[RATES[1]])


def _upper_limit(probe: Mapping[str, Any], tail: float) -> float:
    """The one-sided upper limit of the rate of wrong verdicts of a probe (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    wrong, verdicts = len(probe["wrong"]), int(probe["asked"]) - len(probe["failed"])
    return float(betaincinv(wrong + 1, verdicts - wrong, 1 - tail)) if wrong < verdicts else 1.0


def rate_bounds(rates: ErrorRates, group: Slice, table: Rollouts) -> dict[str, list[float] | None]:
    """The bounds of each metric of a group scored at `confidence_of_shares`; None if it is not a share of passes."""
    binary = all(set(column.values[column.given].tolist()) <= {0.0, 1.0} for column in table.rewards.values())
    return {
        name: list(rates.bounds(estimate.interval)) if estimate.interval and _is_share(estimate, binary) else None
        for name, estimate in group.metrics.items()
    }


def _is_share(estimate: Estimate, binary: bool) -> bool:
    """Whether a number is a share of passes: pass_rate, pass@1, or a mean of rewards that are 0 or 1."""
    signature = estimate.made
    single = signature.metric == "pass_rate" or (signature.metric == "pass@{k}" and signature.k == 1)
    return single or (signature.metric == "mean_reward" and binary)


def with_error_bounds(
    result: Result,
    paths: Sequence[str | os.PathLike[str]],
    check: str,
    metrics: Sequence[str] | None,
    settings: Mapping[str, Any],
    columns: Mapping[str, str] | None = None,
) -> Result:
    """The result with bounds for a verifier that is wrong on the tasks that a self-test lists.

    ``check`` is the JSON of ``calipers check BENCHMARK --selftest``. In a task in which a wrong answer passes, every
    pass may be false, and the rewards are 0 for the lower bound. In a task in which the gold answer fails, every
    failure may be false, and the rewards are 1 for the upper bound. The bounds are the outermost ends of the intervals,
    so that they include the sampling error. Shares of passes also get `rate_bounds`, for a verifier that is wrong as
    often as the self-test allows.
    """
    probes = _probes(check)
    accepts, refuses = (
        {str(task) for probe in probes if probe["rate"] == rate for task in probe["wrong"]} for rate in RATES
    )
    known = {key: value for key, value in settings.items() if key != "truth"}
    labels = make_plan(metrics or None, **known).labels
    given = [os.fspath(path) for path in paths]
    table = read(given, columns=columns, truth=settings.get("truth"), labels=labels)
    low, high = (
        score(_with_rewards(table, tasks, reward), metrics or None, **known)
        for tasks, reward in ((accepts, 0.0), (refuses, 1.0))
    )
    tasks = set(table.tasks)
    suspicious = {"wrong answer passes": sorted(accepts & tasks), "gold answer fails": sorted(refuses & tasks)}
    rates, shares = allowed_rates(probes, float(known.get("confidence") or result.confidence)), result
    if rates is not None:
        shares = score(table, metrics or None, **{**known, "confidence": rates.confidence_of_shares})
    groups, notes = [], []
    for group, lower, upper, share in zip(result.groups, low.groups, high.groups, shares.groups, strict=True):
        bounds = {name: _outer_ends(name, (group, lower, upper)) for name in group.metrics}
        by_rates = {} if rates is None else rate_bounds(rates, share, table)
        run = {"agent": group.agent, "model": group.model, "dataset": group.dataset}
        groups.append({**run, "bounds": bounds, "rate_bounds": by_rates})
        title = f"{group.title}: " if len(result.groups) > 1 else ""
        for name in group.metrics:
            notes += [f"{title}{text}" for text in _sentences(name, group, bounds[name], by_rates.get(name), rates)]
    passing, failing = (counted(len(of_kind), "task") for of_kind in suspicious.values())
    summary = f"a wrong answer passes in {passing}, the gold answer fails in {failing}"
    errors = {
        "check": os.path.basename(check),
        "tasks": suspicious,
        "rates": None if rates is None else asdict(rates),
        "groups": groups,
    }
    notes = [*result.notes, *notes, f"suspicious tasks, by {check}: {summary}"]
    return replace(result, own={**result.own, KEY: errors}, notes=notes)


def _probes(path: str) -> list[dict[str, Any]]:
    """The probes of a self-test; InputError if the file is not the JSON of a self-test."""
    expected = "expected the output of calipers check BENCHMARK --selftest --format json"
    try:
        with open(path, "rb") as file:
            probes = json.loads(file.read())["selftest"]["probes"]
        for probe in probes:
            known = probe["rate"] in RATES and isinstance(probe["wrong"], list)
            if not known or ("asked" in probe and not 0 <= len(probe["failed"]) <= int(probe["asked"])):
                raise ValueError("a probe is none")
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise InputError.at(path, "is not the self-test of a benchmark", expected) from None
    return list(probes)


def _with_rewards(table: Rollouts, tasks: set[str], reward: float) -> Rollouts:
    """The table with ``reward`` in place of every given reward of ``tasks``."""
    replaced = np.array([task in tasks for task in table.tasks], dtype=bool)[table.task]
    rewards = {
        name: Column(np.where(replaced & column.given, reward, column.values), column.given)
        for name, column in table.rewards.items()
    }
    return replace(table, rewards=rewards)


def _outer_ends(name: str, slices: Sequence[Slice]) -> list[float] | None:
    """The lowest and the highest end of a metric's intervals; its value counts as both ends if it has no interval."""
    ends = [
        end
        for group in slices
        if (estimate := group.metrics[name]).value is not None
        for end in (estimate.interval or (estimate.value,))
    ]
    return [min(ends), max(ends)] if ends else None


def _sentences(
    name: str, group: Slice, bounds: list[float] | None, by_rates: list[float] | None, rates: ErrorRates | None
) -> Iterator[str]:
    """The notes on the bounds of a metric."""
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
