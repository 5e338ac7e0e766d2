"""A collection from its inputs to its metrics: it plans rollouts, calls the agents, and writes NeMo Gym's files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calipers.clients import Connection, connect
from calipers.clients.address import KEY
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, UnknownName
from calipers.formats.read import begin
from calipers.formats.source import BOM, Source
from calipers.pipeline import score_plan
from calipers.reports.figures import counted, is_or_are
from calipers.reports.result import Result
from calipers.request import Plan, make_plan
from calipers.rollouts.table import Part
from calipers.systems.nemo_gym import TASK
from calipers.systems.nemo_gym.aggregate import (
    Blocks,
    by_agent,
    entries_of,
    file_chunks,
    gym_table,
    headline,
    stripped,
)
from calipers.systems.nemo_gym.collect.agents import Reach, Server, SimpleAgent, checked, head_agents
from calipers.systems.nemo_gym.collect.loop import (
    AggregateAnswer,
    CollectedAgent,
    Collector,
    Files,
    LaneStanding,
    aggregated,
    files_of,
)
from calipers.systems.nemo_gym.collect.request import Collecting, Row, agent_of, key_of, materialize
from calipers.systems.nemo_gym.read import records
from calipers.systems.nemo_gym.wire import MIXED, TARGETS
from calipers.verifiers import NamedVerifier
from calipers.verifiers.user_code import find_verifier


def agents_of(request: Collecting, plan: Sequence[Row], secrets: Secrets) -> dict[str, CollectedAgent]:
    """Every agent that the plan names; UnknownName for an agent without an address.

    Agents that the request does not list are looked up at NeMo Gym's head server.
    """
    addresses = dict(request.agents)
    names = dict.fromkeys(map(agent_of, plan))
    unlisted = [name for name in names if name not in addresses]
    if unlisted:
        hint = ""
        try:
            addresses = {**head_agents(checked(request.head, "head_server")), **addresses}
        except ClientError as error:
            hint = f" ({error})"
        for name in unlisted:
            if name not in addresses:
                known = addresses or {"NAME": ""}
                unknown = UnknownName.of("agent", name, known, "" if addresses else f"give --agent {name}=URL")
                raise UnknownName(f"{request.input}: {unknown}{hint}")
    token = _token(request.token_env)
    secrets.add(token)
    reach = Reach(request.timeout, request.concurrency, token, secrets)
    return {name: _agent(name, addresses[name], request, reach) for name in names}


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token or not (token.isascii() and token.isprintable()):
        problem = f"${variable} contains no token" if token else f"${variable} is not set"
        raise InputError.at("--token-env", problem, "expected a variable of printable ASCII")
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
        problem = "the built-in agent has no verifier"
        raise InputError.at(f"--agent {name}", problem, "expected --verify-url URL or --verifier NAME")
    connection = Connection(request.base_url, timeout=request.timeout, most=request.concurrency, secrets=reach.secrets)
    return SimpleAgent(target, connect(target, connection), judge, reach.secrets)


def untargeted(request: Collecting, rows: Iterable[Row]) -> list[str]:
    """A note on tasks without a target, which only `exact_match` accepts: it compares with empty text."""
    tasks = {row[TASK] for row in rows if not any(key in row for key in TARGETS)}
    if request.verifier != "exact_match" or not tasks:
        return []
    problem = f"{counted(len(tasks), 'task')} without {', '.join(TARGETS[:-1])} or {TARGETS[-1]}"
    return [f"{request.input}: {problem}; exact_match compares the answers with empty text"]


def entries(path: str, answers: Mapping[str, AggregateAnswer]) -> list[tuple[str, Blocks]]:
    """The metrics of each agent: its own answer, or those computed here if it has none."""
    if answers and all(answers.values()):
        return [(name, _blocks(answers[name])) for name in sorted(answers)]
    kept: list[Part] = []
    begin([path], kept=kept)
    computed = entries_of(gym_table(kept))
    return [(name, _blocks(answers[name]) if answers.get(name) else blocks) for name, blocks in computed]


def _fault(answer: AggregateAnswer) -> str:
    """The problem with an agent's metrics; "" if they are valid, or if the agent computes none."""
    if isinstance(answer, ClientError):
        return str(answer)
    if not isinstance(answer, dict):
        return ""
    kinds: dict[str, type] = {"group_level_metrics": list, "agent_metrics": dict, "key_metrics": dict}
    bad = [name for name, kind in kinds.items() if not isinstance(answer.get(name), kind)]
    if bad:
        return f"its answer has no {bad[0]} in the right shape"
    valid = all(isinstance(group, dict) for group in answer["group_level_metrics"])
    return "" if valid else "a group in its answer is not an object"


def _blocks(answer: Any) -> Blocks:
    groups = answer["group_level_metrics"]
    return Blocks(answer["agent_metrics"], answer["key_metrics"], [groups] if groups else [])


ATTEMPTS: Final = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
MOST_ATTEMPTS = 3
MOST_FAILURES = 3  # kinds of failure whose messages are shown


@dataclass(frozen=True, slots=True)
class Collected:
    """The outcome of a collection."""

    output: Path
    result: Result
    metrics: Path | None  # NeMo Gym's metrics file; None if it was not written
    stopped: str  # why the collection ended before every rollout was requested; "" if it did not
    notes: tuple[str, ...]
    computed: bool  # no agent's computation of its own metrics failed
    headlines: tuple[str, ...] = ()  # each agent's key metrics, if the file was written

    @property
    def complete(self) -> bool:
        """Whether every planned rollout has a number, and every agent's own metrics are in the file."""
        gaps = any(group.ledger.gaps for group in self.result.groups)
        return self.computed and not self.stopped and not gaps


def collect(request: Collecting, look: Callable[[LaneStanding], None] = lambda _: None) -> Collected:
    """Collect rollouts, or resume a collection, and aggregate them. ``look`` is called a few times a second.

    InputError, before the first request, for settings that cannot work; ClientError if no agent can be reached.
    """
    scoring = make_plan(list(request.metrics) or None)
    secrets = Secrets()
    secrets.add(os.environ.get(KEY, "").strip())
    _check_not_overwritten(request)
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
        notes += _other_models(files, {name: request.agents[name] for name in simple})
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
        # without rollouts of an earlier plan whose agents are not known now
        outstanding = [row for row in _outstanding(files, most) if agent_of(row) in agents]
        if outstanding:
            for agent in simple.values():
                agent.ready()
            files.drop_metrics()
            collector.conduct(iter(outstanding))
            look(standing)
            _check_begun(files, standing)
        return _finished(request, scoring, files, standing, agents, [*notes, *files.notes], secrets)
    finally:
        files.close()


def _check_not_overwritten(request: Collecting) -> None:
    """InputError if a file to be written is the input."""
    if os.path.realpath(request.input) in map(os.path.realpath, files_of(request.output)):
        raise InputError.at(str(request.output), f"{request.input} would be overwritten", "choose another --output")


def _planned(request: Collecting) -> tuple[list[Row], list[str]]:
    """The planned rollouts, and notes on them."""
    try:
        with open(request.input, "rb") as file:
            lines = file.read().removeprefix(BOM).splitlines()
    except OSError as error:
        expected = "expected a file of tasks, one JSON object per line"
        raise InputError.at(request.input, f"cannot be read ({error.strerror})", expected) from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = materialize(lines, request.how, request.input)
    if not rows:
        raise InputError.at(request.input, "no tasks", "expected one JSON object per line")
    if len({isinstance(row[TASK], str) for row in rows}) > 1:
        raise InputError.at(request.input, MIXED)
    return list(rows), [str(warning.message) for warning in caught]


def _most_attempts(notes: list[str]) -> int:
    """The number of failed attempts after which a rollout is not retried; NeMo Gym's variable overrides the default."""
    text = os.environ.get(ATTEMPTS, "").strip()
    if not text:
        return MOST_ATTEMPTS
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    notes.append(f"${ATTEMPTS} is {text!r}; expected an integer >= 1, so {MOST_ATTEMPTS} is used")
    return MOST_ATTEMPTS


def _outstanding(files: Files, most: int) -> Iterator[Row]:
    """The planned rollouts that have not succeeded, except those that failed permanently, or ``most`` times."""
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
        files.notes.append(f"{counted(given_up, 'rollout')} {is_or_are(given_up)} not retried: {why}")


def _other_models(files: Files, models: Mapping[str, str]) -> Iterator[str]:
    """A note on each other model whose rollouts a built-in agent already has; ``models`` are those of the agents."""
    for (name, model), count in sorted(files.models.items()):
        if model and model != models.get(name, model):
            rollouts = (
                f"{counted(count, 'rollout')} of agent {name} are from {model}, and further ones from {models[name]}"
            )
            yield f"{files.path}: {rollouts}; choose another --output for a collection of one model"


def _check_begun(files: Files, standing: LaneStanding) -> None:
    """If no agent could be reached and nothing was collected before, remove the files and raise ClientError."""
    lanes = [lane for lane in standing.lanes if lane.called]
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
        if lane.not_stored:
            asked = f"the agent asked not to store {counted(lane.not_stored, 'rollout')}"
            notes.append(f"agent {lane.name}: {asked}; run the same command again for the rollouts that were not run")
    notes += [f"{count} {word}: {reason}" for (word, reason), count in standing.errors.most_common(MOST_FAILURES)]
    if standing.stopped:
        notes.append("no metrics file is written before the collection ends")
    elif request.aggregate and request.output.stat().st_size:
        answers = {} if request.local else _answers(agents, str(request.output), request.retries)
        for name, answer in answers.items():
            if fault := _fault(answer):
                problem = f"/aggregate_metrics failed ({fault}); the file contains the metrics computed here"
                failures.append(f"agent {name}: {problem}")
                answers[name] = None
            elif answer is None and name not in agents:
                notes.append(f"agent {name} is only in an earlier plan; its metrics are computed here")
            elif answer is None and not isinstance(agents[name], SimpleAgent):
                notes.append(f"agent {name} has no /aggregate_metrics; its metrics are computed here")
        agent_entries = entries(str(request.output), answers)
        headlines = [headline(agent, blocks.key_metrics) for agent, blocks in agent_entries]
        written = files.write_metrics(file_chunks(agent_entries))
    for agent in agents.values():
        notes += agent.notes if isinstance(agent, SimpleAgent) else ()
    result = score_plan([str(request.output)], scoring)
    stopped = standing.stopped or next((lane.stopped for lane in standing.lanes if lane.stopped), "")
    scrubbed_notes = tuple(map(secrets.scrub, [*notes, *failures]))
    scrubbed_headlines = tuple(map(secrets.scrub, headlines))
    return Collected(
        request.output, result, written, secrets.scrub(stopped), scrubbed_notes, not failures, scrubbed_headlines
    )


def _answers(agents: Mapping[str, CollectedAgent], path: str, retries: int) -> dict[str, AggregateAnswer]:
    """Each agent's own metrics of its successful rows, which are sent stripped, sorted by task and rollout.

    None for an agent of an earlier plan that now has no address.
    """
    with Source(path) as source:
        rows = by_agent(map(stripped, records(source)))  # stripped as they are read, which saves most of the memory
    reachable = {name: agent_rows for name, agent_rows in rows.items() if name in agents}
    return {**dict.fromkeys(rows), **aggregated(agents, reachable, retries)}
