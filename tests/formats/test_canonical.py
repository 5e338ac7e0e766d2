import json
import math
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.formats.canonical import NotCanonical, canonical, canonical_raw, number, number_texts


@pytest.mark.parametrize(
    ("bits", "text"),
    [  # the table of RFC 8785, appendix B
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7FEFFFFFFFFFFFFF, "1.7976931348623157e+308"),
        (0xFFEFFFFFFFFFFFFF, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xC340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44B52D02C7E14AF5, "9.999999999999997e+22"),
        (0x44B52D02C7E14AF6, "1e+23"),
        (0x44B52D02C7E14AF7, "1.0000000000000001e+23"),
        (0x444B1AE4D6E2EF4E, "999999999999999700000"),
        (0x444B1AE4D6E2EF4F, "999999999999999900000"),
        (0x444B1AE4D6E2EF50, "1e+21"),
        (0x3EB0C6F7A0B5ED8C, "9.999999999999997e-7"),
        (0x3EB0C6F7A0B5ED8D, "0.000001"),
        (0x41B3DE4355555553, "333333333.3333332"),
        (0x41B3DE4355555557, "333333333.33333343"),
        (0xBECBF647612F3696, "-0.0000033333333333333333"),
        (0x43143FF3C1CB0959, "1424953923781206.2"),
    ],
)
def test_numbers_are_those_of_ecmascript(bits, text):
    assert number(struct.unpack(">d", struct.pack(">Q", bits))[0]) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back(value):
    assert float(number(value)) == value


@given(st.lists(st.floats() | st.integers(-(2**60), 2**60).map(float) | st.decimals(-9, 9, places=3).map(float)))
def test_many_numbers_are_written_as_each_is(values):
    assert number_texts(np.array(values, dtype=np.float64)) == [number(value).encode() for value in values]


def test_what_is_not_finite_is_a_text():
    assert [number(value) for value in (math.nan, math.inf, -math.inf)] == ['"NaN"', '"Infinity"', '"-Infinity"']


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{ "a" : 1.0 }'),
        ("[1e0]", "[1]"),
        ("[-0]", "[0]"),
        ("[-0.0]", "[0]"),
        ("[9007199254740993]", "[9007199254740992]"),  # both are the same double
        ('"\\u00e9"', '"é"'),
        ('"a\\/b"', '"a/b"'),
        ('{"b":1,"a":2}', '{"a":2,"b":1}'),
    ],
)
def test_equal_by_the_rule(one, other):
    assert canonical_raw(one.encode()) == canonical_raw(other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"e\\u0301"', '"\\u00e9"'),  # texts are not normalised
        ("[1]", '["1"]'),
        ("[1]", "[true]"),
        ('{"a":null}', "{}"),
        ("[9007199254740994]", "[9007199254740992]"),
    ],
)
def test_different_by_the_rule(one, other):
    assert canonical_raw(one.encode()) != canonical_raw(other.encode())


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', '[{"a":{"b":1,"b":1}}]', '{"a":"x","\\u0061":"y"}', '{"a:":"","a:":""}']
)
def test_a_key_that_appears_twice_is_refused(text):
    with pytest.raises(NotCanonical, match="twice"):
        canonical_raw(text.encode())


@pytest.mark.parametrize("text", ['"\\ud800"', "[1e400]", "[" * 5000 + "]" * 5000])
def test_what_has_no_canonical_form_is_refused(text):
    with pytest.raises(NotCanonical):
        canonical_raw(text.encode())


def test_keys_are_sorted_by_utf16():
    assert canonical({"\ufb33": 1, "\U0001f600": 2, "a": 3}).decode() == '{"a":3,"\U0001f600":2,"\ufb33":1}'


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_every_writing_of_a_value_has_one_form(value):
    forms = {
        canonical(value),
        canonical_raw(json.dumps(value).encode()),
        canonical_raw(json.dumps(value, indent=2, ensure_ascii=False).encode()),
        canonical_raw(msgspec.json.encode(value)),
    }
    assert len(forms) == 1
    form = forms.pop()
    assert canonical_raw(form) == form
