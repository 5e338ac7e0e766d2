"""The loop of a collection, and its files.

The files are NeMo Gym's four, beside each other, one process at a time; the plan only grows. The loop's workers post
what is outstanding to its agent, and log what its answer becomes.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

import msgspec

from calipers.clients.pace import FIRST_WAIT, LONGEST_WAIT, Pace, Shut
from calipers.clients.reply import cleaned
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, LogError
from calipers.formats.source import LONGEST_LINE, LongLine, line_blocks
from calipers.running.folder import differences, is_at
from calipers.running.log import Log, Scrub, put, repaired, scrubbed
from calipers.running.loop import GLANCE, MOST_ERRORS, REFUSALS, finish, interrupts, root_of
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
    REWARD,
    ROLLOUT,
    TASK,
    TERMINAL,
    beside,
    outcome_of,
)
from calipers.systems.nemo_gym.collect.request import Key, Row, agent_of, key_of
from calipers.systems.nemo_gym.wire import StoredRow

# -- the files

ANOTHER: Final = "choose another --output, or --overwrite it"


def grown(path: Path, plan: list[Row]) -> tuple[list[Row], list[Row], int]:
    """The plan asked for and all that was planned before; the plan before; how many rollouts only that one has."""
    inputs = beside(path, INPUTS)
    if path.is_dir():
        raise InputError.at(str(path), "is a directory", "expected a file, such as rollouts.jsonl")
    if not inputs.exists():
        if path.exists() and path.stat().st_size:
            wrong = f"contains rollouts, but there is no {inputs.name} with the plan"
            raise InputError.at(str(path), wrong, ANOTHER)
        return plan, [], 0
    before = list(_planned(inputs))
    wanted = {key_of(row): row for row in plan}
    gone = []
    for row in before:
        new = wanted.get(key_of(row))
        if new is None:
            gone.append(row)
        elif new != row and (difference := next(differences(row, new), None)):
            where = f"rollout {row[TASK]}:{row[ROLLOUT]}"
            raise InputError.at(str(path), f"contains a different collection: {where}: {difference}", ANOTHER)
    if not gone and [*map(key_of, before)] == [*map(key_of, plan)]:
        return before, before, 0
    return [*plan, *gone], before, len(gone)


def _planned(inputs: Path) -> Iterator[Row]:
    with reading(inputs), open(inputs, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = msgspec.json.decode(line)
                key_of(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
                wrong = "is not a planned rollout"
                raise InputError.at(f"{inputs}:{number}", wrong, f"fix the line, or {ANOTHER}") from None
            yield row


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def on_disk(row: Row, scrub: Scrub) -> Row:
    """A row as it will stand on disk: what is compared must be what was written."""
    stored: Row = msgspec.json.decode(scrubbed(msgspec.json.encode(row), scrub))
    return stored


_ROWS = msgspec.json.Decoder(StoredRow)


class Files:
    """The files of a collection, held by this process until they are closed."""

    def __init__(self, path: Path, lock: int, scrub: Scrub, made: Sequence[Path]) -> None:
        self.path = path
        self.notes: list[str] = []
        self.plan: list[Row] = []
        self.done: set[Key] = set()
        self.failures: Counter[Key] = Counter()  # attempts in the sidecar
        self.terminal: set[Key] = set()  # those that nobody may try again
        self._lock, self._scrub, self._made = lock, scrub, made
        self._logs: dict[str, Log] = {}
        self._before: list[Path] = []  # files of an earlier collection, set aside until something came of this one

    @classmethod
    def open(cls, path: Path, plan: Sequence[Row], scrub: Scrub, *, overwrite: bool) -> Files:
        """Begin a collection, or go on with it: nobody else may, and what is planned already must be the same.

        What was planned before stays planned. InputError says what differs, before anything is written.
        """
        stored = [on_disk(row, scrub) for row in plan]
        if not overwrite:
            grown(path, stored)  # refuses before there is anything to take back
        lock, made = _locked(path)
        files = cls(path, lock, scrub, made)
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
        """Wait until all that was handed over is on disk; LogError if that cannot be."""
        for log in self._logs.values():
            await log.flush()

    def write_metrics(self, chunks: Iterator[bytes | memoryview]) -> Path:
        """Write the metrics file, whole or not at all; LogError when it cannot be."""
        path = beside(self.path, METRICS)
        put(path, chunks)
        return path

    def drop_metrics(self) -> None:
        """Take away metrics that rollouts to come will make wrong; LogError when they cannot be."""
        path = beside(self.path, METRICS)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LogError.of(path, error) from None

    def close(self) -> None:
        """Finish the logs and let go of the files; LogError when a line could not be written."""
        try:
            for log in self._logs.values():
                log.shut()
        finally:
            self._settle()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def abandon(self) -> None:
        """Take back what `open` made, if nothing came of it."""
        try:
            for log in self._logs.values():
                log.shut()
            if self.path in self._made:
                for word in ("", FAILURES, INPUTS):
                    (beside(self.path, word) if word else self.path).unlink(missing_ok=True)
                for folder in self._made[1:]:
                    with suppress(OSError):  # somebody else has put something there
                        folder.rmdir()
        finally:
            self.close()  # not before: another process may collect into it from then on

    def _begin(self, plan: list[Row], overwrite: bool) -> None:
        sidecar, inputs = beside(self.path, FAILURES), beside(self.path, INPUTS)
        if overwrite:
            self._set_aside([self.path, sidecar, inputs, beside(self.path, METRICS)])
        self.plan, before, kept = grown(self.path, plan)
        if kept:
            wider = f"{kept} rollouts that this command does not ask for were planned earlier and stay planned"
            self.notes.append(f"{inputs}: {wider}; choose another --output for a smaller collection")
        for path in (self.path, sidecar):
            if path.exists() and repaired(path):
                self.notes.append(f"{path}: the last line was truncated by a crash; its rollout runs again")
        self._read_past(sidecar)
        if self.plan != before:
            put(inputs, (msgspec.json.encode(row) + b"\n" for row in self.plan))
        self._logs = {"": Log(self.path, self._scrub), FAILURES: Log(sidecar, self._scrub)}

    def _set_aside(self, old: Sequence[Path]) -> None:
        """Move an earlier collection out of the way; its lock goes with it, so that this one gets its own."""
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
        """Give up what was set aside, or put it back where nothing came of this collection."""
        logs = [self.path, beside(self.path, FAILURES)]
        collected = any(path.exists() and path.stat().st_size for path in logs)
        for path in self._before:
            if collected:
                _aside(path).unlink(missing_ok=True)
            else:
                _aside(path).replace(path)
        if self._before and not collected:
            for path in (beside(self.path, word) for word in (FAILURES, INPUTS)):
                if path not in self._before:
                    path.unlink(missing_ok=True)
        self._before = []

    def _read_past(self, sidecar: Path) -> None:
        planned = {key_of(row) for row in self.plan}
        for path in (self.path, sidecar):
            for number, line in _lines(path) if path.exists() else ():
                key = line.task, line.rollout
                if key not in planned:
                    wrong = f"rollout {line.task}:{line.rollout} was never planned"
                    raise InputError.at(f"{path}:{number}", wrong, ANOTHER)
                if path == sidecar or line.failure is not None:
                    self.failures[key] += 1
                    if line.terminal:
                        self.terminal.add(key)
                elif key in self.done:
                    wrong = f"rollout {line.task}:{line.rollout} also appears in an earlier line"
                    raise InputError.at(f"{path}:{number}", wrong, "expected it once; remove one of the lines")
                else:
                    self.done.add(key)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")


def _lines(path: Path) -> Iterator[tuple[int, StoredRow]]:
    """The rows of a file of whole lines, each with the number of its line."""
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
            return msgspec.convert(json.loads(line), StoredRow)  # NaN, which others may have written
        wrong = f"is not a rollout ({error})"
        raise InputError.at(f"{path}:{number}", wrong, "fix the line, or remove it to run its rollout again") from None


def _locked(path: Path) -> tuple[int, list[Path]]:
    """The file of rollouts, opened and locked, and what had to be made for it, the deepest first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
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
        wrong = "another process is collecting into it"
        raise InputError.at(str(path), wrong, "wait for it, or choose another --output") from None
    return lock, made


# -- the loop

_encode = msgspec.json.Encoder().encode


class CollectedAgent(Protocol):
    """Whoever makes rollouts. ``run`` is called by many workers of one event loop at once."""

    async def run(self, row: Row) -> Row:
        """The rollout of a planned row, as its verifier left it; `ClientError` for every other end."""
        ...

    async def aggregate(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The agent's own metrics of its rows; None where it computes none."""
        ...

    async def close(self) -> None:
        """Give back connections; a later call opens new ones."""
        ...


@dataclass(slots=True)
class Lane:
    """One agent, how many calls it bears, and whether it still answers."""

    name: str
    agent: CollectedAgent
    pace: Pace
    asked: bool = False  # a call was sent
    opened: asyncio.Event = field(default_factory=asyncio.Event)  # the first call was answered, or takes its time
    answered: bool = False  # some call was answered with a rollout
    refusals: int = 0  # in a row
    stopped: str = ""  # why nothing more is asked of it
    unasked: int = 0  # rollouts that stay owed because nobody was there
    last: str = ""  # what the last of these said

    def stop(self, reason: str) -> None:
        """Ask nothing more of this agent."""
        self.stopped = self.stopped or reason
        self.pace.shut()


@dataclass(slots=True)
class LaneStanding:
    """Where a collection stands."""

    planned: int
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # (outcome, what was said), the first few of them
    began: float = field(default_factory=monotonic)
    stopped: str = ""  # why no more rollouts are begun; "" while they are
    lanes: Sequence[Lane] = ()
    retries: int = 0  # of failed requests, since this start

    @property
    def done(self) -> int:
        """Rollouts that are settled."""
        return sum(self.outcomes.values())

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return sum(lane.pace.in_flight for lane in self.lanes)

    @property
    def held(self) -> float:
        """Seconds for which every agent that still answers wants to be left alone."""
        return min((lane.pace.held for lane in self.lanes if not lane.stopped), default=0.0)


DOUBT = 1.0  # seconds in which a wrong address shows; a rollout may take an hour, and nobody shall wait for the first
OWN_FAULTS = 2  # further tries after a 500: the agent failed at this very row, and a rollout may be dear


class Collector:
    """One collection from its agents over what is owed."""

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
        self._owed: Iterator[Row] = iter(())
        self._stopping = asyncio.Event()

    def conduct(self, owed: Iterator[Row]) -> None:
        """Collect to the end, whoever calls; Ctrl-C lets what is in flight finish. LogError for a full disk."""

        async def whole() -> None:
            with interrupts(lambda: self.stop("interrupted")):
                try:
                    await self.run(owed)
                except asyncio.CancelledError:
                    self.stop("interrupted")  # twice: requests in flight are dropped and remain outstanding
                finally:
                    with suppress(asyncio.CancelledError):  # a fourth: it waits for nobody
                        for lane in self._lanes.values():
                            await lane.agent.close()

        finish(whole)

    async def run(self, owed: Iterator[Row]) -> None:
        """Make every rollout that is owed, as far as the agents and the user allow."""
        self._owed = owed
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
        """Start no more rollouts; requests in flight are finished, and retries remain outstanding."""
        self._standing.stopped = self._standing.stopped or reason
        self._owed = iter(())
        self._stopping.set()
        for lane in self._lanes.values():
            lane.pace.shut()

    async def _worker(self) -> None:
        while (row := next(self._owed, None)) is not None:
            await self._rollout(row)

    async def _rollout(self, row: Row) -> None:
        lane = self._lanes[agent_of(row)]
        try:
            line = await self._answer(lane, row)
        except Shut:
            return  # it remains outstanding
        except ClientError as error:
            if error.hopeless:  # says nothing of this rollout: whoever continues asks again
                lane.unasked, lane.last = lane.unasked + 1, str(error)
                return
            line = failed(row, error, self._secrets)
        if line.get(KILLED):
            return  # the agent wants it forgotten, and made again
        if is_failure(line):
            before = self._files.failures.get(key_of(row), 0)
            await self._files.sidecar.append(_encode(attempted(line, before)))
            self._count_error(line)
        else:
            await self._files.rollouts.append(_encode(line))
        self._standing.outcomes[outcome(line)] += 1

    def _count_error(self, line: Row) -> None:
        error = outcome(line), cleaned(reason(line), self._secrets)
        if error in self._standing.errors or len(self._standing.errors) < MOST_ERRORS:
            self._standing.errors[error] += 1

    async def _answer(self, lane: Lane, row: Row) -> dict[str, Any]:
        """What the agent made of a row; ClientError after all tries, Shut when there will be no other."""
        if lane.asked:
            await lane.opened.wait()
        else:
            lane.asked = True
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
        """Stop a lane whose agent has turned its back; what is not asked now can still be asked later."""
        lane.refusals += error.hopeless
        if lane.refusals >= REFUSALS:
            lane.stop(f"{lane.refusals} requests in a row were refused; the last error: {error}")

    async def _wait(self, error: ClientError, tried: int) -> None:
        """Wait before the next try, as long as the server asks, else a random while that grows."""
        wait = self._random.uniform(0, _longest(tried)) if error.wait is None else error.wait
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait)
            raise Shut  # the collection ends: this rollout remains outstanding

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(GLANCE)
            self._look(self._standing)


AggregateAnswer = dict[str, Any] | ClientError | None
"""An agent's metrics; the error in their place; None where the agent computes none."""


def aggregated(
    agents: Mapping[str, CollectedAgent], rows: Mapping[str, list[dict[str, Any]]], retries: int
) -> dict[str, AggregateAnswer]:
    """What each agent makes of its own rows, all asked at once."""

    async def one(agent: CollectedAgent, agent_rows: list[dict[str, Any]]) -> AggregateAnswer:
        most, tried = min(retries, OWN_FAULTS), 0
        while True:
            try:
                return await agent.aggregate(agent_rows)
            except ClientError as error:
                if not error.retry or tried == most:
                    return error
                await asyncio.sleep(error.wait if error.wait is not None else random.uniform(0, _longest(tried)))
            tried += 1

    async def every() -> dict[str, AggregateAnswer]:
        try:
            answers = await asyncio.gather(*(one(agents[name], agent_rows) for name, agent_rows in rows.items()))
        finally:
            for agent in agents.values():
                await agent.close()
        return dict(zip(rows, answers, strict=True))

    return finish(every)


def _most_tries(error: ClientError) -> float:
    return OWN_FAULTS if error.kind.endswith("http_500") else float("inf")


def _longest(tried: int) -> float:
    return float(min(LONGEST_WAIT, FIRST_WAIT * 2**tried))


def collected(row: Row, answer: Row) -> dict[str, Any]:
    """The rollout that an agent's answer is: its own keys, and the three that say whose it is.

    ClientError, without another try, for one that no number could be made of: there is no reward, or
    an integer that no aggregation takes.
    """
    answer = {**answer, **_marks(answer)}
    if is_failure(answer) or answer.get(KILLED):
        return {**answer, **_whose(row)}
    reward = answer.get(REWARD)
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        shown = "there is no reward" if reward is None else f"reward is {_encode(reward)[:40].decode(errors='replace')}"
        if not isinstance(reward, bool):
            raise _unusable(f"{shown}; expected a number")
    elif reward != reward or reward in (float("inf"), float("-inf")):
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
    return {**answer, **_whose(row)}


def _unusable(what: str) -> ClientError:
    return ClientError(what, kind="malformed")


def _marks(answer: Row) -> dict[str, Any]:
    """What an answer says of its failure, as text and truth: whoever continues reads no other."""
    marks: dict[str, Any] = {}
    word = answer.get(FAILURE)
    if word is not None and not isinstance(word, str):
        marks[FAILURE] = _encode(word)[:200].decode(errors="replace")
    if answer.get(TERMINAL) is not None:
        marks[TERMINAL] = bool(answer[TERMINAL])
    return marks


def is_failure(row: Row) -> bool:
    """Whether an agent, a verifier or we ourselves have marked a row as a failed attempt."""
    return row.get(FAILURE) is not None


def failed(row: Row, error: ClientError, secrets: Secrets) -> dict[str, Any]:
    """The sidecar's row for an attempt that brought no answer."""
    problem = {"kind": error.kind, "message": secrets.scrub(str(error))}
    return {FAILURE: error.kind, "error": problem, **_whose(row)}


def attempted(row: Row, before: int) -> Row:
    """A failed attempt with its number, where it is not the first."""
    return {**row, ATTEMPT: before} if before else row


def outcome(row: Row) -> str:
    """The ledger's word for a row, as the reader of NeMo Gym's files will find it."""
    return outcome_of(row[FAILURE]) if is_failure(row) else "scored"


def reason(row: Row) -> str:
    """Why an attempt failed: our own error, else what `calipers serve` says of it, else NeMo Gym's word."""
    error = row.get("error")
    message = error.get("message") if isinstance(error, Mapping) else row.get("failure_reason")
    return str(message or row[FAILURE])


def _whose(row: Row) -> dict[str, Any]:
    return {TASK: row[TASK], ROLLOUT: row[ROLLOUT], AGENT: row[AGENT]}
