"""inspect's logs as rollouts: their structs, ``.eval`` archives, ``.json`` in one piece, and what their samples say."""

from __future__ import annotations

import json
import math
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, BinaryIO, Final, Generic, TypeVar

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import TARGET, Columns, Extras, Format, Progress, Text, target_hash
from calipers.formats.jsonl import JsonLines, placed
from calipers.formats.lines import LineError
from calipers.formats.repeated_keys import counted_once, refuse_twice
from calipers.formats.source import BOM, FREE_UNPACKED, LARGEST_WHOLE, MOST_RATIO, Source, read_up_to
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.table import Labels, Part, Places

# -- the structs of a log

VERSION: Final = 2
READ: Final = ("eval", "results", "error", "scores", "model_usage", "limit")
"""What of a log or of a sample is read, but for what may hold anything."""

_RAWS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
Kind = TypeVar("Kind", bound=msgspec.Struct)
Sample = TypeVar("Sample")


class InspectDataset(msgspec.Struct, gc=False):
    """What was to be run; ``samples`` counts the whole dataset, ``sample_ids`` names those chosen of it."""

    samples: int | None = None
    sample_ids: list[int | str] | None = None


class InspectConfig(msgspec.Struct, gc=False):
    """How it was to be run."""

    epochs: int | None = None
    limit: int | list[int] | None = None


class Spec(msgspec.Struct, gc=False):
    """Who was asked what."""

    task: str = ""
    model: str | None = None
    solver: str | None = None
    dataset: InspectDataset = msgspec.field(default_factory=InspectDataset)
    config: InspectConfig = msgspec.field(default_factory=InspectConfig)


class Results(msgspec.Struct, gc=False):
    """What inspect counted."""

    total_samples: int | None = None


class InspectFailure(msgspec.Struct, gc=False):
    """What went wrong."""

    message: str = ""


class InspectScore(msgspec.Struct, gc=False):
    """What one scorer said of a sample."""

    value: Any = None
    answer: Any = None
    reason: str | None = None
    metadata: Any = None


class InspectUsage(msgspec.Struct, gc=False):
    """What one model used up for a sample."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    input_tokens_cache_read: float | None = None
    reasoning_tokens: float | None = None
    total_cost: float | None = None


class Limit(msgspec.Struct, gc=False):
    """The limit that a sample ran into."""

    type: str = ""


class Choice(msgspec.Struct, gc=False):
    """One of the model's last answers."""

    stop_reason: str | None = None


class InspectOutput(msgspec.Struct, gc=False):
    """The model's last words."""

    choices: list[Choice] = msgspec.field(default_factory=list)


class InspectSample(msgspec.Struct, gc=False):
    """One epoch of one sample."""

    id: int | str
    epoch: int = 1
    scores: dict[str, InspectScore] | None = None
    output: InspectOutput | None = None
    model_usage: dict[str, InspectUsage] | None = None
    total_time: float | None = None
    working_time: float | None = None
    error: InspectFailure | None = None
    limit: Limit | None = None
    invalidation: Any = None


class ScoredSample(InspectSample, gc=False):
    """The same with its metadata, which is decoded only for --by."""

    metadata: Any = None


class Header(msgspec.Struct, gc=False):
    """A log without its samples."""

    version: int = VERSION
    status: str = "started"
    eval: Spec = msgspec.field(default_factory=Spec)
    results: Results | None = None
    error: InspectFailure | None = None


class InspectLog(Header, Generic[Sample], gc=False):
    """A log in one file, with as much of its samples as is needed."""

    samples: list[Sample] | None = None


class TextMessage(msgspec.Struct, gc=False):
    """What was said last."""

    content: Any = None


class TextChoice(msgspec.Struct, gc=False):
    """One of the model's last answers, as far as it says something."""

    message: TextMessage | None = None


class TextOutput(msgspec.Struct, gc=False):
    """The model's last words, as far as they say something."""

    choices: list[TextChoice] = msgspec.field(default_factory=list)


class TextScore(msgspec.Struct, gc=False):
    """What one scorer took for the answer."""

    answer: Any = None


class TextSample(msgspec.Struct, gc=False):
    """One epoch of one sample, as far as it says something."""

    id: int | str
    epoch: int = 1
    input: Any = None
    target: Any = None
    output: TextOutput | None = None
    scores: dict[str, TextScore] | None = None
    error: InspectFailure | None = None


class FullSample(TextSample, gc=False):
    """One epoch of one sample, as far as a record has room for it."""

    metadata: Any = None


def decoded(text: bytes, kind: type[Kind], location: str) -> Kind:
    """A part of a log; InputError where it is none, or has a key twice. A NaN, as Python writes it, is a number."""
    value = _decoded(text, kind, location)
    _check_once(text, location)
    return value


def _check_once(text: bytes, location: str) -> None:
    """Refuse a key twice at the top, in a score, or in whatever else a number is taken from."""
    try:
        values = _RAWS.decode(text)
        parts = [bytes(values[name]) for name in READ if name in values]
        samples = msgspec.json.decode(values["samples"], type=list[msgspec.Raw] | None) if "samples" in values else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refuse_twice(text, location, (*READ, "samples"))  # it says NaN
        return
    if not counted_once(text, values):
        refuse_twice(text, location)
    for part in parts:
        if not _plainly_once(part):
            refuse_twice(b'{"_":' + part + b"}", location, ("_",))
    for sample in samples or ():
        _check_once(bytes(sample), location)


_SPACED: Final = re.compile(rb'"\s+:')


def _plainly_once(part: bytes) -> bool:
    """Whether as many keys are written as there are, so that none is written twice; a cheap test, often enough."""
    try:
        value = msgspec.json.decode(part)
        return part.count(b'":') == _keys(value) and _SPACED.search(part) is None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _keys(value: Any) -> int:
    """How many keys a value has, and all values in it."""
    if isinstance(value, dict):
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if isinstance(value, list) else 0


def _decoded(text: bytes, kind: type[Kind], location: str) -> Kind:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # a NaN, perhaps, or a fault: the other decoder knows which
    try:
        return msgspec.convert(json.loads(text), kind)
    except msgspec.ValidationError as error:
        wrong = str(error).rstrip(".")
        raise InputError.at(location, f"is not as inspect writes it ({wrong})", "expected a log of version 2") from None
    except (ValueError, RecursionError) as error:
        raise InputError.at(location, f"is not JSON ({error})", "expected a log of inspect") from None


def checked(header: Header, location: str) -> None:
    """Refuse a log of another version."""
    if header.version != VERSION:
        right = f"expected version {VERSION}; inspect log convert writes it"
        raise InputError.at(location, f"is an inspect log of version {header.version}", right)


# -- logs of any form

MAGIC: Final = b"PK\x03\x04"
LARGEST_MEMBER: Final = 1 << 30
MOST_MEMBERS: Final = 5_000_000
ZSTD: Final = 93
ENCRYPTED: Final = 1  # flag of a member
_LOCAL: Final = struct.Struct("<26xHH")  # of a member's own header: how long its name is, and its extra field
_PIECE: Final = 1 << 20


class Archive:
    """The members of a zip file by name; of two with one name, the one written last."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:  # the last for a zip of a newer version
            right = "expected an archive that inspect finished writing"
            raise InputError.at(path, f"is not a complete zip archive ({error})", right) from None
        except OSError as error:
            raise InputError.at(path, f"cannot be read ({error.strerror})") from None
        self.members = {info.filename: info for info in self._zip.infolist()}
        self._raw: BinaryIO | None = None
        packed = sum(info.compress_size for info in self.members.values())
        self._left = max(FREE_UNPACKED, MOST_RATIO * packed)
        if len(self._zip.infolist()) > MOST_MEMBERS:
            raise InputError.at(path, f"contains more than {MOST_MEMBERS:,} members", "expected a log, not a zip bomb")

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        if self._raw is not None:
            self._raw.close()

    def read(self, name: str) -> bytes:
        """A member, unpacked; InputError where it is broken, or larger than a log has use for."""
        info = self.members[name]
        try:
            known = {ZSTD: self._zstd, zipfile.ZIP_DEFLATED: self._deflated}
            data = known.get(info.compress_type, self._known)(info)
        # zipfile raises NotImplementedError for a packing that it does not know, and RuntimeError for a password
        except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, RuntimeError) as error:
            raise InputError.at(f"{self.path}: {name}", f"cannot be unpacked ({error})", "is it complete?") from None
        except OSError as error:
            raise InputError.at(f"{self.path}: {name}", f"cannot be read ({error.strerror})") from None
        self._left -= len(data)
        if self._left < 0:
            wrong = f"unpacks to more than {MOST_RATIO} times its size"
            raise InputError.at(self.path, wrong, "expected a log, not a zip bomb")
        return data

    def _known(self, info: zipfile.ZipInfo) -> bytes:
        with self._zip.open(info) as member:
            return self._bounded(member, info.filename)

    def _packed(self, info: zipfile.ZipInfo) -> bytes:
        """A member as it lies in the archive."""
        if info.flag_bits & ENCRYPTED:
            raise RuntimeError("it is encrypted")
        if self._raw is None:
            self._raw = open(self.path, "rb")  # noqa: SIM115  closed with the archive
        self._raw.seek(info.header_offset)
        head = self._raw.read(30)
        if not head.startswith(MAGIC):
            raise zipfile.BadZipFile("no member starts at the expected position")
        self._raw.seek(sum(_LOCAL.unpack(head)), 1)
        packed = read_up_to(self._raw, info.compress_size)  # it may say more than there is
        if len(packed) < info.compress_size:
            raise EOFError("it is truncated")
        return packed

    def _deflated(self, info: zipfile.ZipInfo) -> bytes:
        """A deflated member; four times as fast as `zipfile` for small ones."""
        packed = self._packed(info)
        most = min(LARGEST_MEMBER, self._left)
        unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
        data = unpacking.decompress(packed, most + 1)
        if len(data) > most:
            wrong = f"unpacks to more than {most >> 20} MiB"
            raise InputError.at(f"{self.path}: {info.filename}", wrong, "expected a log, not a zip bomb")
        return self._sound(data, info)

    def _zstd(self, info: zipfile.ZipInfo) -> bytes:
        import zstandard

        packed = self._packed(info)
        try:
            with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as member:
                data = self._bounded(member, info.filename)
        except zstandard.ZstdError as error:
            raise zipfile.BadZipFile(str(error)) from None
        return self._sound(data, info)

    @staticmethod
    def _sound(data: bytes, info: zipfile.ZipInfo) -> bytes:
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile("its checksum is wrong")
        return data

    def _bounded(self, member: Any, name: str) -> bytes:
        most = min(LARGEST_MEMBER, self._left)
        pieces, size = [], 0
        while piece := member.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                wrong = f"unpacks to more than {most >> 20} MiB"
                raise InputError.at(f"{self.path}: {name}", wrong, "expected a log, not a zip bomb")
        return b"".join(pieces)


GRADES: Final[Mapping[str, float]] = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
WORDS: Final[Mapping[str, float]] = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
OF_REASON: Final[Mapping[str, str]] = {
    "refusal": "refused",
    "no_response": "empty",
    "invalid_response_format": "unparsed",
    "grader_failed": "judge_failed",
    "scoring_failed": "verifier_failed",
}
FAULT: Final = frozenset({"judge_failed", "verifier_failed"})  # of the measurement: no word on a sample with a value
OF_LIMIT: Final[Mapping[str, str]] = {"time": "timed_out", "working": "timed_out", "operator": "cancelled"}
OF_STOP: Final[Mapping[str, str]] = {
    "max_tokens": "truncated",
    "model_length": "truncated",
    "content_filter": "refused",
}
_KIND: Final = re.compile(r"([A-Za-z_][\w.]*)\(")


def record(sample: InspectSample, spec: Spec) -> dict[str, Any]:
    """The record of a sample; with its metadata where labels were asked for."""
    scores = sample.scores or {}
    rewards = dict(_rewards(scores))
    row: dict[str, Any] = {
        "task": str(sample.id),
        "sample": sample.epoch - 1,
        "outcome": _outcome(sample, bool(rewards)),
        "rewards": rewards,
        "answer": _answer(scores.values()),
        "usage": _usage(sample),
        **({} if sample.working_time is None else {"working_s": sample.working_time}),
        **group(spec),
    }
    if isinstance(sample, ScoredSample) and isinstance(sample.metadata, dict):
        row["metadata"] = sample.metadata
    return row


def _answer(scores: Iterable[InspectScore | TextScore]) -> str | int | float | None:
    """What the first scorer that says so took for the answer."""
    return next((score.answer for score in scores if isinstance(score.answer, (str, int, float))), None)


def group(spec: Spec) -> dict[str, str | None]:
    """Whose samples these are: the solver is the agent, the task is the dataset."""
    return {"agent": spec.solver, "model": spec.model, "dataset": spec.task or None}


def number(value: Any) -> float | None:
    """What one value of a score is worth; None where it is no grade and no finite number.

    >>> number("P"), number(True), number("0.5"), number(float("nan")), number("maybe")
    (0.5, 1.0, 0.5, None, None)
    """
    if isinstance(value, str):
        if value in GRADES:
            return GRADES[value]
        if value.lower() in WORDS:
            return WORDS[value.lower()]
    if not isinstance(value, (str, int, float)):
        return None
    try:
        worth = float(value)
    except (ValueError, OverflowError):
        return None
    return worth if math.isfinite(worth) else None


def error_kind(sample: InspectSample) -> str | None:
    """The word for what went wrong: the exception's name, where the message begins with it."""
    if sample.error is None:
        return None
    named = _KIND.match(sample.error.message)
    return named[1] if named else "error"


def unread(sample: InspectSample) -> list[str]:
    """The scorers whose value is a word that is no grade."""
    return [
        name
        for name, score in (sample.scores or {}).items()
        if any(isinstance(value, str) and number(value) is None for _, value in _values(name, score))
    ]


def _values(name: str, score: InspectScore) -> Iterator[tuple[str, Any]]:
    """Each value of a score, by the reward it becomes: ``scorer``, or ``scorer.key`` where there are several."""
    if isinstance(score.value, dict):
        yield from ((f"{name}.{key}", value) for key, value in score.value.items())
    elif isinstance(score.value, list):
        yield from ((f"{name}.{index}", value) for index, value in enumerate(score.value))
    else:
        yield name, score.value


def _rewards(scores: Mapping[str, InspectScore]) -> Iterator[tuple[str, float]]:
    for name, score in scores.items():
        for key, value in _values(name, score):
            if (worth := number(value)) is not None:
                yield key, worth


def _outcome(sample: InspectSample, valued: bool) -> str:
    if sample.invalidation is not None:
        return "cancelled"  # somebody declared it void
    if sample.error is not None and not valued:
        return "client_failed"
    limit = None if sample.limit is None else OF_LIMIT.get(sample.limit.type, "truncated")
    if limit is not None and not (valued and limit == "cancelled"):
        return limit
    reasons = [OF_REASON.get(reason) for score in (sample.scores or {}).values() if (reason := _reason(score))]
    reason_word = next((word for word in reasons if word and not (valued and word in FAULT)), None)
    stopped = sample.output.choices[0].stop_reason if sample.output and sample.output.choices else None
    word = OF_STOP.get(stopped or "") or reason_word
    if word:
        return word
    if valued:
        return "scored"
    return "verifier_failed" if unread(sample) else "missing"


def _reason(score: InspectScore) -> str | None:
    """Why a score is not what it should be; older logs say so in its metadata."""
    older = score.metadata.get("unscored_reason") if isinstance(score.metadata, dict) else None
    return score.reason or (older if isinstance(older, str) else None)


def _usage(sample: InspectSample) -> dict[str, float]:
    """What all models together used up, graders too; only what some of them reported."""
    totals: dict[str, float] = {}
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd")
    for used in (sample.model_usage or {}).values():
        counts = (
            used.input_tokens,
            used.output_tokens,
            used.input_tokens_cache_read,
            used.reasoning_tokens,
            used.total_cost,
        )
        for name, count in zip(names, counts, strict=True):
            if count is not None and math.isfinite(count):
                totals[name] = totals.get(name, 0.0) + count
    if sample.total_time is not None and math.isfinite(sample.total_time):
        totals["latency_s"] = sample.total_time
    return totals


HEADER: Final = "header.json"
PLAN: Final = ": plan"  # follows the path of a log where a sample that was never run is said to stand
START: Final = "_journal/start.json"
AT_ONCE: Final = 1024  # samples
MOST_PLANNED: Final = 100_000_000
_LOG: Final = re.compile(rb'\{\s*"version"\s*:\s*\d+\s*,\s*"(?:status|eval)"\s*:')
_SAMPLE: Final = re.compile(r"samples/.+_epoch_[0-9]+(?:\.json|/sample\.json)")
CHUNKED: Final = "/sample.json"  # a sample in pieces: its scores here, its metadata and messages in members beside it


def is_archive(head: bytes) -> bool:
    """Whether a file that begins like this may be an archive of inspect's: a zip, of whatever."""
    return head.startswith(MAGIC)


def is_log(head: bytes) -> bool:
    """Whether a file that begins like this is a log in one piece."""
    return _LOG.match(head.removeprefix(BOM).lstrip()) is not None


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a log: those in it, and `not_run` for those that were planned and are not."""
    if len(names):
        raise InputError.at("--columns", "a log of inspect has its own field names", "remove this option")
    reading = _LogReading(source.path, labels)
    if not is_archive(source.head):
        text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
        kind: type[InspectLog[Any]] = InspectLog[ScoredSample] if labels else InspectLog[InspectSample]
        log = decoded(text, kind, source.path)
        progress(len(text))
        if log.samples is None:
            right = "expected a log with samples; inspect writes none with --no-log-samples"
            raise InputError.at(source.path, "contains numbers but no samples", right)
        return reading.parts(log, log.samples)
    if not source.divisible:
        wrong = "is a zip archive that is compressed again, or comes through a pipe"
        raise InputError.at(source.path, wrong, "expected the plain file, because it is read from its end")
    with Archive(source.path) as archive:
        header = header_of(archive)
        return reading.parts(header, _samples(archive, progress, bool(labels)))


def header_of(archive: Archive) -> Header:
    """What an archive says of itself; of one that was cut off, what it said at the start."""
    for name in (HEADER, START):
        if name in archive.members:
            return decoded(archive.read(name), Header, f"{archive.path}: {name}")
    right = f"expected {HEADER} or {START}, as inspect writes them"
    raise InputError.at(archive.path, "is a zip archive, but not a log of inspect", right)


def sample_names(archive: Archive) -> list[str]:
    """The members that are samples, whole or the first of several pieces; any other member is passed over."""
    return [name for name in archive.members if _SAMPLE.fullmatch(name)]


def _samples(archive: Archive, progress: Progress, labelled: bool) -> Iterator[InspectSample]:
    kind = ScoredSample if labelled else InspectSample
    for name in sample_names(archive):
        sample = decoded(archive.read(name), kind, f"{archive.path}: {name}")
        beside = name.removesuffix(CHUNKED) + "/metadata.json"
        if isinstance(sample, ScoredSample) and sample.metadata is None and beside in archive.members:
            sample.metadata = _object(archive.read(beside), f"{archive.path}: {beside}")
        yield sample
        progress(archive.members[name].compress_size)


def _object(text: bytes, location: str) -> Any:
    """A member of an archive as JSON, whatever it says."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError.at(location, f"is not JSON ({error})", "expected a log of inspect") from None


class _LogReading:
    """One log while it is read."""

    def __init__(self, path: str, labels: Collection[str]) -> None:
        self._path = path
        self._labels = labels
        self._there: dict[str, set[int]] = {}
        self._kinds: list[str | None] = []
        self._unread = Counter[str]()

    def parts(self, header: Header, samples: Iterable[InspectSample]) -> list[Part]:
        """What was run, and what was not."""
        checked(header, self._path)
        run = self._gathered(self._path, self._records(header, samples), "sample ")
        owed = self._gathered(f"{self._path}{PLAN}", map(json.dumps, self._owed(header)), "sample ")
        if any(self._kinds):
            numbers = {kind: number for number, kind in enumerate(dict.fromkeys(filter(None, self._kinds)))}
            code = np.array([numbers.get(kind or "", -1) for kind in self._kinds], dtype=np.int64)
            run = replace(run, labels={**run.labels, ERROR_KIND: Labels(code, list(numbers))})
        parts = [part for part in (run, owed) if len(part)]
        notes = [*self._notes(header)]
        return [replace(part, planned_from="plan", notes=[] if index else notes) for index, part in enumerate(parts)]

    def _records(self, header: Header, samples: Iterable[InspectSample]) -> Iterator[str]:
        for sample in samples:
            if sample.epoch < 1:
                wrong = f"sample {sample.id!r} has epoch {sample.epoch}"
                raise InputError.at(self._path, wrong, "expected epochs from 1")
            self._there.setdefault(str(sample.id), set()).add(sample.epoch)
            self._kinds.append(error_kind(sample))
            self._unread.update(unread(sample))
            try:
                yield _line(record(sample, header.eval))
            except RecursionError:
                wrong = f"sample {sample.id!r} has metadata that is nested too deeply"
                raise InputError.at(self._path, wrong, "expected text or numbers for --by") from None

    def _owed(self, header: Header) -> Iterator[dict[str, Any]]:
        """A record for each planned epoch of a sample that the log has not."""
        plan, epochs = header.eval.dataset, max(header.eval.config.epochs or 1, 1)
        tasks = [*map(str, plan.sample_ids or ())]
        count = len(tasks) or self._count(header, epochs)
        if count * epochs > MOST_PLANNED:
            raise InputError.at(self._path, f"{count * epochs} samples are planned", f"expected at most {MOST_PLANNED}")
        if not tasks:  # a count, and no names: those that never came have none
            lost = range(1, count - len(self._there) + 1)
            tasks = [*self._there, *(f"(not in the log: {number})" for number in lost)]
        for task in tasks:
            for epoch in range(1, epochs + 1):
                if epoch not in self._there.get(task, ()):
                    yield {"task": task, "sample": epoch - 1, "outcome": "not_run", **group(header.eval)}

    def _count(self, header: Header, epochs: int) -> int:
        """How many samples were chosen, by what an older log says of it."""
        if header.results is not None and header.results.total_samples:
            return header.results.total_samples // epochs
        samples, limit = header.eval.dataset.samples or 0, header.eval.config.limit
        if isinstance(limit, int):
            return min(samples, limit)
        if limit is not None and len(limit) == 2:
            return max(min(samples, limit[1]) - limit[0], 0)
        return samples

    def _gathered(self, location: str, lines: Iterator[str], unit: str) -> Part:
        reader = JsonLines(location, {}, self._labels)
        try:
            while block := [*islice(lines, AT_ONCE)]:
                reader.read("".join(f"{line}\n" for line in block).encode("utf-8", "replace"))
            part = reader.finish()
        except LineError as error:
            line, wrong, right = error.args
            raise InputError.at(f"{location}:{unit}{line}", wrong, right) from None
        return replace(part, places=Places(location, unit, part.places.blocks))

    def _notes(self, header: Header) -> Iterator[str]:
        if header.status == "started":
            yield f"{self._path}: the run is not finished: it is still running, or it was interrupted"
        elif header.status != "success":
            why = f" ({header.error.message})" if header.error and header.error.message else ""
            yield f"{self._path}: the run ended with {header.status!r}{why}"
        for scorer, count in self._unread.items():
            subject = "1 sample has" if count == 1 else f"{count:,} samples have"
            yield (
                f"{self._path}: {subject} a value of {scorer!r} that is neither a "
                "grade nor a number: it counts as missing, not as 0"
            )


_ENCODER: Final = msgspec.json.Encoder()


def _line(row: dict[str, Any]) -> str:
    """A record as a line of JSON, with null for NaN."""
    try:
        return _ENCODER.encode(row).decode()
    except (UnicodeEncodeError, OverflowError, TypeError):  # half a character, or an integer beyond 64 bits
        return json.dumps(_plain(row))


def _plain(value: Any) -> Any:
    """JSON as all can read it: no NaN, no half characters."""
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def texts(path: str) -> Iterator[Text]:
    """The texts of a log that has been read as rollouts before, so that it is one.

    The answer is what a scorer took for it.
    """
    with Source(path) as source:
        if not is_archive(source.head):
            log = decoded(source.everything(LARGEST_WHOLE).removeprefix(BOM), InspectLog[TextSample], path)
            for sample in log.samples or ():
                yield _text(log, sample)
            return
    with Archive(path) as archive:
        header = header_of(archive)
        for name in sample_names(archive):
            yield _text(header, decoded(archive.read(name), TextSample, f"{path}: {name}"))


def _text(header: Header, sample: TextSample) -> Text:
    taken = (score.answer for score in (sample.scores or {}).values() if score.answer is not None)
    choices = sample.output.choices if sample.output else []
    spoken = choices[0].message.content if choices and choices[0].message else None
    spec = header.eval
    who = spec.solver, spec.model, spec.task or None, str(sample.id), sample.epoch - 1
    error = None if sample.error is None else {"message": sample.error.message}
    said = {"completion": spoken, "prompt": sample.input, "answer": next(taken, None), "error": error}
    return Text(*who, target=target_hash(sample.target), **said)


def _extras(part: Part, columns: Columns) -> Extras:
    """What the samples of a log say beside numbers; of those that are planned only, nothing."""
    path = part.places.path
    if path.endswith(PLAN):
        yield from ({} for _ in range(len(part)))
        return
    with Source(path) as source:
        if not is_archive(source.head):
            log = decoded(source.everything(LARGEST_WHOLE).removeprefix(BOM), InspectLog[FullSample], path)
            yield from map(_extra, log.samples or ())
            return
    with Archive(path) as archive:
        for name in sample_names(archive):
            yield _extra(decoded(archive.read(name), FullSample, f"{path}: {name}"))


def _extra(sample: FullSample) -> Mapping[str, Any]:
    scores, choices = sample.scores or {}, sample.output.choices if sample.output else []
    known = {
        "prompt": sample.input,
        "completion": choices[0].message.content if choices and choices[0].message else None,
        "answer": _answer(scores.values()),
        "error": None if sample.error is None else {"message": sample.error.message},
        "metadata": sample.metadata if isinstance(sample.metadata, dict) else None,
    }
    others = {} if sample.target is None else {TARGET: sample.target}
    extra: Mapping[str, Any] = _plain(placed(known, others))
    return extra


LOG = Format(
    "inspect",
    read,
    recognise=lambda start: is_archive(start.head) or is_log(start.head),
    texts=lambda path, columns, wanted: texts(path),
    extras=_extras,
)
