import dataclasses
import inspect

import pytest
from tasks.given import row

from calipers.errors import CalipersError, InputError
from calipers.tasks.benchmark_row import (
    E2BVerifier,
    HarborTask,
    InProcessVerifier,
    LLMJudgeVerifier,
    as_task,
    detect_format,
    harbor_task_from_dict,
    iter_jsonl,
    parse_rows,
    to_dict,
)


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
        ({}, KeyError, "'task_id'"),  # the text that a KeyError has
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
        (HarborTask(True, "q", None), ValueError, "task_id is true"),  # a boolean is no number here
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
