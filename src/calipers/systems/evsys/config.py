"""EvSys' ``benchmark:`` section of a run's configuration file, as settings of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from calipers.errors import CalipersError, InputError, UnknownName
from calipers.names import CLIENTS
from calipers.running.settings import Settings, setting, shown

KEYS: Final = {  # a key of the section -> our setting
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
DEFAULTS: Final = {"dialect": "evsys", "max_tokens": 512, "temperature": 0.0, "concurrency": 8}
MOCK: Final = "calipers.systems.evsys.lent:MockInference"  # the model of its mock client


def runs(path: str, section: Any, shared: Settings) -> tuple[list[Settings], list[str]]:
    """The runs of a section, or of a list of them, as settings, and notes on what in it has no meaning here."""
    several: list[Settings] = []
    notes: list[str] = []
    for number, part in enumerate(section if isinstance(section, list) else [section]):
        where = f"{path}: benchmark" + (f"[{number}]" if isinstance(section, list) else "")
        if not isinstance(part, dict):
            raise InputError.at(where, f"is {shown(part)}", "expected a mapping with path, id or name")
        run, more = _run(where, part)
        several.append({**DEFAULTS, **run, **shared})
        notes += more
    return several, notes


def _run(where: str, section: Mapping[Any, Any]) -> tuple[Settings, list[str]]:
    known = (*APART, *KEYS, *IDLE)
    for key in section:
        if key not in known:
            raise UnknownName(f"{where}: {UnknownName.of('key', str(key), known)}")
    named = next((str(section[key]) for key in ("path", "id", "name") if section.get(key)), None)
    if named is None:
        raise InputError.at(where, "does not name a benchmark", "expected path, id or name")
    if str(section.get("engine") or "").lower() == "harbor":
        raise CalipersError(f"{where}: engine is harbor; calipers run does not support it yet: remove engine")
    run = {ours: setting(f"{where}.{key}", ours, section[key]) for key, ours in KEYS.items() if key in section}
    run |= {"benchmark": (named,)} | dict(_chat(f"{where}.chat_template", section.get("chat_template") or {}))
    if models := _models(where, section):
        run["model"] = models
    if section.get("inference"):
        run |= _inference(f"{where}.inference", section["inference"])
    idle = [key for key in IDLE if section.get(key)]
    return run, [f"{where}: {', '.join(idle)}: only for training, ignored here"] if idle else []


def _chat(where: str, template: Any) -> Iterator[tuple[str, Any]]:
    known = ("system_prompt", "user_template", "enable_thinking")
    if not isinstance(template, dict) or any(key not in known for key in template):
        raise InputError.at(where, f"is {shown(template)}", f"expected {', '.join(known)}")
    texts = {key: template[key] for key in known[:2] if template.get(key) is not None}
    yield from ((key, setting(f"{where}.{key}", key, text)) for key, text in texts.items())
    if template.get("enable_thinking") is not None:
        yield "gen_kwargs", {"chat_template_kwargs": {"enable_thinking": bool(template["enable_thinking"])}}


def _models(where: str, section: Mapping[Any, Any]) -> tuple[str, ...]:
    """EvSys names models as litellm does; a kind of ours in front is taken as ours."""
    given = section.get("models")
    given = section.get("model") if given is None else given
    several: Sequence[Any] = [] if given is None else given if isinstance(given, list) else [given]
    if not all(isinstance(model, str) and model for model in several):
        raise InputError.at(f"{where}.models", f"is {shown(given)}", "expected a model's name or a list of them")
    return tuple(model if model.partition("/")[0] in CLIENTS.entries else f"litellm/{model}" for model in several)


def _inference(where: str, inference: Any) -> Settings:
    """EvSys' ``{kind, params}`` as a model of ours."""
    if not isinstance(inference, dict) or not isinstance(inference.get("kind"), str):
        raise InputError.at(where, f"is {shown(inference)}", "expected kind and params")
    for key in inference:
        if key not in ("kind", "params"):
            raise InputError.at(where, f"no key named {str(key)!r}", f"expected {{kind: ..., params: {{{key}: ...}}}}")
    params = inference.get("params") or {}
    if not isinstance(params, dict):
        raise InputError.at(f"{where}.params", f"is {shown(params)}", "expected a mapping")
    if inference["kind"] == "mock":
        if params:  # it would answer with its own template, and the score would be of that
            right = "remove params, or use your own client as model: python/FILE.py:OBJECT"
            raise InputError.at(f"{where}.params", f"is {shown(params)}, which the mock does not accept here", right)
        return {"model": (f"python/{MOCK}",)}
    if inference["kind"] != "openai":
        raise InputError.at(where, f"kind is {inference['kind']!r}", "expected openai or mock, or a model as KIND/NAME")
    known = {"base_url": "base_url", "timeout_s": "timeout", "system_prompt": "system_prompt"}
    odd = [key for key in params if key not in {"model", "default_max_tokens", "default_temperature", *known}]
    if odd:
        raise InputError.at(where, f"no parameter named {odd[0]!r}", f"known: model, {', '.join(known)}")
    run = {ours: setting(f"{where}.params.{key}", ours, params[key]) for key, ours in known.items() if key in params}
    return {"model": (f"openai/{params.get('model', 'gpt-4o-mini')}",), **run}
