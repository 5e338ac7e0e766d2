"""The files of a collection, and the loop that fills them.

The files are NeMo Gym's four, beside each other. Only one process at a time writes to them, and the plan only grows.
The workers of the loop send each outstanding rollout to its agent, and log the answer.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import os
import random
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

import msgspec

from calipers.clients.pace import FIRST_WAIT, LONGEST_WAIT, Pace, Shut
from calipers.clients.reply import cleaned
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, LogError
from calipers.formats import BAD
from calipers.formats.source import LONGEST_LINE, LongLine, line_blocks
from calipers.reports.figures import counted
from calipers.running.folder import differences
from calipers.running.log import Log, Scrub, is_at, put, repaired, scrubbed
from calipers.running.loop import GLANCE, MOST_ERRORS, REFUSALS, finish, interrupts, root_of
from calipers.running.rollout import line as log_line
from calipers.systems.nemo_gym import (
    AGENT,
    ATTEMPT,
    FAILURE,
    FAILURES,
    INPUTS,
    KILLED,
    LEAST_INT,
    METRICS,
    MOST_INT,
    PARAMS,
    REWARD,
    ROLLOUT,
    TASK,
    TERMINAL,
    beside,
    outcome_of,
)
from calipers.systems.nemo_gym.collect.request import Key, Row, agent_of, key_of
from calipers.systems.nemo_gym.wire import MIXED, GymAgent, ResponseModel, StoredRow, agent_name, index_fault
from calipers.typed import complete

T = TypeVar("T")

# -- the files

ANOTHER: Final = "choose another --output, or --overwrite it"


def merged_plan(path: Path, plan: list[Row]) -> tuple[list[Row], list[Row], int]:
    """Merge a plan with the plan on disk. Returns (the merged plan, the plan on disk, the rows only the latter has).

    InputError if the two differ in a rollout, or if there are rollouts without a plan.
    """
    inputs = beside(path, INPUTS)
    if not inputs.exists():
        if path.exists() and path.stat().st_size:
            problem = f"contains rollouts, but there is no {inputs.name} with the plan"
            raise InputError.at(str(path), problem, ANOTHER)
        return plan, [], 0
    before = list(_planned(inputs))
    by_key = {key_of(row): row for row in plan}
    only_before = []
    for row in before:
        new = by_key.get(key_of(row))
        if new is None:
            only_before.append(row)
        elif new != row and (difference := next(differences(row, new), None)):
            rollout = f"rollout {row[TASK]}:{row[ROLLOUT]}"
            raise InputError.at(str(path), f"contains a different collection: {rollout}: {difference}", ANOTHER)
    if not only_before and [*map(key_of, before)] == [*map(key_of, plan)]:
        return before, before, 0
    merged = [*plan, *only_before]
    if len({isinstance(row[TASK], str) for row in merged}) > 1:  # its rollouts could not be read together
        raise InputError.at(str(path), f"contains a different collection: {MIXED.partition('; ')[0]}", ANOTHER)
    return merged, before, len(only_before)


def _planned(inputs: Path) -> Iterator[Row]:
    with reading(inputs), open(inputs, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                row = {}
            faults = [index_fault(index, row.get(index, msgspec.UNSET)) for index in (TASK, ROLLOUT)]
            if any(faults) or row[ROLLOUT] < 0 or not agent_name(row) or not isinstance(row.get(PARAMS), dict):
                problem = "is not a planned rollout"
                raise InputError.at(f"{inputs}:{number}", problem, f"fix the line, or {ANOTHER}")
            yield row


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError on reading a file into an InputError of one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def on_disk(row: Row, scrub: Scrub) -> Row:
    """A row as it will be written, secrets removed, so that it can be compared with a row on disk."""
    stored: Row = msgspec.json.decode(scrubbed(msgspec.json.encode(row), scrub))
    return stored


_ROWS = msgspec.json.Decoder(complete(StoredRow))


class Files:
    """The files of a collection, locked by this process until they are closed."""

    def __init__(self, path: Path, lock: int, scrub: Scrub, created: Sequence[Path]) -> None:
        self.path = path
        self.notes: list[str] = []
        self.plan: list[Row] = []
        self.done: set[Key] = set()
        self.failures: Counter[Key] = Counter()  # the number of each rollout's attempts in the sidecar
        self.terminal: set[Key] = set()  # rollouts that failed permanently, and must not be retried
        self.models: Counter[tuple[str, str]] = Counter()  # (agent, model) -> rollouts that have succeeded
        self._lock, self._scrub, self._created = lock, scrub, created
        self._logs: dict[str, Log] = {}
        self._before: list[Path] = []  # files of an earlier collection, kept aside until this one has a line

    @classmethod
    def open(cls, path: Path, plan: Sequence[Row], scrub: Scrub, *, overwrite: bool) -> Files:
        """Begin a collection, or resume it. The earlier plan stays planned.

        InputError, before anything is written, if another process has the files, or if the plan differs from an
        earlier one in a rollout.
        """
        stored = [on_disk(row, scrub) for row in plan]
        _check_files(path)
        if before := [old for old in files_of(path) if os.path.exists(_aside(old))]:  # their process was killed
            killed = cls(path, _locked(path)[0], scrub, [])
            killed._before = before
            killed.close()
        if not overwrite:
            merged_plan(path, stored)  # raises its errors before a file is created
        lock, created = _locked(path)
        files = cls(path, lock, scrub, created)
        try:
            files._begin(stored, overwrite)
        except BaseException:
            files.close()
            raise
        return files

    @property
    def rollouts(self) -> Log:
        """The log of rollouts."""
        return self._logs[""]

    @property
    def sidecar(self) -> Log:
        """The log of failed attempts."""
        return self._logs[FAILURES]

    async def flush(self) -> None:
        """Wait until all appended lines are on disk; LogError if they cannot be written."""
        for log in self._logs.values():
            await log.flush()

    def write_metrics(self, chunks: Iterator[bytes | memoryview]) -> Path:
        """Write the metrics file atomically; LogError if it cannot be written."""
        path = beside(self.path, METRICS)
        put(path, chunks)
        return path

    def drop_metrics(self) -> None:
        """Remove the metrics file, which further rollouts make outdated; LogError if it cannot be removed."""
        path = beside(self.path, METRICS)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LogError.of(path, error) from None

    def close(self) -> None:
        """Close the logs and unlock the files; LogError if a line could not be written."""
        try:
            for log in self._logs.values():
                log.shut()
        finally:
            self._settle()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def abandon(self) -> None:
        """Close the files, and remove those that `open` created."""
        try:
            for log in self._logs.values():
                log.shut()
            if self.path in self._created:
                for path in (self.path, beside(self.path, FAILURES), beside(self.path, INPUTS)):
                    path.unlink(missing_ok=True)
                for folder in self._created[1:]:
                    with suppress(OSError):  # the folder has other files
                        folder.rmdir()
        finally:
            self.close()  # last, because it unlocks the files, and another process may then collect into them

    def _begin(self, plan: list[Row], overwrite: bool) -> None:
        sidecar, inputs = beside(self.path, FAILURES), beside(self.path, INPUTS)
        if overwrite:
            self._set_aside(files_of(self.path))
        self.plan, before, only_before = merged_plan(self.path, plan)
        if only_before:
            note = f"{counted(only_before, 'rollout')} that this command does not ask for stay planned"
            self.notes.append(f"{inputs}: {note}; choose another --output for a smaller collection")
        for path in (self.path, sidecar):
            if path.exists() and repaired(path):
                self.notes.append(f"{path}: the last line was truncated by a crash; its rollout runs again")
        self._read_collected(sidecar)
        if self.plan != before:
            put(inputs, (msgspec.json.encode(row) + b"\n" for row in self.plan))
        self._logs = {"": Log(self.path, self._scrub), FAILURES: Log(sidecar, self._scrub)}

    def _set_aside(self, old: Sequence[Path]) -> None:
        """Move the files of an earlier collection aside. The lock moves with its file, so a new one is created."""
        fresh = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}.part")
        lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in old:
            if path.exists() and (path != self.path or path.stat().st_size):
                path.replace(_aside(path))
                self._before.append(path)
        fresh.replace(self.path)
        os.close(self._lock)
        self._lock = lock

    def _settle(self) -> None:
        """Delete the files that were set aside, or restore them if this collection has no line."""
        logs = [self.path, beside(self.path, FAILURES)]
        collected = any(path.exists() and path.stat().st_size for path in logs)
        for path in self._before:
            if collected:
                _aside(path).unlink(missing_ok=True)
            else:
                _aside(path).replace(path)
        if self._before and not collected:
            for path in (beside(self.path, ending) for ending in (FAILURES, INPUTS)):
                if path not in self._before:
                    path.unlink(missing_ok=True)
        self._before = []

    def _read_collected(self, sidecar: Path) -> None:
        """Read which rollouts have succeeded, failed, or failed permanently."""
        planned = {key_of(row) for row in self.plan}
        for path in (self.path, sidecar):
            for number, line in _lines(path) if path.exists() else ():
                key = line.task, line.rollout
                if key not in planned:
                    problem = f"rollout {line.task}:{line.rollout} was never planned"
                    raise InputError.at(f"{path}:{number}", problem, ANOTHER)
                if path == sidecar or line.failure is not None:
                    self.failures[key] += 1
                    if line.terminal:
                        self.terminal.add(key)
                elif key in self.done:
                    problem = f"rollout {line.task}:{line.rollout} also appears in an earlier line"
                    raise InputError.at(f"{path}:{number}", problem, "expected it once; remove one of the lines")
                else:
                    self.done.add(key)
                    self.models[_part(line.agent, GymAgent).name or "", _part(line.response, ResponseModel).model] += 1


def files_of(path: Path) -> list[Path]:
    """The four files of a collection."""
    return [path, *(beside(path, ending) for ending in (FAILURES, INPUTS, METRICS))]


def _check_files(path: Path) -> None:
    """InputError if a file of rows cannot exist, or is a directory or a device."""
    for file in (path, beside(path, FAILURES), beside(path, INPUTS)):
        try:
            mode = file.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise InputError.at(str(file), f"cannot be written ({error.strerror})", "choose another --output") from None
        if not stat.S_ISREG(mode):
            problem = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
            raise InputError.at(str(file), problem, "expected a file, such as rollouts.jsonl")


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")


def _lines(path: Path) -> Iterator[tuple[int, StoredRow]]:
    """The rows of a file, each with its line number."""
    number = 0
    try:
        with reading(path), open(path, "rb", buffering=0) as file:
            for block in line_blocks(file.readinto):
                for line in bytes(block).removesuffix(b"\n").split(b"\n"):
                    number += 1
                    if line.strip():
                        yield number, _line(path, number, line)
    except LongLine:
        raise InputError.at(str(path), f"a line is longer than {LONGEST_LINE >> 20} MiB", ANOTHER) from None


def _line(path: Path, number: int, line: bytes) -> StoredRow:
    try:
        return _ROWS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        with suppress(ValueError, RecursionError, msgspec.ValidationError):
            return msgspec.convert(
                json.loads(line), complete(StoredRow)
            )  # accepts NaN, which other programs may have written
        problem = f"is not a rollout ({error})"
        expected = "fix the line, or remove it to run its rollout again"
        raise InputError.at(f"{path}:{number}", problem, expected) from None


def _part(raw: msgspec.Raw, kind: type[T]) -> T:
    """A part of a stored row; the default values if the row does not have it, or it has another form."""
    try:
        return msgspec.json.decode(raw or b"{}", type=complete(kind))
    except BAD:
        return kind()


def _locked(path: Path) -> tuple[int, list[Path]]:
    """Open and lock the file of rollouts. Also returns the file and folders that were created, the deepest first."""
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written ({error.strerror})", "choose another --output") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(lock, path):
            raise BlockingIOError
    except OSError:
        os.close(lock)
        problem = "another process is collecting into it"
        raise InputError.at(str(path), problem, "wait for it, or choose another --output") from None
    return lock, created


# -- the loop

_encode = msgspec.json.Encoder().encode


class CollectedAgent(Protocol):
    """An agent that makes rollouts. Many workers of one event loop call ``run`` concurrently."""

    async def run(self, row: Row) -> Row:
        """The rollout of a planned row, with its verdict; `ClientError` if there is none."""
        ...

    async def aggregate(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The agent's own metrics of its rows; None if it computes none."""
        ...

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        ...


@dataclass(slots=True)
class Lane:
    """An agent, its rate limit, and whether it still answers."""

    name: str
    agent: CollectedAgent
    pace: Pace
    called: bool = False  # a call was sent
    opened: asyncio.Event = field(default_factory=asyncio.Event)  # the first call ended, or has lasted `DOUBT`
    answered: bool = False  # at least one call returned a rollout
    refusals: int = 0  # consecutive refused calls
    stopped: str = ""  # why no more calls are sent; "" while they are
    unasked: int = 0  # rollouts that remain outstanding because their call was refused
    last: str = ""  # the error of the last of these
    not_stored: int = 0  # rollouts that remain outstanding because the agent asked not to store them

    def stop(self, reason: str) -> None:
        """Send no more calls to this agent."""
        self.stopped = self.stopped or reason
        self.pace.shut()


@dataclass(slots=True)
class LaneStanding:
    """The progress of a collection."""

    planned: int
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # (outcome, message), at most `MOST_ERRORS` kinds
    began: float = field(default_factory=monotonic)
    stopped: str = ""  # why no more rollouts are started; "" while they are
    lanes: Sequence[Lane] = ()
    retries: int = 0  # retried calls since this start

    @property
    def done(self) -> int:
        """The number of rollouts with an outcome."""
        return sum(self.outcomes.values())

    @property
    def in_flight(self) -> int:
        """The number of calls in flight."""
        return sum(lane.pace.in_flight for lane in self.lanes)

    @property
    def pause(self) -> float:
        """The seconds for which every agent that still answers has asked not to be called."""
        return min((lane.pace.pause for lane in self.lanes if not lane.stopped), default=0.0)


DOUBT = 1.0  # seconds until calls no longer wait for the first one: a wrong address fails sooner than that
OWN_FAULTS = 2  # retries after HTTP 500: the agent probably fails at this row again, and a rollout may be expensive


class Collector:
    """The loop of a collection: concurrent workers send outstanding rollouts to their agents."""

    def __init__(
        self,
        agents: Mapping[str, CollectedAgent],
        files: Files,
        standing: LaneStanding,
        *,
        concurrency: int,
        retries: int,
        secrets: Secrets,
        look: Callable[[LaneStanding], None],
    ) -> None:
        self._lanes = {name: Lane(name, agent, Pace(concurrency)) for name, agent in agents.items()}
        standing.lanes = list(self._lanes.values())
        self._files, self._standing, self._look = files, standing, look
        self._concurrency, self._retries, self._secrets = concurrency, retries, secrets
        self._random = random.Random()
        self._outstanding: Iterator[Row] = iter(())
        self._stopping = asyncio.Event()

    def conduct(self, outstanding: Iterator[Row]) -> None:
        """Collect until the end, also inside a running event loop. LogError for a full disk.

        After a first Ctrl-C, calls in flight are finished. A second one cancels them, and their rollouts remain
        outstanding.
        """

        async def collect() -> None:
            with interrupts(lambda: self.stop("interrupted")):
                try:
                    await self.run(outstanding)
                except asyncio.CancelledError:  # the second Ctrl-C
                    self.stop("interrupted")
                finally:
                    with suppress(asyncio.CancelledError):  # a further Ctrl-C: connections are dropped
                        for lane in self._lanes.values():
                            await lane.agent.close()

        finish(collect)

    async def run(self, outstanding: Iterator[Row]) -> None:
        """Make every outstanding rollout, until `stop` or until no agent answers."""
        self._outstanding = outstanding
        looking = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._concurrency):
                    workers.create_task(self._worker())
        except BaseExceptionGroup as errors:
            raise root_of(errors) from None
        finally:
            looking.cancel()
            await self._files.flush()

    def stop(self, reason: str) -> None:
        """Start no more rollouts. Calls in flight are finished; rollouts that wait for a retry remain outstanding."""
        self._standing.stopped = self._standing.stopped or reason
        self._outstanding = iter(())
        self._stopping.set()
        for lane in self._lanes.values():
            lane.pace.shut()

    async def _worker(self) -> None:
        while (row := next(self._outstanding, None)) is not None:
            await self._rollout(row)

    async def _rollout(self, row: Row) -> None:
        lane = self._lanes[agent_of(row)]
        try:
            line = await self._answer(lane, row)
        except Shut:
            return  # it remains outstanding
        except ClientError as error:
            if error.hopeless:  # the fault is not in this rollout, so it remains outstanding
                lane.unasked, lane.last = lane.unasked + 1, str(error)
                return
            line = failed(row, error, self._secrets)
        if line.get(KILLED):
            lane.not_stored += 1
            return
        if is_failure(line):
            before = self._files.failures.get(key_of(row), 0)
            await self._files.sidecar.append(log_line(attempted(line, before)))
            self._count_error(line)
        else:
            await self._files.rollouts.append(log_line(line))
        self._standing.outcomes[outcome(line)] += 1

    def _count_error(self, line: Row) -> None:
        error = outcome(line), cleaned(reason(line), self._secrets)
        if error in self._standing.errors or len(self._standing.errors) < MOST_ERRORS:
            self._standing.errors[error] += 1

    async def _answer(self, lane: Lane, row: Row) -> dict[str, Any]:
        """The agent's answer to a row. ClientError after the last try, Shut if the collection stops before it."""
        if lane.called:
            await lane.opened.wait()
        else:
            lane.called = True
            asyncio.get_running_loop().call_later(DOUBT, lane.opened.set)
        tried = 0
        try:
            while True:
                try:
                    return await self._call(lane, row)
                except ClientError as error:
                    if error.hopeless and not lane.opened.is_set():
                        lane.stop(str(error))
                        raise
                    lane.opened.set()
                    if error.slow_down:
                        lane.pace.too_many(error.wait)
                    if not error.retry or tried == min(self._retries, _most_tries(error)):
                        self._count_refusal(lane, error)
                        raise
                    await self._wait(error, tried)
                    tried += 1
                    self._standing.retries += 1
        finally:
            lane.opened.set()

    async def _call(self, lane: Lane, row: Row) -> dict[str, Any]:
        await lane.pace.enter()
        try:
            answer = await lane.agent.run(row)
        finally:
            lane.pace.leave()
        lane.answered = True
        lane.refusals = 0
        lane.pace.succeeded()
        return collected(row, answer)

    def _count_refusal(self, lane: Lane, error: ClientError) -> None:
        """Count a refusal, and stop the lane after `REFUSALS` in a row; its rollouts remain outstanding."""
        lane.refusals += error.hopeless
        if lane.refusals >= REFUSALS:
            lane.stop(f"{lane.refusals} requests in a row were refused; the last error: {error}")

    async def _wait(self, error: ClientError, tried: int) -> None:
        """Wait before the next try: as long as the server asks, or for a random time with exponential backoff."""
        wait = self._random.uniform(0, _longest(tried)) if error.wait is None else error.wait
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait)
            raise Shut  # the collection stops, and this rollout remains outstanding

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(GLANCE)
            self._look(self._standing)


AggregateAnswer = dict[str, Any] | ClientError | None
"""An agent's own metrics, or the error of the call; None if the agent computes none."""


def aggregated(
    agents: Mapping[str, CollectedAgent], rows: Mapping[str, list[dict[str, Any]]], retries: int
) -> dict[str, AggregateAnswer]:
    """Each agent's own metrics of its rows; all agents are called concurrently."""

    async def metrics_of(agent: CollectedAgent, agent_rows: list[dict[str, Any]]) -> AggregateAnswer:
        most, tried = min(retries, OWN_FAULTS), 0
        while True:
            try:
                return await agent.aggregate(agent_rows)
            except ClientError as error:
                if not error.retry or tried == most:
                    return error
                await asyncio.sleep(error.wait if error.wait is not None else random.uniform(0, _longest(tried)))
            tried += 1

    async def metrics_of_all() -> dict[str, AggregateAnswer]:
        try:
            calls = (metrics_of(agents[name], agent_rows) for name, agent_rows in rows.items())
            answers = await asyncio.gather(*calls)
        finally:
            for agent in agents.values():
                await agent.close()
        return dict(zip(rows, answers, strict=True))

    return finish(metrics_of_all)


def _most_tries(error: ClientError) -> float:
    return OWN_FAULTS if error.kind.endswith("http_500") else float("inf")


def _longest(tried: int) -> float:
    return float(min(LONGEST_WAIT, FIRST_WAIT * 2**tried))


def collected(row: Row, answer: Row) -> dict[str, Any]:
    """The rollout in an agent's answer: the answer's keys, and those of the planned row's task, rollout and agent.

    ClientError, without a retry, for an answer that cannot be aggregated: without a reward, or with an integer beyond
    64 bits.
    """
    answer = {**answer, **_marks(answer)}
    if is_failure(answer) or answer.get(KILLED):
        return {**answer, **_identity(row)}
    reward = answer.get(REWARD)
    if reward is None:
        raise _unusable("there is no reward; expected a number")
    if not isinstance(reward, (int, float)):
        raise _unusable(f"reward is {_encode(reward)[:40].decode(errors='replace')}; expected a number")
    if isinstance(reward, float) and not math.isfinite(reward):
        raise _unusable(f"reward is {reward}; expected a finite number")
    response = answer.get("response")
    if response is not None and not isinstance(response, Mapping):
        raise _unusable("response is not an object")
    usage = (response or {}).get("usage")
    if usage is not None and not isinstance(usage, Mapping):
        raise _unusable("response.usage is not an object")
    for name, value in [*answer.items(), *(usage or {}).items()]:
        if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT:
            raise _unusable(f"{name} needs more than 64 bits; expected a smaller integer")
    return {**answer, **_identity(row)}


def _unusable(message: str) -> ClientError:
    return ClientError(message, kind="malformed")


def _marks(answer: Row) -> dict[str, Any]:
    """An answer's marks of failure as text and as a boolean, because `StoredRow` accepts no other types."""
    marks: dict[str, Any] = {}
    word = answer.get(FAILURE)
    if word is not None and not isinstance(word, str):
        marks[FAILURE] = _encode(word)[:200].decode(errors="replace")
    if answer.get(TERMINAL) is not None:
        marks[TERMINAL] = bool(answer[TERMINAL])
    return marks


def is_failure(row: Row) -> bool:
    """Whether a row is marked as a failed attempt, by an agent, by a verifier, or by `failed`."""
    return row.get(FAILURE) is not None


def failed(row: Row, error: ClientError, secrets: Secrets) -> dict[str, Any]:
    """The sidecar's row for an attempt without an answer."""
    problem = {"kind": error.kind, "message": secrets.scrub(str(error))}
    return {FAILURE: error.kind, "error": problem, **_identity(row)}


def attempted(row: Row, before: int) -> Row:
    """A failed attempt with its number, unless it is the first."""
    return {**row, ATTEMPT: before} if before else row


def outcome(row: Row) -> str:
    """The outcome of a row, as the reader of NeMo Gym's files determines it."""
    return outcome_of(row[FAILURE]) if is_failure(row) else "scored"


def reason(row: Row) -> str:
    """Why an attempt failed: the message of its error, the reason from `calipers serve`, or else the failure class."""
    error = row.get("error")
    message = error.get("message") if isinstance(error, Mapping) else row.get("failure_reason")
    return str(message or row[FAILURE])


def _identity(row: Row) -> dict[str, Any]:
    return {TASK: row[TASK], ROLLOUT: row[ROLLOUT], AGENT: row[AGENT]}
