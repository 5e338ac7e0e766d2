import os
import stat

import pytest

from calipers.stores import atomic_file


def test_the_old_content_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with atomic_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert (path.read_text(), os.listdir(tmp_path)) == ("new", ["result.json"])


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_changes_nothing_and_leaves_nothing_behind(tmp_path, error):
    path = tmp_path / "result.json"
    path.write_text("old")

    def half(file):
        file.write(b"half")
        raise error

    with pytest.raises(error), atomic_file(path) as file:
        half(file)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["result.json"])


def test_permissions_stay_and_new_files_have_those_asked_for(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("")
    old.chmod(0o640)
    for path in (old, new):
        with atomic_file(path, 0o600) as file:
            file.write(b"x")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new)] == [0o640, 0o600]


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "link").symlink_to("elsewhere")
    with atomic_file(tmp_path / "link") as file:
        file.write(b"new")
    assert ((tmp_path / "elsewhere").read_text(), (tmp_path / "link").read_text()) == ("mine", "new")


def test_no_folder_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "no" / "file"):
        pass


def test_a_long_name_can_be_written(tmp_path):
    with atomic_file(tmp_path / ("n" * 255)) as file:
        file.write(b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"
