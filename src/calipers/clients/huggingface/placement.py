"""Where a checkpoint is placed, whether it fits there, and how large its batches are; known before it is loaded.

::

    config.json, sizes of the weight files, options ─┬─► devices: one, or several if one is too small
                                                     └─► batch plan: kept in the plan of the run

All of it follows from the files, the options and the kind of device, never from the memory that happens to be free.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec

from calipers.clients.huggingface.options import CONFIG, LoadOptions, folder_of, is_installed
from calipers.errors import InputError

NUMBERS = 2**28  # scores computed at once: places by words of the vocabulary, a GiB in all
CPU_CACHE = 2**31  # bytes of memory of what was read, that a batch on a processor may go on from
CPU_TOKENS = 2**11  # tokens a processor reads at once: more are no faster, and fall out of its caches
TOKENS = 2**16  # tokens an accelerator reads at once: as many keep any of today's busy
OTHER_DEVICE = 2**34  # bytes of an accelerator that does not say how many it has
SHARE = 8  # of an accelerator's memory beside the weights, the part for what is read, and that for the cache
LONGEST_HEADER = 100_000_000  # bytes before the weights of a safetensors file, by its own definition
SIZES: Final = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes of a number
STORED_FLOATS: Final = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}  # the same in safetensors' words
STORED_OTHERS: Final = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}  # all others take a byte
GB = 1e9

_Count = Annotated[int, msgspec.Meta(ge=1, lt=2**48)]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How much goes into one batch, and the device that this was computed for."""

    device: str  # cpu, cuda, mps
    name: str  # of the device, as its driver says; "" for a processor
    devices: _Count  # over which the weights are spread
    memory: _Count | None  # bytes, of the smallest of them; None for a processor
    tokens: _Count  # that are read at once
    cached: _Count  # tokens in the cache of all rows together
    places: _Count  # at which the scores of the whole vocabulary are computed at once

    @classmethod
    def read(cls, stored: Any, where: str) -> BatchPlan:
        """The plan that a run has kept; InputError for one that Calipers did not write."""
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError as error:
            raise InputError.at(where, f"batch cannot be read ({error})", "expected it as calipers wrote it") from None

    def rows(self, width: int, before: int = 0) -> int:
        """How many rows of a width are read at once, behind so many tokens of the cache; one always is."""
        limits = [self.tokens // max(width, 1)]
        if before:
            limits.append(self.cached // (before + width))
        return max(1, min(limits))

    @property
    def where(self) -> tuple[str, str, int, int | None]:
        """The devices alone."""
        return self.device, self.name, self.devices, self.memory

    @property
    def device_words(self) -> str:
        """The devices, for a note."""
        size = "" if self.memory is None else f" ({self.memory / GB:,.0f} GB)"
        return f"{f'{self.devices} x ' if self.devices > 1 else ''}{self.name or self.device}{size}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model goes, and the batches that it is read in there."""

    device: str  # in torch's words; of a model that is spread, that of its first layer
    device_map: str | dict[str, Any] | None  # for accelerate; None: all of it on the device
    batch: BatchPlan


def place(path: str, options: LoadOptions) -> Placement:
    """The placement of a checkpoint; InputError with the sizes if its weights are larger than the devices."""
    import torch
    from transformers import AutoConfig

    try:
        whole = AutoConfig.from_pretrained(path, **options.local())
        config, dtype = whole.get_text_config(), _dtype(whole, options)
        weights = sum(_sizes(path, dtype, options))
    except Exception as error:  # OSError, ValueError, KeyError and those of the checkpoint's own code
        raise InputError.at(f"hf/{path}", f"the model cannot be loaded: {' '.join(str(error).split())}") from error
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = torch.device(options.device or accelerator or "cpu")
    number = 1 if device.type in ("cpu", "mps") else torch.accelerator.device_count()
    one = memory_of(device)
    spread = options.spreads or (options.device is None and number > 1 and weights > one - one // SHARE)
    several = spread and number > 1
    memories = [memory_of(torch.device(device.type, index)) for index in range(number)] if several else [one]
    if weights > sum(memories) and options.own_map is None:
        _refuse(path, weights, memories, str(device))
    if spread and not is_installed("accelerate"):
        wrong = f"its weights take {_gb(weights)} and are spread over devices, which needs the package accelerate"
        raise InputError.at(f"hf/{path}", wrong, "pip install accelerate")
    default = "auto" if spread else {"": str(device)} if options.quantization is not None else None
    device_map = options.own_map or options.device_map or default
    return Placement(str(device), device_map, _batch(config, SIZES.get(dtype or "", 4), weights, memories, device))


def _refuse(path: str, weights: int, memories: Sequence[int], device: str) -> NoReturn:
    here = f"{device} has {_gb(memories[0])}"
    if len(memories) > 1:
        here = f"{len(memories)} devices have {_gb(sum(memories))} together"
    right = "use a smaller dtype, load_in_8bit or load_in_4bit, or a larger device"
    raise InputError.at(f"hf/{path}", f"its weights take {_gb(weights)}, but {here}", right)


def _gb(size: int) -> str:
    return f"{size / GB:,.1f} GB"


def memory_of(device: Any) -> int:
    """All memory of a device in bytes, whoever uses it."""
    import torch

    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(torch.mps.recommended_max_memory()) if device.type == "mps" else OTHER_DEVICE


def _batch(config: Any, itemsize: int, weights: int, memories: Sequence[int], device: Any) -> BatchPlan:
    """The batch plan for devices with so many bytes of memory, over which the weights are spread."""
    import torch

    places = max(NUMBERS // config.vocab_size, 1)
    kept = _bytes_per_token(config, itemsize)
    if device.type == "cpu":
        return BatchPlan("cpu", "", 1, None, CPU_TOKENS, max(CPU_CACHE // kept, 1), places)
    total, count = min(memories), len(memories)
    part = max(total - weights // count, total // SHARE) // SHARE
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    read = (8 * config.hidden_size + 4 * inner) * itemsize  # what one token takes on its way through
    tokens, cached = min(TOKENS, max(part // read, 1)), max(part // kept, 1)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return BatchPlan(device.type, name, count, total, tokens, cached, places)


def _bytes_per_token(config: Any, itemsize: int) -> int:
    """What a model keeps of each token that it has read: a key and a value in every layer; 1 without attention."""
    heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
    if heads is None:
        return 1
    each = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size: int = 2 * config.num_hidden_layers * heads * each * itemsize
    return size


def _dtype(config: Any, options: LoadOptions) -> str | None:
    """The type of the weights once they are loaded; None: as they are stored."""
    if options.dtype != "auto":
        return options.dtype
    stored = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None)
    return None if stored is None else str(stored).removeprefix("torch.")


def _sizes(path: str, dtype: str | None, options: LoadOptions) -> Iterator[int]:
    """The bytes of each part of the weights once they are loaded; nothing where there are no weights we know."""
    folder = folder_of(path, CONFIG, options.revision, options.subfolder)
    each = None if dtype is None else SIZES.get(dtype)
    quantization = options.quantization
    bits = next((bits for bits in (4, 8) if (quantization or {}).get(f"load_in_{bits}bit")), None)
    for file in _weight_files(folder) if folder is not None else ():
        if file.suffix == ".safetensors":
            for stored, numbers in _tensors(file):
                if stored not in STORED_FLOATS:
                    yield numbers * STORED_OTHERS.get(stored, 1)
                else:
                    yield numbers * bits // 8 if bits else numbers * (each or STORED_FLOATS[stored])
        else:  # what torch pickles does not say its types; they are those of the configuration
            yield file.stat().st_size * (bits or 16) // 16


def _weight_files(folder: Path) -> Iterator[Path]:
    """The files that transformers takes weights from: one, or those of an index."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            yield folder / name
            return
        index = folder / f"{name}.index.json"
        if index.is_file():
            names = {Path(str(part)).name for part in json.loads(index.read_bytes())["weight_map"].values()}
            yield from (folder / part for part in sorted(names) if (folder / part).is_file())
            return


def _tensors(file: Path) -> Iterator[tuple[str, int]]:
    """The type and the number of numbers of each tensor in a safetensors file, from its header."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > LONGEST_HEADER:
            raise ValueError(f"{file.name} has a header of {length} bytes")
        header = json.loads(stream.read(length))
    for name, tensor in header.items():
        if name != "__metadata__":
            yield str(tensor["dtype"]), prod(map(int, tensor["shape"]))
