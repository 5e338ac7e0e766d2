"""The state of a watch on disk: an append-only log of sums and looks, and a snapshot of the monitor.

::

    .calipers-watch/
      watch.log        settings, files, sums of each step, looks, accepted changes; the last record may be torn
      snapshot.bin     the monitor at a size of the log; written to a new file and renamed after each look

The log alone is enough: without a snapshot the monitor is rebuilt from the log. A process that is killed leaves at most
a torn last record, which is cut off. A record is its length, its checksum, a line of JSON, and arrays.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from calipers.analyses.watch import Alarm
from calipers.analyses.watch.monitor import (
    AlarmCourse,
    AlarmWatcher,
    Memory,
    Monitor,
    MonitorSettings,
    Raised,
    SeriesTasks,
    StepCurve,
    StepSeries,
)
from calipers.analyses.watch.status import AlarmStatus
from calipers.analyses.watch.sums import StepSums, header_of, of_arrays
from calipers.errors import InputError, LogError
from calipers.stats.alarms import Process, Recovery, RunningBest
from calipers.stores import atomic_file

FOLDER: Final = ".calipers-watch"
LOG, SNAPSHOT, LOCK = "watch.log", "snapshot.bin", "lock"
SCHEMA: Final = "calipers.watch_state/1"
RULES: Final = 2  # of the monitor in a snapshot; one of other rules is left, and the monitor is rebuilt from the log
_HEAD: Final = struct.Struct("<II")  # length of the record, checksum of it
LOCK_TRIES: Final = 4
LOCK_PAUSE: Final = 0.05  # seconds between two tries
SETTINGS, STEP, FILE, LOOK, ACCEPT = "settings", "step", "file", "look", "accept"
Header = dict[str, Any]
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class StateFolder:
    """The folder of a watch's state, locked by one process at a time."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / LOCK, "ab")  # noqa: SIM115  open until the watch ends
            self._acquire_lock()
            self._log = open(self.path / LOG, "a+b")  # noqa: SIM115
        except OSError as error:
            raise LogError.of(path, error) from None
        self.records: list[tuple[Header, int, int]] = []  # header, offset and length of the arrays
        try:
            self.size = self._index()
            self._log.truncate(self.size)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the log, and release the lock."""
        with suppress(OSError):  # `flush` has already reported bytes that cannot be written
            self._log.close()
        self._lock.close()

    def _acquire_lock(self) -> None:
        import fcntl

        for left in range(LOCK_TRIES, 0, -1):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if left > 1:
                    time.sleep(LOCK_PAUSE)  # a viewer may hold the lock for a moment to see whether a watch runs
                    continue
            self._lock.close()
            expected = "end that one, or give another --state DIR"
            raise InputError.at(str(self.path), "another calipers watch uses this state", expected) from None

    def _index(self) -> int:
        """Read the headers of all complete records, and return where these end; InputError for a damaged record."""
        end = os.fstat(self._log.fileno()).st_size
        offset = 0
        self._log.seek(0)
        while offset + _HEAD.size <= end:
            length, checksum = _HEAD.unpack(self._log.read(_HEAD.size))
            body = self._log.read(min(length, end - offset))
            if not body or zlib.crc32(body) != checksum:
                if offset + _HEAD.size + length < end or _wrong_length(body, length):
                    problem = f"record {len(self.records) + 1} is damaged: its checksum is not that of its content"
                    expected = "restore it from a copy, use another --state DIR, or delete this one to begin anew"
                    raise InputError.at(str(self.path / LOG), problem, expected)
                break  # only the last record can be torn
            line = body[: body.index(b"\n") + 1]
            self.records.append((_DECODER.decode(line), offset + _HEAD.size + len(line), length - len(line)))
            offset += _HEAD.size + length
        if self.records and (schema := self.records[0][0].get("schema")) != SCHEMA:
            expected = f"expected {SCHEMA}; use another --state DIR, or delete this one to begin anew"
            raise InputError.at(str(self.path), f"its state is {schema!r}", expected)
        return offset

    def append(self, header: Header, arrays: Mapping[str, np.ndarray[Any, Any]] | None = None) -> None:
        """Add a record at the end."""
        stored = {name: np.ascontiguousarray(values) for name, values in (arrays or {}).items()}
        header = {**header, "arrays": [[name, values.dtype.str, list(values.shape)] for name, values in stored.items()]}
        line = msgspec.json.encode(header) + b"\n"
        body = b"".join([line, *(values.tobytes() for values in stored.values())])
        try:
            self._log.seek(0, os.SEEK_END)
            self._log.write(_HEAD.pack(len(body), zlib.crc32(body)) + body)
        except OSError as error:
            raise LogError.of(self.path / LOG, error) from None
        self.records.append((header, self.size + _HEAD.size + len(line), len(body) - len(line)))
        self.size += _HEAD.size + len(body)

    def flush(self) -> None:
        """Write all records to the disk."""
        try:
            self._log.flush()
            os.fsync(self._log.fileno())
        except OSError as error:
            raise LogError.of(self.path / LOG, error) from None

    def arrays(self, record: tuple[Header, int, int]) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a record."""
        header, offset, length = record
        self._log.flush()
        self._log.seek(offset)
        body = self._log.read(length)
        arrays, start = {}, 0
        for name, dtype, shape in header["arrays"]:
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(body, np.dtype(dtype), count, start).reshape(shape)
            start += arrays[name].nbytes
        return arrays

    def sums(self, record: tuple[Header, int, int]) -> StepSums:
        """The sums of a step's record."""
        return of_arrays(record[0], self.arrays(record))

    def add_step(self, sums: StepSums) -> None:
        """Add the sums of a step."""
        self.append({"kind": STEP, **header_of(sums), "digest": sums.digest}, sums.arrays())

    def of_kind(self, kind: str) -> Iterator[tuple[Header, int, int]]:
        """The records of a kind, in order."""
        return (record for record in self.records if record[0].get("kind") == kind)

    def save(self, monitor: Monitor) -> None:
        """Write the snapshot of a monitor that has taken all steps of the log."""
        self.flush()
        content = {"schema": SCHEMA, "rules": RULES, "size": self.size, "monitor": to_tree(monitor.__dict__)}
        body = msgspec.msgpack.encode(content)
        try:
            with atomic_file(self.path / SNAPSHOT) as file:
                file.write(struct.pack("<I", zlib.crc32(body)) + body)
        except OSError as error:
            raise LogError.of(self.path / SNAPSHOT, error) from None

    def restore(self, settings: MonitorSettings) -> Monitor | None:
        """The monitor of the snapshot; None if the snapshot is damaged or does not belong to the log as it is."""
        with suppress(OSError, ValueError, KeyError, TypeError, msgspec.DecodeError, struct.error, AttributeError):
            data = (self.path / SNAPSHOT).read_bytes()
            (checksum,) = struct.unpack_from("<I", data)
            if zlib.crc32(memoryview(data)[4:]) != checksum:
                return None
            content = msgspec.msgpack.decode(memoryview(data)[4:])
            if (content["schema"], content.get("rules"), content["size"]) != (SCHEMA, RULES, self.size):
                return None
            monitor = Monitor(settings)
            monitor.__dict__.update(from_tree(content["monitor"]))
            return monitor
        return None


def _wrong_length(body: bytes, length: int) -> bool:
    """Whether the length of a record contradicts the arrays in its header: then it is damaged, and not torn."""
    line, newline, _ = body.partition(b"\n")
    try:
        arrays = _DECODER.decode(line)["arrays"] if newline else None
        return arrays is not None and length != len(line) + 1 + sum(
            np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for _, dtype, shape in arrays
        )
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return False


_CLASSES: Final = {
    kind.__name__: kind
    for kind in (
        Alarm,
        MonitorSettings,
        SeriesTasks,
        Memory,
        AlarmWatcher,
        AlarmCourse,
        AlarmStatus,
        Raised,
        StepCurve,
        StepSeries,
        Process,
        Recovery,
        RunningBest,
        StepSums,
    )
}


def to_tree(value: Any) -> Any:
    """A value of the monitor as maps, lists and bytes, which JSON and MessagePack can represent."""
    if isinstance(value, (np.ndarray, np.generic)):  # a numpy scalar is an array without axes
        return {"@array": value.dtype.str, "shape": list(value.shape), "data": np.ascontiguousarray(value).tobytes()}
    if isinstance(value, StepCurve):  # its lists are long, and contain plain numbers that need no conversion
        return {"@curve": [getattr(value, field.name) for field in dataclasses.fields(value)]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stored = [field.name for field in dataclasses.fields(value) if field.init]
        fields = {name: to_tree(getattr(value, name)) for name in stored}
        return {"@class": type(value).__name__, "fields": fields}
    if isinstance(value, dict):
        return {"@map": [[to_tree(key), to_tree(inner)] for key, inner in value.items()]}
    if isinstance(value, tuple):
        return {"@tuple": [to_tree(inner) for inner in value]}
    if isinstance(value, (set, frozenset)):
        return {"@set": sorted(value)}
    return [to_tree(inner) for inner in value] if isinstance(value, list) else value


def from_tree(value: Any) -> Any:
    """The inverse of `to_tree`."""
    if isinstance(value, list):
        return [from_tree(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    make: Mapping[str, Callable[[], Any]] = {
        "@array": lambda: np.frombuffer(_bytes(value["data"]), np.dtype(content)).reshape(value["shape"]).copy(),
        "@class": lambda: _CLASSES[content](**{name: from_tree(inner) for name, inner in value["fields"].items()}),
        "@curve": lambda: StepCurve(*(list(map(_ends, column)) for column in content)),
        "@map": lambda: {from_tree(key): from_tree(inner) for key, inner in content},
        "@tuple": lambda: tuple(from_tree(inner) for inner in content),
        "@set": lambda: set(content),
    }
    return make[kind]()


def _ends(value: Any) -> Any:
    """An element of a curve: a number as it is, or the ends of an interval as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _bytes(data: bytes | str) -> bytes:
    return base64.b64decode(data) if isinstance(data, str) else data
