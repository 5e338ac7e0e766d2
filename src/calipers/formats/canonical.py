"""Canonical JSON (RFC 8785), and the hash of a record's non-numeric values (its words), for certificates.

Two JSON texts have the same canonical form if and only if they have the same value: keys are sorted by their UTF-16
code units, there are no blanks, and a number is the shortest text of its IEEE double. So 1, 1.0 and 1e0 are one number,
-0 is 0, and an integer beyond 2^53 is its nearest double. Texts are not normalised: two Unicode forms of a letter
differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import repeat
from json.encoder import encode_basestring
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.formats import Raw
from calipers.formats.jsonl import WORDS
from calipers.formats.repeated_keys import KeyCheck
from calipers.rollouts.column import Bools, Floats

LANES: Final = tuple(f"{WORDS} {lane}" for lane in range(4))
"""The four columns of a hash of words, with eight bytes of it in each number."""

TIMES: Final = ("started_at", "finished_at")
LATENCY: Final = "latency_s"
_DIGITS: Final = 21  # ECMAScript writes a number with more digits before the point with an exponent,
_ZEROS: Final = -6  # and also one with at least this many zeros after the point
_NUMBERS: Final = re.compile(rb"[:\[,]\s*-?\d")
_ENCODE: Final = msgspec.json.Encoder(order="sorted").encode
_MESSAGES: Final = msgspec.json.Decoder(list[dict[str, str]]).decode  # chat messages, the most frequent prompt
_NULL: Final = b"null"
_UNREAL: Final = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_NO_HASH: Final = bytes(32)
_QUOTE: Final = ord('"')
_ESCAPES: Final = np.frombuffer(b"\\u\\/", dtype=np.uint16)
_PLAIN: Final = (1e-3, 1e15)  # between these sizes, all JSON encoders write the same digits
MOST_KNOWN: Final = 10_000  # objects whose canonical form is cached


class NotCanonical(ValueError):
    """A value without a canonical form: (what is wrong, what was expected)."""


def is_time(key: str) -> bool:
    """Whether a key of a record is for a time or a duration, which certificates leave out.

    >>> [is_time(key) for key in ("started_at", "judge_latency_s", "output_tokens")]
    [True, True, False]
    """
    return key in TIMES or key == LATENCY or key.endswith(f"_{LATENCY}")


def number(value: float) -> str:
    """A number as ECMAScript writes it; NaN and infinities as JSON texts.

    >>> [number(x) for x in (1.0, -0.0, 1e21, 1e20, 0.1, 1e-7, 123456789012345683968.0)]
    ['1', '0', '1e+21', '100000000000000000000', '0.1', '1e-7', '123456789012345680000']
    """
    if value == 0:
        return "0"
    text = repr(value)
    if "e" not in text:  # from 0.0001 to 1e16, Python and ECMAScript write the same digits
        return text.removesuffix(".0") if text[-1] not in "nf" else _UNREAL[text]
    sign, text = ("-", repr(-value)) if value < 0 else ("", repr(value))
    mantissa, _, exponent = text.partition("e")
    before, _, after = mantissa.partition(".")
    after = "" if after == "0" else after
    point = len(before) + int(exponent or 0)  # the number of digits before the point
    digits = before + after
    zeros = len(digits) - len(digits.lstrip("0"))
    digits, point = digits[zeros:].rstrip("0"), point - zeros
    if len(digits) <= point <= _DIGITS:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    if 0 < point <= _DIGITS:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if _ZEROS < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def number_texts(values: Floats) -> list[bytes]:
    """Many numbers as ECMAScript writes them; equal to `number`, but faster.

    >>> number_texts(np.array([1.0, -0.0, 0.25, 1e21]))
    [b'1', b'0', b'0.25', b'1e+21']
    """
    sizes = np.abs(values)
    plain = ((sizes >= _PLAIN[0]) & (sizes < _PLAIN[1])) | (sizes == 0)
    written = b"%b," % msgspec.json.encode(np.where(plain, values + 0.0, 0.0).tolist())[1:-1]
    texts = written.replace(b".0,", b",")[:-1].split(b",") if len(values) else []
    for row in np.flatnonzero(~plain).tolist():
        texts[row] = number(float(values[row])).encode()
    return texts


def utf16(key: str) -> bytes:
    """The sort key of an object's key: its UTF-16 code units."""
    return key.encode("utf-16-be")


def canonical(value: Any) -> bytes:
    """The canonical form of a decoded value; NotCanonical for half a surrogate pair, or a number out of range.

    >>> canonical({"b": [1.0, None, True], "a": "é"}).decode()
    '{"a":"é","b":[1,null,true]}'
    """
    try:
        return _text(value).encode()
    except UnicodeEncodeError:
        raise NotCanonical("half of a surrogate pair stands alone", "expected whole characters") from None
    except OverflowError:
        raise NotCanonical("a number is out of range", "expected at most 1.8e308 in size") from None
    except RecursionError:
        raise NotCanonical("it is nested too deeply", "expected fewer levels") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return number(float(value))
    if isinstance(value, Raw):
        return canonical_raw(bytes(value)).decode()
    if isinstance(value, dict):
        plain = all(map(str.isascii, value))  # then the order of code units is that of characters
        keys = sorted(value) if plain else sorted(value, key=utf16)
        return f"{{{','.join([f'{encode_basestring(key)}:{_text(value[key])}' for key in keys])}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    raise NotCanonical(f"a {type(value).__name__} is no JSON", "expected JSON")


def canonical_raw(raw: bytes) -> bytes:
    """The canonical form of JSON text; NotCanonical also for a key that appears twice in one object."""
    if raw[:1] == b'"' and b"\\u" not in raw and b"\\/" not in raw:
        return raw  # the other escapes are as in the canonical form
    plain = raw.isascii() and b"\\u" not in raw
    if plain and raw[:1] == b"[":
        with suppress(msgspec.DecodeError):  # not a list of messages: handled below
            messages: bytes = _ENCODE(_MESSAGES(raw))
            if raw.count(b":") == messages.count(b":"):  # else a key may appear twice
                return messages
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotCanonical(
            f"it has no canonical form ({error})", "expected whole characters and finite numbers"
        ) from None
    if plain and not _NUMBERS.search(raw) and raw[:1] in b'"[{tfn':
        text: bytes = _ENCODE(value)
    else:
        text = canonical(value)
    if raw[:1] in b"[{" and (not plain or raw.count(b":") != text.count(b":")):
        doubled = KeyCheck()
        json.loads(raw, object_pairs_hook=doubled)
        if doubled.repeats:
            raise NotCanonical("a key appears twice in one object", "expected each key once")
    return text


class WordHashes:
    """The hashes of the words of rows, a block of rows at a time."""

    def __init__(self) -> None:
        # key -> raw value -> its canonical form with the key; a cache, as the rows of a task share objects
        self._known: dict[bytes, dict[bytes, bytes]] = {}

    def digests(self, keyed: Sequence[tuple[str, Sequence[Any]]], rows: int) -> tuple[list[Floats], Bools]:
        """The four lanes of the hash of each row, from its raw values by key; and whether the row has any words."""
        named = sorted(((key, values) for key, values in keyed if not is_time(key)), key=lambda pair: utf16(pair[0]))
        if not named:
            return [np.zeros(rows)] * len(LANES), np.zeros(rows, dtype=np.bool_)
        columns: list[Iterable[Any]] = []  # the pieces of text that are joined for each row
        for key, values in named:
            head = f'{"," if columns else "{"}"{key}":'.encode()
            if _as_written(values):
                columns += [repeat(head, rows), values]
            else:
                columns.append(self._pieces(head, _texts(values)))
        if isinstance(columns[0], list) and not all(columns[0]):  # some rows lack the first key
            texts = [*map(b"".join, zip(*columns, strict=True))]
            hashes = [sha256(b"{%b}" % text[1:]).digest() if text else _NO_HASH for text in texts]
            given = np.fromiter(map(bool, texts), dtype=np.bool_, count=rows)
        else:
            given = np.ones(rows, dtype=np.bool_)
            if len(named) == 1 and len(columns) > 1:
                hashes = _hashes(head, values)
            else:
                hashes = [sha256(b"".join(row)).digest() for row in zip(*columns, repeat(b"}", rows), strict=True)]
        lanes = np.frombuffer(b"".join(hashes), dtype=np.float64).reshape(rows, len(LANES))
        return [np.ascontiguousarray(lanes[:, lane]) for lane in range(len(LANES))], given

    def _pieces(self, head: bytes, raws: list[bytes]) -> list[bytes]:
        """The text that one key adds to each row; b"" for a row without a value."""
        known = self._known.setdefault(head, {})
        if len(known) > MOST_KNOWN:
            known.clear()
        known[b""] = known[_NULL] = b""
        pieces: list[Any] = [*map(known.get, raws)]
        new = [row for row, piece in enumerate(pieces) if piece is None] if None in pieces else ()
        for row in new:
            raw = raws[row]
            try:
                pieces[row] = known.get(raw) or head + canonical_raw(raw)
            except NotCanonical as error:
                raise NotCanonical(row, *error.args) from None
            if raw[:1] != b'"':  # texts are seldom equal, so they are not cached
                known[raw] = pieces[row]
        return pieces


def _hashes(head: bytes, raws: Sequence[Any]) -> list[bytes]:
    """The hash of each row that has one key with a text in canonical form, without joining the pieces first."""
    begun, hashes = sha256(head), []
    for raw in raws:
        row = begun.copy()
        row.update(raw)
        row.update(b"}")
        hashes.append(row.digest())
    return hashes


def _texts(raws: Sequence[Any]) -> list[bytes]:
    """Raw values as bytes, converted together, which takes half the time."""
    texts = b"\0".join(raws).split(b"\0")  # a byte that does not occur in JSON
    return texts if len(texts) == len(raws) else [*map(bytes, raws)]


def _as_written(raws: Sequence[Any]) -> bool:
    """Whether every value is a text that is written in its canonical form, without escapes that have a shorter form."""
    sizes = np.fromiter(map(len, raws), dtype=np.int64, count=len(raws))
    if not sizes.all() or bytes(raws[0])[:1] != b'"':
        return False
    octets = np.frombuffer(b"".join(raws), dtype=np.uint8)
    return bool((octets[np.cumsum(sizes) - sizes] == _QUOTE).all()) and not _escapes(octets)


def _escapes(octets: NDArray[np.uint8]) -> bool:
    """Whether the bytes contain a backslash before a u or a slash."""
    for start in (0, 1):  # pairs of bytes at even and at odd positions
        pairs = octets[start : len(octets) - (len(octets) - start) % 2].view(np.uint16)
        if any((pairs == escape).any() for escape in _ESCAPES):
            return True
    return False


def words_digest(words: dict[str, Any]) -> str | None:
    """The hash of words by key, as hexadecimal digits; None if there are none."""
    kept = {key: value for key, value in words.items() if value is not None and not is_time(key)}
    return sha256(canonical(kept)).hexdigest() if kept else None
