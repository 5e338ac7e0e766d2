from __future__ import annotations

import gzip
import hashlib
import io
import os
import threading
from types import SimpleNamespace

import pytest
import zstandard
from formats.given import written

from calipers.errors import InputError
from calipers.formats import source
from calipers.formats.source import (
    BLOCK,
    FREE_UNPACKED,
    LONGEST_LINE,
    MOST_RATIO,
    BadZstd,
    LongLine,
    Source,
    ZstdFrames,
    json_lines,
    line_blocks,
    next_line,
    read_up_to,
)

TEXT = b"".join(b'{"task": %d, "reward": %d}\n' % (n, n % 2) for n in range(20_000))
PACKED = {"gzip": gzip.compress(TEXT, mtime=0), "zstd": zstandard.compress(TEXT), "": TEXT}


def everything(path):
    with Source(path) as source:
        return source.everything(1 << 30)


def refusal(path):
    with pytest.raises(InputError) as caught:
        everything(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


@pytest.mark.parametrize("packing", PACKED)
def test_content_says_how_a_file_is_packed_and_its_name_does_not(tmp_path, packing):
    path = written(tmp_path, PACKED[packing], "rollouts.txt")
    with Source(path) as source:
        assert source.packing == packing
        assert source.divisible == (not packing)
        assert source.everything(1 << 30) == TEXT
        assert source.sha256() == hashlib.sha256(PACKED[packing]).hexdigest()


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_files_may_be_joined(tmp_path, packing):
    assert everything(written(tmp_path, PACKED[packing] * 2)) == TEXT * 2


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (PACKED["gzip"][:-4], "cut inside the length at the end"),
        (PACKED["gzip"][: len(PACKED["gzip"]) // 2], "cut in the middle"),
        (PACKED["gzip"][:6], "cut inside the header"),
        (PACKED["gzip"] + b"more", "something else follows"),
        (PACKED["gzip"][:50] + b"\xff" * 50 + PACKED["gzip"][100:], "damaged"),
        (PACKED["zstd"][:-1], "cut one byte short"),
        (PACKED["zstd"][: len(PACKED["zstd"]) // 2], "cut between blocks: the library's reader says nothing"),
        (PACKED["zstd"][:5], "cut inside the header"),
        (PACKED["zstd"] + b"more", "something else follows"),
        (PACKED["zstd"][:20] + b"\xff" * 50 + PACKED["zstd"][70:], "damaged"),
    ],
)
def test_a_packed_file_that_is_not_whole_is_refused(tmp_path, packed, why):
    assert "cannot be unpacked as" in refusal(written(tmp_path, packed)), why


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("calipers.formats.source.FREE_UNPACKED", 64 << 20)  # 1 GiB takes seconds
    path = tmp_path / "bomb.zst"
    with open(path, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as packer:
        for _ in range(80):
            packer.write(b"\n" * (1 << 20))
    assert path.stat().st_size * MOST_RATIO < 64 << 20  # so that the free part is the limit
    with Source(str(path)) as source, pytest.raises(InputError, match="unpacks to more than 1000 times its size"):
        any(not source.read(1 << 20) for _ in range(80))
    monkeypatch.undo()
    with Source(str(path)) as source:
        assert sum(len(source.read(1 << 20)) for _ in range(81)) == 80 << 20
    assert FREE_UNPACKED == 1 << 30


def test_paths_that_cannot_be_opened(tmp_path):
    file = written(tmp_path, "x")
    assert "no such file" in refusal(str(tmp_path / "none.jsonl"))
    assert "is a directory" in refusal(str(tmp_path))
    assert "cannot be read" in refusal(f"{file}/inside")
    assert "cannot be read" in refusal(str(tmp_path / ("x" * 300)))
    assert "cannot be read" in refusal("a\0b")


def test_a_file_that_opens_but_cannot_be_read():
    assert "cannot be read" in refusal("/proc/self/mem")


def test_a_file_larger_than_asked_for_is_refused(tmp_path):
    with Source(written(tmp_path, TEXT)) as source, pytest.raises(InputError, match="larger than 0 MiB"):
        source.everything(len(TEXT) - 1)


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, (1 << 20) + 1])
def test_a_file_is_hashed_whole_at_once_or_in_the_background(tmp_path, size):
    content = (b"0123456789\n" * (size // 11 + 1))[:size]
    with Source(written(tmp_path, content)) as source:
        source.start_hashing()
        assert source.sha256() == hashlib.sha256(content).hexdigest()


def test_standard_input_is_hashed_as_it_passes(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(PACKED["gzip"]))))
    with Source("-") as source:
        source.start_hashing()
        assert not source.divisible
        assert source.everything(1 << 30) == TEXT
        assert source.sha256() == hashlib.sha256(PACKED["gzip"]).hexdigest()


def test_a_pipe_gives_its_bytes_once_and_hashing_takes_none_of_them(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)

    def feed():
        with open(path, "wb") as pipe:
            pipe.write(TEXT)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with Source(path) as source:
        source.start_hashing()
        assert not source.divisible
        assert source.everything(1 << 30) == TEXT
        assert source.sha256() == hashlib.sha256(TEXT).hexdigest()
    feeder.join()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_blocks_are_whole_lines_however_the_bytes_come(size):
    text = b"a\n\nbb\nccc"
    stream = io.BytesIO(text)
    blocks = list(map(bytes, line_blocks(lambda room: stream.readinto(room[:size]))))
    assert b"".join(blocks) == text
    assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_blocks_stop_where_they_are_told():
    stream = io.BytesIO(b"a\nb\nc\n")
    assert b"".join(map(bytes, line_blocks(stream.readinto, 4))) == b"a\nb\n"


def test_a_line_may_have_64_mib():
    assert LONGEST_LINE == 64 << 20


def test_lines_before_one_that_is_too_long_come_out_first():
    stream = io.BytesIO(b"a\n" + b"x" * (LONGEST_LINE + 2))
    blocks = line_blocks(stream.readinto)
    assert bytes(next(blocks)) == b"a\n"
    with pytest.raises(LongLine):
        next(blocks)


@pytest.mark.parametrize(("offset", "expected"), [(0, 2), (1, 2), (2, 4), (3, 4), (4, 5), (9, 9)])
def test_the_next_line_starts_after_the_next_newline(tmp_path, offset, expected):
    assert next_line(written(tmp_path, "a\nb\nc"), offset) == expected


@pytest.mark.parametrize("stdin", [None, io.StringIO("")])  # closed; and a notebook's, which has no bytes
def test_standard_input_that_cannot_be_read_is_refused(monkeypatch, stdin):
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(InputError, match=r"^-: standard input is closed; expected rollouts on it, or a file$"):
        Source("-")


def test_lines_are_numbered_as_they_stand_and_hashed_as_they_lie(tmp_path):
    path = tmp_path / "rows.jsonl"
    content = b'\xef\xbb\xbf{"a": 1}\n\n  \r\n"last"'
    path.write_bytes(content)
    digest = hashlib.sha256()
    assert list(json_lines(path, digest)) == [(1, {"a": 1}), (4, "last")]
    assert digest.hexdigest() == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": 1}\n{', ":2: malformed json: Expecting property name enclosed in double quotes at column 2"),
        (b"\n\xff\n", ":2: byte 1 is not UTF-8; expected UTF-8 text"),
        (b'"\xed\xa0\x80"', ":1: byte 2 is not UTF-8; expected UTF-8 text"),  # half a character, encoded
        (
            b'"\\ud800"',
            (
                ":1: malformed json: a string contains half of a surrogate "
                "pair; expected full pairs, such as \\ud83d\\ude00"
            ),
        ),
        (b'{"a": 1}\n{"a": 1, "b": {"c": 1, "c": 1}}', ':2: malformed json: key "c" appears twice'),
        (b"[" * 100_000, ":1: malformed json: it is nested too deeply"),
        (b"1" * 5_000, ":1: malformed json: Exceeds the limit (4300 digits) for integer string conversion"),
        (b"1\n\xef\xbb\xbf2", ":2: malformed json: Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, content, said):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(json_lines(path))
    assert str(caught.value).startswith(f"{path}{said}")


def test_an_escape_of_a_whole_character_is_one(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('"\\ud83d\\ude00"')
    assert list(json_lines(path)) == [(1, "\N{GRINNING FACE}")]


@pytest.mark.parametrize(("over", "fits"), [(0, True), (1, False)])
def test_the_longest_line(tmp_path, monkeypatch, over, fits):
    monkeypatch.setattr(source, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"1\n" + b'"' + b"x" * ((1 << 20) - 2 + over) + b'"\n2\n')
    if fits:
        assert [number for number, _ in json_lines(path)] == [1, 2, 3]
        return
    with pytest.raises(InputError, match=r"rows\.jsonl:2: the line is longer than 1 MiB; expected one task per line$"):
        list(json_lines(path))


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"absent: cannot be read \(No such file or directory\)$"):
        list(json_lines(tmp_path / "absent"))
    with pytest.raises(InputError, match="cannot be read"):
        list(json_lines(tmp_path / "a\0b"))
    with pytest.raises(InputError, match=r"(is not a regular file|Is a directory)"):
        list(json_lines(tmp_path))
    os.mkfifo(tmp_path / "pipe")  # a reader that waited for a writer would wait for ever
    with pytest.raises(
        InputError, match=r"pipe: is not a regular file; expected a file of tasks, one JSON object per line$"
    ):
        list(json_lines(tmp_path / "pipe"))


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
