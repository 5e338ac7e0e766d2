"""Records in a JSON array or in memory: read as JSON Lines, with the same rules."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from calipers.errors import InputError
from calipers.formats.format import BAD, Beginning, Columns, Extras, Format, Progress, Raw, Text
from calipers.formats.jsonl import JsonLines, of_blocks, texts_of
from calipers.formats.lines import LineError
from calipers.formats.source import BOM, LARGEST_WHOLE, Source
from calipers.rollouts.table import Part

AT_ONCE = 1 << 15  # records that are converted to lines at a time
_ARRAY = msgspec.json.Decoder(list[Raw])
_BLANKS = b" \t\r\n"


def read_array(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts in a JSON array of objects, one each."""
    text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    progress(len(text))
    try:
        records = _ARRAY.decode(text)
    except BAD as error:
        right = "expected an array of objects, or one object per line"
        raise InputError.at(source.path, f"not JSON ({error})", right) from None
    return [read_records(map(_line, records), source.path, names, labels)] if records else []


def read_records(lines: Iterable[bytes], path: str, names: Mapping[str, str], labels: Collection[str]) -> Part:
    """The rollouts in records, given as lines of JSON; errors name the ``path`` and the record's number, from 1."""
    reader = JsonLines(path, names, labels, "row ")
    left = iter(lines)
    try:
        while block := list(islice(left, AT_ONCE)):
            reader.read(b"\n".join(block) + b"\n")
        return reader.finish()
    except LineError as error:
        number, wrong, right = error.args
        raise InputError.at(f"{path}:row {number}", wrong, right) from None


def as_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Records in memory as lines of JSON; a value that JSON does not have, such as a date, becomes text."""
    for number, record in enumerate(records, 1):
        try:
            yield json.dumps(record, default=plain, ensure_ascii=False).encode(errors="surrogatepass")
        except (TypeError, ValueError, RecursionError) as error:  # a key that is a tuple, an object inside itself
            wrong = f"cannot be written as JSON ({error})"
            raise InputError.at(
                f"records:row {number}", wrong, "expected keys that are text, and flat values"
            ) from None


def plain(value: Any) -> Any:
    """A number or a list of another library as a Python value; anything else as text."""
    for way in ("item", "tolist"):
        if callable(change := getattr(value, way, None)):
            try:
                return change()
            except (TypeError, ValueError, RuntimeError):  # an array or a tensor has no single item
                continue
    return str(value)


def is_array_of_objects(start: Beginning) -> bool:
    """Whether a file is a JSON array whose first element is an object."""
    text = start.head.removeprefix(BOM).lstrip(_BLANKS)
    return text[:1] == b"[" and text[1:].lstrip(_BLANKS)[:1] == b"{"


def _texts(path: str, names: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    return texts_of(_lines(path), names, wanted)


def _extras(part: Part, names: Columns) -> Extras:
    return of_blocks(_lines(part.places.path), names)


def _lines(path: str) -> Iterator[bytes]:
    with Source(path) as source:
        records = _ARRAY.decode(source.everything(LARGEST_WHOLE).removeprefix(BOM))
    return map(_line, records)


def _line(record: Raw) -> bytes:
    return msgspec.json.format(bytes(record), indent=-1)


RECORDS = Format("json_array", read_array, is_array_of_objects, _texts, extras=_extras)
