"""A collection from its inputs to its metrics: the agents, what each is sent and answers, and NeMo Gym's files.

First its loop: workers that post what is outstanding to its agent, and log what its answer becomes.
"""

from __future__ import annotations

import asyncio
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

import msgspec

from calipers.clients import Connection, connect
from calipers.clients.address import KEY
from calipers.clients.pace import FIRST_WAIT, LONGEST_WAIT, Pace, Shut
from calipers.clients.reply import cleaned
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, UnknownName
from calipers.formats.read import begin
from calipers.formats.source import BOM, Source
from calipers.pipeline import score_plan
from calipers.reports.figures import counted
from calipers.reports.result import Result
from calipers.request import Plan, make_plan
from calipers.rollouts.table import Part
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
from calipers.systems.nemo_gym.aggregate import (
    Blocks,
    by_agent,
    entries_of,
    file_chunks,
    headline,
    one_table,
    stripped,
)
from calipers.systems.nemo_gym.collect.agents import Reach, Server, SimpleAgent, checked, head_agents
from calipers.systems.nemo_gym.collect.files import Files
from calipers.systems.nemo_gym.collect.request import Collecting, Row, agent_of, key_of, materialize
from calipers.systems.nemo_gym.read import records
from calipers.systems.nemo_gym.wire import MIXED, TARGETS
from calipers.verifiers import NamedVerifier
from calipers.verifiers.user_code import find_verifier

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


# -- the collection


def agents_of(request: Collecting, plan: Sequence[Row], secrets: Secrets) -> dict[str, CollectedAgent]:
    """Every agent that the plan names; UnknownName for one that nobody knows the address of."""
    places = dict(request.agents)
    wanted = dict.fromkeys(map(agent_of, plan))
    lacking = [name for name in wanted if name not in places]
    if lacking:
        hint = ""
        try:
            places = {**head_agents(checked(request.head, "head_server")), **places}
        except ClientError as error:
            hint = f" ({error})"
        for name in lacking:
            if name not in places:
                known = places or {"NAME": ""}
                unknown = UnknownName.of("agent", name, known, "" if places else f"give --agent {name}=URL")
                raise UnknownName(f"{request.input}: {unknown}{hint}")
    token = _token(request.token_env)
    secrets.add(token)
    reach = Reach(request.timeout, request.concurrency, token, secrets)
    return {name: _agent(name, places[name], request, reach) for name in wanted}


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token or not (token.isascii() and token.isprintable()):
        wrong = f"${variable} contains no token" if token else f"${variable} is not set"
        raise InputError.at("--token-env", wrong, "expected a variable of printable ASCII")
    return token


def _agent(name: str, target: str, request: Collecting, reach: Reach) -> CollectedAgent:
    if "://" in target:
        return Server(checked(target, f"--agent {name}"), reach)
    judge: Server | NamedVerifier
    if request.verify_url is not None:
        judge = Server(checked(request.verify_url, "--verify-url"), reach)
    elif request.verifier is not None:
        judge = find_verifier(request.verifier)
    else:
        wrong = "the built-in agent has no verifier"
        raise InputError.at(f"--agent {name}", wrong, "expected --verify-url URL or --verifier NAME")
    connection = Connection(request.base_url, timeout=request.timeout, most=request.concurrency, secrets=reach.secrets)
    return SimpleAgent(target, connect(target, connection), judge, reach.secrets)


def untargeted(request: Collecting, rows: Iterable[Row]) -> list[str]:
    """What there is to say of tasks without a target: to `exact_match` alone that is one, the empty text."""
    bare = {row[TASK] for row in rows if not any(key in row for key in TARGETS)}
    if request.verifier != "exact_match" or not bare:
        return []
    wrong = f"{counted(len(bare), 'task')} without {', '.join(TARGETS[:-1])} or {TARGETS[-1]}"
    return [f"{request.input}: {wrong}; exact_match compares the answers with empty text"]


def entries(path: str, answers: Mapping[str, AggregateAnswer]) -> list[tuple[str, Blocks]]:
    """Each agent's metrics, its own where it computes them, else ours."""
    if answers and all(answers.values()):
        return [(name, _blocks(answers[name])) for name in sorted(answers)]
    kept: list[Part] = []
    begin([path], kept=kept)
    ours = entries_of(one_table(kept))
    return [(name, _blocks(answers[name]) if answers.get(name) else blocks) for name, blocks in ours]


def _fault(answer: AggregateAnswer) -> str:
    """What went wrong with an agent's metrics; "" for good ones, and where there are none."""
    if isinstance(answer, ClientError):
        return str(answer)
    if not isinstance(answer, dict):
        return ""
    kinds: dict[str, type] = {"group_level_metrics": list, "agent_metrics": dict, "key_metrics": dict}
    bad = [name for name, kind in kinds.items() if not isinstance(answer.get(name), kind)]
    if bad:
        return f"its answer has no {bad[0]} in the right shape"
    whole = all(isinstance(group, dict) for group in answer["group_level_metrics"])
    return "" if whole else "a group in its answer is not an object"


def _blocks(answer: Any) -> Blocks:
    groups = answer["group_level_metrics"]
    return Blocks(answer["agent_metrics"], answer["key_metrics"], [groups] if groups else [])


ATTEMPTS: Final = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
MOST_ATTEMPTS = 3
MOST_FAILURES = 3  # kinds of failure that are told in their own words


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection left behind."""

    output: Path
    result: Result
    metrics: Path | None  # NeMo Gym's file; None where none was written
    stopped: str  # why it ended before everything was asked; "" when it did not
    notes: tuple[str, ...]
    computed: bool  # every agent that computes metrics has computed them
    headlines: tuple[str, ...] = ()  # each agent's key metrics, where the file was written

    @property
    def complete(self) -> bool:
        """Whether every planned rollout has a number, and every agent's own metrics are in the file."""
        gaps = any(group.ledger.gaps for group in self.result.groups)
        return self.computed and not self.stopped and not gaps


def collect(request: Collecting, look: Callable[[LaneStanding], None] = lambda _: None) -> Collected:
    """Collect rollouts, or resume a collection, and aggregate them; ``look`` is called a few times a second.

    InputError, before the first request, for settings that cannot work; ClientError when no agent can be reached.
    """
    scoring = make_plan(list(request.metrics) or None)
    secrets = Secrets()
    secrets.add(os.environ.get(KEY, "").strip())
    _check_apart(request)
    plan, notes = _planned(request)
    agents = agents_of(request, plan, secrets)
    simple = {name: agent for name, agent in agents.items() if isinstance(agent, SimpleAgent)}
    simple_rows = [row for row in plan if agent_of(row) in simple]
    for row in simple_rows:
        simple[agent_of(row)].check(row, request.input)
    notes += untargeted(request, simple_rows)
    most = _most_attempts(notes)
    files = Files.open(request.output, plan, secrets.scrub_bytes, overwrite=request.overwrite)
    try:
        standing = LaneStanding(planned=len(files.plan))
        standing.outcomes["scored"] = len(files.done)
        collector = Collector(
            agents,
            files,
            standing,
            concurrency=request.concurrency,
            retries=request.retries,
            secrets=secrets,
            look=look,
        )
        owed = [row for row in _owed(files, most) if agent_of(row) in agents]  # a plan that grew may have had others
        if owed:
            for agent in simple.values():
                agent.ready()
            files.drop_metrics()
            collector.conduct(iter(owed))
            look(standing)
            _check_begun(files, standing)
        return _finished(request, scoring, files, standing, agents, [*notes, *files.notes], secrets)
    finally:
        files.close()


def _check_apart(request: Collecting) -> None:
    """InputError where a file to be written is the one that is read."""
    for word in ("", FAILURES, INPUTS, METRICS):
        if os.path.realpath(beside(request.output, word) if word else request.output) == os.path.realpath(
            request.input
        ):
            raise InputError.at(str(request.output), f"{request.input} would be overwritten", "choose another --output")


def _planned(request: Collecting) -> tuple[list[Row], list[str]]:
    """The rollouts that are asked for, and what there is to say of them."""
    try:
        with open(request.input, "rb") as file:
            lines = file.read().removeprefix(BOM).splitlines()
    except OSError as error:
        right = "expected a file of tasks, one JSON object per line"
        raise InputError.at(request.input, f"cannot be read ({error.strerror})", right) from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = materialize(lines, request.how, request.input)
    if not rows:
        raise InputError.at(request.input, "no tasks", "expected one JSON object per line")
    if len({isinstance(row[TASK], str) for row in rows}) > 1:
        raise InputError.at(request.input, MIXED)
    return list(rows), [str(warning.message) for warning in caught]


def _most_attempts(notes: list[str]) -> int:
    """How many failed attempts a rollout may have; NeMo Gym's variable says otherwise."""
    text = os.environ.get(ATTEMPTS, "").strip()
    if not text:
        return MOST_ATTEMPTS
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    notes.append(f"${ATTEMPTS} is {text!r}; expected an integer >= 1, so {MOST_ATTEMPTS} is used")
    return MOST_ATTEMPTS


def _owed(files: Files, most: int) -> Iterator[Row]:
    """What is still to be made: all that has not succeeded, unless it failed for good or often enough."""
    given_up = 0
    for row in files.plan:
        key = key_of(row)
        if key in files.done:
            continue
        if key in files.terminal or files.failures[key] >= most:
            given_up += 1
            continue
        yield row
    if given_up:
        why = f"they failed {most} times, or permanently; raise ${ATTEMPTS} to retry more often"
        files.notes.append(f"{given_up} rollouts are not retried: {why}")


def _check_begun(files: Files, standing: LaneStanding) -> None:
    """ClientError, and no trace, where not one agent could be reached and nothing was there before."""
    lanes = [lane for lane in standing.lanes if lane.asked]
    if standing.done or standing.stopped or not all(lane.stopped and not lane.answered for lane in lanes):
        return
    if files.failures or (files.rollouts.written or files.sidecar.written):
        return
    files.abandon()
    lane = lanes[0]
    raise ClientError(f"agent {lane.name}: {lane.stopped}; nothing was collected", kind="connection", hopeless=True)


def _finished(
    request: Collecting,
    scoring: Plan,
    files: Files,
    standing: LaneStanding,
    agents: Mapping[str, CollectedAgent],
    notes: list[str],
    secrets: Secrets,
) -> Collected:
    written, failures, headlines = None, list[str](), list[str]()
    for lane in standing.lanes:
        if lane.unasked or lane.stopped:
            why = lane.stopped or f"{lane.unasked} requests were refused; the last error: {lane.last}"
            notes.append(f"agent {lane.name}: {why}; run the same command again for the rollouts that were not run")
    notes += [f"{count} {word}: {reason}" for (word, reason), count in standing.errors.most_common(MOST_FAILURES)]
    path = str(request.output)
    if standing.stopped:
        notes.append("no metrics file is written before the collection ends")
    elif request.aggregate and request.output.stat().st_size:
        answers = {} if request.local else _answers(agents, path, request.retries)
        faults = {name: fault for name, answer in answers.items() if (fault := _fault(answer))}
        failures = [
            f"agent {name}: /aggregate_metrics failed ({why}); the file contains the metrics computed here"
            for name, why in faults.items()
        ]
        absent = [
            name for name, answer in answers.items() if answer is None and not isinstance(agents.get(name), SimpleAgent)
        ]
        notes += [f"agent {name} has no /aggregate_metrics; its metrics are computed here" for name in absent]
        answers |= dict.fromkeys(faults)
        agent_entries = entries(path, answers)
        headlines = [headline(agent, blocks.key_metrics) for agent, blocks in agent_entries]
        written = files.write_metrics(file_chunks(agent_entries))
    for agent in agents.values():
        notes += agent.notes if isinstance(agent, SimpleAgent) else ()
    result = score_plan([path], scoring)
    stopped = standing.stopped or next((lane.stopped for lane in standing.lanes if lane.stopped), "")
    scrubbed_notes = tuple(map(secrets.scrub, [*notes, *failures]))
    scrubbed_headlines = tuple(map(secrets.scrub, headlines))
    return Collected(
        request.output, result, written, secrets.scrub(stopped), scrubbed_notes, not failures, scrubbed_headlines
    )


def _answers(agents: Mapping[str, CollectedAgent], path: str, retries: int) -> dict[str, AggregateAnswer]:
    """What each agent makes of its own rows: those that succeeded, without their bulk, by task and rollout.

    None for an agent of an earlier plan that has no address now.
    """
    with Source(path) as source:
        rows = by_agent(map(stripped, records(source)))  # at once: what is left out is most of it
    here = {name: agent_rows for name, agent_rows in rows.items() if name in agents}
    return {**dict.fromkeys(rows), **aggregated(agents, here, retries)}
