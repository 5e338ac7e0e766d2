import pytest
from systems.lm_eval.tasks.given import config

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks import TaskFile, task_config


def test_few_shot_takes_from_the_task_what_it_does_not_say():
    made = config(
        task="t", doc_to_text="q", doc_to_target="a", fewshot_split="train", fewshot_config={"sampler": "first_n"}
    )
    shots = made.fewshot_config
    assert (shots.sampler, shots.split, shots.doc_to_text, shots.doc_to_target) == ("first_n", "train", "q", "a")
    own = config(task="t", doc_to_text="q", fewshot_split="train", fewshot_config={"split": "dev", "doc_to_text": "p"})
    assert (own.fewshot_config.split, own.fewshot_config.doc_to_text) == ("dev", "p")


@pytest.mark.parametrize(
    ("fields", "kwargs"),
    [
        ({}, {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256, "until": ["\n\n"]}),
        ({"fewshot_delimiter": None}, {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256, "until": []}),
        ({"output_type": "multiple_choice"}, None),
        ({"generation_kwargs": {"until": "\n"}}, {"until": "\n"}),  # as it stands; the request makes a list of it
        ({"generation_kwargs": {"temperature": "0.5"}}, {"temperature": 0.5, "until": ["\n\n"]}),
        ({"generation_kwargs": {}}, {"until": ["\n\n"]}),
        # lm-eval only warns of settings that nothing is generated with
        ({"output_type": "loglikelihood", "generation_kwargs": {"a": 1}}, {"a": 1, "until": ["\n\n"]}),
    ],
)
def test_generation_settings_are_completed(fields, kwargs):
    assert config(task="t", **fields).generation_kwargs == kwargs


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"metrics_list": []}, "no field of a task named 'metrics_list'; did you mean 'metric_list'"),
        ({"output_type": "generate"}, "no output_type named 'generate'; did you mean 'generate_until'"),
        ({"repeats": 0}, "repeats: is 0; expected an integer >= 1"),
        ({"repeats": True}, "repeats: is True; expected an integer"),
        ({"num_fewshot": "3"}, "num_fewshot: is '3'; expected an integer"),
        ({"num_fewshot": -1}, "num_fewshot: is -1; expected an integer >= 0"),
        ({"dataset_kwargs": "x"}, "dataset_kwargs: is 'x'; expected a mapping"),
        ({"process_docs": "utils.f"}, "process_docs: is 'utils.f'; expected !function module.name"),
        ({"metric_list": ["acc"]}, "metric_list[0]: is 'acc'; expected a mapping with metric: NAME"),
        ({"metric_list": {"metric": "acc"}}, "metric_list: is {'metric': 'acc'}; expected a list"),
        ({"filter_list": [{"filter": []}]}, "filter_list[0]: is {'filter': []}; expected a mapping with name:"),
        ({"filter_list": [{"name": "a"}]}, "filter_list[0].filter: is None; expected a list of steps"),
        ({"filter_list": [{"name": "a", "filter": ["regex"]}]}, "filter_list[0].filter[0]: is 'regex'; expected"),
        (
            {"filter_list": [{"name": "a", "filter": [], "metric_list": [{"metrc": 1}]}]},
            "filter_list[0].metric_list[0]: is {'metrc': 1}",
        ),
        (
            {"filter_list": [{"name": "a", "filter": []}, {"name": "b", "filter": [], "metric_list": "acc"}]},
            ": filter_list[1].metric_list: is 'acc'; expected a list",
        ),
        ({"generation_kwargs": {"temperature": "hot"}}, "generation_kwargs.temperature: is 'hot'; expected a number"),
        ({"fewshot_config": {"smapler": "x"}}, "no field of fewshot_config named 'smapler'; did you mean 'sampler'"),
        ({"fewshot_config": {"sampler": "last_n"}}, "no sampler named 'last_n'; did you mean 'first_n'"),
    ],
)
def test_a_field_that_cannot_be_is_refused(fields, said):
    with pytest.raises(InputError) as caught:
        config(task="t", **fields)
    assert said in str(caught.value)


def test_the_error_stands_where_the_field_does():
    with pytest.raises(InputError, match=r"^t\.yaml:7: repeats: is 'x'"):
        task_config(TaskFile(None, {"repeats": "x"}, {"repeats": "t.yaml:7"}))


def test_null_is_the_default_where_nothing_else_makes_sense():
    made = config(task="t", description=None, repeats=None, output_type=None, metric_list=None)
    assert (made.description, made.repeats, made.output_type, made.metric_list) == ("", 1, "generate_until", None)


def test_a_date_as_the_name_of_a_dataset_is_its_text():
    import datetime

    assert config(task="t", dataset_name=datetime.date(2024, 1, 2)).dataset_name == "2024-01-02"


def test_the_callers_values_stay_as_they_were():
    given = {"task": "t", "generation_kwargs": {"temperature": "1"}}
    config(**given)
    assert given == {"task": "t", "generation_kwargs": {"temperature": "1"}}
