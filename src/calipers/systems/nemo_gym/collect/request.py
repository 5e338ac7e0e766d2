"""The request for a collection, from Calipers' options or NeMo Gym's ``+key=value`` arguments, and its plan.

The plan is NeMo Gym's materialised inputs: every request with its agent and its repeats, fixed before the run.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError, UnknownName
from calipers.systems.nemo_gym import AGENT, PARAMS, ROLLOUT, TASK
from calipers.systems.nemo_gym.wire import agent_name, index_fault

HEAD: Final = "http://127.0.0.1:11000"  # the default address of NeMo Gym's head server
DEFAULT: Final = "_default"

Row = Mapping[str, Any]
Key = tuple[int | str, int]  # (task, rollout): identifies a rollout of a collection


@dataclass(frozen=True, slots=True)
class Materializing:
    """The settings that turn inputs into planned rollouts, named like the options of NeMo Gym's collector."""

    agent_name: str | None = None  # the agent of rows that name none
    limit: int | None = None  # read only this many lines; 0 means no limit
    num_repeats: int | Mapping[str, int] | None = None  # one number, or a number per agent and ``_default``
    num_repeats_add_seed: bool = False
    responses_create_params: Mapping[str, Any] = field(default_factory=dict)  # override the parameters of every row
    prompt: Mapping[str, str] | None = None  # the templates ``user`` and, optionally, ``system``


@dataclass(frozen=True, slots=True)
class Collecting:
    """The settings of a collection, with every value resolved."""

    input: str  # a file of tasks, one JSON object per line
    output: Path
    agents: Mapping[str, str] = field(default_factory=dict)  # name -> URL of an agent server, or KIND/NAME of a model
    how: Materializing = field(default_factory=Materializing)
    # the built-in agent
    base_url: str | None = None
    verify_url: str | None = None
    verifier: str | None = None
    # the connections to the agents
    concurrency: int = 32
    retries: int = 8
    timeout: float = 1800.0
    head: str = HEAD
    token_env: str | None = None  # the environment variable with the servers' token
    # the output
    overwrite: bool = False
    local: bool = False  # compute all metrics here, instead of asking the agents for their own
    aggregate: bool = True
    metrics: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, lowest in {"concurrency": 1, "retries": 0}.items():
            if getattr(self, name) < lowest:
                raise InputError.at(f"--{name}", f"is {getattr(self, name)}", f"expected an integer >= {lowest}")
        if not self.timeout > 0:
            raise InputError.at("--timeout", f"is {self.timeout:g}", "expected a number > 0")
        if self.how.limit is not None and self.how.limit < 0:
            raise InputError.at("--limit", f"is {self.how.limit}", "expected an integer >= 0")
        if self.verify_url is not None and self.verifier is not None:
            raise InputError.at("--verifier", "is given together with --verify-url", "expected one of the two")


WORDS: Final = {  # key of ng_collect_rollouts -> Calipers' option
    "input_jsonl_fpath": "input",
    "output_jsonl_fpath": "output",
    "agent_name": "agent_name",
    "limit": "limit",
    "num_repeats": "num_repeats",
    "num_repeats_add_seed": "add_seed",
    "num_samples_in_parallel": "concurrency",
    "responses_create_params": "params",
    "prompt_config": "prompt_config",
    "resume_from_cache": "resume",
    "disable_aggregation": "disable_aggregation",
    "head_server": "head_server",
}
NESTED: Final = ("responses_create_params", "num_repeats", "head_server")
IDLE: Final = ("upload_rollouts", "upload_rollouts_to_wandb", "rollout_collection_driver", "skills", "config_paths")


def collecting(options: Mapping[str, Any], words: Sequence[str]) -> Collecting:
    """The settings of a collection from options and ``+key=value`` words. Options take precedence over words."""
    settings = {**_word_settings(words), **options}
    for name, word in (("input", "input_jsonl_fpath"), ("output", "output_jsonl_fpath")):
        if not settings.get(name):
            raise InputError.at(f"--{name}", "is not given", f"expected a file (or {word}=FILE)")
    agents = _agents(settings.get("agents", ()))
    default = settings.get("agent_name") or (next(iter(agents)) if len(agents) == 1 else None)
    params = {**_object("responses_create_params", settings.get("params") or {})}
    given = {key: settings.get(key) for key in ("temperature", "top_p", "max_output_tokens")}
    params |= {key: value for key, value in given.items() if value is not None}
    for key, value in params.items():
        if isinstance(value, float) and not isfinite(value):  # would be encoded as null, the server's default
            raise InputError.at(f"responses_create_params.{key}", f"is {value}", "expected a finite number")
    how = Materializing(
        agent_name=None if default is None else _text("agent_name", default),
        limit=_integer("limit", settings.get("limit")),
        num_repeats=_repeats(settings.get("num_repeats")),
        num_repeats_add_seed=_truth("num_repeats_add_seed", settings.get("add_seed")),
        responses_create_params=params,
        prompt=_prompt(settings.get("prompt_config")),
    )
    named = ("base_url", "verify_url", "verifier", "retries", "timeout", "token_env", "local", "metrics")
    more = {key: settings[key] for key in named if settings.get(key) is not None}
    if (concurrency := _integer("num_samples_in_parallel", settings.get("concurrency"))) is not None:
        more["concurrency"] = concurrency
    return Collecting(
        _text("input_jsonl_fpath", settings["input"]),
        Path(_text("output_jsonl_fpath", settings["output"])),
        agents,
        how,
        head=_head(settings.get("head_server")),
        overwrite=bool(settings.get("overwrite")) or not _truth("resume_from_cache", settings.get("resume", True)),
        aggregate=not _truth("disable_aggregation", settings.get("disable_aggregation")),
        **more,
    )


def _word_settings(words: Sequence[str]) -> dict[str, Any]:
    """The values of ``+key=value`` words under Calipers' option names; UnknownName for an unknown key."""
    settings: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.lstrip("+").partition("=")
        key, *inner = path.split(".")
        if not equals or not key:
            raise InputError(f"{word!r} cannot be read; expected +key=value, such as +num_repeats=4")
        value = value_of(text)
        if key in IDLE:
            if value not in (None, False, "", [], {}):
                raise InputError.at(word, f"{key} has no effect here", "remove it")
            continue
        if key not in WORDS:
            raise UnknownName.of("key of a collection", key, [*WORDS, *IDLE])
        if inner and key not in NESTED:
            raise InputError.at(word, f"{key} has no keys", f"expected +{key}=value")
        _put(settings, [WORDS[key], *inner], value)
    return settings


def _put(settings: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        inner = settings.get(key)
        settings[key] = settings = dict(inner) if isinstance(inner, dict) else {}
    settings[path[-1]] = value


def value_of(text: str) -> Any:
    """The value of a ``+key=value`` word: JSON, Hydra's ``{a:1,b:[x,y]}``, a number, null, true, false, or text.

    >>> value_of("{math:2,_default:1}"), value_of("1e-3"), value_of("null"), value_of("a b")
    ({'math': 2, '_default': 1}, 0.001, None, 'a b')
    """
    text = text.strip()
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    if text.startswith("[") and text.endswith("]"):
        return [value_of(part) for part in _parts(text[1:-1])]
    if text.startswith("{") and text.endswith("}"):
        pairs = [part.partition(":") for part in _parts(text[1:-1])]
        if all(colon for _, colon, _ in pairs):
            return {_key(key): value_of(value) for key, _, value in pairs}
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", text, re.IGNORECASE):
        return float(text)
    plain = {"null": None, "none": None, "true": True, "false": False}
    if text.lower() in plain:
        return plain[text.lower()]
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def _key(text: str) -> str:
    """A key of a Hydra object, without its quotes."""
    key = value_of(text)
    return key if isinstance(key, str) else text.strip()


def _parts(text: str) -> list[str]:
    """The parts between commas. A comma within brackets belongs to an inner object or list."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def _agents(texts: Sequence[str]) -> dict[str, str]:
    """The URL or ``KIND/MODEL`` of each agent by its name, from ``NAME=TARGET`` texts."""
    agents: dict[str, str] = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not (equals and name and target) or "/" in name:
            forms = "expected NAME=URL of an agent server, or NAME=KIND/MODEL, such as simple_agent=openai/gpt-4o-mini"
            raise InputError.at("--agent", f"{text!r} cannot be read", forms)
        if name in agents:
            raise InputError.at("--agent", f"{name} is given twice", "expected it once")
        agents[name] = target
    return agents


def _repeats(value: Any) -> int | dict[str, int] | None:
    """The number of repeats of all agents, or of each agent. ``math=4,_default=1`` is one way to write the latter."""
    if isinstance(value, str):
        if re.fullmatch(r"\s*[-+]?\d+\s*", value):
            return int(value)
        pairs = [pair.partition("=") for pair in value.split(",")]
        value = {name.strip(): value_of(number) if equals else name for name, equals, number in pairs}
    if isinstance(value, Mapping):
        expected = f"expected a number, or NAME=N,{DEFAULT}=N"
        return {str(name): _integer("num_repeats", number, expected) or 0 for name, number in value.items()}
    return _integer("num_repeats", value)


def _prompt(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    import yaml

    path = _text("prompt_config", value)
    expected = "expected YAML with user, and optionally system"
    try:
        templates = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})", expected) from None
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: not UTF-8, or a value such as an invalid date
        raise InputError.at(path, "is not valid YAML", expected) from None
    if not isinstance(templates, dict) or not isinstance(templates.get("user"), str):
        raise InputError.at(path, "there is no text under user", expected)
    if not isinstance(templates.get("system", ""), str):
        raise InputError.at(path, "system is not text", expected)
    return {role: templates[role] for role in ("system", "user") if role in templates}


def _head(value: Any) -> str:
    if value is None:
        return HEAD
    server = _object("head_server", value)
    return f"http://{server.get('host', '127.0.0.1')}:{server.get('port', 11000)}"


def _object(key: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if not isinstance(value, Mapping):
        raise InputError.at(key, f"is {value!r:.60}", "expected a JSON object")
    return value


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, Path)):
        raise InputError.at(key, f"is {value!r:.60}", "expected text")
    return str(value)


def _integer(key: str, value: Any, expected: str = "expected an integer") -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError.at(key, f"is {value!r:.60}", expected)
    return value


def _truth(key: str, value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InputError.at(key, f"is {value!r:.60}", "expected true or false")
    return bool(value)


def key_of(row: Row) -> Key:
    """The key of a row's rollout."""
    return row[TASK], row[ROLLOUT]


def agent_of(row: Row) -> str:
    """The name of the agent that a planned row is for."""
    name: str = row[AGENT]["name"]
    return name


def materialize(lines: Iterable[bytes | str], how: Materializing, path: str = "input") -> list[dict[str, Any]]:
    """The planned rollouts of a file of inputs, one row each, with repeats next to each other: a a b b c c.

    Equal lines are one task; a row that has a task index keeps it. Rollouts are numbered within their task.
    InputError names the line of a bad input.
    """
    rows = _rows(lines, how, path)
    _check_agents(rows, path)
    counts: dict[Any, int] = {}
    planned = []
    for row, repeats in zip(rows, _repeats_of(rows, how.num_repeats), strict=True):
        for _ in range(repeats):
            number = counts.get(row[TASK], 0)
            counts[row[TASK]] = number + 1
            rollout = {**row, ROLLOUT: number}
            if how.num_repeats_add_seed:
                rollout[PARAMS] = _seeded(row[PARAMS], number, path)
            planned.append(rollout)
    return planned


def _rows(lines: Iterable[bytes | str], how: Materializing, path: str) -> list[dict[str, Any]]:
    texts = list(lines)[: how.limit or None]
    tasks: dict[str, int] = {}
    rows = []
    for number, line in enumerate(texts, 1):
        location = f"{path}:{number}"
        text = _utf8(location, line)
        row = _decoded(location, text)
        if not isinstance(row.get(PARAMS, {} if how.prompt else None), dict):
            raise InputError.at(location, f"{PARAMS} is not an object", "expected the request to send")
        if how.prompt:
            row[PARAMS] = _prompted(location, row, how.prompt)
        if how.responses_create_params:
            row[PARAMS] = {**row[PARAMS], **how.responses_create_params}
        if how.agent_name is not None and not row.get(AGENT):
            row[AGENT] = {"name": how.agent_name}
        if TASK not in row:
            row[TASK] = tasks.setdefault(text, len(tasks))
        if fault := index_fault(TASK, row[TASK]):
            raise InputError.at(location, *fault)
        rows.append(row)
    return rows


def _utf8(location: str, line: bytes | str) -> str:
    """A line without its line break. InputError for invalid UTF-8, because replacing bytes would change a prompt."""
    try:
        return (line if isinstance(line, str) else line.decode()).rstrip("\r\n")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} of the line is not UTF-8"
        raise InputError.at(location, problem, "expected UTF-8 text") from None


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
    except (LookupError, ValueError, AttributeError, TypeError) as error:  # {x.y} and {x[y]} access parts of a value
        raise InputError.at(location, f"the prompt template needs {error}", f"known: {', '.join(row)}") from None
    return {**params, "input": [{"role": role, "content": text} for role, text in texts]}


def _check_agents(rows: list[dict[str, Any]], path: str) -> None:
    nameless = [number for number, row in enumerate(rows, 1) if not agent_name(row)]
    if nameless:
        lines = ", ".join(map(str, nameless[:5])) + (", ..." if len(nameless) > 5 else "")
        raise InputError.at(
            path, f"no agent for line {lines}", (f"expected {AGENT}: {{name: ...}}, or --agent for all lines")
        )


def _repeats_of(rows: list[dict[str, Any]], num_repeats: int | Mapping[str, int] | None) -> list[int]:
    """The number of repeats of each row."""
    by_agent = num_repeats if isinstance(num_repeats, Mapping) else {DEFAULT: 1 if num_repeats is None else num_repeats}
    for repeats in by_agent.values():
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise InputError(f"the number of repeats is {repeats!r}; expected an integer >= 1")
    agents = [agent_name(row) or "" for row in rows]
    unlisted = sorted({*agents} - by_agent.keys())
    if unlisted and DEFAULT not in by_agent:
        raise InputError(f"no number of repeats for agent {', '.join(unlisted)}; expected one, or {DEFAULT}")
    for name in sorted(by_agent.keys() - {*agents, DEFAULT}):
        warnings.warn(f"repeats are given for agent {name!r}, which no input names", stacklevel=3)
    return [by_agent[agent if agent in by_agent else DEFAULT] for agent in agents]


def _seeded(params: Mapping[str, Any], seed: int, path: str) -> dict[str, Any]:
    """The request parameters with a seed in ``metadata.extra_body``, which is JSON in a string."""
    metadata = params.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError.at(path, f"{PARAMS}.metadata is not an object", "expected one, for a seed to be put into")
    metadata = dict(metadata)
    try:
        body = json.loads(metadata.get("extra_body") or "{}")
        metadata["extra_body"] = json.dumps({**body, "seed": seed})
    except (ValueError, TypeError, RecursionError):
        raise InputError.at(path, "metadata.extra_body is not a JSON object", "expected one, as text") from None
    return {**params, "metadata": metadata}
