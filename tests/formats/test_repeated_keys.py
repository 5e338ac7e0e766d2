import json
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from formats.given import refused, written
from hypothesis import given
from hypothesis import strategies as st
from systems.harbor.made import job, result
from systems.inspect.made import archive, header, sample, whole

from calipers.errors import InputError
from calipers.formats.jsonl import JsonLines
from calipers.formats.lines import LineError
from calipers.formats.read import read
from calipers.formats.repeated_keys import Ends, letters, once_by_raws, refuse_repeated_key, repeated_key
from calipers.systems.nemo_gym.read import GymLines
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
    """Each repeated key is balanced by rows that lack keys, so that totals do not reveal it."""
    for others in ("", GOOD, GOOD + '{"task":"c"}\n'):
        number = others.count("\n") + 1
        expected = f':{number}: key "{key}" appears twice; expected it once'
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
    assert ("appears twice" in said) <= (doubled is not None)
    assert bool(said) >= (doubled is not None)  # there may be another fault before it, such as a number for a text
    assert [repeated_key(line) is not None for line in lines] == [len(dict(row)) < len(row) for row in rows]


class Pairs(list):
    """An object as its pairs, in which a key may be repeated."""


def repeats(value, *, deep):
    """Whether a key is repeated in an object, or with ``deep`` in any object within it."""
    own = isinstance(value, Pairs) and len({key for key, _ in value}) < len(value)
    inner = [one[1] for one in value] if isinstance(value, Pairs) else value if isinstance(value, list) else []
    return own or (deep and any(repeats(one, deep=True) for one in inner))


PAIRS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('":\\\\ !,{}a', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.lists(st.tuples(st.sampled_from("ab:"), inner), max_size=3).map(Pairs)
    ),
    max_leaves=5,
)


def text_of(value, colon=":"):
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(key)}{colon}{text_of(inner, colon)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(text_of(one, colon) for one in value) + "]"
    return json.dumps(value)


@examples(200)
@given(st.lists(st.tuples(st.sampled_from(["a", "in", "x"]), PAIRS), max_size=4), st.sampled_from([":", " : "]))
def test_the_checkers_agree_with_pythons_decoder(pairs, colon):
    text = text_of(Pairs(pairs), colon)
    found = json.loads(text, object_pairs_hook=Pairs)
    top = repeats(found, deep=False)
    inside = top or any(repeats(value, deep=True) for key, value in found if key == "in")
    assert (repeated_key(text) is not None) == top
    assert (repeated_key(text, ["in"]) is not None) == inside
    assert not (once_by_raws(text.encode()) and top)
    with pytest.raises(InputError, match="appears twice; expected it once") if inside else nullcontext():
        refuse_repeated_key(text.encode(), "x", ["in"])


def test_a_colon_written_by_its_number_does_not_hide_a_key_that_appears_twice():
    with pytest.raises(InputError, match='key "a" appears twice'):
        refuse_repeated_key(b'{"in": {"a": 1, "a": 2, "b": "\\u003a"}}', "x", ["in"])


GYM = {
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
    "id": "a",
    "reward": 1.0,
    "response": {"id": "r", "output": [{"reward": 1, "text": TEXT}], "usage": {"input_tokens": 1, "details": {"n": 1}}},
    "agent_ref": {"name": "me"},
}


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ('{"reward":1,"call":{"arguments":"{\\"reward\\": 1, \\"x\\": 2}"},"id":"a"}', True),
        ('{"id":"a\\n","reward":1}', True),
        ('{"text":"\\n","id":"a","reward":1}', True),
        ('{"id":"x : y","reward":1}', True),
        ('{"id":"a","reward" :1}', False),
        ('{"id":"a","reward":1,"in":{"reward":2}}', False),
        ('{"i\\u0064":"a","reward":1}', False),
        ('{"id":"a","reward":1,"rewa\\u0072d":1}', False),
        ('{"id":"a","reward":1,"\\u0072eward":1}', False),
    ],
)
def test_keys_are_counted_by_their_last_letters_where_that_proves_it(text, once):
    given = {letters("reward"): 1, letters("id"): 1}
    assert Ends().once(np.frombuffer(text.encode(), dtype=np.uint8), given) is once


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ('{"input_tokens":1,"details":{"cached_tokens":2}}', True),
        ('{"input_tokens":1,"details":{"output_tokens":2}}', False),
        ('{"input_tokens":1,"inpu\\u0074_tokens":2}', False),
        ('{"input_tokens":1,"inp\\u0075t_tokens":2}', False),
        ('{"text":"\\\\","input_tokens":1}', True),
    ],
)
def test_long_keys_are_told_from_nested_ones_that_end_alike(text, once):
    given = {letters("input_tokens"): 1}
    assert Ends().once(np.frombuffer(text.encode(), dtype=np.uint8), given) is once


SPELT = {"plain": "reward", "first": "\\u0072eward", "last": "rewar\\u0064", "other": "note", "short": "n"}


@examples(150)
@given(
    st.lists(st.lists(st.sampled_from([*SPELT, "usage", "id"]), max_size=3), min_size=1, max_size=4),
    st.sampled_from([":", " :", ": "]),
    st.booleans(),
)
def test_a_rollout_of_nemo_gym_is_refused_exactly_where_a_key_stands_twice(rows, colon, plain):
    """With nested keys of the same names, and without."""
    lines = []
    for number, more in enumerate(rows):
        row = {**GYM, "_ng_rollout_index": number}
        if plain:
            row["response"] = {"usage": {"input_tokens": 1}}
        fields = [(json.dumps(key), json.dumps(value)) for key, value in row.items()]
        fields += [(f'"{SPELT[word]}"', "1") for word in more if word in SPELT]
        fields += [('"id"', '"b"')] if "id" in more else []
        text = "{" + ",".join(f"{key}{colon}{value}" for key, value in fields) + "}"
        if "usage" in more:
            text = text.replace('"input_tokens": 1', '"input_tokens": 1, "input_tokens": 2')
        lines.append(text)

    def wrong(text):
        row = json.loads(text, object_pairs_hook=Pairs)
        return repeats(row, deep=False) or repeats(dict(dict(row)["response"])["usage"], deep=False)

    wrongs = [number for number, text in enumerate(lines, 1) if wrong(text)]
    said = None
    try:
        GymLines("x", {}, (), None).read("".join(f"{line}\n" for line in lines).encode())
    except LineError as error:
        said = error.args[:2]
    assert said is None if not wrongs else said[0] in wrongs and said[1].endswith("appears twice")


def refusal(path):
    with pytest.raises(InputError) as caught:
        read([str(path)])
    return str(caught.value).removeprefix(str(path))


def test_a_rollout_of_nemo_gym_with_a_key_twice_is_refused_with_its_line(tmp_path):
    good = json.dumps(GYM)
    bad = good[:-1] + ', "reward": 0.0}'
    said = ':2: key "reward" appears twice; expected it once'
    assert refusal(written(tmp_path, f"{good}\n{bad}\n")) == said
    strange = bad.replace('"id": "a"', '"x": NaN')
    assert refusal(written(tmp_path, f"{good}\n{strange}\n")) == said


def test_a_sample_of_lm_eval_with_a_key_twice_is_refused_with_its_line(tmp_path):
    row = {"doc_id": 0, "doc": {"q": 1}, "target": "1", "resps": [["1"]], "filtered_resps": ["1"], "acc": 1.0}
    good = json.dumps(row)
    for bad in (good[:-1] + ', "acc": 0.0}', good[:-1] + ', "acc": NaN}'):
        path = tmp_path / "samples_t.jsonl"
        path.write_text(f"{good}\n{bad}\n")
        assert refusal(path) == ':2: key "acc" appears twice; expected it once'


def test_results_of_lm_eval_with_a_key_twice_are_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text('{"results": {"t": {"acc,none": 1, "acc,none": 0}}, "configs": {"t": {"x": 1, "x": 1}}}')
    assert refusal(path) == ': key "acc,none" appears twice; expected it once'


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("good", "bad", "key"),
    [
        ('"epoch": 1', '"epoch": 1, "epoch": 2', "epoch"),
        ('{"value": 1}', '{"value": 0, "value": 1}', "value"),
        ('{"match": {"value": 1}}', '{"match": {"value": 0}, "match": {"value": 1}}', "match"),
        ('"epoch": 1', '"epoch": 1, "metadata": {"x": NaN}, "epoch": 2', "epoch"),
    ],
)
def test_a_log_of_inspect_with_a_key_twice_is_refused(tmp_path, packed, good, bad, key):
    one = sample("a", 1)
    text = json.dumps(one).replace(good, bad)
    if packed:
        path = archive(tmp_path, header(["a"]))
        with zipfile.ZipFile(path, "a") as made:
            made.writestr("samples/a_epoch_1.json", text)
    else:
        path = whole(tmp_path, header(["a"]), one)
        Path(path).write_text(Path(path).read_text().replace(good, bad).replace(', "epochs": 2', ""))
    place = ": samples/a_epoch_1.json" if packed else ""
    assert refusal(path) == f'{place}: key "{key}" appears twice; expected it once'


def test_a_log_of_inspect_may_say_in_its_metadata_what_it_likes(tmp_path):
    path = whole(tmp_path, header(["a"]), sample("a", 1, metadata={"x": 1}))
    Path(path).write_text(Path(path).read_text().replace('{"x": 1}', '{"x": 1, "x": 2}'))
    assert len(read([path])[0]) == 1


def test_a_trial_of_harbor_with_a_key_twice_is_refused(tmp_path):
    path = job(tmp_path, result("a__1", {"reward": 1.0}))
    file = next(Path(path).glob("*/result.json"))
    text = json.dumps(json.loads(file.read_text())).replace('"reward": 1.0', '"reward": 0.0, "reward": 1.0')
    file.write_text(text)
    assert refusal(path).endswith(f'{file.relative_to(path)}: key "reward" appears twice; expected it once')
