"""Every struct of inspect's logs."""

from __future__ import annotations

import json
import re
from typing import Any, Final, Generic, TypeVar

import msgspec

from calipers.errors import InputError
from calipers.formats.repeated_keys import counted_once, refuse_twice

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
