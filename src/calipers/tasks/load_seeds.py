"""The seeds for loading a task, the same four as in lm-evaluation-harness.

A task's own code may draw from Python's and numpy's global generators: GPQA shuffles its choices in
``process_docs``. lm-evaluation-harness seeds them before it loads, so a task is loaded here under the same seeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

Seeds = tuple[int, int, int, int]
"""The seeds of Python's random, numpy, torch, and the few-shot examples."""

LOAD_SEEDS: Final[Seeds] = (0, 1234, 1234, 1234)
MOST: Final = 2**32  # numpy takes no seed from here on


@contextmanager
def seeded(seeds: Seeds) -> Iterator[None]:
    """Seed the global generators, and put them back as they were afterwards: they belong to the caller."""
    before = _states()
    reseed(seeds)
    try:
        yield
    finally:
        _restore(before)


def reseed(seeds: Seeds) -> None:
    """Seed the global generators. torch is seeded only where something has imported it."""
    import numpy as np

    random.seed(seeds[0])
    np.random.seed(seeds[1])  # the global one: it is what a task's code draws from
    if (torch := _torch()) is not None:
        torch.manual_seed(seeds[2])


def drawn(seeds: Seeds) -> bool:
    """Whether anything has been drawn from the global generators since they were seeded."""
    now = _fingerprint(_states())
    with seeded(seeds):
        return now != _fingerprint(_states())


def _states() -> tuple[Any, Any, Any]:
    import numpy as np

    torch = _torch()
    states = random.getstate(), np.random.get_state()
    return *states, None if torch is None else torch.get_rng_state()


def _restore(states: tuple[Any, Any, Any]) -> None:
    import numpy as np

    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is not None and (torch := _torch()) is not None:
        torch.set_rng_state(states[2])


def _fingerprint(states: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """States that compare with ``==``: arrays as their bytes."""
    name, keys, *rest = states[1]
    return states[0], name, keys.tobytes(), *rest, None if states[2] is None else bytes(states[2].tolist())


def state_of(value: Any) -> Any:
    """The state of a generator of Python's or numpy's; None for whatever else."""
    if isinstance(value, random.Random):
        return None if isinstance(value, random.SystemRandom) else value.getstate()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(value, numpy.Generator):
        return value.bit_generator.state
    return value.get_state() if numpy is not None and isinstance(value, numpy.RandomState) else None


def set_state(generator: Any, state: Any) -> None:
    """Put a generator into a state that `state_of` told."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def _torch() -> Any:
    """The library, where something has imported it whole; it is never imported for its seed alone."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "manual_seed") else None
