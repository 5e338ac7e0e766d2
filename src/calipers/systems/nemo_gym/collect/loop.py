"""The loop of a collection: workers that post what is outstanding to its agent, and log what its answer becomes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import msgspec

from calipers.clients.pace import FIRST_WAIT, LONGEST_WAIT, Pace, Shut
from calipers.clients.reply import cleaned
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError
from calipers.running.loop import GLANCE, MOST_ERRORS, REFUSALS, finish, interrupts, root_of
from calipers.systems.nemo_gym.collect.files import Files
from calipers.systems.nemo_gym.collect.request import Row, agent_of, key_of
from calipers.systems.nemo_gym.words import (
    AGENT,
    ATTEMPT,
    FAILURE,
    KILLED,
    LEAST_INT,
    MOST_INT,
    REWARD,
    ROLLOUT,
    TASK,
    TERMINAL,
    outcome_of,
)

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
