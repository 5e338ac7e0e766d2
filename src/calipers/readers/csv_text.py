"""CSV text: cut into records, each with its line, nothing guessed and nothing repaired.

The cells are parsed by polars. What polars forgives (missing cells, stray quotes) or does not say
(the line of a record) is found here first, on the bytes of a block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calipers.readers.files import BOM, LONGEST_LINE
from calipers.readers.jsonl import LineError
from calipers.rollouts.column import Ints

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
            end = int(_outside(block.text, _NEWLINE, _at(block.text, _QUOTE))[0]) + 1
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
        quotes = _at(data, _QUOTE)
        ends = _outside(data, _NEWLINE, quotes)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        if (int(ends[0]) if cut else len(data)) > LONGEST_LINE:
            wrong = f"a record is longer than {LONGEST_LINE >> 20} MiB"
            raise LineError(line, wrong, "expected one rollout a record; is a quote left open?")
        _check(data if not more else data[:cut], quotes, line)
        if cut:
            yield _block(data[:cut], ends, quotes, line)
        line += data.count(b"\n", 0, cut)
        if cut < len(data) and not more:
            raise LineError(line, "a quote is opened and never closed", "expected a quote at the end of the cell")
        data = data[cut:] + more


def _at(data: bytes, octet: int) -> Ints:
    """Where a byte stands."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == octet)


def _outside(data: bytes, octet: int, quotes: Ints) -> Ints:
    """Where a byte stands outside quotes: after an even number of them."""
    found = _at(data, octet)
    return found[np.searchsorted(quotes, found) % 2 == 0] if len(quotes) else found


def _check(data: bytes, quotes: Ints, line: int) -> None:
    """LineError for the first byte that has no business where it stands."""
    octets = np.frombuffer(data, dtype=np.uint8)
    faults: list[tuple[int, str, str]] = []
    try:
        data.decode()
    except UnicodeDecodeError as error:
        faults.append((error.start, "a cell is not UTF-8", "expected UTF-8 text"))
    if (at := data.find(b"\0")) >= 0:
        faults.append((at, "a cell holds a NUL byte", "expected text"))
    if b"\r" in data:
        returns = _outside(data, _RETURN, quotes)
        wrong, right = "a carriage return inside a line", r"expected lines that end in \n or \r\n"
        faults += [(int(at), wrong, right) for at in returns[octets[returns + 1] != _NEWLINE][:1]]
    if len(quotes):
        quotes = quotes[quotes < len(data)]
        opening, closing = quotes[::2], quotes[1::2]
        before = np.where(opening > 0, octets[opening - 1], _NEWLINE)
        stray = [opening[~np.isin(before, [_COMMA, _NEWLINE, _QUOTE])]]
        stray.append(closing[~np.isin(octets[closing + 1], [_COMMA, _NEWLINE, _RETURN, _QUOTE])])
        right = 'expected the whole cell in quotes and each quote in it doubled ("")'
        faults += [(int(at[0]), "a quote inside a cell", right) for at in stray if len(at)]
    if faults:
        at, wrong, right = min(faults)
        raise LineError(line + data.count(b"\n", 0, at), wrong, right)


def _block(data: bytes, ends: Ints, quotes: Ints, line: int) -> Block:
    """Whole records as a `Block`: lines and cells counted, blank lines and carriage returns left out."""
    octets = np.frombuffer(data, dtype=np.uint8)
    starts = np.append(0, ends[:-1] + 1)
    lines = line + (np.searchsorted(_at(data, _NEWLINE), starts) if len(quotes) else np.arange(len(ends)))
    commas = _outside(data, _COMMA, quotes)
    cells = np.searchsorted(commas, ends) - np.searchsorted(commas, starts) + 1
    returns = (octets[ends - 1] == _RETURN) & (ends > starts)
    filled = ends - returns > starts
    if returns.any() or not filled.all():
        kept = np.ones(len(octets), dtype=bool)
        kept[ends[returns] - 1] = False
        kept[ends[~filled]] = False
        data = octets[kept].tobytes()
    return Block(data, lines[filled], cells[filled])


def whole(cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Text as whole numbers, and which cells are none. A cell of blanks is a gap in both."""
    import polars as pl

    text = cells.str.strip_chars().replace("", None)
    bad = ~text.str.contains("^[0-9]{1,18}$")
    return text.set(bad, None).cast(pl.Int64), bad


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
