import numpy as np
import pytest

from calipers.systems.lm_eval.metrics.aggregations import AGGREGATIONS
from calipers.systems.lm_eval.metrics.bootstrap import resampler

ROWS = np.random.Generator(np.random.PCG64(3)).integers(0, 30, (40, 30))


@pytest.mark.parametrize(
    ("how", "items"),
    [
        ("f1", [(n % 2, n % 3 == 0) for n in range(30)]),
        ("f1", [(0, 0)] * 30),  # one kind, and no positive among it
        ("matthews_corrcoef", [(n % 2, n % 3 % 2) for n in range(30)]),
        ("matthews_corrcoef", [("abc"[n % 3], "cab"[n % 7 % 3]) for n in range(30)]),
        ("matthews_corrcoef", [(n, n) for n in range(30)]),  # as many kinds as documents
        ("perplexity", [-0.1 * n for n in range(30)]),
        ("nanmean", [float("nan") if n % 4 else n for n in range(30)]),
    ],
)
def test_counting_documents_alike_gives_the_very_numbers_of_the_rows_themselves(how, items):
    held = AGGREGATIONS[how]
    plainly = [held.reduce(held.prepare(items)[row]) for row in ROWS]
    assert resampler(how, items)(ROWS).tolist() == [float(number) for number in plainly]
