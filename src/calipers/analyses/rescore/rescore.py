"""A finished run judged again, without a model.

::

    log ──► batches ──► filters ──► verifiers ──► the same lines, a reward more ──► table ──► what flipped, what moved
                 └── or rewards that somebody else gave, by task and sample

The log is only read. What is written is a file of its own, whole or not there.

New columns beside the old: a record with one more reward, in which every older number stays what it was.

Of a reward called NAME a line gets ``rewards.NAME``, ``NAME_answer``, ``NAME_outcome`` where that is not `scored`,
and whatever else the judge said as ``NAME_...``. A record has one outcome for all its rewards, so that it must
change where it would hide the new number, or make one of what is a gap; then it is `scored`, each reward is given
or absent by itself, and the old ones still contribute what they did.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET

from calipers.analyses.rescore.document import Flip, Rescored
from calipers.analyses.rescore.judging import BatchJudge, Judged
from calipers.analyses.rescore.stored import NOTHING_CAME, Batch, Stored, Wanted, batches, open_stored
from calipers.clients.secrets import Secrets
from calipers.errors import Incomplete, InputError, LogError
from calipers.formats.read import uncollected
from calipers.formats.rows import BadRow, Gather
from calipers.formats.run_folder import PlanCoverage
from calipers.formats.run_plan import (
    LOG,
    PLAN,
    RESULT,
    STOPPED,
    RunPlan,
    RunStop,
    is_run,
    read_plan,
    read_settings,
    read_stop,
)
from calipers.formats.source import STDIN, Source
from calipers.metrics.metric import PASS_THRESHOLD
from calipers.names import TASK_LIBRARY_NAME
from calipers.pipeline import read, score_rollouts
from calipers.reports.figures import counted
from calipers.request import Plan, make_plan
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.ledger import contributed
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, GROUP, MISSING, OUTCOMES, SCORED
from calipers.rollouts.table import Rollouts, assemble
from calipers.running import provenance
from calipers.running.blame import Bench, Blame
from calipers.running.job import Job
from calipers.running.log import scrubbed, sync_directory
from calipers.tasks.jsonl import NotThere
from calipers.tasks.store import load_suite
from calipers.tasks.task import Suite, Task
from calipers.text.filters import find_filter

GAPS: Final = frozenset(word for word, code in CODE.items() if code >= FIRST_GAP)
_encode = msgspec.json.Encoder().encode
_ROW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Beside:
    """Writes the lines of one new reward."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = _encode(name)
        self._outcome = b"," + _encode(f"{name}_outcome") + b":"
        self._answer = b"," + _encode(f"{name}_answer") + b":"
        self._tails: dict[tuple[float | None, str, bool], bytes] = {}

    def lines(self, batch: Batch, judged: Judged, worths: Sequence[float | None]) -> bytes:
        """The lines of a batch with what was judged; ``worths`` is what each of them contributes."""
        pieces: list[bytes] = []
        add, data, tails, start = pieces.append, batch.data, self._tails, 0
        special = judged.more.keys() | judged.many.keys()
        columns = zip(batch.rows, batch.ends, worths, judged.outcomes, judged.answers, strict=True)
        for row, (stored, end, worth, outcome, answer) in enumerate(columns):
            begun = data[start : end - 1]  # all but the last brace
            start = end + 1
            line = begun if outcome == "scored" == stored.outcome else _with_outcome(begun, stored, worth)
            if line is None or stored.rewards is not UNSET or stored.before is not None or row in special:
                add(self._rewritten(row, batch, judged, worth))
                continue
            add(line)
            add(tails.get((worth, outcome, answer is None)) or self._tail(worth, outcome, answer is None))
            if answer is not None:
                add(_encode(answer))
                add(b"}\n")
        return b"".join(pieces)

    def _tail(self, worth: float | None, outcome: str, silent: bool) -> bytes:
        """What follows the old keys: up to the answer where there is one, else to the end of the line."""
        given = b"" if worth is None else b',"rewards":{' + self._key + b":" + _encode(worth) + b"}"
        said = b"" if outcome == "scored" else self._outcome + _encode(outcome)
        tail = given + said + (b"}\n" if silent else self._answer)
        if len(self._tails) < 10_000:
            self._tails[worth, outcome, silent] = tail
        return tail

    def _rewritten(self, row: int, batch: Batch, judged: Judged, worth: float | None) -> bytes:
        """A line with more to it than a reward at its end: taken apart and put together again."""
        stored, said, name = batch.rows[row], judged.outcomes[row], self._name
        rewards = {name: worth, **{f"{name}_{key}": value for key, value in judged.many.get(row, {}).items()}}
        decoded: dict[str, Any] = _ROW.decode(batch.line(row))
        record = {key: value for key, value in decoded.items() if not key.startswith(f"{name}_")}
        held = {key: value for key, value in (stored.rewards or {}).items() if key not in rewards}
        outcome = stored.outcome
        if outcome in GAPS and worth is not None:
            record.pop("reward", None)  # it stood beside a gap, and counted for nothing
            held, outcome = {}, "scored"
        elif outcome not in (None, "scored", *GAPS) and (worth is None or _hides(outcome, worth)):
            outcome = "scored"
            if stored.reward is None and not held:
                record["reward"] = 0.0  # what the old outcome contributed
        if outcome != stored.outcome:
            record["outcome"] = outcome
        held |= {key: value for key, value in rewards.items() if value is not None}
        record.pop("rewards", None)
        if held:
            record["rewards"] = held
        mine = {
            "outcome": None if said == "scored" else said,
            "answer": judged.answers[row],
            **judged.more.get(row, {}),
        }
        return _encode(record | {f"{name}_{key}": value for key, value in mine.items() if value is not None}) + b"\n"


def _hides(outcome: str | None, worth: float | None) -> bool:
    """Whether an outcome makes 0 of the new number, as it does of every other."""
    return bool(worth) and FIRST_NIL <= CODE[str(outcome)] < FIRST_GAP


def _with_outcome(line: bytes, stored: Stored, worth: float | None) -> bytes | None:
    """The line, if its outcome lets old and new be what they are, or with another in its place; None if not easily."""
    outcome = stored.outcome
    if outcome in (None, "scored") or ((outcome in GAPS) == (worth is None) and not _hides(outcome, worth)):
        return line
    if worth is None or stored.reward is not None or outcome not in GAPS:
        return None
    written = b'"outcome":"' + str(outcome).encode() + b'"'
    place = line.find(written)
    if place < 0 or line.find(b"{", 1, place) >= 0:  # none, or perhaps one of an object inside
        return None
    return line[:place] + b'"outcome":"scored"' + line[place + len(written) :]


@contextmanager
def whole_or_nothing(path: str) -> Iterator[Callable[[bytes], None]]:
    """What writes to a file that takes its place when all is written; LogError when it cannot be."""
    real = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(real), f".{os.path.basename(real)[:100]}.{os.urandom(4).hex()}.part")
    try:
        file = open(beside, "xb", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise InputError.at(path, f"cannot be written ({error.strerror})", "choose another --out") from None

    def write(data: bytes) -> None:
        left = memoryview(data)
        with _told(path):
            while left:
                left = left[file.write(left) :]

    try:
        with file:
            yield write
            with _told(path):
                os.fsync(file.fileno())
                os.replace(beside, real)
                sync_directory(Path(real).parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogError.of(path, error) from None


_CODES: Final = "\0codes"  # a column that no file can have
_ANSWER: Final = "\0answer"


class OldAndNewRewards:
    """The rewards of rollouts before and after; what either contributes is given, all else is a gap."""

    def __init__(self, path: str, name: str, wanted: Wanted, labels: Collection[str]) -> None:
        self._places, self._name, self._wanted, self._labels = Places(path), name, wanted, labels
        self._gather = Gather()
        self._codes: list[int] = []  # of each row whether it was judged, its old outcome, its new one, a byte each
        self._votes = "answer" in labels

    def add(self, batch: Batch, judged: Judged, worths: Sequence[float | None]) -> None:
        """Take in a batch and what was judged."""
        gather, rows = self._gather, batch.rows
        first, last = batch.numbers[0], batch.numbers[-1]
        for number, row in zip(batch.numbers, rows, strict=True):
            if row.reward is None and row.outcome == "scored" and not any((row.rewards or {}).values()):
                self._check_rewarded(number, row)
        self._places.add(gather.rows, first if last - first + 1 == len(rows) else np.array(batch.numbers))
        gather.tasks([row.task for row in rows])
        gather.whole("sample", [row.sample for row in rows])
        gather.whole("attempt", [row.attempt for row in rows])
        gather.numbers("reward", "reward", [row.reward for row in rows])
        for key in {key for row in rows if row.rewards for key in row.rewards} - {self._name}:
            gather.numbers("reward", key, [(row.rewards or {}).get(key) for row in rows])
        gather.numbers("reward", self._name, worths)
        for key in GROUP:
            names = [getattr(row, key) for row in rows]
            if set(names) != {None}:
                gather.labels(key, names)
        for label, raws in self._wanted.labels(rows):
            gather.labels(label, raws)
        if self._votes:
            answers = [None if answer is None else msgspec.json.encode(answer) for answer in judged.answers]
            gather.labels(f"raw:{_ANSWER}", answers)
        columns = zip(rows, judged.outcomes, judged.seen, strict=True)
        self._codes += [seen << 16 | _old_code(row) << 8 | CODE[now] for row, now, seen in columns]
        gather.rows += len(rows)

    def _check_rewarded(self, line: int, row: Any) -> None:
        if all(reward is None for reward in (row.rewards or {}).values()):
            right = "expected a number in reward or rewards, or another outcome"
            raise InputError.at(f"{self._places.path}:{line}", "outcome is 'scored' but there is no reward", right)

    @property
    def judged(self) -> int:
        """How many rows there was anything to judge in."""
        return sum(code >> 16 for code in self._codes)

    def finish(self) -> Part:
        """Everything gathered."""
        try:
            part = self._gather.finish(self._places, [*self._labels, *([_ANSWER] if self._votes else [])])
        except BadRow as error:
            row, wrong, right = error.args
            raise InputError.at(self._places.of(row), wrong, right) from None
        codes = np.array(self._codes, dtype=np.int64)
        was = codes >> 8 & 255
        own = (was < FIRST_GAP) & (was != SCORED)
        rewards = {}
        for key, column in part.rewards.items():
            given = column.given & ((was < FIRST_GAP) | (key == self._name))
            nothing = own & ~given if key == "reward" else np.zeros(len(own), dtype=bool)
            rewards[key] = Column(np.where(given, column.values, 0.0), given | nothing)
        any_given = np.logical_or.reduce([column.given for column in rewards.values()])
        outcome = np.where(any_given, SCORED, np.where(was < FIRST_GAP, MISSING, was)).astype(np.uint8)
        return replace(part, rewards=rewards, outcome=outcome, columns={_CODES: Column.of(codes)})


def tables(part: Part) -> tuple[Rollouts, Rollouts, Ints]:
    """The rollouts with the old answers, with the new ones, and the codes of what became of each, [R]."""
    table = assemble([part])
    codes = table.columns.pop(_CODES).values.astype(np.int64)
    answer = table.labels.pop(_ANSWER, None)
    after = table if answer is None else replace(table, labels={**table.labels, "answer": answer})
    return table, after, codes


def _old_code(row: Any) -> int:
    if row.outcome is not None:
        return CODE[row.outcome]
    return MISSING if row.reward is None and not row.rewards else SCORED


NAMED = 1000  # rollouts of a kind that are named at all


def flips(table: Rollouts, old: str | None, new: str) -> list[Flip]:
    """Where every rollout went from one reward to the other; the kinds add up to all of them."""
    before = contributed(table, old) if old else Column.gaps(len(table))
    after = contributed(table, new)
    one, two = before.given & (before.values >= PASS_THRESHOLD), after.given & (after.values >= PASS_THRESHOLD)
    both = before.given & after.given
    same = (both & (before.values == after.values)) | ~(before.given | after.given)
    kinds: dict[str, Bools] = {
        "pass to fail": both & one & ~two,
        "fail to pass": both & ~one & two,
        "other reward": both & (one == two) & ~same,
        "number to gap": before.given & ~after.given,
        "gap to number": ~before.given & after.given,
    }
    found = [_flip(what, table, rows) for what, rows in kinds.items()]
    return [*found, Flip("the same", int(same.sum()), ())]


def moved(before: Ints, after: Ints) -> Mapping[str, tuple[int, int]]:
    """How many rollouts had each outcome, and have, by codes of the ledger, [R] each."""
    counts = [np.bincount(codes, minlength=len(OUTCOMES)).tolist() for codes in (before, after)]
    return {word: (one, two) for word, one, two in zip(OUTCOMES, *counts, strict=True) if one or two}


def _flip(what: str, table: Rollouts, rows: Bools) -> Flip:
    places = np.flatnonzero(rows)
    which = [(table.tasks[int(table.task[row])], int(table.sample[row])) for row in places[:NAMED]]
    return Flip(what, len(places), which)


class Imported:
    """A reward for each (task, sample) that the file has; a rollout it does not have is `missing`."""

    def __init__(self, path: str, rewards: Mapping[tuple[str, int], float]) -> None:
        self._path, self._rewards = path, rewards
        self._used: set[tuple[str, int]] = set()
        self._empty: set[tuple[str, int]] = set()  # scores of rollouts that have no completion to score
        self._without = 0

    @classmethod
    def read(cls, path: str, columns: Mapping[str, str]) -> Imported:
        """The rewards of a file of rollouts, in any format there is; ``columns`` is what it calls its keys."""
        table = read(path, columns=columns)
        if len(table.keys) > 1:
            raise InputError.at(path, f"has {len(table.keys)} groups (agent, model, dataset)", "expected one")
        if "reward" not in table.rewards and len(table.rewards) != 1:
            known = ", ".join(table.rewards) or "none"
            raise InputError.at(path, f"no reward (there is {known})", "name it: --columns reward=KEY")
        given = table.rewards.get("reward") or next(iter(table.rewards.values()))
        odd = np.flatnonzero(given.given & ~np.isfinite(given.values))
        if len(odd):
            task = table.tasks[int(table.task[odd[0]])]
            raise InputError.at(path, f"the reward of task {task!r} is no finite number", "expected one, or none")
        keys = zip((table.tasks[task] for task in table.task.tolist()), table.sample.tolist(), strict=True)
        rows = zip(keys, given.values.tolist(), given.given.tolist(), strict=True)
        return cls(path, {key: value for key, value, there in rows if there})

    def __call__(self, rows: Sequence[Stored]) -> Judged:
        """The rewards of some stored rollouts."""
        found = Judged(
            [None] * len(rows), [row.outcome or "missing" for row in rows], [None] * len(rows), [False] * len(rows)
        )
        for place, row in enumerate(rows):
            key = str(row.task), row.sample
            reward = self._rewards.get(key)
            if row.outcome in NOTHING_CAME:
                if reward is not None:
                    self._empty.add(key)
                continue
            if reward is None:
                self._without += 1
                found.outcomes[place] = "missing"
                continue
            self._used.add(key)
            found.rewards[place], found.outcomes[place], found.seen[place] = reward, "scored", True
        return found

    def notes(self) -> list[str]:
        """What matched nothing, on either side."""
        strange = len(self._rewards.keys() - self._used - self._empty)
        said = []
        if self._without:
            said.append(f"{counted(self._without, 'rollout')} without a score in it: a gap each")
        if strange:
            said.append(f"{counted(strange, 'score')} for no rollout of the run: not used")
        if self._empty:
            said.append(f"{counted(len(self._empty), 'score')} for rollouts that brought no completion: not used")
        return [f"{self._path}: {one}" for one in said]


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
    source: Source,
    judge: BatchJudge | Imported,
    asked: Rescoring,
    labels: Collection[str],
    write: Callable[[bytes], None],
) -> tuple[Rollouts, Rollouts, Ints]:
    """Write every line with its new reward; the rollouts before and after, and what became of each, [R]."""
    wanted, beside = Wanted(asked.called, labels), Beside(asked.called)
    both = OldAndNewRewards(source.path, asked.called, wanted, labels)
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
        held, stopped = PlanCoverage.of(plan, [part]), read_stop(asked.run)
        stop = stopped.of_plan(len(held.there), held.owed) if stopped else None
        for line in _owed(plan, held, stopped if stop else None):
            write(line)
        part = replace(part, stop=stop)
    return tables(part)


def _nothing_judged(asked: Rescoring, judge: BatchJudge | Imported, secrets: Secrets) -> Incomplete:
    """The error for a run of which no completion could be judged: there is no new number to show, or to keep."""
    why = "; ".join(map(secrets.scrub, judge.reasons() if isinstance(judge, BatchJudge) else judge.notes()))
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


def _recorded(run: str) -> _Recorded:
    if not is_run(run):
        return _Recorded()
    plan, values = read_plan(run), read_settings(run)
    tasks = plan.identity.get("tasks")
    metrics, dialect = values.get("metrics") or (), values.get("dialect")
    return _Recorded(values.get("benchmark"), tasks, metrics, dialect, values.get(TASK_LIBRARY_NAME))


def _judge(asked: Rescoring, recorded: _Recorded, bench: Bench) -> tuple[BatchJudge | Imported, list[str]]:
    if asked.scores is not None:
        return Imported.read(asked.scores, asked.columns), []
    chain = [find_filter(one) for one in asked.filters]
    suite, notes = _suite(asked, recorded)
    tasks: dict[str, Task] = {task.id: task for task in suite.tasks}
    return BatchJudge(tasks, chain, bench, asked.verifier, asked.params), notes


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
    if recorded.tasks is None or provenance.identity(Job(suite.name, "none"), suite)["tasks"] == recorded.tasks:
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


def _owed(plan: RunPlan, held: PlanCoverage, stop: RunStop | None) -> Iterator[bytes]:
    """A line for each rollout that was planned and is not in the log, so that the counts of the new file add up."""
    group = {"agent": plan.agent, "model": plan.model, "dataset": plan.dataset}
    who = {key: name for key, name in group.items() if name}
    for task, samples, spared in held.lacking(plan, stop):
        outcome = "stopped_early" if spared else "not_run"
        for sample in samples:
            record = {"task": task.task, "sample": sample, "outcome": outcome, "metadata": task.metadata}
            yield msgspec.json.encode(record | who) + b"\n"
