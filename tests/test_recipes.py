"""docs/recipes: every page is in the navigation and runs its commands; its example files are true."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from cli.running import calipers
from waiting import PATIENCE

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
RECIPES = (
    *("csv_and_endpoint", "own_verifier", "dataframe", "new_checkpoint"),
    *("gate_in_ci", "twenty_models", "how_many_samples", "trusted_judge"),
)
SECTIONS = ("What you need", "Run it", "How to read it", "What can go wrong", "Read more")
FENCE = re.compile(r"^```(\w+)\n", re.MULTILINE)


def test_every_recipe_is_a_page_in_the_navigation():
    assert {path.stem for path in (ROOT / "docs" / "recipes").glob("*.md")} == {*RECIPES}
    navigation = (ROOT / "mkdocs.yml").read_text().partition("- Recipes:")[2].partition("- Guides:")[0]
    assert tuple(re.findall(r": (\w+)\.md", navigation)) == RECIPES
    front = (ROOT / "README.md").read_text()
    assert [name for name in RECIPES if f"](docs/recipes/{name}.md)" not in front] == []


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_begins_with_a_block_that_is_executed(name):
    page = (ROOT / "docs" / "recipes" / f"{name}.md").read_text()
    assert tuple(re.findall(r"^## (.*)$", page, re.MULTILINE)) == SECTIONS
    first = FENCE.search(page)
    assert first[1] == "sh"
    assert page[: first.start()].endswith("-->\n")  # scripts/docs.py wrote the block
    assert "<!-- run: " in page[: first.start()]
    assert len(page.partition("\n\n")[2].partition("\n\n")[0].splitlines()) <= 2  # the purpose, in a sentence


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def arithmetic_server():
    """The base URL of the example server, on any free port."""
    command = [sys.executable, str(EXAMPLES / "arithmetic_server.py"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip().removeprefix("ready: ")
        finally:
            process.terminate()


@pytest.mark.parametrize(("model", "sign"), [("calc-1", "+"), ("calc-1", "*"), ("calc-2", "+"), ("calc-2", "*")])
def test_the_example_models_err_at_the_rates_they_state(model, sign):
    server = example("arithmetic_server")
    number = 4_000
    right = {"+": "12 + 13 = 25", "*": "12 * 13 = 156"}[sign]
    wrong = sum(server.reply(model, f"What is 12 {sign} 13?", seed) != right for seed in range(number))
    assert wrong / number == pytest.approx(server.ERROR_RATES[model][sign], abs=0.03)  # four standard errors
    assert server.reply(model, "What is 1 + 1?", 7) == server.reply(model, "What is 1 + 1?", 7)


def test_the_example_judge_errs_at_the_rates_it_states():
    server = example("arithmetic_server")
    number = 4_000
    for answer, right in (("25", True), ("26", False), ("no idea", False)):
        prompt = f"What is 12 + 13? [BEGIN answer f]\n{answer}\n[END answer f]"
        passed = sum(server.reply("judge", prompt, seed).endswith("SCORE: 1") for seed in range(number))
        assert passed / number == pytest.approx(server.PASS_RATES[right], abs=0.03)


def test_the_example_server_names_what_it_does_not_have():
    with arithmetic_server() as url:
        chat = json.dumps({"model": "calc-9", "messages": []}).encode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/chat/completions", chat)
        assert "no model calc-9; expected one of calc-1, calc-2, judge" in refused.value.read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/completions", chat)
        assert "no route /v1/completions" in refused.value.read().decode()
        port = url.split(":")[2].removesuffix("/v1")
        command = [sys.executable, str(EXAMPLES / "arithmetic_server.py"), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"port {port}: Address already in use; choose another with --port\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify_certificate.py", "gone.json"],
        ["draw_to_label.py", "gone", "3"],
        ["training_run.py"],
        ["training_run.py", "folder", "many"],
        ["arithmetic_server.py", "--port", "high"],
    ],
)
def test_an_example_program_names_what_it_cannot_use(tmp_path, arguments):
    """Exit code 1 of the verifier would mean that the certificate is refused."""
    command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_the_labels_are_true():
    """A person who labels sums knows them: the label of each answer is whether it is right."""
    with open(EXAMPLES / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(EXAMPLES / "questions.csv", newline="") as file:
        answers = {row["id"]: row["answer"] for row in csv.DictReader(file)}
    assert len(rows) == 100
    assert {row["label"] for row in rows} == {"0", "1"}
    wrong = [row for row in rows if (row["completion"].split()[-1] == answers[row["task"]]) != (row["label"] == "1")]
    assert wrong == []


def steps(**values):
    """The commands of the workflow that a reader copies, in order, and their environment; pip is left out."""
    workflow = yaml.safe_load((EXAMPLES / "evaluate.yml").read_text())
    job = workflow["jobs"]["evaluate"]
    settings = {}
    for name, text in job["env"].items():
        settings[name] = re.sub(r"\$\{\{ (?:vars|secrets)\.(\w+) \}\}", lambda found: values[found[1]], text)
        assert "${{" not in settings[name]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert all(not {"shell", "env", "if", "working-directory"} & {*step} for step in job["steps"])
    assert [command for command in commands if "pip" in command] == ['pip install "$CALIPERS"'] == commands[:1]
    return commands[1:], settings


@pytest.mark.parametrize(("old", "new", "code"), [("calc-1", "calc-2", 0), ("calc-2", "calc-1", 1)])
def test_the_workflow_passes_a_better_model_and_fails_a_worse_one(tmp_path, old, new, code):
    """Two runs of 400 requests each, in processes that a shell starts as it does on GitHub: some seconds."""
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "questions.csv").write_bytes((EXAMPLES / "questions.csv").read_bytes())
    with arithmetic_server() as url:
        commands, settings = steps(CALIPERS="unused", MODEL=new, OPENAI_BASE_URL=url, OPENAI_API_KEY="not-a-key")
        words = ["run", "evals/questions.csv", "--verifier", "numeric_match", "--samples", "4", "--out", "runs/old"]
        done = calipers(*words, "--model", f"openai/{old}", "--base-url", url, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (tmp_path / "runs" / "old" / "rollouts.jsonl").rename(tmp_path / "evals" / "baseline.jsonl")
        environment = {**os.environ, **settings, "GITHUB_ACTIONS": "true"}
        environment |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ends = []
        for command in commands:
            done = subprocess.run(
                ["bash", "-e", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            ends.append(done.returncode)
    assert ends == [0, code], done.stderr
    assert ("::error" in done.stderr) == bool(code)
    assert "lower(delta(mean_reward))" in (tmp_path / "summary.md").read_text()
