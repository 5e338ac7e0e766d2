"""``calipers run`` as a user runs it: its result, its exit code, and resuming."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from importlib.resources import files

import pytest
from cli.running import ARITH, begun, calipers, on_a_full_disk, refused
from running.scene import MODEL, digest, records, served, sums, weather
from waiting import PATIENCE, until, until_lines

BENCH = str(files("calipers") / "examples" / "arith")


def test_the_bundled_benchmark_runs_offline(tmp_path):
    done = calipers("run", BENCH, "--model", f"replay/{ARITH}", "--samples", "8", "--out", "r", cwd=tmp_path)
    assert done.returncode == 3  # some answers are missing in the file that is replayed
    assert "320 planned" in done.stdout
    assert "client_failed" in done.stdout
    assert done.stderr.splitlines()[-1] == "r/result.json"


def test_one_command_from_an_endpoint_to_a_result(tmp_path):
    sums(tmp_path)
    with weather() as url:
        done = calipers("run", "sums", "--model", MODEL, "--metric", "pass@1", cwd=tmp_path, OPENAI_BASE_URL=url)
    assert done.returncode == 0, done.stderr
    assert "pass@1" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "result.json").read_text())["groups"][0]["ledger"]["scored"] == 30


def test_ctrl_c_finishes_what_is_in_flight_and_the_same_command_goes_on(tmp_path):
    sums(tmp_path, 100)
    with weather("--hold", "8") as url:
        command = ("run", "sums", "--model", MODEL, "--base-url", url, "--concurrency", "4", "--out", "r")
        running = begun(*command, cwd=tmp_path)
        until_lines(tmp_path / "r" / "rollouts.jsonl", 8)
        until(lambda: served(url)["calls"] == 12, "what is in flight")
        running.send_signal(signal.SIGINT)
        served(url, "/go")
        _, said = running.communicate(timeout=PATIENCE)
        assert running.returncode == 3, said
        assert b"stopped early: interrupted; run the same command again to resume" in said
        calls = served(url)["calls"]
        assert 12 <= len(records(tmp_path / "r")) == calls < 100  # every call that was sent is in the log
        assert "not_run" in json.loads((tmp_path / "r" / "result.json").read_text())["groups"][0]["ledger"]["outcomes"]
        assert calipers(*command, cwd=tmp_path).returncode == 0
        assert served(url)["calls"] == 100
        calipers(*command[:-1], "at_once", cwd=tmp_path)
    assert digest(tmp_path / "r") == digest(tmp_path / "at_once")


def test_ctrl_c_starts_no_other_run_of_the_command(tmp_path):
    sums(tmp_path)
    shutil.copytree(tmp_path / "sums", tmp_path / "more")
    (tmp_path / "model.py").write_text(
        "import os, signal\n"
        "calls = 0\n"
        "def answer(prompt):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls == 3:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return '0'\n"
    )
    done = calipers("run", "sums", "more", "--model", "python/model.py:answer", "--concurrency", "1", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "note: interrupted: 1 of 2 runs were not started" in done.stderr
    assert "stopped early: interrupted; run the same command again to resume" in done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert 3 <= len(records(folder)) < 30


def test_ctrl_c_gets_through_to_a_verifier_that_never_returns(tmp_path):
    """User code that blocks the loop is not interrupted by the first two signals; only the third one reaches it.

    A signal that is sent before the last one was taken in is lost. The verifier writes without end, so a signal has
    been taken in when two more lines are there: both come from code that ran after it.
    """
    (tmp_path / "hangs.py").write_text(
        "import time\n"
        "from evsys_sdk.verifiers.fns import register_fn\n"
        "@register_fn('hangs')\n"
        "def hangs(*_):\n"
        "    with open('beats', 'ab', buffering=0) as beats:\n"
        "        while True:\n"
        "            beats.write(b'\\n')\n"
        "            time.sleep(0.01)\n"
    )
    (tmp_path / "suite").mkdir()
    task = {"task_id": "a", "instruction": "?", "verifier": {"kind": "in_process", "fn_name": "hangs", "expected": "1"}}
    (tmp_path / "suite" / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    beats = tmp_path / "beats"
    with weather() as url:
        command = ("run", "suite", "--model", MODEL, "--base-url", url, "--plugin", "hangs.py", "--out", "r")
        running = begun(*command, cwd=tmp_path)
        try:
            until(lambda: beats.exists() or running.poll() is not None, "the verifier")
            for _ in range(2):  # ignored: the code continues
                running.send_signal(signal.SIGINT)
                now = beats.stat().st_size
                until(lambda now=now: beats.stat().st_size >= now + 2 or running.poll() is not None, "a sign of life")
                assert running.poll() is None, running.communicate()
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=PATIENCE)
        finally:
            running.kill()
    assert running.returncode == 3, said
    assert json.loads((tmp_path / "r" / "result.json").read_text())["groups"][0]["ledger"]["planned"] == 1


def test_answers_that_nobody_judged_have_no_number(tmp_path):
    """An empty answer counts as 0 only if it is verified, and --predict-only verifies nothing."""
    (tmp_path / "m.py").write_text("def m(prompt, **_):\n    return '' if '1' in prompt else '4'\n")
    done = calipers("run", BENCH, "--model", "python/m.py:m", "--predict-only", "--out", "r", cwd=tmp_path)
    assert (done.returncode, "mean_reward" in done.stdout) == (0, False), done.stderr
    (group,) = json.loads((tmp_path / "r" / "result.json").read_text())["groups"]
    assert group["metrics"] == {}
    assert set(group["ledger"]["outcomes"]) == {"empty", "missing"}


def test_a_second_process_is_turned_away(tmp_path):
    sums(tmp_path, 3)
    with weather("--hold", "1") as url:
        command = ("run", "sums", "--model", MODEL, "--base-url", url, "--concurrency", "2", "--out", "r")
        running = begun(*command, cwd=tmp_path)
        until_lines(tmp_path / "r" / "rollouts.jsonl", 1)
        second = calipers(*command, cwd=tmp_path)
        running.kill()
        running.communicate()
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.strip() == (
        f"r: another process is running it (pid {running.pid}); wait for it, or choose another --out"
    )


def test_a_full_disk_ends_the_run_with_an_intact_log(tmp_path):
    sums(tmp_path, 400)
    with weather() as url:
        command = ("run", "sums", "--model", MODEL, "--base-url", url, "--out", "r")
        done = on_a_full_disk(*command, cwd=tmp_path)
        assert done.returncode == 3, done.stderr
        assert "rollouts.jsonl: cannot be written (File too large); what was finished before is kept" in done.stderr
        kept = records(tmp_path / "r")  # every line of it is whole
        assert 0 < len(kept) < 400
        assert calipers(*command, cwd=tmp_path).returncode == 0
        assert len(records(tmp_path / "r")) == 400
        assert served(url)["pairs"] == 400


def test_several_benchmarks_and_models_make_one_table(tmp_path):
    sums(tmp_path, 5, "a")
    sums(tmp_path, 7, "b")
    models = ("--model", "openai/x", "--model", "openai/y")
    with weather() as url:
        done = calipers("run", "a", "b", *models, "--base-url", url, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    groups = json.loads(done.stdout)["groups"]
    assert [(group["dataset"], group["model"]) for group in groups] == [
        ("a", "openai/x"),
        ("a", "openai/y"),
        ("b", "openai/x"),
        ("b", "openai/y"),
    ]
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_one_of_several_that_cannot_run_does_not_stop_the_others(tmp_path):
    sums(tmp_path, 5, "a")
    with weather() as url:
        done = calipers("run", "a", "nowhere", "--model", MODEL, "--base-url", url, cwd=tmp_path)
    assert done.returncode == 3
    assert "5 planned" in done.stdout
    assert "note: nowhere · openai/any: " in done.stderr


def test_a_configuration_file_and_a_command_line_that_beats_it(tmp_path):
    sums(tmp_path, 6)
    with weather() as url:
        text = f"benchmark: {{path: sums, num_samples: 2, metrics: [pass@1, avg]}}\nmodel: {MODEL}\nbase_url: {url}\n"
        (tmp_path / "c.yaml").write_text(text)
        done = calipers("run", "c.yaml", "--samples", "3", "--temperature", "1", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert result["dialect"] == "evsys"
    assert list(result["groups"][0]["metrics"]) == ["pass@1", "avg"]
    settings = json.loads((tmp_path / "r" / "plan.json").read_text())["settings"]
    assert settings["samples"] == {"value": 3, "from": "command line"}
    assert settings["max_tokens"] == {"value": 512, "from": "c.yaml"}


def test_a_verifier_from_a_plugin(tmp_path):
    home = tmp_path / "b"
    home.mkdir()
    row = {"task_id": "t", "instruction": "1 + 1", "verifier": {"kind": "in_process", "fn_name": "always"}}
    (home / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "mine.py").write_text(
        "from evsys_sdk.verifiers.fns import register_fn\n"
        "@register_fn('always')\n"
        "def always(model_output, expected, params):\n    return 0.25\n"
    )
    with weather() as url:
        done = calipers(
            "run", "b", "--model", MODEL, "--base-url", url, "--plugin", "mine.py", "--out", "r", cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        said = refused("run", "b", "--model", MODEL, "--base-url", url, "--out", "r2", cwd=tmp_path)
    assert records(tmp_path / "r")[0]["reward"] == 0.25
    assert "no verifier named 'always'" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sums"], "--model: no model; expected --model openai/gpt-4o-mini"),
        (["sums", "--model", "gpt-4o"], "does not start with a kind"),
        (["sums", "--model", "opnai/x"], "did you mean 'openai/x'?"),
        (["nowhere", "--model", MODEL], "no benchmark named 'nowhere'"),
        (["sums", "--model", MODEL, "--samples", "0"], "--samples: is 0; expected an integer >= 1"),
        (["sums", "--model", MODEL, "--metric", "pas@1"], "did you mean 'pass@{k}'"),
        (["sums", "--model", MODEL, "--until", "pass@1 > 3"], "--until: 'pass@1 > 3' cannot be read"),
        (
            ["sums", "--model", MODEL, "--until", "width(pass_rate) < 0.1"],
            "has no interval that is valid at any stopping time",
        ),
        (["sums", "--model", MODEL, "--gen-kwargs", "x"], "--gen-kwargs: 'x' cannot be read"),
        (["sums", "--model", MODEL, "--price", "1"], "--price: is '1'"),
        (["sums", "--model", MODEL, "--sampels", "1"], "no option '--sampels'; did you mean '--samples'"),
        (["sums", "--model", MODEL, "--limit", "0"], "--limit: is 0; expected a number of tasks, or a fraction"),
        (["sums", "--model", MODEL], "OPENAI_API_KEY"),
        (["sums", "--model", MODEL, "--base-url", "http://user:pw@127.0.0.1:9/v1"], "user"),
        (["sums", "--model", MODEL, "--base-url", "http://127.0.0.1:9/v1"], "127.0.0.1:9"),
        (["sums", "--model", "replay/none.jsonl"], "none.jsonl"),
        (["none.yaml"], "none.yaml: cannot be read (No such file or directory)"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, arguments, said):
    sums(tmp_path, 3)
    assert said in refused("run", *arguments, cwd=tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "tasks.jsonl:1: malformed json"),
        ('{"task_id": "t"}', "tasks.jsonl:1: 'instruction' is missing"),
        (
            '{"task_id": "t", "instruction": "q", "verifier": {"kind": "x"}}',
            "tasks.jsonl:1: unknown verifier kind: 'x'",
        ),
    ],
)
def test_a_wrong_benchmark_says_where(tmp_path, line, said):
    home = tmp_path / "b"
    home.mkdir()
    (home / "tasks.jsonl").write_text(line + "\n")
    assert said in refused("run", "b", "--model", f"replay/{ARITH}", cwd=tmp_path)


def test_off_a_terminal_the_last_line_of_progress_says_it_all(tmp_path):
    sums(tmp_path, 12)
    with weather() as url:
        done = calipers("run", "sums", "--model", MODEL, "--base-url", url, "--metric", "pass@1", cwd=tmp_path)
    line = done.stderr.splitlines()[0]
    assert line.startswith("12/12 (100 %)")
    assert "pass@1" in line


def test_the_progress_line_has_the_cost_and_the_retries(tmp_path):
    sums(tmp_path, 12)
    settings = ("--model", MODEL, "--metric", "pass@1", "--price", "100,100")
    with weather("--share", "1", "--kinds", "503") as url:
        done = calipers("run", "sums", *settings, "--base-url", url, cwd=tmp_path)
    line = done.stderr.splitlines()[0]
    assert re.match(r"12/12 \(100 %\), .*in \d+:\d\d, \$\d+\.\d+, 12 retries, pass@1 0\.\d{4}", line), line
    assert len(line) <= 80


def test_a_published_benchmark_runs_by_its_name(tmp_path):
    sums(tmp_path, 4)
    assert calipers("publish", "sums", cwd=tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "sums")
    with weather() as url:
        done = calipers("run", "sums", "--model", MODEL, "--base-url", url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_evsys_client_of_ones_own(tmp_path):
    sums(tmp_path, 4)
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    name = 'mine'\n"
        "    def generate(self, *, prompt, max_tokens=256, temperature=0.0, stop=None):\n"
        "        a, b = prompt.removeprefix('What is ').removesuffix('?').split(' + ')\n"
        "        return str(int(a) + int(b))\n"
    )
    done = calipers("run", "sums", "--model", "python/mine.py:Mine", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["groups"][0]["metrics"]["pass_rate"]["value"] == 1.0
    assert os.listdir(tmp_path / "runs")[0].startswith("sums-python_mine.py_Mine-")


def test_a_comma_is_no_benchmark(tmp_path):
    """The command ended with exit code 2 and without a word."""
    error = refused("run", ",", "--model", MODEL, cwd=tmp_path)
    assert error == "',' is no benchmark; expected a file, a folder or the name of one"
