import pytest
from systems.harbor.given import task, write

from calipers.errors import InputError
from calipers.systems.harbor.task import read_task, uploaded


def test_what_goes_into_the_environment(tmp_path):
    place = task(tmp_path / "a", **{".harborignore": "*.log\nsecret/\n", "tests/.harborignore": "!keep.log\n/only\n"})
    for name in ("a.log", "keep.log", "only", "deep/only", "secret/x", "data.csv"):
        write(place / "tests" / name, "")
    assert [path.relative_to(place / "tests").as_posix() for path in uploaded(place, place / "tests")] == [
        ".harborignore",
        "data.csv",
        "deep/only",  # "/only" speaks of its own directory
        "keep.log",  # the nearest rule wins
        "test.sh",
    ]
    assert uploaded(place, place / "solution") == []


def test_the_script_that_judges_cannot_be_left_out(tmp_path):
    place = task(tmp_path / "a", **{"tests/.harborignore": "*.sh\n"})
    with pytest.raises(InputError, match=r"tests/\.harborignore: excludes test\.sh, which verifies the task"):
        read_task(place)
    write(place / "tests" / ".harborignore", "*.sh\n!test.sh\n")
    assert read_task(place)


def test_links_do_not_leave_the_task(tmp_path):
    place = task(tmp_path / "a")
    (place / "tests" / "leak").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link out of"):
        uploaded(place, place / "tests")
