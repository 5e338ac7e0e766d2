import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks.requests import selected


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(InputError, match="expected a number of documents, or a fraction below 1"):
        selected(5, limit)


def test_limit_and_samples_exclude_each_other():
    with pytest.raises(InputError, match="expected one of the two"):
        selected(5, 2, [1])
    with pytest.raises(InputError, match="no document -1; expected numbers from 0 to 4"):
        selected(5, samples=[-1])
    assert selected(3, samples=[]) == [0, 1, 2]
    assert selected(3, 100) == [0, 1, 2]
