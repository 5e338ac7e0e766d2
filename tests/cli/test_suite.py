"""``calipers run suite.yaml`` as a user types it: with real servers; killed and resumed, interrupted, and wrong."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from contextlib import contextmanager

import pytest
from cli.running import begun, calipers, lines, refused
from running.loopback import chat_model
from waiting import PATIENCE, until

SIZES = {"easy": 12, "hard": 16, "odd": 8}


@pytest.fixture
def home(tmp_path):
    for name, size in SIZES.items():
        rows = [{"id": f"{name}-{n}", "question": f"{name} {n}", "answer": str(n)} for n in range(size)]
        lines(tmp_path, *rows, name=f"{name}.jsonl")
    return tmp_path


class Model:
    """A server that answers with the number in the question, and records its questions and its greatest concurrency."""

    def __init__(self, wrong=0):
        self.asked = Counter()
        self.wrong = wrong  # n: every n-th question is answered wrongly; 0: none
        self.hold = threading.Event()  # answers wait for it
        self.hold.set()
        self.hold_from = None  # questions from this one on wait
        self.now = self.most = 0
        self._lock = threading.Lock()

    def answer(self, prompt):
        with self._lock:
            self.asked[prompt] += 1
            self.now += 1
            self.most = max(self.most, self.now)
            waits = self.hold_from is not None and self.asked.total() > self.hold_from
        if waits:
            self.hold.wait(PATIENCE)
        with self._lock:
            self.now -= 1
        number = int(prompt.split()[1])
        return "none" if self.wrong and number % self.wrong == 0 else str(number)


@contextmanager
def models(home, *, gate="", more="", **settings):
    """Two models, each with its server, and the suite of both."""
    good, bad = Model(), Model(wrong=3)
    with chat_model(good.answer) as one, chat_model(bad.answer) as two:
        concurrency = {"good": 4, "bad": 1, **settings}
        (home / "suite.yaml").write_text(
            "benchmarks:\n  - easy.jsonl\n  - {benchmark: hard.jsonl, samples: 2}\n  - odd.jsonl\n"
            "models:\n"
            f"  - {{model: openai/good, base_url: '{one}', concurrency: {concurrency['good']}}}\n"
            f"  - {{model: openai/bad, base_url: '{two}', concurrency: {concurrency['bad']}}}\n"
            f"verifier: exact_match\nout: out\n{more}{gate}"
        )
        try:
            yield good, bad
        finally:
            good.hold.set()
            bad.hold.set()


def started(home):
    """Start the suite in a process of its own."""
    return begun("run", "suite.yaml", cwd=home, OPENAI_API_KEY="none")


def run(home, *arguments):
    return calipers("run", "suite.yaml", *arguments, cwd=home, OPENAI_API_KEY="none")


def records(home):
    """The number of times that each rollout is in the logs, by model."""
    found = Counter()
    for path in (home / "out").glob("*/rollouts.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["model"], row["task"], row["sample"]] += 1
    return found


PLANNED = 12 + 2 * 16 + 8


def test_a_suite_ends_with_matrix_gate_and_exit_code(home):
    with models(home, gate="gate: [mean_reward >= 0.5, {require: mean_reward >= 0.9, model: openai/good}]\n"):
        done = run(home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 benchmarks, 2 models")
    assert done.stdout.index("macro mean") < done.stdout.index("mean_reward >= 0.5")
    matrix = json.loads((home / "out" / "matrix.json").read_text())
    assert [row["benchmark"] for row in matrix["benchmarks"]] == ["easy", "hard", "odd"]
    assert [column["model"] for column in matrix["models"]] == ["openai/good", "openai/bad"]
    assert matrix["mean"]["verdict"] == "worse"
    assert json.loads((home / "out" / "gate.json").read_text())["schema"] == "calipers.gate/1"
    assert set(records(home).values()) == {1}
    assert sum(records(home).values()) == 2 * PLANNED


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("gate: [mean_reward >= 0.9]\n", 1),
        ("gate: {critical: [mean_reward >= 0.1], advisory: [mean_reward >= 0.9]}\n", 0),
        ("gate: {baseline: openai/good, critical: [lower(delta(mean_reward)) >= -0.1]}\n", 1),
        ("gate: {baseline: openai/bad, critical: [delta(mean_reward) >= 0.1]}\n", 0),
        ("gate: [pass@9 >= 0.5]\n", 3),  # no task has 9 samples, and a gate never passes without an answer
    ],
)
def test_the_exit_code_is_that_of_the_gate(home, gate, code):
    with models(home, gate=gate):
        done = run(home)
    assert done.returncode == code, done.stderr + done.stdout


def test_models_run_at_the_same_time_each_within_its_own_limits(home):
    """The good model waits with its second answer for a question to the other, so sequential runs would never end."""
    with models(home) as (good, bad):
        good.hold.clear()
        good.hold_from = 1  # the first request is sent alone
        process = started(home)
        until(lambda: bad.asked.total() > 1, "requests to the other model")
        until(lambda: good.now > 1, "several requests at once")
        good.hold.set()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert 1 < good.most <= 4
    assert bad.most == 1


def test_killed_in_the_middle_and_run_again_nothing_is_lost_and_nothing_twice(home):
    with models(home) as (good, bad):
        good.hold_from, bad.hold_from = 9, 5
        good.hold.clear()
        bad.hold.clear()
        process = started(home)
        until(lambda: sum(records(home).values()) >= 9 + 5 - 1 and good.now and bad.now, "rollouts of both models")
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        before = records(home)
        good.hold.set()
        bad.hold.set()
        asked = good.asked.total() + bad.asked.total()
        done = run(home)
        again = good.asked.total() + bad.asked.total() - asked
    assert done.returncode == 0, done.stderr
    assert set(before.values()) == {1}
    assert set(records(home).values()) == {1}
    assert sum(records(home).values()) == 2 * PLANNED
    assert again == 2 * PLANNED - sum(before.values())  # rollouts in the logs were not requested again
    assert "0 missing" not in done.stderr
    third = run(home)
    assert third.stdout == done.stdout


def test_an_interrupted_suite_finishes_what_is_in_flight_and_says_how_to_go_on(home):
    with models(home) as (good, bad):
        good.hold_from, bad.hold_from = 3, 3
        good.hold.clear()
        bad.hold.clear()
        process = started(home)
        until(lambda: good.now and bad.now and sum(records(home).values()) >= 6, "requests in flight of both models")
        process.send_signal(signal.SIGINT)
        good.hold.set()
        bad.hold.set()
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 3, errors
        assert errors.count(b"stopped early: interrupted; run the same command again to resume") == 2
        assert sum(records(home).values()) < 2 * PLANNED
        done = run(home)
    assert done.returncode == 0, done.stderr
    assert set(records(home).values()) == {1}
    assert sum(records(home).values()) == 2 * PLANNED


def test_a_benchmark_that_cannot_run_leaves_the_others_and_the_exit_code(home):
    with models(home):
        text = (home / "suite.yaml").read_text().replace("odd.jsonl", "nowhere.jsonl")
        (home / "suite.yaml").write_text(text)
        done = run(home)
    assert done.returncode == 3
    assert "nowhere.jsonl: no such file" in done.stderr
    assert done.stdout.startswith("2 benchmarks, 2 models")


def test_a_baseline_that_cannot_run_leaves_the_matrix_and_the_gate_unchecked(home):
    code = "import re\n\ndef good(prompt):\n    return re.findall('[0-9]+', prompt)[-1]\n"
    (home / "calculators.py").write_text(code)
    gate = "gate:\n  baseline: python/calculators.py:godo\n  critical: [lower(delta(mean_reward)) >= -0.5]\n"
    models = "models: ['python/calculators.py:godo', 'python/calculators.py:good']\n"
    (home / "suite.yaml").write_text(f"benchmarks: [easy.jsonl]\n{models}{gate}")
    done = calipers("run", "suite.yaml", "--verifier", "numeric_match", cwd=home)
    assert done.returncode == 3
    assert "it has no 'godo'; did you mean 'good'?" in done.stderr
    assert "note: the gate was not checked: its baseline python/calculators.py:godo has no run" in done.stderr
    assert "python/calculators.py:good" in done.stdout


def test_a_dry_run_shows_the_plan_and_sends_nothing(home):
    with models(home, gate="gate: [mean_reward >= 0.5]\n") as (good, bad):
        done = run(home, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"suite.yaml: 3 benchmarks, 2 models, 6 runs, {2 * PLANNED} rollouts" in done.stdout
    assert "The gate checks 1 rule: mean_reward >= 0.5 (critical)." in done.stdout
    assert not good.asked
    assert not bad.asked
    assert not (home / "out").exists()


def test_options_of_the_command_come_before_the_file(home):
    with models(home) as (good, bad):
        done = run(home, "--limit", "2", "--samples", "1")
    assert done.returncode == 0, done.stderr
    assert good.asked.total() == bad.asked.total() == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("benchmarks: [a]\nsamples: 2\nmodles: [m]\n", "suite.yaml:3: no key named 'modles'; did you mean 'models'?"),
        ("benchmarks: [a]\nmodels:\n  - {model: m, base_ulr: x}\n", "suite.yaml:3: no key named 'base_ulr'; did you"),
        ("benchmarks: [a, a]\nmodels: [m]\n", "suite.yaml:1: benchmark 'a' appears twice; expected it once"),
        ("benchmarks: [a]\n", "suite.yaml: no model; expected models: [openai/gpt-4o-mini]"),
        ("benchmarks: [a]\nbenchmark: b\nmodels: [m]\n", "suite.yaml:1: benchmark and benchmarks mean the same"),
        ("benchmarks: [3]\nmodels: [m]\n", "suite.yaml:1: benchmarks has 3; expected data/arith, or {benchmark:"),
        ("benchmarks: [a]\nmodels: [m]\ngate: [mean_reward]\n", "suite.yaml:3: gate: critical[0]: 'mean_reward'"),
        ("benchmarks: [a]\nmodels: [m]\ngate:\n  critcal: []\n", "suite.yaml:4: no key of a gate named 'critcal'; did"),
        ("benchmarks: [a]\nmodels: [m]\ngate: [delta(mean_reward) > 0]\n", "needs a baseline; add baseline: MODEL"),
        (
            "benchmarks: [a]\nmodels: [m, n]\ngate:\n  baseline: o\n  critical: [delta(mean_reward) > 0]\n",
            "suite.yaml:4: no model in this suite named 'o'; known: m, n",
        ),
        ("benchmarks: [a\n", "suite.yaml:2: is not valid YAML"),
        ("benchmark: [a, {benchmark: b}]\nmodels: [m]\n", "suite.yaml:2: models is for a suite, and benchmark has"),
        (  # found before a request is paid for
            "benchmarks: [a]\nmodels: [m]\ngate:\n  critical: [lower(mean_rewrd) > 0]\n",
            "suite.yaml:4: 'lower(mean_rewrd) > 0': no metric named 'mean_rewrd'; did you mean 'mean_reward'?",
        ),
        (
            "benchmarks: [a, {benchmark: b, dialect: evsys}]\nmodels: [m]\ngate: [solved_rate > 0]\n",
            "suite.yaml:3: 'solved_rate > 0': no evsys metric named 'solved_rate'",
        ),
    ],
)
def test_a_wrong_suite_is_a_line_and_nothing_runs(tmp_path, text, message):
    (tmp_path / "suite.yaml").write_text(text)
    assert message in refused("run", "suite.yaml", cwd=tmp_path)


def test_a_suite_is_run_alone(tmp_path):
    (tmp_path / "suite.yaml").write_text("benchmarks: [a]\nmodels: [m]\n")
    assert "is a suite, and other benchmarks are given" in refused("run", "suite.yaml", "b.jsonl", cwd=tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "words"), [("zero", "gap", ["failed", "undefined"]), ("gap", "zero", ["undefined", "failed"])]
)
def test_the_gate_scores_each_run_by_its_own_settings(tmp_path, first, second, words):
    """Half of the rollouts are missing, and all others pass: the answer depends on what a missing one counts."""
    (tmp_path / "model.py").write_text(
        "def half(prompt):\n"
        "    if int(prompt.split()[0]) % 2:\n"
        "        raise RuntimeError('down')\n"
        "    return prompt.split()[0]\n"
    )
    for name in ("p", "q"):
        rows = [{"id": f"{name}{n}", "question": f"{n} is?", "answer": str(n)} for n in range(20)]
        lines(tmp_path, *rows, name=f"{name}.jsonl")
    (tmp_path / "suite.yaml").write_text(
        f"benchmarks: [{{benchmark: p.jsonl, missing: {first}}}, {{benchmark: q.jsonl, missing: {second}}}]\n"
        "models: [python/model.py:half]\n"
        "gate: [mean_reward >= 0.6]\n"
        "out: runs\n"
    )
    done = calipers("run", "suite.yaml", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    gate = json.loads((tmp_path / "runs" / "gate.json").read_text())
    assert [(check["dataset"], check["word"]) for check in gate["checks"]] == [("p", words[0]), ("q", words[1])]
