"""Answers that make a judge's server or a pattern fail: a missing rollout must be worth no more than a wrong answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from running.loopback import served
from running.scene import records

from calipers.running import Job
from calipers.running.perform import perform

ANSWERS = ["four", "POISON", "five"]
ALL, NONE = [True] * 3, [False] * 3


@contextmanager
def judge(status: Callable[[str], int]) -> Iterator[tuple[str, list[str]]]:
    """The URL of a judge's server, and the questions that it was asked; it replies with a status, or closes for 0."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
            asked.append(question)
            code = status(question)
            if not code:
                self.close_connection = True
                return
            message = {"role": "assistant", "content": f"SCORE: {int('four' in question)}"}
            body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    asked: list[str] = []
    with served(Handler) as url:
        yield url, asked


def rows(tmp_path, verifier, tasks=ANSWERS):
    """The records of a run whose model returns its prompt, by task."""
    (tmp_path / "model.py").write_text("def model(messages, **sampling):\n    return messages[-1]['content']\n")
    lines = [
        {"task_id": f"t{number}", "instruction": text, "verifier": {"kind": "in_process", **verifier}}
        for number, text in enumerate(tasks)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = f"python/{tmp_path}/model.py:model"
    report = perform(Job(str(tmp_path / "tasks.jsonl"), model, out=tmp_path / "run", concurrency=4))
    return {row["task"]: row for row in records(tmp_path / "run")}, report


def judged_at(url):
    params = {"judge_model": "openai/j", "rubric": "Is {answer} right?", "base_url": url, "retries": 1}
    return {"fn_name": "llm_judge", "params": params}


@pytest.fixture(autouse=True)
def _no_key_and_no_waiting(monkeypatch):
    from calipers.clients import pace

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(pace, "FIRST_WAIT", 0.0)


@pytest.mark.parametrize("status", [500, 0])
def test_a_server_that_fails_on_one_answer_only_makes_it_count_zero(tmp_path, status):
    with judge(lambda question: status if "POISON" in question else 200) as (url, asked):
        row, report = rows(tmp_path, judged_at(url))
    assert {task: each["outcome"] for task, each in row.items()} == {
        "t0": "scored",
        "t1": "broke_verifier",
        "t2": "scored",
    }
    assert row["t1"]["error"]["blame"] == {"neutral": ALL, "answer": NONE}
    assert sum("POISON" in question for question in asked) == 8  # four times, with a retry each
    assert report.result["mean_reward"].value == pytest.approx(1 / 3)
    assert report.complete


def test_a_server_that_fails_on_everything_leaves_gaps(tmp_path):
    with judge(lambda question: 503) as (url, _):
        row, report = rows(tmp_path, judged_at(url))
    assert {each["outcome"] for each in row.values()} == {"judge_failed"}
    assert row["t0"]["error"]["blame"] == {"neutral": [False, None, None], "answer": [None] * 3}
    assert not report.complete


def test_a_server_that_accepts_nothing_is_no_answers_doing(tmp_path):
    with judge(lambda question: 429 if "POISON" in question else 200) as (url, asked):
        row, _ = rows(tmp_path, judged_at(url))
    assert row["t1"]["outcome"] == "judge_failed"
    assert "blame" not in row["t1"]["error"]
    assert sum("POISON" in question for question in asked) == 2


def test_a_server_that_fails_at_random_makes_no_answer_count_zero(tmp_path):
    dice = random.Random(3)
    with judge(lambda question: 500 if dice.random() < 0.3 else 200) as (url, _):
        row, _ = rows(tmp_path, judged_at(url), [f"four {number}" for number in range(60)])
    outcomes = [each["outcome"] for each in row.values()]
    assert set(outcomes) == {"scored", "judge_failed"}
    blames = [each["error"]["blame"] for each in row.values() if "error" in each]
    assert all(len(results) == 3 for blame in blames for results in blame.values())


@pytest.mark.usefixtures("impatient")
def test_an_answer_that_stops_a_pattern_counts_zero(tmp_path):
    verifier = {"fn_name": "regex_match", "expected": "^(?:a+)+$"}
    row, report = rows(tmp_path, verifier, ["aaa", "a" * 60 + "!", "no"])
    assert [row[f"t{number}"]["outcome"] for number in range(3)] == ["scored", "broke_verifier", "scored"]
    assert row["t1"]["error"]["blame"] == {"neutral": ALL, "answer": NONE}
    assert report.result["mean_reward"].value == pytest.approx(1 / 3)
