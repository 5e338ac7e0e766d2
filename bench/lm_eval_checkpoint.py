"""A checkpoint to measure with: ``lm_eval_checkpoint.py FOLDER``, in an environment with transformers.

Real architecture, real tokenizer, weights by lot: big enough that reading tokens takes the time, not the calls.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench.lm_eval_tasks import Words

VOCABULARY = 8192
LAYERS, WIDTH, HEADS, LENGTH = 6, 384, 6, 1024
SPREAD = 0.12  # of the weights: answers differ from one another and do not repeat one token for ever


def build(folder: Path) -> None:
    """A llama of 20 million weights; the words of its vocabulary take a third of them, as in the smallest GPT-2."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    kit = importlib.import_module("tokenizers")  # by name: it comes with transformers, and is not in every environment
    inner = kit.Tokenizer(kit.models.BPE())
    inner.pre_tokenizer = kit.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = kit.decoders.ByteLevel()
    words = Words("tokenizer")
    alphabet = kit.pre_tokenizers.ByteLevel.alphabet()
    trainer = kit.trainers.BpeTrainer(vocab_size=VOCABULARY - 1, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator((words.text(20) for _ in range(300)), trainer)
    # One token for everything that steers, as GPT-2 has it.
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    torch.manual_seed(8)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=LENGTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=SPREAD,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
