"""A judge whose server the environment names: with another server, it is another run."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from running.loopback import served

from calipers.running import Job
from calipers.running.perform import perform


@contextmanager
def judge(text):
    """A chat server that always returns the same text, and counts its requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.path)
            message = {"role": "assistant", "content": text}
            body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    asked = []
    with served(Handler) as url:
        yield url, asked


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "model.py").write_text("def model(messages, **sampling):\n    return 'four'\n")

    def made(**params):
        asked = {"judge_model": "openai/j", "rubric": "Is {answer} right for {question}?", **params}
        row = {
            "task_id": "a",
            "instruction": "2 + 2?",
            "verifier": {"kind": "in_process", "fn_name": "llm_judge", "params": asked},
        }
        (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")
        return Job("tasks.jsonl", "python/model.py:model")

    return made


def test_two_servers_of_one_judge_are_two_runs_and_two_numbers(tmp_path, job, monkeypatch):
    with judge("SCORE: 1") as (one, first), judge("SCORE: 0") as (two, second):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{one}?api-key=hunter2")
        high = perform(job())
        monkeypatch.setenv("OPENAI_BASE_URL", two)
        told = []
        low = perform(job(), tell=told.append)
        assert high.folder != low.folder
        assert [run.result["mean_reward"].value for run in (high, low)] == [1.0, 0.0]
        (note,) = told
        assert f"judges.openai/j: {one} there, {two} requested" in note
        again = perform(job(), tell=told.append)
        assert (again.folder, len(told), len(first), len(second)) == (low.folder, 1, 1, 1)
    plan = json.loads((high.folder / "plan.json").read_text())
    assert plan["identity"]["judges"] == {"openai/j": one}
    assert not any(b"hunter2" in path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file())


def test_a_run_of_an_earlier_version_does_not_say_where_its_judge_was(job, monkeypatch):
    with judge("SCORE: 1") as (one, _):
        earlier = perform(job(base_url=one))  # a base URL in the task is part of its content
        assert "judges" not in json.loads((earlier.folder / "plan.json").read_text())["identity"]
        monkeypatch.setenv("OPENAI_BASE_URL", one)
        first = perform(job())
        plan = json.loads((first.folder / "plan.json").read_text())
        del plan["identity"]["judges"]
        (first.folder / "plan.json").write_text(json.dumps(plan))
        earlier = first.folder.rename(first.folder.with_name(first.folder.name[:-8] + "0" * 8))
        told = []
        second = perform(job(), tell=told.append)
    assert second.folder != earlier
    assert any(f"(judges: not recorded there, {one} requested)" in note for note in told)
