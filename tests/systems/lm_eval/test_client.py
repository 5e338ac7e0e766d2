import pytest

from calipers.errors import InputError
from calipers.running import Job
from calipers.running.library import check_apart
from calipers.running.provenance import identity
from calipers.running.settings import jobs_of, read_config
from calipers.systems.lm_eval.client import check_model, manner, prompt_settings, template_name
from calipers.systems.lm_eval.tasks.prompts import Manner
from calipers.systems.lm_eval.write import digest
from calipers.tasks import Suite


def job(model="openai/m", **settings):
    return Job("task.yaml", model, lm_eval="made", **settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Manner()),
        ({"apply_chat_template": None}, Manner()),  # null in a file
        ({"system_instruction": "Go."}, Manner(system="Go.")),
        ({"apply_chat_template": True}, Manner(chat=True)),
        ({"apply_chat_template": "tool_use"}, Manner(chat=True)),
        ({"apply_chat_template": True, "fewshot_as_multiturn": False}, Manner(chat=True, multiturn=False)),
        ({"apply_chat_template": True, "system_instruction": "Go."}, Manner(chat=True, system="Go.")),
    ],
)
def test_how_prompts_are_written(settings, expected):
    assert manner(job(**settings)) == expected


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"fewshot_as_multiturn": True}, "--fewshot-as-multiturn: needs a chat template"),
        ({"apply_chat_template": True, "system_prompt": "x"}, "--system-prompt: adds a separate system message"),
        ({"system_instruction": "y", "system_prompt": "x"}, "--system-prompt: adds a separate system message"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, wrong):
    with pytest.raises(InputError, match=wrong):
        manner(job(**settings))


CHAT = {"apply_chat_template": True}
NAMED = {"apply_chat_template": "tool_use"}


@pytest.mark.parametrize(
    ("model", "settings", "written", "wrong"),
    [
        ("openai/m", NAMED, True, "'tool_use' was read as the name of a chat template, which only hf/ models have"),
        ("hf/m", {"apply_chat_template": __file__}, True, "put the benchmark before the option, or after --"),
        ("openai/m", CHAT, False, "the task needs log-likelihoods, which openai/m does not return for a chat"),
        ("openai/m", {**CHAT, "api": "completions"}, True, "the completions route accepts text, not chat messages"),
        ("hf/m", {**CHAT, "api": "completions"}, True, "the completions route accepts text, not chat messages"),
    ],
)
def test_a_chat_with_a_model_that_takes_none_is_refused(model, settings, written, wrong):
    with pytest.raises(InputError, match=wrong) as refusal:
        check_model(job(model, **settings), written=written)
    assert str(refusal.value).startswith("--apply-chat-template: ")


@pytest.mark.parametrize(
    ("model", "settings", "written"),
    [
        ("openai/m", {"api": "completions"}, False),
        ("openai/m", CHAT, True),
        ("hf/m", NAMED, True),
        ("hf/m", {**NAMED, "api": "completions"}, False),  # likelihoods know no route
        ("replay/m", {**NAMED, "api": "completions"}, False),
    ],
)
def test_a_model_that_takes_the_chat_is_not_refused(model, settings, written):
    check_model(job(model, **settings), written=written)


@pytest.mark.parametrize(
    "settings",
    [CHAT, NAMED, {"fewshot_as_multiturn": False}, {"system_instruction": ""}],
    ids=lambda held: next(iter(held)),
)
def test_another_benchmark_is_not_asked_as_theirs_are(settings):
    name = next(iter(settings)).replace("_", "-")
    with pytest.raises(InputError, match=f"^--{name}: is only for tasks of lm-evaluation-harness, and data is not one"):
        check_apart(Job("data", "openai/m", **settings))
    check_apart(Job("data", "openai/m"))


def test_the_name_of_a_template():
    assert [template_name(job(**one)) for one in ({}, CHAT, NAMED)] == [None, "", "tool_use"]


def test_another_template_is_another_run():
    prompts = [identity(job("hf/m", **one), Suite("s", [], {}))["prompt"] for one in ({}, CHAT, NAMED)]
    assert [one.get("chat_template") for one in prompts] == [None, None, "tool_use"]
    assert prompts[0] == prompts[1]  # the turns are in the tasks already


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, {}),
        ({"system_instruction": "Go."}, ("Go.", digest("Go."), None, None, None)),
        (CHAT, (None, None, True, "", None)),
        ({**CHAT, "fewshot_as_multiturn": False}, (None, None, False, "", None)),
    ],
)
def test_what_a_results_file_says(settings, told):
    keys = (
        "system_instruction",
        "system_instruction_sha",
        "fewshot_as_multiturn",
        "chat_template",
        "chat_template_sha",
    )
    assert prompt_settings(job(**settings), None) == (dict(zip(keys, told, strict=True)) if told else {})


@pytest.mark.parametrize(
    ("given", "api"),
    [({}, "completions"), ({"apply_chat_template": ""}, "chat"), ({"api": "completions"}, "completions")],
)
def test_a_local_model_is_asked_in_turns_once_it_is_said(tmp_path, given, api):
    (tmp_path / "t.yaml").write_text(
        "task: t\ndataset_path: json\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n"
    )
    ((made,), _) = jobs_of([str(tmp_path / "t.yaml")], {"model": ("hf/m",), **given})
    assert (made.api, made.apply_chat_template) == (api, "apply_chat_template" in given)


@pytest.mark.parametrize(("said", "held"), [("true", True), ("tool_use", "tool_use"), ("false", False)])
def test_a_file_says_it_too(tmp_path, said, held):
    path = tmp_path / "run.yaml"
    path.write_text(f"benchmark: x\nmodel: hf/m\napply_chat_template: {said}\nsystem-instruction: Go.\n")
    ([settings], _) = read_config(str(path))
    assert (settings["apply_chat_template"], settings["system_instruction"]) == (held, "Go.")
