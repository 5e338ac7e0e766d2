import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from systems.harbor.given import ARITH, dataset, task, tree, write

from calipers.errors import InputError
from calipers.systems.harbor.dataset import make_dataset
from calipers.systems.harbor.manifest import read_manifest
from calipers.systems.harbor.registry import publish_dataset, read_registry, resolve


@pytest.fixture
def arith(tmp_path):
    shutil.copytree(ARITH, tmp_path / "arith")
    make_dataset("acme/arith", tmp_path / "arith", with_metric=True)
    return tmp_path / "arith"


def version(place, new):
    path = place / "dataset.toml"
    path.write_text(path.read_text().replace(f'version = "{read_manifest(place).version}"', f'version = "{new}"'))


def test_there_and_back(tmp_path, arith):
    done = publish_dataset(arith, tmp_path / "reg")
    assert (done.name, done.version, done.status, done.tasks, done.files) == (
        "acme/arith",
        "1.0.0",
        "created",
        6,
        ("metric.py",),
    )
    found = resolve("acme/arith", tmp_path / "reg")
    assert (found.name, found.version, found.digest) == ("acme/arith", "1.0.0", done.digest)
    assert found.metric_script.read_bytes() == (arith / "metric.py").read_bytes()
    for one in found.tasks:
        assert tree(one.path) == tree(arith / one.path.name)  # every byte, under a directory of the same name
    assert [one.name for one in found.tasks][:3] == ["add-two", "csv-sum", "acme/fizz-buzz"]


def test_registry_json_is_harbors(tmp_path, arith):
    publish_dataset(arith, tmp_path / "reg")
    (entry,) = json.loads((tmp_path / "reg" / "registry.json").read_text())
    assert {"name", "version", "description", "tasks", "metrics"} <= set(entry)
    assert [set(one) for one in entry["tasks"]] == [{"name", "path"}] * 6
    for one in entry["tasks"]:
        assert (tmp_path / "reg" / one["path"] / "task.toml").is_file()
    (metric,) = entry["metrics"]
    assert metric["type"] == "uv-script"
    assert (tmp_path / "reg" / metric["kwargs"]["script_path"]).is_file()


def test_the_same_again_and_another_version(tmp_path, arith):
    reg = tmp_path / "reg"
    publish_dataset(arith, reg)
    before = tree(reg)
    assert publish_dataset(arith, reg).status == "unchanged"
    assert tree(reg) == before
    write(arith / "add-two" / "instruction.md", "Another.\n")
    with pytest.raises(InputError, match=r"dataset\.toml:5: acme/arith@1\.0\.0 is in .* with other content; increase"):
        publish_dataset(arith, reg)
    assert tree(reg) == before
    version(arith, "1.10.0")
    assert publish_dataset(arith, reg).status == "updated"
    assert len(list((reg / "objects").iterdir())) == 7  # five tasks are shared
    assert resolve("acme/arith", reg).version == "1.10.0"
    assert resolve("acme/arith@1.0.0", reg).tasks[0].instruction.startswith("Solve the add-two")
    assert resolve("acme/arith@1.10.0", reg).tasks[0].instruction == "Another.\n"


def test_digests_are_taken_anew(tmp_path, arith):
    write(arith / "metric.py", "print()")
    publish_dataset(arith, tmp_path / "reg")
    assert read_manifest(arith).files == read_manifest(tmp_path / "reg/datasets/acme/arith/1.0.0").files
    assert resolve("acme/arith", tmp_path / "reg").metric_script.read_text() == "print()"


def test_a_refusal_changes_nothing(tmp_path, arith):
    publish_dataset(arith, tmp_path / "reg")
    write(arith / "metric.py", "print()")
    before = tree(tmp_path)
    with pytest.raises(InputError, match="with other content"):
        publish_dataset(arith, tmp_path / "reg")
    assert tree(tmp_path) == before


def test_a_metric_that_lies_there_is_published(tmp_path):
    place = dataset(tmp_path / "d", "a", toml='[dataset]\nname = "acme/d"\n[[tasks]]\nname = "acme/a"\n')
    write(place / "metric.py", "x")
    done = publish_dataset(place, tmp_path / "reg")
    assert (done.version, done.files) == ("1", ("metric.py",))
    assert done.notes == (
        f"{place}/dataset.toml: the digest of acme/a is computed again",
        f"{place}/dataset.toml: metric.py is added",
    )
    assert resolve("acme/d@1", tmp_path / "reg").metric_script is not None


def test_a_dataset_without_a_version_is_numbered(tmp_path):
    place = dataset(tmp_path / "d", "a", toml='[dataset]\nname = "acme/d"\n[[tasks]]\nname = "acme/a"\n')
    seen = [publish_dataset(place, tmp_path / "reg") for _ in range(2)]
    write(place / "a" / "instruction.md", "New.\n")
    seen.append(publish_dataset(place, tmp_path / "reg"))
    assert [(one.version, one.status) for one in seen] == [("1", "created"), ("1", "unchanged"), ("2", "updated")]
    assert read_manifest(place).version is None


def test_a_task_that_is_not_named_stays_out_and_is_told(tmp_path, arith):
    task(arith / "extra")
    done = publish_dataset(arith, tmp_path / "reg")
    assert done.tasks == 6
    assert done.notes == (f"acme/extra: has no entry in {arith}/dataset.toml and is excluded",)


def test_ignore_files_travel_and_keep_the_digest(tmp_path, arith):
    write(arith / "add-two" / ".gitignore", "*.log\n")
    write(arith / "add-two" / "tests" / "x.pyc", "kept, as its own rules say nothing of it")
    write(arith / "add-two" / "tests" / "x.log", "dropped")
    write(arith / "add-two" / "notes.txt", "not of the task")
    publish_dataset(arith, tmp_path / "reg")
    found = resolve("acme/arith", tmp_path / "reg").tasks[0].path
    assert (found / "tests" / "x.pyc").exists()
    assert not (found / "tests" / "x.log").exists()
    assert not (found / "notes.txt").exists()
    version(arith, "1.1.0")
    write(arith / "add-two" / ".harborignore", "x.pyc\n")  # no digest covers it, so two would be one
    with pytest.raises(InputError, match=r"\.harborignore: differs from the one in"):
        publish_dataset(arith, tmp_path / "reg")


def test_scripts_stay_executable(tmp_path, arith):
    (arith / "add-two" / "tests" / "test.sh").chmod(0o755)
    publish_dataset(arith, tmp_path / "reg")
    assert os.access(resolve("acme/arith", tmp_path / "reg").tasks[0].path / "tests" / "test.sh", os.X_OK)


def test_what_others_wrote_into_the_registry_stays(tmp_path, arith):
    theirs = {"name": "other", "version": "head", "tasks": [], "licence": "unknown here"}
    write(tmp_path / "reg" / "registry.json", json.dumps([theirs]))
    publish_dataset(arith, tmp_path / "reg")
    assert json.loads((tmp_path / "reg" / "registry.json").read_text())[0] == theirs


def test_many_at_once(tmp_path):
    places = [
        dataset(tmp_path / f"d{n}", "a", toml=f'[dataset]\nname = "acme/d{n % 4}"\n[[tasks]]\nname = "acme/a"\n')
        for n in range(8)
    ]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda place: publish_dataset(place, tmp_path / "reg"), places))
    assert sorted(one.status for one in done) == ["created"] * 4 + ["unchanged"] * 4
    assert sorted(entry.name for entry in read_registry(tmp_path / "reg")[1]) == [f"acme/d{n}" for n in range(4)]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: (d / "dataset.toml").unlink(), "has no dataset.toml; calipers init --dataset ORG/NAME -o"),
        (lambda d: task(d / "bad", "agent = 1"), "bad/task.toml:1: agent: expected a table"),
        (lambda d: shutil.rmtree(d / "add-two"), "contains no valid task 'acme/add-two'"),
        (lambda d: (d / "metric.py").unlink(), "there is no file 'metric.py'"),
        (lambda d: (d / "add-two" / "tests" / "leak").symlink_to("/etc/passwd"), "is a link out of"),
        (lambda d: task(d / "twin", '[task]\nname = "acme/add-two"'), "is named 'acme/add-two', the same as"),
        (lambda d: version(d, "../../1"), "the version is '../../1'"),
        (lambda d: dataset(d, toml='[dataset]\nname = "acme/arith"\n'), "lists no tasks; calipers check --fix"),
    ],
)
def test_what_cannot_be_published(tmp_path, arith, spoil, said):
    spoil(arith)
    before = tree(tmp_path)
    with pytest.raises(InputError) as error:
        publish_dataset(arith, tmp_path / "reg")
    assert said in str(error.value)
    assert tree(tmp_path) == before


def test_several_faults_are_counted(tmp_path, arith):
    task(arith / "bad", "agent = 1")
    task(arith / "worse", "agent = 1")
    with pytest.raises(InputError, match=r"\(and 1 more; calipers check lists them\)"):
        publish_dataset(arith, tmp_path / "reg")


def test_a_registry_that_leads_elsewhere_or_is_damaged(tmp_path, arith):
    (tmp_path / "reg").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "reg" / "objects").symlink_to(tmp_path / "out")
    with pytest.raises(InputError, match="is a link that points outside"):
        publish_dataset(arith, tmp_path / "reg")
    assert list((tmp_path / "out").iterdir()) == []
    publish_dataset(arith, tmp_path / "sound")
    stored = resolve("acme/arith", tmp_path / "sound").tasks[0].path
    write(stored / "instruction.md", "changed")
    version(arith, "2.0.0")
    with pytest.raises(InputError, match="does not match its digest"):
        publish_dataset(arith, tmp_path / "sound")


def test_a_place_that_cannot_be_written(tmp_path, arith):
    write(tmp_path / "file", "")
    with pytest.raises(InputError, match="file: cannot be read or written"):
        publish_dataset(arith, tmp_path / "file")


def test_the_registry_of_a_project_is_no_matter_of_version_control(tmp_path, arith, monkeypatch):
    monkeypatch.chdir(tmp_path)
    publish_dataset("arith")
    assert (tmp_path / ".calipers" / ".gitignore").read_text() == "*\n"
    assert resolve("acme/arith").version == "1.0.0"
