import hashlib
import os

import pytest

from calipers.errors import InputError
from calipers.formats import source
from calipers.formats.source import json_lines


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
