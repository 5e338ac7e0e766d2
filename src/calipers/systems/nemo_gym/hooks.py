"""A resources server out of a user's file: made, ready to answer, or asked for its metrics of a file of rollouts."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calipers.compat import GYM, activate
from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.nemo_gym.aggregate import Hooks

if TYPE_CHECKING:
    from fastapi import FastAPI


_RIGHT = "expected FILE:CLASS, such as app.py:MathServer"
_NAMES = ("compute_metrics", "get_key_metrics")
_DEFAULTS = ("calipers.", "nemo_gym.")  # where a hook is defined that nobody has overridden


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
        raise PluginError(f"{path}: {kind.__name__} cannot be made: {error}") from error
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
    if hook is None or (getattr(hook, "__module__", None) or "").startswith(_DEFAULTS):
        return None
    name = hook.__name__
    if iscoroutinefunction(hook):
        raise PluginError(f"{path}: {name} is async; expected a plain def, as NeMo Gym awaits no hook")

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


def _run(path: str) -> ModuleType:
    try:
        source = Path(path).read_bytes()
        code = compile(source, path, "exec", dont_inherit=True)
    except OSError as error:
        raise InputError.at(path, error.strerror or str(error), _RIGHT) from error
    except (SyntaxError, ValueError) as error:
        line, why = (f":{error.lineno or 1}", error.msg) if isinstance(error, SyntaxError) else ("", str(error))
        raise InputError.at(f"{path}{line}", f"it is no Python: {why}", _RIGHT) from error
    name = f"calipers_hooks_{abs(hash(str(Path(path).resolve())))}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=path)
    module = ModuleType(name) if spec is None else importlib.util.module_from_spec(spec)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    activate(GYM)
    try:
        exec(code, vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failure(path, "", error) from error
    return module


def failure(path: str, what: str, error: BaseException) -> PluginError:
    """What went wrong and where: the innermost line of the user's own file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    location = f"{path}:{frames[-1].lineno}" if frames else path
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return PluginError(f"{location}: {what}: {message}" if what else f"{location}: {message}")


METHOD = "aggregate_metrics"
_OURS = ("calipers.", "nemo_gym.")


class Alone:
    """The client of a server that stands alone: there is no other server to call."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PluginError(f"server_client.{name}: calipers serve runs one server, which can call no other")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A user's server: where it comes from, the object itself, and what it adds to the metrics."""

    path: str
    server: Any
    hooks: Hooks

    @property
    def aggregates_itself(self) -> bool:
        """Whether it has a route of its own for metrics, which then stays."""
        method = getattr(type(self.server), METHOD, None)
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


def load_server(spec: str, host: str = "127.0.0.1", port: int = 0) -> Hosted:
    """Run a Python file and make a server of one of its classes; the code is yours, and runs in this process.

    InputError for what is no such file or class, or for one whose settings nobody has given; PluginError for one
    that fails.
    """
    path, kind = load_class(spec, "calipers serve")
    if not callable(getattr(kind, "setup_webserver", None)):
        wrong = f"{kind.__name__} is no resources server"
        raise InputError.at(path, wrong, "expected a subclass of nemo_gym.base_resources_server.SimpleResourcesServer")
    server = _made(path, kind, settings(path, kind, host, port))
    return Hosted(path, server, hooks_of(path, server))


def settings(path: str, kind: Any, host: str = "127.0.0.1", port: int = 0) -> Any:
    """The configuration in the class that the server declares for it."""
    from pydantic import ValidationError

    declared = kind.model_fields["config"].annotation
    given = {"name": kind.__name__, "host": host, "port": port, "entrypoint": Path(path).name, "domain": "other"}
    try:
        return declared(**{name: value for name, value in given.items() if name in declared.model_fields})
    except ValidationError as error:
        missing = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        right = f"calipers serve knows {', '.join(given)}; give the others a default"
        raise InputError.at(path, f"{declared.__name__} does not do without {missing}", right) from error


def _made(path: str, kind: Any, config: Any) -> Any:
    """The object; where the real package demands a client of its own kind, as that package makes one unchecked."""
    from pydantic import ValidationError

    try:
        try:
            return kind(config=config, server_client=Alone())
        except ValidationError:
            client = kind.model_fields["server_client"].annotation
            return kind(config=config, server_client=client.model_construct(global_config_dict={}))
    except Exception as error:
        raise failure(path, f"{kind.__name__} cannot be made", error) from error
