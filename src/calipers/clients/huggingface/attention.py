"""Attention on an accelerator, where a mask and shared keys would send torch to a slow kernel.

Models of today have fewer heads for keys than for queries. With a mask, as gaps and prefixes need one, transformers
copies the keys for every query head. Here the queries that share a key head are its rows instead; nothing is copied.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

NAME: Final = "calipers_grouped"
"""The name under which transformers knows this attention."""


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
