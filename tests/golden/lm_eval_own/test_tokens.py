"""What a local model reads: the token that begins a text, never twice; a prompt that is cut to leave room."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from golden.lm_eval_own.ported import ported

from calipers.clients import Continuation, Request, Rolling
from calipers.clients.huggingface.checkpoint import BatchPlan, Checkpoint
from calipers.clients.huggingface.generate import _prompted
from calipers.clients.huggingface.score import spans
from calipers.errors import ClientError

BOS, FIRST = "<s>", 0
BATCH = BatchPlan("cpu", "", 1, None, 1, 1, 1)  # no batch is read in these tests


class Words:
    """A tokenizer of words and blanks before them; a number is its own token. It may put a first token itself."""

    chat_template = None
    added_tokens_decoder = {FIRST: SimpleNamespace(special=True, content=BOS)}  # noqa: RUF012

    def __init__(self, begins):
        self.begins, self.known = begins, {BOS: FIRST}

    def encode(self, text, add_special_tokens=True):
        words = re.findall(rf"{BOS}|\s*[^\s<]+", text)
        found = [int(word) if word.strip().isdigit() else self._token(word) for word in words]
        return [FIRST, *found] if add_special_tokens and self.begins else found

    def _token(self, word):
        return self.known.setdefault(word, 1000 + len(self.known) if word != BOS else FIRST)

    def decode(self, tokens, skip_special_tokens=False):
        return "".join(word for token in tokens for word, number in self.known.items() if number == token)


def checkpoint(begins, longest=100):
    return Checkpoint(None, Words(begins), longest, frozenset(), FIRST, FIRST, frozenset(), True, True, BATCH)


@ported(
    "models/test_bos_handling.py",
    "begins, text, words",
    {
        "TestDefaultsToNone::test_huggingface_none_uses_tokenizer_default": [
            (False, "Hello", ["Hello"]),
            (True, "Hello", [BOS, "Hello"]),
        ],
        "TestNoDuplicateBos::test_huggingface_follows_tokenizer_default": [
            (False, "Hello", ["Hello"]),
            (True, "Hello", [BOS, "Hello"]),
        ],
        "TestNoDuplicateBos::test_huggingface_detects_bos_in_single_string": [
            (begins, f"{BOS}Hello", [BOS, "Hello"]) for begins in (False, True)
        ],
        "TestChatTemplateCompatibility::test_huggingface_chat_template_no_duplicate_bos": [
            (begins, f"{BOS}User: Hello\nAssistant:", [BOS, "User:", " Hello", "\nAssistant:"])
            for begins in (False, True)
        ],
        "TestHasBosPrefix::test_detects_single_bos_string": [
            (True, f"{BOS}Hello", [BOS, "Hello"]),
            (True, "Hello", [BOS, "Hello"]),
            (True, BOS, [BOS]),
        ],
    },
)
def test_a_text_begins_with_its_first_token_once(begins, text, words):
    held = checkpoint(begins)
    found = held.encode(text)
    assert [held.tokenizer.decode([token]) for token in found] == words


@ported(
    "models/test_bos_handling.py",
    "begins, context, continuation, before, scored",
    {
        "TestLoglikelihoodBosHandling::test_empty_context_continuation_with_bos": [
            (begins, "", f"{BOS}Hello", [BOS], ["Hello"]) for begins in (False, True)
        ],
        "TestLoglikelihoodBosHandling::test_empty_context_continuation_without_bos": [
            (begins, "", "Hello", [BOS], ["Hello"]) for begins in (False, True)
        ],
        "TestLoglikelihoodBosHandling::test_context_with_bos_prefix": [
            (begins, f"{BOS}System:", " Hello", [BOS, "System:"], [" Hello"]) for begins in (False, True)
        ],
    },
)
def test_the_first_token_belongs_to_the_context(begins, context, continuation, before, scored):
    held = checkpoint(begins)
    [found] = spans(held, Continuation(context, continuation))
    words = [[held.tokenizer.decode([token]) for token in tokens] for tokens in (found.context, found.scored)]
    assert words == [before, scored]


@ported("test_utils.py", "text", {"test_get_rolling_token_windows_empty": [("",)]})
def test_an_empty_text_has_no_windows(text):
    assert spans(checkpoint(False), Rolling(text)) == []


FILE = "models/test_model_utils.py"
CUT = "TestMaybeTruncate::test_"
TEN = list(range(1, 11))


def cut(tokens, limit, longest):
    request = Request("task", 0, " ".join(map(str, tokens)), max_tokens=limit, extra={"truncate": "left"})
    return _prompted(checkpoint(False, longest), 0, request, False, None)


@ported(
    FILE,
    "tokens, limit, longest, kept",
    {
        "TestTruncateTokens::test_left": [([1, 2, 3, 4, 5], 1, 4, [3, 4, 5])],
        "TestTruncateTokens::test_no_truncation_needed": [([1, 2, 3], 1, 6, [1, 2, 3])],
        f"{CUT}case1_no_truncation": [([1, 2, 3, 4, 5], 5, 10, [1, 2, 3, 4, 5])],
        f"{CUT}case2_truncate_prompt_no_adjust": [(TEN, 5, 6, [10])],
        f"{CUT}case2_no_adjust_is_default": [(TEN, 5, 6, [10])],
        f"{CUT}case2_prompt_fits_but_gen_too_large_no_adjust": [([1, 2, 3, 4, 5, 6, 7, 8], 3, 8, [4, 5, 6, 7, 8])],
    },
)
def test_a_prompt_that_is_too_long_loses_its_beginning(tokens, limit, longest, kept):
    found = cut(tokens, limit, longest)
    assert (list(found.tokens), found.limit) == (kept, limit)


@ported(FILE, "limit, longest", {f"{CUT}raises_when_max_len_too_small": [(5, 2)]})
def test_an_answer_longer_than_the_model_reads_is_refused(limit, longest):
    with pytest.raises(ClientError, match="max_tokens is 5, but the model's context length is 2"):
        cut([1, 2, 3, 4, 5], limit, longest)
