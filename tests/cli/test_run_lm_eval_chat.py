"""``calipers run --apply-chat-template``: what a model is handed, and what is kept of it.

Turns and hashes are those that lm-evaluation-harness 0.4.13 wrote for the same task and a chat server.
"""

from __future__ import annotations

import json

import pytest
from cli.running import calipers, refused

TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
description: "Do {{k}}.\\n\\n"
doc_to_text: q
doc_to_target: a
gen_prefix: "So"
num_fewshot: 1
fewshot_config: {samples: [{q: 1+1, a: "2", k: x}]}
metric_list: [{metric: exact_match}]
"""
MODEL = """
import json
def answer(messages):
    with open("seen.jsonl", "a") as seen:
        seen.write(json.dumps(messages) + "\\n")
    return "4"
"""
RUN = ("run", "sums.yaml", "--model", "python/model.py:answer", "--out", "out", "--concurrency", "1")
CHAT = ("--apply-chat-template", "--system-instruction", "Be brief.")
SYSTEM = {"role": "system", "content": "Be brief.\n\nDo sums.\n\n"}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.jsonl").write_text('{"q": "2+2", "a": "4", "k": "sums"}\n')
    (tmp_path / "sums.yaml").write_text(TASK)
    return tmp_path


def turns(*contents):
    return [{"role": ("user", "assistant")[place % 2], "content": content} for place, content in enumerate(contents)]


@pytest.mark.parametrize(
    ("more", "expected", "hashed"),
    [
        (
            (),
            [SYSTEM, *turns("1+1", "So 2", "2+2", "So")],
            "1cef3ffb3c2afa29c140bb83faa4b441509181bb0935e76a50437c16f076516b",
        ),
        (
            ("--no-fewshot-as-multiturn",),
            [SYSTEM, *turns("1+1 So 2\n\n2+2", "So")],
            "2c588d0cc6554fcc8b9f7192aa3fb771cb7e37c3b3ffaee0dada07b2066572fb",
        ),
    ],
)
def test_a_chat_is_asked_exported_and_scored_again_as_lm_eval_does_it(home, more, expected, hashed):
    done = calipers(*RUN, *CHAT, *more, "--export", "lm_eval=files", cwd=home)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in (home / "seen.jsonl").read_text().splitlines()] == [expected]
    [samples] = home.glob("files/*/samples_sums_*.jsonl")
    sample = json.loads(samples.read_text())
    assert sample["arguments"]["gen_args_0"]["arg_0"] == [json.dumps(expected)]
    assert sample["prompt_hash"] == hashed
    [results] = home.glob("files/*/results_*.json")
    told = json.loads(results.read_text())
    assert (told["fewshot_as_multiturn"], told["system_instruction"], told["chat_template"]) == (
        not more,
        "Be brief.",
        "",
    )
    again = calipers("score", "out", "--dialect", "lm_eval", "--format", "md", cwd=home)
    assert again.returncode == 0, again.stderr
    assert "|exact_match|↑  |    1|" in again.stdout
    assert "changed after the run" not in again.stderr  # the prompts are made again in the same turns


def test_the_instruction_stands_in_the_text_where_there_is_no_chat(home):
    (home / "model.py").write_text(MODEL.replace("messages", "prompt"))
    done = calipers(*RUN, *CHAT[1:], cwd=home)
    assert done.returncode == 0, done.stderr
    assert json.loads((home / "seen.jsonl").read_text()) == "Be brief.\n\nDo sums.\n\n1+1 So 2\n\n2+2 So"
    assert (
        "changed after the run"
        not in calipers("score", "out", "--dialect", "lm_eval", "--format", "md", cwd=home).stderr
    )


def test_a_chat_is_another_run_than_the_text(home):
    (home / "sums.yaml").write_text(
        TASK.replace('description: "Do {{k}}.\\n\\n"\n', "").replace("num_fewshot: 1", "num_fewshot: 0")
    )
    assert calipers(*RUN, "--apply-chat-template", cwd=home).returncode == 0
    done = calipers(*RUN, cwd=home)
    assert (done.returncode, "out" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        (["sums.yaml", "--fewshot-as-multiturn"], "--fewshot-as-multiturn: needs a chat template"),
        (
            ["sums.yaml", "--apply-chat-template", "--api", "completions"],
            "--apply-chat-template: the completions route",
        ),
        (["sums.yaml", "--apply-chat-template=x"], "--apply-chat-template: 'x' was read as the name"),
        (["--apply-chat-template", "sums.yaml"], "missing argument 'BENCHMARK...'"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_call(home, asked, wrong):
    assert refused("run", *asked, "--model", "python/model.py:answer", cwd=home).startswith(wrong)


def test_another_benchmark_has_no_such_options(home):
    (home / "own").mkdir()
    (home / "own" / "tasks.jsonl").write_text('{"id": "a", "prompt": "q", "target": "a", "verifier": "exact_match"}\n')
    told = refused("run", "own", "--model", "python/model.py:answer", "--system-instruction", "x", cwd=home)
    assert told.startswith("--system-instruction: is only for tasks of lm-evaluation-harness, and own is not one")
