"""A resources server out of a user's file: made, ready to answer, or asked for its metrics of a file of rollouts."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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

_RIGHT = "expected FILE:CLASS, such as app.py:MathServer"
_NAMES = ("compute_metrics", "get_key_metrics")
_OURS = ("calipers.", "nemo_gym.")  # where a method is defined that nobody has overridden


def load_hooks(spec: str) -> Hooks:
    """Run a Python file and take the hooks of one of its classes; the code is yours, and runs in this process.

    InputError for what is no such file or class, PluginError with file and line for one that fails.
    """
    path, kind = load_class(spec, "--hooks")
    if not any(callable(getattr(kind, hook, None)) for hook in _NAMES):
        raise InputError.at(path, f"{kind.__name__} has no hook", f"expected {' or '.join(_NAMES)}")
    try:
        server: Any = object.__new__(kind)  # without its __init__, which may want a model or a network; hooks need none
    except TypeError as error:
        raise PluginError(f"{path}: {kind.__name__} cannot be created: {error}") from error
    return hooks_of(path, _filled(path, kind) or server)


def _filled(path: str, kind: Any) -> Any:
    """A pydantic server with the defaults of its fields, and the settings it would have under `calipers serve`.

    None for any other class, and for one whose own beginnings fail: a hook may do without them.
    """
    if not hasattr(kind, "model_construct"):
        return None

    try:
        given = {"config": settings(path, kind), "server_client": Alone()}
    except (InputError, KeyError, AttributeError):  # settings that nobody has given, or none at all
        given = {}
    try:
        return kind.model_construct(**given)
    except Exception:
        return None


def load_class(spec: str, option: str) -> tuple[str, type]:
    """The file and the class that ``FILE:CLASS`` names, the file having been run; ``option`` asked for it."""
    path, colon, name = spec.rpartition(":")
    if not colon or not path or not name:
        raise InputError.at(option, f"{spec!r} cannot be read", _RIGHT)
    module = _run(path)
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise UnknownName.of(f"class in {path}", name, classes)
    return path, kind


def hooks_of(path: str, server: Any) -> Hooks:
    """The hooks of a server that do more than nothing."""
    there = (getattr(server, name) if hasattr(type(server), name) else None for name in _NAMES)
    return Hooks(*(_guarded(path, hook) for hook in there))


def _guarded(path: str, hook: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """A hook whose errors say where they happened; None for one that is not there, or not overridden."""
    if hook is None or (getattr(hook, "__module__", None) or "").startswith(_OURS):
        return None
    name = hook.__name__
    if iscoroutinefunction(hook):
        raise PluginError(f"{path}: {name} is async; expected a plain def, because NeMo Gym does not await hooks")

    def called(argument: Any) -> Any:
        try:
            metrics = hook(argument)
        except (Exception, SystemExit) as error:  # a hook may not end the process it runs in
            raise failure(path, f"{name} failed", error) from error
        if not isinstance(metrics, dict):
            raise PluginError(f"{path}: {name} returned {type(metrics).__name__}; expected a dict")
        return metrics

    called.__name__ = name
    return called


def server_class(path: str) -> str:
    """The class that a file of NeMo Gym's runs when it is started itself: ``CLASS.run_webserver()`` stands in it.

    InputError where there is none, or where it cannot be told which.
    """
    tree = ast.parse(compiled_file(path, _RIGHT)[0], path)
    calls = [
        node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    started = {call.value.id for call in calls if call.attr == "run_webserver" and isinstance(call.value, ast.Name)}
    if len(started) != 1:
        wrong = "it starts no server" if not started else f"it starts {', '.join(sorted(started))}"
        raise InputError.at(path, wrong, f"{_RIGHT}, or a file that ends with CLASS.run_webserver()")
    return started.pop()


KINDS = ("resources_servers", "responses_api_agents", "responses_api_models")
"""The folders of a tree of NeMo Gym's; a file in one of them imports others from the root of the tree."""


def tree_root(path: str) -> Path | None:
    """The folder in which a file's ``resources_servers`` stands; None for a file that is in no such tree.

    >>> print(tree_root("/gym/resources_servers/mcqa/app.py"), tree_root("/home/me/app.py"))
    /gym None
    """
    folders = Path(path).resolve().parents
    return next((folder.parent for folder in folders if folder.name in KINDS), None)


_beside: dict[str, set[str]] = {}  # folder of a server, or root of a tree -> the modules that were imported from it
_added: set[str] = set()  # entries of Python's path that are ours


@contextmanager
def _importable(path: str) -> Iterator[None]:
    """The file's folder comes first, as for a script, and the root of its tree last; afterwards both come last.

    A server may import more while it answers. Another server's ``utils`` is forgotten before this one's is imported,
    and so is another tree.
    """
    folder, root = str(Path(path).resolve().parent), tree_root(path)
    for other, names in _beside.items():
        if other not in (folder, str(root)):
            for name in names:
                sys.modules.pop(name, None)
            names.clear()
    added = [folder, *([] if root is None else [str(root)])]
    added = [entry for entry in added if entry in _added or entry not in sys.path]  # what a user has there stays there
    _added.update(added)
    before = set(sys.modules)
    earlier = [entry for entry in sys.path if entry in _added and entry not in added]  # of other servers
    others = [entry for entry in sys.path if entry not in _added]
    sys.path[:] = [folder, *others, *added, *earlier]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)  # the first: what the file itself has put there stays
        new = set(sys.modules) - before
        mine = {name for name in new if "." not in name and _folder_of(sys.modules[name]) == folder}
        _beside.setdefault(folder, set()).update(name for name in new if name.partition(".")[0] in mine)
        _beside.setdefault(str(root), set()).update(name for name in new if name.partition(".")[0] in KINDS)


def _folder_of(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return ""
    where = Path(file).resolve()
    return str(where.parent.parent if where.name == "__init__.py" else where.parent)


def _run(path: str) -> ModuleType:
    _, code = compiled_file(path, _RIGHT)
    name = f"calipers_hooks_{abs(hash(str(Path(path).resolve())))}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=path)
    module = ModuleType(name) if spec is None else importlib.util.module_from_spec(spec)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    activate(GYM)  # before the tree can be imported from: its own nemo_gym needs more than the server does
    try:
        with _importable(path):
            exec(code, vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failure(path, "", error) from error
    return module


def failure(path: str, what: str, error: BaseException) -> PluginError:
    """What went wrong and where: the innermost line of the user's own file."""
    location, message = failure_of(path, error)
    return PluginError(": ".join(part for part in (location, what, message) if part))


class Alone:
    """The client of a server that stands alone: there is no other server to call."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PluginError(f"server_client.{name}: calipers serve runs one server, which cannot call another")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A user's server: where it comes from, the object itself, and what it adds to the metrics."""

    path: str
    server: Any
    hooks: Hooks

    @property
    def aggregates_itself(self) -> bool:
        """Whether it has a route of its own for metrics, which then stays."""
        method = getattr(type(self.server), "aggregate_metrics", None)
        return method is not None and not (method.__module__ or "").startswith(_OURS)

    def web(self) -> FastAPI:
        """Its web application, with the routes it adds."""
        try:
            app: FastAPI = self.server.setup_webserver()
        except Exception as error:
            raise failure(self.path, "setup_webserver failed", error) from error
        from fastapi import FastAPI

        if not isinstance(app, FastAPI):
            right = "expected the FastAPI application that super().setup_webserver() returns"
            raise PluginError(f"{self.path}: setup_webserver returned {type(app).__name__}; {right}")
        return app


def load_server(spec: str, host: str = "127.0.0.1", port: int = 0, given: Settings | None = None) -> Hosted:
    """Run a Python file and make a server of one of its classes; the code is yours, and runs in this process.

    ``given`` are its settings in a configuration, which then names the servers it can call.

    InputError for what is no such file or class, or for one whose settings nobody has given; PluginError for one
    that fails.
    """
    path, kind = load_class(spec, "calipers serve")
    if not callable(getattr(kind, "setup_webserver", None)):
        wrong = f"{kind.__name__} is not a resources server"
        raise InputError.at(path, wrong, "expected a subclass of nemo_gym.base_resources_server.SimpleResourcesServer")
    server = _made(path, kind, settings(path, kind, host, port, given), given is not None)
    return Hosted(path, server, hooks_of(path, server))


def settings(path: str, kind: Any, host: str = "127.0.0.1", port: int = 0, given: Settings | None = None) -> Any:
    """The configuration in the class that the server declares for it."""
    from pydantic import ValidationError

    declared = kind.model_fields["config"].annotation
    known = {"name": kind.__name__, "host": host, "port": port, "entrypoint": Path(path).name, "domain": "other"}
    kept = {name: value for name, value in known.items() if name in declared.model_fields}
    try:
        return declared(**{**kept, **(given or {}), "host": host, "port": port} if given else kept)
    except ValidationError as error:
        missing = [".".join(map(str, fault["loc"])) for fault in error.errors() if fault["type"] == "missing"]
        if not missing:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            right = fault["msg"].replace("Input should be", "expected")
            raise InputError.at(path, f"{declared.__name__}: {where} has a wrong value", right) from error
        right = f"calipers serve knows {', '.join(known)}; set others with --config FILE.yaml, or give them a default"
        wrong = f"{declared.__name__} needs {', '.join(missing)}"
        raise InputError.at(path, wrong, right) from error


def _made(path: str, kind: Any, config: Any, configured: bool) -> Any:
    """The object; where the real package demands a client of its own kind, as that package makes one unchecked."""
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
