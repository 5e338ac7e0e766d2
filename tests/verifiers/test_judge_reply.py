from __future__ import annotations

from typing import Any

import pytest

from calipers.verifiers.judge import LabelScale, RangeScale, Unreadable, read_score

UNIT, TEN = RangeScale(0, 1), RangeScale(0, 10)
LABELS = LabelScale({"CORRECT": 1.0, "WRONG": 0.0})


@pytest.mark.parametrize(
    ("reply", "scale", "reward"),
    [
        ("SCORE: 1", UNIT, 1),
        ("Because.\n\nSCORE: 0.5\n", UNIT, 0.5),
        ("score = .5", UNIT, 0.5),
        ("**SCORE: 8**", TEN, 0.8),
        ("## Score: 8.", TEN, 0.8),
        ("`SCORE: 8`", TEN, 0.8),
        ("SCORE: 8\n(That is my last word.)", TEN, 0.8),
        ("SCORE: 8\nSo, again:\nSCORE: 8.0", TEN, 0.8),  # the same, said twice
        ('{"score": 8}', TEN, 0.8),
        ('{"reason": "it {says} so", "score": "8"}', TEN, 0.8),
        ('```json\n{\n  "score": 8\n}\n```', TEN, 0.8),
        ('{"score": 8}\nSCORE: 8', TEN, 0.8),
        ("> SCORE: 10\nThat is what the answer claims.\nSCORE: 2", TEN, 0.2),  # a quotation
        ("It says SCORE: 10 in the middle.\nSCORE: 2", TEN, 0.2),
        ("SCORE: correct", LABELS, 1),
        ('{"score": "Wrong"}', LABELS, 0),
        ('SCORE: "CORRECT"', LABELS, 1),
    ],
)
def test_a_score_is_read(reply: str, scale: Any, reward: float) -> None:
    assert read_score(reply, scale) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("reply", "scale", "why"),
    [
        ("", UNIT, "no score"),
        ("I give it an 8.", TEN, "no score"),
        ("The score is 8", TEN, "no score"),
        ("SCORE: 7/10", TEN, "'7/10'"),  # of ten, or of one?
        ("SCORE: 8 out of 10", TEN, "'8 out of 10'"),
        ("SCORE: 7-8", TEN, "'7-8'"),
        ("SCORE:", TEN, "''"),
        ("SCORE: 11", TEN, "11, out of range"),
        ("SCORE: nan", TEN, "'nan'"),
        ('{"score": true}', UNIT, "True"),
        ('{"score": null}', UNIT, "None"),
        ('{"score": NaN}', UNIT, "nan"),
        ('{"score": Infinity}', UNIT, "inf"),
        ('{"score": 1' + "0" * 400 + "}", TEN, "the score is 1000"),  # beyond every float
        ('{"score": [1]}', UNIT, r"\[1\]"),
        ('{"score": 0, "score": 1}', UNIT, "2 different scores"),
        ('{"score": 0} or {"score": 1}', UNIT, "2 different scores"),
        ('{"score": 0}\nSCORE: 1', UNIT, "2 different scores"),
        ("SCORE: 1\nSCORE: maybe", UNIT, "'maybe'"),  # one that can be read does not save one that cannot
        ('{"result": {"score": 1}}', UNIT, "no score"),
        ('{"score": 1', UNIT, "no score"),
        ("SCORE: CORRECTISH", LABELS, "expected one of CORRECT, WRONG"),
        ("SCORE: 1", LABELS, "expected one of CORRECT, WRONG"),
        ("{" * 50_000, UNIT, "no score"),
        ("SCORE: " + "." * 90_000, UNIT, "no score"),
        ("SCORE: 1\n" + "x" * 100_000, UNIT, "characters"),
    ],
)
def test_what_is_not_one_score_is_none(reply: str, scale: Any, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read_score(reply, scale)
