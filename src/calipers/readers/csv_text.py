"""CSV text: cut into records, each with its line, nothing guessed and nothing repaired.

The cells are parsed by polars. What polars forgives (missing cells, stray quotes) or does not say
(the line of a record) is found here first, on the bytes of a block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calipers.readers.files import BOM, LONGEST_LINE
from calipers.readers.jsonl import LineError
from calipers.rollouts.column import Bools, Ints

if TYPE_CHECKING:
    import polars as pl

CHUNK = 8 << 20
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
NO_NUMBER = r"(?i)^[+-]?(nan|inf|infinity)$"

_NEWLINE, _RETURN, _QUOTE, _COMMA = b'\n\r",'


@dataclass(frozen=True, slots=True)
class Block:
    """N whole records, blank lines left out."""

    text: bytes  # every record ends with a newline
    lines: Ints  # [N] the line each record starts on
    cells: Ints  # [N] how many cells it has

    def frame(self) -> pl.DataFrame:
        """The cells as text; a cell with nothing in it is null. All records have as many as the first."""
        import polars as pl

        schema = dict.fromkeys(map(str, range(self.cells[0])), pl.String())
        frame = pl.read_csv(self.text, has_header=False, schema=schema, infer_schema=False)
        if frame.height != len(self.lines):
            raise RuntimeError(f"{len(self.lines)} records of CSV were read as {frame.height}")
        return frame.with_columns(pl.all().replace("", None))


def blocks(read: Callable[[int], bytes]) -> Iterator[Block]:
    """The header of a CSV text, alone, then its records; LineError for the first bad one."""
    header = True
    for block in _blocks(read):
        if header and len(block.lines):
            end = int(_ends(block.text, _inside(block.text))[0]) + 1
            yield Block(block.text[:end], block.lines[:1], block.cells[:1])
            block = Block(block.text[end:], block.lines[1:], block.cells[1:])
            header = False
        if len(block.lines):
            yield block


def _blocks(read: Callable[[int], bytes]) -> Iterator[Block]:
    data, line = read(CHUNK).removeprefix(BOM), 1
    while data:
        more = read(max(CHUNK, len(data)))
        if not more and not data.endswith(b"\n"):
            data += b"\n"
        inside = _inside(data)
        ends = _ends(data, inside)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        _check(data if not more else data[:cut], inside, line)
        if cut:
            yield _block(data[:cut], ends, inside, line)
        line += data.count(b"\n", 0, cut)
        if cut < len(data) and not more:
            raise LineError(line, "a quote is opened and never closed", "expected a quote at the end of the cell")
        if len(data) - cut > LONGEST_LINE:
            wrong = f"a record is longer than {LONGEST_LINE >> 20} MiB"
            raise LineError(line, wrong, "expected one rollout a record; is a quote left open?")
        data = data[cut:] + more


def _octets(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


def _inside(data: bytes) -> Bools | None:
    """Which bytes stand inside quotes; None when there is no quote at all."""
    if b'"' not in data:
        return None
    # uint8 counts modulo 256, which is as odd or as even as the true count
    opened: Bools = (np.cumsum(_octets(data) == _QUOTE, dtype=np.uint8) & 1).astype(bool)
    return opened


def _ends(data: bytes, inside: Bools | None) -> Ints:
    """Where records end: the newlines outside quotes."""
    ends = np.flatnonzero(_octets(data) == _NEWLINE)
    return ends if inside is None else ends[~inside[ends]]


def _check(data: bytes, inside: Bools | None, line: int) -> None:
    """LineError for the first byte that has no business where it stands."""
    octets = _octets(data)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        at = error.start
        raise LineError(line + data.count(b"\n", 0, at), "a cell is not UTF-8", "expected UTF-8 text") from None
    faults = []
    if (at := data.find(b"\0")) >= 0:
        faults.append((at, "a cell holds a NUL byte", "expected text"))
    if b"\r" in data:
        alone = (octets == _RETURN) & (np.append(octets[1:], _NEWLINE) != _NEWLINE)
        if inside is not None:
            alone &= ~inside[: len(data)]
        faults += [
            (int(at), "a carriage return inside a line", r"expected lines that end in \n or \r\n")
            for at in np.flatnonzero(alone)[:1]
        ]
    if inside is not None:
        quotes = np.flatnonzero(octets == _QUOTE)
        opens, closes = quotes[inside[quotes]], quotes[~inside[quotes]]
        before = np.where(opens > 0, octets[opens - 1], _NEWLINE)
        after = np.append(octets, [_NEWLINE])[closes + 1]
        stray = [opens[~np.isin(before, [_COMMA, _NEWLINE, _QUOTE])]]
        stray.append(closes[~np.isin(after, [_COMMA, _NEWLINE, _RETURN, _QUOTE])])
        right = 'expected the whole cell in quotes and each quote in it doubled ("")'
        faults += [(int(at.min()), "a quote inside a cell", right) for at in stray if len(at)]
    if faults:
        at, wrong, right = min(faults)
        raise LineError(line + data.count(b"\n", 0, at), wrong, right)


def _block(data: bytes, ends: Ints, inside: Bools | None, line: int) -> Block:
    """Whole records as a `Block`: lines and cells counted, blank lines and carriage returns left out."""
    octets = _octets(data)
    starts = np.append(0, ends[:-1] + 1)
    commas = np.flatnonzero(octets == _COMMA)
    lines = line + np.arange(len(ends))
    if inside is not None:
        commas = commas[~inside[commas]]
        lines = line + np.searchsorted(np.flatnonzero(octets == _NEWLINE), starts)
    cells = np.searchsorted(commas, ends) - np.searchsorted(commas, starts) + 1
    returns = (octets[ends - 1] == _RETURN) & (ends > starts)
    filled = ends - returns > starts
    if returns.any() or not filled.all():
        kept = np.ones(len(octets), dtype=bool)
        kept[ends[returns] - 1] = False
        kept[ends[~filled]] = False
        data = octets[kept].tobytes()
    return Block(data, lines[filled], cells[filled])


def whole(cells: pl.Series) -> pl.Series:
    """Text as whole numbers; null for what is none."""
    import polars as pl

    text = cells.str.strip_chars()
    return text.set(~text.str.contains("^[0-9]{1,18}$"), None).cast(pl.Int64)


def numbers(cells: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Text as numbers, true as 1 and false as 0; which cells are no number; which are NaN or out of range.

    A cell of blanks is a gap in all three.
    """
    import polars as pl

    text = cells.str.strip_chars().replace("", None)
    number = text.str.contains(NUMBER)
    if bool(number.all()):
        values = text.cast(pl.Float64, strict=False)
        return values, ~number, values.is_infinite()
    low = text.str.to_lowercase()
    truth = low.is_in(["true", "false"])
    values = text.set(~number, None).cast(pl.Float64, strict=False)
    values = values.zip_with(~truth.fill_null(False), (low == "true").cast(pl.Float64))
    odd = text.str.contains(NO_NUMBER) | values.is_infinite().fill_null(False)
    return values, ~(number | truth | odd), odd
