"""A checkpoint: where it is placed, and the loaded model with its tokenizer, chat template and attention.

::

    config.json, sizes of the weight files, options ─┬─► devices: one, or several if one is too small
                                                     └─► batch plan: kept in the plan of the run

The placement is known before anything is loaded. It follows from the files, the options and the kind of device, never
from the memory that happens to be free.

On an accelerator a mask and shared keys would send torch to a slow kernel. Models of today have fewer heads for keys
than for queries. With a mask, as gaps and prefixes need one, transformers copies the keys for every query head. Here
the queries that share a key head are its rows instead; nothing is copied.
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


NO_SYSTEM = (
    "the model's chat template accepts no system message; the system message was dropped, as in lm-evaluation-harness"
)
NO_NAMES = "the model has only one chat template, which has no name; that template was used"
NAME: Final = "calipers_grouped"
"""The name under which transformers knows this attention."""
DEFAULT_LENGTH = 2048  # tokens of a model that does not say how many it reads; lm-eval's number
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}  # transformers' words for kinds of layers


@dataclass(frozen=True, slots=True)
class Template:
    """Which of a checkpoint's templates is meant, and where to say what it did not take."""

    name: str  # "": its only one, or its default
    notes: list[str]

    def around(self, tokenizer: Any, turns: Sequence[Message]) -> str:
        """The turns as one text, which ends where the model is to go on: after an opened turn, or inside the last."""
        from jinja2 import TemplateError

        chosen = self.chosen(tokenizer.chat_template)
        try:
            try:
                return _rendered(tokenizer, turns, chosen)
            except TemplateError:
                rest = [turn for turn in turns if turn["role"] != "system"]
                if len(rest) == len(turns):
                    raise
                text = _rendered(tokenizer, rest, chosen)
                self._say(NO_SYSTEM)
                return text
        except Exception as error:  # a template is a program of the checkpoint's, and says no in its own way
            raise ClientError(f"the model's chat template rejects the prompt: {error}", kind="prompt") from error

    def chosen(self, templates: Any) -> str | None:
        """The text of the template that is named; None where the tokenizer is to take its own."""
        if not templates:
            message = "the model has no chat template; run it without --apply-chat-template"
            raise ClientError(message, kind="prompt", hopeless=True)
        if not self.name:
            return None
        if not isinstance(templates, dict):
            self._say(NO_NAMES)
            return None
        if self.name not in templates:
            message = f"the model has no chat template {self.name!r}; it has {', '.join(sorted(templates))}"
            raise ClientError(message, kind="prompt", hopeless=True)
        return str(templates[self.name])

    def _say(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True, slots=True)
class Local:
    """A checkpoint's template without its weights."""

    tokenizer: Any
    template: Template

    @classmethod
    def load(cls, path: str, name: str, options: LoadOptions = DEFAULT_OPTIONS) -> Local:
        """Load the tokenizer of a checkpoint; nothing is downloaded, none of its code is run."""
        try:
            tokenizer = load_tokenizer(path, options)
        except Exception as error:  # OSError, ValueError, KeyError and those of three file formats
            raise ClientError(f"the tokenizer cannot be loaded: {error}", kind="model", hopeless=True) from error
        return cls(tokenizer, Template(name, []))

    @property
    def text(self) -> str:
        """The template itself."""
        templates = self.tokenizer.chat_template
        chosen = self.template.chosen(templates)
        return str(chosen or (templates.get("default", "") if isinstance(templates, dict) else templates))

    def around(self, turns: Sequence[Message]) -> str:
        """The turns as the model reads them."""
        return self.template.around(self.tokenizer, turns)


def _rendered(tokenizer: Any, turns: Sequence[Message], template: str | None) -> str:
    begun = turns[-1]["role"] == "assistant"
    text: str = tokenizer.apply_chat_template(
        list(turns),
        chat_template=template,
        tokenize=False,
        add_generation_prompt=not begun,
        continue_final_message=begun,
    )
    return text


def grouped(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **more: Any
) -> tuple[Any, None]:
    """Scaled dot-product attention of queries, [B, H, Q, D], to keys and values, [B, G, K, D]; [B, Q, H, D].

    Query head h attends to key head ``h // (H / G)``. Without a mask, or with a head of keys for each of queries, this
    is transformers' own.
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
    """Let a model on CUDA use this attention, if it uses torch's and shares keys."""
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
    """The kernels of torch's attention without cuDNN's, which takes half a second over each new shape."""
    if device.type != "cuda":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen: AbstractContextManager[Any] = sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )
    return chosen


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded model and how to speak to it."""

    model: Any
    tokenizer: Any
    longest: int  # tokens it reads at once, prompt and answer together
    ends: frozenset[int]  # tokens that end an answer
    prefix_token: int | None  # the token that stands for the beginning of a text; None when it has none
    pads: int  # a token that fills rows up; nobody looks at it
    takes: frozenset[str]  # what its forward pass can be told
    shares: bool  # its memory of a text can be copied to several continuations, and filled up from the left
    gaps: bool  # that memory may have gaps, which are passed over: every layer sees all of it, by given positions
    batch: BatchPlan  # for the device that it is on
    options: LoadOptions = DEFAULT_OPTIONS  # how it was loaded, and is to be read
    linear: bool = False  # its scores are one matrix times its last hidden states, and nothing else

    @property
    def chats(self) -> bool:
        """Whether it comes with a template for chats."""
        return bool(self.tokenizer.chat_template)

    def encode(self, text: str, whole: bool = True, cut: bool = False) -> list[int]:
        """The tokens of a text; a whole text begins with what the tokenizer puts first, but never twice.

        ``cut``: no more of them than the tokenizer's own limit.
        """
        limit = {"truncation": True} if cut else {}
        try:
            tokens: list[int] = self.tokenizer.encode(
                text, add_special_tokens=self._opens(text, whole, self._opening), **limit
            )
        except (TypeError, UnicodeError) as error:  # half a character
            raise ClientError("the text cannot be encoded: it is not valid Unicode", kind="prompt") from error
        return tokens

    def encode_all(self, texts: Iterable[tuple[str, bool]]) -> dict[tuple[str, bool], list[int]]:
        """The tokens of many texts, each with whether it is whole; the tokenizer works on all cores.

        Empty where one of them cannot be encoded: then `encode` says which.
        """
        by_opening: dict[bool, list[tuple[str, bool]]] = {True: [], False: []}
        opening = self._opening
        for key in dict.fromkeys(texts):
            by_opening[self._opens(*key, opening)].append(key)
        tokens: dict[tuple[str, bool], list[int]] = {}
        for special, keys in by_opening.items():
            if keys:
                try:
                    made = self._encoded([text for text, _ in keys], special)
                except (TypeError, UnicodeError):  # half a character
                    return {}
                tokens.update(zip(keys, made, strict=True))
        return tokens

    def _encoded(self, texts: list[str], special: bool) -> list[list[int]]:
        if not self.tokenizer.is_fast:
            made: list[list[int]] = self.tokenizer(texts, add_special_tokens=special)["input_ids"]
            return made
        inner = self.tokenizer.backend_tokenizer  # without the tables that transformers makes of each text
        inner.no_truncation()
        inner.no_padding()
        return [each.ids for each in inner.encode_batch_fast(texts, add_special_tokens=special)]

    @property
    def _opening(self) -> str:
        """The text of the prefix token."""
        return "" if self.prefix_token is None else str(self.tokenizer.decode([self.prefix_token]))

    def _opens(self, text: str, whole: bool, opening: str) -> bool:
        """Whether the tokenizer puts its first token before a text: before a whole one that does not begin with it."""
        return whole and self.options.add_bos_token is not False and not (opening and text.startswith(opening))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without those that only steer."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def prompt(self, request: Request, chat: bool, template: Template | None = None) -> list[int]:
        """The tokens of a request: by the checkpoint's own template for a chat, else its plain text.

        A ``template`` that is given is put around turns as lm-evaluation-harness does it.
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
        """The one token that a text is, where it is a token that only steers, such as ``<|im_end|>``."""
        added = self.tokenizer.added_tokens_decoder.items()
        return next((token for token, kind in added if kind.special and kind.content == text), None)

    def _templated(self, turns: list[Message]) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program of the checkpoint's, and says no in its own way
            raise ClientError(f"the model's chat template rejects the prompt: {error}", kind="prompt") from error
        return text


def load(path: str, options: LoadOptions = DEFAULT_OPTIONS) -> Checkpoint:
    """Load a checkpoint from a directory or the hub's local cache; nothing is downloaded.

    ClientError, before the weights are read, if they do not fit where they are to go.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()  # it writes advice and progress where our own are shown
    transformers.utils.logging.disable_progress_bar()
    try:
        placement = place(path, options)
        tokenizer = load_tokenizer(path, options)
        model = transformers.AutoModelForCausalLM.from_pretrained(path, **_arguments(options, placement))
        model = model if options.peft is None else _adapted(model, len(tokenizer), options)
    except ClientError:
        raise
    except InputError as error:  # it names the model, and so does whoever asks for it
        raise ClientError(str(error).removeprefix(f"hf/{path}: "), kind="model", hopeless=True) from error
    except Exception as error:  # OSError, ValueError, KeyError, RuntimeError and those of three file formats
        raise ClientError(f"the model cannot be loaded: {error}", kind="model", hopeless=True) from error
    model = (model if placement.device_map is not None else model.to(placement.device)).eval()
    if options.attn_implementation is None:
        use_grouped(model)
    ends = _ends(model, tokenizer)
    pads = next((token for token in (tokenizer.pad_token_id, *sorted(ends)) if token is not None), 0)
    # What is asked for is what is done: a checkpoint's own taste in sampling stays out of it.
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
    """The arguments of ``from_pretrained``; what is not given is left to transformers."""
    optional = {
        "attn_implementation": options.attn_implementation,
        "device_map": placement.device_map,
        "quantization_config": None if options.quantization is None else quantization_config(options.quantization),
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"dtype": options.dtype, **options.local(), **given}


def _is_linear(model: Any) -> bool:
    """Whether the scores are the output layer of the last hidden states, tried on two tokens.

    A model that bounds or scales its scores afterwards gives other numbers, and is asked for its scores.
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
    except Exception:  # a model that cannot be asked so; whatever it raises, its scores can still be asked for
        return False


def _adapted(model: Any, words: int, options: LoadOptions) -> Any:
    """A model with an adapter over its weights; one that was trained with more words gets room for them, as there."""
    from peft import PeftModel

    folder = folder_of(str(options.peft), ADAPTER, options.revision)
    if folder is None:
        raise ClientError(f"its adapter {options.peft} is not there", kind="model", hopeless=True)
    if model.config.get_text_config().vocab_size != words:
        model.resize_token_embeddings(words)
    adapted = PeftModel.from_pretrained(model, str(folder))
    if adapted.active_peft_config.is_prompt_learning:
        wrong = f"its adapter {options.peft} is one of virtual tokens; expected one of weights, such as LoRA"
        raise ClientError(wrong, kind="model", hopeless=True)
    return adapted.get_base_model()


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    tokens: set[int] = set()
    for holder in (model.generation_config, model.config, tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        tokens.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(tokens)


def _longest(model: Any, tokenizer: Any) -> int:
    """The tokens a model reads at once, by its configuration, else its tokenizer, in lm-eval's order."""
    config = getattr(model.config, "text_config", None) or model.config
    for name in ("n_positions", "max_position_embeddings", "n_ctx"):
        if (value := getattr(config, name, None)) is not None:
            return int(value)
    limit = tokenizer.model_max_length
    return int(limit) if limit and limit < 1e9 else DEFAULT_LENGTH  # a tokenizer that knows no limit says 1e30


def _shares(model: Any) -> bool:
    """Whether every layer is attention: a recurrent one would take what fills a row up for text."""
    config = getattr(model.config, "text_config", None) or model.config
    layers = set(getattr(config, "layer_types", None) or ())
    return not getattr(model, "_is_stateful", False) and layers <= ATTENTION


def _sees_all(model: Any) -> bool:
    """Whether no layer sees only the latest tokens, which are counted with the gaps between them."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    config = model.config.get_text_config()
    limited = ("sliding_window", "attention_chunk_size", "num_kv_shared_layers")
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    return kinds <= {DynamicLayer} and not any(getattr(config, name, None) for name in limited)


def _plain(messages: Sequence[Message]) -> list[Message]:
    """Turns whose content is text; ClientError for pictures and sound, which a causal model cannot see."""
    return [{**turn, "content": _words(turn.get("content"))} for turn in messages]


def _words(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise ClientError("a message contains more than text; hf/ models read only text", kind="prompt")
