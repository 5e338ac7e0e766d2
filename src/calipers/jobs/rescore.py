"""A finished run judged again, without a model.

::

    log ──► batches ──► filters ──► verifiers ──► the same lines, a reward more ──► table ──► what flipped, what moved
                 └── or rewards that somebody else gave, by task and sample

The log is only read. What is written is a file of its own, whole or not there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from calipers.answers.find import find_filter
from calipers.errors import Incomplete, InputError
from calipers.jobs import papers
from calipers.jobs.beside import Beside, whole_or_nothing
from calipers.jobs.both import Both, tables
from calipers.jobs.flips import flips, moved
from calipers.jobs.imported import Imported
from calipers.jobs.job import Job
from calipers.jobs.judging import Judge
from calipers.jobs.stored import Wanted, batches, open_stored
from calipers.pipeline import score_rollouts
from calipers.plan import Plan, make_plan
from calipers.readers.files import STDIN, Source
from calipers.readers.read import uncollected
from calipers.readers.run_folder import Held
from calipers.readers.run_plan import LOG, PLAN, RunPlan, is_run, read_plan
from calipers.readers.run_stop import RESULT, STOPPED, RunStop, read_stop
from calipers.reports.flips import Rescored
from calipers.rollouts.column import Ints
from calipers.rollouts.table import Rollouts
from calipers.run.again import Bench
from calipers.run.blame import Blame
from calipers.run.log import scrubbed
from calipers.run.secrets import Secrets
from calipers.tasks.jsonl import NotThere
from calipers.tasks.store import load_suite
from calipers.tasks.task import Suite, Task

NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")


@dataclass(frozen=True, slots=True)
class Rescoring:
    """What is to be judged again, and how."""

    run: str  # the folder of a run, or a file of rollouts
    verifier: str | None = None  # None: each task's own
    params: Mapping[str, Any] = field(default_factory=dict)
    filters: Sequence[str] = ()  # NAME or NAME=SETTING, in their order
    benchmark: str | None = None  # None: the one that the run recorded
    scores: str | None = None  # a file of rewards, instead of a verifier
    columns: Mapping[str, str] = field(default_factory=dict)  # what that file calls its keys
    name: str | None = None  # of the new reward
    reward: str | None = None  # the old one that it is compared with
    metrics: Sequence[str] = ()
    by: tuple[str, ...] = ()
    out: str | None = None
    concurrency: int = 32

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InputError.at("--concurrency", f"is {self.concurrency}", "expected an integer >= 1")
        if self.scores is not None:
            judging = (self.verifier, self.params, self.filters, self.benchmark)
            for option, given in zip(("--verifier", "--param", "--filter", "--benchmark"), judging, strict=True):
                if given:
                    raise InputError.at("--scores", f"does not go with {option}", "give one or the other")
        elif self.columns:
            raise InputError.at("--columns", "there is no file of scores", "expected --scores FILE beside it")
        if not NAME.fullmatch(self.called) or self.called in ("reward", "__missing__"):
            right = "expected letters, digits, '_', '-' and '.', and not 'reward'"
            raise InputError.at("--name", f"a reward cannot be called {self.called!r}", right)

    @property
    def called(self) -> str:
        """The name of the new reward."""
        if self.name is not None:
            return self.name
        if self.scores is not None:
            return Path(self.scores).name.partition(".")[0]
        return "-".join([*(one.partition("=")[0] for one in self.filters), self.verifier or "again"])

    @property
    def target(self) -> str:
        """The file to be written."""
        if self.out is not None:
            return self.out
        if is_run(self.run):
            return os.path.join(self.run, f"rescored-{self.called}.jsonl")
        stem, _ = os.path.splitext(self.run)
        return f"{stem}.rescored-{self.called}.jsonl"


def rescore(asked: Rescoring) -> Rescored:
    """Judge the stored completions of a run again; the new rewards stand in a new file, beside the old ones.

    InputError for whatever cannot work: then nothing is written. A completion that cannot be judged
    is a gap of the new reward, and stops nothing.
    """
    _check_target(asked)
    recorded = _recorded(asked.run)
    plan = _scoring(asked, recorded)
    with (
        open_stored(asked.run) as source,
        Bench(asked.concurrency, Blame()) as bench,
        whole_or_nothing(asked.target) as write,
    ):
        judge, notes = _judge(asked, recorded, bench)
        bench.secrets.add_environment()
        with uncollected():
            table, now, codes = _rewritten(source, judge, asked, plan.labels, partial(_scrubbed, write, bench.secrets))
        if asked.called not in table.rewards:
            raise _nothing_judged(asked, judge, bench.secrets)
        old = _old(table, asked)
        return Rescored(
            path=asked.target,
            old=old,
            new=asked.called,
            rollouts=len(table),
            judged=int((codes >> 16).sum()),
            flips=flips(table, old, asked.called),
            outcomes=moved(codes >> 8 & 255, codes & 255),
            before=score_rollouts(table, replace(plan, reward=old)) if old else None,
            after=score_rollouts(now, replace(plan, reward=asked.called)),
            notes=[*notes, *(table.stop.notes if table.stop else ()), *map(bench.secrets.scrub, judge.notes())],
        )


def _scoring(asked: Rescoring, recorded: _Recorded) -> Plan:
    """How both rewards are scored; InputError for a metric that no reward moves."""
    plan = make_plan(asked.metrics or recorded.metrics or None, by=asked.by, dialect=recorded.dialect)
    rewarded = [one for one in plan.asked if set(one.metric.reads) <= {"reward", "answer"}]
    for one in plan.asked if asked.metrics else ():
        if one not in rewarded:
            raise InputError.at(
                "--metric", f"{one.text} reads no reward, so that no judge moves it", "expected one that does"
            )
    return replace(plan, asked=rewarded)


def _rewritten(
    source: Source, judge: Judge | Imported, asked: Rescoring, labels: Collection[str], write: Callable[[bytes], None]
) -> tuple[Rollouts, Rollouts, Ints]:
    """Write every line with its new reward; the rollouts before and after, and what became of each, [R]."""
    wanted, beside = Wanted(asked.called, labels), Beside(asked.called)
    both = Both(source.path, asked.called, wanted, labels)
    for batch in batches(source, wanted):
        judged = judge(batch.rows)
        worths = judged.worths()
        write(beside.lines(batch, judged, worths))
        both.add(batch, judged, worths)
    if not both.judged:
        if asked.scores is not None:
            right = "expected its tasks and samples"
            raise InputError.at(asked.scores, "has no score for any rollout of the run", right)
        right = "expected a log with completions in it; --scores FILE needs none"
        raise InputError.at(source.path, "no rollout has a completion", right)
    part = both.finish()
    if is_run(asked.run):
        plan = read_plan(asked.run)
        held, stopped = Held.of(plan, [part]), read_stop(asked.run)
        stop = stopped.of_plan(len(held.there), held.owed) if stopped else None
        for line in _owed(plan, held, stopped if stop else None):
            write(line)
        part = replace(part, stop=stop)
    return tables(part)


def _nothing_judged(asked: Rescoring, judge: Judge | Imported, secrets: Secrets) -> Incomplete:
    """The error for a run of which no completion could be judged: there is no new number to show, or to keep."""
    why = "; ".join(map(secrets.scrub, judge.reasons() if isinstance(judge, Judge) else judge.notes()))
    return Incomplete(f"{asked.run}: nothing came to a verdict, and nothing is written: {why or 'no reason given'}")


def _scrubbed(write: Callable[[bytes], None], secrets: Secrets, lines: bytes) -> None:
    """Write some lines without the keys that their judges used."""
    if secrets.scrub_bytes(lines) != lines:
        lines = b"".join(scrubbed(line, secrets.scrub_bytes) + b"\n" for line in lines.removesuffix(b"\n").split(b"\n"))
    write(lines)


def _old(table: Rollouts, asked: Rescoring) -> str | None:
    """The reward that the new one is compared with: the one asked for, `reward`, or the only one."""
    keys = [key for key in table.rewards if key != asked.called and not key.startswith(f"{asked.called}_")]
    if asked.reward is not None:
        if asked.reward not in keys:
            raise InputError.at("--reward", f"no rollout has a reward {asked.reward!r}", f"known: {', '.join(keys)}")
        return asked.reward
    if len(keys) > 1 and "reward" not in keys:
        raise InputError.at("--reward", f"there are {', '.join(keys)}", "say which to compare with")
    return "reward" if "reward" in keys else next(iter(keys), None)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What a run's plan says of how it was made; nothing for a bare file."""

    benchmark: str | None = None
    tasks: str | None = None  # the hash of their content
    metrics: Sequence[Any] = ()
    dialect: str | None = None
    lm_eval: str | None = None  # the task of lm-evaluation-harness that it is of


class _Setting(msgspec.Struct):
    value: Any = None


class _Settings(msgspec.Struct):
    settings: dict[str, _Setting] = {}


def _recorded(run: str) -> _Recorded:
    if not is_run(run):
        return _Recorded()
    plan = read_plan(run)
    try:
        settings = msgspec.json.decode((Path(run) / PLAN).read_bytes(), type=_Settings).settings
    except msgspec.DecodeError as error:
        raise InputError.at(str(Path(run) / PLAN), f"is no plan of a run ({error})") from None
    values = {name: setting.value for name, setting in settings.items()}
    tasks = plan.identity.get("tasks")
    metrics, dialect = values.get("metrics") or (), values.get("dialect")
    return _Recorded(values.get("benchmark"), tasks, metrics, dialect, values.get("lm_eval"))


def _judge(asked: Rescoring, recorded: _Recorded, bench: Bench) -> tuple[Judge | Imported, list[str]]:
    if asked.scores is not None:
        return Imported.read(asked.scores, asked.columns), []
    chain = [find_filter(one) for one in asked.filters]
    suite, notes = _suite(asked, recorded)
    tasks: dict[str, Task] = {task.id: task for task in suite.tasks}
    return Judge(tasks, chain, bench, asked.verifier, asked.params), notes


def _suite(asked: Rescoring, recorded: _Recorded) -> tuple[Suite, list[str]]:
    """The benchmark whose tasks were run; another than recorded is refused, unless it was named."""
    if asked.benchmark is None and recorded.lm_eval is not None:
        again = f"calipers run {recorded.benchmark} --model replay/{asked.run}/rollouts.jsonl"
        right = f"{again} judges it by the task as it is now"
        raise InputError.at(asked.run, "is of a task of lm-evaluation-harness", right)
    if asked.benchmark is None and recorded.benchmark is None:
        raise InputError.at(asked.run, "does not say which benchmark it is of", "give it: --benchmark DIR")
    try:
        suite = load_suite(asked.benchmark or recorded.benchmark or "")
    except NotThere as error:
        if asked.benchmark is not None:
            raise
        raise InputError.at(asked.run, f"its benchmark is gone ({error})", "give it: --benchmark DIR") from None
    if recorded.tasks is None or papers.identity(Job(suite.name, "none"), suite)["tasks"] == recorded.tasks:
        return suite, []
    where = asked.benchmark or recorded.benchmark
    if asked.benchmark is None:
        wrong = f"{where} holds other tasks than those that were run"
        raise InputError.at(asked.run, wrong, f"--benchmark {where} takes them all the same")
    return suite, [f"{where} holds other tasks than those that were run; they were judged by these all the same"]


def _check_target(asked: Rescoring) -> None:
    target = os.path.realpath(asked.target)
    if asked.run == STDIN:
        raise InputError.at("-", "a run is read from its file", "expected a folder or a file")
    if not os.path.isdir(os.path.dirname(target)):
        raise InputError.at(asked.target, f"there is no folder {os.path.dirname(asked.target)!r}", "make it first")
    if os.path.isdir(target):
        raise InputError.at(asked.target, "is a directory", "expected a file, such as rescored.jsonl")
    if os.path.basename(target) in (LOG, PLAN, STOPPED, RESULT) and is_run(os.path.dirname(target)):
        raise InputError.at(asked.target, "belongs to a run, and is never changed", "choose another --out")
    for path in filter(None, (asked.run, asked.scores)):
        if os.path.realpath(path) == target:
            raise InputError.at(asked.target, "is the file that is read", "choose another --out")


def _owed(plan: RunPlan, held: Held, stop: RunStop | None) -> Iterator[bytes]:
    """A line for each rollout that was planned and is not in the log, so that the counts of the new file add up."""
    group = {"agent": plan.agent, "model": plan.model, "dataset": plan.dataset}
    who = {key: name for key, name in group.items() if name}
    for task, samples, spared in held.lacking(plan, stop):
        outcome = "stopped_early" if spared else "not_run"
        for sample in samples:
            record = {"task": task.task, "sample": sample, "outcome": outcome, "metadata": task.metadata}
            yield msgspec.json.encode(record | who) + b"\n"
