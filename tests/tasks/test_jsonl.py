"""Benchmarks on disk, and their rows."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tasks.given import benchmark, row

from calipers.errors import CalipersError, InputError
from calipers.tasks import Suite, Task
from calipers.tasks.jsonl import (
    E2BVerifier,
    HarborTask,
    InProcessVerifier,
    LLMJudgeVerifier,
    NotThere,
    as_task,
    detect_format,
    harbor_task_from_dict,
    iter_jsonl,
    parse_rows,
    read_suite,
    to_dict,
)
from examples import examples


def refused(path):
    """The error for a benchmark, without the directory, which it must name."""
    with pytest.raises(InputError) as caught:
        read_suite(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text.replace(f"{path}/", "")


def test_a_directory(tmp_path):
    place = benchmark(tmp_path, row(1, metadata={"d": "easy"}), "", row("b"), metadata="name: sums\nsplits: [test]\n")
    (place / "images").mkdir()
    suite = read_suite(place)
    first = Task("1", "q 1", "exact_match", "A", {}, {"d": "easy"})
    assert suite == Suite(
        "sums",
        [first, Task("b", "q b", "exact_match", "A")],
        {"name": "sums", "splits": ["test"]},
        place,
        hashlib.sha256((place / "tasks.jsonl").read_bytes()).hexdigest(),
        [],
    )


def test_a_bare_file(tmp_path):
    place = benchmark(tmp_path, row())
    suite = read_suite(place / "tasks.jsonl")
    assert (suite.name, suite.root, len(suite.tasks), suite.metadata) == ("tasks", None, 1, {})


def test_names_that_are_no_text_are_refused(tmp_path):
    """EvSys accepts a list of pairs as an object; the keys of a log must be text."""
    pairs = row(metadata=[[1, 2]])
    right = "expected an object with names that are text"
    assert refused(benchmark(tmp_path, pairs)) == f'tasks.jsonl:1: metadata is {{"1": 2}}; {right}'
    pairs = row()
    pairs["verifier"]["params"] = [[1, 2]]
    assert refused(benchmark(tmp_path, pairs)) == f'tasks.jsonl:1: verifier.params is {{"1": 2}}; {right}'


def test_an_empty_file_holds_no_tasks(tmp_path):
    assert list(read_suite(benchmark(tmp_path, "")).tasks) == []


@pytest.mark.parametrize(
    ("metadata", "name"), [(None, "arith"), ("", "arith"), ("name:", "arith"), ("name: 7", "7"), ("\ufeffname: x", "x")]
)
def test_its_name(tmp_path, metadata, name):
    assert read_suite(benchmark(tmp_path, row(), metadata=metadata)).name == name


def test_the_name_of_this_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(benchmark(tmp_path))
    assert read_suite(".").name == "arith"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["", row(), "", "{"], "tasks.jsonl:4: malformed json: "),  # blank lines count
        ([{}], "tasks.jsonl:1: 'task_id' is missing; expected task_id, instruction and verifier"),
        (
            [row(verifier={"kind": "e2"})],
            "tasks.jsonl:1: unknown verifier kind: 'e2'; expected in_process, e2b, llm_judge",
        ),
        ([row(), row("b", metadata=5)], "tasks.jsonl:2: metadata is 5; expected an object"),
        ([row(), [1]], "tasks.jsonl:2: a task is [1]; expected a JSON object"),
        ([row(1), row(), row("1")], "tasks.jsonl:3: task_id '1' appears twice, first at line 1; expected it once"),
        ([row(1.5)], "tasks.jsonl:1: task_id is 1.5; expected text or an integer"),
        ([{**row(), "instruction": 5}], "tasks.jsonl:1: instruction is 5; expected text, or a list of chat messages"),
    ],
)
def test_a_bad_row_is_refused_with_file_and_line(tmp_path, rows, said):
    assert refused(benchmark(tmp_path, *rows)).startswith(said)


def test_types_of_evsys_errors_stay(tmp_path):
    for bad, kind in ((row(metadata=5), TypeError), (row(verifier=None), AttributeError), ([1], TypeError)):
        with pytest.raises(kind, match=r"tasks\.jsonl:1: "):
            read_suite(benchmark(tmp_path, bad))


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("- a", "metadata.yaml: it is a list; it must be a mapping at the top level"),
        ("a: b\nc: [", "metadata.yaml:2: it is not valid YAML: "),
        (
            "a: !!python/object/apply:os.getcwd []",
            ("metadata.yaml:1: it is not valid YAML: could not determine a constructor"),
        ),
        ("a: !!timestamp soon", "metadata.yaml: it is not valid YAML: "),
        ("a: !!int ''", "metadata.yaml: it is not valid YAML: "),
        ("name: [a]", "metadata.yaml: name is not text; expected a name such as arith"),
        ("a: " + "[" * 1_000, "metadata.yaml: it is not valid YAML: "),
        ("a: " + "x" * (1 << 20), "metadata.yaml: larger than 1 MiB; expected a few keys"),
    ],
)
def test_bad_metadata_is_refused(tmp_path, metadata, said):
    assert refused(benchmark(tmp_path, row(), metadata=metadata)).startswith(said)


def test_metadata_in_another_encoding_is_refused(tmp_path):
    place = benchmark(tmp_path)
    (place / "metadata.yaml").write_bytes("name: é".encode("latin-1"))
    assert refused(place) == "metadata.yaml: a byte is not UTF-8; expected UTF-8 text"


def test_what_is_not_there(tmp_path):
    with pytest.raises(NotThere, match=r"no such file or directory; expected a benchmark"):
        read_suite(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"^benchmark missing tasks\.jsonl: "):
        read_suite(tmp_path)


@pytest.mark.parametrize("name", ["tasks.jsonl", "metadata.yaml"])
def test_a_file_outside_the_directory_is_refused(tmp_path, name):
    place = benchmark(tmp_path, metadata="name: x")
    (place / name).replace(tmp_path / "elsewhere")
    (place / name).symlink_to("../elsewhere")
    assert refused(place) == f"{name}: it is a link to a file outside the benchmark; expected a regular file"
    (tmp_path / "elsewhere").unlink()
    assert refused(place).startswith(f"{name}: cannot be read ")
    (place / name).unlink()
    (place / name).symlink_to(name)
    assert refused(place).startswith(f"{name}: cannot be read ")


def test_a_link_within_the_directory_is_followed(tmp_path):
    place = benchmark(tmp_path)
    (place / "tasks.jsonl").rename(place / "v2.jsonl")
    (place / "tasks.jsonl").symlink_to("v2.jsonl")
    linked = tmp_path / "linked"
    linked.symlink_to("arith")
    assert len(read_suite(linked).tasks) == 1


def test_fields_that_mean_nothing_are_mentioned_once(tmp_path):
    odd = row("b", metdata={}, difficulty=1)
    odd["verifier"]["parms"] = {}
    place = benchmark(tmp_path, row(), odd, row("c", difficulty=2))
    assert [note.replace(f"{place}/", "") for note in read_suite(place).notes] == [
        "tasks.jsonl:2: 1 row has the field 'metdata', which is ignored; did you mean 'metadata'?",
        "tasks.jsonl:2: 2 rows have the field 'difficulty', which is ignored; put data about a task under metadata",
        "tasks.jsonl:2: 1 row has the field 'verifier.parms', which is ignored; did you mean 'params'?",
    ]


TOKENS = (
    *(
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\n",
        b"\r",
        b" ",
        b"\x0c",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\\ud800",
    ),
    *(
        b"null",
        b"true",
        b"NaN",
        b"1e400",
        b"-1",
        b"1" * 5000,
        b'"task_id"',
        b'""',
        b"[" * 40,
        b"- ",
        b"!!int ",
        b"&a *a",
    ),
)
ANY = st.binary(max_size=200) | st.lists(st.sampled_from(TOKENS), max_size=20).map(b"".join)
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 6), st.sampled_from(TOKENS) | st.binary(max_size=4))


@examples(120)
@given(tasks=ANY, metadata=ANY)
@example(tasks=b"", metadata=b"")
def test_any_bytes_are_a_suite_or_refused(tmp_path_factory, tasks, metadata):
    place = benchmark(tmp_path_factory.getbasetemp(), name="any-suite")
    (place / "tasks.jsonl").write_bytes(tasks)
    (place / "metadata.yaml").write_bytes(metadata)
    with contextlib.suppress(InputError):
        assert isinstance(read_suite(place), Suite)


@examples(120)
@given(changes=st.lists(EDIT, min_size=1, max_size=4))
def test_a_damaged_file_is_a_suite_or_refused(tmp_path_factory, changes):
    place = benchmark(
        tmp_path_factory.getbasetemp(), row(1), row("é", metadata={"a": {"b": [1]}}), name="damaged-suite"
    )
    content = (place / "tasks.jsonl").read_bytes()
    for where, length, put in changes:
        at = int(where * len(content))
        content = content[:at] + put + content[at + length :]
    (place / "tasks.jsonl").write_bytes(content)
    try:
        assert isinstance(read_suite(place), Suite)
    except InputError as error:
        assert str(error).startswith(f"{place}/tasks.jsonl:")  # noqa: PT017


def test_a_verifier_that_the_metadata_names_once(tmp_path):
    bare = {"task_id": "a", "instruction": "?", "expected": "4"}
    more = {**bare, "task_id": "b", "params": {"rel_tol": 0.5}}
    metadata = "verifier:\n  fn_name: numeric_match\n  params: {abs_tol: 1, rel_tol: 0.1}\n"
    suite = read_suite(benchmark(tmp_path, bare, more, row("c"), metadata=metadata))
    common = {"abs_tol": 1, "rel_tol": 0.1}
    assert list(suite.tasks) == [
        Task("a", "?", "numeric_match", "4", common),
        Task("b", "?", "numeric_match", "4", {**common, "rel_tol": 0.5}),
        Task("c", "q c", "exact_match", "A"),  # a row may have its own verifier
    ]
    assert list(suite.notes) == []


def test_a_verifier_that_the_metadata_names_by_its_name_alone(tmp_path):
    place = benchmark(tmp_path, {"task_id": "a", "instruction": "?", "expected": "4"}, metadata="verifier: contains\n")
    assert read_suite(place).tasks[0] == Task("a", "?", "contains", "4")


def test_params_that_a_row_leaves_null_are_those_of_the_metadata(tmp_path):
    metadata = "verifier:\n  fn_name: numeric_match\n  params: {abs_tol: 1}\n"
    bare = {"task_id": "a", "instruction": "?", "expected": "4", "params": None}
    assert read_suite(benchmark(tmp_path, bare, metadata=metadata)).tasks[0].params == {"abs_tol": 1}


def test_a_verifier_in_the_metadata_is_what_json_can_hold(tmp_path):
    bare = {"task_id": "a", "instruction": "?", "expected": "4"}
    dated = "verifier: {fn_name: json_schema, params: {schema: {const: 2020-01-01}}}\n"
    said = refused(benchmark(tmp_path, bare, metadata=dated))
    assert said.startswith("metadata.yaml: verifier has a value that is no JSON (")
    assert said.endswith("in quotes")
    numbered = "verifier: {fn_name: llm_judge, params: {scale: {1: 0, 2: 1}}}\n"
    assert read_suite(benchmark(tmp_path, bare, metadata=numbered)).tasks[0].params == {"scale": {"1": 0, "2": 1}}


def test_a_verifier_in_the_metadata_that_is_none(tmp_path):
    bare = {"task_id": "a", "instruction": "?"}
    assert refused(benchmark(tmp_path, bare, metadata="verifier: [1]\n")).startswith("metadata.yaml: verifier is [1]")
    assert "unknown verifier kind: 'x'" in refused(benchmark(tmp_path, bare, metadata="verifier: {kind: x}\n"))
    assert "'verifier' is missing" in refused(benchmark(tmp_path, bare, metadata="name: x\n"))
    assert len(read_suite(benchmark(tmp_path, row("c"), metadata="verifier: [1]\n")).tasks) == 1  # not needed


def test_the_signatures_are_evsys_own():
    assert {
        cls.__name__: str(inspect.signature(cls)).partition(" -> ")[0] for cls in (HarborTask, InProcessVerifier)
    } == {
        "HarborTask": "(task_id: 'Any', instruction: 'Any', verifier: 'Verifier | None' = None, "
        "metadata: 'dict[str, Any]' = <factory>)",
        "InProcessVerifier": "(fn_name: 'str', expected: 'Any' = None, params: 'dict[str, Any]' = <factory>, "
        "kind: 'str' = 'in_process')",
    }
    assert dataclasses.asdict(E2BVerifier()) == {"dockerfile": "", "test_sh": "", "test_state_py": "", "kind": "e2b"}
    assert dataclasses.asdict(LLMJudgeVerifier()) == {"judge_model": "", "rubric": "", "kind": "llm_judge"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        InProcessVerifier("exact_match").fn_name = "contains"


@pytest.mark.parametrize(
    ("payload", "verifier"),
    [
        ({"kind": "in_process", "fn_name": "f"}, InProcessVerifier("f", None, {})),
        ({"kind": "in_process", "fn_name": "f", "expected": 0, "params": None}, InProcessVerifier("f", 0, {})),
        (
            {"kind": "in_process", "fn_name": "f", "params": [["k", 1]], "odd": 1},
            InProcessVerifier("f", None, {"k": 1}),
        ),
        ({"kind": "e2b", "test_sh": "true"}, E2BVerifier("", "true", "")),
        ({"kind": "llm_judge", "rubric": "be kind", "judge_model": "m"}, LLMJudgeVerifier("m", "be kind")),
    ],
)
def test_a_row_is_a_task(payload, verifier):
    task = harbor_task_from_dict({"task_id": "a", "instruction": None, "verifier": payload, "unknown": 1})
    assert task == HarborTask("a", None, verifier, {})
    assert harbor_task_from_dict(to_dict(task)) == task


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [(None, {}), ("", {}), ([], {}), (0, {}), ([["k", 1]], {"k": 1}), ({"k": {"l": 2}}, {"k": {"l": 2}})],
)
def test_metadata_is_a_mapping_or_what_becomes_one(metadata, expected):
    assert harbor_task_from_dict(row(metadata=metadata)).metadata == expected


def test_metadata_is_copied_one_level_deep():
    held = {"k": {}}
    task = harbor_task_from_dict(row(metadata=held))
    assert task.metadata is not held
    assert task.metadata["k"] is held["k"]


@pytest.mark.parametrize(
    ("bad", "python_error", "text"),
    [
        ({}, KeyError, "'task_id'"),  # like the text of a KeyError
        ({"task_id": 1}, KeyError, "'instruction'"),
        ({"task_id": 1, "instruction": ""}, KeyError, "'verifier'"),
        (row(verifier={}), ValueError, "unknown verifier kind: None"),
        (row(verifier={"kind": []}), ValueError, "unknown verifier kind: []"),
        (row(verifier={"kind": "in_process"}), KeyError, "'fn_name'"),
        (row(metadata="abc"), ValueError, 'metadata is "abc"; expected an object'),
        (row(metadata=5), TypeError, "metadata is 5; expected an object"),
        (row(metadata=[1]), TypeError, "metadata is [1]; expected an object"),
        ([1], TypeError, "a task is [1]; expected a JSON object"),
        (None, TypeError, "a task is null; expected a JSON object"),
        (row(verifier=None), AttributeError, "verifier is null; expected an object with a kind"),
        (row(verifier="exact_match"), AttributeError, 'verifier is "exact_match"; expected an object with a kind'),
    ],
)
def test_a_bad_row_is_an_error_of_both_kinds(bad, python_error, text):
    with pytest.raises(python_error) as caught:
        harbor_task_from_dict(bad)
    assert isinstance(caught.value, CalipersError)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("found", "fmt"),
    [
        ({"task_id": 1, "verifier": 2, "inputs": 3, "expected": 4}, "harbor_task"),
        ({"inputs": 3, "expected": 4, "messages": []}, "prompt_dataset"),
        ({"messages": []}, "chat_messages"),
        ({"task_id": 1}, "unknown"),
        ([], "unknown"),
    ],
)
def test_the_format_of_a_row(found, fmt):
    assert detect_format(found) == fmt


def test_rows_of_one_format():
    assert parse_rows([row("a"), row("b")], "harbor_task") == [harbor_task_from_dict(row(name)) for name in "ab"]
    assert parse_rows([{"messages": [], "x": 1}], "chat_messages") == [{"messages": [], "x": 1}]


@pytest.mark.parametrize(
    ("rows", "fmt", "text"),
    [
        ([row(), {}], "harbor_task", "row 1: 'task_id'; expected task_id, instruction and verifier"),
        ([row(), [1]], "harbor_task", "row 1: a task is [1]; expected a JSON object"),
        ([{"inputs": 1}], "prompt_dataset", "row 0: 'expected'"),
        ([7], "chat_messages", "row 0: it is 7; expected a JSON object"),
        ([], "harbor_tasks", "no format of rows named 'harbor_tasks'; did you mean 'harbor_task'?"),
    ],
)
def test_a_bad_row_is_named_by_its_number(rows, fmt, text):
    with pytest.raises(InputError) as caught:
        parse_rows(rows, fmt)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == text


TURNS = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (HarborTask("a", "q", None), ("a", "q", None, None, {})),
        (HarborTask(7, TURNS, InProcessVerifier("f", [1], {"k": 2})), ("7", TURNS, "f", [1], {"k": 2})),
        (
            HarborTask("a", "q", E2BVerifier("FROM x", "true", "pass")),
            ("a", "q", "test_sh", None, {"dockerfile": "FROM x", "test_sh": "true", "test_state_py": "pass"}),
        ),
        (
            HarborTask("a", "q", LLMJudgeVerifier("m", "r")),
            ("a", "q", "llm_judge", None, {"judge_model": "m", "rubric": "r"}),
        ),
    ],
)
def test_our_task(task, said):
    found = as_task(dataclasses.replace(task, metadata={"m": 1}))
    assert (found.id, found.prompt, found.verifier, found.target, found.params) == said
    assert found.metadata == {"m": 1}


@pytest.mark.parametrize(
    ("task", "python_error", "text"),
    [
        (HarborTask(None, "q", None), ValueError, "task_id is null"),
        (HarborTask(True, "q", None), ValueError, "task_id is true"),  # a boolean is not a number here
        (HarborTask(1.5, "q", None), ValueError, "task_id is 1.5"),
        (HarborTask("a", None, None), ValueError, "instruction is null"),
        (HarborTask("a", [], None), ValueError, "instruction is []"),
        (HarborTask("a", [{"role": "user"}], None), ValueError, 'instruction is [{"role": "user"}]'),
        (HarborTask("a", "q", InProcessVerifier(None)), ValueError, "fn_name is null"),
        (HarborTask("a", "q", object()), TypeError, "unknown verifier type: object"),
    ],
)
def test_what_cannot_be_run_is_refused(task, python_error, text):
    with pytest.raises(python_error) as caught:
        as_task(task)
    assert isinstance(caught.value, InputError)
    assert str(caught.value) == text


def test_rows_end_at_newlines_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes('\ufeff{"a": "x\u2028y\u0085z"}\r\n\n \t\n[1]'.encode())
    assert list(iter_jsonl(path)) == [{"a": "x\u2028y\u0085z"}, [1]]
