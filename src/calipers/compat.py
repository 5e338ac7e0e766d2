"""Run other systems' code unchanged by providing their packages if they are not installed, and load user plugins.

Nothing happens at import. `activate` provides ("lends") ``evsys_sdk`` or ``nemo_gym``, `load_plugin` runs a file or
module that adds metrics, and `skip_unknown_metrics` treats unknown metrics as EvSys does.
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
    """An importer for the provided modules of other packages; importing any other module of them is an error."""

    def __init__(self) -> None:
        self.lent: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in self.lent:
            return None
        if fullname not in LENT[package]:
            # without the attribute `name`, for which `from evsys_sdk import x` would replace this message by its own
            raise ModuleNotFoundError(_not_lent(package, fullname))
        return ModuleSpec(fullname, self, is_package=True)  # so that Python asks this finder for its submodules, too

    def exec_module(self, module: ModuleType) -> None:
        home, _, listed = LENT[module.__name__.partition(".")[0]][module.__name__].partition(":")
        source = _imported(home, module.__name__) if home else module
        names = listed.split() or getattr(source, "__all__", [])
        module.__doc__ = source.__doc__
        present = {name: vars(source)[name] for name in names if name in vars(source)}
        lazy = partial(_attribute, module.__name__, source, frozenset(names))
        vars(module).update({"__all__": names, **present, "__getattr__": lazy})


def _attribute(part: str, source: ModuleType, names: frozenset[str], name: str) -> Any:
    """The ``__getattr__`` of a lent module: a submodule, or a name of its source that is loaded on first use."""
    if f"{part}.{name}" in LENT[part.partition(".")[0]]:
        return importlib.import_module(f"{part}.{name}")
    if name not in names:
        raise AttributeError(f"module {part!r} has no attribute {name!r}")
    return getattr(source, name)


def _not_lent(package: str, part: str) -> str:
    """The error message for a module or name that is not lent: it suggests the nearest one, or lists all modules."""
    parts = LENT[package]
    parent, _, name = part.rpartition(".")
    while parent not in parts:
        parent, _, name = parent.rpartition(".")
    below = [module.removeprefix(f"{parent}.") for module in parts if module.startswith(f"{parent}.")]
    names = getattr(sys.modules.get(parent), "__all__", ())
    known = {*names, *(module for module in below if "." not in module)}
    classes = {name for name in known if name[:1].isupper()}  # Benchmark and benchmark are different names
    if close := nearest(name, classes if name[:1].isupper() else known - classes, 1) or nearest(name, known, 1):
        return f"Calipers does not provide {part}; did you mean {parent}.{close[0]}? Install {package} to get all of it"
    provided = ", ".join(module for module, home in parts.items() if home)
    return f"Calipers provides {provided}, but not {part}; install {package} to get all of it"


def _imported(home: str, part: str) -> ModuleType:
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != "pydantic":
            raise
        install = "pip install 'calipers[serve]'"
        raise ModuleNotFoundError(f"{part} needs pydantic, which is not installed; {install}") from None


_LENDER: Final = _Lender()


def activate(package: str = EVSYS) -> bool:
    """Make ``evsys_sdk`` or ``nemo_gym`` importable; does nothing and returns False if the real package is installed.

    A second call changes nothing.
    """
    if package in _LENDER.lent:
        return True
    if _installed(package):
        return False
    sys.modules.pop(package, None)  # a folder of that name that was imported as a namespace package
    _LENDER.lent.add(package)
    if _LENDER not in sys.meta_path:
        sys.meta_path.insert(0, _LENDER)
    return True


def deactivate(package: str = EVSYS) -> None:
    """Stop providing a package; what its decorators have registered stays."""
    _LENDER.lent.discard(package)
    if not _LENDER.lent and _LENDER in sys.meta_path:
        sys.meta_path.remove(_LENDER)
    for part in LENT[package]:
        module = sys.modules.get(part)
        if module is not None and module.__spec__ is not None and module.__spec__.loader is _LENDER:
            del sys.modules[part]


def _installed(package: str) -> bool:
    """Whether the real package is installed. A folder of that name does not count: EvSys keeps its logs in one."""
    if package in sys.modules:
        spec = sys.modules[package].__spec__
        return spec is None or spec.origin is not None
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


@contextmanager
def borrowing() -> Iterator[None]:
    """A context for running EvSys code: ``evsys_sdk`` can be imported, and what it registers is known to Calipers.

    If the code fails, everything that it has registered is removed again.
    """
    before = {index.kind: set(index.added) for index in (METRICS, VERIFIERS)}
    lent = activate()
    try:
        yield
    except BaseException:
        for index in (METRICS, VERIFIERS):
            _unregister(index, set(index.added) - before[index.kind])
        raise
    if not lent:
        _adopt()


def _unregister(index: Index, names: set[str]) -> None:
    """Remove those of the names whose module is not imported any more, as its import has failed."""
    orphans = [name for name in names if getattr(index.added[name], "__module__", "") not in sys.modules]
    if orphans:
        registry = load(LENT_REGISTRIES[index.kind])
        for name in orphans:
            registry.unregister(name)


def _adopt() -> None:
    """Add the user's metrics from the registry of the real package, if it was imported."""
    registry = sys.modules.get("evsys_sdk.registry")
    if registry is None:
        return
    known = DIALECTS.load("evsys").metrics or ()
    for name in registry.list_metrics():
        if name not in known:
            METRICS.add(name, registry.get_metric(name))


_EXPECTED = "expected a Python file or an importable module"
_EXPECTED_CONTENT = (
    "expected a function decorated with @calipers.metric or @calipers.verifier, a calipers.Metric in the module, "
    'a class decorated with @register_metric("NAME"), with parentheses, or a verifier with @register_fn("NAME")'
)

_loaded: dict[str, tuple[str, frozenset[str]]] = {}  # file or module -> (the module's name, the metrics it added)


def load_plugin(spec: str) -> list[str]:
    """Run a Python file, or import a module, and return the names of the metrics it adds, sorted.

    Objects decorated with EvSys' ``@register_metric`` and ``@register_fn`` are added, and every `calipers.Metric` in
    the module by its name. Loading the same file again changes nothing, unless it was edited: then it replaces its
    metrics. InputError if it adds nothing, PluginError with file and line if it fails.
    """
    is_file = spec.endswith(".py") or os.sep in spec or os.path.isfile(spec)
    plugin_id = str(Path(spec).resolve()) if is_file else spec
    name, code = _compiled(spec, plugin_id) if is_file else (spec, None)
    if plugin_id in _loaded:
        earlier, metrics = _loaded[plugin_id]
        if earlier == name and metrics <= METRICS.added.keys():
            return sorted(metrics)
        _forget(earlier)
    metrics_before, others_before = set(METRICS.added), _added_non_metrics()
    with borrowing():
        try:
            module = _run(spec, name, code) if code else _import(spec)
            _add_metrics(spec, module)
        except BaseException:
            if code:
                sys.modules.pop(name, None)
            raise
    metrics = frozenset((METRICS.added.keys() - metrics_before) | _defined(module))
    if not metrics and _added_non_metrics() == others_before:
        raise InputError.at(spec, "it adds no metric and no verifier", _EXPECTED_CONTENT)
    _loaded[plugin_id] = name, metrics
    return sorted(metrics)


def _added_non_metrics() -> set[tuple[str, str, int]]:
    """All verifiers, filters and kinds of models added at run time, as (kind, name, id of the object)."""
    added_by_kind = [(index.kind, index.added) for index in (CLIENTS, FILTERS, VERIFIERS)]
    if functions := sys.modules.get("calipers.verifiers.user_code"):  # it has EvSys' table of verifier functions
        added_by_kind.append(("function", functions.registered()))
    return {(kind, name, id(thing)) for kind, added in added_by_kind for name, thing in added.items()}


def _compiled(spec: str, plugin_id: str) -> tuple[str, CodeType]:
    """A module name that is unique to the path and content of a file, and the file's code."""
    source, code = compiled_file(spec, _EXPECTED)
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
        raise InputError.at(repr(spec), "no such file or module", _EXPECTED)
    try:
        return importlib.import_module(spec)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{spec}.".startswith(f"{error.name}."):
            raise InputError.at(repr(spec), "no such file or module", _EXPECTED) from error
        raise _failure(spec, error) from error


def _failure(spec: str, error: BaseException) -> PluginError:
    """The error of a failed plugin, with the innermost line in the first file that belongs to the user."""
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
    """Whether a metric is a built-in one that the plugin has imported."""
    return any(metric is METRICS.load(entry) for entry in METRICS.entries)


def _defined(module: ModuleType) -> set[str]:
    """The names of all added metrics that are defined in a module."""
    ids = {id(thing) for thing in vars(module).values()}
    return {
        name
        for name, thing in METRICS.added.items()
        if id(thing) in ids or getattr(thing, "__module__", "") == module.__name__
    }


def _forget(name: str) -> None:
    """Remove what an earlier version of a plugin file defined, so that the new version may define it again."""
    registry = load(LENT_REGISTRIES[METRICS.kind])
    if module := sys.modules.get(name):
        for metric in _defined(module):
            registry.unregister(metric)
        for verifier, thing in [*VERIFIERS.added.items()]:
            if getattr(thing, "__module__", "") == name:
                load(LENT_REGISTRIES[VERIFIERS.kind]).unregister(verifier)


def skip_unknown_metrics(on: bool = True) -> None:
    """In the evsys dialect, skip metrics that are unknown or fail, with a warning, as EvSys does.

    By default, a requested metric without a value is an error. ``skip_unknown_metrics(False)`` restores that.
    """
    DIALECTS.discard("evsys")
    if on:
        DIALECTS.add("evsys", replace(DIALECTS.load("evsys"), skips=True))
