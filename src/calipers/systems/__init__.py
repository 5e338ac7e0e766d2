"""Other evaluation systems, each in its own file or folder, reached only through the values that `names.py` lists.

This module defines what the commands know about a system: its description in plain English, its own rendering of a
result, and its own output files. A `System` names its functions as ``module:function``; they are loaded when they are
called. `names.SYSTEMS` lists the systems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from calipers.errors import InputError, UnknownName
from calipers.names import EXPORTS, SYSTEMS, load

if TYPE_CHECKING:
    from pathlib import Path

    from calipers.reports.result import Result
    from calipers.rollouts.table import Part
    from calipers.running.perform import Report


@dataclass(frozen=True, slots=True)
class DialectCard:
    """The description of a dialect in plain English; light enough for a glossary."""

    one_line: str
    default: tuple[str, ...]
    gaps: str
    nothing: str = "no value, with the reason"
    slices: str = "named by their JSON value: true, 1, easy; __missing__ for a missing value"
    words: Mapping[str, str] | None = None  # its metric names -> ours; None: it uses all of ours


@dataclass(frozen=True, slots=True)
class OwnPage:
    """A result as another system prints it."""

    text: str
    alone: bool = False  # whether it replaces our own page
    remarks: Sequence[str] = ()  # lines for standard error


class Export(Protocol):
    """An export of scored rollouts to another system's files; its requirements are checked before anything is read."""

    paths: Sequence[str]  # the rollouts to score
    files: Sequence[str]  # the files to write

    def begin(self) -> list[Part] | None:
        """Load what the export needs, before anything is read; a returned list is filled with the parts read."""
        ...

    def contents(self, result: Result) -> tuple[Sequence[Iterable[bytes | memoryview]], Sequence[str]]:
        """Return the content of each file, once the rollouts are scored, and notes."""
        ...


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What ``--export NAME[=TARGET]`` asks for."""

    name: str
    target: str | None  # the text after the equals sign
    paths: Sequence[str]  # the rollouts to score
    columns: Mapping[str, str]  # the column names that the files use for the roles of a record
    force: bool  # whether existing files may be replaced


@dataclass(frozen=True, slots=True)
class System:
    """Another system, as the commands see it; an empty function name means that the system has no such function."""

    card: DialectCard
    page: str = ""  # (result, shape, paths, trust) -> OwnPage | None
    numbers: str = ""  # (result, paths, trust) -> result with the system's own numbers in its document
    exports: Mapping[str, str] = field(default_factory=dict)  # name -> (target | None, paths, hooks) -> Export
    run_page: str = ""  # (reports of runs, shape, folder for its own files | None) -> OwnPage
    replaces: frozenset[str] = frozenset()  # output shapes in which its page of a run replaces ours


def every_system() -> dict[str, System]:
    """All systems, by name."""
    return {name: SYSTEMS.load(name) for name in SYSTEMS.entries}


def own_page(result: Result, shape: str, paths: Sequence[str] = (), *, trust: bool = False) -> OwnPage | None:
    """The page that the system of a result's dialect prints for the result; None if that system prints none."""
    from calipers.formats.read import run_or_path  # loads the readers' libraries, which help does not need

    target = SYSTEMS.load(result.dialect).page if result.dialect in SYSTEMS.entries else ""
    page: OwnPage | None = load(target)(result, shape, list(map(run_or_path, paths)), trust) if target else None
    return page


def with_own_numbers(result: Result, paths: Sequence[str], *, trust: bool) -> Result:
    """The result, with the numbers that only the system of its dialect computes added to its document."""
    from calipers.formats.read import run_or_path  # loads the readers' libraries, which help does not need

    target = SYSTEMS.load(result.dialect).numbers if result.dialect in SYSTEMS.entries else ""
    full: Result = load(target)(result, list(map(run_or_path, paths)), trust) if target else result
    return full


def export_named(
    request: str, paths: Sequence[str], hooks: str | None, columns: Mapping[str, str], *, force: bool
) -> Export:
    """The export that ``NAME`` or ``NAME=PATH`` asks for, checked before anything is read.

    An export of a `System` names its files in advance. An export in `names.EXPORTS` writes one or more files per group
    itself, because their names are known only when the rollouts are scored.
    """
    targets = {name: target for system in every_system().values() for name, target in system.exports.items()}
    name, equals, path = request.partition("=")
    export: Export
    if name in EXPORTS.entries:
        if hooks is not None:
            raise InputError.at("--hooks", f"{name} has none", "expected --export nemo_gym")
        if equals and not path:
            raise InputError.at("--export", f"{request!r} has nothing after the equals sign", f"expected {name}")
        export = EXPORTS.load(name)(ExportRequest(name, path if equals else None, paths, columns, force))
        return export
    if name not in targets:
        raise UnknownName.of("system to export to", name, [*targets, *EXPORTS.entries])
    export = load(targets[name])(path if equals else None, paths, hooks)
    return export


def replaces(dialect: str, shape: str) -> bool:
    """Whether the page of a dialect's system replaces ours after a run, in this output shape."""
    return dialect in SYSTEMS.entries and shape in SYSTEMS.load(dialect).replaces


def run_export(request: str) -> dict[str, Path]:
    """The folder for each system's own files that ``SYSTEM`` or ``SYSTEM=DIR`` asks for; checked before a run."""
    from pathlib import Path

    known = [name for name, system in every_system().items() if system.run_page]
    name, equals, folder = request.partition("=")
    if name not in known:
        raise UnknownName.of("system to export a run to", name, known)
    if equals and not folder:
        raise InputError.at("--export", f"{request!r} has no folder", f"expected {name}, or {name}=DIR")
    return {name: Path(folder or ".")}


def run_pages(reports: Sequence[Report], shape: str, folders: Mapping[str, Path]) -> list[OwnPage]:
    """The pages that other systems print for runs of their tasks; writes a system's own files if it has a folder."""
    if not folders and all(report.part is None for report in reports):
        return []
    targets = {name: system.run_page for name, system in every_system().items() if system.run_page}
    return [load(target)(reports, shape, folders.get(name)) for name, target in targets.items()]
