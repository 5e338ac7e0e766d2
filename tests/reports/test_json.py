import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.reports.page import encoded

TEXT = st.text(st.characters())  # with lone surrogates
NUMBER = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(TEXT, inner),
    max_leaves=5,
)


@given(st.dictionaries(TEXT, VALUE, max_size=3))
def test_it_is_laid_out_as_python_lays_it_out(data):
    assert encoded(data) == json.dumps(data, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("text", ["\ud800", "\x00\x7f\u2028", "é\U0001f680"])
def test_any_character_is_written(text):
    assert encoded({text: [text, {}, []]}) == f"{{\n {json.dumps(text, ensure_ascii=False)}: [\n  " + (
        f"{json.dumps(text, ensure_ascii=False)},\n  {{}},\n  []\n ]\n}}\n"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_json_is_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encoded({"value": value})
