"""Loaders of a resources server from a user's Python file: of the whole server, or only of its metric hooks."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calipers.compat import GYM, activate
from calipers.errors import InputError, PluginError, UnknownName
from calipers.names import compiled_file, failure_of
from calipers.systems.nemo_gym.aggregate import Hooks

if TYPE_CHECKING:
    from fastapi import FastAPI


Settings = Mapping[str, Any]

_EXPECTED = "expected FILE:CLASS, such as app.py:MathServer"
_HOOKS = ("compute_metrics", "get_key_metrics")
_OURS = ("calipers.", "nemo_gym.")  # the modules of methods that the user has not overridden


def load_hooks(spec: str) -> Hooks:
    """Run a Python file, and return the hooks of one of its classes. The user's code runs in this process.

    InputError if there is no such file or class; PluginError with file and line if the code fails.
    """
    path, kind = load_class(spec, "--hooks")
    if not any(callable(getattr(kind, hook, None)) for hook in _HOOKS):
        raise InputError.at(path, f"{kind.__name__} has no hook", f"expected {' or '.join(_HOOKS)}")
    try:
        server: Any = object.__new__(kind)  # skips __init__, which may need a model or a network; hooks do not
    except TypeError as error:
        raise PluginError(f"{path}: {kind.__name__} cannot be created: {error}") from error
    return hooks_of(path, _with_defaults(path, kind) or server)


def _with_defaults(path: str, kind: Any) -> Any:
    """An unchecked pydantic server with the defaults of its fields, and its settings under `calipers serve`.

    None for any other class, and for a class that cannot be created so: its hooks may not need the fields.
    """
    if not hasattr(kind, "model_construct"):
        return None

    try:
        fields = {"config": settings(path, kind), "server_client": Alone()}
    except (InputError, KeyError, AttributeError):  # a setting has no value, or the class declares no settings
        fields = {}
    try:
        return kind.model_construct(**fields)
    except Exception:
        return None


def load_class(spec: str, option: str) -> tuple[str, type]:
    """Run the file that ``FILE:CLASS`` names, and return its path and the class. Errors name ``option``."""
    path, colon, name = spec.rpartition(":")
    if not colon or not path or not name:
        raise InputError.at(option, f"{spec!r} cannot be read", _EXPECTED)
    module = _run(path)
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise UnknownName.of(f"class in {path}", name, classes)
    return path, kind


def hooks_of(path: str, server: Any) -> Hooks:
    """The hooks of a server that the user has overridden."""
    methods = {name: getattr(server, name) if hasattr(type(server), name) else None for name in _HOOKS}
    return Hooks(*(_guarded(path, name, hook) for name, hook in methods.items()))


def _guarded(path: str, name: str, hook: Any) -> Callable[[Any], Any] | None:
    """A hook whose errors name the file and line; None if there is no hook, or if it is not overridden."""
    if hook is None or (getattr(hook, "__module__", None) or "").startswith(_OURS):
        return None
    if not callable(hook):
        raise PluginError(f"{path}: {name} is {type(hook).__name__}; expected a plain def")
    if iscoroutinefunction(hook):
        raise PluginError(f"{path}: {name} is async; expected a plain def, because NeMo Gym does not await hooks")

    def called(argument: Any) -> Any:
        try:
            metrics = hook(argument)
        except (Exception, SystemExit) as error:  # sys.exit() in a hook must not end this process
            raise failure(path, f"{name} failed", error) from error
        if not isinstance(metrics, dict):
            raise PluginError(f"{path}: {name} returned {type(metrics).__name__}; expected a dict")
        return metrics

    called.__name__ = name
    return called


def server_class(path: str) -> str:
    """The name of the class that a file runs as a script: the CLASS of its ``CLASS.run_webserver()``.

    InputError unless there is exactly one.
    """
    tree = ast.parse(compiled_file(path, _EXPECTED)[0], path)
    calls = [
        node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    started = {call.value.id for call in calls if call.attr == "run_webserver" and isinstance(call.value, ast.Name)}
    if len(started) != 1:
        problem = "it starts no server" if not started else f"it starts {', '.join(sorted(started))}"
        raise InputError.at(path, problem, f"{_EXPECTED}, or a file that ends with CLASS.run_webserver()")
    return started.pop()


RESOURCES = "resources_servers"
KINDS = (RESOURCES, "responses_api_agents", "responses_api_models")
"""The folders of NeMo Gym's source tree. A file in one of them imports others from the root of the tree."""


def tree_root(path: str) -> Path | None:
    """The root of the NeMo Gym tree that a file is in; None for a file outside of such a tree.

    >>> print(tree_root("/gym/resources_servers/mcqa/app.py"), tree_root("/home/me/app.py"))
    /gym None
    """
    folders = Path(path).resolve().parents
    return next((folder.parent for folder in folders if folder.name in KINDS), None)


_beside: dict[str, set[str]] = {}  # folder of a server, or root of a tree -> modules that were imported from it
_added: set[str] = set()  # entries of sys.path that were added here


@contextmanager
def _importable(path: str) -> Iterator[None]:
    """Put the file's folder first on sys.path, as for a script, and the root of its tree last; afterwards, both last.

    Both stay on the path, because a server may import more while it answers. Modules of other servers' folders and
    trees are removed from sys.modules first, so that this server does not get another server's ``utils``.
    """
    folder, root = str(Path(path).resolve().parent), tree_root(path)
    for other, names in _beside.items():
        if other not in (folder, str(root)):
            for name in names:
                sys.modules.pop(name, None)
            names.clear()
    added = [folder, *([] if root is None else [str(root)])]
    added = [entry for entry in added if entry in _added or entry not in sys.path]  # the user's entries stay in place
    _added.update(added)
    before = set(sys.modules)
    earlier = [entry for entry in sys.path if entry in _added and entry not in added]  # added for other servers
    others = [entry for entry in sys.path if entry not in _added]
    sys.path[:] = [folder, *others, *added, *earlier]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)  # only the first occurrence; entries that the file itself has added stay
        new = set(sys.modules) - before
        local = {name for name in new if "." not in name and _folder_of(sys.modules[name]) == folder}
        _beside.setdefault(folder, set()).update(name for name in new if name.partition(".")[0] in local)
        _beside.setdefault(str(root), set()).update(name for name in new if name.partition(".")[0] in KINDS)


def _folder_of(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return ""
    path = Path(file).resolve()
    return str(path.parent.parent if path.name == "__init__.py" else path.parent)


def _run(path: str) -> ModuleType:
    _, code = compiled_file(path, _EXPECTED)
    name = f"calipers_hooks_{abs(hash(str(Path(path).resolve())))}"
    module = importlib.util.module_from_spec(ModuleSpec(name, None, origin=path))
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and pickle look up a class's module there
    activate(GYM)  # before the tree is importable, because the tree's own nemo_gym has more dependencies
    try:
        with _importable(path):
            exec(code, vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failure(path, "", error) from error
    return module


def failure(path: str, what: str, error: BaseException) -> PluginError:
    """A PluginError with the error's message and the innermost line of the user's own file."""
    location, message = failure_of(path, error)
    return PluginError(": ".join(part for part in (location, what, message) if part))


class Alone:
    """The client of a server that runs alone: there is no other server to call."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PluginError(f"server_client.{name}: calipers serve runs one server, which cannot call another")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A user's server: its file, the object, and its hooks."""

    path: str
    server: Any
    hooks: Hooks

    @property
    def aggregates_itself(self) -> bool:
        """Whether the server overrides ``aggregate_metrics``; if so, its own route is kept."""
        method = getattr(type(self.server), "aggregate_metrics", None)
        return method is not None and not (method.__module__ or "").startswith(_OURS)

    def web(self) -> FastAPI:
        """The server's web application, with the routes that it adds."""
        try:
            app: FastAPI = self.server.setup_webserver()
        except Exception as error:
            raise failure(self.path, "setup_webserver failed", error) from error
        from fastapi import FastAPI

        if not isinstance(app, FastAPI):
            expected = "expected the FastAPI application that super().setup_webserver() returns"
            raise PluginError(f"{self.path}: setup_webserver returned {type(app).__name__}; {expected}")
        return app


def load_server(spec: str, host: str = "127.0.0.1", port: int = 0, given: Settings | None = None) -> Hosted:
    """Run a Python file, and create a server of one of its classes. The user's code runs in this process.

    ``given`` are the server's settings from a configuration, which then also names the servers it can call.

    InputError if there is no such file or class, or if a setting has no value; PluginError if the code fails.
    """
    path, kind = load_class(spec, "calipers serve")
    config = getattr(kind, "model_fields", {}).get("config")
    if not callable(getattr(kind, "setup_webserver", None)) or not hasattr(
        config and config.annotation, "model_fields"
    ):
        problem = f"{kind.__name__} is not a resources server"
        expected = "expected a subclass of nemo_gym.base_resources_server.SimpleResourcesServer"
        raise InputError.at(path, problem, expected)
    server = _create(path, kind, settings(path, kind, host, port, given), given is not None)
    return Hosted(path, server, hooks_of(path, server))


def settings(path: str, kind: Any, host: str = "127.0.0.1", port: int = 0, given: Settings | None = None) -> Any:
    """The configuration of a server, as an object of the class that the server declares for it."""
    from pydantic import ValidationError

    declared = kind.model_fields["config"].annotation
    known = {"name": kind.__name__, "host": host, "port": port, "entrypoint": Path(path).name, "domain": "other"}
    fields = {name: value for name, value in known.items() if name in declared.model_fields}
    if given:
        fields = {**fields, **given, "host": host, "port": port}
    try:
        return declared(**fields)
    except ValidationError as error:
        missing = [".".join(map(str, fault["loc"])) for fault in error.errors() if fault["type"] == "missing"]
        if not missing:
            fault = error.errors()[0]
            field = ".".join(map(str, fault["loc"]))
            expected = fault["msg"].replace("Input should be", "expected")
            raise InputError.at(path, f"{declared.__name__}: {field} has a wrong value", expected) from error
        advice = f"calipers serve knows {', '.join(known)}; set others with --config FILE.yaml, or give them a default"
        raise InputError.at(path, f"{declared.__name__} needs {', '.join(missing)}", advice) from error


def _create(path: str, kind: Any, config: Any, configured: bool) -> Any:
    """Create the server. If the class demands a client of a declared type, an unchecked object of that type is used."""
    from pydantic import ValidationError

    try:
        servers: Any = {}
        client: Any = Alone()
        if configured:
            servers = importlib.import_module(f"{GYM}.global_config").get_global_config_dict()
            client = importlib.import_module(f"{GYM}.server_utils").ServerClient.model_construct(
                global_config_dict=servers
            )
        try:
            return kind(config=config, server_client=client)
        except ValidationError:
            declared = kind.model_fields["server_client"].annotation
            return kind(config=config, server_client=declared.model_construct(global_config_dict=servers))
    except Exception as error:
        raise failure(path, f"{kind.__name__} cannot be created", error) from error
