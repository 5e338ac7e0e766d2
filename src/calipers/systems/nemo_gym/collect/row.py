"""One row of a collection: what is asked of an agent, and what its answer becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from calipers.clients.secrets import Secrets
from calipers.errors import ClientError
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

Row = Mapping[str, Any]
Key = tuple[int | str, int]  # task and rollout: one rollout of a collection, whoever runs it

_encode = msgspec.json.Encoder().encode


def key_of(row: Row) -> Key:
    """Which rollout a row is."""
    return row[TASK], row[ROLLOUT]


def agent_of(row: Row) -> str:
    """The name of the agent that a planned row is for."""
    name: str = row[AGENT]["name"]
    return name


def decoded(raw: bytes) -> dict[str, Any]:
    """An answer that is a JSON object; bare NaN and Infinity, which Python's servers write, are taken.

    ClientError for any other: the next answer may be one.
    """
    try:
        answer = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            answer = json.loads(raw)
            _encode(answer)  # half of a surrogate pair can be read so, and never be written
        except UnicodeEncodeError:
            raise malformed("the response contains half of a surrogate pair") from None
        except (ValueError, RecursionError):
            raise malformed("the response is not JSON") from None
    if not isinstance(answer, dict):
        raise malformed("the response is not a JSON object")
    return answer


def malformed(what: str, retry: bool = True) -> ClientError:
    """The error for an answer that is none."""
    return ClientError(what, kind="malformed", retry=retry)


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
            raise malformed(f"{shown}; expected a number", retry=False)
    elif reward != reward or reward in (float("inf"), float("-inf")):
        raise malformed(f"reward is {reward}; expected a finite number", retry=False)
    response = answer.get("response")
    if response is not None and not isinstance(response, Mapping):
        raise malformed("response is not an object", retry=False)
    usage = (response or {}).get("usage")
    if usage is not None and not isinstance(usage, Mapping):
        raise malformed("response.usage is not an object", retry=False)
    for name, value in [*answer.items(), *(usage or {}).items()]:
        if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT:
            raise malformed(f"{name} needs more than 64 bits; expected a smaller integer", retry=False)
    return {**answer, **_whose(row)}


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


def failed(row: Row, error: ClientError, before: int, secrets: Secrets) -> dict[str, Any]:
    """The sidecar's row for an attempt that brought no answer; ``before`` failed attempts came earlier."""
    problem = {"kind": error.kind, "message": secrets.scrub(str(error))}
    return attempted({FAILURE: error.kind, "error": problem, **_whose(row)}, before)


def attempted(row: Row, before: int) -> dict[str, Any]:
    """A failed attempt with its number, where it is not the first."""
    return {**row, ATTEMPT: before} if before else dict(row)


def outcome(row: Row) -> str:
    """The ledger's word for a row, as the reader of NeMo Gym's files will find it."""
    if row.get(KILLED):
        return "cancelled"
    if not is_failure(row):
        return "scored"
    return outcome_of(row[FAILURE])


def reason(row: Row) -> str:
    """Why an attempt failed: our own error, else what `calipers serve` says of it, else NeMo Gym's word."""
    error = row.get("error")
    message = error.get("message") if isinstance(error, Mapping) else row.get("failure_reason")
    return str(message or row[FAILURE])


def _whose(row: Row) -> dict[str, Any]:
    return {TASK: row[TASK], ROLLOUT: row[ROLLOUT], AGENT: row[AGENT]}
