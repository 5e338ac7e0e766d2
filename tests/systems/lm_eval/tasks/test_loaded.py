import pytest
from systems.lm_eval.tasks.given import DOCS, TASK, task, task_folder

from calipers.errors import InputError, PluginError, UnknownName
from calipers.systems.lm_eval.tasks import read_task_file, task_config
from calipers.systems.lm_eval.tasks.loaded import load_task, requests, trusted

UTILS = """\
def process_docs(docs): return [dict(doc, q=doc["q"].upper()) for doc in docs if doc["q"] != "q1"]
def text(doc): return "Q " + doc["q"]
def results(doc, results): return {"x": 1}
"""
CODE = TASK.replace('"Q: {{q}}\\nA:"', "!function utils.text") + (
    "process_docs: !function utils.process_docs\nprocess_results: !function utils.results\n"
)


def test_code_that_came_with_a_task_is_run_only_when_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = read_task_file(task_folder(tmp_path, CODE, utils_py=UTILS))
    config = task_config(file)
    with pytest.raises(InputError, match=r"task\.yaml:\d+: process_docs: is !function utils\.process_docs, code"):
        trusted(config, file, trust=False)
    loaded = load_task(trusted(config, file, trust=True), file)
    assert [one.args[0] for one in requests(loaded)] == ["Q Q0", "Q Q2", "Q Q3", "Q Q4", "Q Q5"]


def test_what_only_scores_needs_no_trust_where_nothing_is_scored(tmp_path):
    file = read_task_file(task_folder(tmp_path, TASK + "process_results: !function utils.results\n"))
    config = task_config(file)
    assert trusted(config, file, trust=False, scored=False).process_results is None
    with pytest.raises(InputError, match="process_results: is !function"):
        trusted(config, file, trust=False)


def test_a_task_that_runs_a_models_code_is_asked_for_by_name(tmp_path):
    file = read_task_file(task_folder(tmp_path, TASK + "unsafe_code: true\n"))
    with pytest.raises(InputError, match="unsafe_code: the task runs code that a model wrote"):
        trusted(task_config(file), file, trust=False)
    assert trusted(task_config(file), file, trust=True).unsafe_code


def test_a_sampler_of_the_tasks_own(tmp_path):
    class Last:
        def __init__(self, docs):
            self.docs = docs

        def sample(self, n):
            return self.docs[-n:]

    made = task(train=DOCS, fewshot_split="train", num_fewshot=1, fewshot_config={"sampler": Last})
    assert requests(made)[0].args[0] == "q5 a5\n\nq0"


def test_modes_are_told_by_the_first_document():
    assert not task().multiple_targets
    assert task(doc_to_target="c").multiple_targets
    assert not task(doc_to_target="[]").multiple_targets  # as in lm-evaluation-harness: the one target is its text
    inputs = task(output_type="multiple_choice", doc_to_text="{{n}}", doc_to_choice="c", doc_to_target="a")
    assert inputs.multiple_inputs
    assert [one.args for one in requests(inputs)][:2] == [("x", " a0"), ("y", " a0")]


def test_a_function_of_the_task_that_fails_is_named():
    def process_docs(docs):
        raise KeyError("gone")

    with pytest.raises(PluginError, match=r"process_docs: .*failed: KeyError: 'gone'"):
        task(process_docs=process_docs)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"doc_to_text": "question"}, "doc_to_text: no column of the documents named 'question'; known: a, c, n, q"),
        ({"doc_to_target": "aa"}, "doc_to_target: no column of the documents named 'aa'; did you mean 'a'"),
    ],
)
def test_a_bare_word_that_is_meant_for_a_column(fields, said):
    with pytest.raises(UnknownName, match=said):
        task(**fields)


@pytest.mark.parametrize("fields", [{"doc_to_target": "yes"}, {"doc_to_text": ""}, {"doc_to_text": "Go on:"}])
def test_a_text_that_is_meant_as_it_is(fields):
    assert len(task(**fields).docs) == 6
