import json
import subprocess
import sys

import pytest
from systems.harbor.given import dataset, task, tree, write
from waiting import PATIENCE

from calipers.errors import InputError
from calipers.systems.harbor.dataset import examine, make_dataset, make_task
from calipers.systems.harbor.manifest import file_digest, read_manifest, task_digest
from calipers.systems.harbor.task import read_task


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
