import pytest

from calipers.compat import activate
from calipers.systems.evsys.lent.basic import PassRate


def test_a_metric_is_whatever_has_both_attributes():
    activate()
    from evsys_sdk.protocols import Metric

    class Named:
        name = "named"

    class Odd(Named):
        compute = 0  # the attribute exists; nothing else is looked at

    assert isinstance(PassRate(), Metric)
    assert isinstance(Odd(), Metric)
    assert not isinstance(Named(), Metric)
    with pytest.raises(TypeError):
        issubclass(PassRate, Metric)
