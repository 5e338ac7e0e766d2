"""Attention with shared key heads gives the same numbers as transformers' own, with and without a mask."""

from types import SimpleNamespace

import pytest

from calipers.clients.huggingface.checkpoint import grouped

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("keys", [1, 2, 8])
@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.usefixtures("packages")
def test_equal_to_the_attention_of_transformers(keys, length, masked):
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    torch.manual_seed(0)
    query = torch.randn(3, 8, length, 16)
    key, value = torch.randn(3, keys, 7, 16), torch.randn(3, keys, 7, 16)
    mask = None
    if masked:
        mask = torch.rand(3, 1, length, 7) < 0.6
        mask[..., 0] = True
    module = SimpleNamespace(num_key_value_groups=8 // keys, is_causal=False)
    ours, _ = grouped(module, query, key, value, mask, scaling=0.25)
    theirs, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.25, is_causal=False)
    assert ours.shape == (3, length, 8, 16)
    torch.testing.assert_close(ours, theirs, **CLOSE)
