"""A task file: YAML by a safe loader, its includes merged, and nothing in it run until somebody trusts it.

``!function module.name`` becomes a `Function`, which is a name and a folder. Where the user trusts the file, the code
is loaded: from beside the file, else by an import.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

from calipers.errors import InputError, PluginError
from calipers.tasks.lines import opened, read_up_to
from calipers.tasks.load_seeds import set_state, state_of

LARGEST: Final = 8 << 20  # bytes of a file
DEEPEST: Final = 64  # lists and mappings in one another
MOST: Final = 1 << 25  # values and characters, each alias counted as what it stands for
NEVER_INHERITED: Final = "task_list"
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True)
class Function:
    """``!function module.name`` of a task file: code that lies in data, named and not yet loaded."""

    module: str
    name: str
    folder: Path  # of the file that holds the tag

    def __str__(self) -> str:
        return f"!function {self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The mapping that a task file is, and the line on which each of its keys stands."""

    path: Path | None  # None: given inline
    values: Mapping[str, Any]
    lines: Mapping[str, str] = field(default_factory=dict)  # key -> path:line, of the file that it comes from

    def place(self, key: str = "") -> str:
        """Where a key stands, for an error: ``task.yaml:3: metric_list``."""
        where = self.lines.get(key) or str(self.path or "inline task")
        return f"{where}: {key}" if key else where


def read_task_file(path: Path) -> TaskFile:
    """A file with its includes merged: those left to right, then its own keys; nothing is merged within a value.

    InputError for a file that is reached twice, as it is an error in lm-evaluation-harness.
    """
    return with_includes(load_file(path), {path.resolve(): path})


def with_includes(file: TaskFile, reached: dict[Path, Path]) -> TaskFile:
    """A mapping with what it includes; ``reached``: every file read so far, and the one that included it."""
    values: dict[str, Any] = {}
    lines: dict[str, str] = {}
    path = file.path or Path()
    for name in included(file):
        other = path.parent / name
        if (real := other.resolve()) in reached:
            wrong = f"{name} is included twice, also by {reached[real]}"
            raise InputError.at(file.place("include"), wrong, "expected each file once, and none that includes itself")
        if not other.is_file():
            raise InputError.at(file.place("include"), f"no file {other}", "expected a path from this file's folder")
        reached[real] = path
        inner = with_includes(load_file(other), reached)
        values |= {key: value for key, value in inner.values.items() if key != NEVER_INHERITED}
        lines |= inner.lines
    values |= {key: value for key, value in file.values.items() if key != "include"}
    return TaskFile(file.path, values, {**lines, **file.lines})


def included(file: TaskFile) -> list[str]:
    """The files that a file includes, as it names them."""
    names = file.values.get("include")
    several = [] if names is None else names if isinstance(names, list) else [names]
    if not all(isinstance(name, str) and name for name in several):
        raise InputError.at(file.place("include"), f"is {names!r}", "expected a path or a list of paths")
    return several


def load_file(path: Path) -> TaskFile:
    """One file as it stands, its includes unread."""
    with opened(path) as stream:
        content = read_up_to(stream, LARGEST + 1)
    if len(content) > LARGEST:
        raise InputError.at(str(path), f"larger than {LARGEST >> 20} MiB", "expected a task file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.at(str(path), f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None
    return _load(text, path)


def _load(text: str, path: Path) -> TaskFile:
    try:
        _measure(text, path)
        loader = _Loader(text)
        loader.folder = path.parent
        node = loader.get_single_node()
        values = {} if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise _syntax(path, error) from None
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # a date with a thirteenth month
        raise InputError.at(str(path), f"is not valid YAML ({error})") from None
    if not isinstance(values, dict):
        raise InputError.at(
            str(path), f"is a {type(values).__name__}", "expected a mapping: task: ..., dataset_path: ..."
        )
    keys = (key for key, _ in node.value) if isinstance(node, yaml.MappingNode) else ()
    lines = {str(key.value): f"{path}:{key.start_mark.line + 1}" for key in keys}
    return TaskFile(path, {str(key): value for key, value in values.items()}, lines)


def _measure(text: str, path: Path) -> None:
    """Refuse what would grow beyond all measure once its aliases are followed; nothing is built to find out."""
    sizes: dict[str, int | None] = {}  # anchor -> size; None while it is open
    stack: list[tuple[str | None, int]] = []  # (anchor, size so far) of each open list or mapping
    for event in yaml.parse(text, Loader=_LOADER):
        size, anchor = 0, getattr(event, "anchor", None)
        location = f"{path}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            known = sizes.get(event.anchor or "", 1)
            if known is None:
                raise InputError.at(location, f"*{event.anchor} contains itself", "expected values without a cycle")
            size = known
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value)
            if anchor:
                sizes[anchor] = size
        elif isinstance(event, yaml.CollectionStartEvent):
            if anchor:
                sizes[anchor] = None
            stack.append((anchor, 1))
            if len(stack) > DEEPEST:
                raise InputError.at(location, f"more than {DEEPEST} levels deep", "expected a task file")
        elif isinstance(event, yaml.CollectionEndEvent):
            name, size = stack.pop()
            if name:
                sizes[name] = size
        if stack and size:
            outer, sofar = stack[-1]
            stack[-1] = outer, sofar + size
            if sofar + size > MOST:
                raise InputError.at(location, "its aliases expand to more than the limit", "expected a task file")


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same loader in C, where it was built


class _Loader(_LOADER):  # type: ignore[misc]  # which of the two it is, only the machine knows
    folder: Path


def _function(loader: _Loader, node: yaml.Node) -> Function:
    text = node.value if isinstance(node, yaml.ScalarNode) else None
    if text is None or not _FUNCTION.fullmatch(text.strip()):
        wrong = f"!function {text!r}" if text is not None else "!function of a list or mapping"
        raise yaml.constructor.ConstructorError(None, None, f"{wrong}; expected module.name", node.start_mark)
    module, _, name = text.strip().rpartition(".")
    return Function(module, name, loader.folder)


_Loader.add_constructor("!function", _function)


def _syntax(path: Path, error: yaml.YAMLError) -> InputError:
    mark = getattr(error, "problem_mark", None)
    wrong = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return InputError.at(f"{path}:{mark.line + 1}" if mark else str(path), f"is not valid YAML ({wrong})")


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
        raise InputError.at(location, f"is {function}, code from the task", "read it first, then run it with --trust")


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
        raise PluginError(f"{location}: {function}: {module.__name__} has no function of that name")
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
        raise ImportError(f"{file} is outside the task's folder")
    if real not in _loaded:
        name = f"calipers_task_{sha256(str(real).encode()).hexdigest()[:12]}_{real.stem}"
        spec = importlib.util.spec_from_file_location(name, real)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is not a Python file")
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
