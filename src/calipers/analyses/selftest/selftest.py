"""A benchmark's verifiers tested on known answers: the gold answer must pass, all others must fail.

A verifier can give a better gold answer than the task's target as text with an optional method,
``gold(task) -> str | None``; None means that no gold answer is known for the task.
"""

from __future__ import annotations

import random
import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calipers.analyses.selftest.document import Probe, SelfTest
from calipers.clients.client import Completion
from calipers.errors import InputError, VerifierError
from calipers.metrics.metric import PASS_THRESHOLD, UNIT
from calipers.reports.figures import counted
from calipers.running.rollout import Bench, gold
from calipers.stats.intervals import interval
from calipers.tasks.task import Suite, Task
from calipers.verifiers.find import NamedVerifier, judge_of

WHAT: Final = ("gold", "empty", "echo", "random", "another's")
WORDS: Final = 12  # of a random text


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
