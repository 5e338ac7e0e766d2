"""Rows of tokens, read by a checkpoint: one call of the model, and how large it may be."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from calipers.errors import ClientError
from calipers.run.clients.hf_checkpoint import Checkpoint

NUMBERS = 2**28  # scores a call may ask for: positions by words of the vocabulary, a GiB in all
BYTES = 2**31  # of memory of what was read, that a call may go on from
AT_ONCE = 2**11  # tokens a processor reads at once: more are no faster, and fall out of its caches


class Reader:
    """Reads rows until it is told to close."""

    def __init__(self, checkpoint: Checkpoint, closed: threading.Event) -> None:
        self._checkpoint, self._closed = checkpoint, closed
        model = checkpoint.model
        self._positions: int = NUMBERS // model.config.get_text_config().vocab_size
        self._held: int = BYTES // _bytes_per_token(model) if checkpoint.shares else 1
        self._at_once = AT_ONCE if model.device.type == "cpu" else sys.maxsize

    def most(self, width: int, kept: int, before: int = 0) -> int:
        """How many rows may be read at once, that wide, for so many places of each, behind so many tokens; one may."""
        limits = [self._positions // max(kept, 1), self._at_once // max(width, 1)]
        if before:
            limits.append(self._held // (before + width))
        return max(1, min(limits))

    def __call__(self, rows: Sequence[Sequence[int]], kept: int, *, memory: Any = None, **more: Any) -> tuple[Any, Any]:
        """The scores at the last ``kept`` places of each row, and the model's memory with the rows behind it."""
        import torch

        if self._closed.is_set():
            raise ClientError("the model was closed before it had scored", kind="closed")
        model, takes = self._checkpoint.model, self._checkpoint.takes
        given = {name: value for name, value in more.items() if name != "position_ids" or name in takes}
        if "logits_to_keep" in takes:
            given["logits_to_keep"] = kept
        if memory is not None:
            given["past_key_values"] = memory
        moved = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in given.items()}
        with torch.inference_mode():
            out = model(input_ids=torch.tensor(rows, device=model.device), **moved)
        return out.logits[:, -kept:], out.past_key_values if more["use_cache"] else None


def _bytes_per_token(model: Any) -> int:
    """What a model keeps of each token that it has read: a key and a value in every layer."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    each = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size: int = 2 * config.num_hidden_layers * heads * each * model.dtype.itemsize
    return max(size, 1)
