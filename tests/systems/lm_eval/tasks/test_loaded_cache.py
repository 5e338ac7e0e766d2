"""Cached prompts on disk: they are used if and only if nothing that determines them has changed."""

import os

import msgspec
import pytest
from cli.running import calipers as typed
from cli.running import refused

from calipers.errors import InputError
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, suite
from calipers.systems.lm_eval.tasks import loaded
from calipers.systems.lm_eval.tasks.prompts import Manner

TASK = """task: made
dataset_path: json
dataset_kwargs: {data_files: {test: docs.jsonl, dev: dev.jsonl}}
test_split: test
fewshot_split: dev
num_fewshot: 2
output_type: multiple_choice
description: Sums.
doc_to_text: "Q: {{q}}"
doc_to_choice: [a, b, c]
doc_to_target: answer
metric_list: [{metric: acc}]
"""
DOCS = '{"q": "1 + 1", "answer": 0}\n{"q": "2 + 2", "answer": 1}\n{"q": "3 + 3", "answer": 2}\n'
DEV = "".join(f'{{"q": "{n} - {n}", "answer": {n % 3}}}\n' for n in range(9))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LM_HARNESS_CACHE_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    for name, text in (("made.yaml", TASK), ("docs.jsonl", DOCS), ("dev.jsonl", DEV)):
        (tmp_path / name).write_text(text)
    return tmp_path


def prompts(use="", **request):
    tasks = LoadedTasks(use)
    task = tasks.task("made.yaml", "made", TaskRequest(trust=True, **request))
    return [question.prompt for question in suite(task).tasks], tasks.notes


def kept(home):
    return sorted((home / "cache/calipers/lm_eval/requests").glob("*"))


def mark(path, text="from the cache"):
    """Change the content of a cached file, so that a test can tell whether it was read."""
    file = msgspec.msgpack.decode(path.read_bytes())
    file["texts"] = [text for _ in file["texts"]]
    path.write_bytes(msgspec.msgpack.encode(file))


def test_prompts_are_kept_once_and_read_again(home):
    plain, _ = prompts()
    assert prompts("true") == (plain, [])
    [path] = kept(home)
    assert prompts("true") == (plain, [])
    mark(path)
    assert "from the cache" in str(prompts("true"))
    assert prompts()[0] == plain  # without the option nothing is read


def test_refresh_makes_them_again_and_keeps_them(home):
    plain, _ = prompts("true")
    mark(kept(home)[0])
    assert prompts("refresh")[0] == plain
    assert prompts("true")[0] == plain


def test_delete_removes_them_and_nothing_else(home):
    prompts("true")
    [path] = kept(home)
    other = path.parent / "requests-made-0shot.pickle"
    other.write_text("lm-evaluation-harness' own")
    _, notes = prompts("delete")
    assert notes == [f"1 file of cached prompts removed from {path.parent}"]
    assert kept(home) == [other]
    assert prompts("delete")[1] == [f"0 files of cached prompts removed from {path.parent}"]


CHANGES = {
    "a document": ("docs.jsonl", "2 + 2", "2 + 3"),
    "a document's type": ("docs.jsonl", '"1 + 1"', "7"),
    "an answer of a document": ("docs.jsonl", '"2 + 2", "answer": 1', '"2 + 2", "answer": 0'),
    "the order of documents": ("docs.jsonl", DOCS, "".join(reversed(DOCS.splitlines(keepends=True)))),
    "an example": ("dev.jsonl", "1 - 1", "1 - 0"),
    "an answer of an example": ("dev.jsonl", '"1 - 1", "answer": 1', '"1 - 1", "answer": 2'),
    "the text": ("made.yaml", "Q: {{q}}", "Question: {{q}}"),
    "the description": ("made.yaml", "Sums.", "Differences."),
    "a choice": ("made.yaml", "[a, b, c]", "[a, b, d]"),
    "the number of examples": ("made.yaml", "num_fewshot: 2", "num_fewshot: 3"),
    "how examples are drawn": ("made.yaml", "num_fewshot: 2", "num_fewshot: 2\nfewshot_config: {sampler: first_n}"),
    "a delimiter": ("made.yaml", "num_fewshot: 2", "num_fewshot: 2\ntarget_delimiter: ' = '"),
    "a delimiter of examples": ("made.yaml", "num_fewshot: 2", "num_fewshot: 2\nfewshot_delimiter: ' | '"),
    "how an answer begins": ("made.yaml", "num_fewshot: 2", "num_fewshot: 2\ngen_prefix: It is"),
    "a metric that asks for more": ("made.yaml", "metric: acc}", "metric: acc_mutual_info}"),
    "the split of the examples": ("made.yaml", "fewshot_split: dev", "fewshot_split: test"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_has_changed_the_prompts_are_those_of_now(home, change):
    before, _ = prompts("true")
    name, old, new = CHANGES[change]
    text = (home / name).read_text()
    assert old in text
    (home / name).write_text(text.replace(old, new))
    plain, _ = prompts()
    assert plain != before or change in ("an answer of a document", "a document's type")
    assert prompts("true")[0] == plain


@pytest.mark.parametrize(
    "request_",
    [
        {"seeds": (0, 1234, 1234, 7)},
        {"num_fewshot": 1},
        {"manner": Manner(chat=True)},
        {"manner": Manner(chat=True, multiturn=False)},
        {"manner": Manner(system="Be brief.")},
    ],
    ids=str,
)
def test_another_command_has_its_own_prompts(home, request_):
    before, _ = prompts("true")
    plain, _ = prompts(**request_)
    assert plain != before
    assert prompts("true", **request_)[0] == plain
    assert prompts("true", **request_)[0] == plain
    assert prompts("true")[0] == before
    assert len(kept(home)) == 2


def test_other_code_has_its_own_prompts(home, monkeypatch):
    prompts("true")
    monkeypatch.setattr(loaded, "_code_digest", lambda: "another release")
    mark(kept(home)[0])
    assert "from the cache" not in str(prompts("true"))
    assert len(kept(home)) == 2


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\x93\x01\x02"])
def test_a_file_that_cannot_be_read_is_made_again(home, damage):
    plain, _ = prompts("true")
    [path] = kept(home)
    path.write_bytes(damage)
    assert prompts("true")[0] == plain
    mark(path)  # it was made again: it can be read


def test_a_file_of_another_key_under_this_name_is_not_read(home):
    plain, _ = prompts("true")
    [path] = kept(home)
    mark(path)
    file = msgspec.msgpack.decode(path.read_bytes())
    path.write_bytes(msgspec.msgpack.encode({**file, "key": "0" * 64}))
    assert prompts("true")[0] == plain


def test_a_file_that_others_can_write_is_not_read(home):
    plain, _ = prompts("true")
    [path] = kept(home)
    mark(path)
    os.chmod(path, 0o666)
    assert prompts("true")[0] == plain


def test_prompts_of_a_tasks_own_code_are_made_anew_with_a_note(home):
    (home / "utils.py").write_text("WORD = 'first'\n\n\ndef text(doc):\n    return WORD + doc['q']\n")
    (home / "made.yaml").write_text(TASK.replace('"Q: {{q}}"', "!function utils.text"))
    made, notes = prompts("true")
    assert "first2 + 2" in str(made)
    assert notes == ["made: its prompts are not cached: its own code makes them"]
    assert not kept(home)


def test_prompts_that_a_template_draws_are_made_anew(home):
    (home / "made.yaml").write_text(TASK.replace("Q: {{q}}", "{{ [1, 2, 3] | random }} {{q}}"))
    plain, _ = prompts()
    assert prompts("true")[0] == plain
    assert not kept(home)


def test_the_folder_of_lm_evaluation_harness_own_variable_is_used(home, monkeypatch):
    monkeypatch.setenv("LM_HARNESS_CACHE_PATH", str(home / "mine"))
    prompts("true")
    assert len(list((home / "mine").iterdir())) == 1
    assert not kept(home)


def test_where_nothing_can_be_kept_prompts_are_made(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("LM_HARNESS_CACHE_PATH", str(home / "file/below"))
    assert prompts("true")[0] == prompts()[0]


def test_another_word_is_refused(home):
    with pytest.raises(InputError, match="--cache_requests: is 'maybe'; expected true, refresh, delete"):
        LoadedTasks("maybe")


def test_the_commands_keep_and_delete(home):
    words = ("lm-eval", "--model", "dummy", "--tasks", "made.yaml")
    first = typed(*words, "--cache_requests", cwd=home)
    assert len(kept(home)) == 1
    assert typed(*words, "--cache_requests", "refresh", cwd=home).stdout == first.stdout
    (home / "say.yaml").write_text("model: dummy\ntasks: [made.yaml]\ncache_requests: delete\n")
    again = typed("lm-eval", "run", "--config", "say.yaml", cwd=home)
    assert again.stdout == first.stdout
    assert "1 file of cached prompts removed from" in again.stderr
    assert not kept(home)
    model = ("--model", "python/calipers.systems.lm_eval.client:DUMMY")
    typed("run", "made.yaml", *model, "--cache-requests", cwd=home)
    assert len(kept(home)) == 1
    assert (
        "1 file of cached prompts removed"
        in typed("run", "made.yaml", *model, "--cache-requests=delete", cwd=home).stderr
    )
    assert "is not one of 'true', 'refresh', 'delete'" in refused(
        "run", "made.yaml", *model, "--cache-requests=maybe", cwd=home
    )


def test_another_benchmark_has_no_prompts_to_keep(home):
    (home / "data").mkdir()
    (home / "data/tasks.jsonl").write_text('{"id": "1", "prompt": "2 + 2", "target": "4"}\n')
    words = ("run", "data", "--model", "python/calipers.systems.lm_eval.client:DUMMY", "--cache-requests=true")
    assert refused(*words, cwd=home).startswith("--cache-requests: is for tasks of lm-evaluation-harness")
