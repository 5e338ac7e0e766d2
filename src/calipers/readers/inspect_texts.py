"""What the samples of a log of inspect say: their prompts and answers, which the table of rollouts does not keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from calipers.readers.files import BOM, LARGEST_WHOLE, Source
from calipers.readers.inspect import header_of, is_archive, sample_names
from calipers.readers.inspect_archive import Archive
from calipers.readers.inspect_log import Header, decoded
from calipers.readers.texts import Text


class _Message(msgspec.Struct, gc=False):
    content: Any = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message | None = None


class _Output(msgspec.Struct, gc=False):
    choices: list[_Choice] = msgspec.field(default_factory=list)


class _Score(msgspec.Struct, gc=False):
    answer: Any = None


class _Sample(msgspec.Struct, gc=False):
    id: int | str
    epoch: int = 1
    input: Any = None
    output: _Output | None = None
    scores: dict[str, _Score] | None = None


class _Log(Header, gc=False):
    samples: list[_Sample] | None = None


def texts(path: str) -> Iterator[Text]:
    """The texts of a log that has been read as rollouts before, so that it is one.

    The answer is what a scorer took for it, else what the model said last.
    """
    with Source(path) as source:
        if not is_archive(source.head):
            log = decoded(source.everything(LARGEST_WHOLE).removeprefix(BOM), _Log, path)
            for sample in log.samples or ():
                yield _text(log, sample)
            return
    with Archive(path) as archive:
        header = header_of(archive)
        for name in sample_names(archive):
            yield _text(header, decoded(archive.read(name), _Sample, f"{path}: {name}"))


def _text(header: Header, sample: _Sample) -> Text:
    taken = (score.answer for score in (sample.scores or {}).values() if score.answer is not None)
    choices = sample.output.choices if sample.output else []
    spoken = choices[0].message.content if choices and choices[0].message else None
    spec = header.eval
    who = spec.solver, spec.model, spec.task or None, str(sample.id), sample.epoch - 1
    return Text(*who, prompt=sample.input, answer=next(taken, spoken))
