"""Make a checkpoint for the benchmarks: ``lm_eval_checkpoint.py FOLDER [large]``, in an environment with transformers.

It has a real architecture, a real tokenizer and random weights, and is large enough that the time is spent on tokens
and not on the overhead of calls. The large one is for an accelerator: 1.1 billion weights in bfloat16, in the shape of
TinyLlama.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench.harness.tasks import Words

VOCABULARY = 8192
LAYERS, WIDTH, HEADS, LENGTH = 6, 384, 6, 1024
SPREAD = 0.12  # of the weights: large enough that answers differ and do not repeat a single token forever
LARGE = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "initializer_range": 0.03,  # with a larger value, this many layers would amplify rounding errors
}


def build(folder: Path, large: bool = False) -> None:
    """Make a llama of 20 million weights; the embeddings have a third of them, as in the smallest GPT-2.

    ``large``: one of 1.1 billion weights, whose vocabulary has tokens that its tokenizer never uses.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    kit = importlib.import_module("tokenizers")  # by name, because not every environment has it
    inner = kit.Tokenizer(kit.models.BPE())
    inner.pre_tokenizer = kit.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = kit.decoders.ByteLevel()
    words = Words("tokenizer")
    alphabet = kit.pre_tokenizers.ByteLevel.alphabet()
    trainer = kit.trainers.BpeTrainer(vocab_size=VOCABULARY - 1, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator((words.text(20) for _ in range(300)), trainer)
    # One special token for everything, as in GPT-2.
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    torch.manual_seed(8)
    small = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "intermediate_size": 4 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": LENGTH,
        "initializer_range": SPREAD,
    }
    steering = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(**(LARGE if large else small), **steering)
    if large:
        with torch.device(torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"):
            model = LlamaForCausalLM(config).to(torch.bfloat16)
    else:
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]), large=sys.argv[2:] == ["large"])
