"""Hugging Face checkpoints in this process. This file has the options for loading one, with lm-eval's names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.errors import InputError, UnknownName

DTYPES: Final = ("auto", "float16", "bfloat16", "float32", "float64")
CONFIG, TOKENIZER, ADAPTER = "config.json", "tokenizer_config.json", "adapter_config.json"
PLACEMENT: Final = ("device", "device_map", "parallelize")
"""Options that affect where a model is computed, and not its answers: a run resumes with another value of these."""
DEVICE: Final = re.compile(r"cpu|mps|(cuda|xpu|npu|hpu)(:[0-9]{1,3})?")
DEVICE_MAPS: Final = ("auto", "balanced", "balanced_low_0", "sequential")
ATTENTIONS: Final[Mapping[str, tuple[str, str]]] = {  # name -> the module it needs, and the command that installs it
    "eager": ("torch", "pip install torch"),
    "sdpa": ("torch", "pip install torch"),
    "flex_attention": ("torch", "pip install torch"),
    "flash_attention_2": ("flash_attn", "pip install flash-attn --no-build-isolation"),
    "flash_attention_3": ("flash_attn_interface", "install flash-attention 3 from its source"),
}
QUANTIZERS: Final[Mapping[str, tuple[str, str]]] = {  # quant_method -> its module and installation command, likewise
    "aqlm": ("aqlm", "pip install aqlm"),
    "awq": ("gptqmodel", "pip install gptqmodel"),
    "bitsandbytes": ("bitsandbytes", "pip install bitsandbytes"),
    "compressed-tensors": ("compressed_tensors", "pip install compressed-tensors"),
    "eetq": ("eetq", "pip install eetq"),
    "gptq": ("gptqmodel", "pip install gptqmodel"),
    "hqq": ("hqq", "pip install hqq"),
    "quanto": ("optimum.quanto", "pip install optimum-quanto"),
    "torchao": ("torchao", "pip install torchao"),
}
QUANTIZED: Final = ("load_in_8bit", "load_in_4bit", "quantization_config")
WEIGHTS_ELSEWHERE: Final = "use device_map=auto, which spreads the weights over all devices"
ELSEWHERE: Final[Mapping[str, str]] = {  # names of lm-evaluation-harness and transformers that are not supported here
    "pretrained": "name the model with --model hf/PATH",
    "torch_dtype": "use dtype",
    "softmax_dtype": "remove it: log-probabilities are always computed in float32",
    "mixed_precision_dtype": "use dtype",
    "backend": "remove it: hf/ models are causal models",
    "batch_size": "use --concurrency N; without it a batch is as large as the device allows",
    "max_batch_size": "use --concurrency N; without it a batch is as large as the device allows",
    "logits_cache": "remove it: shared prefixes are always computed once",
    "use_fast_tokenizer": "remove it: the fast tokenizer is used where there is one",
    "max_memory_per_gpu": WEIGHTS_ELSEWHERE,
    "max_memory": WEIGHTS_ELSEWHERE,
    "max_cpu_memory": WEIGHTS_ELSEWHERE,
    "offload_folder": WEIGHTS_ELSEWHERE,
    "tp_plan": WEIGHTS_ELSEWHERE,
    "low_cpu_mem_usage": "remove it: weights are always loaded one by one",
    "delta": "add the delta to the weights first, and save the sum as a checkpoint",
    "autogptq": "remove it: the quantization is read from the checkpoint's config.json",
    "gptqmodel": "remove it: the quantization is read from the checkpoint's config.json",
    "gguf_file": "convert the file to safetensors first",
    "think_end_token": "extract the answer when the run is scored",
    "enable_thinking": "set it in the checkpoint's chat template",
    "chat_template_args": "set them in the checkpoint's chat template",
    **dict.fromkeys(
        ("bnb_4bit_compute_dtype", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "llm_int8_threshold"),
        'use quantization_config: --model-args \'{"quantization_config": {"load_in_4bit": true, ...}}\'',
    ),
}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options for loading and using a checkpoint. None means the checkpoint's own setting."""

    dtype: str = "auto"  # of the weights; auto: as they are stored
    revision: str | None = None  # of a checkpoint in the hub's cache: a branch, a tag or a commit
    subfolder: str = ""  # the folder of the model in the checkpoint
    tokenizer: str | None = None  # of another checkpoint: a directory, or an id in the hub's cache
    max_length: int | None = None  # maximum tokens of the context
    add_bos_token: bool | None = None  # whether a text begins with the BOS token
    prefix_token_id: int | None = None  # the token before a text without a context
    truncation: bool = False  # cut prompts at the tokenizer's limit
    peft: str | None = None  # an adapter for the weights: a directory, or an id in the hub's cache
    device: str | None = None  # cpu, cuda, cuda:1, mps; None: the first accelerator, else the processor
    device_map: str | None = None  # how weights are spread over devices: a name of accelerate's, or a mapping as JSON
    parallelize: bool = False  # lm-evaluation-harness' word for device_map=auto
    attn_implementation: str | None = None  # the implementation of attention, in transformers' words
    load_in_8bit: bool = False  # quantize the weights while they are loaded, by bitsandbytes
    load_in_4bit: bool = False
    quantization_config: str | None = None  # as JSON, in transformers' words
    trust_remote_code: bool = False  # run code that comes with the checkpoint

    @classmethod
    def of(cls, given: Mapping[str, Any], location: str = "--model-args") -> LoadOptions:
        """The options by name, checked; InputError for an unknown name or an invalid value."""
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name in ELSEWHERE:
                raise InputError.at(location, f"{name} is not supported", ELSEWHERE[name])
            if name not in names:
                raise UnknownName(f"{location}: {UnknownName.of('argument of an hf model', name, names)}")
            if value is not None:
                values[name] = _checked(location, name, value)
        options = cls(**values)
        for group in (PLACEMENT, QUANTIZED):
            if len(given_names := [name for name in group if getattr(options, name)]) > 1:
                problem = f"{given_names[0]} and {given_names[1]} exclude each other"
                raise InputError.at(location, problem, "expected one of the two")
        return options

    @property
    def spreads(self) -> bool:
        """Whether the options spread the weights over several devices."""
        return self.parallelize or self.device_map is not None

    @property
    def own_map(self) -> dict[str, Any] | None:
        """The device of each module, if the user gives a mapping; else None."""
        if self.device_map is None or self.device_map in DEVICE_MAPS:
            return None
        devices: dict[str, Any] = msgspec.json.decode(self.device_map)
        return devices

    @property
    def quantization(self) -> dict[str, Any] | None:
        """The quantization to apply while the weights are loaded, in transformers' words; None for none."""
        if self.quantization_config is not None:
            config: dict[str, Any] = msgspec.json.decode(self.quantization_config)
            return config
        bits = {name: True for name in ("load_in_8bit", "load_in_4bit") if getattr(self, name)}
        return {"quant_method": "bitsandbytes", **bits} if bits else None

    def folders(self, name: str) -> list[Path]:
        """The existing folders of everything that is loaded for a checkpoint: its weights, tokenizer and adapter."""
        folders = (folder_of(source, file, self.revision, inside) for source, file, inside in self._sources(name))
        return [folder for folder in folders if folder is not None]

    def check(self, name: str, trust: bool = False) -> None:
        """InputError for a tokenizer, adapter, device or package that does not exist here, or code without trust."""
        if self.trust_remote_code and not trust:
            problem = "trust_remote_code=true runs code that comes with the checkpoint"
            raise InputError.at("--model-args", problem, "add --trust if you trust it")
        for option, package, install in self._packages():
            if not is_installed(package):
                raise InputError.at("--model-args", f"{option} needs the package {package}", install)
        if self.device is not None:
            _check_device(self.device)
        if self.quantization is not None:
            quantization_config(self.quantization)
        for source, file, subfolder in list(self._sources(name))[1:]:
            folder = folder_of(source, file, self.revision, subfolder)
            if folder is None or not (folder / file).is_file():
                expected = f"expected a directory with {file}, or an id in the hub's local cache"
                raise InputError.at("--model-args", f"{source}: no such checkpoint", expected)

    def local(self) -> dict[str, Any]:
        """Arguments for transformers: subfolder and revision, no download, and no code unless it is trusted."""
        optional = {"subfolder": self.subfolder or None, "revision": self.revision}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"local_files_only": True, "trust_remote_code": self.trust_remote_code, **given}

    def _packages(self) -> Iterator[tuple[str, str, str]]:
        """Each option that needs a package, the package, and the command that installs it."""
        if self.peft is not None:
            yield f"peft={self.peft}", "peft", "pip install peft"
        if self.attn_implementation is not None:
            yield f"attn_implementation={self.attn_implementation}", *ATTENTIONS[self.attn_implementation]
        spread = next((name for name in ("parallelize", "device_map") if getattr(self, name)), None)
        quantized = next((name for name in QUANTIZED if getattr(self, name)), None)
        if self.quantization is not None:
            method = str(self.quantization.get("quant_method", "bitsandbytes"))
            if method in QUANTIZERS:
                yield str(quantized), *QUANTIZERS[method]
        if option := spread or quantized:
            yield option, "accelerate", "pip install accelerate"

    def _sources(self, name: str) -> Iterator[tuple[str, str, str]]:
        """What is loaded for a checkpoint: the name of each source, a file that it must have, and its subfolder."""
        yield name, CONFIG, self.subfolder
        if self.tokenizer is not None:
            yield self.tokenizer, TOKENIZER, self.subfolder
        if self.peft is not None:
            yield self.peft, ADAPTER, ""


DEFAULT_OPTIONS: Final = LoadOptions()
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {"dtype": DTYPES, "attn_implementation": tuple(ATTENTIONS)}
LEAST: Final = {"max_length": 1, "prefix_token_id": 0}
SWITCHES: Final = tuple(field.name for field in fields(LoadOptions) if str(field.type).startswith("bool"))


def load_tokenizer(path: str, options: LoadOptions) -> Any:
    """Load the tokenizer of a checkpoint, or the one that replaces it."""
    import transformers

    more: dict[str, Any] = {} if options.add_bos_token is None else {"add_bos_token": options.add_bos_token}
    return transformers.AutoTokenizer.from_pretrained(options.tokenizer or path, **options.local(), **more)


def quantization_config(given: Mapping[str, Any]) -> Any:
    """A quantization as an object of transformers; InputError if transformers does not accept it."""
    from transformers.quantizers.auto import AutoQuantizationConfig

    try:
        return AutoQuantizationConfig.from_dict(dict(given))
    except Exception as error:  # TypeError, ValueError, and ImportError if the method's package is absent
        problem = f"quantization_config cannot be used ({str(error).partition(chr(10))[0]})"
        raise InputError.at(
            "--model-args", problem, "expected the arguments of a method that transformers has"
        ) from None


def folder_of(name: str, file: str, revision: str | None = None, subfolder: str = "") -> Path | None:
    """The folder of a checkpoint: a directory, or the folder in the hub's local cache that contains a file; else None.

    A revision applies to the hub's cache only; for a directory it is ignored, as in transformers.
    """
    path = Path(name).expanduser()
    if path.exists():
        return path / subfolder
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    inside = f"{subfolder}/{file}" if subfolder else file
    try:
        cached = try_to_load_from_cache(name, inside, revision=revision)
    except ValueError:  # not a valid model id
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _checked(location: str, name: str, value: Any) -> Any:
    """The value of an option in the form that `LoadOptions` keeps; InputError for an invalid value."""
    known = str(value).removeprefix("torch.") if name == "dtype" else value
    if name in CHOICES:
        if known not in CHOICES[name]:
            raise InputError.at(location, f"{name}={value} is unknown", f"expected {', '.join(CHOICES[name])}")
        return known
    if name in SWITCHES:
        if not isinstance(value, bool):
            raise InputError.at(location, f"{name}={value} cannot be read", "expected true or false")
        return value
    if name in LEAST:
        if type(value) is not int or value < LEAST[name]:
            raise InputError.at(location, f"{name}={value} cannot be read", f"expected an integer >= {LEAST[name]}")
        return value
    if name == "device":
        if not isinstance(value, str) or DEVICE.fullmatch(value) is None:
            raise InputError.at(location, f"device={value} is unknown", "expected cpu, cuda, cuda:N or mps")
        return value
    if name in ("device_map", "quantization_config") and isinstance(value, Mapping) and value:
        return msgspec.json.encode(value, order="sorted").decode()
    if name == "device_map":
        if value not in DEVICE_MAPS:
            expected = f"expected {', '.join(DEVICE_MAPS)}, or a mapping from modules to devices as JSON"
            raise InputError.at(location, f"device_map={value} is unknown", expected)
        return value
    if name == "quantization_config":
        expected = """expected a mapping as JSON, such as {"load_in_4bit": true}"""
        raise InputError.at(location, f"quantization_config={value} cannot be read", expected)
    if isinstance(value, (dict, list)) or value == "":
        raise InputError.at(location, f"{name}={value} cannot be read", "expected a name")
    return str(value)


def is_installed(package: str) -> bool:
    """Whether a package or module can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is absent
        return False


def _check_device(device: str) -> None:
    """Reject a device that this machine does not have."""
    import torch

    kind, _, number = device.partition(":")
    if kind == "cpu":
        return
    present = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if present is None or present.type != kind:
        available = "cpu" if present is None else f"{present.type} or cpu"
        raise InputError.at("--model-args", f"device={device}: torch finds no such device", f"expected {available}")
    count = torch.accelerator.device_count()
    if number and int(number) >= count:
        problem = f"device={device}: there are {count} devices" if count > 1 else f"device={device}: there is 1 device"
        raise InputError.at(
            "--model-args", problem, f"expected {kind}:0{f' to {kind}:{count - 1}' if count > 1 else ''}"
        )
