import hashlib
import json
import os

import pytest
from systems.harbor.given import ARITH, task, write

from calipers.errors import InputError
from calipers.systems.harbor.manifest import file_digest, manifest_digest, task_digest, task_files


def test_the_digest_is_that_of_lines_of_paths_and_hashes(tmp_path):
    place = task(tmp_path / "a", **{"README.md": "r"})
    lines = "".join(
        f"{name}\0{hashlib.sha256((place / name).read_bytes()).hexdigest()}\n" for name in task_files(place)
    )
    assert task_digest(place) == "sha256:" + hashlib.sha256(lines.encode()).hexdigest()


def test_harbor_wrote_the_same_digests_into_its_lock():
    """The lock of the golden vectors' job states the digests of the tasks beside it."""
    trials = json.loads((ARITH.parent / "job_small" / "lock.json").read_text())["trials"]
    theirs = {trial["task"]["name"].rpartition("/")[2]: trial["task"]["digest"] for trial in trials}
    assert theirs == {place.name: task_digest(place) for place in ARITH.iterdir() if place.is_dir()}
    assert len(theirs) == 6


KEPT = ["environment/Dockerfile", "instruction.md", "task.toml", "tests/test.sh"]


@pytest.mark.parametrize(
    ("ignore", "more", "kept"),
    [
        (None, {"notes.txt": "", "LICENSE": "", ".harborignore": "*"}, []),  # not of the task
        (None, {"README.md": "", "trajectory.json": "{}", "steps/a/x": "", "solution/s": ""}, "all"),
        (None, {"tests/a.pyc": "", "tests/__pycache__/b": "", "tests/x~": "", "tests/.c.swp": ""}, []),
        (None, {"environment/.DS_Store": "", "environment/.gitignore": "*"}, ["environment/.gitignore"]),
        ("*.log\n", {"tests/a.log": "", "tests/b.pyc": ""}, ["tests/b.pyc"]),  # one's own rules replace the usual ones
        ("*.log\n!keep.log\n", {"tests/a.log": "", "tests/keep.log": ""}, ["tests/keep.log"]),
        ("data/\n!data/keep\n", {"environment/data/keep": ""}, []),  # nothing comes back out of a directory
        ("/tests/data\n", {"tests/data": "", "environment/tests/data": ""}, ["environment/tests/data"]),
        ("README.md\n", {"README.md": ""}, []),
        ("tests/**/big\n", {"tests/a/b/big": "", "tests/a/small": ""}, ["tests/a/small"]),
    ],
)
def test_which_files_are_of_a_task(tmp_path, ignore, more, kept):
    place = task(tmp_path / "a")
    for name, text in {**more, **({".gitignore": ignore} if ignore is not None else {})}.items():
        write(place / name, text)
    assert task_files(place) == sorted(KEPT + list(more if kept == "all" else kept))


def test_neither_place_nor_mode_nor_order_counts_but_content_and_names_do(tmp_path):
    first = task(tmp_path / "a")
    second = task(tmp_path / "elsewhere" / "b")
    (second / "tests" / "test.sh").chmod(0o755)
    assert task_digest(first) == task_digest(second)
    os.rename(second / "tests" / "test.sh", second / "tests" / "other.sh")
    moved = task_digest(second)
    write(second / "tests" / "other.sh", "changed")
    assert len({task_digest(first), moved, task_digest(second)}) == 3


def test_a_link_inside_the_task_is_its_content(tmp_path):
    place = task(tmp_path / "a")
    (place / "solution").mkdir()
    (place / "solution" / "solve.sh").symlink_to("../tests/test.sh")
    copy = task(tmp_path / "b", **{"solution/solve.sh": (place / "tests/test.sh").read_text()})
    assert task_digest(place) == task_digest(copy)


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("tests/leak", "/etc/passwd", "is a link out of"),
        ("tests/leak", "../../beside", "is a link out of"),
        ("tests/gone", "nowhere", "cannot be read"),
        ("tests/folder", "../environment", "is a link to something that is not a file"),  # no digest would cover it
        ("solution", "environment", "is a link to something that is not a file"),
        ("solution", "/etc", "is a link out of"),
        ("README.md", "/etc/passwd", "is a link out of"),
    ],
)
def test_links_that_are_refused(tmp_path, name, target, said):
    place = task(tmp_path / "a")
    write(tmp_path / "beside", "secret")
    (place / name).symlink_to(target)
    with pytest.raises(InputError, match=said):
        task_digest(place)


def test_a_link_that_is_ignored_harms_nobody(tmp_path):
    place = task(tmp_path / "a", **{".gitignore": "leak\n"})
    (place / "tests" / "leak").symlink_to("/etc/passwd")
    assert task_files(place) == KEPT


def test_what_is_no_file_is_refused(tmp_path):
    place = task(tmp_path / "a")
    os.mkfifo(place / "tests" / "pipe")
    with pytest.raises(InputError, match="is not a regular file"):
        task_digest(place)


def test_what_is_no_task(tmp_path):
    with pytest.raises(InputError, match=r"is not a task: it has no task\.toml"):
        task_digest(tmp_path)


def test_the_digest_of_a_dataset_knows_files_but_no_order():
    a, b, c = (f"sha256:{letter * 64}" for letter in "abc")
    assert (
        manifest_digest([a, b])
        == manifest_digest([b, a])
        == hashlib.sha256(f"{'a' * 64},{'b' * 64}".encode()).hexdigest()
    )
    assert (
        manifest_digest([a], {"metric.py": c})
        == hashlib.sha256(f"{'a' * 64};metric.py:{'c' * 64}".encode()).hexdigest()
    )
    assert len({manifest_digest([a]), manifest_digest([a, a]), manifest_digest([a], {"metric.py": a})}) == 3


def test_the_digest_of_a_file(tmp_path):
    assert file_digest(write(tmp_path / "f", "x")) == "sha256:" + hashlib.sha256(b"x").hexdigest()
    with pytest.raises(InputError, match="cannot be read"):
        file_digest(tmp_path / "absent")
