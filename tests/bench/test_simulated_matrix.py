"""The bench of matrices tests what the program does."""

import numpy as np
import pytest

from bench.simulations.matrix import MEANS, p_values, part, passes, sampled
from calipers.stats.paired import paired
from calipers.stats.suite import mean_difference


def test_its_formulas_are_those_of_the_program():
    rng = np.random.default_rng(3)
    differences = [passes(0.9)(20, 12, rng), sampled(2, 2)(20, 30, rng), np.zeros((20, 5))]
    mean, alone = p_values(differences)
    for row in range(20):
        parts = {str(at): paired(some[row], limits=(0.0, 1.0)) for at, some in enumerate(differences)}
        assert mean[row] == pytest.approx(mean_difference(parts).p)
        assert alone[row] == pytest.approx([each.p for each in parts.values()])


def test_equal_models_are_rarely_called_different():
    text, _ = part(200, 0)
    assert text.count("\n| ") == 10 + 1 + len(MEANS)
    assert "half of B's failures lost on one" in text
