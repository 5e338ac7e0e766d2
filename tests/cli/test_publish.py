import hashlib
import json

import pytest
from click.testing import CliRunner
from tasks.given import benchmark, row

from calipers.cli.publish import publish
from calipers.errors import InputError
from calipers.tasks.store import pull


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def published(*arguments):
    done = CliRunner().invoke(publish, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout), done.stderr  # standard output is one JSON object and nothing else


def test_one_json_object(tmp_path):
    place = benchmark(tmp_path, row(1), row(2))
    document, said = published("arith")
    assert document == {
        "benchmark_id": document["benchmark_id"],
        "name": "arith",
        "version": 1,
        "content_hash": hashlib.sha256((place / "tasks.jsonl").read_bytes()).hexdigest(),
        "status": "created",
        "n_tasks": 2,
    }
    assert list(document) == ["benchmark_id", "name", "version", "content_hash", "status", "n_tasks"]
    assert pull(document["benchmark_id"]).is_dir()
    how = f"calipers run {document['benchmark_id']} --model KIND/NAME"
    assert said == f"note: arith version 1 is created; run it with {how}\n"


def test_again_and_changed(tmp_path):
    benchmark(tmp_path)
    seen = [published("arith")[0] for _ in range(2)]
    benchmark(tmp_path, row("other"))
    seen.append(published("arith")[0])
    assert [(one["version"], one["status"]) for one in seen] == [(1, "created"), (1, "unchanged"), (2, "updated")]


def test_what_was_passed_over_is_said(tmp_path):
    benchmark(tmp_path, row(metdata={}))
    assert published("arith")[1].startswith(
        "note: arith/tasks.jsonl:1: 1 row has the field 'metdata', which means nothing here; did you mean 'metadata'?\n"
    )


def test_a_name_that_would_move_the_cursor(tmp_path):
    benchmark(tmp_path, metadata='name: "a\\e[2Jb"')
    done = CliRunner().invoke(publish, ["arith"])
    assert "\x1b" not in done.output
    assert json.loads(done.stdout)["name"] == "a\x1b[2Jb"


@pytest.mark.parametrize(
    ("rows", "directory", "said"),
    [
        ([row()], "absent", "benchmark dir not found: absent; expected a directory with tasks.jsonl"),
        ([row(), "{"], "arith", "arith/tasks.jsonl:2: malformed json: "),
        ([row(), row()], "arith", "arith/tasks.jsonl:2: task_id 'a' stands twice, first at line 1; expected it once"),
    ],
)
def test_what_cannot_be_published(tmp_path, rows, directory, said):
    benchmark(tmp_path, *rows)
    done = CliRunner().invoke(publish, [directory])
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 2
    assert str(done.exception).startswith(said)
    assert not (tmp_path / ".calipers").exists()
