"""A run's configuration file: our own keys, or EvSys' ``benchmark:`` section.

Ours has the names of the command's options::

    benchmark: data/arith        # or a list
    model: openai/gpt-4o-mini    # or a list
    samples: 4
    metrics: [pass@1, {metric: pass@3, threshold: 0.5}]

EvSys' section stands under ``benchmark`` or ``metadata.benchmark``, a mapping or a list of them, and
means what it means there: its defaults, and the dialect evsys. An unknown key is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from calipers.errors import CalipersError, InputError, UnknownName
from calipers.jobs.job import Job
from calipers.names import CLIENTS, MOCK_MODEL
from calipers.run.client import Price
from calipers.tasks.load_seeds import LOAD_SEEDS, MOST, Seeds

Settings = dict[str, Any]
"""Values of a `Job` by name; ``benchmark`` and ``model`` are lists."""

EVSYS: Final = {  # a key of EvSys' section -> our setting
    "metrics": "metrics",
    "num_samples": "samples",
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "limit": "limit",
    "breakdown_keys": "by",
    "n_concurrent": "concurrency",
}
APART: Final = ("path", "id", "name", "engine", "chat_template", "models", "model", "inference")  # read one by one
IDLE: Final = ("run_every", "split", "tags")  # for training
EVSYS_DEFAULTS: Final = {"dialect": "evsys", "max_tokens": 512, "temperature": 0.0, "concurrency": 8}
OURS: Final = tuple(field.name for field in fields(Job) if field.name not in ("origins", "among", "lm_eval"))
LISTS: Final = ("benchmark", "model", "metrics", "stop", "by", "include_path")


def read_config(path: str) -> tuple[list[Settings], list[str]]:
    """The runs a file asks for, as settings, and notes on what in it has no meaning here."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        twice = list(_twice(path, yaml.compose(text, yaml.SafeLoader)))
    except OSError as error:
        right = "expected a task of lm-evaluation-harness, or a file with benchmark and model"
        raise InputError.at(path, f"cannot be read ({error.strerror})", right) from None
    except UnicodeDecodeError:
        raise InputError.at(path, "is not UTF-8", "expected YAML in UTF-8") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _syntax(path, error) from None
    if not isinstance(content, dict):
        raise InputError.at(path, "is no mapping", "expected keys such as benchmark, model, samples")
    section = content.get("benchmark")
    inner = content.get("metadata")
    if isinstance(section, dict) or (isinstance(section, list) and any(isinstance(one, dict) for one in section)):
        others = {key: value for key, value in content.items() if key != "benchmark"}
        runs, notes = _evsys_runs(path, section, _ours(path, others))
        return runs, [*twice, *notes]
    if section is None and isinstance(inner, dict) and "benchmark" in inner:
        runs, notes = _evsys_runs(path, inner["benchmark"], {})
        rest = ", ".join(key for key in content if key != "metadata")
        return runs, [*twice, *notes, *([f"{path}: {rest}: not used here"] if rest else [])]
    return [_ours(path, content)], twice


def _twice(path: str, node: Any) -> Iterator[str]:
    """A note for each key that stands twice in one mapping: YAML takes the last of them without a word."""
    left, seen = [node], set[int]()
    while left:
        node = left.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))
        pairs = [pair for pair in node.value if isinstance(pair, tuple)]
        left += [value for _, value in pairs] or node.value
        held = set[str]()
        for key in (key for key, _ in pairs if isinstance(key.value, str)):
            if key.value in held:
                yield f"{path}:{key.start_mark.line + 1}: {key.value} stands twice, and the last one counts"
            held.add(key.value)


def _ours(path: str, content: Mapping[Any, Any]) -> Settings:
    found: Settings = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name not in OURS:
            raise UnknownName(f"{path}: {UnknownName.of('setting', str(key), OURS)}")
        found[name] = setting(f"{path}: {key}", name, value)
    return found


def setting(place: str, name: str, value: Any) -> Any:
    """One value, checked, in the form that `Job` wants."""
    if value is None:
        return () if name in LISTS else None
    if name in LISTS:
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, (str, dict) if name == "metrics" else str) for one in several):
            raise InputError.at(place, f"is {_shown(value)}", "expected text or a list of texts")
        return tuple(several)
    if name == "price":
        return price(place, value)
    if name == "load_seeds":
        return load_seeds(place, value)
    if name == "gen_kwargs" and not _is_json(value):
        raise InputError.at(place, f"is {_shown(value)}", "expected what JSON can say; put a date in quotes")
    kind = str if name == "out" else _types()[name]
    try:
        found = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise InputError.at(place, f"is {_shown(value)}", f"expected {_meant(kind)}") from None
    return Path(found) if name == "out" else found


def _is_json(value: Any) -> bool:
    """Whether a server can be sent it: YAML also has dates, bytes, sets and numbers that are none."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _meant(kind: Any) -> str:
    """A type in words."""
    words = {int: "an integer", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    if kind in words:
        return words[kind]
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    return " or ".join(map(_meant, get_args(kind))) if get_origin(kind) is UnionType else "a mapping"


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Job)


def price(place: str, value: Any) -> Price:
    """``in,out``, or a list of two: dollars for a million tokens.

    >>> price("--price", "0.15,0.6")
    Price(input=0.15, output=0.6)
    """
    sides = value.split(",") if isinstance(value, str) else value
    try:
        first, second = (float(side) for side in sides)
    except (TypeError, ValueError):
        first = second = -1.0
    if not (0 <= first < float("inf") and 0 <= second < float("inf")):
        raise InputError.at(place, f"is {_shown(value)}", "expected in,out in dollars per million tokens: 0.15,0.6")
    return Price(first, second)


def load_seeds(place: str, value: Any) -> Seeds:
    """Four seeds, ``0,1234,1234,1234`` or a list; one alone is all four, and three leave the last as it is.

    >>> load_seeds("--load-seeds", "7"), load_seeds("--load-seeds", "1,2,3")
    ((7, 7, 7, 7), (1, 2, 3, 1234))
    """
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    try:
        found = [int(part) if isinstance(part, str) else part for part in parts]
    except ValueError:
        found = []
    found = found * 4 if len(found) == 1 else [*found, LOAD_SEEDS[3]] if len(found) == 3 else found
    if len(found) != 4 or not all(type(one) is int and 0 <= one < MOST for one in found):
        right = "expected four integers >= 0, of random, numpy, torch and the few-shot examples: 0,1234,1234,1234"
        raise InputError.at(place, f"is {_shown(value)}", right)
    return found[0], found[1], found[2], found[3]


def _evsys_runs(path: str, section: Any, shared: Settings) -> tuple[list[Settings], list[str]]:
    runs, notes = [], []
    for number, one in enumerate(section if isinstance(section, list) else [section]):
        place = f"{path}: benchmark" + (f"[{number}]" if isinstance(section, list) else "")
        if not isinstance(one, dict):
            raise InputError.at(place, f"is {_shown(one)}", "expected a mapping with path, id or name")
        run, told = _evsys_run(place, one)
        runs.append({**EVSYS_DEFAULTS, **run, **shared})
        notes += told
    return runs, notes


def _evsys_run(place: str, section: Mapping[Any, Any]) -> tuple[Settings, list[str]]:
    known = (*APART, *EVSYS, *IDLE)
    for key in section:
        if key not in known:
            raise UnknownName(f"{place}: {UnknownName.of('key', str(key), known)}")
    where = next((str(section[key]) for key in ("path", "id", "name") if section.get(key)), None)
    if where is None:
        raise InputError.at(place, "names no benchmark", "expected path, id or name")
    if str(section.get("engine") or "").lower() == "harbor":
        raise CalipersError(f"{place}: engine is harbor; calipers run does not drive Harbor yet: leave engine out")
    run = {ours: setting(f"{place}.{key}", ours, section[key]) for key, ours in EVSYS.items() if key in section}
    run |= {"benchmark": (where,)} | dict(_chat(place, section.get("chat_template") or {}))
    if models := _models(place, section):
        run["model"] = models
    if section.get("inference"):
        run |= _inference(f"{place}.inference", section["inference"])
    idle = [key for key in IDLE if section.get(key)]
    return run, [f"{place}: {', '.join(idle)}: for training, not used here"] if idle else []


def _chat(place: str, template: Any) -> Iterator[tuple[str, Any]]:
    known = ("system_prompt", "user_template", "enable_thinking")
    if not isinstance(template, dict) or any(key not in known for key in template):
        raise InputError.at(f"{place}.chat_template", f"is {_shown(template)}", f"expected {', '.join(known)}")
    yield from ((key, template[key]) for key in known[:2] if template.get(key) is not None)
    if template.get("enable_thinking") is not None:
        yield "gen_kwargs", {"chat_template_kwargs": {"enable_thinking": bool(template["enable_thinking"])}}


def _models(place: str, section: Mapping[Any, Any]) -> tuple[str, ...]:
    """EvSys names models as litellm does; a kind of ours in front is taken as ours."""
    asked = section.get("models")
    asked = section.get("model") if asked is None else asked
    several: Sequence[Any] = [] if asked is None else asked if isinstance(asked, list) else [asked]
    if not all(isinstance(one, str) and one for one in several):
        raise InputError.at(f"{place}.models", f"is {_shown(asked)}", "expected a model's name or a list of them")
    return tuple(one if one.partition("/")[0] in CLIENTS.entries else f"litellm/{one}" for one in several)


def _inference(place: str, inference: Any) -> Settings:
    """EvSys' ``{kind, params}`` as a model of ours."""
    if not isinstance(inference, dict) or not isinstance(inference.get("kind"), str):
        raise InputError.at(place, f"is {_shown(inference)}", "expected kind and params")
    params = inference.get("params") or {}
    if inference["kind"] == "mock":
        return {"model": (f"python/{MOCK_MODEL}",)}
    if inference["kind"] != "openai":
        raise InputError.at(place, f"kind is {inference['kind']!r}", "expected openai or mock, or a model as kind/name")
    known = {"base_url": "base_url", "timeout_s": "timeout", "system_prompt": "system_prompt"}
    odd = [key for key in params if key not in {"model", "default_max_tokens", "default_temperature", *known}]
    if odd:
        raise InputError.at(place, f"no parameter named {odd[0]!r}", f"known: model, {', '.join(known)}")
    run = {ours: setting(f"{place}.params.{key}", ours, params[key]) for key, ours in known.items() if key in params}
    return {"model": (f"openai/{params.get('model', 'gpt-4o-mini')}",), **run}


def _syntax(path: str, error: Exception) -> InputError:
    mark = getattr(error, "problem_mark", None)
    wrong = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return InputError.at(f"{path}:{mark.line + 1}" if mark else path, f"is no YAML ({wrong})")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
