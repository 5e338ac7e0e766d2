"""Run other systems' code unchanged: their imports resolve here if their packages are absent; and load user plugins.

Nothing happens at import. `activate` lends ``evsys_sdk`` or ``nemo_gym``, `load_plugin` runs a file or module that
brings metrics, and `skip_unknown_metrics` restores what EvSys does with a metric it does not know.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from calipers.errors import InputError, PluginError, nearest
from calipers.names import (
    CLIENTS,
    DIALECTS,
    FILTERS,
    LENT,
    LENT_REGISTRIES,
    METRICS,
    VERIFIERS,
    Index,
    compiled_file,
    failure_of,
    load,
)

__all__ = ["activate", "borrowing", "deactivate", "load_plugin", "skip_unknown_metrics"]

EVSYS: Final = "evsys_sdk"
GYM: Final = "nemo_gym"


class _Lender(MetaPathFinder, Loader):
    """Finds the parts of packages that exist here, and says so when asked for another."""

    def __init__(self) -> None:
        self.lent: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in self.lent:
            return None
        if fullname not in LENT[package]:
            # without its name attribute: `from evsys_sdk import x` would hide this text behind one of its own
            raise ModuleNotFoundError(_not_lent(package, fullname))
        return ModuleSpec(fullname, self, is_package=True)  # so that Python asks here for what is below it, too

    def exec_module(self, module: ModuleType) -> None:
        home, _, some = LENT[module.__name__.partition(".")[0]][module.__name__].partition(":")
        source = _imported(home, module.__name__) if home else module
        names = some.split() or getattr(source, "__all__", [])
        module.__doc__ = source.__doc__
        there = {name: vars(source)[name] for name in names if name in vars(source)}
        later = partial(_attribute, module.__name__, source, frozenset(names))
        vars(module).update({"__all__": names, **there, "__getattr__": later})


def _attribute(part: str, source: ModuleType, names: frozenset[str], name: str) -> Any:
    """A name of a lent module that is loaded when it is asked for: one of its source's, or a module below it."""
    if f"{part}.{name}" in LENT[part.partition(".")[0]]:
        return importlib.import_module(f"{part}.{name}")
    if name not in names:
        raise AttributeError(f"module {part!r} has no attribute {name!r}")
    return getattr(source, name)


def _not_lent(package: str, part: str) -> str:
    """What to say of a module, or of a name in one, that is not lent: the nearest that is, or all modules."""
    parts = LENT[package]
    parent, _, name = part.rpartition(".")
    while parent not in parts:
        parent, _, name = parent.rpartition(".")
    below = [other.removeprefix(f"{parent}.") for other in parts if other.startswith(f"{parent}.")]
    names = getattr(sys.modules.get(parent), "__all__", ())
    known = {*names, *(other for other in below if "." not in other)}
    classes = {other for other in known if other[:1].isupper()}  # Benchmark and benchmark are two names
    if close := nearest(name, classes if name[:1].isupper() else known - classes, 1) or nearest(name, known, 1):
        return f"Calipers does not provide {part}; did you mean {parent}.{close[0]}? Install {package} to get all of it"
    there = ", ".join(other for other, home in parts.items() if home)
    return f"Calipers provides {there}, but not {part}; install {package} to get all of it"


def _imported(home: str, part: str) -> ModuleType:
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != "pydantic":
            raise
        right = "pip install 'calipers[serve]'"
        raise ModuleNotFoundError(f"{part} needs pydantic, which is not installed; {right}") from None


_LENDER: Final = _Lender()


def activate(package: str = EVSYS) -> bool:
    """Make ``evsys_sdk`` or ``nemo_gym`` importable; does nothing and returns False if the real package is installed.

    A second call changes nothing.
    """
    if package in _LENDER.lent:
        return True
    if _installed(package):
        return False
    sys.modules.pop(package, None)  # a folder of that name, imported before
    _LENDER.lent.add(package)
    if _LENDER not in sys.meta_path:
        sys.meta_path.insert(0, _LENDER)
    return True


def deactivate(package: str = EVSYS) -> None:
    """Take a package back; what was registered stays."""
    _LENDER.lent.discard(package)
    if not _LENDER.lent and _LENDER in sys.meta_path:
        sys.meta_path.remove(_LENDER)
    for part in LENT[package]:
        module = sys.modules.get(part)
        if module is not None and module.__spec__ is not None and module.__spec__.loader is _LENDER:
            del sys.modules[part]


def _installed(package: str) -> bool:
    """Whether the real package is there. A mere folder is not one: EvSys keeps its logs in such a folder."""
    if package in sys.modules:
        spec = sys.modules[package].__spec__
        return spec is None or spec.origin is not None
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


@contextmanager
def borrowing() -> Iterator[None]:
    """Run somebody's EvSys code inside: ``evsys_sdk`` is there, and what is registered is known here.

    What a module registered before it failed to load is taken back.
    """
    before = {index.kind: set(index.added) for index in (METRICS, VERIFIERS)}
    lent = activate()
    try:
        yield
    except BaseException:
        for index in (METRICS, VERIFIERS):
            _take_back(index, set(index.added) - before[index.kind])
        raise
    if not lent:
        _adopt()


def _take_back(index: Index, names: set[str]) -> None:
    gone = [name for name in names if getattr(index.added[name], "__module__", "") not in sys.modules]
    if gone:
        registry = load(LENT_REGISTRIES[index.kind])
        for name in gone:
            registry.unregister(name)


def _adopt() -> None:
    """Add what the real registry holds beyond its own metrics, if it was imported at all."""
    registry = sys.modules.get("evsys_sdk.registry")
    if registry is None:
        return
    known = DIALECTS.load("evsys").metrics or ()
    for name in registry.list_metrics():
        if name not in known:
            METRICS.add(name, registry.get_metric(name))


_RIGHT = "expected a Python file or an importable module"
_EMPTY = (
    "expected a function decorated with @calipers.metric or @calipers.verifier, a calipers.Metric in the module, "
    'a class decorated with @register_metric("NAME"), with parentheses, or a verifier with @register_fn("NAME")'
)

_loaded: dict[str, tuple[str, frozenset[str]]] = {}  # file or module -> (the module's name, the metrics it added)


def load_plugin(spec: str) -> list[str]:
    """Run a Python file, or import a module, and return the metrics it adds, sorted.

    A class decorated with EvSys' ``@register_metric`` is added, and so is a verifier decorated with ``@register_fn``;
    every `calipers.Metric` in the module is added by its name. The same file again changes nothing; one
    that was edited replaces its metrics. InputError if it is not a plugin, PluginError with file and
    line if it fails.
    """
    is_file = spec.endswith(".py") or os.sep in spec or os.path.isfile(spec)
    plugin_id = str(Path(spec).resolve()) if is_file else spec
    name, code = _compiled(spec, plugin_id) if is_file else (spec, None)
    if plugin_id in _loaded:
        earlier, metrics = _loaded[plugin_id]
        if earlier == name and metrics <= METRICS.added.keys():
            return sorted(metrics)
        _forget(earlier)
    before, others = set(METRICS.added), _others()
    with borrowing():
        try:
            module = _run(spec, name, code) if code else _import(spec)
            _add_metrics(spec, module)
        except BaseException:
            if code:
                sys.modules.pop(name, None)
            raise
    metrics = frozenset((METRICS.added.keys() - before) | _defined(module))
    if not metrics and _others() == others:
        raise InputError.at(spec, "it adds no metric and no verifier", _EMPTY)
    _loaded[plugin_id] = name, metrics
    return sorted(metrics)


def _others() -> set[tuple[str, str, int]]:
    """What was added beside metrics: verifiers, filters and kinds of models, as (kind, name, object)."""
    added_by_kind = [(index.kind, index.added) for index in (CLIENTS, FILTERS, VERIFIERS)]
    if functions := sys.modules.get("calipers.verifiers.user_code"):  # EvSys' own table of verifiers
        added_by_kind.append(("function", functions.registered()))
    return {(kind, name, id(thing)) for kind, added in added_by_kind for name, thing in added.items()}


def _compiled(spec: str, plugin_id: str) -> tuple[str, CodeType]:
    """A file's code, and a module name that no other file has, nor the same file with another text."""
    source, code = compiled_file(spec, _RIGHT)
    stem = re.sub(r"\W", "_", Path(spec).stem)
    digest = hashlib.sha256(plugin_id.encode(errors="surrogateescape") + b"\0" + source).hexdigest()
    return f"calipers_plugin_{stem}_{digest[:12]}", code


def _run(spec: str, name: str, code: CodeType) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(name, spec)
    if module_spec is None:
        raise InputError.at(spec, "it is not a Python file", "expected a name that ends in .py")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        exec(code, vars(module))
    except (Exception, SystemExit) as error:
        raise _failure(spec, error) from error
    return module


def _import(spec: str) -> ModuleType:
    if not all(part.isidentifier() for part in spec.split(".")):
        raise InputError.at(repr(spec), "no such file or module", _RIGHT)
    try:
        return importlib.import_module(spec)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{spec}.".startswith(f"{error.name}."):
            raise InputError.at(repr(spec), "no such file or module", _RIGHT) from error
        raise _failure(spec, error) from error


def _failure(spec: str, error: BaseException) -> PluginError:
    """What went wrong and where: the innermost line of the first file that is neither ours nor the importer's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    location = spec
    if frames:
        inner_frames = [frame for frame in frames if frame.filename == frames[0].filename]
        location = f"{inner_frames[-1].filename}:{inner_frames[-1].lineno}"
    elif isinstance(error, SyntaxError):
        location = f"{error.filename}:{error.lineno}"
    return PluginError(f"{location}: {failure_of(spec, error)[1]}")


def _is_machinery(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen ") or filename == importlib.__file__


def _add_metrics(spec: str, module: ModuleType) -> None:
    from calipers.metrics import Metric

    metrics = [thing for thing in vars(module).values() if isinstance(thing, Metric) and not _is_built_in(thing)]
    for metric in metrics:
        if metric.name in METRICS.entries or METRICS.match(metric.name):
            raise InputError.at(spec, f"metric {metric.name!r} is built in", "rename the new metric")
    for metric in metrics:
        try:
            METRICS.add(metric.name, metric)
        except PluginError as error:
            raise PluginError(f"{spec}: {error}") from error


def _is_built_in(metric: object) -> bool:
    """Whether it is one of ours, imported by the plugin for its own use."""
    return any(metric is METRICS.load(entry) for entry in METRICS.entries)


def _defined(module: ModuleType) -> set[str]:
    """The metrics that stand in a module, whenever they were added."""
    ids = {id(thing) for thing in vars(module).values()}
    return {
        name
        for name, thing in METRICS.added.items()
        if id(thing) in ids or getattr(thing, "__module__", "") == module.__name__
    }


def _forget(name: str) -> None:
    """Take back what an earlier text of a file defined, so that the new one may define it again."""
    registry = load(LENT_REGISTRIES[METRICS.kind])
    if module := sys.modules.get(name):
        for metric in _defined(module):
            registry.unregister(metric)
        for judge, thing in [*VERIFIERS.added.items()]:
            if getattr(thing, "__module__", "") == name:
                load(LENT_REGISTRIES[VERIFIERS.kind]).unregister(judge)


def skip_unknown_metrics(on: bool = True) -> None:
    """In the evsys dialect, skip metrics that are unknown or fail, with a warning.

    EvSys always does so. Here a requested metric without a value is an error, unless this
    is called; ``skip_unknown_metrics(False)`` turns it off.
    """
    DIALECTS.discard("evsys")
    if on:
        DIALECTS.add("evsys", replace(DIALECTS.load("evsys"), skips=True))
