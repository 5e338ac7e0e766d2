import pytest
from systems.harbor.given import ARITH, dataset, task, write

from calipers.errors import InputError
from calipers.systems.harbor.dataset import is_dataset, metric_scripts, read_dataset, wrong_names


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
