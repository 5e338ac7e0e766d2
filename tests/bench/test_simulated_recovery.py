"""The bench of recovery simulates the gate of the program."""

import numpy as np
import pytest

from bench.simulations.cells import Tally
from bench.simulations.recovery import CLOSED, NIGHTS, OPEN, NightlyGate, history, quantile
from calipers.analyses.gate.history import new_history
from calipers.analyses.watch.sums import StepSums


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_its_nights_are_those_of_a_history(samples, seed):
    """A drop, its repair, and a second drop: the same states, at the same evidence."""
    rng = np.random.default_rng([31, seed])
    chances = rng.beta(0.8, 0.8, 80)
    gate, program = NightlyGate(samples), new_history(None, None, None)
    tasks, planned = np.arange(80, dtype=np.uint64), np.full(80, float(samples))
    states = []
    for number in range(40):
        low = np.clip(chances - 0.3, 0, 1) if 6 <= number < 14 or number >= 30 else chances
        passes = rng.binomial(samples, low).astype(float)
        states.append(gate.night(passes))
        rewards = {"reward": np.stack([planned, passes, passes, passes])}
        night = program.take(StepSums(1, "", None, None, str(number), "reward", tasks, planned, rewards))
        assert states[-1] == night.alarm.state
        if gate.recovery is not None:
            assert gate.recovery.value == pytest.approx(night.alarm.recovery_evidence)
    assert states.count(CLOSED) == 1
    assert states[-1] == OPEN


def test_a_drop_that_stays_is_not_closed_and_a_repaired_one_is():
    drop = {"tasks": 150, "samples": 1, "drop": 0.2}
    stays = history(np.random.default_rng(5), 10, repaired=None, **drop)
    assert (stays["alarms"], stays["closed"]) == (10, 0)
    assert 0.4 < stays["green"] / stays["later"] < 0.8  # as it was before
    repaired = history(np.random.default_rng(6), 10, repaired=1.0, **drop)
    assert (repaired["closed"], repaired["early"]) == (10, 0)
    tally = Tally()
    tally.add(10, repaired)
    assert int(quantile(tally, 0.5)) <= 3
    assert NIGHTS == 60
