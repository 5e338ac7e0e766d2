import json

import pytest
from gym import row
from systems.nemo_gym.serve.asking import strict

from calipers.errors import PluginError
from calipers.systems.nemo_gym.aggregate import NO_HOOKS, Hooks, aggregate
from calipers.systems.nemo_gym.hooks import hooks_of
from calipers.systems.nemo_gym.serve import BodyLimits, answer

LIMITS = BodyLimits(rows=4, depth=8)
ROWS = [row(1, 0), row(0, 1, 0.0), row(0, 0, 0.5)]


@pytest.fixture
def ask(tmp_path):
    def asked(body, hooks=NO_HOOKS):
        (tmp_path / "body").write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
        refusal = answer(str(tmp_path / "body"), str(tmp_path / "answer"), LIMITS, hooks)
        return refusal or strict((tmp_path / "answer").read_bytes())

    return asked


def test_the_answer_is_that_of_the_function(ask):
    assert ask({"verify_responses": ROWS, "other": 1}) == aggregate(ROWS).to_dict()
    assert ask({"verify_responses": []}) == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}


def test_many_groups_are_one_list(tmp_path):
    rows = [row(task, 0, task) for task in range(450)]  # more than are written at once
    (tmp_path / "body").write_text(json.dumps({"verify_responses": rows}))
    assert answer(str(tmp_path / "body"), str(tmp_path / "answer"), BodyLimits()) is None
    assert strict((tmp_path / "answer").read_bytes()) == aggregate(rows).to_dict()


def test_nan_is_taken_and_never_given(ask):
    body = json.dumps({"verify_responses": [row(0, 0, float("nan")), row(0, 1, 1.0, big=1e308), row(0, 2, big=1e308)]})
    assert "NaN" in body
    found = ask(body.encode())
    assert found["agent_metrics"]["mean/reward"] == 1.0
    assert found["agent_metrics"]["mean/big"] is None  # the sum overflows
    assert found["group_level_metrics"][0]["rollout_infos"][0]["reward"] is None


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        (
            [row(0, 0), row(1, 0), row(0, 0)],
            "duplicate",
            "rows 1 and 3: both are _ng_task_index 0, _ng_rollout_index 0",
        ),
        ([row(0, 1), row(0.0, 1.0)], "duplicate", "rows 1 and 2: both are _ng_task_index 0.0"),
        ([row(3.0, 1.0), row(3, 2)], None, ""),
        ([row("a", 1), row("a", 1)], "duplicate", "rows 1 and 2: both are _ng_task_index a"),
        ([{"_ng_task_index": 0}], "bad_rows", "row 1: no key '_ng_rollout_index'; expected an integer"),
        ([row(0, 0), {"_ng_rollout_index": 0}], "bad_rows", "row 2: no key '_ng_task_index'"),
        ([row(0, 0), row("a", 0)], "bad_rows", "row 2: task indices are text in some rows and numbers in others"),
        ([row(0, 0, response=None)], "bad_rows", "row 1: response is null; expected an object"),
        ([row(0, 0, n=2**64)], "bad_rows", "row 1: n is 18446744073709551616; expected an integer of at most 64 bits"),
        ([row(2**63, 0)], "bad_rows", "row 1: _ng_task_index is 9223372036854775808"),
        ([row(0, 0.5)], "bad_rows", "row 1: _ng_rollout_index is 0.5"),
        ([7], "bad_rows", "row 1: it is not an object"),
        ([row(0, n) for n in range(5)], "too_many_rows", "expected at most 4"),
        ([row(0, 0, x=[[[[[[1]]]]]])], "too_deep", "expected a depth of at most 8"),
        ([row(0, 0, x="[[[[[[[[{{{{{{")], None, ""),  # brackets in a text do not count as nesting
        ([row(0, 0, x=[[[[[1]]]]])], None, ""),
    ],
)
@pytest.mark.parametrize("loosely", [False, True])
def test_bad_rows(ask, rows, code, said, loosely):
    """A body that only Python's parser can read has the same refusals."""
    found = ask({"other": float("nan"), "verify_responses": rows} if loosely else {"verify_responses": rows})
    if code is None:
        assert "agent_metrics" in found
        return
    assert (found.code, found.status) == (code, {"too_many_rows": 413, "too_deep": 400}.get(code, 422))
    assert said in found.message


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "body: it is not JSON"),
        (b'{"verify_responses": [}', 400, "body: it is not JSON"),
        (b"[]", 422, "body: no key 'verify_responses'; expected a list of rows"),
        (b"{}", 422, "body: no key 'verify_responses'; expected a list of rows"),
        (b'{"verify_responses": {}}', 422, "verify_responses: it is dict; expected a list of rows"),
        (b'{"verify_responses": null}', 422, "verify_responses: it is NoneType; expected a list of rows"),
    ],
)
def test_bodies_without_rows(ask, body, status, said):
    found = ask(body)
    assert found.status == status
    assert said in found.message
    if status == 422:
        assert found.detail[0]["loc"] == ["body", "verify_responses"]  # the place where FastAPI's clients look


class Rubbish:
    """A server whose hook returns a given value."""

    def __init__(self, found):
        self.found = found

    def compute_metrics(self, tasks):
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ValueError("no luck"), "compute_metrics failed: ValueError: no luck"),
        (RecursionError(), "compute_metrics failed: RecursionError"),
        # otherwise the worker would end without a reason
        (SystemExit("bye"), "compute_metrics failed: SystemExit: bye"),
        ({1: 2}, "a hook named a metric 1; expected text"),
        ({None: 2}, "a hook named a metric None; expected text"),
        (
            {"per_task_metrics": [{"_ng_task_index": [0]}]},
            ("_ng_task_index is [0]; expected the index of a task, a number or text"),
        ),
        (None, "compute_metrics returned NoneType; expected a dict"),
        ([1], "compute_metrics returned list; expected a dict"),
        ({"x": object()}, "a hook returned a value that JSON cannot encode: object is not a JSON value"),
        ({"x": {1, 2}, "y": b"\xff", "z": 1j}, "a hook returned a value that JSON cannot encode"),
        ({"per_task_metrics": 3}, "per_task_metrics is int; expected a list of objects"),
        (
            {"per_task_metrics": [{"_ng_task_index": 0, "x": object()}]},
            ("a hook returned a value that JSON cannot encode"),
        ),
    ],
)
def test_hooks_that_fail(ask, found, said):
    refusal = ask({"verify_responses": ROWS}, hooks_of("app.py", Rubbish(found)))
    assert (refusal.status, refusal.code) == (500, "hook_failed")
    assert said in refusal.message
    assert "Traceback" not in refusal.message


def test_hooks_get_the_rows_of_the_request(ask):
    seen = []

    def compute_metrics(tasks):
        seen.extend(tasks)
        return {"n": len(tasks), "nan": float("nan")}

    found = ask({"verify_responses": ROWS}, Hooks(compute_metrics))
    assert seen == [[ROWS[1], ROWS[2]], [ROWS[0]]]  # tasks ascend; the order within a task is that of the request
    assert (found["agent_metrics"]["n"], found["agent_metrics"]["nan"]) == (2, None)


def test_a_hook_may_fail_with_an_error_of_ours(ask):
    def compute_metrics(tasks):
        raise PluginError("app.py:3: said already")

    assert ask({"verify_responses": ROWS}, Hooks(compute_metrics)).message == "app.py:3: said already"
