"""Options for loading a checkpoint: all answers of lm-evaluation-harness' ``hf`` model with the same arguments."""

import importlib.util
import json
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from cli.running import calipers
from hf import tiny
from hf.asking import ask, request, score
from hf.parity import OPTION_ASKED, OPTION_PAIRS, OPTION_WHOLE, OPTIONS, OPTIONS_FIXTURE, filled
from hf.test_run import words

from calipers.clients import Connection, Continuation, Rolling
from calipers.clients import connect as connect_any
from calipers.clients.huggingface import ELSEWHERE, LoadOptions
from calipers.clients.huggingface.checkpoint import load
from calipers.clients.huggingface.client import connect
from calipers.errors import ClientError, InputError, UnknownName

THEIRS = json.loads(OPTIONS_FIXTURE.read_text())
CLOSE = {"rel": 1e-5, "abs": 1e-5}


@pytest.fixture(scope="session")
def paths(checkpoints, tmp_path_factory):
    """Paths by name: of the checkpoints, of a tokenizer with a limit, and of an adapter if peft is installed."""
    home = tmp_path_factory.mktemp("options")
    llama = shutil.copytree(checkpoints["llama"], home / "llama")
    tiny.build(llama / "inner", "gpt2")
    made = {"llama": str(llama), "gpt2": checkpoints["gpt2"], "short": tiny.shortened(home / "short", "llama")}
    if importlib.util.find_spec("peft") is not None:
        made["adapter"] = tiny.adapter(home / "adapter", str(llama))
    return made


def loaded(name, paths):
    kind, given = OPTIONS[name]
    if "peft" in given and "adapter" not in paths:
        pytest.skip("peft is not installed; make test-hf brings it")
    return paths[kind], filled(given, paths)


@pytest.mark.parametrize("name", OPTIONS)
def test_likelihoods(paths, name):
    path, given = loaded(name, paths)
    ours = score(path, *[[Continuation(*pair)] for pair in OPTION_PAIRS], model_args=given)
    for pair, mine, (logprob, greedy) in zip(OPTION_PAIRS, ours, THEIRS[name]["loglikelihood"], strict=True):
        assert mine[0].logprob == pytest.approx(logprob, **CLOSE), pair
        assert mine[0].greedy == greedy, pair
    whole = score(path, *[[Rolling(text)] for text in OPTION_WHOLE], model_args=given)
    for text, mine, logprob in zip(OPTION_WHOLE, whole, THEIRS[name]["rolling"], strict=True):
        assert mine[0].logprob == pytest.approx(logprob, **CLOSE), text


@pytest.mark.parametrize("name", OPTIONS)
def test_answers(paths, name):
    path, given = loaded(name, paths)
    for (text, how), theirs in zip(OPTION_ASKED, THEIRS[name]["generated"], strict=True):
        until = how.get("until", ())
        stop = (until,) if isinstance(until, str) else until
        wanted = request(text, max_tokens=how["max_gen_toks"], temperature=0.0, stop=stop, extra={"truncate": "left"})
        (mine,) = ask(path, wanted, api="completions", model_args=given)
        if isinstance(theirs, dict):  # it stops with an error
            assert isinstance(mine, ClientError), text
        else:
            assert mine.text == theirs, text


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "torch.float16"])
def test_the_weights_are_of_the_dtype(paths, name):
    import torch

    model = load(paths["llama"], LoadOptions.of({"dtype": name})).model
    assert {weights.dtype for weights in model.parameters()} == {getattr(torch, name.removeprefix("torch."))}


def test_a_revision_is_one_of_the_hubs_cache(checkpoints, monkeypatch, tmp_path):
    import huggingface_hub.constants

    home = tmp_path / "models--some--tiny"
    (home / "refs").mkdir(parents=True)
    (home / "snapshots").mkdir()
    for ref, digit, kind in (("main", "0", "gpt2"), ("step100", "1", "llama")):
        (home / "refs" / ref).write_text(digit * 40)
        (home / "snapshots" / (digit * 40)).symlink_to(Path(checkpoints[kind]), target_is_directory=True)
    for module in ("huggingface_hub.constants", "transformers.utils.hub"):
        for name in ("HF_HUB_CACHE", "TRANSFORMERS_CACHE"):
            if hasattr(sys.modules.get(module, huggingface_hub.constants), name):
                monkeypatch.setattr(f"{module}.{name}", str(tmp_path))
    main, other = (ask(checkpoints[kind], request())[0].text for kind in ("gpt2", "llama"))
    assert main != other
    assert ask("some/tiny", request())[0].text == main
    assert ask("some/tiny", request(), model_args={"revision": "main"})[0].text == main
    assert ask("some/tiny", request(), model_args={"revision": "step100"})[0].text == other
    assert ask("some/tiny", request(), model_args={"revision": "1" * 40})[0].text == other
    with pytest.raises(InputError, match=r"hf/some/tiny: the hub's local cache has no revision 'step7' of it"):
        connect("some/tiny", Connection(model_args={"revision": "step7"}))


def test_one_checkpoint_in_two_dtypes_is_loaded_twice(paths):
    """The idle checkpoint with other options is not used."""
    text = request(max_tokens=20)
    first = ask(paths["llama"], text)[0].text
    shorter = ask(paths["llama"], text, model_args={"max_length": 10})[0]
    assert shorter.usage["output_tokens"] < 20
    assert ask(paths["llama"], text)[0].text == first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dtype": "int8"}, "--model-args: dtype=int8 is unknown; expected auto, float16"),
        ({"max_length": 0}, "--model-args: max_length=0 cannot be read; expected an integer >= 1"),
        ({"max_length": True}, "--model-args: max_length=True cannot be read; expected an integer >= 1"),
        ({"add_bos_token": "maybe"}, "--model-args: add_bos_token=maybe cannot be read; expected true or false"),
        ({"tokenizer": []}, r"--model-args: tokenizer=\[\] cannot be read; expected a name"),
        ({"device": "gpu"}, "--model-args: device=gpu is unknown; expected cpu, cuda, cuda:N or mps"),
        ({"device": 0}, "--model-args: device=0 is unknown; expected cpu, cuda, cuda:N or mps"),
        ({"device_map": "all"}, "--model-args: device_map=all is unknown; expected auto, balanced, balanced_low_0"),
        ({"device_map": {}}, r"--model-args: device_map=\{\} is unknown; expected auto"),
        ({"parallelize": "yes"}, "--model-args: parallelize=yes cannot be read; expected true or false"),
        (
            {"attn_implementation": ["eager"]},
            r"--model-args: attn_implementation=\['eager'\] is unknown; expected eager",
        ),
        ({"attn_implementation": "flash"}, "--model-args: attn_implementation=flash is unknown; expected eager, sdpa"),
        ({"load_in_4bit": 4}, "--model-args: load_in_4bit=4 cannot be read; expected true or false"),
        ({"quantization_config": "4bit"}, "--model-args: quantization_config=4bit cannot be read; expected a mapping"),
        ({"device": "cpu", "parallelize": True}, "--model-args: device and parallelize exclude each other"),
        (
            {"load_in_8bit": True, "load_in_4bit": True},
            "--model-args: load_in_8bit and load_in_4bit exclude each other; expected one of the two",
        ),
        (
            {"trust_remote_code": True},
            "--model-args: trust_remote_code=true runs code that comes with the checkpoint; add --trust",
        ),
        ({"batch_size": 8}, "--model-args: batch_size is not supported; use --concurrency N"),
        ({"torch_dtype": "float16"}, "--model-args: torch_dtype is not supported; use dtype"),
        ({"pretrained": "m"}, "--model-args: pretrained is not supported; name the model with --model hf/PATH"),
        (
            {"tokenizer": "nowhere"},
            "--model-args: nowhere: no such checkpoint; expected a directory with token",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_call(paths, given, said):
    with pytest.raises(InputError, match=said):
        connect(paths["llama"], Connection(model_args=given))


def test_a_name_that_is_nearly_one_is_told(paths):
    with pytest.raises(UnknownName, match=r"--model-args: .*'dtyp'.*did you mean 'dtype'"):
        connect(paths["llama"], Connection(model_args={"dtyp": "float16"}))


def test_a_served_model_takes_none():
    with pytest.raises(InputError, match="--model-args: openai/any takes none; expected hf/PATH, or no arguments"):
        connect_any("openai/any", Connection(base_url="http://localhost:1/v1", model_args={"dtype": "float16"}))


def test_without_peft_it_says_what_to_install(paths, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr("calipers.clients.huggingface.find_spec", lambda name: None if name == "peft" else there(name))
    with pytest.raises(InputError) as raised:
        connect(paths["llama"], Connection(model_args={"peft": "adapter"}))
    assert str(raised.value) == "--model-args: peft=adapter needs the package peft; pip install peft"


@pytest.mark.parametrize(
    ("given", "package", "said"),
    [
        ({"attn_implementation": "flash_attention_2"}, "flash_attn", "pip install flash-attn --no-build-isolation"),
        ({"load_in_4bit": True}, "bitsandbytes", "pip install bitsandbytes"),
        ({"quantization_config": {"load_in_8bit": True}}, "bitsandbytes", "pip install bitsandbytes"),
        ({"quantization_config": {"quant_method": "torchao"}}, "torchao", "pip install torchao"),
        ({"quantization_config": {"quant_method": "quanto"}}, "optimum.quanto", "pip install optimum-quanto"),
        ({"parallelize": True}, "accelerate", "pip install accelerate"),
        ({"device_map": "auto"}, "accelerate", "pip install accelerate"),
    ],
)
def test_a_package_that_is_not_installed_is_named(paths, monkeypatch, given, package, said):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        "calipers.clients.huggingface.find_spec", lambda name: None if name == package else there("json")
    )
    with pytest.raises(InputError) as raised:
        connect(paths["llama"], Connection(model_args=given))
    assert str(raised.value).startswith("--model-args: ")
    assert str(raised.value).endswith(f" needs the package {package}; {said}")


def test_a_quantization_that_transformers_does_not_know(paths):
    with pytest.raises(InputError, match=r"--model-args: quantization_config cannot be used \(Unknown quantization"):
        connect(paths["llama"], Connection(model_args={"quantization_config": {"quant_method": "none such"}}))


def test_a_device_that_is_not_here(paths, monkeypatch):
    import torch

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"--model-args: device=cuda:1: torch finds no such device; expected cpu$"):
        connect(paths["llama"], Connection(model_args={"device": "cuda:1"}))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    connect(paths["llama"], Connection(model_args={"device": "cuda:1"}))
    with pytest.raises(InputError, match="device=cuda:2: there are 2 devices; expected cuda:0 to cuda:1"):
        connect(paths["llama"], Connection(model_args={"device": "cuda:2"}))


def test_every_argument_of_lm_evaluation_harness_is_taken_or_refused_by_name():
    """The arguments of its ``hf`` model, 0.4.13, in their order; other tests cover those passed on to transformers."""
    theirs = [
        "pretrained",
        "backend",
        "revision",
        "subfolder",
        "tokenizer",
        "truncation",
        "logits_cache",
        "max_length",
        "device",
        "dtype",
        "softmax_dtype",
        "mixed_precision_dtype",
        "batch_size",
        "max_batch_size",
        "trust_remote_code",
        "use_fast_tokenizer",
        "add_bos_token",
        "prefix_token_id",
        "parallelize",
        "max_memory_per_gpu",
        "max_cpu_memory",
        "offload_folder",
        "tp_plan",
        "peft",
        "delta",
        "autogptq",
        "gptqmodel",
        "gguf_file",
        "think_end_token",
        "enable_thinking",
        "chat_template_args",
    ]
    taken = {field.name for field in fields(LoadOptions)}
    assert [name for name in theirs if (name in taken) == (name in ELSEWHERE)] == []


def test_the_table_of_arguments_in_the_documentation_is_complete():
    page = (Path(__file__).parents[2] / "docs" / "running.md").read_text()
    table = page.partition("| key | value | default |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip(" `") for line in table.splitlines()[2:]]
    assert rows == [field.name for field in fields(LoadOptions)]


@pytest.mark.parametrize(
    "given",
    [
        {"device": "cpu"},
        {"attn_implementation": "eager"},
        {"attn_implementation": "sdpa"},
        {"device_map": "auto"},
        {"device_map": {"": "cpu"}},
        {"parallelize": True},
        {"trust_remote_code": True},  # it has no code
    ],
)
def test_how_it_is_computed_changes_no_answer(paths, given):
    if {"device_map", "parallelize"} & {*given}:
        pytest.importorskip("accelerate")
    pairs = [[Continuation("the cat", " sat"), Continuation("the cat", " ran away and then")]]
    plain, ours = (score(paths["llama"], *pairs, model_args=args, trust=True)[0] for args in ({}, given))
    assert [one.logprob for one in ours] == pytest.approx([one.logprob for one in plain], **CLOSE)
    (text,), (same,) = (ask(paths["llama"], request(), model_args=args, trust=True) for args in ({}, given))
    assert same.text == text.text


def test_the_attention_is_the_one_that_was_asked_for(paths):
    loaded = load(paths["llama"], LoadOptions.of({"attn_implementation": "eager"}))
    assert loaded.model.config._attn_implementation == "eager"


def test_the_code_of_a_checkpoint_runs_only_if_it_is_trusted(paths, tmp_path, monkeypatch):
    """It is part of the endpoint then."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    from calipers.clients.address import endpoint

    home = shutil.copytree(paths["llama"], tmp_path / "own")
    config = json.loads((home / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Model"}}
    (home / "config.json").write_text(json.dumps(config))
    code = (
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class Own(LlamaConfig):\n    model_type = 'own'\n"
        "class Model(LlamaForCausalLM):\n    config_class = Own\n"
    )
    (home / "own.py").write_text(code)
    (closed,) = ask(str(home), request())
    assert isinstance(closed, ClientError)
    trusted = {"model_args": {"trust_remote_code": True}, "trust": True}
    (opened,), (plain,) = ask(str(home), request(), **trusted), ask(paths["llama"], request())
    assert opened.text == plain.text
    before, unread = (endpoint(f"hf/{home}", None, args) for args in ({"trust_remote_code": True}, {}))
    (home / "own.py").write_text(code + "# another line\n")
    assert endpoint(f"hf/{home}", None, {"trust_remote_code": True}) != before
    assert endpoint(f"hf/{home}", None, {}) == unread


def test_an_adapter_that_is_not_there(paths):
    pytest.importorskip("peft")
    with pytest.raises(InputError, match=r"--model-args: .*: no such checkpoint; expected a directory with adapter"):
        connect(paths["llama"], Connection(model_args={"peft": paths["gpt2"]}))


def test_an_adapter_of_virtual_tokens_is_refused(paths, tmp_path):
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(paths["llama"]), config).save_pretrained(tmp_path / "p")
    (end,) = ask(paths["llama"], request(), model_args={"peft": str(tmp_path / "p")})
    assert isinstance(end, ClientError)
    assert "is one of virtual tokens; expected one of weights, such as LoRA" in str(end)


def test_other_arguments_are_another_run_and_the_plan_has_them(paths, tmp_path):
    bench, model = words(tmp_path, 2), f"hf/{paths['llama']}"
    for more in ((), ("--model-args", "dtype=float64,max_length=40"), ("--model-args", '{"dtype": "float64"}')):
        done = calipers("run", bench, "--model", model, "--max-tokens", "4", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    plans = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/plan.json")]
    given = [plan["settings"]["model_args"]["value"] for plan in plans]
    assert sorted(map(len, given)) == [0, 1, 2]
    assert {"dtype": "float64", "max_length": 40} in given


def test_a_changed_adapter_is_another_endpoint(paths, tmp_path):
    from calipers.clients.address import endpoint

    pytest.importorskip("peft")
    adapter = shutil.copytree(paths["adapter"], tmp_path / "adapter")
    model, given = f"hf/{paths['llama']}", {"peft": str(adapter)}
    plain, before = endpoint(model, None), endpoint(model, None, given)
    (adapter / "adapter_config.json").write_text((adapter / "adapter_config.json").read_text() + "\n")
    assert len({plain, before, endpoint(model, None, given)}) == 3
    assert endpoint(model, None, {"dtype": "float64"}) == plain  # the files are the same, and the arguments stand apart


TASK = """task: made
dataset_path: json
dataset_kwargs: {data_files: {test: docs.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: [" cat", " dog"]
doc_to_target: a
metric_list: [{metric: acc}]
"""


def test_the_command_of_lm_evaluation_harness_loads_as_it_is_told(paths, tmp_path):
    (tmp_path / "made.yaml").write_text(TASK)
    (tmp_path / "docs.jsonl").write_text('{"q": "the", "a": 0}\n{"q": "and then the", "a": 1}\n')
    given = f"pretrained={paths['llama']},dtype=float64,max_length=40"
    words = ("lm-eval", "--model", "hf", "--model_args", given, "--tasks", "made.yaml", "--output_path", "out")
    done = calipers(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(path.read_text())
    loaded = {"model_num_parameters": 39264, "model_dtype": "torch.float64", "model_revision": "main", "model_sha": ""}
    assert {name: results["config"][name] for name in loaded} == loaded
    assert list(results["config"])[:3] == ["model", "model_args", "model_num_parameters"]
    told = {"tokenizer_pad_token": ["</s>", "321"], "tokenizer_eos_token": ["</s>", "321"]}
    told |= {"tokenizer_bos_token": ["<s>", "320"], "eot_token_id": 321, "max_length": 40}
    assert {name: results[name] for name in told} == told
    [plan] = (tmp_path / "runs").glob("*/plan.json")
    assert json.loads(plan.read_text())["settings"]["model_args"]["value"] == {"dtype": "float64", "max_length": 40}
