import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from readers.given import refused, written

from calipers.readers.jsonl import JsonLines, LineError
from calipers.readers.twice import twice
from examples import examples

TEXT = 'he said "reward": 1, "x" : 2 ! : \\'
FIRST = {"task": "a", "reward": 1, "model": "m", "completion": TEXT, "usage": {"input_tokens": 1}, "note": [{"x": 1}]}
GOOD = json.dumps(FIRST) + "\n"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('{"task":"b","reward":0,"reward":1}', "reward"),
        ('{"task":"b","reward":0,"reward":0}', "reward"),
        ('{"task":"b","reward":null,"reward":1}', "reward"),
        ('{"task":"b","task":"c","reward":1}', "task"),
        ('{"task":"b","reward":0,"reward" : 1}', "reward"),
        ('{"task":"b","reward":0,"reward"\t \r:1}', "reward"),
        ('{"task":"b","reward":0,"r\\u0065ward":1}', "reward"),
        ('{"task":"b","completion":"x","completion":"y"}', "completion"),
        ('{"task":"b","note":1,"completion":"\\"q\\":","note":2}', "note"),
        ('{"task":"b","metadata":{"a":1},"metadata":{}}', "metadata"),
        ('{"task":"b","usage":{"input_tokens":1,"input_tokens":2}}', "input_tokens"),
        ('{"task":"b","rewards":{"f1":1,"f1":0}}', "f1"),
        ('{"task":"b","usage":{},"usage":{"input_tokens":2}}', "usage"),
        ('{"task":"b","model":"x","model":null}', "model"),
        ('{"task":"b","answer":"1","answer":["1"]}', "answer"),
        ('{"task":"b","error":null,"error":{"type":"X"}}', "error"),
        ('{"task":"b","outcome":"scored","reward":1,"outcome":"scored"}', "outcome"),
        ('{"task":"b","sample":0,"sample":0}', "sample"),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path, line, key):
    """Each of them balanced by rows that lack keys, so that no total gives it away."""
    for others in ("", GOOD, GOOD + '{"task":"c"}\n'):
        number = others.count("\n") + 1
        expected = f':{number}: key "{key}" stands twice; expected it once'
        assert refused(written(tmp_path, others + line + '\n{"task":"d"}\n')) == expected


@pytest.mark.parametrize(
    "line",
    [
        '{"task":"b","metadata":{"reward":1,"task":2},"reward":0}',
        '{"task" : "b" , "reward" : 0}',
        '{"task":"say \\"reward\\": 1","reward":null,"answer":"\\"a\\": !:"}',
        '{"task":"b","prompt":[{"role":"user","content":"x"},{"role":"user","content":"y"}]}',
        '{"task":"b","a :b":1,"a!:b":2}',
        '{"task":"b","x":{"a":1}}\n{"task":"c","x":2}',
        '{"task":"b","metadata":{"n":1' + "0" * 5000 + '},"answer":"\\"a\\":"}',
    ],
)
def test_what_only_looks_like_a_key_twice_is_read(tmp_path, line):
    reader = JsonLines("x", {}, ())
    reader.read((GOOD + line + "\n").encode())
    assert len(reader.finish().tasks) == line.count("\n") + 2


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('":\\ !,{}a', max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text('a":', max_size=2), inner, max_size=2),
    max_leaves=4,
)
KEYS = ("completion", "metadata", "note", "other", "label", "n")


@examples(100)
@given(st.lists(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=6), min_size=1, max_size=6), st.booleans())
def test_a_line_is_refused_exactly_where_a_key_stands_twice(rows, spaced):
    lines = []
    for number, row in enumerate(rows):
        pairs = [("task", str(number)), *row]
        fields = [f"{json.dumps(key)}{' : ' if spaced else ':'}{json.dumps(value)}" for key, value in pairs]
        lines.append(("{" + ",".join(fields) + "}").encode())
    doubled = next((at for at, row in enumerate(rows, 1) if len(dict(row)) < len(row)), None)
    said = ""
    try:
        JsonLines("x", {}, ()).read(b"\n".join(lines) + b"\n")
    except LineError as error:
        said = error.args[1]
    assert ("stands twice" in said) <= (doubled is not None)
    assert bool(said) >= (doubled is not None)  # there may be another fault before it, such as a number for a text
    assert [twice(line) is not None for line in lines] == [len(dict(row)) < len(row) for row in rows]
