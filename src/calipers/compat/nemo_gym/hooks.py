"""``--hooks FILE:CLASS``: a resources server's metrics for a file of rollouts, without a server."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any

from calipers.compat.lending import GYM, activate
from calipers.dialects.nemo_gym_aggregate import Hooks
from calipers.errors import InputError, PluginError, UnknownName

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
    from calipers.compat.nemo_gym.hosting import Alone, settings

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
            found = hook(argument)
        except (Exception, SystemExit) as error:  # a hook may not end the process it runs in
            raise failure(path, f"{name} failed", error) from error
        if not isinstance(found, dict):
            raise PluginError(f"{path}: {name} returned {type(found).__name__}; expected a dict")
        return found

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
    found = importlib.util.spec_from_loader(name, loader=None, origin=path)
    module = ModuleType(name) if found is None else importlib.util.module_from_spec(found)
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
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    place = f"{path}:{own[-1].lineno}" if own else path
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return PluginError(f"{place}: {what}: {said}" if what else f"{place}: {said}")
