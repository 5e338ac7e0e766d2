"""NeMo Gym's configuration: merged YAML files, and the server in them that is to be served."""

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
from calipers.systems.nemo_gym.hooks import KINDS, RESOURCES, server_class, tree_root

MISSING: Final = "???"
SERVERS: Final = "NEMO_GYM_CONFIG_DICT"
SERVER: Final = "NEMO_GYM_CONFIG_PATH"
"""The environment variables through which NeMo Gym gives a server the servers it can call, and its own name."""
SECRET: Final = re.compile("key|token|secret|password", re.IGNORECASE)
_INNERMOST: Final = re.compile(r"\$\{([^${}]*)\}")
_INHERIT, _COPY, _DELETE = "_inherit_from", "_copy", "_delete_key"  # keys that are directives
_DIRECTIVE: Final = re.compile(r"\$\{(inherit_from|copy):([^{}]*)\}")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """One server of a configuration."""

    name: str
    kind: str  # resources_servers, responses_api_models or responses_api_agents
    implementation: str
    settings: dict[str, Any]

    @property
    def references(self) -> list[tuple[str, str]]:
        """The (kind, name) of every server that the settings refer to."""
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
    """The merged files. References in their values are not yet resolved."""

    paths: tuple[str, ...]
    values: Mapping[str, Any]
    moved: frozenset[str] = frozenset()  # blocks that others inherit from; they are served only if named

    @property
    def files(self) -> str:
        """The paths of the files as text, for messages."""
        return ", ".join(self.paths)

    def servers(self, kind: str) -> list[str]:
        """The names of the servers of a kind; a key that is not text, such as 7, is not a name."""
        blocks = ((name, block) for name, block in self.values.items() if isinstance(block, Mapping))
        return [name for name, block in blocks if isinstance(name, str) and kind in block]

    def server(self, name: str, kind: str) -> ConfiguredServer:
        """A server by its name, with references resolved. InputError if it does not exist, or lacks a value."""
        if not self.servers(kind):
            problem = f"no {kind} in it, but {name} is referenced"
            raise InputError.at(self.files, problem, "add it with another --config FILE")
        if name not in self.servers(kind):
            raise UnknownName.of(f"{kind} in {self.files}", name, self.servers(kind))
        implementations = self.values[name][kind]
        if not isinstance(implementations, Mapping) or len(implementations) != 1:
            raise InputError.at(
                self.files, f"{name}.{kind} is not a server", ("expected one implementation with settings")
            )
        ((implementation, block),) = implementations.items()
        if not isinstance(block, Mapping):
            problem = f"{name}.{kind}.{implementation} has no settings"
            raise InputError.at(self.files, problem, "expected its settings, such as entrypoint: app.py")
        unresolved = {key: value for key, value in block.items() if key != "datasets"}
        try:
            settings = self._resolved(unresolved, f"{name}.{kind}.{implementation}")
        except RecursionError:  # a reference to an object around it
            problem = f"{name}.{kind}.{implementation} refers to itself"
            raise InputError.at(self.files, problem, "expected a reference to another key") from None
        if unset := list(_unset(settings)):
            advice = f"set {'it' if len(unset) == 1 else 'them'} in a later --config FILE"
            raise InputError.at(self.files, f"{name}: no value for {', '.join(unset)}", advice)
        return ConfiguredServer(name, kind, str(implementation), settings)

    def _resolved(self, value: Any, key: str) -> Any:
        """A value with every reference in it replaced; ``key`` is its dotted path, for messages."""
        if isinstance(value, Mapping):
            return {inner: self._resolved(part, f"{key}.{inner}") for inner, part in value.items()}
        if isinstance(value, list):
            return [self._resolved(part, f"{key}.{number}") for number, part in enumerate(value)]
        return self._resolved_text(value, key) if isinstance(value, str) else value

    def _resolved_text(self, text: str, key: str) -> Any:
        """A text with every ``${...}`` replaced, the innermost first. A text that is one reference keeps its type."""
        for _ in range(100):  # a value may contain further references, but not endlessly
            match = _INNERMOST.search(text)
            if match is None:
                return text
            value = self._referenced(match[1].strip(), key)
            if match[0] == text and not isinstance(value, str):
                return self._resolved(value, key)
            text = text[: match.start()] + ("" if value is None else str(value)) + text[match.end() :]
        raise InputError.at(self.files, f"{key} refers to itself", "expected a reference to another key")

    def _referenced(self, reference: str, key: str) -> Any:
        """The value of a reference: a dotted path, or ``oc.env:VARIABLE[,DEFAULT]`` or ``oc.select:KEY[,DEFAULT]``."""
        kind, colon, arguments = reference.partition(":")
        if not colon:
            value = _at(self.values, reference)
            if value is _ABSENT or value == MISSING:
                advice = "set it in a later --config FILE, or in env.yaml in the working folder"
                raise InputError.at(self.files, f"{key} is ${{{reference}}}, which is not set", advice)
            return value
        name, comma, default = (part.strip() for part in arguments.partition(","))
        if kind == "oc.env":
            value = os.environ.get(name, _ABSENT)
        elif kind == "oc.select":
            value = _at(self.values, name)
        else:
            expected = "expected a key, oc.env:VARIABLE or oc.select:KEY"
            raise InputError.at(self.files, f"{key}: ${{{reference}}} cannot be read", expected)
        if value is _ABSENT:
            if not comma and kind == "oc.env":
                raise InputError.at(self.files, f"{key}: the environment has no {name}", "set it, or give a default")
            return _scalar(default) if default else None
        return _scalar(value) if kind == "oc.env" and isinstance(value, str) else value


def _scalar(text: str) -> Any:
    """A text as YAML; a text that is not YAML, such as a password, is returned as it is."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _at(values: Any, dotted: str) -> Any:
    """The value at a dotted path; `_ABSENT` if there is none."""
    for key in dotted.split("."):
        if not isinstance(values, Mapping) or key not in values:
            return _ABSENT
        values = values[key]
    return values


def _unset(value: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of all values that are still `MISSING`."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _unset(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _unset(part, f"{path}.{number}")
    elif value == MISSING:
        yield path


def read_configuration(paths: Sequence[str]) -> Configuration:
    """Merge the files in their order, each after those in its ``config_paths``, and last ``env.yaml`` of this folder.

    InputError for a file that does not exist or is not YAML.
    """
    values: dict[str, Any] = {}
    seen: set[Path] = set()
    for path in paths:
        for block in _blocks(Path(path), seen):
            values = _over(values, block)
    if Path("env.yaml").is_file() and Path("env.yaml").resolve() not in seen:
        values = _over(values, _document(Path("env.yaml")))
    inheritance = _Inheritance(values, ", ".join(paths))
    resolved = inheritance(values)
    for dotted in inheritance.moved:
        _remove(resolved, dotted)
    return Configuration(tuple(paths), resolved, frozenset(inheritance.moved))


def _blocks(path: Path, seen: set[Path]) -> Iterator[dict[str, Any]]:
    """The document of a file, after those of its ``config_paths``; each file once."""
    real = Path(os.path.realpath(path))  # not `resolve`, which raises for circular links; `_document` reports them
    if real in seen:
        return
    document = _document(path)
    seen.add(real)
    more = document.pop("config_paths", None) or []
    if not isinstance(more, list):
        raise InputError.at(str(path), f"config_paths is {more!r:.60}", "expected a list of files")
    for listed in more:
        folders: Iterable[Path | None] = (Path(), tree_root(str(path)), path.parent)
        candidates = [folder / str(listed) for folder in folders if folder is not None]
        yield from _blocks(next(filter(os.path.isfile, candidates), candidates[0]), seen)
    yield document


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.at(str(path), error.strerror or str(error), "expected a YAML file of NeMo Gym's") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None)
        if not problem:  # any other ValueError is from a value, such as an invalid date
            problem = "it is not text" if isinstance(error, (yaml.YAMLError, UnicodeDecodeError)) else str(error)
        raise InputError.at(
            f"{path}{line}", f"it is not valid YAML: {problem}", "expected NAME: {resources_servers: ...}"
        ) from error
    if not isinstance(document, dict):
        raise InputError.at(str(path), "it has no settings", "expected NAME: {resources_servers: {...}}")
    return document


def _over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two objects key by key. Lists and values of ``over`` replace those of ``under``."""
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


class _Inheritance:
    """A function that replaces directives by the settings they name.

    A directive is a key, ``_inherit_from`` or ``_copy``, or a text such as ``${inherit_from:PATH}``. Settings that are
    inherited, but not copied, are ``moved``: they are removed from their old place.
    """

    def __init__(self, values: Mapping[str, Any], files: str) -> None:
        self._root, self._files = deepcopy(values), files
        self.moved: list[str] = []  # dotted paths

    def __call__(self, values: Any, inside: tuple[str, ...] = ()) -> Any:
        """The values with every directive replaced; ``inside`` are the paths whose settings are being resolved."""
        if isinstance(values, list):
            return [self(part, inside) if isinstance(part, (Mapping, list)) else part for part in values]
        if isinstance(values, str):
            match = _DIRECTIVE.fullmatch(values)
            return values if match is None else self._base(f"_{match[1]}", match[2], values, inside)
        if not isinstance(values, Mapping):
            return values
        settings = {key: value for key, value in values.items() if key not in (_INHERIT, _COPY, _DELETE)}
        for directive in (_INHERIT, _COPY):
            if directive in values:
                base = self._base(directive, str(values[directive]), values, inside)
                if base == MISSING:
                    return MISSING
                if not isinstance(base, Mapping):
                    raise self._absent(directive, str(values[directive]))
                settings = _over(base, settings)
        for key in str(values.get(_DELETE, "")).split(","):
            settings.pop(key.strip(), None)
        return {key: self(value, inside) for key, value in settings.items()}

    def _base(self, directive: str, dotted: str, values: Any, inside: tuple[str, ...]) -> Any:
        """The settings that a directive names, with their own directives replaced."""
        if dotted in inside:
            raise InputError.at(self._files, f"{dotted} inherits from itself", "expected other settings")
        base = _at(self._root, dotted)
        if base is _ABSENT or base == values:
            raise self._absent(directive, dotted)
        if directive == _INHERIT:
            self.moved.append(dotted)
        return self(base, (*inside, dotted))

    def _absent(self, directive: str, dotted: str) -> InputError:
        expected = "expected the dotted path of other settings"
        return InputError.at(self._files, f"{directive}: {dotted} is not there", expected)


def _remove(values: dict[str, Any], dotted: str) -> None:
    """Remove moved settings from their old place. A top-level block stays, because it can be served by its name."""
    *above, last = dotted.split(".")
    block = _at(values, ".".join(above)) if above else None
    if isinstance(block, dict):
        block.pop(last, None)


def chosen_server(configuration: Configuration, spec: str | None) -> tuple[str, ConfiguredServer]:
    """The FILE:CLASS and the settings of the resources server to serve.

    ``spec`` may be FILE:CLASS itself, or the name of a server, if the configuration has several.
    """
    every = configuration.servers(RESOURCES)
    names = [name for name in every if name not in configuration.moved] or every
    if not names:
        expected = f"expected NAME: {{{RESOURCES}: {{IMPLEMENTATION: {{entrypoint: app.py}}}}}}"
        raise InputError.at(configuration.files, "no resources server in it", expected)
    file, colon, class_name = (spec or "").rpartition(":")
    if colon:
        folder = Path(file).resolve().parent.name
        blocks = {name: configuration.values[name][RESOURCES] for name in names}
        fitting = [name for name, block in blocks.items() if isinstance(block, Mapping) and folder in block]
        return f"{Path(file).resolve()}:{class_name}", _only(configuration, fitting or names)
    server = configuration.server(spec, RESOURCES) if spec else _only(configuration, names)
    path = _entrypoint(configuration, server)
    return f"{path}:{server_class(str(path))}", server


def _only(configuration: Configuration, names: Sequence[str]) -> ConfiguredServer:
    if len(names) > 1:
        problem = f"it has the resources servers {', '.join(names)}"
        raise InputError.at(configuration.files, problem, f"calipers serve {names[0]} --config ... serves that server")
    return configuration.server(names[0], RESOURCES)


def _entrypoint(configuration: Configuration, server: ConfiguredServer) -> Path:
    relative = Path(server.kind, server.implementation, str(server.settings.get("entrypoint") or "app.py"))
    roots = [Path.cwd(), *(root for path in configuration.paths if (root := tree_root(path)) is not None)]
    for root in roots:
        if (root / relative).is_file():
            return (root / relative).resolve()
    expected = "expected it in the working folder, or in the tree of a --config FILE; FILE.py:CLASS names another"
    raise InputError.at(configuration.files, f"{server.name}: no file {relative}", expected)


def handed_on(served: ConfiguredServer, others: Sequence[ConfiguredServer]) -> str:
    """The YAML that a server is given: its settings, and those of the servers it names, without their secrets."""
    blocks = {served.name: {served.kind: {served.implementation: served.settings}}}
    for server in others:
        public = {key: value for key, value in server.settings.items() if not SECRET.search(str(key))}
        blocks[server.name] = {server.kind: {server.implementation: public}}
    return yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True)


def own_settings() -> dict[str, Any]:
    """The settings of this process's server, from the environment."""
    blocks = yaml.safe_load(os.environ[SERVERS])
    name = os.environ[SERVER]
    implementations = next(iter(blocks[name].values()))
    settings: dict[str, Any] = next(iter(implementations.values()))
    return {**settings, "name": name}
