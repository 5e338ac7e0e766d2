"""The reader of EvSys' ``benchmark:`` section in a run's configuration file, which becomes settings of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from calipers.errors import CalipersError, InputError, UnknownName
from calipers.names import CLIENTS
from calipers.running.settings import Settings, setting, shown

KEYS: Final = {  # key of the section -> Calipers' setting
    "metrics": "metrics",
    "num_samples": "samples",
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "limit": "limit",
    "breakdown_keys": "by",
    "n_concurrent": "concurrency",
}
OTHER_KEYS: Final = ("path", "id", "name", "engine", "chat_template", "models", "model", "inference")
TRAINING_KEYS: Final = ("run_every", "split", "tags")  # only used in training
DEFAULTS: Final = {"dialect": "evsys", "max_tokens": 512, "temperature": 0.0, "concurrency": 8}
MOCK: Final = "calipers.systems.evsys.lent:MockInference"  # EvSys' mock client


def runs(path: str, section: Any, shared: Settings) -> tuple[list[Settings], list[str]]:
    """The settings of each run of a section, or of a list of sections, and notes on keys that are ignored."""
    settings: list[Settings] = []
    notes: list[str] = []
    for number, part in enumerate(section if isinstance(section, list) else [section]):
        location = f"{path}: benchmark" + (f"[{number}]" if isinstance(section, list) else "")
        if not isinstance(part, dict):
            raise InputError.at(location, f"is {shown(part)}", "expected a mapping with path, id or name")
        run, run_notes = _run(location, part)
        settings.append({**DEFAULTS, **run, **shared})
        notes += run_notes
    return settings, notes


def _run(location: str, section: Mapping[Any, Any]) -> tuple[Settings, list[str]]:
    known = (*OTHER_KEYS, *KEYS, *TRAINING_KEYS)
    for key in section:
        if key not in known:
            raise UnknownName(f"{location}: {UnknownName.of('key', str(key), known)}")
    benchmark = next((str(section[key]) for key in ("path", "id", "name") if section.get(key)), None)
    if benchmark is None:
        raise InputError.at(location, "does not name a benchmark", "expected path, id or name")
    if str(section.get("engine") or "").lower() == "harbor":
        raise CalipersError(f"{location}: engine is harbor; calipers run does not support it yet: remove engine")
    run = {name: setting(f"{location}.{key}", name, section[key]) for key, name in KEYS.items() if key in section}
    run |= {"benchmark": (benchmark,)}
    run |= _chat_settings(f"{location}.chat_template", section.get("chat_template") or {})
    if models := _models(location, section):
        run["model"] = models
    if section.get("inference"):
        run |= _inference(f"{location}.inference", section["inference"])
    ignored = [key for key in TRAINING_KEYS if section.get(key)]
    return run, [f"{location}: {', '.join(ignored)}: only for training, ignored here"] if ignored else []


def _chat_settings(location: str, template: Any) -> Settings:
    known = ("system_prompt", "user_template", "enable_thinking")
    if not isinstance(template, dict) or any(key not in known for key in template):
        raise InputError.at(location, f"is {shown(template)}", f"expected {', '.join(known)}")
    texts = {key: template[key] for key in known[:2] if template.get(key) is not None}
    settings = {key: setting(f"{location}.{key}", key, text) for key, text in texts.items()}
    if template.get("enable_thinking") is not None:
        settings["gen_kwargs"] = {"chat_template_kwargs": {"enable_thinking": bool(template["enable_thinking"])}}
    return settings


def _models(location: str, section: Mapping[Any, Any]) -> tuple[str, ...]:
    """The models of a section. EvSys names them as litellm does; a name that begins with a client's kind is kept."""
    given = section.get("models")
    given = section.get("model") if given is None else given
    models: Sequence[Any] = [] if given is None else given if isinstance(given, list) else [given]
    if not all(isinstance(model, str) and model for model in models):
        raise InputError.at(f"{location}.models", f"is {shown(given)}", "expected a model's name or a list of them")
    return tuple(model if model.partition("/")[0] in CLIENTS.entries else f"litellm/{model}" for model in models)


def _inference(location: str, inference: Any) -> Settings:
    """The settings for EvSys' ``{kind, params}``: a model of Calipers, and its parameters."""
    if not isinstance(inference, dict) or not isinstance(inference.get("kind"), str):
        raise InputError.at(location, f"is {shown(inference)}", "expected kind and params")
    for key in inference:
        if key not in ("kind", "params"):
            expected = f"expected {{kind: ..., params: {{{key}: ...}}}}"
            raise InputError.at(location, f"no key named {str(key)!r}", expected)
    params = inference.get("params") or {}
    if not isinstance(params, dict):
        raise InputError.at(f"{location}.params", f"is {shown(params)}", "expected a mapping")
    if inference["kind"] == "mock":
        if params:  # the mock here has only the default template, so its score would not be that of these params
            advice = "remove params, or use your own client as model: python/FILE.py:OBJECT"
            problem = f"is {shown(params)}, which the mock does not accept here"
            raise InputError.at(f"{location}.params", problem, advice)
        return {"model": (f"python/{MOCK}",)}
    if inference["kind"] != "openai":
        problem = f"kind is {inference['kind']!r}"
        raise InputError.at(location, problem, "expected openai or mock, or a model as KIND/NAME")
    known = {"base_url": "base_url", "timeout_s": "timeout", "system_prompt": "system_prompt"}
    unknown = [key for key in params if key not in {"model", "default_max_tokens", "default_temperature", *known}]
    if unknown:
        raise InputError.at(location, f"no parameter named {unknown[0]!r}", f"known: model, {', '.join(known)}")
    run = {name: setting(f"{location}.params.{key}", name, params[key]) for key, name in known.items() if key in params}
    return {"model": (f"openai/{params.get('model', 'gpt-4o-mini')}",), **run}
