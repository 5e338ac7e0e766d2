"""Metrics of the library evaluate: a script, loaded by its name or its path, and run only when trusted."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calipers.cli import commands
from calipers.errors import InputError, UnknownName
from calipers.systems.lm_eval.entries import entries
from calipers.systems.lm_eval.tasks import Trusted, with_functions

TASK = Path(__file__).parent / "corpus" / "evaluated.yaml"
NEARNESS = '''
import datasets
import evaluate


class Nearness(evaluate.Metric):
    """How near a number is to the right one: two numbers, so that one entry of a task becomes two metrics."""

    def _info(self):
        texts = datasets.Features({"predictions": datasets.Value("string"), "references": datasets.Value("string")})
        return evaluate.MetricInfo(description="made up", citation="", inputs_description="", features=texts)

    def _compute(self, predictions, references, within=0):
        gaps = [abs(int(said) - int(right)) for said, right in zip(predictions, references)]
        return {"near": sum(gap <= within for gap in gaps) / len(gaps), "gap": sum(gaps) / len(gaps)}
'''
HERE = importlib.util.find_spec("evaluate") is not None
there = pytest.mark.skipif(not HERE, reason="evaluate is not installed")
absent = pytest.mark.skipif(HERE, reason="evaluate is installed")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_EVALUATE_OFFLINE", "1")
    (tmp_path / "nearness").mkdir()
    (tmp_path / "nearness" / "nearness.py").write_text(NEARNESS)
    said = enumerate(["5", "16", "10", "45"])  # off by 0, 2, 6 and 3
    lines = [{"task": str(document), "completion": text} for document, text in said]
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def run(*more):
    return CliRunner().invoke(commands, ["run", str(TASK), "--model", "replay/said.jsonl", *more])


@there
@pytest.mark.filterwarnings("ignore")  # the library's own
def test_every_key_of_its_answer_is_a_metric(home):
    done = run("--trust", "--export", "lm_eval=theirs")
    assert done.exit_code == 0, (done.stderr, done.exception)
    [results] = (home / "theirs").rglob("results_*.json")
    row = json.loads(results.read_text())["results"]["corpus_evaluated"]
    assert (row["near,none"], row["gap,none"]) == (2 / 4, (0 + 2 + 6 + 3) / 4)  # near is within 2


@there
@pytest.mark.filterwarnings("ignore")
def test_it_is_not_run_without_trust(home):
    (home / "nearness" / "nearness.py").write_text("raise SystemExit('it was run')")
    done = run()
    assert isinstance(done.exception, InputError)
    assert "metric_list: no lm_eval metric named 'nearness'" in str(done.exception)
    assert str(done.exception).endswith("is a script, which would run; read it first, then run it with --trust")
    assert not (home / "runs").exists()


@there
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise ValueError('first line\\nsecond')", "'nearness' cannot be loaded from evaluate (first line)"),
        (None, "'nearness' cannot be loaded from evaluate"),  # no such metric, and no hub to ask
    ],
)
def test_one_that_cannot_be_loaded_is_a_line_before_any_call(home, script, said):
    place = home / "nearness" / "nearness.py"
    place.unlink() if script is None else place.write_text(script)
    done = run("--trust")
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (home / "runs").exists()


@absent
def test_what_is_missing_where_the_library_is_not_there(home):
    done = run("--trust")
    assert isinstance(done.exception, UnknownName)
    assert str(done.exception).startswith(f"{TASK}:4: metric_list: no lm_eval metric named 'nearness'")
    assert str(done.exception).endswith("(it may be a metric of the library evaluate, which is not installed)")
    with pytest.raises(InputError, match="hf_evaluate for 'exact_match' needs the library evaluate; install it"):
        entries([{"metric": "exact_match", "hf_evaluate": True}], "generate_until")


def test_what_is_trusted_is_marked():
    assert isinstance(with_functions([{"metric": "nearness"}], "here")[0], Trusted)
