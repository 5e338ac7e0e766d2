"""A checkpoint: where it is placed, and the loaded model with its tokenizer, chat template and attention.

::

    config.json, sizes of the weight files, options ─┬─► devices: one, or several if one is too small
                                                     └─► batch plan: kept in the plan of the run

The placement is known before anything is loaded. It depends on the files, the options and the kind of device, never
on the memory that happens to be free.

Most models share each key head among several query heads (grouped-query attention). With an attention mask, which gaps
and prefixes need, transformers copies the keys for every query head, and torch then uses a slow kernel on an
accelerator. `grouped` makes the queries of a key head its rows instead, so that nothing is copied.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec

from calipers.clients import Request, as_text
from calipers.clients.huggingface import (
    ADAPTER,
    CONFIG,
    DEFAULT_OPTIONS,
    LoadOptions,
    folder_of,
    is_installed,
    load_tokenizer,
    quantization_config,
)
from calipers.errors import ClientError, InputError
from calipers.tasks import Message
from calipers.typed import complete

NUMBERS = 2**28  # maximum scores in a batch (places x vocabulary): 1 GiB
CPU_CACHE = 2**31  # bytes of the key-value cache of a batch on a CPU
CPU_TOKENS = 2**11  # tokens in a batch on a CPU: more tokens are no faster, and exceed its caches
TOKENS = 2**16  # maximum tokens in a batch on an accelerator: enough to keep any current one busy
OTHER_DEVICE = 2**34  # assumed bytes of memory of an accelerator that does not report it
SHARE = 8  # 1/SHARE of an accelerator's memory besides the weights is for activations, and as much for the cache
LONGEST_HEADER = 100_000_000  # bytes; the maximum header of a safetensors file, by its specification
SIZES: Final = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes of a number
STORED_FLOATS: Final = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}  # the same by safetensors' names
STORED_OTHERS: Final = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}  # other types take one byte
GB = 1e9

_Count = Annotated[int, msgspec.Meta(ge=1, lt=2**48)]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The maximum size of a batch, and the device for which it was computed."""

    device: str  # cpu, cuda, mps
    name: str  # the name of the device by its driver; "" for a CPU
    devices: _Count  # number of devices over which the weights are spread
    memory: _Count | None  # bytes of the smallest device; None for a CPU
    tokens: _Count  # input tokens of a batch
    cached: _Count  # tokens in the key-value cache of all rows together
    places: _Count  # places at which the scores of the whole vocabulary are computed at once

    @classmethod
    def read(cls, stored: Any, where: str) -> BatchPlan:
        """The batch plan in the plan of a run; InputError if Calipers did not write it."""
        try:
            return msgspec.convert(stored, complete(cls))
        except msgspec.ValidationError as error:
            raise InputError.at(where, f"batch cannot be read ({error})", "expected it as calipers wrote it") from None

    def rows(self, width: int, before: int = 0) -> int:
        """The number of rows of a width in a batch, after ``before`` cached tokens in each row; at least one."""
        limits = [self.tokens // max(width, 1)]
        if before:
            limits.append(self.cached // (before + width))
        return max(1, min(limits))

    @property
    def where(self) -> tuple[str, str, int, int | None]:
        """The fields that identify the devices."""
        return self.device, self.name, self.devices, self.memory

    @property
    def device_words(self) -> str:
        """The devices, for a note."""
        size = "" if self.memory is None else f" ({self.memory / GB:,.0f} GB)"
        return f"{f'{self.devices} x ' if self.devices > 1 else ''}{self.name or self.device}{size}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a model, and its batch plan there."""

    device: str  # torch's name; of the first layer, if the model is spread over devices
    device_map: str | dict[str, Any] | None  # for accelerate; None: the whole model is on the device
    batch: BatchPlan


def placement_of(path: str, options: LoadOptions) -> Placement:
    """The placement of a checkpoint; InputError with the sizes if its weights are larger than the devices."""
    import torch
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path, **options.local())
        text_config, dtype = config.get_text_config(), _dtype(config, options)
        weights = sum(_sizes(path, dtype, options))
    except Exception as error:  # OSError, ValueError, KeyError, and any type from the checkpoint's own code
        raise InputError.at(f"hf/{path}", f"the model cannot be loaded: {' '.join(str(error).split())}") from error
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = torch.device(options.device or accelerator or "cpu")
    number = 1 if device.type in ("cpu", "mps") else torch.accelerator.device_count()
    memory = memory_of(device)
    spread = options.spreads or (options.device is None and number > 1 and weights > memory - memory // SHARE)
    memories = [memory]
    if spread and number > 1:
        memories = [memory_of(torch.device(device.type, index)) for index in range(number)]
    if weights > sum(memories) and options.own_map is None:
        _refuse(path, weights, memories, str(device))
    if spread and not is_installed("accelerate"):
        problem = f"its weights take {_gb(weights)} and are spread over devices, which needs the package accelerate"
        raise InputError.at(f"hf/{path}", problem, "pip install accelerate")
    default = "auto" if spread else {"": str(device)} if options.quantization is not None else None
    device_map = options.own_map or options.device_map or default
    return Placement(str(device), device_map, _batch(text_config, SIZES.get(dtype or "", 4), weights, memories, device))


def _refuse(path: str, weights: int, memories: Sequence[int], device: str) -> NoReturn:
    here = f"{device} has {_gb(memories[0])}"
    if len(memories) > 1:
        here = f"{len(memories)} devices have {_gb(sum(memories))} together"
    expected = "use a smaller dtype, load_in_8bit or load_in_4bit, or a larger device"
    raise InputError.at(f"hf/{path}", f"its weights take {_gb(weights)}, but {here}", expected)


def _gb(size: int) -> str:
    return f"{size / GB:,.1f} GB"


def memory_of(device: Any) -> int:
    """The total memory of a device in bytes, free or not."""
    import torch

    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(torch.mps.recommended_max_memory()) if device.type == "mps" else OTHER_DEVICE


def _batch(config: Any, itemsize: int, weights: int, memories: Sequence[int], device: Any) -> BatchPlan:
    """The batch plan for devices with these numbers of bytes, over which the weights are spread."""
    import torch

    places = max(NUMBERS // config.vocab_size, 1)
    kept = _bytes_per_token(config, itemsize)
    if device.type == "cpu":
        return BatchPlan("cpu", "", 1, None, CPU_TOKENS, max(CPU_CACHE // kept, 1), places)
    total, count = min(memories), len(memories)
    part = max(total - weights // count, total // SHARE) // SHARE
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    activations = (8 * config.hidden_size + 4 * inner) * itemsize  # bytes of one token during the forward pass
    tokens, cached = min(TOKENS, max(part // activations, 1)), max(part // kept, 1)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return BatchPlan(device.type, name, count, total, tokens, cached, places)


def _bytes_per_token(config: Any, itemsize: int) -> int:
    """The bytes of one token in the key-value cache: a key and a value in every layer; 1 without attention."""
    heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
    if heads is None:
        return 1
    each = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size: int = 2 * config.num_hidden_layers * heads * each * itemsize
    return size


def _dtype(config: Any, options: LoadOptions) -> str | None:
    """The type of the loaded weights; None for the type in which they are stored."""
    if options.dtype != "auto":
        return options.dtype
    stored = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None)
    return None if stored is None else str(stored).removeprefix("torch.")


def _sizes(path: str, dtype: str | None, options: LoadOptions) -> Iterator[int]:
    """The bytes of each part of the loaded weights; nothing if there are no weight files of a known format."""
    folder = folder_of(path, CONFIG, options.revision, options.subfolder)
    itemsize = None if dtype is None else SIZES.get(dtype)
    quantization = options.quantization
    bits = next((bits for bits in (4, 8) if (quantization or {}).get(f"load_in_{bits}bit")), None)
    for file in _weight_files(folder) if folder is not None else ():
        if file.suffix == ".safetensors":
            for stored, numbers in _tensors(file):
                if stored not in STORED_FLOATS:
                    yield numbers * STORED_OTHERS.get(stored, 1)
                else:
                    yield numbers * bits // 8 if bits else numbers * (itemsize or STORED_FLOATS[stored])
        else:  # a pickle of torch has no header with types; quantization is computed from 16-bit weights
            yield file.stat().st_size * (bits or 16) // 16


def _weight_files(folder: Path) -> Iterator[Path]:
    """The files from which transformers loads weights: a single file, or those of an index."""
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
    """The type and the number of elements of each tensor in a safetensors file, from its header."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > LONGEST_HEADER:
            raise ValueError(f"{file.name} has a header of {length} bytes")
        header = json.loads(stream.read(length))
    for name, tensor in header.items():
        if name != "__metadata__":
            yield str(tensor["dtype"]), prod(map(int, tensor["shape"]))


NO_SYSTEM = (
    "the model's chat template accepts no system message; the system message was dropped, as in lm-evaluation-harness"
)
NO_NAMES = "the model has only one chat template, which has no name; that template was used"
NAME: Final = "calipers_grouped"
"""The name of `grouped` in transformers' registry of attention functions."""
DEFAULT_LENGTH = 2048  # context length of a model that does not define one; lm-eval's value
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}  # transformers' names of attention layers


@dataclass(frozen=True, slots=True)
class Template:
    """A choice among a checkpoint's chat templates, and a list for notes about messages that it does not accept."""

    name: str  # "": the only template, or the default
    notes: list[str]

    def around(self, tokenizer: Any, turns: Sequence[Message]) -> str:
        """Apply the template to messages. The text ends with an opened turn, or inside a last turn of the assistant."""
        from jinja2 import TemplateError

        chosen = self.chosen(tokenizer.chat_template)
        try:
            try:
                return _rendered(tokenizer, turns, chosen)
            except TemplateError:
                without_system = [turn for turn in turns if turn["role"] != "system"]
                if len(without_system) == len(turns):
                    raise
                text = _rendered(tokenizer, without_system, chosen)
                self._add_note(NO_SYSTEM)
                return text
        except Exception as error:  # a template is code of the checkpoint and can raise any type
            raise ClientError(f"the model's chat template rejects the prompt: {error}", kind="prompt") from error

    def chosen(self, templates: Any) -> str | None:
        """The text of the template with this name; None if the tokenizer's own template is to be used."""
        if not templates:
            message = "the model has no chat template; run it without --apply-chat-template"
            raise ClientError(message, kind="prompt", hopeless=True)
        if not self.name:
            return None
        if not isinstance(templates, dict):
            self._add_note(NO_NAMES)
            return None
        if self.name not in templates:
            message = f"the model has no chat template {self.name!r}; it has {', '.join(sorted(templates))}"
            raise ClientError(message, kind="prompt", hopeless=True)
        return str(templates[self.name])

    def _add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True, slots=True)
class Local:
    """A checkpoint's tokenizer and chat template, without its weights."""

    tokenizer: Any
    template: Template

    @classmethod
    def load(cls, path: str, name: str, options: LoadOptions = DEFAULT_OPTIONS) -> Local:
        """Load the tokenizer of a checkpoint. Nothing is downloaded; its code is run only if the options trust it."""
        try:
            tokenizer = load_tokenizer(path, options)
        except Exception as error:  # OSError, ValueError, KeyError, and the errors of three file formats
            raise ClientError(f"the tokenizer cannot be loaded: {error}", kind="model", hopeless=True) from error
        return cls(tokenizer, Template(name, []))

    @property
    def text(self) -> str:
        """The text of the template."""
        templates = self.tokenizer.chat_template
        chosen = self.template.chosen(templates)
        return str(chosen or (templates.get("default", "") if isinstance(templates, dict) else templates))

    def around(self, turns: Sequence[Message]) -> str:
        """The messages as the text that the model gets."""
        return self.template.around(self.tokenizer, turns)


def _rendered(tokenizer: Any, turns: Sequence[Message], template: str | None) -> str:
    continues = turns[-1]["role"] == "assistant"
    text: str = tokenizer.apply_chat_template(
        list(turns),
        chat_template=template,
        tokenize=False,
        add_generation_prompt=not continues,
        continue_final_message=continues,
    )
    return text


def grouped(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **more: Any
) -> tuple[Any, None]:
    """Scaled dot-product attention of queries, [B, H, Q, D], to keys and values, [B, G, K, D]; returns [B, Q, H, D].

    Query head h attends to key head ``h // (H / G)``. Without a mask, or if each query head has its own key head,
    transformers' own function is used.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, length, width = query.shape
    shared = heads // key.shape[1]
    if attention_mask is None or shared == 1:
        output: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
        return output
    rows = query.reshape(batch, key.shape[1], shared * length, width)
    mask = attention_mask[:, :, None].expand(-1, -1, shared, -1, -1).flatten(2, 3)
    out = torch.nn.functional.scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(batch, heads, length, -1).transpose(1, 2).contiguous(), None


def use_grouped(model: Any) -> None:
    """Make a model on CUDA use `grouped`, if it uses torch's attention and shares key heads."""
    config = model.config.get_text_config()
    keys = getattr(config, "num_key_value_heads", None)
    if model.device.type != "cuda" or model.config._attn_implementation != "sdpa":
        return
    if keys is None or keys == config.num_attention_heads:
        return
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, grouped)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def kernels(device: Any) -> AbstractContextManager[Any]:
    """A context in which torch's attention does not use cuDNN, which takes half a second for each new shape."""
    if device.type != "cuda":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen: AbstractContextManager[Any] = sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )
    return chosen


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded model, its tokenizer, and the properties that batches depend on."""

    model: Any
    tokenizer: Any
    longest: int  # context length in tokens: prompt and completion together
    ends: frozenset[int]  # tokens that end a completion
    prefix_token: int | None  # the token for the beginning of a text; None if there is none
    pads: int  # the padding token, which is never attended to
    takes: frozenset[str]  # the parameters of its forward pass
    shares: bool  # its key-value cache can be copied to several continuations, and rows can be padded on the left
    gaps: bool  # its key-value cache may have gaps: every layer sees all tokens, at given positions
    batch: BatchPlan  # for its device
    options: LoadOptions = DEFAULT_OPTIONS
    linear: bool = False  # its scores are exactly its output matrix times its last hidden states

    @property
    def chats(self) -> bool:
        """Whether it has a chat template."""
        return bool(self.tokenizer.chat_template)

    def encode(self, text: str, whole: bool = True, cut: bool = False) -> list[int]:
        """The tokens of a text; a whole text gets the tokenizer's first special token, unless it begins with it.

        ``cut`` truncates them at the tokenizer's own limit.
        """
        limit = {"truncation": True} if cut else {}
        try:
            tokens: list[int] = self.tokenizer.encode(
                text, add_special_tokens=self._opens(text, whole, self._opening), **limit
            )
        except (TypeError, UnicodeError) as error:  # a lone surrogate
            raise ClientError("the text cannot be encoded: it is not valid Unicode", kind="prompt") from error
        return tokens

    def encode_all(self, texts: Iterable[tuple[str, bool]]) -> dict[tuple[str, bool], list[int]]:
        """The tokens of many texts, by (text, whether it is whole); the tokenizer uses all cores.

        Empty if one of the texts cannot be encoded; then `encode` of each text raises the error.
        """
        by_opening: dict[bool, list[tuple[str, bool]]] = {True: [], False: []}
        opening = self._opening
        for key in dict.fromkeys(texts):
            by_opening[self._opens(*key, opening)].append(key)
        tokens: dict[tuple[str, bool], list[int]] = {}
        for special, keys in by_opening.items():
            if keys:
                try:
                    encoded = self._encoded([text for text, _ in keys], special)
                except (TypeError, UnicodeError):  # a lone surrogate
                    return {}
                tokens.update(zip(keys, encoded, strict=True))
        return tokens

    def _encoded(self, texts: list[str], special: bool) -> list[list[int]]:
        if not self.tokenizer.is_fast:
            tokens: list[list[int]] = self.tokenizer(texts, add_special_tokens=special)["input_ids"]
            return tokens
        backend = self.tokenizer.backend_tokenizer  # faster: transformers makes further tables for each text
        backend.no_truncation()
        backend.no_padding()
        return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=special)]

    @property
    def _opening(self) -> str:
        """The text of the prefix token."""
        return "" if self.prefix_token is None else str(self.tokenizer.decode([self.prefix_token]))

    def _opens(self, text: str, whole: bool, opening: str) -> bool:
        """Whether the tokenizer adds its special tokens: to a whole text that does not begin with the first of them."""
        return whole and self.options.add_bos_token is not False and not (opening and text.startswith(opening))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def prompt(self, request: Request, chat: bool, template: Template | None = None) -> list[int]:
        """The tokens of a request: with the checkpoint's own template for a chat, else of the plain text.

        A given ``template`` is applied to chat messages as in lm-evaluation-harness.
        """
        if template is not None and not isinstance(request.prompt, str):
            text = template.around(self.tokenizer, request.messages)
        elif not chat:
            text = as_text(request, "use the chat route")
        elif self.chats:
            return self.encode(self._templated(_plain(request.messages)), whole=False, cut=self.options.truncation)
        elif isinstance(request.prompt, str):
            text = as_text(request, "")
        else:
            text = "\n\n".join(turn["content"] for turn in _plain(request.messages))
        tokens = self.encode(text, cut=self.options.truncation)
        if tokens:
            return tokens
        if self.prefix_token is None:
            raise ClientError("the prompt is empty, and the model has no BOS token", kind="prompt")
        return [self.prefix_token]

    def special(self, text: str) -> int | None:
        """The special token that a text is, such as ``<|im_end|>``; None if it is not one."""
        added = self.tokenizer.added_tokens_decoder.items()
        return next((token for token, kind in added if kind.special and kind.content == text), None)

    def _templated(self, turns: list[Message]) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is code of the checkpoint and can raise any type
            raise ClientError(f"the model's chat template rejects the prompt: {error}", kind="prompt") from error
        return text


def load(path: str, options: LoadOptions = DEFAULT_OPTIONS) -> Checkpoint:
    """Load a checkpoint from a directory or the hub's local cache; nothing is downloaded.

    ClientError, before the weights are read, if they do not fit on the devices.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()  # its messages and progress bars would mix with ours
    transformers.utils.logging.disable_progress_bar()
    try:
        placement = placement_of(path, options)
        tokenizer = load_tokenizer(path, options)
        model = transformers.AutoModelForCausalLM.from_pretrained(path, **_arguments(options, placement))
        model = model if options.peft is None else _adapted(model, len(tokenizer), options)
    except ClientError:
        raise
    except InputError as error:  # it names the model, and so does the caller
        raise ClientError(str(error).removeprefix(f"hf/{path}: "), kind="model", hopeless=True) from error
    except Exception as error:  # OSError, ValueError, KeyError, RuntimeError, and the errors of three file formats
        raise ClientError(f"the model cannot be loaded: {error}", kind="model", hopeless=True) from error
    model = (model if placement.device_map is not None else model.to(placement.device)).eval()
    if options.attn_implementation is None:
        use_grouped(model)
    ends = _ends(model, tokenizer)
    pads = next((token for token in (tokenizer.pad_token_id, *sorted(ends)) if token is not None), 0)
    # Only the request determines the sampling: the checkpoint's own defaults for it are replaced.
    model.generation_config = transformers.GenerationConfig(pad_token_id=pads)
    takes = frozenset(signature(model.forward).parameters)
    known = (options.prefix_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    prefix = next((token for token in known if token is not None), None)
    longest = options.max_length or _longest(model, tokenizer)
    shares = _shares(model)
    gaps = shares and "position_ids" in takes and _sees_all(model)
    linear, batch = _is_linear(model), placement.batch
    return Checkpoint(model, tokenizer, longest, ends, prefix, pads, takes, shares, gaps, batch, options, linear)


def _arguments(options: LoadOptions, placement: Placement) -> dict[str, Any]:
    """The arguments of ``from_pretrained``; options that are not given are left to transformers."""
    optional = {
        "attn_implementation": options.attn_implementation,
        "device_map": placement.device_map,
        "quantization_config": None if options.quantization is None else quantization_config(options.quantization),
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"dtype": options.dtype, **options.local(), **given}


def _is_linear(model: Any) -> bool:
    """Whether the scores are exactly the output layer of the last hidden states, tested with two tokens.

    They are not in a model that bounds or scales its scores afterwards.
    """
    import torch

    head = model.get_output_embeddings()
    if head is None or model.base_model is model:
        return False
    try:
        with torch.inference_mode():
            tokens = torch.tensor([[0, 1]], device=model.device)
            states = model.base_model(input_ids=tokens).last_hidden_state
            return bool(torch.equal(head(states).float(), model(input_ids=tokens).logits.float()))
    except Exception:  # the model has no such interface and can raise any type; its scores are still available
        return False


def _adapted(model: Any, vocabulary: int, options: LoadOptions) -> Any:
    """A model with an adapter; the embeddings are resized if the tokenizer has another vocabulary, as in lm-eval."""
    from peft import PeftModel

    folder = folder_of(str(options.peft), ADAPTER, options.revision)
    if folder is None:
        raise ClientError(f"its adapter {options.peft} is not there", kind="model", hopeless=True)
    if model.config.get_text_config().vocab_size != vocabulary:
        model.resize_token_embeddings(vocabulary)
    adapted = PeftModel.from_pretrained(model, str(folder))
    if adapted.active_peft_config.is_prompt_learning:
        problem = f"its adapter {options.peft} is one of virtual tokens; expected one of weights, such as LoRA"
        raise ClientError(problem, kind="model", hopeless=True)
    return adapted.get_base_model()


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    tokens: set[int] = set()
    for holder in (model.generation_config, model.config, tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        tokens.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(tokens)


def _longest(model: Any, tokenizer: Any) -> int:
    """The context length of a model, by its configuration, else its tokenizer, in lm-eval's order."""
    config = getattr(model.config, "text_config", None) or model.config
    for name in ("n_positions", "max_position_embeddings", "n_ctx"):
        if (value := getattr(config, name, None)) is not None:
            return int(value)
    limit = tokenizer.model_max_length
    return int(limit) if limit and limit < 1e9 else DEFAULT_LENGTH  # a tokenizer without a limit has 1e30


def _shares(model: Any) -> bool:
    """Whether every layer is attention; a recurrent layer would process padding as text."""
    config = getattr(model.config, "text_config", None) or model.config
    layers = set(getattr(config, "layer_types", None) or ())
    return not getattr(model, "_is_stateful", False) and layers <= ATTENTION


def _sees_all(model: Any) -> bool:
    """Whether no layer is limited to the latest tokens, because such a window would count gaps as tokens."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    config = model.config.get_text_config()
    limited = ("sliding_window", "attention_chunk_size", "num_kv_shared_layers")
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    return kinds <= {DynamicLayer} and not any(getattr(config, name, None) for name in limited)


def _plain(messages: Sequence[Message]) -> list[Message]:
    """Messages with text as their content; ClientError for images and audio, which these models do not accept."""
    return [{**turn, "content": _content_text(turn.get("content"))} for turn in messages]


def _content_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise ClientError("a message contains more than text; hf/ models read only text", kind="prompt")
