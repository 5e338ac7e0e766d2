import pytest
from systems.lm_eval.tasks.given import TASK, task_folder

from calipers.errors import InputError
from calipers.running import Job
from calipers.running.library import CheckedTask
from calipers.systems.lm_eval.benchmarks import (
    LoadedTasks,
    TaskRequest,
    checked,
    is_known,
    is_task_file,
    nodes_of,
    plain,
    settings,
    shots,
    suite,
    suite_of,
)
from calipers.systems.lm_eval.tasks import TaskFields
from calipers.systems.lm_eval.tasks.groups import every_group


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(home, text=TASK, wanted=None, **more):
    path = str(task_folder(home, text, **more))
    wanted = wanted or TaskRequest()
    return suite(LoadedTasks().task(path, "made", wanted), scored=not wanted.predict_only)


def test_a_document_becomes_a_task_whose_prompt_is_the_request(home):
    done = made(home)
    assert (done.name, len(done.tasks), len(done.sha256)) == ("made", 6, 64)
    first = done.tasks[0]
    assert (first.id, first.prompt, first.verifier, first.target) == ("0", "Q: q0\nA:", "lm_eval", "a0")
    assert first.params["doc"] == {"q": "q0", "a": "a0", "c": ["x", "y"], "n": 0}
    assert first.metadata == {"doc_id": 0}
    assert done.metadata["lm_eval"]["config"]["metric_list"] == [{"metric": "exact_match"}]


def test_half_of_a_surrogate_pair_is_refused(home):
    code, trust = TASK + "process_docs: !function utils.f\n", TaskRequest(trust=True)
    utils = "def f(docs):\n    return [{**doc, 'q': chr(0xD800)} for doc in docs]\n"
    with pytest.raises(InputError, match="dataset_path: document 0: half of a surrogate pair stands alone"):
        made(home, code, trust, utils_py=utils)


def test_what_is_scored_is_part_of_what_a_run_is(home):
    before = made(home).tasks[0].params["scoring"]
    assert made(home).tasks[0].params["scoring"] == before
    assert made(home, TASK + "repeats: 2\n").tasks[0].params["scoring"] == before  # how many is not how
    code, trust = TASK + "process_results: !function utils.f\n", TaskRequest(trust=True)
    one = made(home, code, trust, utils_py="def f(doc, results): return {'x': 1}\n").tasks[0].params["scoring"]
    (home / "utils.py").write_text("def f(doc, results): return {'x': 2}\n")
    assert made(home, code, trust).tasks[0].params["scoring"] != one


def test_predict_only_needs_neither_metric_nor_target(home):
    text = TASK.replace("exact_match", "unheard_of").replace("doc_to_target: a", "doc_to_target: 3")
    done = made(home, text, TaskRequest(predict_only=True))
    assert {(task.verifier, task.target) for task in done.tasks} == {(None, None)}
    job = Job(str(home / "task.yaml"), "openai/m", lm_eval="made", predict_only=True)
    assert suite_of(job, LoadedTasks())[1] == {}


def test_a_date_goes_into_the_log_as_its_text(home):
    done = made(home, docs=[{"q": "x", "a": "2024-01-02"}])
    assert (done.tasks[0].target, done.tasks[0].params["doc"]["a"]) == ("2024-01-02 00:00:00",) * 2
    assert plain({1: (2.5, None, made)}) == {"1": [2.5, None, "!function made"]}


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ("", {"max_tokens": 256, "temperature": 0.0, "stop": ("\n\n",), "gen_kwargs": {}}),
        (
            "{until: [a, ''], do_sample: true, top_p: 0.9}",
            {"max_tokens": 256, "temperature": None, "stop": ("a",), "gen_kwargs": {"top_p": 0.9}},
        ),
        ("{until: a, max_gen_toks: 7}", {"max_tokens": 7, "temperature": 0.0, "stop": ("a",), "gen_kwargs": {}}),
        (
            "{until: a, do_sample: false, temperature: 1}",  # greedy, whatever temperature stands beside it
            {"max_tokens": 256, "temperature": 0.0, "stop": ("a",), "gen_kwargs": {}},
        ),
        (
            "{until: a, max_tokens: 9, max_new_tokens: 8}",
            {"max_tokens": 8, "temperature": 0.0, "stop": ("a",), "gen_kwargs": {}},
        ),
        ("{until: [], temperature: '1'}", {"max_tokens": 256, "temperature": 1.0, "stop": (), "gen_kwargs": {}}),
    ],
)
def test_generation_settings_in_our_words(home, kwargs, expected):
    path = task_folder(home, TASK + (f"generation_kwargs: {kwargs}\n" if kwargs else "") + "repeats: 3\n")
    [found] = settings(str(path), TaskRequest())
    assert {key: found[key] for key in expected} == expected
    assert (found["benchmark"], found["lm_eval"], found["samples"]) == ((str(path),), "made", 3)


@pytest.mark.parametrize(
    ("own", "asked", "used"),
    [(None, None, 0), (None, 3, 3), (2, None, 2), (2, 5, 5), (0, 5, 0)],  # a task that says 0 means it
)
def test_how_many_examples(own, asked, used):
    assert shots(TaskFields(num_fewshot=own), asked) == used


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("doc_to_image: q\n", "doc_to_image: is not supported here"),
        ("generation_kwargs: {until: 3}\n", "generation_kwargs.until: is 3; expected a text or a list of texts"),
        ("generation_kwargs: {max_gen_toks: many}\n", "generation_kwargs.max_gen_toks: is 'many'; expected an integer"),
        ("generation_kwargs: {max_tokens: true}\n", "generation_kwargs.max_tokens: is True; expected an integer"),
    ],
)
def test_what_cannot_be_run_is_refused_without_a_document(home, text, said):
    path = task_folder(home, TASK + text)
    with pytest.raises(InputError) as caught:
        settings(str(path), TaskRequest())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("exact_match", "exact_macth", "task.yaml:8: metric_list: no lm_eval metric named 'exact_macth'; did you mean"),
        ("metric: exact_match", "metric: exact_match\n    aggregation: meen", "metric_list: no "),
        ("metric: exact_match", "metric: exact_match\n    ignore_cases: true", "metric_list: no setting of metric"),
        ("metric_list:", "scorer: regx\nmetric_list:", "scorer: no scorer named 'regx'; did you mean 'regex'"),
        (
            "metric_list:",
            "filter_list: [{name: f, filter: [{function: rgex}]}]\nmetric_list:",
            "filter_list[0]: no lm_eval filter named 'rgex'; did you mean 'regex'",
        ),
        (
            "metric_list:",
            "filter_list: [{name: f, filter: [{function: take_first_k, k: 2}]}]\nmetric_list:",
            "filter_list[0]: take_first_k takes 2 of 1 responses; expected repeats: 2 or more",
        ),
        (
            "metric_list:",
            "filter_list: [{name: f, filter: [{function: multi_choice_regex}]}]\nmetric_list:",
            "filter_list[0]: multi_choice_regex needs a column 'choices'; the documents have q, a, c, n",
        ),
        (
            "metric_list:",
            "filter_list: [{name: f, filter: [], metric_list: [{metric: bleau}]}]\nmetric_list:",
            "filter_list[0].metric_list: no lm_eval metric named 'bleau'; did you mean 'bleu'",
        ),
        (
            "metric: exact_match",
            "metric: exact_match\n    reduction: pass_at_k\n    k: [1, 2]",
            "metric_list: k is 2, but repeats is 1; expected repeats: 2 or more",
        ),
        (
            "metric_list:\n  - metric: exact_match",
            "repeats: 4\nfilter_list: [{name: f, filter: [{function: take_first}]}]\n"
            "metric_list:\n  - {metric: exact_match, reduction: pass_at_k, k: 2}",
            "metric_list: k is 2, but pipeline 'f' keeps only 1 of 4 repeats; expected a pipeline without take_first",
        ),
        (
            "doc_to_target: a",
            "doc_to_target: n\ndoc_to_choice: ['x']",
            "document 1: the target is choice 1, but there are 1",
        ),
    ],
)
def test_a_task_that_cannot_be_scored_is_refused_before_the_first_call(home, before, after, said):
    with pytest.raises(InputError) as caught:
        made(home, TASK.replace(before, after))
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(home / "task.yaml"))


def test_a_name_is_known_where_a_folder_is_named(home):
    path = str(task_folder(home))
    assert is_task_file(path)
    assert is_known(path)
    assert is_known("made", [str(home)])
    assert is_known("mdae", [str(home)])  # so that the nearest is told
    (home / "run.yaml").write_text("benchmark: data/arith\nmodel: openai/x\n")
    assert not is_task_file(str(home / "run.yaml"))
    assert not is_known(str(home / "run.yaml"), [str(home)])
    assert not is_known(str(home))


def test_groups_hold_groups(home):
    task_folder(home, inner_yaml="group: inner\ntask: [made]\n", outer_yaml="group: outer\ntask: [inner]\n")
    wanted = TaskRequest(include_path=(str(home),))
    nodes = nodes_of("outer", wanted.include_path)
    assert [group.name for group in every_group(nodes)] == ["outer", "inner"]
    assert [one["lm_eval"] for one in settings("outer", wanted)] == ["made"]
    assert checked("outer", wanted) == [CheckedTask("made", "generate_until", 6, 1, 0, [])]


def test_a_field_that_is_read_and_not_used_is_mentioned(home):
    done = made(home, TASK + "fewshot_config: {fewshot_indices: [1]}\n")
    assert [note.partition(": ")[2] for note in done.notes] == [
        "fewshot_config.fewshot_indices: ignored, as in lm-evaluation-harness 0.4.13"
    ]


@pytest.mark.parametrize(
    ("fields", "leaks"),
    [
        ("num_fewshot: 1\n", True),  # no split of the examples: the evaluated one, which is not compared there
        ("num_fewshot: 1\nfewshot_split: test\n", False),
        ("num_fewshot: 1\nfewshot_config: {samples: [{q: q, a: a}]}\n", False),
        ("num_fewshot: 0\n", False),
    ],
)
def test_a_document_that_may_be_its_own_example_is_said(home, fields, leaks):
    told = [note for note in made(home, TASK + fields).notes if "the evaluated split 'test'" in note]
    assert len(told) == leaks


def test_a_metric_that_stands_twice_is_said(home):
    text = TASK.replace(
        "  - metric: exact_match\n", "  - metric: exact_match\n  - {metric: exact_match, ignore_case: true}\n"
    )
    (note,) = made(home, text).notes
    assert note.endswith(
        "task.yaml:8: metric_list: exact_match is listed 2 times; the last entry is used, as in lm-evaluation-harness"
    )


def test_a_task_written_later_and_one_in_another_folder_are_found(tmp_path, monkeypatch):
    here, wanted = TaskRequest(include_path=(".",)), []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        task_folder(tmp_path / folder, TASK.replace("made", folder))
        wanted += [leaf.name for leaf in nodes_of(folder, here.include_path)]
    task_folder(tmp_path / "b", TASK.replace("made", "late"), name="late.yaml")
    wanted += [leaf.name for leaf in nodes_of("late", here.include_path)]
    assert wanted == ["a", "b", "late"]


def test_a_task_is_loaded_once_and_its_seeds_are_part_of_what_is_asked(home):
    path, tasks = str(task_folder(home)), LoadedTasks()
    first = tasks.task(path, "made", TaskRequest())
    (home / "data.jsonl").write_text("")  # nobody reads it again
    assert tasks.task(path, "made", TaskRequest(samples=3)).docs is first.docs
    assert tasks.task(path, "made", TaskRequest(samples=3)).config.repeats == 3
    assert tasks.task(path, "made", TaskRequest(predict_only=True)).config.metric_list == [{"metric": "bypass"}]
    with pytest.raises(InputError, match="has no documents"):
        tasks.task(path, "made", TaskRequest(seeds=(1, 2, 3, 4)))
