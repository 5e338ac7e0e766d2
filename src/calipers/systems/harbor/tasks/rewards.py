"""What a task's tests leave behind: rewards from a file, from several steps, and whether they reach a gate."""

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
NO_MAP: Final = "ValidationError"


@dataclass(frozen=True, slots=True)
class Unrewarded:
    """Why there are no rewards: the exception that Harbor records, and what is wrong."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Graded:
    """A step whose verifier came to an end; it may have given no rewards all the same."""

    rewards: Rewards | None


def read_rewards(files: Mapping[str, bytes]) -> dict[str, Number] | Unrewarded:
    """The rewards that tests left in the verifier's folder, by file name.

    ``reward.json`` alone is read where it exists, whatever is in it; else ``reward.txt``, whose number is
    called ``reward``. Integers stay integers, true and false are 1.0 and 0.0, an empty object is no fault.

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
        kind = NO_MAP if finite(rewards) else UNREADABLE
        return Unrewarded(kind, f'{JSON_FILE} contains no object; expected one such as {{"reward": 1}}')
    for name, value in rewards.items():
        if not finite(value):
            return Unrewarded(UNREADABLE, f"{JSON_FILE}: {name} is {value!r}; expected a finite number")
    return {name: float(value) if isinstance(value, bool) else value for name, value in rewards.items()}


def trial_rewards(
    steps: Sequence[Graded | None], strategy: Literal["mean", "final"] | str | None = None
) -> Rewards | None:
    """The rewards of a trial from those of the steps it came to, None for a step that was not graded.

    ``mean``, which is meant where nothing is said: each reward's mean over the graded steps, 0 where a step
    lacks it; no rewards where no step has any. ``final``: what the last step was given, as it is.

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


def below(rewards: Rewards | None, least: Number | Rewards | None) -> bool:
    """Whether a step's rewards miss its ``min_reward``: a number is of ``reward``, a map is of each of its names.

    A reward that is not there misses whatever is asked of it; nothing asked is never missed.

    >>> below({"reward": 0.5}, 0.5), below({"acc": 1.0}, 0.0)
    (False, True)
    """
    gates = {} if least is None else least if isinstance(least, Mapping) else {REWARD: least}
    return any((rewards or {}).get(name, -math.inf) < gate for name, gate in gates.items())
