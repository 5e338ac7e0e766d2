"""What a command means: seeds, task files with functions in them, chats."""

from __future__ import annotations

import pytest
from golden.lm_eval_own.folders import folder
from golden.lm_eval_own.ported import ported

from calipers.errors import CalipersError, InputError
from calipers.running import Job
from calipers.running.settings import load_seeds
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, nodes_of, scoring
from calipers.systems.lm_eval.client import manner
from calipers.systems.lm_eval.task_scores import AnsweredDocument, ScoringSettings, score_documents
from calipers.systems.lm_eval.tasks.groups import leaves

FILE = "test_cli_subcommands.py"
LISTED = "TestCLIUtils::test_int_or_none_list_"
KEPT = "TestEvaluatorConfigSeedNormalization::test_"


@ported(
    FILE,
    "given, expected",
    {
        "TestRunCommand::test_run_command_seed_parsing": [
            ("42", (42, 42, 42, 42)),
            ("0,1234,5678,9999", (0, 1234, 5678, 9999)),
        ],
        f"{LISTED}single_value": [("42", (42, 42, 42, 42))],
        f"{LISTED}multiple_values": [("10,20,30,40", (10, 20, 30, 40))],
        f"{KEPT}scalar_seed_from_yaml_config": [(42, (42, 42, 42, 42))],
        f"{KEPT}zero_seed_from_yaml_config_still_seeds": [(0, (0, 0, 0, 0))],
        f"{KEPT}single_element_list_is_expanded": [([42], (42, 42, 42, 42))],
        f"{KEPT}string_scalar_seed_is_parsed": [("42", (42, 42, 42, 42))],
        f"{KEPT}four_element_list_is_unchanged": [([0, 1234, 1234, 1234], (0, 1234, 1234, 1234))],
        f"{KEPT}three_seeds_are_filled_from_defaults_like_the_cli": [([1, 2, 3], (1, 2, 3, 1234))],
    },
)
def test_seeds(given, expected):
    assert load_seeds("--load-seeds", given) == expected


@ported(
    FILE,
    "given",
    {
        f"{LISTED}invalid_value": [("10,invalid,30,40",)],
        f"{LISTED}too_few_values": [("10,20",)],
        f"{LISTED}too_many_values": [("10,20,30,40,50",)],
        f"{KEPT}partial_list_raises_clear_error": [([1, 2],)],
    },
)
def test_what_are_no_seeds_is_refused(given):
    with pytest.raises(InputError, match="--load-seeds"):
        load_seeds("--load-seeds", given)


@ported(
    FILE,
    "settings, chat, multiturn",
    {
        "TestEvaluatorConfigFromCLI::test_fewshot_as_multiturn_defaults_with_chat_template": [
            ({"apply_chat_template": True}, True, True)
        ]
    },
)
def test_a_chat_has_its_examples_as_turns(settings, chat, multiturn):
    made = manner(Job("benchmark", "hf/model", **settings))
    assert (made.chat, made.multiturn) == (chat, multiturn)


TASKS = "TestEvaluatorConfigTaskLoading::test_"
CODE = {
    "utils.py": "def process(rows):\n    return rows\n\n\ndef exact(references, predictions):\n"
    "    return float(references[0].strip() == predictions[0].strip())\n\n\n"
    "def mean(items):\n    return sum(items) / len(items)\n",
    "data.json": '[{"question": "2+2?", "answer": "4"}]\n',
    "custom_fn_task": "task: custom_fn_task\ndataset_path: json\ndataset_kwargs: {data_files: {test: data.json}}\n"
    "test_split: test\noutput_type: generate_until\nprocess_docs: !function utils.process\n"
    'doc_to_text: "{{question}}"\ndoc_to_target: answer\ngeneration_kwargs: {until: ["\\n"]}\nmetric_list:\n'
    "  - {metric: !function utils.exact, aggregation: !function utils.mean, higher_is_better: true}\n",
}


@ported(FILE, "name", {f"{TASKS}custom_yaml_file_relative_path": [("custom_fn_task",)]})
def test_a_task_file_by_a_relative_path(tmp_path, monkeypatch, name):
    folder(tmp_path, CODE)
    monkeypatch.chdir(tmp_path)
    assert [leaf.name for leaf in leaves(nodes_of(f"{name}.yaml"))] == [name]


@ported(FILE, "name", {f"{TASKS}missing_yaml_file_raises_error": [("nonexistent.yaml",)]})
def test_a_task_file_that_is_not_there(tmp_path, name):
    with pytest.raises(CalipersError, match=r"nonexistent\.yaml"):
        nodes_of(str(tmp_path / name))


@ported(
    FILE,
    "said, score",
    {
        f"{TASKS}custom_yaml_file_resolves_function_refs": [("4", 1.0)],
        f"{TASKS}custom_metric_survives_into_built_task": [("4", 1.0), ("5", 0.0)],
    },
)
def test_a_metric_of_ones_own_in_a_task_file(tmp_path, said, score):
    path = folder(tmp_path, CODE) / "custom_fn_task.yaml"
    task = LoadedTasks().task(str(path), "custom_fn_task", TaskRequest(trust=True))
    assert callable(task.config.process_docs)
    scores = score_documents([AnsweredDocument(task.docs[0], "4", [[said]])], scoring(task), ScoringSettings())
    assert scores.numbers(0).metrics["exact,none"] == score
    assert scores.higher_is_better() == {"exact": True}
