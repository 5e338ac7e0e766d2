"""Other systems, a file or a folder each; everything about one is behind the values that `names.py` lists.

Here is what the commands know of one: its terms in plain English, its own page of a result, its own files. A `System`
names functions as ``module:function``, loaded when they are called; `names.SYSTEMS` lists the systems.
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
    words: Mapping[str, str] | None = None  # its names -> ours; None: all of ours


@dataclass(frozen=True, slots=True)
class OwnPage:
    """A result as another system prints it."""

    text: str
    alone: bool = False  # in place of our own page
    remarks: Sequence[str] = ()  # lines beside it, for standard error


class Export(Protocol):
    """Another system's own files of a scoring; what they need is checked before anything is read."""

    paths: Sequence[str]  # the rollouts to score
    files: Sequence[str]  # to be written

    def begin(self) -> list[Part] | None:
        """Load what it needs, before anything is read; the list gets what is read of each file."""
        ...

    def contents(self, result: Result) -> tuple[Sequence[Iterable[bytes | memoryview]], Sequence[str]]:
        """What each file holds, once the rollouts are scored; and notes."""
        ...


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What ``--export NAME[=TARGET]`` asks for."""

    name: str
    target: str | None  # what follows the equals sign
    paths: Sequence[str]  # the rollouts to score
    columns: Mapping[str, str]  # what their files call the roles of a record
    force: bool  # whether files that exist may be replaced


@dataclass(frozen=True, slots=True)
class System:
    """Another system, as the commands meet it; a name that is "" is something it does not have."""

    card: DialectCard
    page: str = ""  # (result, shape, paths, trust) -> OwnPage | None
    numbers: str = ""  # (result, paths, trust) -> result with the system's own numbers in its document
    exports: Mapping[str, str] = field(default_factory=dict)  # name of an export -> (target | None, paths, hooks)
    run_page: str = ""  # (reports of runs, shape, folder for its own files | None) -> OwnPage
    replaces: frozenset[str] = frozenset()  # shapes in which its page of a run stands in place of ours


def every_system() -> dict[str, System]:
    """Every system by its name."""
    return {name: SYSTEMS.load(name) for name in SYSTEMS.entries}


def own_page(result: Result, shape: str, paths: Sequence[str] = (), *, trust: bool = False) -> OwnPage | None:
    """A result as the system of its dialect prints it; None if that system has no page of its own."""
    target = SYSTEMS.load(result.dialect).page if result.dialect in SYSTEMS.entries else ""
    page: OwnPage | None = load(target)(result, shape, paths, trust) if target else None
    return page


def with_own_numbers(result: Result, paths: Sequence[str], *, trust: bool) -> Result:
    """A result whose document has the numbers that only the system of its dialect has."""
    target = SYSTEMS.load(result.dialect).numbers if result.dialect in SYSTEMS.entries else ""
    full: Result = load(target)(result, paths, trust) if target else result
    return full


def export_named(
    request: str, paths: Sequence[str], hooks: str | None, columns: Mapping[str, str], *, force: bool
) -> Export:
    """The export that ``NAME`` or ``NAME=PATH`` asks for, checked before anything is read.

    One of a system's own files says which files it writes. One of a result has a file or more for each group: it
    writes them itself, as their names are known when the rollouts are scored.
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
    """Whether the page of a dialect's system stands in place of ours, for runs that have just ended."""
    return dialect in SYSTEMS.entries and shape in SYSTEMS.load(dialect).replaces


def run_export(request: str) -> dict[str, Path]:
    """Where ``SYSTEM`` or ``SYSTEM=DIR`` puts a system's own files of runs, checked before anything runs."""
    from pathlib import Path

    known = [name for name, system in every_system().items() if system.run_page]
    name, equals, folder = request.partition("=")
    if name not in known:
        raise UnknownName.of("system to export a run to", name, known)
    if equals and not folder:
        raise InputError.at("--export", f"{request!r} has no folder", f"expected {name}, or {name}=DIR")
    return {name: Path(folder or ".")}


def run_pages(reports: Sequence[Report], shape: str, folders: Mapping[str, Path]) -> list[OwnPage]:
    """What other systems print of runs of their tasks; their own files are written where a folder is given for them."""
    if not folders and all(report.part is None for report in reports):
        return []
    targets = {name: system.run_page for name, system in every_system().items() if system.run_page}
    return [load(target)(reports, shape, folders.get(name)) for name, target in targets.items()]
