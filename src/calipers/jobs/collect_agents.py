"""The agents of a collection: servers at an address, or the built-in agent over a model and a judge."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from calipers.errors import ClientError, InputError, UnknownName
from calipers.jobs.collecting import Collecting
from calipers.reports.figures import counted
from calipers.run.agent import TARGETS, SimpleAgent
from calipers.run.client import Connection
from calipers.run.collect_head import found_agents
from calipers.run.collect_http import Reach, Server, checked
from calipers.run.collect_lane import Agent
from calipers.run.collect_row import TASK, Row, agent_of
from calipers.run.models import connect
from calipers.run.secrets import Secrets
from calipers.run.verifiers.find import NamedVerifier, verifier


def agents_of(asked: Collecting, plan: Sequence[Row], secrets: Secrets) -> dict[str, Agent]:
    """Every agent that the plan names; UnknownName for one that nobody knows the address of."""
    places = dict(asked.agents)
    wanted = dict.fromkeys(map(agent_of, plan))
    lacking = [name for name in wanted if name not in places]
    if lacking:
        hint = ""
        try:
            places = {**found_agents(checked(asked.head, "head_server")), **places}
        except ClientError as error:
            hint = f" ({error})"
        for name in lacking:
            if name not in places:
                known = places or {"NAME": ""}
                unknown = UnknownName.of("agent", name, known, "" if places else f"give --agent {name}=URL")
                raise UnknownName(f"{asked.input}: {unknown}{hint}")
    token = _token(asked.token_env)
    secrets.add(token)
    reach = Reach(asked.timeout, asked.concurrency, token, secrets)
    return {name: _agent(name, places[name], asked, reach) for name in wanted}


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token or not (token.isascii() and token.isprintable()):
        wrong = f"${variable} holds no token" if token else f"${variable} is not set"
        raise InputError.at("--token-env", wrong, "expected a variable with printable ASCII")
    return token


def _agent(name: str, place: str, asked: Collecting, reach: Reach) -> Agent:
    if "://" in place:
        return Server(checked(place, f"--agent {name}"), reach)
    judge: Server | NamedVerifier
    if asked.verify_url is not None:
        judge = Server(checked(asked.verify_url, "--verify-url"), reach)
    elif asked.verifier is not None:
        judge = verifier(asked.verifier)
    else:
        wrong = "the built-in agent has nobody to judge its answers"
        raise InputError.at(f"--agent {name}", wrong, "expected --verify-url URL or --verifier NAME")
    connection = Connection(asked.base_url, timeout=asked.timeout, most=asked.concurrency, secrets=reach.secrets)
    return SimpleAgent(place, connect(place, connection), judge, reach.secrets)


def check_rows(agents: Mapping[str, Agent], plan: Sequence[Row], place: str) -> None:
    """InputError for a row that the built-in agent can never ask, or its verifier never judge."""
    for row in plan:
        agent = agents[agent_of(row)]
        if isinstance(agent, SimpleAgent):
            agent.check(row, place)


def check_ready(agents: Mapping[str, Agent]) -> None:
    """SandboxError, before the first call, where a verifier needs what this machine does not have."""
    for agent in agents.values():
        if isinstance(agent, SimpleAgent):
            agent.ready()


def untargeted(asked: Collecting, agents: Mapping[str, Agent], plan: Sequence[Row]) -> list[str]:
    """What there is to say of tasks without a target: to `exact_match` alone that is one, the empty text."""
    if asked.verifier != "exact_match":
        return []
    own = [row for row in plan if isinstance(agents[agent_of(row)], SimpleAgent)]
    bare = {row[TASK] for row in own if not any(key in row for key in TARGETS)}
    if not bare:
        return []
    wrong = f"{counted(len(bare), 'task')} without {', '.join(TARGETS[:-1])} or {TARGETS[-1]}"
    return [f"{asked.input}: {wrong}; exact_match compares the answers with the empty text"]
