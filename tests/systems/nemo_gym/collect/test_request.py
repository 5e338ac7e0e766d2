"""The settings of a collection: options, NeMo Gym's ``+key=value`` words, and errors in both."""

from __future__ import annotations

from pathlib import Path

import pytest
from systems.nemo_gym.collect.gathering import here, tasks
from systems.nemo_gym.heads import HeadServer

from calipers.errors import CalipersError, ClientError
from calipers.systems.nemo_gym.collect.agents import addresses, head_agents
from calipers.systems.nemo_gym.collect.collect import collect
from calipers.systems.nemo_gym.collect.request import HEAD, Materializing, collecting, value_of

FILES = {"input": "i.jsonl", "output": "o.jsonl"}
NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("-1", -1),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("null", None),
        ("None", None),
        ("true", True),
        ("False", False),
        ('"4"', "4"),
        ("'null'", "null"),
        ("", ""),
        ("runs/a b.jsonl", "runs/a b.jsonl"),
        ("{math:2,_default:1}", {"math": 2, "_default": 1}),  # Hydra's syntax
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("[1,2]", [1, 2]),
        ("{math}", "{math}"),
        # the first comma belongs to the inner object
        ("{metadata:{a:1,b:2},top_p:1}", {"metadata": {"a": 1, "b": 2}, "top_p": 1}),
        ("{stop:[a,b],n:2}", {"stop": ["a", "b"], "n": 2}),
        # keys are text, as in JSON
        ("{[1]:2, 3:4, 'null':5, null:6}", {"[1]": 2, "3": 4, "null": 6}),
    ],
)
def test_the_value_of_a_word(text, value):
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(
    ("options", "words", "how"),
    [
        ({}, [], Materializing()),
        ({"agents": ("a=http://x",)}, [], Materializing(agent_name="a")),  # the only agent is the default
        ({"agents": ("a=http://x", "b=http://y")}, [], Materializing()),
        ({"agents": ("a=http://x",), "agent_name": "b"}, [], Materializing(agent_name="b")),
        # an option takes precedence over a word
        ({"num_repeats": "3"}, ["+num_repeats=5"], Materializing(num_repeats=3)),
        ({"num_repeats": "a=2,_default=1"}, [], Materializing(num_repeats={"a": 2, "_default": 1})),
        ({}, ["+num_repeats.a=2", "+num_repeats._default=1"], Materializing(num_repeats={"a": 2, "_default": 1})),
        ({}, ["+num_repeats={a:2,_default:1}"], Materializing(num_repeats={"a": 2, "_default": 1})),
        ({}, ["+num_repeats=null", "+limit=0"], Materializing(limit=0)),
        ({}, ["+responses_create_params.a.b=1"], Materializing(responses_create_params={"a": {"b": 1}})),
        (
            {"params": '{"temperature": 0, "x": 1}', "temperature": 0.5, "max_output_tokens": 9},
            [],
            Materializing(responses_create_params={"temperature": 0.5, "x": 1, "max_output_tokens": 9}),
        ),
    ],
)
def test_how_inputs_become_rollouts(options, words, how):
    assert collecting({**FILES, **options}, words).how == how


def test_the_rest_of_what_is_asked():
    words = ["++resume_from_cache=false", "+disable_aggregation=true", "+num_samples_in_parallel=7", "skills=null"]
    asked = collecting({}, ["+input_jsonl_fpath=i.jsonl", "+output_jsonl_fpath=1.jsonl", *words])
    assert (asked.input, asked.output) == ("i.jsonl", Path("1.jsonl"))
    assert (asked.overwrite, asked.aggregate, asked.concurrency) == (True, False, 7)
    assert collecting(FILES, ["+num_samples_in_parallel=null"]).concurrency == 32
    assert collecting(FILES, []).head == HEAD
    assert collecting(FILES, ["+head_server.host=10.0.0.1"]).head == "http://10.0.0.1:11000"


@pytest.mark.parametrize(
    ("options", "words", "said"),
    [
        ({"input": None}, [], "--input: is not given; expected a file (or input_jsonl_fpath=FILE)"),
        ({"output": None}, [], "--output: is not given; expected a file (or output_jsonl_fpath=FILE)"),
        ({"output": "tasks.jsonl"}, [], "tasks.jsonl: tasks.jsonl would be overwritten; choose another --output"),
        ({"output": "tasks.jsonl"}, ["+resume_from_cache=false"], "tasks.jsonl: tasks.jsonl would be overwritten"),
        ({"output": "."}, [], ".: is a directory; expected a file, such as rollouts.jsonl"),
        ({"input": "no.jsonl"}, [], "no.jsonl: cannot be read (No such file or directory)"),
        ({}, ["num_repeats"], "'num_repeats' cannot be read; expected +key=value, such as +num_repeats=4"),
        ({}, ["+num_repeat=2"], "no key of a collection named 'num_repeat'; did you mean 'num_repeats'"),
        ({}, ["+limit.x=2"], "+limit.x=2: limit has no keys; expected +limit=value"),
        ({}, ["+upload_rollouts_to_wandb=true"], "upload_rollouts_to_wandb has no effect here; remove it"),
        ({}, ["+limit=many"], "limit: is 'many'; expected an integer"),
        ({"limit": -1}, [], "--limit: is -1; expected an integer >= 0"),
        ({}, ["+num_repeats=0"], "the number of repeats is 0; expected an integer >= 1"),
        ({}, ["+num_repeats=true"], "num_repeats: is True; expected an integer"),
        ({}, ["+resume_from_cache=maybe"], "resume_from_cache: is 'maybe'; expected true or false"),
        ({}, ["+agent_name=[1]"], "agent_name: is [1]; expected text"),
        ({"num_repeats": "two"}, [], "num_repeats: is 'two'; expected a number, or NAME=N,_default=N"),
        ({"num_repeats": "math=x"}, [], "num_repeats: is 'x'; expected a number, or NAME=N,_default=N"),
        ({"num_repeats": "other=2"}, [], "no number of repeats for agent math; expected one, or _default"),
        ({"temperature": float("nan")}, [], "responses_create_params.temperature: is nan; expected a finite number"),
        ({}, ["+responses_create_params.top_p=Infinity"], "responses_create_params.top_p: is inf; expected a finite"),
        ({"params": "[1]"}, [], "responses_create_params: is [1]; expected a JSON object"),
        ({"agents": ("http://127.0.0.1:1",)}, [], "--agent: 'http://127.0.0.1:1' cannot be read; expected NAME=URL"),
        ({"agents": ("math=",)}, [], "--agent: 'math=' cannot be read; expected NAME=URL"),
        ({"agents": ("a=http://x", "a=http://y")}, [], "--agent: a is given twice; expected it once"),
        ({"agents": ("math=ftp://x",)}, [], "--agent math: 'ftp://x' is not a server address"),
        ({"agents": ("math=http://u:hush@x",)}, [], "--agent math: the URL contains a user name or a password"),
        ({"agents": ("math=http://x/?key=hush",)}, [], "--agent math: the URL contains a query"),
        ({"agents": ("math=http://x:port",)}, [], "--agent math: cannot parse the host or port of the URL"),
        ({"agents": ("math=http:///run",)}, [], "--agent math: 'http:///run' is not a server address"),
        ({"agents": ("math=openai/m",)}, [], "--agent math: the built-in agent has no verifier"),
        ({"verify_url": NOBODY, "verifier": "contains"}, [], "--verifier: is given together with --verify-url"),
        ({"verifier": "exact_mach"}, [], "no verifier named 'exact_mach'; did you mean 'exact_match'"),
        ({"concurrency": 0}, [], "--concurrency: is 0; expected an integer >= 1"),
        ({"retries": -1}, [], "--retries: is -1; expected an integer >= 0"),
        ({"timeout": 0.0}, [], "--timeout: is 0; expected a number > 0"),
        ({"metrics": ("pas@1",)}, [], "no metric named 'pas@1'; did you mean"),
        ({"token_env": "NO_SUCH_TOKEN"}, [], "--token-env: $NO_SUCH_TOKEN is not set"),
        ({"prompt_config": "no.yaml"}, [], "no.yaml: cannot be read (No such file or directory)"),
        (
            {"prompt_config": "bad.yaml"},
            [],
            ("bad.yaml: is not valid YAML; expected YAML with user, and optionally system"),
        ),
        ({"prompt_config": "date.yaml"}, [], "date.yaml: is not valid YAML; expected YAML with user"),
        ({"prompt_config": "empty.yaml"}, [], "empty.yaml: there is no text under user"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(tmp_path, monkeypatch, options, words, said):
    monkeypatch.chdir(tmp_path)
    tasks(tmp_path, 2)
    (tmp_path / "bad.yaml").write_text("user: [")
    (tmp_path / "date.yaml").write_text("user: x\nwritten: 2024-02-30")
    (tmp_path / "empty.yaml").write_text("system: x")
    before = sorted(tmp_path.iterdir())
    agents = {"agents": ("math=openai/m",)} if "verifier" in options else {"agents": (f"math={NOBODY}",)}
    given = {"input": "tasks.jsonl", "output": "r.jsonl", **agents, **options}
    with pytest.raises(CalipersError) as error:
        collect(collecting({name: value for name, value in given.items() if value is not None}, words))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "hush" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'"{}"', {}),
        (b'"a: {resources_servers: {m: {port: 1}}}"', {}),  # no agent
        (b'"a: {responses_api_agents: {m: {host: 10.0.0.9, port: 7}}}"', {"a": "http://10.0.0.9:7"}),
        (b'"a: {responses_api_agents: {m: {host: localhost}}}\\nb: [1]\\nc: null"', {}),  # has no port yet
    ],
)
def test_where_a_head_server_says_the_agents_are(body, found):
    assert addresses(body) == found


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'"a: ["', b"\xff", b'"a: 2024-02-30"', b'"a: !!python/object/apply:os.system [id]"']
)
def test_a_head_server_that_talks_rubbish(body):
    with pytest.raises(ClientError, match="the head server's configuration cannot be read"):
        addresses(body)


def test_a_head_server_is_asked_over_http():
    with here(HeadServer({"math": "http://127.0.0.1:4711"})) as head:
        assert head_agents(f"http://127.0.0.1:{head.port}") == {"math": "http://127.0.0.1:4711"}
        with pytest.raises(ClientError, match="returns HTTP 404"):
            head_agents(f"http://127.0.0.1:{head.port}/elsewhere")
    with pytest.raises(ClientError, match="no head server answers at"):
        head_agents(NOBODY)
