import pytest
from systems.harbor.given import dataset, task, tree, write

from calipers.errors import InputError
from calipers.systems.harbor.dataset import examine, make_dataset, read_dataset
from calipers.systems.harbor.manifest import manifest_digest, task_digest


@pytest.fixture
def place(tmp_path):
    made = dataset(tmp_path / "d", "a", "b", toml=None)
    make_dataset("acme/d", made, with_metric=True)
    return made


def test_nothing_wrong(place):
    found = examine(place)
    assert (found.name, found.version, found.tasks, found.faults, found.notes) == ("acme/d", "1.0.0", 2, (), ())
    assert found.digest == read_dataset(place).manifest.digest


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: write(d / "a" / "instruction.md", "x"), "dataset.toml:12: the digest of acme/a is sha256:"),
        (lambda d: write(d / "metric.py", "x"), "dataset.toml:20: the digest of metric.py is sha256:"),
        (lambda d: (d / "metric.py").unlink(), "dataset.toml:19: there is no file 'metric.py'"),
        (lambda d: task(d / "c", "agent = 1"), "c/task.toml:1: agent: expected a table"),
        (lambda d: task(d / "c", '[task]\nname = "acme/a"'), "c: is named 'acme/a', the same as"),
        (lambda d: (d / "a").rename(d / "z"), "dataset.toml:11: "),
        (lambda d: (d / "a" / "tests" / "leak").symlink_to("/etc/passwd"), "a/tests/leak: is a link out of"),
        (lambda d: (d / "c").symlink_to(d / "a"), "c: is a link"),
    ],
)
def test_one_thing_wrong(place, spoil, said):
    spoil(place)
    found = examine(place)
    assert found.faults[0].removeprefix(f"{place}/").startswith(said)
    assert len(found.faults) == 1
    assert found.digest == ""


def test_everything_wrong_is_told_at_once(place):
    write(place / "metric.py", "x")
    task(place / "c", "agent = 1")
    (place / "b" / "tests" / "leak").symlink_to("/etc/passwd")
    found = examine(place)
    assert (found.tasks, len(found.faults)) == (1, 3)


def test_what_is_only_worth_a_note(tmp_path):
    place = dataset(tmp_path / "d", "a", toml='[dataset]\nname = "acme/d"\nlicence = "x"\n[[tasks]]\nname = "acme/a"\n')
    write(place / "metric.py", "x")
    task(place / "b", "[agnt]\n", without=("environment/Dockerfile",), **{"environment/data": ""})
    write(place / "docs" / "x", "")
    found = examine(place)
    assert found.faults == ()
    assert [note.removeprefix(f"{place}") for note in found.notes] == [
        "/b/task.toml:1: the key 'agnt' is unknown and ignored; did you mean 'agent'?",
        "/b/environment: has neither of Dockerfile and docker-compose.yaml; no image can be built from it",
        ": not tasks, because they have no task.toml: docs",
        "/dataset.toml:3: the key 'dataset.licence' is unknown and ignored",
        "/dataset.toml: acme/a has no digest yet",
        "/dataset.toml: does not list acme/b, which is in the folder",
        "/dataset.toml: does not list metric.py, which is in the folder",
        "/dataset.toml: has no version; publishing gives it the next number",
    ]


def test_fix_brings_dataset_toml_in_line_and_mends_nothing_else(place):
    write(place / "a" / "instruction.md", "x")
    task(place / "c")
    task(place / "bad", "agent = 1")
    before = {name: raw for name, raw in tree(place).items() if name != "dataset.toml"}
    found = examine(place, fix=True)
    assert found.changes == ("the digest of acme/a is computed again", "acme/c is added")
    assert len(found.faults) == 1
    assert found.notes == ()
    assert {name: raw for name, raw in tree(place).items() if name != "dataset.toml"} == before
    text = (place / "dataset.toml").read_text()
    assert examine(place, fix=True).changes == ()
    assert (place / "dataset.toml").read_text() == text


def test_directories_without_dataset_toml(tmp_path):
    place = dataset(tmp_path / "d", "a", "b", toml=None)
    found = examine(place)
    assert (found.name, found.tasks, found.faults) == ("d", 2, ())
    assert found.digest == manifest_digest(task_digest(place / name) for name in "ab")
    one = examine(place / "a")
    assert (one.name, one.tasks, one.digest) == ("a", 1, task_digest(place / "a"))
    assert (
        examine(dataset(tmp_path / "e"))
        .faults[0]
        .endswith("contains no tasks; expected subdirectories with a task.toml")
    )


def test_what_cannot_be_looked_at(tmp_path):
    with pytest.raises(InputError, match=r"dataset\.toml:1: not valid TOML"):
        examine(dataset(tmp_path / "d", "a", toml="= 1"))
