"""A made-up corpus of tasks with every feature of lm-evaluation-harness' own task files, from file to number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from systems.lm_eval.tasks.corpus_cases import ELSEWHERE, GENERATED, GROUPS, LOADED
from systems.lm_eval.tasks.corpus_rows import ROWS, claims, group_claims

from calipers.cli import commands
from calipers.errors import InputError
from calipers.systems.lm_eval.benchmarks import TaskRequest, load
from calipers.systems.lm_eval.entries import scorings
from calipers.systems.lm_eval.tasks import read_task_file
from calipers.systems.lm_eval.tasks.groups import TaskGroup, Tasks, leaves
from calipers.systems.lm_eval.tasks.loaded import load_task, requests, trusted

CORPUS = Path(__file__).parent / "corpus"


def path(file):
    return CORPUS / f"{file}.yaml"


def found(file):
    return Tasks([CORPUS]).find(str(path(file)))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(home, file, model, code=0):
    """Run the command in this process; return the results object in lm-evaluation-harness' form, and ours."""
    asked = ["run", str(path(file)), "--include-path", str(CORPUS), "--model", model]
    trust = ["--trust"] if "functions." in _whole(path(file)) else []  # the others need none
    done = CliRunner().invoke(commands, [*asked, *trust, "--export", "lm_eval=theirs", "--format", "json"])
    assert done.exit_code == code, (done.stderr, done.exception)
    [results] = (home / "theirs").rglob("results_*.json")
    return json.loads(results.read_text()), json.loads(done.stdout)


def _whole(file):
    """The text of a file and of the files that it includes."""
    text = file.read_text()
    included = [line.split()[1] for line in text.splitlines() if line.startswith("include:")]
    return text + "".join(_whole(CORPUS / name) for name in included)


@pytest.mark.parametrize("case", GENERATED, ids=lambda case: case.file)
def test_a_generation_task_from_file_to_number(home, case):
    says = [said if isinstance(said, list) else [said] for said in case.says]
    lines = [
        {"task": str(document), "sample": sample, "completion": text}
        for document, said in enumerate(says)
        for sample, text in enumerate(said)
    ]
    (home / "said.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    theirs, ours = run(home, case.file, "replay/said.jsonl", case.code)
    [row] = theirs["results"].values()
    numbers = {key: value for key, value in row.items() if "," in key and "_stderr," not in key}
    assert numbers == pytest.approx(case.numbers, rel=1e-9)
    assert row["sample_len"] == len(case.says)
    [group] = ours["groups"]
    assert group["ledger"]["outcomes"] == (case.outcomes or {"scored": len(lines)})
    if case.prompt is not None:
        log = map(json.loads, next(home.rglob("rollouts.jsonl")).read_text().splitlines())
        assert {line["task"]: line["prompt"] for line in log}["0"] == case.prompt


MODEL = """
def answer(prompt):
    wrong = {"3 + 3": 5, "20 + 22": 4}
    question = prompt.removeprefix("Q: ").removesuffix("\\nA:")
    return f"#### {wrong.get(question) or eval(question)}"
"""


@pytest.mark.parametrize("file", GROUPS)
def test_a_group_has_the_row_of_its_tasks(home, file):
    (home / "model.py").write_text(MODEL)
    theirs, ours = run(home, file, "python/model.py:answer")
    rows, key = theirs["results"], "exact_match,strict-match"
    members = {name: rows.pop(name)[key] for name in list(rows) if name.startswith("corpus_member")}
    assert members.items() <= {"corpus_member_small": 1 / 2, "corpus_member_large": 3 / 4}.items()
    assert {one["dataset"] for one in ours["groups"]} == set(members)
    own = rows[read_task_file(path(file)).values["group"]]
    assert {name: value for name, value in own.items() if name == key} == pytest.approx(GROUPS[file])
    assert ("groups" in theirs) == bool(GROUPS[file])


@pytest.mark.parametrize("case", LOADED, ids=lambda case: case.file)
def test_a_task_of_log_likelihoods_is_loaded_and_its_requests_are_made(home, case):
    [leaf] = leaves(found(case.file))
    task = load_task(trusted(leaf.config, leaf.file, trust=True), leaf.file)
    made = list(requests(task))
    assert [one.args for one in made if one.doc_id == 0] == case.requests
    assert {one.doc_id for one in made} == set(range(len(task.docs)))
    [scoring] = scorings(task.config.output_type, metric_list=task.config.metric_list)
    hows = {entry.name: getattr(entry.aggregation, "__name__", entry.aggregation) for entry in scoring.metrics}
    assert hows == case.metrics


def test_a_group_of_such_tasks():
    [group] = found("group_choices")
    assert isinstance(group, TaskGroup)
    assert [leaf.name for leaf in leaves([group])] == ["corpus_choice_static", "corpus_choice_jinja"]


def test_what_is_not_loaded_here_is_said_in_a_line():
    said = "somebody/quiz (is a dataset of the hub|cannot be loaded)"  # the second where datasets is installed
    with pytest.raises(InputError, match=said):
        [load_task(leaf.config, leaf.file) for leaf in leaves(found("hub"))]
    (leaf,) = leaves(found("python_class"))
    with pytest.raises(InputError, match=r"is !function .*, code from the task; read it first, then run it with"):
        load(leaf, TaskRequest())


def test_every_file_of_the_corpus_has_a_case():
    listed = [*(case.file for case in (*GENERATED, *LOADED)), *GROUPS, *ELSEWHERE]
    assert sorted(listed) == sorted(file.stem for file in CORPUS.glob("*.yaml"))


def test_every_construct_that_is_counted_has_a_case():
    claimed = {"tag", "class"}
    assert len(Tasks([CORPUS]).find("corpus_members")) == 2  # which is the tag
    for file in CORPUS.glob("*.yaml"):
        values = read_task_file(file).values
        if "group" in values:
            claimed |= group_claims(values)
        elif "class" not in values:
            [leaf] = leaves(found(file.stem))
            claimed |= claims(values, leaf.config)
    assert not set(ROWS) - claimed
