"""``calipers run`` on tasks of lm-evaluation-harness, as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from cli.running import calipers, refused

MODEL = """
import re
calls = open("calls.txt", "a")

def answer(prompt):
    calls.write("x\\n"); calls.flush()
    a, b = re.findall(r"(\\d+) \\+ (\\d+)", prompt)[-1]
    return f"The answer is {int(a) + int(b)}."
"""
TASK = """\
task: sums
dataset_path: json
dataset_kwargs:
  data_files: {test: data.jsonl, train: data.jsonl}
test_split: test
fewshot_split: train
output_type: generate_until
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: "{{a}}"
repeats: 2
generation_kwargs: {until: ["\\n"], max_gen_toks: 20, temperature: 0.5, do_sample: true}
filter_list:
  - name: strict
    filter:
      - {function: regex, regex_pattern: 'The answer is (\\d+)'}
      - {function: take_first}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0}
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    rows = [{"q": f"What is {i} + {i}?", "a": 2 * i} for i in range(4)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "task.yaml").write_text(TASK)
    return tmp_path


RUN = ("--model", "python/model.py:answer", "--dialect", "native", "--format", "json")


def test_a_metric_that_the_task_does_not_have_is_refused_before_the_first_request(home):
    """Its answers would be paid for, under a live number that is another metric's."""
    run = ("run", "task.yaml", "--model", "python/model.py:answer", "--metric")
    said = refused(*run, "acc", cwd=home)
    assert said == "no reward of sums named 'acc'; known: exact_match, reward"
    assert not (home / "runs").exists()
    assert not (home / "calls.txt").exists() or not (home / "calls.txt").read_text()
    assert calipers(*run, "exact_match", cwd=home).returncode == 0


def test_a_task_file_is_run_as_it_says(home):
    done = calipers("run", "task.yaml", *RUN, "--out", "out", cwd=home)
    assert done.returncode == 0, done.stderr
    [group] = json.loads(done.stdout)["groups"]
    assert (group["dataset"], group["ledger"]["planned"]) == ("sums", 8)  # 4 documents, 2 repeats
    assert group["metrics"]["mean_reward"]["value"] == 1.0
    settings = json.loads((home / "out" / "plan.json").read_text())["settings"]
    assert {key: settings[key]["value"] for key in ("samples", "max_tokens", "temperature", "stop")} == {
        "samples": 2,
        "max_tokens": 20,
        "temperature": 0.5,
        "stop": ["\n"],
    }
    first = json.loads((home / "out" / "rollouts.jsonl").read_text().splitlines()[0])
    assert (first["exact_match,strict"], first["answer"].isdigit()) == (1.0, True)
    again = calipers("run", "task.yaml", *RUN, "--out", "out", cwd=home)
    assert again.stdout == done.stdout
    assert len((home / "calls.txt").read_text().splitlines()) == 8  # nothing was asked twice


def test_the_command_line_beats_the_task(home):
    asked = ("--samples", "1", "--gen-kwargs", "temperature=0,max_gen_toks=5,top_p=0.9", "--num-fewshot", "1")
    done = calipers("run", "sums", "--include-path", ".", *RUN, *asked, "--limit", "2", "--out", "out", cwd=home)
    assert done.returncode == 0, done.stderr
    plan = json.loads((home / "out" / "plan.json").read_text())
    settings = {key: one["value"] for key, one in plan["settings"].items()}
    assert (settings["samples"], settings["temperature"], settings["max_tokens"]) == (1, 0, 5)
    assert settings["gen_kwargs"] == {"top_p": 0.9}
    assert plan["lm_eval"]["config"]["num_fewshot"] == 1
    records = [json.loads(line) for line in (home / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert all(record["prompt"].count("Q: What is") == 2 for record in records)


def test_several_at_once_and_a_group(home):
    for name in ("one", "two"):
        (home / f"{name}.yaml").write_text(f"include: task.yaml\ntask: {name}\nrepeats: 1\n")
    (home / "both.yaml").write_text("group: both\ntask: [one, two]\n")
    done = calipers("run", "both", "sums", "--include-path", ".", *RUN, cwd=home)
    assert done.returncode == 0, done.stderr
    assert [group["dataset"] for group in json.loads(done.stdout)["groups"]] == ["one", "sums", "two"]


def test_predict_only_keeps_answers_and_needs_no_metric(home):
    (home / "task.yaml").write_text(TASK.replace("exact_match", "unheard_of"))
    done = calipers("run", "task.yaml", *RUN, "--predict-only", "--out", "out", "--export", "lm_eval=its", cwd=home)
    assert done.returncode == 0, done.stderr  # answers are all that was asked for
    records = [json.loads(line) for line in (home / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert [record["completion"][:13] for record in records] == ["The answer is"] * 8
    assert all("reward" not in record for record in records)
    [samples] = (home / "its").glob("*/samples_sums_*.jsonl")
    first = json.loads(samples.read_text().splitlines()[0])
    assert (first["metrics"], len(first["resps"][0])) == (["bypass"], 2)


def test_the_result_has_every_number_of_the_table_and_names_of_the_dialect_are_metrics(home):
    asked = ("--model", "python/model.py:answer", "--out", "out", "--format", "json", "--metric", "exact_match")
    done = calipers("run", "task.yaml", *asked, cwd=home)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["groups"][0]["metrics"]["exact_match"]["value"] == 1.0
    [theirs] = told["lm_eval"]
    assert theirs["tasks"]["sums"]["exact_match,strict"]["value"] == 1.0
    assert theirs["tasks"]["sums"]["exact_match,strict"]["interval"][0] < 1.0
    written = json.loads((home / "out" / "result.json").read_text())
    again = json.loads(calipers("score", "out", "--dialect", "lm_eval", "--format", "json", cwd=home).stdout)
    assert written["lm_eval"] == told["lm_eval"] == again["lm_eval"]


def test_an_installed_harness_has_its_tasks_checked_and_is_not_imported(home):
    folder = home / "site" / "lm_eval" / "tasks"
    folder.mkdir(parents=True)
    (home / "site" / "lm_eval" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    shutil.move(home / "task.yaml", folder / "sums.yaml")
    done = calipers(
        "check", "sums", cwd=home, PYTHONPATH=f"{home / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )
    assert (done.returncode, done.stdout) == (0, "sums: generate_until, 4 documents, 2 repeats, 0 examples\n"), (
        done.stderr
    )


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text + BOMB, "task.yaml:27: its aliases expand to more than the limit"),
        (lambda text: "include: task.yaml\n" + text, "task.yaml:1: include: task.yaml is included twice"),
        (
            lambda text: text.replace("{{q}}", "{{question}}"),
            "task.yaml:8: doc_to_text: document 0: the template fails:",
        ),
        (
            lambda text: text.replace("Q: {{q}}", "{% for %}"),
            "task.yaml:8: doc_to_text: document 0: line 1 of the template",
        ),
        (
            lambda text: text.replace("Q: {{q}}", "{% for i in range(99999) %}{{ q * 9999 }}{% endfor %}"),
            "task.yaml:8: doc_to_text: document 0: the template fails: it makes a text of",
        ),
        (
            lambda text: text + "doc_to_choice: [a, b]\n",
            "task.yaml:9: doc_to_target: document 1: the target is choice 2",
        ),
        (
            lambda text: text + "doc_to_txt: q\n",
            "task.yaml:20: doc_to_txt: no field of a task named 'doc_to_txt'; did you",
        ),
        (
            lambda text: text.replace("take_first", "take_frist"),
            "task.yaml:12: filter_list[0]: no lm_eval filter named",
        ),
        (lambda text: text.replace("exact_match", "exact_macth"), "task.yaml:17: metric_list: no lm_eval metric named"),
        (lambda text: text.replace("mean,", "meen,"), "task.yaml:17: metric_list: "),
        (
            lambda text: text + "scorer: choice_mach\n",
            "task.yaml:20: scorer: no scorer named 'choice_mach'; did you mean",
        ),
        (lambda text: text.replace("(\\d+)'", "(\\d+'"), "task.yaml:12: filter_list[0]: pattern"),
        (
            lambda text: text.replace("test_split: test", "test_split: dev"),
            "task.yaml:2: dataset_path: the dataset has no",
        ),
        (lambda text: text.replace("data.jsonl", "gone.jsonl"), "task.yaml:3: dataset_kwargs.data_files: no file gone"),
        (lambda text: text + "process_docs: !function utils.f\n", "task.yaml:20: process_docs: is !function utils.f"),
        (lambda text: text.replace("generate_until", "multiple_choice"), "task.yaml:7: output_type: a multi"),
    ],
)
def test_bad_input_is_one_line_with_file_and_key_before_any_call(home, change, said):
    (home / "task.yaml").write_text(change(TASK))
    error = refused("run", "task.yaml", *RUN, cwd=home)
    assert error.removeprefix("Error: ").startswith(said), error
    assert not (home / "calls.txt").exists()


def test_a_name_that_is_none_is_told_the_nearest(home):
    assert "no task, group or tag named 'sms'; did you mean 'sums'?" in refused(
        "run", "sms", "--include-path", ".", *RUN, cwd=home
    )


def test_check_reads_everything_and_asks_nobody(home):
    done = calipers("check", "task.yaml", cwd=home)
    assert (done.returncode, done.stdout) == (0, "sums: generate_until, 4 documents, 2 repeats, 0 examples\n")
    (home / "task.yaml").write_text(TASK.replace("{{q}}", "{{question}}"))
    assert refused("check", "task.yaml", cwd=home).startswith(
        "task.yaml:8: doc_to_text: document 0: the template fails:"
    )


RECORDED = Path(__file__).parents[1] / "golden" / "lm_eval" / "e2e" / "gen_repeats"
CLIENT = """
import json
from calipers.clients import Completion

SAID = {(str(one["doc_id"]), one["repeat"]): one["response"] for one in map(json.loads, open("fixtures.jsonl"))}


class Recorded:
    async def complete(self, request):
        return Completion(SAID[request.task, request.sample])

    async def close(self):
        pass
"""


def test_the_recorded_responses_give_its_own_table_and_files_that_are_read_back(tmp_path):
    """End to end: task file, live run, filters, scores, numbers, table; equal to what lm-eval printed."""
    for path in (*(RECORDED / "inputs").iterdir(), RECORDED / "fixtures.jsonl"):
        shutil.copy(path, tmp_path)
    (tmp_path / "client.py").write_text(CLIENT)
    command = ("run", "task.yaml", "--model", "python/client.py:Recorded")
    done = calipers(*command, "--format", "md", "--export", "lm_eval=theirs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (RECORDED / "table.txt").read_text()
    shown = calipers(*command, cwd=tmp_path).stdout
    assert "e2e_gen_repeats exact_match,maj@5 0.3750, 95% interval [0.1368, 0.6943], 8 documents" in shown
    (samples,) = (tmp_path / "theirs").rglob("samples_*.jsonl")
    again = calipers("score", str(samples), "--dialect", "lm_eval", "--format", "md", cwd=tmp_path)
    assert again.stdout == done.stdout
    (results,) = (tmp_path / "theirs").rglob("results_*.json")
    expected = json.loads((RECORDED / "results.json").read_text())["results"]["e2e_gen_repeats"]
    found = json.loads(results.read_text())["results"]["e2e_gen_repeats"]
    assert list(found) == list(expected)
    numbers = {key: value for key, value in expected.items() if isinstance(value, float)}
    assert {key: found[key] for key in numbers} == pytest.approx(numbers, rel=1e-9)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("harbor", "no system to export a run to named 'harbor'; known: lm_eval"),
        ("lm_evl", "no system to export a run to named 'lm_evl'; did you mean 'lm_eval'?"),
        ("lm_eval=", "--export: 'lm_eval=' has no folder; expected lm_eval, or lm_eval=DIR"),
    ],
)
def test_what_cannot_be_exported(tmp_path, asked, said):
    assert said in refused("run", "x", "--model", "openai/m", "--export", asked, cwd=tmp_path)
