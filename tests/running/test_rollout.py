"""Verdicts are checked before they are logged, so that every line of a log can be read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from calipers.clients import Completion, Request
from calipers.errors import VerifierError
from calipers.formats.read import read
from calipers.running.rollout import Finished, Outstanding, line
from calipers.tasks import Task
from calipers.verifiers import Verdict, checked

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("verdict", "kept"),
    [
        (Verdict(0.5, answer="a"), Verdict(0.5, answer="a")),
        (Verdict(None), Verdict(None)),
        (Verdict(True), Verdict(1.0)),
        (Verdict(2), Verdict(2)),
        (Verdict(np.float32(0.25)), Verdict(0.25)),  # JSON cannot encode numpy's numbers
        (Verdict(None, {"a": np.int64(1), "b": None}), Verdict(None, {"a": 1.0})),
        (
            Verdict(0.0, fields={"n": np.float64(3)}, answer=[1, None]),
            Verdict(0.0, fields={"n": 3.0}, answer=[1, None]),
        ),
        (Verdict(1.0, rewards=None, fields=None, usage=None, outcome=None), Verdict(1.0)),
        (Verdict(1.0, {"reward": 1, "style": 0.5}), Verdict(1.0, {"reward": 1.0, "style": 0.5})),
        (Verdict(0.0, answer="\ud800"), Verdict(0.0, answer="\ud800")),  # `line` replaces a lone surrogate
    ],
)
def test_a_verdict_that_a_log_can_hold(verdict, kept):
    assert checked(verdict) == kept


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict(float("nan")), "reward is nan; expected a finite number"),
        (Verdict("1"), "reward is '1'; expected a number"),
        (Verdict(10**400), "reward is 1000.*; expected a number"),
        (Verdict(1.0, {"a": float("inf")}), "a is inf; expected a finite number"),
        (Verdict(1.0, {"a": "high"}), "a is 'high'; expected a number"),
        (Verdict(1.0, {"reward": 0.5}), "reward is 1, and 0.5 among the rewards; expected one of them"),
        (Verdict(1.0, {'a"b': 1.0}), "'a\"b' contains a quote, .*; expected a plain name"),
        (Verdict(1.0, fields={"a\nb": 1.0}), r"'a\\nb' contains a quote, .*; expected a plain name"),
        (Verdict(1.0, usage={"a\\b": 1.0}), r"'a\\\\b' contains a quote, .*; expected a plain name"),
        (Verdict(1.0, fields={"a": object()}), "a is <object.*; expected a number"),
        (Verdict(1.0, usage={"cost_usd": "dear"}), "cost_usd is 'dear'; expected a number"),
        (Verdict(1.0, outcome="splendid"), "outcome is 'splendid'; expected one of scored, .*missing, stopped_early"),
        (Verdict(None, outcome="scored"), "outcome is 'scored' but there is no reward; .*"),
        (Verdict(1.0, answer={"a": 1}), r"answer is \{'a': 1\}; expected a JSON scalar or a list"),
        (Verdict(1.0, answer=[object()]), r"answer is \[<object.*; expected a JSON scalar or a list"),
    ],
)
def test_a_verdict_that_no_log_can_hold(verdict, said):
    with pytest.raises(VerifierError, match=f"^{said}$"):
        checked(verdict)


def test_a_field_never_takes_the_place_of_a_key_with_a_meaning(tmp_path):
    """EvSys' info may have a number called ``error``; a line with it would make the log unreadable."""
    names = (
        "error",
        "usage",
        "metadata",
        "agent",
        "reward",
        "rewards",
        "task",
        "retries",
        "cost_usd",
        "latency_s",
        "steps",
    )
    fields = dict.fromkeys(names, 0.5)
    outstanding = Outstanding(0, Task("t", "q", "v", "a"), 0)
    made = Finished(
        outstanding,
        Request("t", 0, "q"),
        NOW,
        Completion("a", usage={"latency_s": 1.0, "steps": 2}),
        Verdict(1.0, fields={**fields, "length": 3.0}),
    )
    record = made.record("d", "m", NOW)
    assert (record["task"], record["reward"], record["length"]) == ("t", 1.0, 3.0)
    assert {f"verifier_{name}": record[f"verifier_{name}"] for name in fields} == {
        f"verifier_{name}": 0.5 for name in fields
    }
    (tmp_path / "log.jsonl").write_bytes(line(record) + b"\n")
    table, _ = read([str(tmp_path / "log.jsonl")])
    assert [column.values.tolist() for name, column in table.columns.items() if name == "latency_s"] == [[1.0]]
    assert "cost_usd" not in table.columns  # the cost of the judge is not the cost of the answer


def test_a_reward_that_is_one_of_the_rewards_is_written_once(tmp_path):
    """Such as test.sh with the keys ``reward`` and ``style``: with two columns of a name, a log is unreadable."""
    outstanding = Outstanding(0, Task("t", "q", "v", "a"), 0)
    verdict = Verdict(1.0, {"reward": 1.0, "style": 0.5})
    record = Finished(outstanding, Request("t", 0, "q"), NOW, Completion("a"), verdict).record("d", "m", NOW)
    (tmp_path / "log.jsonl").write_bytes(line(record) + b"\n")
    table, _ = read([str(tmp_path / "log.jsonl")])
    assert {name: column.values.tolist() for name, column in table.rewards.items()} == {"reward": [1.0], "style": [0.5]}


@pytest.mark.parametrize(
    ("record", "read_again"),
    [
        ({"a": "half \ud83d here"}, {"a": "half \ufffd here"}),
        ({"a": "\ud83d\ude00"}, {"a": "\U0001f600"}),  # a valid pair of surrogates becomes one character
        ({"\udc00": [{"b": ("\ud800", 1, None)}]}, {"\ufffd": [{"b": ["\ufffd", 1, None]}]}),
        ({"a": "whole \U0001f600"}, {"a": "whole \U0001f600"}),
    ],
)
def test_half_a_character_is_no_reason_to_end_a_run(record, read_again):
    assert json.loads(line(record)) == read_again


@pytest.mark.parametrize(
    ("facts", "request_of"),
    [
        ({"request_id": "r", "seed": 5}, {"id": "r", "seed": 5}),
        ({"seed": 0}, {"seed": 0}),
        ({}, None),  # as before: unknown values are left out of a record
    ],
)
def test_a_record_has_the_id_and_the_seed_of_its_request(facts, request_of):
    done = Finished(
        Outstanding(0, Task("t", "p"), 0), Request("t", 0, "p"), NOW, Completion("x", **facts), Verdict(1.0)
    )
    assert done.record("d", "m", NOW).get("request") == request_of
