"""NeMo Gym's configuration: YAML files laid over each other, and the server in them that is to be served."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from calipers.errors import InputError, UnknownName
from calipers.systems.nemo_gym.hooks import KINDS, server_class, tree_root

MISSING: Final = "???"
SERVERS: Final = "NEMO_GYM_CONFIG_DICT"
SERVER: Final = "NEMO_GYM_CONFIG_PATH"
"""The environment variables in which a server of NeMo Gym's is handed the servers it can call, and its own name."""
SECRET: Final = re.compile("key|token|secret|password", re.IGNORECASE)
_INNERMOST: Final = re.compile(r"\$\{([^${}]*)\}")
_KEYS: Final = ("_inherit_from", "_copy", "_delete_key")
_DIRECTIVE: Final = re.compile(r"\$\{(inherit_from|copy):([^{}]*)\}")
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """One server of a configuration."""

    name: str
    kind: str  # resources_servers, responses_api_models or responses_api_agents
    implementation: str
    settings: dict[str, Any]

    @property
    def references(self) -> list[tuple[str, str]]:
        """The (kind, name) of every server that its settings name."""
        return list(_references(self.settings))


def _references(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if value.get("type") in KINDS and isinstance(value.get("name"), str):
            yield value["type"], value["name"]
        for part in value.values():
            yield from _references(part)
    elif isinstance(value, list):
        for part in value:
            yield from _references(part)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The files together: what stands in them, before anything is filled in."""

    paths: tuple[str, ...]
    values: Mapping[str, Any]
    moved: frozenset[str] = frozenset()  # blocks that others inherit from, and that are served only by their name

    @property
    def where(self) -> str:
        """The files, for a message."""
        return ", ".join(self.paths)

    def servers(self, kind: str) -> list[str]:
        """The names of the servers of a kind."""
        return [name for name, block in self.values.items() if isinstance(block, Mapping) and kind in block]

    def server(self, name: str, kind: str) -> ConfiguredServer:
        """A server by its name, its settings filled in. InputError for one that is not there, or not whole."""
        if not self.servers(kind):
            right = "add it with another --config FILE"
            raise InputError.at(self.where, f"no {kind} in it, but {name} is referenced", right)
        if name not in self.servers(kind):
            raise UnknownName.of(f"{kind} in {self.where}", name, self.servers(kind))
        implementations = self.values[name][kind]
        if not isinstance(implementations, Mapping) or len(implementations) != 1:
            raise InputError.at(
                self.where, f"{name}.{kind} is not a server", ("expected one implementation with settings")
            )
        ((implementation, block),) = implementations.items()
        if not isinstance(block, Mapping):
            right = "expected its settings, such as entrypoint: app.py"
            raise InputError.at(self.where, f"{name}.{kind}.{implementation} has no settings", right)
        kept = {key: value for key, value in block.items() if key != "datasets"}
        settings = self._filled(kept, f"{name}.{kind}.{implementation}")
        if unset := list(_unset(settings)):
            right = f"set {'it' if len(unset) == 1 else 'them'} in a later --config FILE"
            raise InputError.at(self.where, f"{name}: no value for {', '.join(unset)}", right)
        return ConfiguredServer(name, kind, str(implementation), settings)

    def _filled(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping):
            return {key: self._filled(part, f"{where}.{key}") for key, part in value.items()}
        if isinstance(value, list):
            return [self._filled(part, f"{where}.{number}") for number, part in enumerate(value)]
        return self._text(value, where) if isinstance(value, str) else value

    def _text(self, text: str, where: str) -> Any:
        """A text with every ``${...}`` in it replaced, the innermost first; one that is nothing else keeps its type."""
        for _ in range(100):  # a value may hold another reference, but not without end
            match = _INNERMOST.search(text)
            if match is None:
                return text
            value = self._value(match[1].strip(), where)
            if match[0] == text and not isinstance(value, str):
                return self._filled(value, where)
            text = text[: match.start()] + ("" if value is None else str(value)) + text[match.end() :]
        raise InputError.at(self.where, f"{where} refers to itself", "expected a reference to another key")

    def _value(self, reference: str, where: str) -> Any:
        kind, colon, rest = reference.partition(":")
        if not colon:
            value = self._at(reference)
            if value is _NOTHING or value == MISSING:
                right = "set it in a later --config FILE, or in env.yaml in the working folder"
                raise InputError.at(self.where, f"{where} is ${{{reference}}}, which is not set", right)
            return value
        name, comma, default = (part.strip() for part in rest.partition(","))
        if kind == "oc.env":
            value = os.environ.get(name, _NOTHING)
        elif kind == "oc.select":
            value = self._at(name)
        else:
            right = "expected a key, oc.env:VARIABLE or oc.select:KEY"
            raise InputError.at(self.where, f"{where}: ${{{reference}}} cannot be read", right)
        if value is _NOTHING:
            if not comma and kind == "oc.env":
                raise InputError.at(self.where, f"{where}: the environment has no {name}", "set it, or give a default")
            return _scalar(default) if default else None
        return _scalar(value) if kind == "oc.env" and isinstance(value, str) else value

    def _at(self, dotted: str) -> Any:
        return _at(self.values, dotted)


def _scalar(text: str) -> Any:
    """A text as YAML; one that is no YAML, as a password may be, as it is."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _at(values: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        if not isinstance(values, Mapping) or key not in values:
            return _NOTHING
        values = values[key]
    return values


def _unset(value: Any, where: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _unset(part, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _unset(part, f"{where}.{number}")
    elif value == MISSING:
        yield where


def read_configuration(paths: Sequence[str]) -> Configuration:
    """The files in their order, each after those that it lists as ``config_paths``; ``env.yaml`` of this folder last.

    InputError for a file that is not there or no YAML.
    """
    values: dict[str, Any] = {}
    seen: set[Path] = set()
    for path in paths:
        for block in _blocks(Path(path), seen):
            values = _over(values, block)
    if Path("env.yaml").is_file() and Path("env.yaml").resolve() not in seen:
        values = _over(values, _document(Path("env.yaml")))
    inherited = _Inheritance(values, ", ".join(paths))
    whole = inherited(values)
    for dotted in inherited.moved:
        _without(whole, dotted)
    return Configuration(tuple(paths), whole, frozenset(inherited.moved))


def _blocks(path: Path, seen: set[Path]) -> Iterator[dict[str, Any]]:
    real = Path(os.path.realpath(path))  # `resolve` raises for links in a circle, which `_document` tells
    if real in seen:
        return
    document = _document(path)
    seen.add(real)
    more = document.pop("config_paths", None) or []
    if not isinstance(more, list):
        raise InputError.at(str(path), f"config_paths is {more!r:.60}", "expected a list of files")
    for other in more:
        folders: Iterable[Path | None] = (Path(), tree_root(str(path)), path.parent)
        candidates = [folder / str(other) for folder in folders if folder is not None]
        yield from _blocks(next((file for file in candidates if file.is_file()), candidates[0]), seen)
    yield document


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        right = "expected a YAML file of NeMo Gym's"
        raise InputError.at(str(path), error.strerror or str(error), right) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        other = (
            "it is not text" if isinstance(error, (yaml.YAMLError, UnicodeDecodeError)) else str(error)
        )  # a bad date
        wrong = getattr(error, "problem", None) or other
        raise InputError.at(
            f"{path}{line}", f"it is not valid YAML: {wrong}", "expected NAME: {resources_servers: ...}"
        ) from error
    if not isinstance(document, dict):
        raise InputError.at(str(path), "it has no settings", "expected NAME: {resources_servers: {...}}")
    return document


def _over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """One object laid over another, key by key; lists and values replace."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


class _Inheritance:
    """Directives replaced by what they name: ``_inherit_from`` and ``_copy`` beside other keys, or as a text.

    What is inherited, and not copied, has moved: where it stood it counts no more.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._root, self._where = deepcopy(values), where
        self.moved: list[str] = []  # dotted paths

    def __call__(self, values: Any, inside: tuple[str, ...] = ()) -> Any:
        """The values with every directive in them replaced; ``inside`` are the paths that led here."""
        if isinstance(values, list):
            return [self(part, inside) if isinstance(part, (Mapping, list)) else part for part in values]
        if isinstance(values, str):
            match = _DIRECTIVE.fullmatch(values)
            return values if match is None else self._named(f"_{match[1]}", match[2], values, inside)
        if not isinstance(values, Mapping):
            return values
        mine = {key: value for key, value in values.items() if key not in _KEYS}
        for directive in _KEYS[:2]:
            if directive in values:
                base = self._named(directive, str(values[directive]), values, inside)
                if base == MISSING:
                    return MISSING
                if not isinstance(base, Mapping):
                    raise self._absent(directive, str(values[directive]))
                mine = _over(base, mine)
        for key in str(values.get("_delete_key", "")).split(","):
            mine.pop(key.strip(), None)
        return {key: self(value, inside) for key, value in mine.items()}

    def _named(self, directive: str, dotted: str, values: Any, inside: tuple[str, ...]) -> Any:
        if dotted in inside:
            raise InputError.at(self._where, f"{dotted} inherits from itself", "expected other settings")
        base = _at(self._root, dotted)
        if base is _NOTHING or base == values:
            raise self._absent(directive, dotted)
        if directive == _KEYS[0]:
            self.moved.append(dotted)
        return self(base, (*inside, dotted))

    def _absent(self, directive: str, dotted: str) -> InputError:
        right = "expected the dotted path of other settings"
        return InputError.at(self._where, f"{directive}: {dotted} is not there", right)


def _without(values: dict[str, Any], dotted: str) -> None:
    """Take what has moved out of settings; a block of its own stays, for who names it."""
    *above, last = dotted.split(".")
    block = _at(values, ".".join(above)) if above else None
    if isinstance(block, dict):
        block.pop(last, None)


def chosen_server(configuration: Configuration, spec: str | None) -> tuple[str, ConfiguredServer]:
    """FILE:CLASS and the settings of the resources server to serve.

    ``spec`` may be FILE:CLASS itself, or the name of a server where the configuration has several.
    """
    every = configuration.servers(KINDS[0])
    names = [name for name in every if name not in configuration.moved] or every
    if not names:
        right = f"expected NAME: {{{KINDS[0]}: {{IMPLEMENTATION: {{entrypoint: app.py}}}}}}"
        raise InputError.at(configuration.where, "no resources server in it", right)
    file, colon, _ = (spec or "").rpartition(":")
    if spec and colon:
        folder = Path(file).resolve().parent.name
        fitting = [name for name in names if folder in configuration.values[name][KINDS[0]]] or names
        return f"{Path(file).resolve()}:{spec.rpartition(':')[2]}", _only(configuration, fitting)
    server = configuration.server(spec, KINDS[0]) if spec else _only(configuration, names)
    path = _entrypoint(configuration, server)
    return f"{path}:{server_class(str(path))}", server


def _only(configuration: Configuration, names: Sequence[str]) -> ConfiguredServer:
    if len(names) > 1:
        wrong = f"it has the resources servers {', '.join(names)}"
        raise InputError.at(configuration.where, wrong, f"calipers serve {names[0]} --config ... serves that server")
    return configuration.server(names[0], KINDS[0])


def _entrypoint(configuration: Configuration, server: ConfiguredServer) -> Path:
    inside = Path(server.kind, server.implementation, str(server.settings.get("entrypoint") or "app.py"))
    roots = [Path.cwd(), *(root for path in configuration.paths if (root := tree_root(path)) is not None)]
    for root in roots:
        if (root / inside).is_file():
            return (root / inside).resolve()
    right = "expected it in the working folder, or in the tree of a --config FILE; FILE.py:CLASS names another"
    raise InputError.at(configuration.where, f"{server.name}: no file {inside}", right)


def handed_on(own: ConfiguredServer, others: Sequence[ConfiguredServer]) -> str:
    """The settings of a server and of those it names, as YAML, as it is handed them; without the keys of the others."""
    blocks = {own.name: {own.kind: {own.implementation: own.settings}}}
    for server in others:
        kept = {key: value for key, value in server.settings.items() if not SECRET.search(str(key))}
        blocks[server.name] = {server.kind: {server.implementation: kept}}
    return yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True)


def own_settings() -> dict[str, Any]:
    """The settings of the server that this process was handed."""
    blocks = yaml.safe_load(os.environ[SERVERS])
    name = os.environ[SERVER]
    implementations = next(iter(blocks[name].values()))
    settings: dict[str, Any] = next(iter(implementations.values()))
    return {**settings, "name": name}
