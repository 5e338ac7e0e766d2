"""``--plugin FILE|MODULE``: code that the user names, run to add its metrics, verifiers and clients."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType

from calipers.compat.lending import borrowing
from calipers.errors import InputError, PluginError
from calipers.names import CLIENTS, FILTERS, METRICS, VERIFIERS

_RIGHT = "expected a Python file or a module that can be imported"
_EMPTY = (
    'expected a class under @register_metric("NAME"), parentheses and all, a calipers.Metric in the module, '
    'or a verifier under @register_fn("NAME")'
)

_loaded: dict[str, tuple[str, frozenset[str]]] = {}  # file or module -> (the module's name, the metrics it added)


def load_plugin(spec: str) -> list[str]:
    """Run a Python file, or import a module, and return the metrics it adds, sorted.

    A class under EvSys' ``@register_metric`` adds itself, and so does a verifier under ``@register_fn``;
    every `calipers.Metric` in the module is added by its name. The same file again changes nothing; one
    that was edited replaces its metrics. InputError for what is no plugin, PluginError with file and
    line for one that fails.
    """
    is_file = spec.endswith(".py") or os.sep in spec or Path(spec).is_file()
    place = str(Path(spec).resolve()) if is_file else spec
    name, code = _compiled(spec, place) if is_file else (spec, None)
    if place in _loaded:
        earlier, metrics = _loaded[place]
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
    _loaded[place] = name, metrics
    return sorted(metrics)


def _others() -> set[tuple[str, str, int]]:
    """What was added beside metrics: verifiers, filters and kinds of models, as (kind, name, object)."""
    held = [(index.kind, index.added) for index in (CLIENTS, FILTERS, VERIFIERS)]
    if functions := sys.modules.get("calipers.run.verifiers.functions"):  # EvSys' own table of verifiers
        held.append(("function", functions.registered()))
    return {(kind, name, id(thing)) for kind, added in held for name, thing in added.items()}


def _compiled(spec: str, place: str) -> tuple[str, CodeType]:
    """A file's code, and a module name that no other file has, nor the same file with another text."""
    try:
        source = Path(spec).read_bytes()
    except OSError as error:
        raise InputError.at(spec, error.strerror or str(error), _RIGHT) from error
    try:
        code = compile(source, spec, "exec", dont_inherit=True)  # not our own __future__ imports
    except SyntaxError as error:
        raise InputError.at(f"{spec}:{error.lineno or 1}", f"it is no Python: {error.msg}", _RIGHT) from error
    except ValueError as error:  # null bytes
        raise InputError.at(spec, f"it is no Python: {error}", _RIGHT) from error
    stem = re.sub(r"\W", "_", Path(spec).stem)
    digest = hashlib.sha256(place.encode(errors="surrogateescape") + b"\0" + source).hexdigest()
    return f"calipers_plugin_{stem}_{digest[:12]}", code


def _run(spec: str, name: str, code: CodeType) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, spec)
    if found is None:
        raise InputError.at(spec, "it is no Python file", "expected a name that ends in .py")
    module = importlib.util.module_from_spec(found)
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
    place = spec
    if frames:
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        place = f"{own[-1].filename}:{own[-1].lineno}"
    elif isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return PluginError(f"{place}: {said}")


def _is_machinery(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen ") or filename == importlib.__file__


def _add_metrics(spec: str, module: ModuleType) -> None:
    from calipers.metrics.metric import Metric

    found = [thing for thing in vars(module).values() if isinstance(thing, Metric) and not _is_built_in(thing)]
    for metric in found:
        if metric.name in METRICS.entries or METRICS.match(metric.name):
            raise InputError.at(spec, f"metric {metric.name!r} is built in", "give the new one another name")
    for metric in found:
        try:
            METRICS.add(metric.name, metric)
        except PluginError as error:
            raise PluginError(f"{spec}: {error}") from error


def _is_built_in(metric: object) -> bool:
    """Whether it is one of ours, imported by the plugin for its own use."""
    return any(metric is METRICS.load(entry) for entry in METRICS.entries)


def _defined(module: ModuleType) -> set[str]:
    """The metrics that stand in a module, whenever they were added."""
    own = {id(thing) for thing in vars(module).values()}
    return {
        name
        for name, thing in METRICS.added.items()
        if id(thing) in own or getattr(thing, "__module__", "") == module.__name__
    }


def _forget(name: str) -> None:
    """Take back what an earlier text of a file defined, so that the new one may define it again."""
    from calipers.compat.evsys.registry import METRIC_REGISTRY

    if module := sys.modules.get(name):
        for metric in _defined(module):
            METRIC_REGISTRY.unregister(metric)
