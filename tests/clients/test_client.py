import asyncio

import pytest
from compat.packages import put

from calipers.clients import Connection, Request, connect
from calipers.clients.replay import Replay
from calipers.errors import ClientError, InputError, PluginError, UnknownName
from calipers.names import CLIENTS

KINDS = f"(kinds: {', '.join(sorted(CLIENTS.entries))})"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("gpt-x", f"model 'gpt-x' does not start with a kind; expected KIND/NAME, such as 'openai/gpt-x' {KINDS}"),
        ("", f"model '' does not start with a kind; expected KIND/NAME, such as 'openai/NAME' {KINDS}"),
        ("/gpt-x", f"model '/gpt-x' does not start with a kind; expected KIND/NAME, such as 'openai/gpt-x' {KINDS}"),
        ("opnai/gpt-x", f"no kind of model named 'opnai'; did you mean 'openai/gpt-x'? {KINDS}"),
        (
            "meta-llama/Llama-3",  # the name of a model that looks like a kind
            f"no kind of model named 'meta-llama'; expected KIND/NAME, such as 'openai/meta-llama/Llama-3' {KINDS}",
        ),
    ],
)
def test_a_spec_nobody_can_serve(spec, said):
    with pytest.raises(UnknownName) as raised:
        connect(spec, Connection())
    assert str(raised.value) == said


@pytest.mark.parametrize("spec", ["openai", "openai/", " replay/ "])
def test_a_kind_without_a_name(spec):
    with pytest.raises(InputError, match=r"has no name; expected (openai|replay)/NAME"):
        connect(spec, Connection())


def test_the_name_is_all_that_follows_the_first_slash(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"task": "a", "completion": "4"}\n')
    client = connect(f"replay/{tmp_path}/a.jsonl", Connection())
    assert isinstance(client, Replay)
    asyncio.run(client.close())


PLUGIN = """
from clients.scripted import Scripted
def connect(name, connection):
    return Scripted(lambda request: f"{name} says {request.prompt}")

class Hoarse:
    notes = ["it has a cold"]
    def __init__(self, name, connection):
        if name == "gone":
            raise OSError("it flew away")
    async def complete(self, request):
        raise KeyError("cough")
"""


@pytest.fixture
def _installed(tmp_path, monkeypatch):
    put(
        tmp_path,
        "parrots",
        PLUGIN,
        {"calipers.clients": {"parrot": "parrots:connect", "dead": "parrots:nothing", "hoarse": "parrots:Hoarse"}},
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    CLIENTS.discard("parrot")
    CLIENTS.discard("hoarse")


@pytest.mark.usefixtures("_installed")
def test_a_package_that_fails_is_no_bug_of_ours():
    client = connect("hoarse/polly", Connection())
    assert client.notes == ["it has a cold"]
    with pytest.raises(ClientError, match=r"^KeyError: 'cough'$"):
        asyncio.run(client.complete(Request("t", 0, "hello")))
    with pytest.raises(PluginError, match=r"^model 'hoarse/gone': the plugin failed: OSError: it flew away$"):
        connect("hoarse/gone", Connection())


@pytest.mark.usefixtures("_installed")
def test_a_package_brings_a_kind():
    client = connect("parrot/polly/2", Connection())
    assert asyncio.run(client.complete(Request("t", 0, "hello"))).text == "polly/2 says hello"
    with pytest.raises(UnknownName, match="did you mean 'parrot/polly'"):
        connect("parot/polly", Connection())


@pytest.mark.usefixtures("_installed")
def test_a_package_that_cannot_be_loaded_is_named():
    with pytest.raises(PluginError, match=r"'dead' of package parrots \(parrots:nothing\) cannot be loaded"):
        connect("dead/polly", Connection())
