"""Tasks written as classes, with a stand-in for lm_eval; `real_classes` runs classes of the real library."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import calipers, refused
from clients.likely import Model
from running.scene import records
from systems.lm_eval.tasks.classes import write_classes, write_documents, write_stand_in
from systems.lm_eval.test_likelihood_runs import likely

from calipers.errors import InputError, PluginError
from calipers.running.library import CheckedTask
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, checked, nodes_of, settings, suite
from calipers.systems.lm_eval.tasks.loaded import requests
from calipers.systems.lm_eval.tasks.prompts import Manner

HERE = importlib.util.find_spec("lm_eval") is not None
MODEL = Model(bos=True)
PATHS = "PYTHONPATH"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of class tasks; the stand-in for lm_eval can be imported in this and in other processes."""
    write_classes(tmp_path)
    if not HERE:
        stand_in = str(write_stand_in(tmp_path / "stand_in"))
        monkeypatch.syspath_prepend(stand_in)
        monkeypatch.setenv(PATHS, stand_in, prepend=":")
    yield tmp_path
    for name in [name for name in sys.modules if name == "lm_eval" or name.startswith("lm_eval.")]:
        if not HERE:
            del sys.modules[name]


def task(home, name="quiz", **more):
    return LoadedTasks().task(str(home / f"{name}.yaml"), name, TaskRequest(trust=True, **more))


def test_a_class_makes_its_documents_and_its_requests_in_the_order_of_idx(home):
    made = task(home)
    assert [doc["id"] for doc in made.docs] == [0, 1, 2, 3]
    first = [(one.request_type, one.idx, one.args) for one in requests(made) if one.doc_id == 0]
    assert first == [
        ("generate_until", 0, ("Say 0: the cat 0 is", {"until": ["."], "max_gen_toks": 7})),
        ("loglikelihood", 1, ("Say 0: the cat 0 is", " not")),
    ]
    assert made.own.instance.seeds[-1] == 1234
    assert made.config.version == 3


def test_the_prompt_of_a_document_holds_every_request_with_its_settings(home):
    made = suite(task(home))
    assert made.tasks[1].prompt == [
        {"prompt": "Say 0: the cat 1 is", "max_tokens": 7, "temperature": 0.0, "stop": ["."]},
        {"context": "Say 0: the cat 1 is", "continuations": [" not"]},
    ]
    assert made.tasks[1].target == " A"
    assert made.metadata["lm_eval"]["class"] == "Quiz"


def test_examples_and_chats_are_asked_of_the_class(home):
    made = task(home, "writer", num_fewshot=2, manner=Manner(chat=True))
    assert requests(made)[0].args[0] == [{"role": "user", "content": "Say 2: the cat 0 is"}]
    assert made.config.num_fewshot == 2


def test_check_tells_of_a_class(home):
    assert checked(str(home / "quiz.yaml"), TaskRequest(trust=True)) == [CheckedTask("quiz", "class Quiz", 4, 1, 0, [])]


def test_an_aggregation_that_fails_is_said_before_the_first_call(home):
    (task,) = checked(str(home / "costly.yaml"), TaskRequest(trust=True))
    assert task.notes[-1].endswith("the aggregation of pair failed (OSError: the metric is to be downloaded)")


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("broken", PluginError, r"code_of_it\.Broken cannot be created: RuntimeError: no dataset here$"),
        ("pictures", InputError, "needs images; expected a task of plain text"),
        ("nothing", PluginError, "has no eval_docs; expected a subclass of lm_eval's Task"),
    ],
)
def test_a_class_that_cannot_be_run(home, name, error, said):
    with pytest.raises(error, match=said):
        task(home, name)


def test_requests_that_are_none(home):
    with pytest.raises(PluginError, match="construct_requests returned str; expected lm_eval's Instance"):
        suite(task(home, "odd"))


def test_a_class_is_not_loaded_without_trust(home):
    place = home / "quiz.yaml"
    said = refused("run", "quiz.yaml", "--model", "openai/any", "--base-url", "http://127.0.0.1:9/v1", cwd=home)
    assert said.startswith("quiz.yaml:2: class: is !function code_of_it.Quiz, code from the task; read it first,")
    assert [one["lm_eval"] for one in settings(str(place), TaskRequest())] == [
        "quiz"
    ]  # planned without running anything
    assert nodes_of(str(place))[0].code.name == "Quiz"


@pytest.mark.skipif(HERE, reason="lm_eval is installed")
def test_without_lm_eval_one_line_says_so(tmp_path):
    write_classes(tmp_path)
    said = refused("check", "quiz.yaml", "--trust", cwd=tmp_path)
    assert said == (
        "quiz.yaml:2: class: !function code_of_it.Quiz is a class of lm-evaluation-harness, which is not installed; "
        "install lm_eval to run it"
    )


def test_a_run_asks_scores_and_reports_as_the_class_says(home):
    with likely("--bos") as url:
        asked = ["--model", "openai/any", "--base-url", url, "--trust"]
        done = calipers("run", "quiz.yaml", *asked, "--out", "r", "--export", "lm_eval=theirs", cwd=home)
        assert done.returncode == 0, done.stderr
        plain = calipers("run", "writer.yaml", *asked, "--out", "w", cwd=home)
        assert plain.returncode == 0, plain.stderr
    rows = {int(row["task"]): row for row in records(home / "r")}
    said, expected = {}, {}
    for number, row in rows.items():
        text, line = json.loads(row["completion"])
        said[number] = text["text"]
        expected[number] = MODEL.likelihood(f"Say 0: the cat {number} is", " not")[0]
        assert line["logprob"] == pytest.approx(expected[number], rel=1e-12)
    assert sorted(said) == [0, 1, 2, 3]
    (results,) = (home / "theirs").rglob("results_*.json")
    row = json.loads(results.read_text())
    right = [text == " A" for text in said.values()]
    assert row["results"]["quiz"]["right,none"] == sum(right) / 4
    assert row["results"]["quiz"]["refusal,none"] == pytest.approx(max(expected.values()))
    assert row["results"]["quiz"]["pair,none"] == sum(right)
    assert row["results"]["quiz"]["refusal_stderr,none"] == "N/A"
    assert row["higher_is_better"]["quiz"] == {"right": True, "refusal": False, "pair": True}
    assert row["versions"]["quiz"] == 3
    assert "config_source" not in row["configs"]["quiz"]["metadata"]
    assert {row["completion"] for row in records(home / "w")} == set(said.values())  # the text itself, and no JSON
    again = calipers("score", "r", "--dialect", "lm_eval", "--trust", "--format", "md", cwd=home)
    assert again.returncode == 0, again.stderr
    assert "|right " in again.stdout
    assert "no interval (the task's class computes it over all documents" in done.stdout


@pytest.mark.skipif(not HERE, reason="lm_eval is not installed; this one compares with it")
def test_real_classes_give_what_they_give_there(tmp_path):
    for name in ("hazyresearch/based-fda", "hazyresearch/based-swde-v2", "hazyresearch/based-squad"):
        write_documents(tmp_path / name, {"validation": 5})  # which the library takes for the dataset of that name
    script = [sys.executable, str(Path(__file__).with_name("real_classes.py")), "fda", "swde", "squad_completion"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for name, sides in json.loads(done.stdout.splitlines()[-1]).items():
        assert sides["ours"] == sides["theirs"], name
        assert len(sides["ours"]["requests"]) == 5


def test_settings_of_lm_eval_are_shown_in_the_requests_for_text_alone(home):
    asked = ("--tasks", "quiz.yaml", "--trust", "--gen_kwargs", "temperature=0.5", "--output_path", "out", "-s")
    calipers("lm-eval", "--model", "dummy", *asked, cwd=home)
    (samples,) = (home / "out").rglob("samples_quiz_*.jsonl")
    first = json.loads(samples.read_text().splitlines()[0])["arguments"]
    shown = {"until": ["."], "max_gen_toks": 7, "temperature": 0.5}
    assert first["gen_args_0"] == {"arg_0": "Say 0: the cat 0 is", "arg_1": shown}
    assert first["gen_args_1"] == {"arg_0": "Say 0: the cat 0 is", "arg_1": " not"}
