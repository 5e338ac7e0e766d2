"""A collection from its inputs to its metrics: NeMo Gym's flow, with a ledger.

::

    inputs ──► planned rollouts ──► agents ──► rollouts, failures ──► each agent's own metrics ──► one file
                                                     └──────────────► our table, with how sure
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calipers.dialects.nemo_gym_inputs import materialize
from calipers.errors import ClientError, InputError
from calipers.jobs.collect_agents import agents_of, check_ready, check_rows, untargeted
from calipers.jobs.collect_metrics import entries, faults, sent
from calipers.jobs.collecting import Collecting
from calipers.pipeline import score_plan
from calipers.plan import Plan, make_plan
from calipers.readers.files import BOM
from calipers.readers.nemo_gym_rows import MIXED
from calipers.reports.nemo_gym import file_chunks
from calipers.reports.result import Result
from calipers.run.agent import SimpleAgent
from calipers.run.clients.address import KEY
from calipers.run.collect import Asked, Collector, aggregated
from calipers.run.collect_files import Files
from calipers.run.collect_lane import Agent, Standing
from calipers.run.collect_plan import FAILURES, INPUTS, METRICS, beside
from calipers.run.collect_row import TASK, Row, agent_of, key_of
from calipers.run.secrets import Secrets

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

    @property
    def complete(self) -> bool:
        """Whether every planned rollout has a number, and every agent's own metrics are in the file."""
        gaps = any(group.ledger.gaps for group in self.result.groups)
        return self.computed and not self.stopped and not gaps


def collect(asked: Collecting, look: Callable[[Standing], None] = lambda _: None) -> Collected:
    """Collect rollouts, or go on with it, and aggregate what is there; ``look`` is told a few times a second.

    InputError, before the first call, for whatever cannot work; ClientError when no agent could be reached at all.
    """
    scoring = make_plan(list(asked.metrics) or None)
    secrets = Secrets()
    secrets.add(os.environ.get(KEY, "").strip())
    _check_apart(asked)
    plan, notes = _planned(asked)
    agents = agents_of(asked, plan, secrets)
    check_rows(agents, plan, asked.input)
    notes += untargeted(asked, agents, plan)
    most = _most_attempts(notes)
    files = Files.open(asked.output, plan, secrets.scrub_bytes, overwrite=asked.overwrite)
    try:
        standing = Standing(planned=len(files.plan))
        standing.outcomes["scored"] = len(files.done)
        collector = Collector(
            agents,
            files,
            standing,
            concurrency=asked.concurrency,
            retries=asked.retries,
            secrets=secrets,
            look=look,
        )
        owed = [row for row in _owed(files, most) if agent_of(row) in agents]  # a plan that grew may have had others
        if owed:
            check_ready(agents)
            files.drop_metrics()
            collector.conduct(iter(owed))
            look(standing)
            _check_begun(files, standing)
        return _finished(asked, scoring, files, standing, agents, [*notes, *files.notes], secrets)
    finally:
        files.close()


def _check_apart(asked: Collecting) -> None:
    """InputError where a file to be written is the one that is read."""
    for word in ("", FAILURES, INPUTS, METRICS):
        if os.path.realpath(beside(asked.output, word) if word else asked.output) == os.path.realpath(asked.input):
            raise InputError.at(str(asked.output), f"{asked.input} would be written over", "choose another --output")


def _planned(asked: Collecting) -> tuple[list[Row], list[str]]:
    """The rollouts that are asked for, and what there is to say of them."""
    try:
        with open(asked.input, "rb") as file:
            lines = file.read().removeprefix(BOM).splitlines()
    except OSError as error:
        right = "expected a file of tasks, one JSON object a line"
        raise InputError.at(asked.input, f"cannot be read ({error.strerror})", right) from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = materialize(lines, asked.how, asked.input)
    if not found:
        raise InputError.at(asked.input, "no tasks", "expected one JSON object a line")
    if len({isinstance(row[TASK], str) for row in found}) > 1:
        raise InputError.at(asked.input, MIXED)
    return list(found), [str(one.message) for one in caught]


def _most_attempts(notes: list[str]) -> int:
    """How many failed attempts a rollout may have; NeMo Gym's variable says otherwise."""
    text = os.environ.get(ATTEMPTS, "").strip()
    if not text:
        return MOST_ATTEMPTS
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    notes.append(f"${ATTEMPTS} is {text!r}; expected an integer >= 1, so {MOST_ATTEMPTS} holds")
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
        why = f"they failed {most} times, or for good; ${ATTEMPTS} raises the number"
        files.notes.append(f"{given_up} rollouts are not tried again: {why}")


def _check_begun(files: Files, standing: Standing) -> None:
    """ClientError, and no trace, where not one agent could be reached and nothing was there before."""
    asked = [lane for lane in standing.lanes if lane.asked]
    if standing.done or standing.stopped or not all(lane.stopped and not lane.answered for lane in asked):
        return
    if files.failures or (files.rollouts.written or files.sidecar.written):
        return
    files.abandon()
    lane = asked[0]
    raise ClientError(f"agent {lane.name}: {lane.stopped}; nothing was collected", kind="connection", hopeless=True)


def _finished(
    asked: Collecting,
    scoring: Plan,
    files: Files,
    standing: Standing,
    agents: Mapping[str, Agent],
    notes: list[str],
    secrets: Secrets,
) -> Collected:
    written, failures = None, list[str]()
    for lane in standing.lanes:
        if lane.unasked or lane.stopped:
            why = lane.stopped or f"{lane.unasked} calls were refused, the last with: {lane.last}"
            notes.append(f"agent {lane.name}: {why}; what it was not asked stays owed")
    notes += [f"{count} {word}: {said}" for (word, said), count in standing.errors.most_common(MOST_FAILURES)]
    path = str(asked.output)
    if standing.stopped:
        notes.append("no metrics file is written before the collection ends")
    elif asked.aggregate and asked.output.stat().st_size:
        answers = {} if asked.local else _answers(agents, sent(path), asked.retries)
        failures = [
            f"agent {name}: /aggregate_metrics failed ({why}); the file has what is computed without it"
            for name, why in faults(answers).items()
        ]
        absent = [
            name for name, one in answers.items() if one is None and not isinstance(agents.get(name), SimpleAgent)
        ]
        notes += [f"agent {name} has no /aggregate_metrics; its metrics are computed here" for name in absent]
        written = files.write_metrics(file_chunks(entries(path, answers)))
    for agent in agents.values():
        notes += agent.notes if isinstance(agent, SimpleAgent) else ()
    result = score_plan([path], scoring)
    stopped = standing.stopped or next((lane.stopped for lane in standing.lanes if lane.stopped), "")
    told = tuple(map(secrets.scrub, [*notes, *failures]))
    return Collected(asked.output, result, written, secrets.scrub(stopped), told, not failures)


def _answers(agents: Mapping[str, Agent], rows: Mapping[str, list[dict[str, Any]]], retries: int) -> dict[str, Asked]:
    """What each agent makes of its rows; None for one of an earlier plan that has no address now."""
    here = {name: own for name, own in rows.items() if name in agents}
    return {**dict.fromkeys(rows), **aggregated(agents, here, retries)}
