"""Common prefixes of texts, found in tokens alone, so that these tests do not need torch."""

import pytest

from calipers.clients.huggingface import batches
from calipers.clients.huggingface.batches import branches

LONG = tuple(range(300))


def sizes(texts, known=()):
    """The length of each prefix, and the number of texts with it."""
    return sorted((len(prefix), len(members)) for prefix, members in branches(texts, known))


@pytest.mark.parametrize(
    ("texts", "known", "expected"),
    [
        ([], (), []),
        ([LONG], (), [(0, 1)]),  # a single text shares nothing,
        ([LONG], [LONG[:200]], [(200, 1)]),  # unless a part of it was computed before,
        ([LONG], [LONG], [(299, 1)]),  # and at least one token is always left to compute
        ([LONG, LONG], (), [(0, 1)]),  # equal texts are one
        ([(*LONG, 7, 7), (*LONG, 8, 8)], (), [(300, 2)]),
        ([LONG, (*LONG, 8)], (), [(299, 2)]),  # a prefix is shorter than each of its texts
        ([(*LONG[:100], n) for n in (7, 8)], (), [(0, 2)]),  # 100 tokens are not worth a call,
        ([(*LONG[:100], n) for n in (7, 8, 9)], (), [(100, 3)]),  # twice 100 are
        ([(*LONG, 1), (*LONG, 2), (5, 6)], (), [(0, 1), (300, 2)]),  # one stranger does not spoil it
        (
            [LONG[:40] + (n,) * 200 + (m,) for n in (500, 501) for m in (1, 2)],
            (),
            [(240, 2), (240, 2)],  # two longer prefixes save more than one for all
        ),
        ([(n,) for n in range(9)], (), [(0, 9)]),
        ([(*LONG[:40], n) for n in range(5)], [(900, 901)], [(40, 5)]),  # what is known may be beside the matter
    ],
)
def test_branches(texts, known, expected):
    assert sizes(texts, known) == expected


def test_every_text_is_in_one_branch_and_begins_with_its_trunk():
    texts = [LONG[: 30 + 7 * n] + (1000 + n % 5,) * (n % 3 + 1) for n in range(30)]
    found = branches(texts, [LONG[:50]])
    assert sorted(text for _, members in found for text in members) == sorted(set(texts))
    assert all(
        text[: len(prefix)] == prefix and len(text) > len(prefix) for prefix, members in found for text in members
    )


def test_texts_within_texts_are_parted_only_so_deep(monkeypatch):
    """Each a beginning of the next, by the thousand: no deeper than is allowed."""
    deepest = []
    plain = batches._parted
    monkeypatch.setattr(
        batches, "_parted", lambda texts, left, worth: deepest.append(left) or plain(texts, left, worth)
    )
    branches([(*[0] * n, n + 1) for n in range(2000)])
    assert min(deepest) >= 0
    assert len(deepest) <= batches.DEEPEST + 1
