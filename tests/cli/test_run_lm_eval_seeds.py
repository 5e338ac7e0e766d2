"""``calipers run`` on tasks with random code: in every run, the prompts that are sent are those that are scored."""

from __future__ import annotations

import json
import random

import pytest
from cli.running import calipers, refused

TASK = """\
task: quiz
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
process_docs: !function utils.process_docs
doc_to_text: "{{q}}"
doc_to_target: answer
doc_to_choice: choices
output_type: multiple_choice
metric_list: [{metric: acc}]
"""
# as GPQA's code does: the global random generator determines the position of the right answer
UTILS = """
import random
open("loads.txt", "a").write("x")

def process_docs(docs):
    open("loads.txt", "a").write(".")
    found = []
    for doc in docs:
        choices = [doc["right"], "no 1", "no 2", "no 3"]
        random.shuffle(choices)
        found.append(dict(doc, choices=choices, answer=choices.index(doc["right"])))
    return found
"""
MODEL = """
from calipers.clients import Scored

calls = open("calls.txt", "a")

class Sure:
    def score(self, requests):
        calls.write("x" * len(requests)); calls.flush()
        return [Scored(-1.0 if "yes" in one.continuation else -9.0, True, 1) for one in requests]

model = Sure()
"""
RUN = ("run", "quiz.yaml", "--trust", "--model", "python/model.py:model")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "utils.py").write_text(UTILS)
    (tmp_path / "quiz.yaml").write_text(TASK)
    rows = [{"q": f"q{i}", "right": f"yes {i}"} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def hashes(run):
    return json.loads((run / "plan.json").read_text())["lm_eval"]["document_hashes"]


def test_a_model_that_is_always_right_is_right_in_every_number(home):
    done = calipers(*RUN, "--export", "lm_eval=theirs", "--format", "json", cwd=home)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["groups"][0]["metrics"]["mean"]["value"] == 1.0
    assert result["lm_eval"][0]["tasks"]["quiz"]["acc,none"]["value"] == 1.0
    [samples] = (home / "theirs").rglob("samples_quiz_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    for row in rows:
        asked = [row["arguments"][f"gen_args_{place}"]["arg_1"] for place in range(4)]
        assert asked == [f" {choice}" for choice in row["doc"]["choices"]]
        assert (row["acc"], int(row["target"])) == (1.0, row["doc"]["answer"])
    assert (home / "loads.txt").read_text().count("x") == 1


def test_the_same_command_goes_on_with_the_same_run(home):
    for _ in range(2):
        assert calipers(*RUN, cwd=home).returncode == 0
    assert len(list((home / "runs").iterdir())) == 1
    assert (home / "calls.txt").stat().st_size == 8 * 4


def test_a_task_is_loaded_once_for_all_models(home):
    (home / "other.py").write_text(MODEL)
    done = calipers(*RUN, "--model", "python/other.py:model", cwd=home)
    assert done.returncode == 0, done.stderr
    # once to see that it draws, once more after the examples it might have used
    assert (home / "loads.txt").read_text() == "x.."


def test_other_seeds_are_other_documents_and_are_said_instead_of_mixed(home):
    assert calipers(*RUN, "--out", "out", cwd=home).returncode == 0
    told = refused(*RUN, "--out", "out", "--load-seeds", "1,2,3,4", cwd=home)
    assert told.startswith("out: ")
    assert " of its 8 documents differ from those of the run (" in told
    assert told.endswith("; expected the same data files, task code and --load-seeds, or another --out")
    assert calipers(*RUN, "--out", "new", "--load-seeds", "1,2,3,4", cwd=home).returncode == 0
    assert hashes(home / "new") != hashes(home / "out")
    settings = json.loads((home / "new" / "plan.json").read_text())["settings"]
    assert settings["load_seeds"] == {"value": [1, 2, 3, 4], "from": "command line"}


def test_a_new_run_beside_one_on_other_documents_says_so(home):
    first = calipers(*RUN, cwd=home)
    done = calipers(*RUN, "--load-seeds", "7", cwd=home)
    assert done.returncode == 0, done.stderr
    assert len(list((home / "runs").iterdir())) == 2
    assert "starting a new run, because runs/quiz-python_model.py_model-" in done.stderr
    assert "starting a new run" not in first.stderr + calipers(*RUN, cwd=home).stderr


def test_no_report_on_other_documents(home):
    (home / "plain.yaml").write_text(TASK.replace("process_docs: !function utils.process_docs\n", ""))
    rows = [{"q": f"q{i}", "choices": ["no", "yes"], "answer": 1} for i in range(4)]
    (home / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = ("run", "plain.yaml", "--model", "python/model.py:model", "--out", "out")
    assert calipers(*run, cwd=home).returncode == 0
    score = ("score", "out", "--dialect", "lm_eval")
    before = calipers(*score, "--format", "md", cwd=home)
    assert before.returncode == 0, before.stderr
    rows[2]["answer"] = 0
    (home / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = refused(*score, "--format", "md", cwd=home)
    assert told.startswith("out: 1 of its 4 documents differ from those of the run (2); expected the same data files")
    noted = calipers(*score, "--format", "json", cwd=home)
    assert "1 of its 4 documents differ from those of the run (2)" in noted.stderr
    assert "lm_eval" not in json.loads(noted.stdout)


def test_the_seeds_stand_in_a_configuration_of_ours_too(home):
    (home / "ours.yaml").write_text(
        "benchmark: quiz.yaml\nmodel: python/model.py:model\ntrust: true\nload_seeds: [1, 2, 3, 4]\nout: ours\n"
    )
    done = calipers("run", "ours.yaml", cwd=home)
    assert done.returncode == 0, done.stderr
    assert calipers(*RUN, "--out", "typed", "--load-seeds", "1,2,3,4", cwd=home).returncode == 0
    assert hashes(home / "ours") == hashes(home / "typed")


@pytest.mark.parametrize("seeds", ["1,2", "a,b,c,d", "-1,0,0,0", "0,4294967296,0,0", "", "1,,2,3"])
def test_what_are_no_four_seeds_is_refused(home, seeds):
    told = refused(*RUN, f"--load-seeds={seeds}", cwd=home)
    assert told.startswith("--load-seeds: is ")
    assert "expected four integers" in told


def test_check_loads_under_the_same_seeds(home):
    (home / "utils.py").write_text(
        "import random\n\n\ndef process_docs(docs):\n    return [dict(d, choices=['a', 'b'], answer=0) for d in docs]"
        "[: random.Random(random.random()).randint(2, 7)]\n"
    )
    expected = {}
    for seed in (0, 7, 8):
        expected[seed] = random.Random(random.Random(seed).random()).randint(2, 7)
    assert len(set(expected.values())) > 1
    for seed, count in expected.items():
        done = calipers("check", "quiz.yaml", "--trust", "--load-seeds", str(seed), cwd=home)
        assert done.stdout.startswith(f"quiz: multiple_choice, {count} documents,"), done.stderr
    told = refused("check", "quiz.yaml", "--trust", "--load-seeds", "x", cwd=home)
    assert told.startswith("--load-seeds: is 'x'; expected four integers")
