"""NeMo Gym: five statistics of every numeric key, pooled over an agent's rollouts."""

from __future__ import annotations

from calipers.request import Dialect
from calipers.systems.nemo_gym.words import DEFAULT, WORDS

NEMO_GYM = Dialect("nemo_gym", metrics=WORDS, default=DEFAULT)
