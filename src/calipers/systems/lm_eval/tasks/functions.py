"""``!function`` of a task file, loaded only where the user trusts it: from beside the file, else an import."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.tasks.yaml import Function
from calipers.tasks.load_seeds import set_state, state_of

_loaded: dict[Path, ModuleType] = {}
_generators: dict[Path, list[tuple[Any, Any]]] = {}  # of each module, with the state that its import left


class Trusted(dict[str, Any]):
    """A mapping of a task file whose code the user lets run; what it names may be loaded."""


def functions_in(value: Any) -> Iterator[Function]:
    """Every function that a value names, however deep."""
    if isinstance(value, Function):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from functions_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from functions_in(item)


def refuse_untrusted(value: Any, location: str) -> None:
    """InputError where a value names a function: it is code that came with the data."""
    for function in functions_in(value):
        raise InputError.at(
            location, f"is {function}, code that came with the task", "read it, then run it with --trust"
        )


def with_functions(value: Any, location: str) -> Any:
    """The value with every function in it loaded. To be called for trusted files only."""
    if isinstance(value, Function):
        return load_function(value, location)
    if isinstance(value, list):
        return [with_functions(item, location) for item in value]
    if isinstance(value, Mapping):
        return Trusted({key: with_functions(item, location) for key, item in value.items()})
    return value


def load_function(function: Function, location: str) -> Callable[..., Any]:
    """The object behind a trusted function; PluginError says why there is none."""
    try:
        module = _module(function)
    except (Exception, SystemExit) as error:  # a module may also be a script that ends itself
        raise PluginError(f"{location}: {function} cannot be loaded: {_why(error)}") from error
    target: Callable[..., Any] | None = getattr(module, function.name, None)
    if target is None or not callable(target):
        raise PluginError(f"{location}: {function}: {module.__name__} has nothing to call of that name")
    return target


def _why(error: BaseException) -> str:
    name = getattr(error, "name", None) or ""
    for package, remedy in (
        ("lm_eval", "it works only where lm-evaluation-harness is installed"),
        ("datasets", "install calipers[hf]"),
    ):
        absent = isinstance(error, ImportError) and name.partition(".")[0] == package and not is_installed(package)
        if absent:
            return f"it imports {package}, which is not installed; {remedy}"
    return f"{type(error).__name__}: {error}"


def rewind() -> None:
    """Put the generators that tasks' modules hold back to where their import left them.

    Several tasks may share a module: the documents of one must not depend on those loaded before it.
    """
    for states in _generators.values():
        for generator, state in states:
            set_state(generator, state)


def is_installed(package: str) -> bool:
    """Whether a package can be found, without importing it."""
    return sys.modules.get(package) is not None or importlib.util.find_spec(package) is not None


def _module(function: Function) -> ModuleType:
    file = function.folder.joinpath(*function.module.split(".")).with_suffix(".py")
    if not file.is_file():
        with _importable_from(None):
            return importlib.import_module(function.module)
    real = file.resolve()
    if not real.is_relative_to(function.folder.resolve()):
        raise ImportError(f"{file} leads out of the task's folder")
    if real not in _loaded:
        name = f"calipers_task_{sha256(str(real).encode()).hexdigest()[:12]}_{real.stem}"
        spec = importlib.util.spec_from_file_location(name, real)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look a class up by its module's name
        try:
            with _importable_from(real.parent):  # a utils.py may import the file next to it
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _loaded[real] = module
        _generators[real] = [
            (generator, state) for generator in vars(module).values() if (state := state_of(generator)) is not None
        ]
    return _loaded[real]


@contextmanager
def _importable_from(folder: Path | None) -> Iterator[None]:
    """The import path with a task's folder last, so that it hides no library, and without the working directory."""
    before = sys.path.copy()
    sys.path[:] = [entry for entry in before if entry not in ("", ".")] + ([str(folder)] if folder else [])
    try:
        yield
    finally:
        sys.path[:] = before
