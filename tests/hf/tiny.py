"""Checkpoints small enough to build in a test: real architectures, a real tokenizer, weights by lot.

The weights come from Python's own generator, by name, so that they are the same with every torch.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "and",
    "then",
    "dog",
    "ran",
    "away",
    "ing",
    "ed",
    "qu",
    "est",
    "ion",
    "answer",
    "ans",
    "wer",
    "hello",
    "world",
    "not",
]
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<s>[{{ m.role }}]{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>[assistant]{% endif %}"
)
LENGTH = {
    "gpt2": 64,
    "llama": 96,
    "bloom": 2048,
    "gemma": 96,
    "mamba": 2048,
    "headless": 80,
    "long": 1024,
}  # tokens each reads at once
SPREAD = 0.35  # of the weights: wide enough that answers differ and do not end at once


def tokenizer(kind: str) -> Any:
    """Bytes, and some words that are one token with and without a space before them, as in real ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in WORDS:
        pieces = [*((word[:end], word[end]) for end in range(1, len(word))), ("Ġ", word)]
        merges += [pair for pair in pieces if pair not in merges]
        for left, right in pieces:
            vocabulary.setdefault(left + right, len(vocabulary))
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    if kind == "gpt2":  # one token for everything, and nothing put before a text
        return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    if kind == "headless":  # no token for the beginning of a text
        return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    inner.add_special_tokens(["<s>", "</s>"])
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))]
    )
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
    made.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    return made


def pieces() -> Any:
    """A tokenizer as SentencePiece makes them: a space is the beginning of a piece, and unknown letters are bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz.,"]
    vocabulary = {name: place for place, name in enumerate(names)}
    merges = []
    for word in WORDS:
        pieces = [*((word[:end], word[end]) for end in range(1, len(word))), ("▁", word)]
        merges += [pair for pair in pieces if pair not in merges]
        for left, right in pieces:
            vocabulary.setdefault(left + right, len(vocabulary))
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens(["<s>", "</s>"])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def config(kind: str, words: Any) -> Any:
    import transformers

    ids = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "vocab_size": len(words)}
    length = LENGTH[kind]
    if kind == "gpt2":
        return transformers.GPT2Config(n_positions=length, n_embd=32, n_layer=2, n_head=4, **ids)
    if kind == "bloom":  # no positions of its own: attention fades with distance
        return transformers.BloomConfig(hidden_size=32, n_layer=2, n_head=4, **ids)
    if kind == "mamba":  # no attention at all: it reads a text once, and keeps a state
        return transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=8, **ids)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "max_position_embeddings": length}
    if kind == "gemma":  # every other layer sees only the latest tokens
        layers = ["sliding_attention", "full_attention"]
        return transformers.Gemma2Config(**shape, **ids, head_dim=8, sliding_window=8, layer_types=layers)
    return transformers.LlamaConfig(**shape, **ids)


def build(folder: Path, kind: str, *, chats: bool = False) -> str:
    """A checkpoint on disk; its path."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    words = tokenizer(kind)
    model = AutoModelForCausalLM.from_config(config(kind, words))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" not in name and "ln_" not in name:
                lots = random.Random(name)
                drawn = [lots.gauss(0, SPREAD) for _ in range(weights.numel())]
                weights.copy_(torch.tensor(drawn).reshape(weights.shape))
    if chats:
        words.chat_template = TEMPLATE
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def shortened(folder: Path, kind: str) -> str:
    """A tokenizer alone, which knows how many tokens a text may have; its path."""
    words = tokenizer(kind)
    words.model_max_length = 9
    words.save_pretrained(folder)
    return str(folder)


def adapter(folder: Path, base: str) -> str:
    """An adapter of a llama's weights, trained by lot; its path."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    )
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_" in name:
                lots = random.Random(name)
                drawn = [lots.gauss(0, SPREAD) for _ in range(weights.numel())]
                weights.copy_(torch.tensor(drawn).reshape(weights.shape))
    model.save_pretrained(folder)
    return str(folder)
