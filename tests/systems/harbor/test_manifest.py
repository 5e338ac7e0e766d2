import hashlib
import json
import os

import pytest
from systems.harbor.given import ARITH, task, write

from calipers.errors import InputError
from calipers.systems.harbor.manifest import (
    Author,
    Pinned,
    PinnedFile,
    below,
    file_digest,
    line_of,
    manifest_digest,
    read_manifest,
    read_toml,
    task_digest,
    task_files,
    within,
)

A, B = (f"sha256:{letter * 64}" for letter in "ab")
HEAD = '[dataset]\nname = "acme/arith"\n'


def test_every_key(tmp_path):
    text = f"""
    schema_version = "1.0"
    [dataset]
    name = "acme/arith"
    version = "1.0.0"
    description = "d"
    authors = [{{name = "A"}}]
    keywords = ["k"]
    [metadata]
    free = 1
    [[tasks]]
    name = "acme/x"
    digest = "{A}"
    [[files]]
    path = "metric.py"
    digest = "{B}"
    """
    write(tmp_path / "dataset.toml", text)
    found = read_manifest(tmp_path)
    assert (found.name, found.org, found.version, found.description) == ("acme/arith", "acme", "1.0.0", "d")
    assert (found.authors, found.keywords, found.metadata) == ((Author("A"),), ("k",), {"free": 1})
    assert (found.tasks, found.files) == ((Pinned("acme/x", A),), (PinnedFile("metric.py", B),))
    assert found.digest == manifest_digest([A], {"metric.py": B})
    assert found.unknown == []


def test_what_harbor_itself_writes(tmp_path):
    """No schema_version, and an empty list of tasks that ends up inside [dataset]."""
    write(
        tmp_path / "dataset.toml", '[dataset]\nname = "o/n"\ntasks = []\n[[files]]\npath = "metric.py"\ndigest = ""\n'
    )
    found = read_manifest(tmp_path)
    assert (found.tasks, found.files, found.version, found.unknown) == ((), (PinnedFile("metric.py"),), None, [])


def test_metrics_do_not_belong_here(tmp_path):
    """Harbor ignores [[metrics]] silently."""
    write(tmp_path / "dataset.toml", HEAD + '[[metrics]]\ntype = "mean"\n')
    assert [note.removeprefix(str(tmp_path)) for note in read_manifest(tmp_path).unknown] == [
        "/dataset.toml:3: the key 'metrics' is unknown and ignored"
    ]


def test_none(tmp_path):
    assert read_manifest(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 0, "it has no dataset"),
        ("[dataset]\nversion = '1'", 1, "dataset: it has no name"),
        ("[dataset]\nname = 'arith'", 2, "the name is 'arith'; expected org/name"),
        ("[dataset]\nname = 'a/../b'", 2, "the name is"),
        ("[dataset]\nname = 'a/b'\nversion = ''", 3, "the version is empty"),
        ("[dataset]\nname = 'a/b'\nversion = 1.0", 3, "dataset.version: expected text, got a number"),
        (HEAD + "[[tasks]]\nname = 'x'", 4, "the name is 'x'; expected org/name"),
        (HEAD + "[[tasks]]\nname = 'a/x'\ndigest = 'md5:1'", 5, "the digest of a/x is 'md5:1'"),
        (HEAD + "[[tasks]]\nname = 'a/x'\n" * 2, 6, "'a/x' appears twice, first at line 3"),
        (HEAD + "[[files]]\npath = '../metric.py'", 4, "the path is '../metric.py'; expected the bare name"),
        (HEAD + "[[files]]\npath = '/metric.py'", 4, "the path is '/metric.py'"),
        (HEAD + "[[files]]\npath = '..'", 4, "the path is '..'"),
        (HEAD + "[[files]]\npath = 'dataset.toml'", 4, "the path is 'dataset.toml'"),
        (HEAD + "[[files]]\ndigest = ''", 3, "files[0]: it has no path"),
    ],
)
def test_what_is_wrong(tmp_path, text, line, said):
    write(tmp_path / "dataset.toml", text)
    with pytest.raises(InputError) as error:
        read_manifest(tmp_path)
    place = f"dataset.toml:{line}: " if line else "dataset.toml: "
    assert str(error.value).startswith(f"{tmp_path}/{place}{said}")


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


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "..", "a/../../b", "../root2/x", "a\\..\\b", "x\0", "out/x", "out", "hop/x"]
)
def test_names_that_lead_elsewhere(tmp_path, name):
    root = tmp_path / "root"
    root.mkdir()
    write(tmp_path / "root2" / "x", "")  # a sibling whose path starts alike
    (root / "out").symlink_to("../root2")
    (root / "hop").symlink_to("out")
    with pytest.raises(InputError, match=r"registry: the path .* points outside; expected a path inside"):
        below(root, name, "registry")


def test_names_that_stay(tmp_path):
    write(tmp_path / "a" / "b", "")
    (tmp_path / "link").symlink_to("a")
    assert below(tmp_path, "a/b") == tmp_path / "a" / "b"
    assert below(tmp_path, "link/b").exists()
    assert below(tmp_path, "a/not-there") == tmp_path / "a" / "not-there"
    assert within(tmp_path, tmp_path)
    assert not within(tmp_path, tmp_path.parent)


TEXT = """\
version = "1"
[agent]
timeout_sec = 3
[environment.healthcheck]
command = "x"
[[steps]]
name = "a"
[steps.agent]
timeout_sec = 1
[[steps]]
"name" = "b"
agent.timeout_sec = 2
[[steps.verifier.collect]]
command = "y"
"""


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (("version",), 1),
        (("agent", "timeout_sec"), 3),
        (("agent", "user"), 2),  # not there: the table where it would be
        (("environment", "healthcheck", "command"), 5),
        (("steps",), 6),
        (("steps", 0, "name"), 7),
        (("steps", 0, "agent", "timeout_sec"), 9),
        (("steps", 1, "name"), 11),
        (("steps", 1, "agent", "timeout_sec"), 12),
        (("steps", 1, "verifier", "collect", 0, "command"), 14),
        (("steps", 2), None),
        (("absent",), None),
    ],
)
def test_the_line_of_a_value(steps, line):
    assert line_of(TEXT, steps) == line


def test_only_a_newline_ends_a_line():
    assert line_of("# a form feed \f, U+2028 \u2028\nb = 1\n", ("b",)) == 2


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a = 1\nb = \n", "t.toml:2: not valid TOML: invalid value"),
        (b"a = 1\na = 2\n", "t.toml:2: not valid TOML: cannot overwrite a value"),
        (b"a = 1\nb = [1,", "t.toml:2: not valid TOML: "),
        (b"a = 1\n# \xff\n", "t.toml:2: is not UTF-8; expected UTF-8 text"),
        (b"a = " + b"[" * 5000, "t.toml: not valid TOML: it is nested too deeply"),
        (b"a = " + b"1" * 5000, "t.toml: not valid TOML: Exceeds the limit (4300 digits)"),
    ],
)
def test_what_is_no_toml(tmp_path, monkeypatch, raw, said):
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    Path("t.toml").write_bytes(raw)
    with pytest.raises(InputError) as error:
        read_toml(Path(), Path("t.toml"))
    assert str(error.value).startswith(said)


def test_a_file_that_is_too_large_or_elsewhere(tmp_path, monkeypatch):
    path = write(tmp_path / "t.toml", "a = 1\n")
    monkeypatch.setattr("calipers.systems.harbor.manifest.LARGEST", 3)
    with pytest.raises(InputError, match="is larger than 0 MiB"):
        read_toml(tmp_path, path)
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "t.toml").symlink_to(path)
    with pytest.raises(InputError, match="is a link out of"):
        read_toml(tmp_path / "l", tmp_path / "l" / "t.toml")
