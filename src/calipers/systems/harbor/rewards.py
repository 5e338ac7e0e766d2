"""The rewards of a trial: reads the files that its tests wrote, and combines the rewards of its steps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from calipers.errors import InputError
from calipers.systems.harbor.wire import Number, Rewards, finite

REWARD: Final = "reward"
JSON_FILE: Final = "reward.json"
TEXT_FILE: Final = "reward.txt"
EMPTY: Final = "RewardFileEmptyError"
ABSENT: Final = "RewardFileNotFoundError"
UNREADABLE: Final = "VerifierOutputParseError"
NOT_A_MAP: Final = "ValidationError"


@dataclass(frozen=True, slots=True)
class Unrewarded:
    """The reason why there are no rewards, and the exception that Harbor records for it."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Graded:
    """The result of a step whose verifier finished, with or without rewards."""

    rewards: Rewards | None


def read_rewards(files: Mapping[str, bytes]) -> dict[str, Number] | Unrewarded:
    """The rewards in the files that the tests wrote to the verifier's folder; ``files`` maps names to contents.

    Only ``reward.json`` is read if it exists, even if it is invalid; otherwise ``reward.txt``, whose number becomes the
    reward ``reward``. Integers stay integers, true and false are 1.0 and 0.0, and an empty object is valid.

    >>> read_rewards({"reward.txt": b" 0.25 "}), read_rewards({"reward.json": b'{"a": 1, "b": true}'})
    ({'reward': 0.25}, {'a': 1, 'b': 1.0})
    """
    name = next((name for name in (JSON_FILE, TEXT_FILE) if name in files), None)
    if name is None:
        return Unrewarded(ABSENT, f"there is neither {JSON_FILE} nor {TEXT_FILE}")
    if not files[name]:
        return Unrewarded(EMPTY, f"{name} is empty")
    return _from_json(files[name]) if name == JSON_FILE else _from_text(files[name])


def _from_text(raw: bytes) -> dict[str, Number] | Unrewarded:
    try:
        value = float(raw.decode())
    except ValueError:
        return Unrewarded(UNREADABLE, f"{TEXT_FILE} contains no number")
    if not math.isfinite(value):
        return Unrewarded(UNREADABLE, f"{TEXT_FILE} contains {value}; expected a finite number")
    return {REWARD: value}


def _from_json(raw: bytes) -> dict[str, Number] | Unrewarded:
    try:
        rewards = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return Unrewarded(UNREADABLE, f"{JSON_FILE} cannot be read: {error}")
    if not isinstance(rewards, dict):
        kind = NOT_A_MAP if finite(rewards) else UNREADABLE
        return Unrewarded(kind, f'{JSON_FILE} contains no object; expected one such as {{"reward": 1}}')
    for name, value in rewards.items():
        if not finite(value):
            return Unrewarded(UNREADABLE, f"{JSON_FILE}: {name} is {value!r}; expected a finite number")
    return {name: float(value) if isinstance(value, bool) else value for name, value in rewards.items()}


def trial_rewards(
    steps: Sequence[Graded | None], strategy: Literal["mean", "final"] | str | None = None
) -> Rewards | None:
    """The rewards of a trial, from those of the steps that it reached; a step that was not graded is None.

    ``mean`` (the default) is each reward's mean over the graded steps; a reward that a step lacks counts as 0, and
    there are no rewards if no step has any. ``final`` is the rewards of the last step.

    >>> trial_rewards([Graded({"reward": 1}), None, Graded(None)])
    {'reward': 0.5}
    """
    if strategy == "final":
        last = steps[-1] if steps else None
        return last.rewards if last else None
    if strategy not in (None, "mean"):
        raise InputError(f"the strategy is {strategy!r}; expected 'mean' or 'final'")
    graded = [step.rewards or {} for step in steps if step is not None]
    names = dict.fromkeys(name for rewards in graded for name in rewards)
    return {name: math.fsum(rewards.get(name, 0) for rewards in graded) / len(graded) for name in names} or None


def misses_minimum(rewards: Rewards | None, minimum: Number | Rewards | None) -> bool:
    """Whether a step's rewards miss its ``min_reward``, which is a number for ``reward``, or a map with its names.

    A missing reward misses any minimum; without a minimum, nothing is missed.

    >>> misses_minimum({"reward": 0.5}, 0.5), misses_minimum({"acc": 1.0}, 0.0)
    (False, True)
    """
    minima = {} if minimum is None else minimum if isinstance(minimum, Mapping) else {REWARD: minimum}
    return any((rewards or {}).get(name, -math.inf) < least for name, least in minima.items())
