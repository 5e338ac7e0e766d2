"""The reader of inspect's logs: their structs, ``.eval`` archives, ``.json`` files, and the texts of their samples."""

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
from calipers.formats.own_numbers import inside, mean_of_task_means, text_inside
from calipers.formats.repeated_keys import counted_once, refuse_repeated_key
from calipers.formats.source import BOM, FREE_UNPACKED, LARGEST_WHOLE, MOST_RATIO, Source, read_up_to
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.table import Labels, Part, Places
from calipers.typed import complete

# -- the structs of a log

VERSION: Final = 2
READ: Final = ("eval", "results", "error", "scores", "model_usage", "limit")
"""The keys of a log or of a sample that are read, except those with arbitrary content."""

_RAWS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
Kind = TypeVar("Kind", bound=msgspec.Struct)
Sample = TypeVar("Sample")


class InspectDataset(msgspec.Struct, gc=False):
    """The dataset of a run: ``samples`` is its size, ``sample_ids`` are the samples that were chosen from it."""

    samples: int | None = None
    sample_ids: list[int | str] | None = None


class InspectConfig(msgspec.Struct, gc=False):
    """The configuration of a run."""

    epochs: int | None = None
    limit: int | list[int] | None = None


class Spec(msgspec.Struct, gc=False):
    """The specification of a run: its task, model, solver and dataset."""

    task: str = ""
    model: str | None = None
    solver: str | None = None
    dataset: InspectDataset = msgspec.field(default_factory=InspectDataset)
    config: InspectConfig = msgspec.field(default_factory=InspectConfig)


class Results(msgspec.Struct, gc=False):
    """The results of a run, as counted by inspect."""

    total_samples: int | None = None
    scores: Any = None


class InspectFailure(msgspec.Struct, gc=False):
    """An error."""

    message: str = ""


class InspectScore(msgspec.Struct, gc=False):
    """The score of a sample by one scorer."""

    value: Any = None
    answer: Any = None
    reason: str | None = None
    metadata: Any = None


class InspectUsage(msgspec.Struct, gc=False):
    """The usage of one model for a sample."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    input_tokens_cache_read: float | None = None
    reasoning_tokens: float | None = None
    total_cost: float | None = None


class Limit(msgspec.Struct, gc=False):
    """The limit that stopped a sample."""

    type: str = ""


class Choice(msgspec.Struct, gc=False):
    """One of the choices of the model's last output."""

    stop_reason: str | None = None


class InspectOutput(msgspec.Struct, gc=False):
    """The model's last output."""

    choices: list[Choice] = msgspec.field(default_factory=list)


class InspectSample(msgspec.Struct, gc=False):
    """One epoch of a sample."""

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
    """A sample with its metadata, which is only decoded for ``--by``."""

    metadata: Any = None


class Header(msgspec.Struct, gc=False):
    """A log without its samples."""

    version: int = VERSION
    status: str = "started"
    eval: Spec = msgspec.field(default_factory=Spec)
    results: Results | None = None
    error: InspectFailure | None = None


class InspectLog(Header, Generic[Sample], gc=False):
    """A log in one JSON file. The type of its samples declares the keys that are needed."""

    samples: list[Sample] | None = None


class TextMessage(msgspec.Struct, gc=False):
    """The message of a choice."""

    content: Any = None


class TextChoice(msgspec.Struct, gc=False):
    """The text of a choice."""

    message: TextMessage | None = None


class TextOutput(msgspec.Struct, gc=False):
    """The texts of the model's last output."""

    choices: list[TextChoice] = msgspec.field(default_factory=list)


class TextScore(msgspec.Struct, gc=False):
    """The answer that a scorer extracted."""

    answer: Any = None


class TextSample(msgspec.Struct, gc=False):
    """The texts of one epoch of a sample."""

    id: int | str
    epoch: int = 1
    input: Any = None
    target: Any = None
    output: TextOutput | None = None
    scores: dict[str, TextScore] | None = None
    error: InspectFailure | None = None


class FullSample(TextSample, gc=False):
    """The texts of one epoch of a sample, and its metadata."""

    metadata: Any = None


def decoded(text: bytes, kind: type[Kind], location: str) -> Kind:
    """Decode a part of a log; InputError if it is invalid, or has a key twice. Python's NaN is accepted."""
    value = _decoded(text, kind, location)
    _check_once(text, location)
    return value


def _check_once(text: bytes, location: str) -> None:
    """Raise InputError for a repeated key at the top level, in a score, or in any other part that is read."""
    try:
        values = _RAWS.decode(text)
        parts = [bytes(values[name]) for name in READ if name in values]
        samples = msgspec.json.decode(values["samples"], type=list[msgspec.Raw] | None) if "samples" in values else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refuse_repeated_key(text, location, (*READ, "samples"))  # not strict JSON, because of a NaN
        return
    if not counted_once(text, values):
        refuse_repeated_key(text, location)
    for part in parts:
        if not _plainly_once(part):
            refuse_repeated_key(b'{"_":' + part + b"}", location, ("_",))
    for sample in samples or ():
        _check_once(bytes(sample), location)


_SPACED: Final = re.compile(rb'"\s+:')


def _plainly_once(part: bytes) -> bool:
    """Whether the text has exactly as many keys as its value, so that no key is repeated.

    This is a cheap test that suffices for most parts. If it fails, the keys have to be compared.
    """
    try:
        value = msgspec.json.decode(part)
        return part.count(b'":') == _keys(value) and _SPACED.search(part) is None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _keys(value: Any) -> int:
    """The number of keys of a value and of all values in it."""
    if isinstance(value, dict):
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if isinstance(value, list) else 0


def _decoded(text: bytes, kind: type[Kind], location: str) -> Kind:
    try:
        return msgspec.json.decode(text, type=complete(kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # Python's parser accepts a NaN, and reports any other error
    try:
        return msgspec.convert(json.loads(text), complete(kind))
    except msgspec.ValidationError as error:
        problem = f"is not as inspect writes it ({str(error).rstrip('.')})"
        raise InputError.at(location, problem, "expected a log of version 2") from None
    except (ValueError, RecursionError) as error:
        raise InputError.at(location, f"is not JSON ({error})", "expected a log of inspect") from None


def checked(header: Header, location: str) -> None:
    """Raise InputError for a log of another version."""
    if header.version != VERSION:
        expected = f"expected version {VERSION}; inspect log convert writes it"
        raise InputError.at(location, f"is an inspect log of version {header.version}", expected)


# -- archives

MAGIC: Final = b"PK\x03\x04"
LARGEST_MEMBER: Final = 1 << 30
MOST_MEMBERS: Final = 5_000_000
ZSTD: Final = 93
ENCRYPTED: Final = 1  # a flag of a member
_LOCAL: Final = struct.Struct("<26xHH")  # a member's local header: the lengths of its name and of its extra field
_PIECE: Final = 1 << 20


class Archive:
    """The members of a zip file by name. If two have the same name, it is the one written last."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:  # the last for newer versions of zip
            expected = "expected an archive that inspect finished writing"
            raise InputError.at(path, f"is not a complete zip archive ({error})", expected) from None
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
        """The content of a member; InputError if it is damaged, or larger than the limits."""
        info = self.members[name]
        try:
            readers = {ZSTD: self._zstd, zipfile.ZIP_DEFLATED: self._deflated}
            data = readers.get(info.compress_type, self._by_zipfile)(info)
        # zipfile raises NotImplementedError for an unknown compression method, and RuntimeError for encryption
        except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, RuntimeError) as error:
            raise InputError.at(f"{self.path}: {name}", f"cannot be unpacked ({error})", "is it complete?") from None
        except OSError as error:
            raise InputError.at(f"{self.path}: {name}", f"cannot be read ({error.strerror})") from None
        self._left -= len(data)
        if self._left < 0:
            problem = f"unpacks to more than {MOST_RATIO} times its size"
            raise InputError.at(self.path, problem, "expected a log, not a zip bomb")
        return data

    def _by_zipfile(self, info: zipfile.ZipInfo) -> bytes:
        with self._zip.open(info) as member:
            return self._bounded(member, info.filename)

    def _packed(self, info: zipfile.ZipInfo) -> bytes:
        """The compressed bytes of a member."""
        if info.flag_bits & ENCRYPTED:
            raise RuntimeError("it is encrypted")
        if self._raw is None:
            self._raw = open(self.path, "rb")  # noqa: SIM115  closed with the archive
        self._raw.seek(info.header_offset)
        head = self._raw.read(30)
        if not head.startswith(MAGIC):
            raise zipfile.BadZipFile("no member starts at the expected position")
        self._raw.seek(sum(_LOCAL.unpack(head)), 1)
        packed = read_up_to(self._raw, info.compress_size)  # the declared size may exceed the file
        if len(packed) < info.compress_size:
            raise EOFError("it is truncated")
        return packed

    def _deflated(self, info: zipfile.ZipInfo) -> bytes:
        """A deflated member. This is four times as fast as `zipfile` for small members."""
        packed = self._packed(info)
        most = min(LARGEST_MEMBER, self._left)
        data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most + 1)
        if len(data) > most:
            raise self._too_large(info.filename, most)
        return self._verified(data, info)

    def _zstd(self, info: zipfile.ZipInfo) -> bytes:
        import zstandard

        packed = self._packed(info)
        try:
            with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as member:
                data = self._bounded(member, info.filename)
        except zstandard.ZstdError as error:
            raise zipfile.BadZipFile(str(error)) from None
        return self._verified(data, info)

    @staticmethod
    def _verified(data: bytes, info: zipfile.ZipInfo) -> bytes:
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
                raise self._too_large(name, most)
        return b"".join(pieces)

    def _too_large(self, name: str, most: int) -> InputError:
        problem = f"unpacks to more than {most >> 20} MiB"
        return InputError.at(f"{self.path}: {name}", problem, "expected a log, not a zip bomb")


# -- samples


GRADES: Final[Mapping[str, float]] = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
WORDS: Final[Mapping[str, float]] = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
OF_REASON: Final[Mapping[str, str]] = {
    "refusal": "refused",
    "no_response": "empty",
    "invalid_response_format": "unparsed",
    "grader_failed": "judge_failed",
    "scoring_failed": "verifier_failed",
}
FAULT: Final = frozenset({"judge_failed", "verifier_failed"})  # failures to score, which do not count beside a value
OF_LIMIT: Final[Mapping[str, str]] = {"time": "timed_out", "working": "timed_out", "operator": "cancelled"}
OF_STOP: Final[Mapping[str, str]] = {
    "max_tokens": "truncated",
    "model_length": "truncated",
    "content_filter": "refused",
}
USAGE: Final[Mapping[str, str]] = {  # our name of a count -> its key in `InspectUsage`
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "input_tokens_cache_read",
    "reasoning_tokens": "reasoning_tokens",
    "cost_usd": "total_cost",
}
_KIND: Final = re.compile(r"([A-Za-z_][\w.]*)\(")


def record(sample: InspectSample, spec: Spec) -> dict[str, Any]:
    """The record of a sample, with its metadata if it was decoded."""
    scores = sample.scores or {}
    values = [pair for name, score in scores.items() for pair in _values(name, score)]
    rewards = {name: reward for name, value in values if (reward := number(value)) is not None}
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
    """The answer of the first scorer that extracted one."""
    return next((score.answer for score in scores if isinstance(score.answer, (str, int, float))), None)


def group(spec: Spec) -> dict[str, str | None]:
    """The group of a run's samples: the solver is the agent, and the task is the dataset."""
    return {"agent": spec.solver, "model": spec.model, "dataset": spec.task or None}


def number(value: Any) -> float | None:
    """The number of a score's value; None if it is neither a grade nor a finite number.

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
        parsed = float(value)
    except (ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None


def error_kind(sample: InspectSample) -> str | None:
    """The kind of a sample's error: the exception's name, if the message begins with it, or else ``error``."""
    if sample.error is None:
        return None
    match = _KIND.match(sample.error.message)
    return match[1] if match else "error"


def unread(sample: InspectSample) -> list[str]:
    """The scorers whose value is a text that is neither a grade nor a number."""
    return [
        name
        for name, score in (sample.scores or {}).items()
        if any(isinstance(value, str) and number(value) is None for _, value in _values(name, score))
    ]


def _values(name: str, score: InspectScore) -> Iterator[tuple[str, Any]]:
    """Each value of a score with the name of its reward: ``scorer``, or ``scorer.key`` if there are several values."""
    if isinstance(score.value, dict):
        yield from ((f"{name}.{key}", value) for key, value in score.value.items())
    elif isinstance(score.value, list):
        yield from ((f"{name}.{index}", value) for index, value in enumerate(score.value))
    else:
        yield name, score.value


def _outcome(sample: InspectSample, valued: bool) -> str:
    if sample.invalidation is not None:
        return "cancelled"  # a user has invalidated the sample
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
    """The reason why a sample has no proper score; older logs have it in the score's metadata."""
    older = score.metadata.get("unscored_reason") if isinstance(score.metadata, dict) else None
    return score.reason or (older if isinstance(older, str) else None)


def _usage(sample: InspectSample) -> dict[str, float]:
    """The usage of all models together, graders included; only what at least one of them reported."""
    totals: dict[str, float] = {}
    for model_usage in (sample.model_usage or {}).values():
        for name, key in USAGE.items():
            if (count := getattr(model_usage, key)) is not None and math.isfinite(count):
                totals[name] = totals.get(name, 0.0) + count
    if sample.total_time is not None and math.isfinite(sample.total_time):
        totals["latency_s"] = sample.total_time
    return totals


# -- logs

SYSTEM: Final = "inspect"
MEANS: Final = ("accuracy", "mean")  # metrics that are the mean over samples
HEADER: Final = "header.json"
PLAN: Final = ": plan"  # appended to the path of a log, as the location of samples that were never run
START: Final = "_journal/start.json"
AT_ONCE: Final = 1024  # samples
MOST_PLANNED: Final = 100_000_000
_LOG: Final = re.compile(rb'\{\s*"version"\s*:\s*\d+\s*,\s*"(?:status|eval)"\s*:')
_SAMPLE: Final = re.compile(r"samples/.+_epoch_[0-9]+(?:\.json|/sample\.json)")
CHUNKED: Final = "/sample.json"  # a sample split over members: its scores are here, its metadata and messages beside it


def is_archive(head: bytes) -> bool:
    """Whether a file with this beginning is a zip archive, and so may be a log of inspect."""
    return head.startswith(MAGIC)


def is_log(head: bytes) -> bool:
    """Whether a file with this beginning is a log in one JSON file."""
    return _LOG.match(head.removeprefix(BOM).lstrip()) is not None


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a log, and add `not_run` rollouts for those that were planned and are missing."""
    if len(names):
        raise InputError.at("--columns", "a log of inspect has its own field names", "remove this option")
    reading = _LogReading(source.path, labels)
    if not is_archive(source.head):
        text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
        kind: type[InspectLog[Any]] = InspectLog[ScoredSample] if labels else InspectLog[InspectSample]
        log = decoded(text, kind, source.path)
        progress(len(text))
        if log.samples is None:
            expected = "expected a log with samples; inspect writes none with --no-log-samples"
            raise InputError.at(source.path, "contains numbers but no samples", expected)
        return reading.parts(log, log.samples)
    if not source.divisible:
        problem = "is a zip archive that is compressed again, or comes through a pipe"
        raise InputError.at(source.path, problem, "expected the plain file, because it is read from its end")
    with Archive(source.path) as archive:
        header = header_of(archive)
        return reading.parts(header, _samples(archive, progress, bool(labels)))


def header_of(archive: Archive) -> Header:
    """The header of an archive; of an unfinished archive, the header from its start."""
    for name in (HEADER, START):
        if name in archive.members:
            return decoded(archive.read(name), Header, f"{archive.path}: {name}")
    expected = f"expected {HEADER} or {START}, as inspect writes them"
    raise InputError.at(archive.path, "is a zip archive, but not a log of inspect", expected)


def sample_names(archive: Archive) -> list[str]:
    """The members that are samples, or the main part of a sample that is split over members."""
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
    """A member of an archive as JSON of any type."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError.at(location, f"is not JSON ({error})", "expected a log of inspect") from None


class _LogReading:
    """The state of reading one log."""

    def __init__(self, path: str, labels: Collection[str]) -> None:
        self._path = path
        self._labels = labels
        self._epochs: dict[str, set[int]] = {}  # sample id -> its epochs in the log
        self._error_kinds: list[str | None] = []  # of each sample
        self._unread = Counter[str]()  # scorer -> its values that are no numbers
        self._scored_errors = False  # whether a sample has an error and a score, which versions count differently

    def parts(self, header: Header, samples: Iterable[InspectSample]) -> list[Part]:
        """The rollouts in the log, and the planned rollouts that are missing from it."""
        checked(header, self._path)
        run = self._part(self._path, self._records(header, samples), "sample ")
        not_run = self._part(f"{self._path}{PLAN}", map(json.dumps, self._not_run(header)), "sample ")
        if any(self._error_kinds):
            numbers = {kind: number for number, kind in enumerate(dict.fromkeys(filter(None, self._error_kinds)))}
            code = np.array([numbers.get(kind or "", -1) for kind in self._error_kinds], dtype=np.int64)
            run = replace(run, labels={**run.labels, ERROR_KIND: Labels(code, list(numbers))})
        run = replace(run, checks=self._checks(header, run))
        parts = [part for part in (run, not_run) if len(part)]
        notes = [*self._notes(header)]
        return [replace(part, planned_from="plan", notes=[] if index else notes) for index, part in enumerate(parts)]

    def _records(self, header: Header, samples: Iterable[InspectSample]) -> Iterator[str]:
        for sample in samples:
            if sample.epoch < 1:
                problem = f"sample {sample.id!r} has epoch {sample.epoch}"
                raise InputError.at(self._path, problem, "expected epochs from 1")
            self._epochs.setdefault(str(sample.id), set()).add(sample.epoch)
            self._error_kinds.append(error_kind(sample))
            self._unread.update(unread(sample))
            self._scored_errors |= sample.error is not None and bool(sample.scores)
            try:
                yield _line(record(sample, header.eval))
            except RecursionError:
                problem = f"sample {sample.id!r} has metadata that is nested too deeply"
                raise InputError.at(self._path, problem, "expected text or numbers for --by") from None

    def _checks(self, header: Header, run: Part) -> list[Check]:
        """The means of each scorer in the results of the log, and ours: the mean over samples of the mean over epochs.

        Scores that inspect reduces in another way, or that have values which only inspect makes numbers of, are left
        out.
        """
        pairs, written = [], []
        results = None
        if header.results is not None and not self._scored_errors:
            results = header.results.scores
        for score in results if isinstance(results, list) else ():
            reward = _reward_of(score, run)
            metrics = inside(score, "metrics")
            if reward is None or not isinstance(metrics, dict) or text_inside(score, "scorer") in self._unread:
                continue
            if inside(score, "reducer") not in (None, "mean"):
                continue
            for name in metrics:
                value = inside(metrics, name, "value")
                written.append(value)
                if name in MEANS and not inside(metrics, name, "params"):
                    pairs.append((f"{reward} {name}", value, mean_of_task_means([run], reward)))
        return compared(SYSTEM, pairs, written)

    def _not_run(self, header: Header) -> Iterator[dict[str, Any]]:
        """A record for each planned epoch of a sample that is missing from the log."""
        plan, epochs = header.eval.dataset, max(header.eval.config.epochs or 1, 1)
        tasks = [*map(str, plan.sample_ids or ())]
        count = len(tasks) or self._count(header, epochs)
        if count * epochs > MOST_PLANNED:
            raise InputError.at(self._path, f"{count * epochs} samples are planned", f"expected at most {MOST_PLANNED}")
        if not tasks:  # the log has a count, but no ids, so that missing samples have no names
            missing = range(1, count - len(self._epochs) + 1)
            tasks = [*self._epochs, *(f"(not in the log: {number})" for number in missing)]
        for task in tasks:
            for epoch in range(1, epochs + 1):
                if epoch not in self._epochs.get(task, ()):
                    yield {"task": task, "sample": epoch - 1, "outcome": "not_run", **group(header.eval)}

    def _count(self, header: Header, epochs: int) -> int:
        """The number of samples that were chosen, for an older log without their ids."""
        if header.results is not None and header.results.total_samples:
            return header.results.total_samples // epochs
        samples, limit = header.eval.dataset.samples or 0, header.eval.config.limit
        if isinstance(limit, int):
            return min(samples, limit)
        if limit is not None and len(limit) == 2:
            return max(min(samples, limit[1]) - limit[0], 0)
        return samples

    def _part(self, location: str, lines: Iterator[str], unit: str) -> Part:
        reader = JsonLines(location, {}, self._labels)
        try:
            while block := [*islice(lines, AT_ONCE)]:
                reader.read("".join(f"{line}\n" for line in block).encode("utf-8", "replace"))
            part = reader.finish()
        except LineError as error:
            line, problem, expected = error.args
            raise InputError.at(f"{location}:{unit}{line}", problem, expected) from None
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


def _reward_of(score: Any, run: Part) -> str | None:
    """The reward that a score of the results is about: its scorer, or one of the scorer's values; None if unknown."""
    scorer, name = text_inside(score, "scorer"), text_inside(score, "name")
    if f"{scorer}.{name}" in run.rewards:
        return f"{scorer}.{name}"
    return scorer if scorer in run.rewards and name == scorer else None


_ENCODER: Final = msgspec.json.Encoder()


def _line(row: dict[str, Any]) -> str:
    """A record as a line of JSON, with null for NaN."""
    try:
        return _ENCODER.encode(row).decode()
    except (UnicodeEncodeError, OverflowError, TypeError):  # an unpaired surrogate, or an integer beyond 64 bits
        return json.dumps(_plain(row))


def _plain(value: Any) -> Any:
    """A value as strict JSON, without NaN, infinite numbers and unpaired surrogates."""
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _samples_of(path: str, kind: type[Kind], log_kind: type[InspectLog[Kind]]) -> Iterator[tuple[Spec, Kind]]:
    """The samples of a log that has already been read as rollouts, decoded as ``kind``, and the log's specification."""
    with Source(path) as source:
        if not is_archive(source.head):
            log = decoded(source.everything(LARGEST_WHOLE).removeprefix(BOM), log_kind, path)
            yield from ((log.eval, sample) for sample in log.samples or ())
            return
    with Archive(path) as archive:
        spec = header_of(archive).eval
        for name in sample_names(archive):
            yield spec, decoded(archive.read(name), kind, f"{path}: {name}")


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """The texts of a log. The answer is the one that a scorer extracted."""
    for spec, sample in _samples_of(path, TextSample, InspectLog[TextSample]):
        answers = (score.answer for score in (sample.scores or {}).values() if score.answer is not None)
        yield Text(
            *(spec.solver, spec.model, spec.task or None, str(sample.id), sample.epoch - 1),
            target=target_hash(sample.target),
            completion=_completion(sample),
            prompt=sample.input,
            answer=next(answers, None),
            error=_error_of(sample),
        )


def _error_of(sample: TextSample) -> dict[str, str] | None:
    return None if sample.error is None else {"message": sample.error.message}


def _completion(sample: TextSample) -> Any:
    choices = sample.output.choices if sample.output else []
    return choices[0].message.content if choices and choices[0].message else None


def _extras(part: Part, columns: Columns) -> Extras:
    """The texts and the metadata of a log's samples; none for samples that were only planned."""
    path = part.places.path
    if path.endswith(PLAN):
        yield from ({} for _ in range(len(part)))
        return
    for _, sample in _samples_of(path, FullSample, InspectLog[FullSample]):
        roles = {
            "prompt": sample.input,
            "completion": _completion(sample),
            "answer": _answer((sample.scores or {}).values()),
            "error": _error_of(sample),
            "metadata": sample.metadata if isinstance(sample.metadata, dict) else None,
        }
        yield _plain(placed(roles, {} if sample.target is None else {TARGET: sample.target}))


LOG = Format(
    SYSTEM,
    read,
    recognise=lambda start: is_archive(start.head) or is_log(start.head),
    texts=texts,
    extras=_extras,
)
