import json
import subprocess
import sys
import tomllib

import pytest
from systems.harbor.given import ARITH, dataset, task, tree, write
from waiting import PATIENCE

from calipers.errors import InputError
from calipers.systems.harbor.dataset import (
    drift,
    examine,
    is_dataset,
    make_dataset,
    make_task,
    metric_scripts,
    new_document,
    read_dataset,
    refreshed,
    select,
    wrong_names,
)
from calipers.systems.harbor.manifest import file_digest, manifest_digest, read_manifest, task_digest
from calipers.systems.harbor.task import read_task


def test_the_tasks_of_a_directory(tmp_path):
    place = dataset(tmp_path / "arith", "b", "a", "c", toml=None)
    write(place / "docs" / "x.md", "")
    write(place / ".git" / "config", "")
    write(place / "notes.txt", "")
    found = read_dataset(place)
    assert [one.name for one in found.tasks] == ["a", "b", "c"]
    assert (found.name, found.faults, found.passed_over, found.manifest) == ("arith", (), ("docs",), None)


def test_what_is_no_valid_task_is_said_and_the_rest_is_read(tmp_path):
    """Harbor skips such a directory silently, so that the dataset has one task less."""
    place = dataset(tmp_path / "arith", "a", "b", toml=None)
    task(place / "c", "agent = 3")
    task(place / "d", without=("tests/test.sh",))
    (place / "e").symlink_to(tmp_path / "arith" / "a")
    found = read_dataset(place)
    assert [one.name for one in found.tasks] == ["a", "b"]
    assert [fault.removeprefix(f"{place}/").partition(";")[0] for fault in found.faults] == [
        "c/task.toml:1: agent: expected a table, got an integer",
        "d/tests/test.sh: is not there",
        "e: is a link",
    ]


def test_a_task_by_itself_is_the_dataset_adhoc(tmp_path):
    found = read_dataset(task(tmp_path / "one"))
    assert (found.name, [one.name for one in found.tasks]) == ("adhoc", ["one"])


def test_names_with_an_organisation(tmp_path):
    place = dataset(tmp_path / "arith", "a")
    task(place / "b", '[task]\nname = "other/b"')
    found = read_dataset(place)
    assert [found.full_name(one) for one in found.tasks] == ["acme/a", "other/b"]
    task(place / "c", '[task]\nname = "acme/a"')  # the name that the first has from its directory
    assert [fault.removeprefix(str(place)) for fault in wrong_names(read_dataset(place))] == [
        f"/c: is named 'acme/a', the same as {place}/a; expected different names"
    ]


def test_a_directory_whose_name_no_dataset_toml_can_hold(tmp_path):
    place = dataset(tmp_path / "d", "my task", "é", "ok", toml=None)
    assert wrong_names(read_dataset(place)) == []  # by itself a task may be called anything
    write(place / "dataset.toml", '[dataset]\nname = "acme/d"\n')
    found = read_dataset(place)
    assert [fault.removeprefix(str(place)).partition(";")[0] for fault in wrong_names(found)] == [
        "/my task: is named 'acme/my task'",
        "/é: is named 'acme/é'",
    ]
    assert list(found.by_name) == ["acme/ok"]
    task(place / "my task", '[task]\nname = "acme/mine"')
    assert list(read_dataset(place).by_name) == ["acme/mine", "acme/ok"]


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({"dataset.toml": ""}, True),
        ({"a/task.toml": ""}, True),
        ({"task.toml": "wrong"}, True),
        ({"a/x": ""}, False),
        ({"tasks.jsonl": "", "a/task.toml": ""}, False),  # a benchmark of EvSys' kind
    ],
)
def test_which_directories_are_datasets(tmp_path, files, answer):
    for name, text in files.items():
        write(tmp_path / name, text)
    assert is_dataset(tmp_path) is answer
    assert not is_dataset(tmp_path / "absent")


def test_metric_scripts(tmp_path):
    assert metric_scripts(dataset(tmp_path / "none", "a")) == []
    lying = dataset(tmp_path / "lying", "a", toml=None)
    write(lying / "metric.py", "")
    assert metric_scripts(str(lying)) == [lying / "metric.py"]
    named = dataset(tmp_path / "named", toml='[dataset]\nname = "a/b"\n[[files]]\npath = "metric.py"\n')
    with pytest.raises(InputError, match=r"dataset\.toml:4: names metric\.py, which does not exist"):
        metric_scripts(named)
    write(named / "metric.py", "")
    assert metric_scripts(named) == [named / "metric.py"]
    linked = dataset(tmp_path / "linked", "a")
    (linked / "metric.py").symlink_to(named / "metric.py")
    with pytest.raises(InputError, match="points outside"):
        metric_scripts(linked)


def test_no_directory(tmp_path):
    with pytest.raises(InputError, match="no such directory; expected a directory of tasks"):
        read_dataset(tmp_path / "absent")


def test_harbors_own_dataset():
    assert [one.path.name for one in read_dataset(ARITH).tasks] == sorted(one.name for one in ARITH.iterdir())


NAMES = ["apple-1", "apple-2", "beet-1", "beet-2"]


@pytest.mark.parametrize(
    ("include", "exclude", "first", "expected"),
    [
        ([], [], None, NAMES),
        (["apple-*", "*-2"], ["apple-2"], 2, ["apple-1", "beet-2"]),
        (["*"], [], 0, []),
        (["beet-[1]"], [], None, ["beet-1"]),
        (["*"], ["*"], None, []),  # only what is asked for has to match
        ([], ["nothing-*"], 1, ["apple-1"]),
        (["*-2", "apple-2"], [], None, ["apple-2", "beet-2"]),  # in the order of the dataset, each once
    ],
)
def test_which_tasks(include, exclude, first, expected):
    assert select(NAMES, include, exclude, first) == expected


@pytest.mark.parametrize(
    ("names", "patterns", "said"),
    [
        (["o/apple", "o/beet"], ["apple"], "names here start with an organisation, as in 'o/apple'"),
        (NAMES, ["aple-1"], "no task matches 'aple-1'; did you mean 'apple-1'?"),
        (NAMES, ["APPLE-1x*", "zz"], "no task matches 'APPLE-1x*' or 'zz'; "),
        ([], ["a"], "no task matches 'a'; there are none"),
    ],
)
def test_nothing_matches(names, patterns, said):
    with pytest.raises(InputError) as error:
        select(names, patterns)
    assert said in str(error.value)


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


A, B = (f"sha256:{letter * 64}" for letter in "ab")
TOML = f"""\
# the best dataset
[dataset]
name = "acme/arith"  # ours

[[tasks]]  # first
name = "acme/a"
digest = "{A}"

[[tasks]]
name = "acme/gone"

[[files]]
path = "metric.py"
digest = ""

[metadata]
note = '''
[[not a table]]
'''
"""


def test_where_they_differ(tmp_path):
    place = dataset(tmp_path / "d", "a", "b", toml=TOML)
    metric = write(place / "metric.py", "x")
    found = read_dataset(place)
    true = {found.full_name(task): task.digest for task in found.tasks}
    seen = drift(place, found.manifest, true)
    assert (seen.tasks, seen.new_tasks) == ({"acme/a": true["acme/a"]}, {"acme/b": true["acme/b"]})
    assert (seen.files, seen.new_files) == ({"metric.py": file_digest(metric)}, {})
    assert seen.errors == (f"{place}/dataset.toml:10: {place} contains no valid task 'acme/gone'",)
    assert seen.changes == [
        "the digest of acme/a is computed again",
        "the digest of metric.py is computed again",
        "acme/b is added",
    ]
    metric.unlink()
    assert (
        drift(place, found.manifest, true)
        .errors[1]
        .startswith(f"{place}/dataset.toml:13: there is no file 'metric.py'")
    )
    metric.symlink_to("/etc/passwd")
    assert "points outside" in drift(place, found.manifest, true).errors[1]


def test_a_metric_that_is_not_named(tmp_path):
    place = dataset(tmp_path / "d", "a")
    metric = write(place / "metric.py", "x")
    write(place / "other.py", "x")
    manifest = read_manifest(place)
    assert drift(place, manifest, {}).new_files == {"metric.py": file_digest(metric)}
    metric.unlink()
    metric.symlink_to("/etc/passwd")
    assert drift(place, manifest, {}).new_files == {}


def test_writing_keeps_what_somebody_wrote(tmp_path):
    dataset(tmp_path, toml=TOML)
    text = refreshed(read_manifest(tmp_path), {"acme/a": B, "acme/new": A}, {"metric.py": A, "more.txt": B}, "2")
    before, after = tomllib.loads(TOML), tomllib.loads(text)
    assert after["tasks"] == [
        {"name": "acme/a", "digest": B},
        {"name": "acme/gone"},
        {"name": "acme/new", "digest": A},
    ]
    assert after["files"] == [{"path": "metric.py", "digest": A}, {"path": "more.txt", "digest": B}]
    assert after["metadata"] == before["metadata"]
    assert after["dataset"] == {"name": "acme/arith", "version": "2"}
    assert text.endswith("'\n")
    for line in ("# the best dataset", 'name = "acme/arith"  # ours', "[[tasks]]  # first"):
        assert line in text.splitlines()


def test_entries_after_entries(tmp_path):
    """Tables of one kind stay together, wherever the other kind is; the file ends with a newline."""
    write(tmp_path / "dataset.toml", new_document("acme/arith", "1.0.0"))
    for tasks, files in (({}, {"metric.py": A}), ({"acme/a": A}, {}), ({}, {"x": B}), ({"acme/b": B}, {})):
        write(tmp_path / "dataset.toml", refreshed(read_manifest(tmp_path), tasks, files))
    found = read_manifest(tmp_path)
    assert [one.name for one in found.tasks] == ["acme/a", "acme/b"]
    assert [one.path for one in found.files] == ["metric.py", "x"]
    text = found.source.text
    assert text.endswith(f'digest = "{B}"\n')
    assert text.count("\n\n[[") == text.count("[[") == 4


def test_lists_in_one_line(tmp_path):
    """`files = []` may not be followed by [[files]], nor may a list of inline tables."""
    toml = 'files = []\ntasks = [{name = "a/b", digest = ""}]\n[dataset]\nname = "a/d"\ntasks = []\n'
    dataset(tmp_path, toml=toml)
    text = refreshed(read_manifest(tmp_path), {"a/b": A, "a/c": B}, {"metric.py": A})
    after = tomllib.loads(text)
    assert after["tasks"] == [{"name": "a/b", "digest": A}, {"name": "a/c", "digest": B}]
    assert after["files"] == [{"path": "metric.py", "digest": A}]


def test_a_new_one_and_what_is_added_to_it(tmp_path):
    write(tmp_path / "dataset.toml", new_document("acme/arith", "1.0.0"))
    text = refreshed(read_manifest(tmp_path), {"acme/a": A, "acme/b": B}, {"metric.py": A})
    assert (
        text
        == f"""\
schema_version = "1.0"

[dataset]
name = "acme/arith"
version = "1.0.0"
description = ""
authors = []
keywords = []

[[tasks]]
name = "acme/a"
digest = "{A}"

[[tasks]]
name = "acme/b"
digest = "{B}"

[[files]]
path = "metric.py"
digest = "{A}"
"""
    )


def test_an_empty_dataset(tmp_path):
    done = make_dataset("acme/arith", tmp_path / "new" / "d")
    assert [line.removeprefix(f"{tmp_path}/new/d/") for line in done] == ["README.md: written", "dataset.toml: written"]
    found = read_manifest(tmp_path / "new" / "d")
    assert (found.name, found.version, found.tasks, found.files) == ("acme/arith", "1.0.0", (), ())


def test_tasks_that_lie_there_are_added(tmp_path):
    place = dataset(tmp_path / "d", "b", "a", toml=None)
    task(place / "bad", "agent = 1")
    done = make_dataset("acme/d", place, with_metric=True)
    assert [(one.name, one.digest) for one in read_manifest(place).tasks] == [
        (f"acme/{name}", task_digest(place / name)) for name in "ab"
    ]
    assert read_manifest(place).files[0].digest == file_digest(place / "metric.py")
    assert done[-1].startswith(f"{place}/bad/task.toml:1: agent: expected a table")
    assert done[-1].endswith("(skipped)")


def test_a_metric_for_a_dataset_that_is_there(tmp_path):
    """Only the entry is added: README.md, tasks and hand-written text stay unchanged."""
    place = dataset(tmp_path / "d", "a", toml='[dataset]\nname = "acme/d"  # mine\n')
    assert len(make_dataset("acme/d", place, with_metric=True)) == 2
    assert "# mine" in (place / "dataset.toml").read_text()
    found = read_manifest(place)
    assert (found.tasks, [one.path for one in found.files]) == ((), ["metric.py"])
    assert not (place / "README.md").exists()


def test_files_that_are_there_are_not_written_over(tmp_path):
    place = dataset(tmp_path / "d", toml=None)
    write(place / "README.md", "mine")
    write(place / "metric.py", "mine")
    make_dataset("acme/d", place)
    assert (place / "README.md").read_text() == (place / "metric.py").read_text() == "mine"
    assert read_manifest(place).files[0].digest == file_digest(place / "metric.py")  # but it is named


@pytest.mark.parametrize(
    ("files", "name", "metric", "said"),
    [
        (
            {"dataset.toml": '[dataset]\nname = "acme/d"\n'},
            "acme/d",
            False,
            "already exists, for acme/d; --with-metric",
        ),
        ({"dataset.toml": '[dataset]\nname = "acme/d"\n'}, "acme/e", True, "dataset.toml:2: is for acme/d, not acme/e"),
        ({"metric.py": ""}, "acme/d", True, "metric.py: already exists; the same command without --with-metric"),
        ({"metric.py": "", "dataset.toml": '[dataset]\nname = "acme/d"\n'}, "acme/d", True, "calipers check --fix"),
        ({"dataset.toml": "x"}, "acme/d", True, "dataset.toml:1: not valid TOML"),
        ({}, "d", False, "--dataset: the name is 'd'; expected org/name"),
        ({}, "../d", False, "--dataset: the name is '../d'"),
        ({}, "a/b/c", False, "--dataset: the name is 'a/b/c'"),
    ],
)
def test_what_is_refused(tmp_path, files, name, metric, said):
    for file, text in files.items():
        write(tmp_path / file, text)
    before = tree(tmp_path)
    with pytest.raises(InputError) as error:
        make_dataset(name, tmp_path, metric)
    assert said in str(error.value)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([{"reward": 1}, {"reward": 0}], {"mean": 0.5, "mean_of_scored": 0.5, "trials": 2, "missing": 0}),
        ([{"reward": 1}, None], {"mean": 0.5, "mean_of_scored": 1.0, "trials": 2, "missing": 1}),
        ([{"reward": 1}, {}], {"mean": 0.5, "mean_of_scored": 1.0, "trials": 2, "missing": 1}),
        ([None, None], {"mean": 0.0, "trials": 2, "missing": 2}),  # nothing was scored: no mean of that
        ([], {"trials": 0, "missing": 0}),
        (
            [{"speed": 3, "acc": 1}, {"acc": 0}, None],
            {
                "acc_mean": 1 / 3,
                "acc_mean_of_scored": 0.5,
                "speed_mean": 1.0,
                "speed_mean_of_scored": 3.0,
                "trials": 3,
                "missing": 1,
            },
        ),
    ],
)
def test_the_metric_one_starts_from(tmp_path, rewards, expected):
    make_dataset("acme/d", tmp_path, with_metric=True)
    write(tmp_path / "in.jsonl", "".join(json.dumps(one) + "\n" for one in rewards))
    command = [sys.executable, "metric.py", "-i", "in.jsonl", "-o", "out.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == (b"", b"")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found == pytest.approx(expected)
    assert list(found) == list(expected)  # Harbor shows the first value while a job runs, and wants a number there


def test_a_task_to_start_from(tmp_path):
    make_dataset("acme/d", tmp_path)
    done = make_task("acme/sum", tmp_path)
    assert done == [f"{tmp_path}/sum: written", f"{tmp_path}/dataset.toml: acme/sum is added"]
    found = read_task(tmp_path / "sum")
    assert (found.name, found.unknown, found.config.verifier.separate) == ("acme/sum", (), False)
    assert examine(tmp_path).faults == ()
    with pytest.raises(InputError, match="sum: already exists; expected another name"):
        make_task("acme/sum", tmp_path)


def test_no_task_is_left_beside_a_dataset_toml_that_cannot_be_read(tmp_path):
    """The same command works once dataset.toml is mended: the name of the task is not taken."""
    write(tmp_path / "dataset.toml", "x =")
    with pytest.raises(InputError, match=r"dataset\.toml:1: not valid TOML"):
        make_task("acme/sum", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["dataset.toml"]


def test_its_solution_solves_it(tmp_path):
    """The scripts use /app and /logs, which are replaced by a directory here."""
    make_task("acme/sum", tmp_path)
    for script in ("solution/solve.sh", "tests/test.sh"):
        path = tmp_path / "sum" / script
        text = path.read_text().replace("/app", f"{tmp_path}/app").replace("/logs", f"{tmp_path}/logs")
        path.write_text(text)

    def reward() -> str:
        subprocess.run([tmp_path / "sum/tests/test.sh"], check=True, timeout=PATIENCE)
        return (tmp_path / "logs/verifier/reward.txt").read_text().strip()

    assert reward() == "0"
    subprocess.run([tmp_path / "sum/solution/solve.sh"], check=True, timeout=PATIENCE)
    assert reward() == "1"
