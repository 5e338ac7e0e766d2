"""Reads paths of any known format into one table of rollouts, and finds the files to read in folders.

The format of a file is recognised by its content, never by its name. A folder is the output of another system, a set of
files of one format, or a folder of runs: run folders, results and files of rollouts, in it and in the folders below::

    runs/
      arith-openai_m-1f0a4c2e/    a run: plan.json and its log
      old/result.json             a finished result
      gsm8k-m.jsonl               a file of rollouts
      notes.md                    ignored
"""

from __future__ import annotations

import gc
import os
import re
import stat
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from calipers.errors import InputError, UnknownName, display
from calipers.formats import BAD, NUMBERED, ROW, Beginning, Format, Named, OpenInput, Raw, insisted, no_file
from calipers.formats import Progress as FileProgress
from calipers.formats.jsonl import WORDS
from calipers.formats.lines import NotPackable, odd_key, without_unreal
from calipers.formats.run_folder import IDENTITY, LOG, RunLog, is_run, read_plan, run_of_log
from calipers.formats.source import BOM, LONGEST_LINE, Source
from calipers.names import COMPANION_SIGNS, FILE_SIGNS, FOLDER_FORMATS, FORMATS, LINE_SIGNS, ROW_SIGNS, is_remote
from calipers.rollouts.packed import Loose, Packed, pack
from calipers.rollouts.record import ROLES, USAGE
from calipers.rollouts.table import Part, Rollouts, assemble, numbered, refuse_repeated
from calipers.stores import local

EXPECTED_PATHS: Final = (
    "expected a file of rollouts, a run folder or a Harbor job (with plan.json or result.json), "
    "or the output of lm_eval --output_path (results_*.json and samples_*.jsonl, or a folder for each model)"
)
EXPECTED: Final = (
    "expected run folders (with plan.json), results (result.json), files of rollouts (.jsonl, .csv, .parquet), or a "
    "folder that another system wrote (calipers list formats)"
)

NOTHING: Mapping[str, str] = MappingProxyType({})
OWN, RUN = "native", "run"  # the names of our own formats
Progress = Callable[[int, int], None]  # bytes read, bytes in all (0 if unknown)

MAY_HAVE_ROLLOUTS = re.compile(r"\.(jsonl|ndjson|json|parquet)(\.(gz|zst))?\Z")
ROLLOUTS: Final = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".eval")
"""The suffixes of files of rollouts in a folder; a path that the user gives may have any name."""

PACKED: Final = (".gz", ".zst")
MOST_FILES = 100_000
MOST_SHOWN = 3  # names of files in a note
DEEPEST = 3  # levels of folders that are searched for runs
RESULT_SCHEMA: Final = "calipers.result/1"
_HEAD = 4_096  # bytes at the beginning of a file in which its schema is looked for
_SCHEMA = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"(calipers\.[a-z_]+/\d+)"')

SMALL = 4 << 20  # bytes; for a smaller file, it is faster to read it and then pack its rows
PACKED_BYTES = 300 << 20  # bytes of text, about three million rollouts
PACKED_ROWS = 3_000_000  # rows of Parquet
MOST_PACKED = 10  # the ratio by which gzip and zstd are assumed to shrink rollouts
PARQUET_MAGIC = b"PAR1"

BLANKS = b" \t\r\n"
MARKUP = re.compile(rb"\s*<(!doctype|html|\?xml)\b", re.IGNORECASE)
CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b")  # bytes that the header of a CSV file cannot have


@dataclass(frozen=True, slots=True)
class Input:
    """One file that was read, or the directory of one job."""

    path: str
    format: str  # a name in FORMATS
    sha256: str  # the hash of the bytes on disk; for a job, of its trials' names and results
    rollouts: int  # rows in the file, or in the samples beside results; without planned rollouts that are not there


def read(
    paths: Sequence[str],
    *,
    columns: Mapping[str, str] = NOTHING,
    labels: Collection[str] = (),
    progress: Progress | None = None,
) -> tuple[Rollouts, list[Input]]:
    """All rollouts of some files as one table, and the files that were read.

    ``columns`` maps roles to the keys of the files (``{"task": "id"}``); ``labels`` are the keys to keep, for slices
    and clusters. InputError for the first error.
    """
    rollouts, inputs = begin(paths, columns=columns, labels=labels, progress=progress)
    return rollouts, inputs()


def begin(
    paths: Sequence[str],
    *,
    columns: Mapping[str, str] = NOTHING,
    labels: Collection[str] = (),
    progress: Progress | None = None,
    kept: list[Part] | None = None,
    keep: Collection[str] | None = None,
) -> tuple[Rollouts, Callable[[], list[Input]]]:
    """As `read`, but the files are still being hashed: the second value is a function that waits for it.

    ``kept``, if given, is filled with the parts, for callers that need more than the rollouts. With ``keep``, only
    these columns are kept, beside rewards.
    """
    paths, given, notes = _given(paths, columns, labels)
    parts: list[Part] = [] if kept is None else kept
    seen: list[tuple[OpenInput, Format, int]] = []
    unnumbered: dict[str, str] = {}  # files whose rollouts have no numbers, so that only the path identifies them
    with uncollected(), closing(_sources(given, columns, progress)) as sources:
        for path, source, kind, tell in sources:
            read_parts = kind.read(source, columns, labels, tell)
            # without the option, a file without rows has no format
            if not any(len(part) or part.tasks for part in read_parts) and (not read_parts or insisted(columns)):
                raise InputError.at(path, "no rollouts", "expected at least one")
            if any(part.unnumbered for part in read_parts):
                _once(source.path, unnumbered, source.path, "appears twice, first as", "expected each file once")
            rows = sum(map(len, parts))
            parts += [part if part.turn is None else replace(part, turn=part.turn + rows) for part in read_parts]
            counted = [part for part in read_parts if part.places.path == source.path or kind.stands_for_others]
            seen.append((source, kind, sum(map(len, counted))))
        check_named(columns, paths, parts)
        refuse_repeated(parts)
        parts[:], more = in_order(columns, parts)
        parts[0] = replace(parts[0], notes=[*parts[0].notes, *notes, *more])
        for join in dict.fromkeys(kind.join for _, kind, _ in seen if kind.join):
            parts[:] = join(parts)
        rollouts = assemble(
            [
                replace(part, columns={name: each for name, each in part.columns.items() if _is_kept(name, keep)})
                for part in parts
            ]
        )
    return rollouts, partial(_inputs, seen)


def _is_kept(column: str, keep: Collection[str] | None) -> bool:
    """Whether a column is kept; without ``keep``, all but the hashes of words, which scores do not read."""
    return not column.startswith(WORDS) if keep is None else column in keep


def read_packed(
    paths: Sequence[str],
    *,
    columns: Mapping[str, str] = NOTHING,
    labels: Collection[str] = (),
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
) -> tuple[list[Loose | Packed], Callable[[], list[Input]]]:
    """As `begin`, for rollouts that are too many to hold in memory unpacked; ``keep`` are the columns to keep.

    NotPackable for rollouts that must be read unpacked, and for invalid ones, for which `begin` has better errors.
    """
    paths, given, notes = _given(paths, columns, labels)
    if columns.get("sample") == NUMBERED:
        raise NotPackable("samples are numbered in order of appearance")
    packs: list[Loose | Packed] = []
    seen: list[tuple[OpenInput, Format, int]] = []
    with uncollected(), closing(_sources(given, columns, progress)) as sources:
        for _, source, kind, tell in sources:
            if kind.join:
                raise NotPackable(f"files of {kind.name} are joined by what only all of them say")
            if kind.packed and source.size > SMALL:
                new: Sequence[Loose | Packed] = kind.packed(source, columns, labels, keep, tell)
            else:
                new = [_packed(part, keep) for part in kind.read(source, columns, labels, tell)]
            if not new:
                raise NotPackable("no rollouts")
            seen.append((source, kind, sum(map(len, new))))
            packs += new
    check_named(columns, paths, [pack.kinds for pack in packs])
    if notes:
        packs[0] = replace(packs[0], kinds=replace(packs[0].kinds, notes=[*packs[0].kinds.notes, *notes]))
    return packs, partial(_inputs, seen)


def _packed(part: Part, keep: Collection[str] | None) -> Loose:
    if part.unnumbered or part.rollout_ids is not None or part.stop is not None:
        raise NotPackable("rollouts without numbers, or of a run that a rule stopped")
    return pack(part, keep)


def _given(
    paths: Sequence[str], columns: Mapping[str, str], labels: Collection[str]
) -> tuple[Sequence[str], list[str | OpenInput], list[str]]:
    """The local paths, the inputs to read, and notes; InputError for invalid keys, and without any path."""
    check_keys(columns, labels)
    paths = local(paths) if any(map(is_remote, paths)) else paths
    if not paths:
        raise InputError("no files; expected at least one file of rollouts")
    return paths, *with_folders(_without_companions(paths), columns)


def _sources(
    given: Sequence[str | OpenInput], columns: Mapping[str, str], progress: Progress | None
) -> Generator[tuple[str, OpenInput, Format, FileProgress]]:
    """Each path with its open source, its format, and a progress function; the source is hashed after it was read."""
    bytes_before, total = 0, sum(map(_size, given))
    for each in given:
        with closing(opened(each)) as source:
            tell = _overall(progress, bytes_before, source.size, total)
            yield each if isinstance(each, str) else each.path, source, format_of(source, columns), tell
            source.start_hashing()  # not earlier, because reading keeps every core busy
        bytes_before += source.size
        if progress is not None:
            progress(bytes_before, total)


def _inputs(seen: Sequence[tuple[OpenInput, Format, int]]) -> list[Input]:
    """The sources that were read; waits until all of them are hashed."""
    return [Input(display(source.path), kind.name, source.sha256(), rows) for source, kind, rows in seen]


def opened(given: str | OpenInput) -> OpenInput:
    """A path, opened for reading."""
    if not isinstance(given, str):
        return given
    return RunLog(given) if os.path.isdir(given) and is_run(given) else Source(given)


def _size(given: str | OpenInput) -> int:
    if not isinstance(given, str):
        return given.size
    try:
        return os.path.getsize(os.path.join(given, LOG) if os.path.isdir(given) and is_run(given) else given)
    except (OSError, ValueError):
        return 0


def _overall(progress: Progress | None, bytes_before: int, size: int, total: int) -> FileProgress:
    """A progress function for the reader of one file, which reports the bytes read of all files."""
    read = 0

    def tell(more: int) -> None:
        nonlocal read
        read += more
        if progress is not None:
            progress(bytes_before + (min(read, size) if size else read), total)

    return tell


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch garbage collection off meanwhile, as there are millions of rows and no cycles among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def check_keys(columns: Mapping[str, str], labels: Collection[str]) -> None:
    """InputError for unknown roles, and for keys that no record can have."""
    known = (*ROLES, *USAGE)
    owners: dict[str, str] = {}
    for role, key in columns.items():
        if role not in known:
            raise UnknownName.of("role for --columns", role, known)
        if key in owners:
            raise InputError.at("--columns", f"{owners[key]} and {role} are both {key!r}", "expected a key for each")
        owners[key] = role
    if owners.get("task", "task") != "task" and "task" not in columns:
        raise InputError.at("--columns", f"{owners['task']} uses the key 'task'", "name another with task=KEY")
    if (odd := odd_key([*labels, *columns.values()])) is not None:
        raise InputError(f"{odd!r} contains a quote, a backslash or a control character; expected a plain key")


def check_named(columns: Mapping[str, str], paths: Sequence[str], parts: Sequence[Part]) -> None:
    """InputError for a key of ``--columns`` that no row has."""
    met = frozenset[str]().union(*(part.named for part in parts))
    for role, key in columns.items():
        if key not in met and (role, key) != ("sample", NUMBERED):
            more = f", and neither has a row of {len(paths) - 1} more files" if len(paths) > 1 else ""
            expected = f"expected it as {role} (--columns {role}={key})"
            raise InputError.at(paths[0], f"no row has {key!r}{more}", expected)


def in_order(columns: Mapping[str, str], parts: Sequence[Part]) -> tuple[list[Part], list[str]]:
    """The parts, with samples numbered in order of appearance if files have no numbers or the user asks for it.

    Also a note on this, unless the files give each rollout an id.
    """
    if columns.get("sample") == NUMBERED:
        chosen, checked = list(parts), False
    else:
        chosen = [part for part in parts if part.unnumbered]
        checked = all(part.rollout_ids is not None for part in chosen)
    if not chosen:
        return list(parts), []
    renumbered = {id(part): new for part, new in zip(chosen, numbered(chosen), strict=True)}
    note = "samples are numbered in order of appearance, so a rollout that appears twice counts twice"
    return [renumbered.get(id(part), part) for part in parts], [] if checked else [note]


def worth_packing(paths: Sequence[str]) -> bool:
    """Whether files have so many rollouts that these should be packed; always true for a partial."""
    sizes, rows = 0, 0
    for path in paths:
        if not os.path.isfile(path):
            continue
        try:
            with open(path, "rb") as file:
                head = file.read(80)
        except OSError:  # left to the reader, which has a better message
            continue
        magic = head[:4]
        if re.search(FILE_SIGNS["partial"], head):
            return True
        if magic == PARQUET_MAGIC:
            rows += _parquet_rows(path)
        else:
            packing = MOST_PACKED if magic[:2] in (b"\x1f\x8b", b"\x28\xb5") else 1
            sizes += packing * os.path.getsize(path)
    return sizes >= PACKED_BYTES or rows >= PACKED_ROWS


def _parquet_rows(path: str) -> int:
    import polars as pl

    try:
        return int(pl.scan_parquet(os.path.abspath(path), glob=False).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError):  # left to the reader, which has a better message
        return 0


def format_of(source: OpenInput, columns: Mapping[str, str] = NOTHING) -> Format:
    """The format of a source; InputError if it has none that we can read."""
    if not isinstance(source, Source) or isinstance(source, RunLog):  # a folder, whose format is already known
        return _load(source.format)
    if name := insisted(columns):
        if (format_of_name := _load(name)).recognise is no_file:
            raise InputError.at(source.path, f"is a file, and {name} is a format of folders", "expected a folder")
        return format_of_name
    start = Beginning(source.path, source.head, columns=columns)
    if (kind := _recognised(FILE_SIGNS, start.head, start)) is not None:
        return kind
    line = _first_line(source)
    if not line:
        return _of_empty_file(start)
    if line == b"{":
        folder = os.path.dirname(source.path) or "."
        expected = f"expected its folder, {folder}" if _is_of_a_system(folder) else "expected one JSON object per line"
        if schema := _SCHEMA.match(source.head):
            problem = f"is a document of Calipers ({schema[1].decode()})"
            raise InputError.at(source.path, problem, "expected the rollouts that it is of")
        raise InputError.at(source.path, "is one JSON object over several lines", expected)
    is_json = line[:1] in b"[{"
    if b"\0" in (line if is_json else source.head) or not (is_json or CONTROLS.isdisjoint(line)):
        expected = "expected JSON Lines, a JSON list, CSV or Parquet"
        raise InputError.at(source.path, "is not a file of rollouts", expected)
    if not is_json and MARKUP.match(line):
        raise InputError.at(source.path, "is an HTML or XML page, not a file of rollouts", "expected the file it shows")
    if not is_json:
        return _load("csv")
    start = replace(start, line=line, row=_row(line))
    return _claimed(start) or _recognised(LINE_SIGNS, line, start) or _load("native")


def _recognised(signs: Mapping[str, bytes], text: bytes, start: Beginning) -> Format | None:
    """The first format whose sign occurs in the text and that recognises the file."""
    for name, sign in signs.items():
        if re.search(sign, text) and (kind := _load(name)).recognise(start):
            return kind
    return None


def _claimed(start: Beginning) -> Format | None:
    """The format of the system that recognises the first row as its own; InputError if two systems do."""
    if "task" in start.columns or start.line[:1] != b"{":
        return None
    kinds = [_load(name) for name, sign in ROW_SIGNS.items() if re.search(sign, start.line)]
    claims = [kind for kind in kinds if kind.recognise(start)]
    if len(claims) > 1:
        names = " and ".join(kind.name for kind in claims)
        raise InputError.at(start.path, f"is of a format that both {names} recognise", "say which: --input-format NAME")
    return claims[0] if claims else None


def _of_empty_file(start: Beginning) -> Format:
    """The format of an empty file, recognised by the files beside it; InputError if it is not recognised."""
    for kind in map(_load, COMPANION_SIGNS):
        if kind.recognise(start):
            return kind
    raise InputError.at(start.path, "no rollouts", "expected at least one")


def _load(name: str) -> Format:
    if name not in FORMATS.entries:
        raise UnknownName.of("format", name, FORMATS.entries)
    kind: Format = FORMATS.load(name)
    return kind


def _first_line(source: Source) -> bytes:
    """The first line that is not blank, stripped; the bytes read for it are put back into the source's head."""
    head, source.head = source.head, b""
    while True:
        start = head.removeprefix(BOM).lstrip(BLANKS)
        line, newline, _ = start.partition(b"\n")
        more = b"" if newline or len(head) > LONGEST_LINE else source.read(max(1 << 20, len(head)))
        if not more:
            source.head = head
            return line.rstrip(BLANKS)
        head += more


def _row(line: bytes) -> Mapping[str, Raw] | None:
    for without_nan in (False, True):
        try:
            return ROW.decode(without_unreal(line)[0] if without_nan else line)
        except BAD:  # left to the reader, which has a better message
            continue
    return None


def _without_companions(paths: Sequence[str]) -> Sequence[str]:
    """The paths without those that are read together with another of the paths."""
    for name, sign in COMPANION_SIGNS.items():
        if len(paths) > 1 and any(re.search(sign, os.path.realpath(path)) for path in paths):
            without = _load(name).without_companions
            paths = without(paths) if without else paths
    return paths


def with_folders(paths: Sequence[str], columns: Mapping[str, str] = NOTHING) -> tuple[list[str | OpenInput], list[str]]:
    """The paths with each folder replaced by the inputs to read in it, and notes on files that are not read.

    The log of a run is its folder. InputError for a folder without anything to read, and for an input that is given
    twice.
    """
    paths, log_notes = _with_runs(paths, columns)
    folders = {path for path in paths if os.path.isdir(path) and not is_run(path)}
    if not folders:
        return list(paths), log_notes
    given: list[str | OpenInput] = []
    notes = log_notes
    files = {os.path.realpath(path): path for path in paths if not os.path.isdir(path)}
    jobs: dict[str, str] = {}
    for path in paths:
        if path not in folders:
            given.append(path)
            continue
        contents, folder_notes = _contents(path, columns)
        for each in contents:
            if isinstance(each, str):
                _once(each, files, path, "appears twice, also as", "expected each results file once")
            else:
                _once(each.path, jobs, each.path, "appears twice, first as", "expected each job once")
        given += contents
        notes += folder_notes
    return given, notes


def _with_runs(paths: Sequence[str], columns: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The paths with each log of a run replaced by the run's folder, and notes on these logs.

    A log beside a plan that cannot be read stays a file, as does one that the user has read in another format.
    """
    with_runs: list[str] = []
    notes: list[str] = []
    for path in paths:
        folder = run_of_log(path) if insisted(columns) in ("", RUN) else None
        if folder is None:
            with_runs.append(path)
            continue
        try:
            read_plan(folder)
        except InputError as error:
            with_runs.append(path)
            notes.append(f"{display(path)} is read without its plan: {error}")
            continue
        with_runs.append(folder)
        notes.append(f"{display(path)} is the log of a run: the run is read, {display(folder)}")
    return with_runs, notes


def run_or_path(path: str) -> str:
    """The folder of the run whose log a path is; any other path unchanged."""
    return _with_runs([path], NOTHING)[0][0]


def _once(path: str, met: dict[str, str], by: str, problem: str, expected: str) -> None:
    """InputError if a path is in ``met`` (real path -> the path given by the user), to which it is added."""
    real = os.path.realpath(path)
    if real in met:
        raise InputError.at(path, f"{problem} {met[real]}", expected)
    met[real] = by


def _contents(path: str, columns: Mapping[str, str]) -> tuple[Sequence[str | OpenInput], Sequence[str]]:
    """The inputs that the first format to know the folder finds in it, and notes."""
    for name in FOLDER_FORMATS:
        contents, notes = FORMATS.load(name).folder(path)
        if contents:
            return contents, notes
    files, notes = files_of_one_format(path, columns)
    if files:
        return files, notes
    if wanted := insisted(columns):
        formats = sorted({_set_format(each, NOTHING) for each in _files(path)} - {""})
        expected = f"its files are of {' and '.join(formats)}" if formats else "no format is recognised in its files"
        raise InputError.at(path, f"no file in it is of {wanted}, the given --input-format", expected)
    raise InputError.at(path, "is a directory", EXPECTED_PATHS)


def files_of_one_format(folder: str, columns: Mapping[str, str] = NOTHING) -> tuple[Sequence[str], list[str]]:
    """The files in a folder that are one set, such as a file for each training step; and notes on the others.

    InputError if they are of several formats.
    """
    kinds: dict[str, list[str]] = {}
    others: list[str] = []
    wanted = insisted(columns)
    for path in _files(folder):
        name = _set_format(path, columns)
        if name and wanted in ("", name):
            kinds.setdefault(name, []).append(path)
        else:
            others.append(os.path.relpath(path, folder))
    if kinds.keys() == {OWN} and not wanted:  # each file is a run of its own
        return [], []
    if len(kinds) > 1:
        examples = ", ".join(f"{os.path.relpath(paths[0], folder)} is {name}" for name, paths in kinds.items())
        problem = f"has files of {len(kinds)} formats: {examples}"
        raise InputError.at(folder, problem, "expected files of one format, or --input-format NAME for those to read")
    notes = []
    for name, paths in kinds.items():
        choose = _load(name).of_folder
        kinds[name], notes = (paths, []) if choose is None else map(list, choose(paths))
    if kinds and others:
        [name] = kinds
        more = f" and {len(others) - MOST_SHOWN:,} more" if others[MOST_SHOWN:] else ""
        notes.append(f"{folder}: no rollouts of {name}, so not scored: {', '.join(others[:MOST_SHOWN])}{more}")
    return [path for paths in kinds.values() for path in paths], notes


def _files(folder: str) -> list[str]:
    """The files in a folder and below that may have rollouts, in natural order (2 before 10)."""
    files: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [os.path.join(root, name) for name in names if MAY_HAVE_ROLLOUTS.search(name) and name[0] != "."]
        files += [path for path in paths if not _never_ends(path)]
        if len(files) > MOST_FILES:
            raise InputError.at(folder, f"has more than {MOST_FILES:,} files", "expected the folder of one run")
    return sorted(files, key=lambda path: natural(os.path.relpath(path, folder)))


def _never_ends(path: str) -> bool:
    """Whether a path is a pipe, a socket or a device, which could block reading, or never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def natural(path: str) -> list[tuple[bool, int, str]]:
    """The sort key for natural order, where 2 comes before 10."""
    parts = re.split("([0-9]+)", path)  # every second part is a number
    return [(n % 2 > 0, int(part) if n % 2 else 0, part) for n, part in enumerate(parts)]


def _set_format(path: str, columns: Mapping[str, str]) -> str:
    """The format of a file, if files of that format form a set or if it has our own records; else ""."""
    try:
        with Source(path) as source:
            kind = format_of(source, Named({role: key for role, key in columns.items() if role != "task"}))
            return kind.name if kind.in_folders or (kind.name == OWN and _is_ours(source)) else ""
    except InputError:
        return ""


def _is_ours(source: Source) -> bool:
    """Whether the first line is one of our own records."""
    return "task" in (_row(_first_line(source)) or ())


def is_one_set(folder: str) -> bool:
    """Whether a folder is read as one set, because it has rollouts of other systems and none of our own records."""
    formats = {_set_format(path, NOTHING) for path in _files(folder)}
    return bool(formats - {"", OWN}) and OWN not in formats


def has_rollouts(path: str) -> bool:
    """Whether a file begins like rollouts of some format, unlike a configuration or a table of results."""
    try:
        with Source(path) as source:
            return format_of(source).name != OWN or _is_ours(source)
    except InputError:
        return False


def runs_inside(folder: str) -> list[str]:
    """The paths of the runs in a folder, sorted; InputError if there are none.

    A folder of another system's files is one path, because their reader knows which files belong together.
    """
    paths = list(_runs_in(folder, DEEPEST))
    if not paths:
        raise InputError.at(folder, "has no runs", EXPECTED)
    return paths


def unfolded(sources: Sequence[Any]) -> list[Any]:
    """The sources, with each folder of runs replaced by the runs inside it."""
    every: list[Any] = []
    for source in sources:
        folder = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
        every += runs_inside(folder) if folder and is_folder_of_runs(folder) else [source]
    return every


def is_folder_of_runs(path: str) -> bool:
    """Whether a path is a folder of runs, which no format reads as a whole."""
    if not os.path.isdir(path) or _is_one_run(path) or _is_of_a_system(path):
        return False
    return _of_calipers(path, DEEPEST) or not _is_read_whole(path)


def _is_one_run(path: str) -> bool:
    """Whether a folder is one run of Calipers, of a model or of agents."""
    return is_run(path) or os.path.isfile(os.path.join(path, IDENTITY))


def _is_of_a_system(path: str) -> bool:
    """Whether a folder's own files show that it is one run of another system, whatever its agents left in it."""
    checks = (FORMATS.load(name).whole for name in FOLDER_FORMATS)
    return any(is_run_of_system(path) for is_run_of_system in checks if is_run_of_system)


def _runs_in(folder: str, depth: int) -> Iterator[str]:
    for name, path in _entries(folder):
        if os.path.isdir(path):
            is_run_folder = _is_one_run(path) or _is_of_a_system(path)
            if is_run_folder or (not _of_calipers(path, depth - 1) and _is_read_whole(path)):
                yield path
            elif depth > 1:
                yield from _runs_in(path, depth - 1)
        elif _is_rollouts(name) or (name.endswith(".json") and _is_wanted(path)):
            yield path


def _entries(folder: str) -> list[tuple[str, str]]:
    """The names and paths in a folder, sorted, without hidden files, pipes and devices."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError.at(folder, f"cannot be read ({error.strerror})") from None
    entries = [(name, os.path.join(folder, name)) for name in names if not name.startswith(".")]
    return [(name, path) for name, path in entries if not _never_ends(path)]


def _is_rollouts(name: str) -> bool:
    stem, packing = os.path.splitext(name.lower())
    return (stem if packing in PACKED else name.lower()).endswith(ROLLOUTS)


def _is_wanted(path: str) -> bool:
    """Whether a JSON file is a result or has rollouts, unlike a configuration or another document about a run."""
    schema = schema_of(path)
    return schema == RESULT_SCHEMA or (schema is None and has_rollouts(path))


def _of_calipers(folder: str, depth: int) -> bool:
    """Whether a folder contains a run or a result of Calipers, at most ``depth`` levels deep."""
    for name, path in _entries(folder):
        if os.path.isdir(path):
            if _is_one_run(path) or (depth > 1 and not _is_of_a_system(path) and _of_calipers(path, depth - 1)):
                return True
        elif name.endswith(".json") and is_result(path):
            return True
    return False


def _is_read_whole(folder: str) -> bool:
    """Whether some format reads the folder as a whole, or its files are one set of another system."""
    return any(FORMATS.load(name).folder(folder)[0] for name in FOLDER_FORMATS) or is_one_set(folder)


def schema_of(path: str) -> str | None:
    """The schema of a document written by Calipers; None for any other file."""
    try:
        with open(path, "rb") as file:
            match = _SCHEMA.match(file.read(_HEAD))
    except OSError:  # left to the reader, which has a better message
        return None
    return match[1].decode() if match else None


def is_result(path: str) -> bool:
    """Whether a path is a file with a result."""
    return os.path.isfile(path) and schema_of(path) == RESULT_SCHEMA
