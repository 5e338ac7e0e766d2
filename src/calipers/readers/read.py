"""The door: paths in, one table of rollouts out, whatever the files are made of.

What a file is, its content says, never its name.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from calipers.errors import InputError, UnknownName
from calipers.readers import divide, evsys, harbor, inspect, lm_eval, native, nemo_gym, run_folder, table
from calipers.readers.files import BOM, LONGEST_LINE, Source
from calipers.readers.folders import with_folders
from calipers.readers.harbor_folder import JobFolder
from calipers.readers.harbor_join import numbered
from calipers.readers.nemo_gym_beside import has_companions
from calipers.readers.run_folder import RunLog
from calipers.readers.run_plan import LOG, is_run
from calipers.readers.schema import odd_key
from calipers.rollouts.part import Part
from calipers.rollouts.record import ROLES, USAGE
from calipers.rollouts.table import Rollouts, assemble

FORMATS = (
    "native",
    "jsonl",
    "evsys_predictions",
    "evsys_rewards",
    "csv",
    "parquet",
    "nemo_gym",
    "lm_eval_samples",
    "lm_eval_results",
    "run",
    "harbor",
    "inspect",
)
NOTHING: Mapping[str, str] = MappingProxyType({})
BLANKS = b" \t\r\n"
CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b")  # bytes that no header holds

Progress = Callable[[int, int], None]  # bytes read, bytes in all (0 when nobody knows)

_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Input:
    """One file that was read, or one job's directory."""

    path: str
    format: str  # one of FORMATS
    sha256: str  # of the bytes on disk; of a job, of its trials' names and results
    rollouts: int  # rows in it, or in the samples beside results; those that a plan owes are not


def read(
    paths: Sequence[str],
    *,
    columns: Mapping[str, str] = NOTHING,
    labels: Collection[str] = (),
    progress: Progress | None = None,
) -> tuple[Rollouts, list[Input]]:
    """All rollouts of some files as one table, and what the files were.

    ``columns`` says what the files call a role (``{"task": "id"}``); ``labels`` are the keys whose
    values are to be kept, for slices and clusters. InputError for the first thing that is wrong.
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
) -> tuple[Rollouts, Callable[[], list[Input]]]:
    """As `read`, but the files are still being hashed: the second answer waits for that.

    ``kept`` gets the parts too, for who needs more of a file than rollouts.
    """
    _check_columns(columns)
    if (odd := odd_key([*labels, *columns.values()])) is not None:
        raise InputError(f"{odd!r} holds a quote, a backslash or a control character; expected a plain key")
    if not paths:
        raise InputError("no files; expected at least one file of rollouts")
    paths = nemo_gym.without_companions(paths)
    given, told = with_folders(paths)
    done, total = 0, sum(map(_size, given))
    parts: list[Part] = [] if kept is None else kept
    seen = []
    with uncollected():
        for each in given:
            with _opened(each) as source:
                kind = found_format(source, columns)
                found = _read(source, kind, columns, labels, _told(progress, done, source.size, total))
                source.start_hashing()  # not earlier: reading keeps every core busy, what follows does not
                if not found:
                    raise InputError.at(
                        each if isinstance(each, str) else each.path, "no rollouts", "expected at least one"
                    )
                rows = sum(map(len, parts))
                found = [part if part.turn is None else replace(part, turn=part.turn + rows) for part in found]
                own = [part for part in found if part.places.path == source.path or kind == "lm_eval_results"]
                seen.append((source, kind, sum(map(len, own))))
                done += source.size
                parts += found
                if progress is not None:
                    progress(done, total)
        _check_named(columns, paths, parts)
        parts[0] = replace(parts[0], notes=[*parts[0].notes, *told])
        parts[:] = numbered(parts)
        rollouts = assemble(parts)
    return rollouts, lambda: [Input(source.path, kind, source.sha256(), rows) for source, kind, rows in seen]


def found_format(source: Source | JobFolder, columns: Mapping[str, str] = NOTHING) -> str:
    """What a source is made of, one of FORMATS; InputError when it is nothing we read."""
    if isinstance(source, JobFolder):
        return "harbor"
    if isinstance(source, RunLog):
        return "run"
    if source.head.startswith(b"PAR1"):
        return "parquet"
    if inspect.is_archive(source.head) or inspect.is_log(source.head):
        return "inspect"
    start = _first_line(source)
    if not start:
        if has_companions(source.path):
            return "nemo_gym"
        raise InputError.at(source.path, "no rollouts", "expected at least one")
    is_json = start[:1] in b"[{"
    if b"\0" in (start if is_json else source.head) or not (is_json or CONTROLS.isdisjoint(start)):
        right = "expected JSON Lines, a JSON list of lists, CSV or Parquet"
        raise InputError.at(source.path, "is not a file of rollouts", right)
    if not is_json:
        return "csv"
    if lm_eval.is_results(source.head):
        return "lm_eval_results"
    return "evsys_rewards" if start[:1] == b"[" else _rows_format(start, columns)


def _rows_format(line: bytes, columns: Mapping[str, str]) -> str:
    """What a line of JSON Lines says of its file; a line that is no JSON is left to the native reader."""
    try:
        row = _ROW.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if nemo_gym.is_row(line):
            return "nemo_gym"
        return "lm_eval_samples" if lm_eval.is_line(line) else "native"
    if "task" not in columns and nemo_gym.is_row(line) and not nemo_gym.INDICES.isdisjoint(row):
        return "nemo_gym"
    if "task" not in columns and "task" not in row and "task_id" in row:
        return "evsys_predictions"
    if "task" not in columns and "task" not in row and lm_eval.is_row(row):
        return "lm_eval_samples"
    return "jsonl" if columns and ("task" in columns or "task" not in row) else "native"


def _first_line(source: Source) -> bytes:
    """The first line that is not blank, its blanks stripped; what was read for it stays to be read."""
    head, source.head = source.head, b""
    while True:
        start = head.removeprefix(BOM).lstrip(BLANKS)
        line, whole, _ = start.partition(b"\n")
        more = b"" if whole or len(head) > LONGEST_LINE else source.read(max(1 << 20, len(head)))
        if not more:
            source.head = head
            return line.rstrip(BLANKS)
        head += more


def _opened(given: str | JobFolder) -> Source | JobFolder:
    if isinstance(given, JobFolder):
        return given
    return RunLog(given) if is_run(given) else Source(given)


def _read(
    source: Source | JobFolder,
    kind: str,
    columns: Mapping[str, str],
    labels: Collection[str],
    progress: divide.Progress,
) -> list[Part]:
    if isinstance(source, JobFolder):
        return harbor.read(source, columns, labels, progress)
    if isinstance(source, RunLog):
        return run_folder.read(source, columns, labels, progress)
    if kind == "evsys_rewards":
        return evsys.read_rewards(source, progress)
    if kind == "nemo_gym":
        return nemo_gym.read(source, columns, labels, progress)
    readers = {
        "evsys_predictions": evsys.read_predictions,
        "csv": table.read_csv,
        "parquet": table.read_parquet,
        "lm_eval_samples": lm_eval.read_samples,
        "lm_eval_results": lm_eval.read_results,
        "inspect": inspect.read,
    }
    return readers.get(kind, native.read)(source, columns, labels, progress)


def _told(progress: Progress | None, done: int, size: int, total: int) -> divide.Progress:
    """A reader's "so many more bytes" as "so many of all", at most the size of its file until the next."""
    read = 0

    def tell(more: int) -> None:
        nonlocal read
        read += more
        if progress is not None:
            progress(done + min(read, size) if size else done + read, total)

    return tell


def _check_columns(columns: Mapping[str, str]) -> None:
    known = (*ROLES, *USAGE)
    owners: dict[str, str] = {}
    for role, key in columns.items():
        if role not in known:
            raise UnknownName.of("role for --columns", role, known)
        if key in owners:
            raise InputError.at("--columns", f"{owners[key]} and {role} are both {key!r}", "expected a key for each")
        owners[key] = role
    if owners.get("task", "task") != "task" and "task" not in columns:
        raise InputError.at("--columns", f"{owners['task']} takes the key 'task'", "name another with task=KEY")


def _check_named(columns: Mapping[str, str], paths: Sequence[str], parts: Sequence[Part]) -> None:
    met = frozenset[str]().union(*(part.named for part in parts))
    for role, key in columns.items():
        if key not in met:
            wrong = f"no row has {key!r}" + (f", nor has one in {len(paths) - 1} more files" if len(paths) > 1 else "")
            raise InputError.at(paths[0], wrong, f"expected it as {role} (--columns {role}={key})")


def _size(given: str | JobFolder) -> int:
    if isinstance(given, JobFolder):
        return given.size
    try:
        return os.path.getsize(os.path.join(given, LOG) if is_run(given) else given)
    except (OSError, ValueError):
        return 0


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: millions of rows, and no cycles among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
