import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.formats.rows import Buffer, FlagBuffer
from calipers.rollouts.column import alike

BLOCKS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from([True, False, "mixed"])), max_size=8
)  # rows passed over, rows written, what they hold


@given(BLOCKS, st.integers(0, 3))
def test_flags_are_what_was_written_and_false_elsewhere(blocks, more):
    flags, expected = FlagBuffer(), []
    for passed, size, kind in blocks:
        expected += [False] * passed
        written = [row % 2 == 0 for row in range(size)] if kind == "mixed" else [kind] * size
        flags.put(len(expected), size, np.array(written) if kind == "mixed" else kind)
        expected += written
    expected += [False] * more
    assert flags.finish(len(expected)).tolist() == expected


@given(BLOCKS, st.integers(0, 3))
def test_rows_that_nobody_wrote_hold_the_fill(blocks, more):
    held, expected = Buffer(np.int64, fill=7), []
    for passed, size, _ in blocks:
        expected += [7] * passed
        held.pack(len(expected), range(size))
        expected += range(size)
    expected += [7] * more
    assert held.finish(len(expected)).tolist() == expected


def test_it_grows_over_many_blocks():
    held = Buffer(np.float64)
    for start in range(0, 100_000, 1000):
        held.pack(start, range(start, start + 1000))
    assert (held.finish(100_000) == np.arange(100_000.0)).all()


@pytest.mark.parametrize(("kind", "column"), [(np.float64, [1.0, None]), (np.int64, [1, 0.5]), (np.uint8, [1, 256])])
def test_what_is_no_such_number_is_refused(kind, column):
    with pytest.raises(struct.error):
        Buffer(kind).pack(0, column)


def test_flags_alike_are_shared_while_anybody_holds_them_and_nobody_writes_to_them():
    assert alike(5, True) is not alike(5, False)
    held = alike(5, True)
    assert alike(5, True) is held
    with pytest.raises(ValueError, match="read-only"):
        held[0] = False
    flags = FlagBuffer()
    flags.put(0, 2, True)
    flags.put(2, 3, np.ones(3, dtype=bool))
    assert flags.finish(5) is held
