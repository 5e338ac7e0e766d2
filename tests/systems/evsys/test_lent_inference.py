import inspect

import pytest

from calipers.compat import activate
from calipers.errors import CalipersError
from calipers.systems.evsys.lent import (
    INFERENCE_REGISTRY,
    ChatTemplatedInference,
    InferenceClient,
    MockInference,
    get_inference,
    list_inference,
    register_inference,
)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(INFERENCE_REGISTRY, "_classes", dict(INFERENCE_REGISTRY._classes))
    monkeypatch.setattr(INFERENCE_REGISTRY._index, "added", {})


@pytest.mark.parametrize(
    ("template", "stop", "said"),
    [
        ("A:{prompt}|END", ["|"], "A:hi"),
        ('{"tool": 1}', None, '{"tool": 1}'),  # the template has an unknown field, and is returned as it is
        ("{} and {0}", [], "{} and {0}"),
        ("{prompt}{prompt}", ["", "ih"], "h"),  # an empty stop string ends nothing
        ("a|b;c", [";", "|"], "a"),
    ],
)
def test_the_mock(template, stop, said):
    assert MockInference(template).generate(prompt="hi", stop=stop, max_tokens=1, temperature=2.0) == said


def test_the_mock_by_default():  # each stop string cuts the text that the one before has left
    assert MockInference().generate(prompt="x", stop=["</answer>", "<answer>"]) == "<think>mock thinking</think>\n"
    assert MockInference().generate(prompt="x").endswith("<answer>MOCK_ANSWER</answer>")


def test_a_lone_brace_is_a_value_error():
    with pytest.raises(ValueError, match=r"Single '\{' encountered"):
        MockInference("{").generate(prompt="hi")


class Tokenizer:
    """A tokenizer whose chat template is readable in a test."""

    def apply_chat_template(self, turns, *, tokenize, add_generation_prompt, **more):
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"[{turn['role']}:{turn['content']}]" for turn in turns) + "".join(map(str, more.items()))


class Local:
    """A client with a chat template that answers with its prompt."""

    name = "local"
    _tokenizer = Tokenizer()

    def generate(self, *, prompt, max_tokens=256, temperature=0.0, stop=None):
        return f"{prompt} {max_tokens} {temperature} {stop}"


class Batched(Local):
    def generate_batch(self, *, prompts, max_tokens=256, temperature=0.0, stop=None):
        return [f"{len(prompts)}: {prompt}" for prompt in prompts]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "[user:{x}]"),  # braces in a prompt are ordinary
        ({"system_prompt": "be brief", "user_template": "Q: {prompt}?"}, "[system:be brief][user:Q: {x}?]"),
        ({"enable_thinking": False}, "[user:{x}]('enable_thinking', False)"),
        ({"enable_thinking": None}, "[user:{x}]"),  # the setting is not passed to the template
    ],
)
def test_prompts_as_chats(settings, said):
    client = ChatTemplatedInference(Local(), **settings)
    assert client.generate(prompt="{x}", max_tokens=7, temperature=0.5, stop=["."]) == f"{said} 7 0.5 ['.']"
    assert isinstance(client, InferenceClient)


def test_settings_of_a_chat_can_be_changed_as_in_evsys():
    client = ChatTemplatedInference(Local(), system_prompt="a")
    client.system_prompt, client.user_template, client.enable_thinking = "b", "Q: {prompt}", True
    assert client.generate(prompt="x").startswith("[system:b][user:Q: x]('enable_thinking', True)")


def test_the_mock_has_a_config_and_a_default():
    assert MockInference(template=None).template == MockInference.Config().template == MockInference().template


def test_many_chats_at_once_or_one_by_one():
    assert ChatTemplatedInference(Batched()).generate_batch(prompts=["a", "b"]) == ["2: [user:a]", "2: [user:b]"]
    assert ChatTemplatedInference(Local()).generate_batch(prompts=["a"], stop=["."]) == ["[user:a] 256 0.0 ['.']"]


@pytest.mark.parametrize("base", [MockInference(), object(), None])
def test_a_client_without_a_chat_template_is_refused(base):
    with pytest.raises(TypeError, match="has no _tokenizer; expected a client with a chat template") as caught:
        ChatTemplatedInference(base)
    assert isinstance(caught.value, CalipersError)


def test_the_registry():
    assert (list_inference(), get_inference("mock")) == (["mock"], MockInference)

    @register_inference("mine")
    class Mine(MockInference):
        pass

    assert (list_inference(), get_inference("mine"), Mine.name) == (["mine", "mock"], Mine, "mine")
    with pytest.raises(ValueError, match="inference_client 'mock' already registered"):
        register_inference("mock")(Mine)
    with pytest.raises(KeyError, match="No inference_client registered under 'nobody'"):
        get_inference("nobody")


@pytest.mark.parametrize("name", ["claude", "gemini", "local", "openai", "tinker"])
def test_what_is_not_lent_says_so(name):
    with pytest.raises(KeyError) as caught:
        get_inference(name)
    assert isinstance(caught.value, CalipersError)
    assert str(caught.value).startswith(
        f"Calipers does not provide the inference_client {name!r}; install evsys_sdk, or "
    )


def test_ones_own_client_may_have_a_name_of_evsys():
    @register_inference("openai")
    class Mine(MockInference):
        pass

    assert get_inference("openai") is Mine


def test_the_protocol_looks_for_both_attributes():
    activate()
    from evsys_sdk.protocols import InferenceClient as Lent

    assert isinstance(Local(), Lent)
    assert not isinstance(Tokenizer(), Lent)
    parameters = inspect.signature(Lent.generate).parameters.values()
    assert {one.name: one.default for one in parameters if one.default is not one.empty} == {
        "max_tokens": 256,
        "temperature": 0.0,
        "stop": None,
    }
