import io

import pytest
import zstandard

from calipers.formats.source import BadZstd, ZstdFrames, read_up_to


@pytest.mark.parametrize(
    ("most", "found"), [(0, 0), (1, 1), (2_500_000, 2_500_000), (3_000_000, 3_000_000), (1 << 40, 3_000_000)]
)
def test_no_more_is_read_than_asked_for_or_there(most, found):
    assert read_up_to(io.BytesIO(b"x" * 3_000_000), most) == b"x" * found


def frames(content):
    return io.BufferedReader(ZstdFrames(io.BufferedReader(io.BytesIO(content)))).read()


def test_frames_follow_one_another_and_the_last_is_whole():
    one = zstandard.compress(b"a" * 1000)
    assert frames(one + one) == b"a" * 2000
    assert frames(b"") == b""
    with pytest.raises(EOFError, match="the last frame is truncated"):
        frames(one + one[:-1])
    with pytest.raises(BadZstd):
        frames(b"no zstd at all")
