import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.reports.group_files import BUFFER, GroupFiles, safe_name


@given(st.text())
def test_a_name_is_harmless_wherever_it_is_used(text):
    name = safe_name(text)
    assert name.isascii()
    assert 0 < len(name) <= 100
    assert not {*name} & {*"/\\ \0\n'\"$&;|<>*?~`!#:"}
    assert name not in (".", "..")
    assert name[0] not in ".-"


@given(st.text(), st.text())
def test_two_texts_have_two_names(first, second):
    if first and second and first != second:
        assert safe_name(first) != safe_name(second)


def test_the_files_appear_together(tmp_path):
    folder = tmp_path / "new"
    with GroupFiles(str(folder), force=False) as files:
        large = files.open("a/large.bin")
        for _ in range(3):
            large.write(b"x" * BUFFER)
        files.write("b.txt", b"b")
        assert large.close() == hashlib.sha256(b"x" * BUFFER * 3).hexdigest()
        assert not (folder / "b.txt").exists()
    assert (folder / "a" / "large.bin").stat().st_size == 3 * BUFFER
    assert sorted(os.listdir(folder)) == ["a", "b.txt"]


def test_groups_whose_names_join_alike_have_two_files(tmp_path):
    with GroupFiles(str(tmp_path), force=False) as files:
        for parts in (["a_b", "c"], ["a", "b_c"], ["a", None], [None, "a"], [None, None]):
            files.write(files.name_of(parts, ".json", "rollouts"), b"{}")
    names = sorted(os.listdir(tmp_path))
    assert [name for name in names if "-" not in name] == ["a.json", "a_b_c.json", "rollouts.json"]
    assert len(names) == 5


def test_a_failure_leaves_nothing(tmp_path):
    folder = tmp_path / "new"

    def fails():
        with GroupFiles(str(folder), force=False) as files:
            files.write("a.txt", b"a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_refused_before_any_is_written(tmp_path):
    (tmp_path / "b.txt").write_text("mine")

    def write(force):
        with GroupFiles(str(tmp_path), force=force) as files:
            files.write("a.txt", b"a")
            files.write("b.txt", b"b")

    with pytest.raises(InputError, match=r"b\.txt: already exists; --force replaces it"):
        write(force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]
    write(force=True)
    assert (tmp_path / "b.txt").read_text() == "b"
