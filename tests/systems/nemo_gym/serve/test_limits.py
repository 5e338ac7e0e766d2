import pytest

from calipers.systems.nemo_gym.serve import BodyLimits, ServerRefusal, decode, deeper

LIMITS = BodyLimits(depth=4)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"a": [1, {"b": []}]}', {"a": [1, {"b": []}]}),
        (b'[NaN, Infinity, "x"]', [pytest.approx(float("nan"), nan_ok=True), float("inf"), "x"]),
        (b"18446744073709551616", 2**64),  # the decoder does not limit the size of a number
        (b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
    ],
)
def test_what_is_json(body, found):
    assert decode(body, LIMITS) == found


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"", "bad_json", "body: it is not JSON (Expecting value at line 1, column 1); expected a JSON object"),
        (b'{"a": 1} 2', "bad_json", "Extra data at line 1, column 10"),
        (b'{"a": "\xff"}', "bad_json", "byte 8 is not UTF-8"),
        (b'{"a": NaN, "b": "\\ud800"}', "bad_json", "half of a surrogate pair appears alone"),
        (b'{"a": "\\uD800"}', "bad_json", "half of a surrogate pair appears alone"),
        (b"[NaN, " + b"1" * 5000 + b"]", "bad_json", "a number is out of range"),
        (b"[" * 5 + b"]" * 5, "too_deep", "expected a depth of at most 4"),
        (b"[NaN," * 5 + b"1" + b"]" * 5, "too_deep", "expected a depth of at most 4"),
        (b"[" * 200_000 + b"]" * 200_000, "too_deep", "nested too deeply"),  # beyond the recursion limit of any decoder
    ],
)
def test_what_is_not(body, code, said):
    with pytest.raises(ServerRefusal) as caught:
        decode(body, LIMITS)
    assert (caught.value.status, caught.value.code) == (400, code)
    assert said in caught.value.message


@pytest.mark.parametrize(("value", "depth"), [(1, 0), ([], 1), ({"a": 1}, 1), ([[], {"a": [1]}], 3)])
def test_depth(value, depth):
    assert not deeper([value], depth)
    assert depth == 0 or deeper([value], depth - 1)


def test_a_closed_door_says_what_would_be_right():
    assert ServerRefusal(413, "x", "y").body() == b'{"error":{"code":"x","message":"y"}}'
