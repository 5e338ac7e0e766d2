"""What a judge said, read strictly: one score, on the scale it was given, or none at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calipers.run.verifiers.params import is_number

# A line of its own, perhaps in bold or as a heading; not after a >, which quotes somebody else.
LINE: Final = re.compile(
    r"^[ \t*_#`]{0,20}SCORE[ \t*_`]{0,20}[:=][ \t*_`]{0,20}(.{0,200}?)[ \t*_`.]{0,20}$", re.IGNORECASE | re.MULTILINE
)
NUMBER: Final = re.compile(r"[-+]?[0-9]{1,15}(?:\.[0-9]{0,15})?|[-+]?\.[0-9]{1,15}")
LONGEST: Final = 100_000  # characters of a reply
OBJECTS: Final = 200  # braces that are looked at


class Unreadable(Exception):
    """A reply that holds no score, or more than one; its text says which."""


@dataclass(frozen=True, slots=True)
class Range:
    """Any number between two; a score is worth its share of the way from the low one to the high one."""

    low: float
    high: float

    @property
    def shown(self) -> str:
        """The scale as a judge is told of it."""
        return f"a number from {self.low:g} to {self.high:g}"

    def worth(self, said: Any) -> float:
        """The reward for a score; Unreadable when it is none of this scale."""
        if isinstance(said, str) and NUMBER.fullmatch(said.strip()):
            said = float(said)
        if not is_number(said):
            raise Unreadable(f"the score is {said!r:.60}; expected {self.shown}")
        if not self.low <= said <= self.high:
            raise Unreadable(f"the score is {said:g}, out of range; expected {self.shown}")
        return float((said - self.low) / (self.high - self.low))


@dataclass(frozen=True, slots=True)
class Labels:
    """A few words, each with its reward; upper and lower case are the same."""

    rewards: Mapping[str, float]

    @property
    def shown(self) -> str:
        """The scale as a judge is told of it."""
        return f"one of {', '.join(self.rewards)}"

    def worth(self, said: Any) -> float:
        """The reward for a label; Unreadable when it is none of these."""
        word = said.strip().strip("\"'").casefold() if isinstance(said, str) else said
        for label, reward in self.rewards.items():
            if word == label.casefold():
                return float(reward)
        raise Unreadable(f"the score is {said!r:.60}; expected {self.shown}")


Scale = Range | Labels


def read_score(reply: str, scale: Scale) -> float:
    """The reward that a judge gave: by ``{"score": x}``, or by a line ``SCORE: x``, and by nothing else.

    Text around it does not matter. Said twice it must be the same, since of two scores neither is the score.

    >>> read_score("It is mostly right.\\n\\n**SCORE: 7**", Range(0, 10))
    0.7
    """
    if len(reply) > LONGEST:
        raise Unreadable(f"the reply has {len(reply)} characters; expected a score")
    said = [*_objects(reply), *(found[1] for found in LINE.finditer(reply))]
    if not said:
        raise Unreadable('there is no score; expected {"score": ...} or a last line SCORE: ...')
    worth = {scale.worth(one) for one in said}
    if len(worth) > 1:
        raise Unreadable(f"there are {len(worth)} different scores")
    return worth.pop()


def _objects(reply: str) -> list[Any]:
    """The scores of all JSON objects that have one at their top."""
    scores, place = [], reply.find("{")
    decoder = json.JSONDecoder(object_pairs_hook=list)  # so that a key that stands there twice is seen
    for _ in range(OBJECTS):
        if place < 0:
            break
        try:
            pairs, end = decoder.raw_decode(reply, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            scores += [pair[1] for pair in pairs if pair[0].casefold() == "score"]
        place = reply.find("{", end)
    return scores
