"""The placement of a checkpoint and its batches follow from files and devices, before any weight is read."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.running import calipers
from hf.asking import ask, asked, batch_plan, request
from hf.test_run import words

from calipers.clients.huggingface import LoadOptions
from calipers.clients.huggingface.checkpoint import CPU_CACHE, CPU_TOKENS, NUMBERS, BatchPlan, placement_of
from calipers.errors import InputError

GB = 10**9


def placed(path, **options):
    return placement_of(str(path), LoadOptions.of(options))


def weights(folder: Path, tensors, name="model.safetensors") -> None:
    """A file of weights that has only its header."""
    header = json.dumps({f"t{n}": {"dtype": d, "shape": s} for n, (d, s) in enumerate(tensors)}).encode()
    (folder / name).write_bytes(len(header).to_bytes(8, "little") + header)


@pytest.fixture
def large(checkpoints, tmp_path):
    """A checkpoint whose weights are larger than any machine, by its header."""
    home = shutil.copytree(checkpoints["llama"], tmp_path / "large")
    weights(home, [("F32", [10**6, 10**9])])
    return home


@pytest.fixture
def devices(monkeypatch):
    """Devices as torch reports them, with these numbers of bytes; reading their free memory is an error."""
    import torch

    def present(*sizes):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: len(sizes))
        monkeypatch.setattr(
            torch.cuda,
            "get_device_properties",
            lambda device: SimpleNamespace(total_memory=sizes[torch.device(device).index or 0]),
        )
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Made Up 1")
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: pytest.fail("asked for free memory"))

    return present


def test_the_batches_of_a_processor(checkpoints):
    found = placed(checkpoints["llama"])
    vocabulary = json.loads((Path(checkpoints["llama"]) / "config.json").read_text())["vocab_size"]
    token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, their width, bytes
    assert (found.device, found.device_map) == ("cpu", None)
    assert found.batch == BatchPlan("cpu", "", 1, None, CPU_TOKENS, CPU_CACHE // token, NUMBERS // vocabulary)


def test_the_batches_of_an_accelerator_follow_from_its_memory(checkpoints, devices):
    devices(80 * GB)
    small = placed(checkpoints["llama"])
    assert (small.device, small.device_map) == ("cuda", None)
    assert small.batch.where == ("cuda", "Made Up 1", 1, 80 * GB)
    assert small.batch == placed(checkpoints["llama"]).batch
    devices(8 * GB)
    smaller = placed(checkpoints["llama"]).batch
    assert smaller.cached < small.batch.cached
    assert smaller.device_words == "Made Up 1 (8 GB)"


@pytest.mark.parametrize(
    ("tensors", "options", "gigabytes"),
    [
        ([("F32", [10**9])], {"dtype": "float32"}, 4),
        ([("F32", [10**9])], {"dtype": "bfloat16"}, 2),
        ([("BF16", [1000, 10**6])], {"dtype": "float64"}, 8),
        ([("F16", [10**9]), ("F32", [])], {"dtype": "float16"}, 2),
        ([("I32", [10**9])], {"dtype": "float16"}, 4),  # packed by a quantization, so the dtype does not matter
        ([("F8_E4M3", [10**9])], {"dtype": "float16"}, 1),
        ([("F16", [8 * 10**9])], {"load_in_8bit": True}, 8),
        ([("F16", [8 * 10**9])], {"load_in_4bit": True}, 4),
        ([("F16", [8 * 10**9])], {"quantization_config": {"load_in_4bit": True}}, 4),
    ],
)
def test_weights_are_compared_with_the_memory_of_the_device(large, devices, tensors, options, gigabytes):
    weights(large, tensors)
    devices(gigabytes * GB + 1000)
    placed(large, **options)
    devices(gigabytes * GB - 1)
    said = rf"hf/{large}: its weights take {gigabytes}\.0 GB, but cuda has {gigabytes}\.0 GB; use a smaller"
    with pytest.raises(InputError, match=said):
        placed(large, **options)


def test_weights_in_several_files(large, devices):
    """The index determines which of the files are loaded."""
    (large / "model.safetensors").unlink()
    for name in ("a", "b", "consolidated"):
        weights(large, [("F32", [10**9])], f"{name}.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}
    (large / "model.safetensors.index.json").write_text(json.dumps(index))
    devices(7 * GB)
    with pytest.raises(InputError, match=r"its weights take 8\.0 GB"):
        placed(large)


def test_weights_that_torch_has_pickled(large, devices):
    (large / "model.safetensors").unlink()
    with (large / "pytorch_model.bin").open("wb") as file:
        file.truncate(3 * GB)  # a sparse file, without data on the disk
    devices(2 * GB)
    with pytest.raises(InputError, match=r"its weights take 3\.0 GB"):
        placed(large)


def test_what_is_too_large_for_one_device_is_spread_over_all(large, devices):
    pytest.importorskip("accelerate")
    weights(large, [("F32", [4 * 10**9])])
    devices(10 * GB, 12 * GB)
    spread = placed(large)
    assert (spread.device_map, spread.batch.where) == ("auto", ("cuda", "Made Up 1", 2, 10 * GB))
    assert spread.batch.device_words == "2 x Made Up 1 (10 GB)"
    with pytest.raises(InputError, match=r"its weights take 16\.0 GB, but cuda:1 has 12\.0 GB;"):
        placed(large, device="cuda:1")
    devices(5 * GB, 5 * GB)
    with pytest.raises(InputError, match=r"but 2 devices have 10\.0 GB together"):
        placed(large)


def test_a_small_one_is_spread_only_if_somebody_asks(checkpoints, devices):
    pytest.importorskip("accelerate")
    devices(10 * GB, 10 * GB)
    assert placed(checkpoints["llama"]).device_map is None
    assert placed(checkpoints["llama"], parallelize=True).device_map == "auto"
    assert placed(checkpoints["llama"], device_map="sequential").device_map == "sequential"
    assert placed(checkpoints["llama"], device_map={"": "cpu"}).device_map == {"": "cpu"}
    assert placed(checkpoints["llama"], load_in_4bit=True).device_map == {"": "cuda"}


def test_a_run_of_a_model_that_is_too_large_ends_before_it_begins(large, tmp_path):
    done = calipers("run", words(tmp_path), "--model", "hf/large", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "hf/large: its weights take 4,000,000.0 GB, but cpu has " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "broken",
    [{}, {"tokens": 0}, {"tokens": "many"}, {"memory": -1}, {"places": None}],
)
def test_a_plan_that_calipers_did_not_write(broken):
    stored = batch_plan() | broken if broken else {}
    with pytest.raises(
        InputError, match=r"^plan\.json: batch cannot be read \(.*\); expected it as calipers wrote it$"
    ):
        BatchPlan.read(stored, "plan.json")


def test_a_run_keeps_its_batches_on_another_device(checkpoints, tmp_path):
    """A second start uses the plan unchanged, and notes that the device is another one."""
    command = ["run", words(tmp_path), "--model", f"hf/{checkpoints['llama']}", "--max-tokens", "4", "--out", "r"]
    first = calipers(*command, "--limit", "2", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    plan = json.loads((tmp_path / "r" / "plan.json").read_text())
    assert set(plan["batch"]) == {"device", "name", "devices", "memory", "tokens", "cached", "places"}
    assert (plan["batch"]["device"], plan["batch"]["tokens"]) == ("cpu", CPU_TOKENS)
    same = calipers(*command, "--limit", "3", "--model-args", "device=cpu", cwd=tmp_path)
    assert same.returncode == 0, same.stderr
    assert "the run was planned for" not in same.stderr + same.stdout
    kept = {"device": "cuda", "name": "Made Up 1", "devices": 1, "memory": 80 * GB, "tokens": 64, "cached": 999}
    plan = json.loads((tmp_path / "r" / "plan.json").read_text())
    plan["batch"] |= kept
    (tmp_path / "r" / "plan.json").write_text(json.dumps(plan))
    other = calipers(*command, cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    assert "the run was planned for Made Up 1 (80 GB) and now uses cpu" in other.stderr + other.stdout
    after = json.loads((tmp_path / "r" / "plan.json").read_text())
    assert after["batch"] == plan["batch"]
    assert [start["settings"].get("model_args") for start in after["starts"]] == [None, {"device": "cpu"}, None]


def test_the_answers_are_the_same_by_another_plan(checkpoints):
    prompts = [request("the cat" + " sat on the mat" * n, seed=n, temperature=1.0) for n in range(6)]
    plain = [end.text for end in ask(checkpoints["llama"], *prompts)]
    ends, model = asked(checkpoints["llama"], *prompts, batch=batch_plan(tokens=40, cached=60, places=7))
    assert [end.text for end in ends] == plain
    assert model.notes == []
