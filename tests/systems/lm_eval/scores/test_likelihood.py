from __future__ import annotations

import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.scores.entries import score_loglikelihood, score_rolling, words


@pytest.mark.parametrize(("text", "expected"), [("a b", 2), (" a", 2), ("a ", 2), ("", 1), ("a\u2003b\n\nc", 3)])
def test_words(text, expected):
    assert words(text) == expected


def test_a_continuation():
    assert score_loglikelihood([-1.25, True], ["acc", "perplexity", "bleu"]) == {"perplexity": -1.25, "acc": 1}
    with pytest.raises(InputError, match="is_greedy"):
        score_loglikelihood(-1.25, ["acc"])


def test_a_whole_text_by_words_and_by_bytes():
    names = ["bits_per_byte", "word_perplexity", "byte_perplexity"]
    found = score_rolling(-20.0, "naïve café  x\n", names)
    assert found == {"word_perplexity": (-20.0, 4), "byte_perplexity": (-20.0, 16), "bits_per_byte": (-20.0, 16)}


def test_the_perplexity_of_whole_texts_is_of_their_log_likelihoods():
    assert score_rolling(-20.0, "two words", ["perplexity"]) == {"perplexity": -20.0}
