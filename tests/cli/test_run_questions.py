"""``calipers run qa.csv`` as a user types it: guesses, dry runs, own verifiers and metrics, and errors."""

from __future__ import annotations

import json

import pytest
from cli.running import calipers, refused
from running.loopback import chat_model
from running.scene import records

QA = "question,answer,level\nWhat is 2 + 2?,4,easy\nWhat is 3 + 4?,7,hard\nWhat is 10 - 3?,7,easy\n"
MODEL = 'def answer(prompt):\n    return "so 4" if "2 + 2" in prompt else "7"\n'
MY = """
from calipers import Verdict

def grade(task, completion):
    return task.target in completion

async def half(task, completion):
    return Verdict(0.5, answer=completion.text, fields={"length": len(completion)})

def breaks(task, completion):
    return 1 / 0 if completion == "7" else True

def says_nothing(task, completion):
    return None

def text(task, completion):
    return "1"

most = max

def one(task):
    return 1

def worst(rewards):
    return min(min(task) for task in rewards)

class Spread:
    def compute(self, rewards):
        return max(map(max, rewards)) - min(map(min, rewards))
"""
RUN = ("run", "qa.csv", "--model", "python/m.py:answer")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "qa.csv").write_text(QA)
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "my.py").write_text(MY)
    return tmp_path


def ran(home, *arguments, code=0):
    done = calipers(*RUN, *arguments, "--out", "r", cwd=home)
    assert done.returncode == code, done.stderr
    return json.loads((home / "r" / "result.json").read_text()), done.stderr


def mean_reward(result):
    return result["groups"][0]["metrics"]["mean_reward"]["value"]


def test_a_table_is_asked_of_a_server(home):
    with chat_model(lambda prompt: "The answer is 4." if prompt == "Q: What is 2 + 2?\nA:" else "8") as url:
        command = ("run", "qa.csv", "--prompt", "question", "--target", "answer", "--verifier", "numeric_match")
        more = ("--template", r"Q: {question}\nA:", "--metadata", "level", "--by", "level", "--out", "r")
        done = calipers(*command, "--model", "openai/any", "--base-url", url, *more, cwd=home)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[:3] == [
        "note: qa.csv: 3 questions; prompt: question, target: answer, metadata: level, verifier: numeric_match",
        "note: first prompt: Q: What is 2 + 2?\\nA:",
        "note: first target: 4",
    ]
    result = json.loads((home / "r" / "result.json").read_text())
    assert mean_reward(result) == pytest.approx(1 / 3)
    assert "hard" in json.dumps(result)


def test_what_is_guessed_is_said_before_the_first_call(home):
    (home / "m.py").write_text("import sys\ndef answer(prompt):\n    print('asked', file=sys.stderr)\n    return '7'\n")
    _, heard = ran(home)
    assert heard.index("(change with --prompt, --target or --verifier)") < heard.index("asked")
    assert heard.index("first target: 4") < heard.index("asked")


def test_a_dry_run_shows_five_and_asks_nothing(home):
    (home / "qa.csv").write_text(QA + "".join(f"And {n}?,1,easy\n" for n in range(5)))
    (home / "m.py").write_text("raise SystemExit('asked')")
    done = calipers(*RUN, "--dry-run", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\nprompt: ") == done.stdout.count("\ntarget: ") == 5
    assert done.stdout.splitlines()[0].startswith("qa.csv: 8 questions; prompt: question, target: answer")
    assert done.stdout.splitlines()[-1] == "no request was sent; 3 more questions like these"
    assert not (home / "runs").exists()
    assert calipers("run", "qa.csv", "--dry-run", cwd=home).stdout == done.stdout  # it needs no model


def test_a_dry_run_finds_what_a_run_would_refuse(home):
    assert refused("run", "qa.csv", "--dry-run", "--target", "level", "--verifier", "numeric_match", cwd=home) == (
        f"qa.csv:2: task {first_id()!r}: target is 'easy'; expected a number, or text that is a number"
    )


def first_id():
    import hashlib

    return hashlib.sha256(b"What is 2 + 2?").hexdigest()[:16]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--prompt", "qestion"), "--prompt: no column named 'qestion' in qa.csv; did you mean 'question'?"),
        (("--template", "{question.x}"), "--template: {question.x} is not a column name; expected column names"),
        (("--verifier", "my.py:grad"), "my.py: no object named 'grad'; did you mean 'grade'"),
        (("--verifier", "my.py:most"), "my.py:most: its parameters are not known; expected def max(task, completion)"),
        (("--verifier", "my.py:one"), "my.py:one: its parameters are (task); expected def one(task, completion)"),
        (("--verifier", "no.py:grade"), "no.py: No such file or directory; expected a Python file, as FILE.py:OBJECT"),
        (("--verifier", "exactmatch"), "no verifier named 'exactmatch'; did you mean 'exact_match'"),
        (("--metric", "my.py:best"), "my.py: no object named 'best'; did you mean"),
        (("--index-from", "1"), "--index-from: there are no choices"),
        (("--param", "marker"), "--param: 'marker' cannot be read; expected KEY=VALUE"),
    ],
)
def test_wrong_input_costs_no_call(home, arguments, wrong):
    (home / "m.py").write_text("raise SystemExit('asked')")
    before = sorted(home.iterdir())
    done = calipers(*RUN, *arguments, cwd=home)
    assert done.returncode == 2
    assert done.stderr.startswith(wrong), done.stderr
    assert (len(done.stderr.splitlines()), done.stdout) == (1, "")
    assert sorted(home.iterdir()) == before


def test_options_of_a_table_are_for_tables(home):
    calipers("init", "arith", "--from", "qa.csv", cwd=home)
    for option, value in (("--prompt", "x"), ("--index-from", "0")):
        wrong = refused("run", "arith", option, value, "--model", "python/m.py:answer", cwd=home)
        expected = "is for tables of questions, and arith is not a table; expected a CSV, TSV, JSON or Parquet file"
        assert wrong == f"{option}: {expected}"


def test_a_file_that_is_not_there(home):
    assert refused("run", "no.csv", "--model", "python/m.py:answer", cwd=home).startswith(
        "no.csv: no such file; expected"
    )


@pytest.mark.parametrize("path", ["qa.csv", "run.yaml", "tasks/a,b"])
def test_a_benchmark_in_a_store_is_not_fetched(home, path):
    wrong = refused("run", f"https://me:word@host/{path}", "--model", "python/m.py:answer", cwd=home)
    assert wrong == f"https://host/{path}: a benchmark is read from this machine; download it first"


def test_a_yaml_file_says_it_all(home):
    config = "benchmark: qa.csv\nmodel: python/m.py:answer\nprompt: question\nverifier: contains\nmetadata: [level]\n"
    (home / "run.yaml").write_text(config)
    done = calipers("run", "run.yaml", "--out", "r", cwd=home)
    assert done.returncode == 0, done.stderr
    assert mean_reward(json.loads((home / "r" / "result.json").read_text())) == 1


# resuming a run


def test_the_same_command_goes_on_and_another_table_template_or_verifier_does_not(home):
    ran(home, "--verifier", "my.py:grade")
    assert "3 read from the log" in ran(home, "--verifier", "my.py:grade")[1]
    for arguments in (("--verifier", "contains"), ("--verifier", "my.py:grade", "--template", "{question}!")):
        done = calipers(*RUN, *arguments, "--out", "r", cwd=home)
        assert (done.returncode, "tasks: " in done.stderr) == (2, True)
    (home / "my.py").write_text(MY.replace("in completion", "not in completion"))
    done = calipers(*RUN, "--verifier", "my.py:grade", "--out", "r", cwd=home)
    assert (done.returncode, "verifier_code: " in done.stderr) == (2, True), done.stderr
    (home / "my.py").write_text(MY)
    (home / "qa.csv").write_text(QA.replace("3 + 4", "3 + 5"))
    assert calipers(*RUN, "--verifier", "my.py:grade", "--out", "r", cwd=home).returncode == 2


def test_the_plan_names_every_file_that_was_read(home):
    (home / "t.jinja").write_text("{{ question }}")
    ran(home, "--verifier", "my.py:grade", "--template", "t.jinja")
    inputs = json.loads((home / "r" / "plan.json").read_text())["inputs"]
    assert [entry["path"] for entry in inputs] == ["qa.csv", "m.py", "my.py", "t.jinja"]


# own verifiers


@pytest.mark.parametrize(("name", "value"), [("grade", 1.0), ("half", 0.5)])
def test_a_function_judges(home, name, value):
    assert mean_reward(ran(home, "--verifier", f"my.py:{name}")[0]) == value


@pytest.mark.parametrize(
    ("name", "scored", "why"),
    [
        ("breaks", 1, "verifier 'my.py:breaks' failed: ZeroDivisionError: division by zero"),
        ("says_nothing", 0, "returned None; expected a number, True or False, or a Verdict"),
        ("text", 0, "returned '1'; expected a number, True or False, or a Verdict"),
    ],
)
def test_a_function_that_fails_leaves_a_gap_and_never_a_zero(home, name, scored, why):
    result, heard = ran(home, "--verifier", f"my.py:{name}", code=3)
    outcomes = result["groups"][0]["ledger"]["outcomes"]
    assert outcomes["verifier_failed"] == 3 - scored
    assert {record.get("reward") for record in records(home / "r")} <= {None, 1.0}
    assert why in heard
    assert f"calipers rescore r --verifier my.py:{name} verifies them again" in heard


def test_a_run_of_a_table_is_judged_again(home):
    ran(home, "--verifier", "my.py:breaks", code=3)
    wrong = refused("rescore", "r", cwd=home)
    assert wrong.endswith("tasks may not name code to run; name it yourself: --verifier my.py:breaks")
    done = calipers("rescore", "r", "--verifier", "my.py:grade", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "missing to reward  2" in done.stdout
    assert (home / "r" / "rescored-grade.jsonl").exists()


def test_a_benchmark_may_not_name_code(home):
    task = {"kind": "in_process", "fn_name": "my.py:grade", "expected": "4"}
    (home / "b").mkdir()
    row = {"task_id": "a", "instruction": "?", "verifier": task}
    (home / "b" / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    (home / "my.py").write_text("raise SystemExit('it was run')")
    wrong = refused("run", "b", "--model", "python/m.py:answer", cwd=home)
    assert "tasks may not name code to run" in wrong


def test_a_plan_may_not_name_code(home):
    ran(home, "--metric", "my.py:worst", "--metric", "mean_reward")
    (home / "my.py").write_text("raise SystemExit('it was run')")
    done = calipers("rescore", "r", "--verifier", "contains", cwd=home)
    assert (done.returncode, "it was run" in done.stderr) == (0, False), done.stderr


def test_a_verifier_for_a_folder_judges_in_place_of_its_own(home):
    calipers("init", "arith", "--from", "qa.csv", cwd=home)
    command = ("run", "arith", "--model", "python/m.py:answer", "--out", "r")
    assert calipers(*command, "--verifier", "my.py:grade", cwd=home).returncode == 0
    assert mean_reward(json.loads((home / "r" / "result.json").read_text())) == 1


# own metrics


def test_metrics_of_a_file_have_intervals(home):
    (home / "qa.csv").write_text(QA + "What is 1 + 3?,4,easy\nWhat is 9 - 2?,7,hard\nWhat is 8 - 4?,4,easy\n")
    arguments = ("--metric", "my.py:worst", "--metric", "my.py:Spread", "--metric", "mean_reward")
    metrics = ran(home, *arguments)[0]["groups"][0]["metrics"]
    assert (metrics["my.py:worst"]["value"], metrics["my.py:Spread"]["value"]) == (0.0, 1.0)
    # the draws of an extreme all lie on one side of it, so that it has no interval
    assert metrics["my.py:worst"]["interval"] == metrics["my.py:Spread"]["interval"] is None
    assert all("extreme" in metrics[name]["why"] for name in ("my.py:worst", "my.py:Spread"))


# calipers init --from


def test_a_table_becomes_a_benchmark_with_its_verifier_once(home):
    arguments = ("--from", "qa.csv", "--verifier", "numeric_match", "--param", "rel_tol=0.1", "--metadata", "level")
    done = calipers("init", "arith", *arguments, cwd=home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "wrote arith/tasks.jsonl",
        "wrote arith/metadata.yaml",
        "run it with: calipers run arith --model ...",
    ]
    rows = [json.loads(line) for line in (home / "arith" / "tasks.jsonl").read_text().splitlines()]
    assert rows[0] == {
        "task_id": first_id(),
        "instruction": "What is 2 + 2?",
        "expected": "4",
        "metadata": {"level": "easy"},
    }
    assert (home / "arith" / "metadata.yaml").read_text().count("numeric_match") == 1
    done = calipers("run", "arith", "--model", "python/m.py:answer", "--out", "r", cwd=home)
    assert (done.returncode, mean_reward(json.loads((home / "r" / "result.json").read_text()))) == (0, 1.0)


def test_a_table_and_its_benchmark_ask_the_same(home):
    (home / "mc.csv").write_text("question,A,B,answer\nCapital of Italy?,Paris,Rome,B\nOf France?,Paris,Rome,A\n")
    calipers("init", "capitals", "--from", "mc.csv", "--shuffle-choices", "--seed", "3", cwd=home)
    more = ("--shuffle-choices", "--seed", "3", "--dry-run")
    table = calipers("run", "mc.csv", *more, cwd=home).stdout.splitlines()
    folder = calipers("run", "capitals", "--dry-run", cwd=home).stdout.splitlines()
    assert [line.partition(" (")[0] for line in table[1:]] == folder[1:]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--from", "qa.csv"), "--from: the benchmark has no name; expected calipers init NAME --from qa.csv"),
        (("arith",), "arith: --from is missing; expected calipers init arith --from qa.csv"),
        (("arith", "--from", "no.csv"), "no.csv: no such file; expected questions as CSV"),
        (("arith", "--from", "qa.csv", "--task", "a/b"), "--from: makes a benchmark from a table; remove Harbor's"),
        (("arith", "--from", "qa.csv", "--verifier", "numeric"), "no verifier named 'numeric'; did you mean"),
    ],
)
def test_what_init_refuses(home, arguments, wrong):
    assert refused("init", *arguments, cwd=home).startswith(wrong)


def test_init_writes_over_nothing(home):
    calipers("init", "arith", "--from", "qa.csv", cwd=home)
    wrong = refused("init", "arith", "--from", "qa.csv", cwd=home)
    assert wrong == "arith/tasks.jsonl: already exists; give another name, or remove it first"


def test_several_models_share_a_table_of_an_own_metric(home):
    (home / "n.py").write_text(MODEL.replace('"7"', '"8"'))
    more = ("--model", "python/n.py:answer", "--metric", "my.py:worst", "--format", "json", "--out", "r")
    done = calipers(*RUN, *more, cwd=home)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["groups"]) == 2
    assert done.stderr.count("first prompt: ") == 1  # common lines are printed once
    runs = [str(folder) for folder in (home / "r").iterdir()]
    done = calipers("compare", *runs, "--metric", "my.py:worst", cwd=home)
    assert (done.returncode, "my.py:worst" in done.stdout) == (0, True), done.stderr
