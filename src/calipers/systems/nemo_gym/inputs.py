"""NeMo Gym's materialised inputs: every planned request, its agent and its repeats, decided before the run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from calipers.errors import InputError
from calipers.systems.nemo_gym.wire import agent_name, index_fault
from calipers.systems.nemo_gym.words import AGENT, ROLLOUT, TASK

PARAMS: Final = "responses_create_params"
DEFAULT: Final = "_default"


@dataclass(frozen=True, slots=True)
class Materializing:
    """How inputs become planned rollouts, with the option names of NeMo Gym's collector."""

    agent_name: str | None = None  # for rows that name none
    limit: int | None = None  # the first lines only; 0 is no limit
    num_repeats: int | Mapping[str, int] | None = None  # for all, or by agent with a ``_default``
    num_repeats_add_seed: bool = False
    responses_create_params: Mapping[str, Any] = field(default_factory=dict)  # laid over every row's own
    prompt: Mapping[str, str] | None = None  # templates ``user`` and, if wanted, ``system``


def materialize(lines: Iterable[bytes | str], how: Materializing, path: str = "input") -> list[dict[str, Any]]:
    """The planned rollouts of a file of inputs, a row each, in the order a a b b c c.

    Equal lines are one task; a row's own task index stays. Rollouts are numbered within their task.
    InputError names the line of a bad one.
    """
    rows = _rows(lines, how, path)
    _check_agents(rows, path)
    repeats = _repeats(rows, how.num_repeats)
    done: dict[Any, int] = {}
    planned = []
    for row, times in zip(rows, repeats, strict=True):
        for _ in range(times):
            number = done.get(row[TASK], 0)
            done[row[TASK]] = number + 1
            again = {**row, ROLLOUT: number}
            if how.num_repeats_add_seed:
                again[PARAMS] = _seeded(row[PARAMS], number, path)
            planned.append(again)
    return planned


def _rows(lines: Iterable[bytes | str], how: Materializing, path: str) -> list[dict[str, Any]]:
    texts = list(lines)[: how.limit or None]
    tasks: dict[str, int] = {}
    rows = []
    for number, line in enumerate(texts, 1):
        location = f"{path}:{number}"
        text = _text(location, line)
        row = _decoded(location, text)
        if not isinstance(row.get(PARAMS, {} if how.prompt else None), dict):
            raise InputError.at(location, f"{PARAMS} is not an object", "expected the request to send")
        if how.prompt:
            row[PARAMS] = _prompted(location, row, how.prompt)
        if how.responses_create_params:
            row[PARAMS] = {**row[PARAMS], **how.responses_create_params}
        name = how.agent_name
        if name is not None and not row.get(AGENT):
            row[AGENT] = {"name": name}
        if TASK not in row:
            row[TASK] = tasks.setdefault(text, len(tasks))
        if fault := index_fault(TASK, row[TASK]):
            raise InputError.at(location, *fault)
        rows.append(row)
    return rows


def _text(location: str, line: bytes | str) -> str:
    """A line without its end. What is not UTF-8 is refused: a prompt is not to be changed on its way."""
    try:
        return (line if isinstance(line, str) else line.decode()).rstrip("\r\n")
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start + 1} of the line is not UTF-8"
        raise InputError.at(location, wrong, "expected UTF-8 text") from None


def _decoded(location: str, text: str) -> dict[str, Any]:
    if not text.strip():
        raise InputError.at(location, "the line is blank", "expected one JSON object per line")
    try:
        row = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError.at(location, "half of a surrogate pair appears alone", "expected whole characters") from None
    except (ValueError, RecursionError) as error:
        raise InputError.at(location, f"not JSON ({error})", "expected one JSON object per line") from None
    if not isinstance(row, dict):
        raise InputError.at(location, "an input is not an object", "expected one JSON object per line")
    return row


def _prompted(location: str, row: Mapping[str, Any], prompt: Mapping[str, str]) -> dict[str, Any]:
    params = dict(row.get(PARAMS, {}))
    if params.get("input"):
        raise InputError.at(location, "it already has an input", "remove it, or the prompt template")
    try:
        texts = [(role, prompt[role].format_map(row)) for role in ("system", "user") if prompt.get(role)]
    except (LookupError, ValueError, AttributeError, TypeError) as error:  # {x.y} and {x[y]} look into a column
        raise InputError.at(location, f"the prompt template needs {error}", f"known: {', '.join(row)}") from None
    return {**params, "input": [{"role": role, "content": text} for role, text in texts]}


def _check_agents(rows: list[dict[str, Any]], path: str) -> None:
    nameless = [number for number, row in enumerate(rows, 1) if not agent_name(row)]
    if nameless:
        some = ", ".join(map(str, nameless[:5])) + (", ..." if len(nameless) > 5 else "")
        raise InputError.at(
            path, f"no agent for line {some}", (f"expected {AGENT}: {{name: ...}}, or --agent for all lines")
        )


def _repeats(rows: list[dict[str, Any]], wanted: int | Mapping[str, int] | None) -> Iterator[int]:
    agents = [agent_name(row) or "" for row in rows]
    if not isinstance(wanted, Mapping):
        times = 1 if wanted is None else wanted
        _check(times)
        return iter([times] * len(rows))
    for times in wanted.values():
        _check(times)
    lacking = sorted({agent for agent in agents if agent not in wanted and DEFAULT not in wanted})
    if lacking:
        raise InputError(f"no number of repeats for agent {', '.join(lacking)}; expected one, or {DEFAULT}")
    for name in sorted({*wanted} - {*agents, DEFAULT}):
        warnings.warn(f"repeats are given for agent {name!r}, which no input names", stacklevel=3)
    return iter([wanted[agent] if agent in wanted else wanted[DEFAULT] for agent in agents])


def _check(times: Any) -> None:
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise InputError(f"the number of repeats is {times!r}; expected an integer >= 1")


def _seeded(params: Mapping[str, Any], seed: int, path: str) -> dict[str, Any]:
    """The request with a seed in its ``metadata.extra_body``, which is JSON inside a string."""
    metadata = params.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError.at(path, f"{PARAMS}.metadata is not an object", "expected one, for a seed to be put into")
    metadata = dict(metadata)
    try:
        body = json.loads(metadata.get("extra_body") or "{}")
        metadata["extra_body"] = json.dumps({**body, "seed": seed})
    except (ValueError, TypeError):
        raise InputError.at(path, "metadata.extra_body is not a JSON object", "expected one, as text") from None
    return {**params, "metadata": metadata}
