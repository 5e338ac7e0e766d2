import contextlib
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from formats.given import refused, seen, written

from calipers.errors import InputError
from calipers.formats import lines
from calipers.formats.jsonl import WORDS
from calipers.formats.read import read

pytestmark = pytest.mark.usefixtures("kept")
GOOD = '{"task":"a","reward":1}\n'
DEPTH = 100_000
LIST = "[" * DEPTH + "]" * DEPTH
OBJECT = '{"x":' * DEPTH + "1" + "}" * DEPTH


def table(folder, *lines, **asked):
    return read([written(folder, "\n".join(lines))], **asked)[0]


def split_up(monkeypatch, processes=3):
    """Read every file by several processes, like large files."""
    monkeypatch.setattr(lines, "WORTH_DIVIDING", 1)
    monkeypatch.setattr(lines, "processes", lambda: processes)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"task":"b","rew', "not JSON (Unterminated string"),  # the last line is cut
        ('{"task":"b","reward":1', "not JSON (Expecting ',' delimiter"),
        ('{"reward":1}', "no key 'task'; name it with --columns task=KEY (keys here: reward)"),
        ('{"task":null}', "task is null; expected text or an integer"),
        ('{"task":1.5}', "task is 1.5; expected text or an integer"),
        ('{"task":true}', "task is true; expected text or an integer"),
        ('{"task":1152921504606846976,"reward":"x"}', 'reward is "x"'),  # the id is no fault
        ('{"task":"b","reward":"high"}', 'reward is "high"; expected a number or null'),
        ('{"task":"b","reward":[1]}', "reward is [1]; expected a number or null"),
        ('{"task":"b","rewards":[1]}', "rewards is [1]; expected an object of numbers"),
        ('{"task":"b","rewards":{"x":"1"}}', 'rewards.x is "1"; expected a number or null'),
        (
            '{"a\\nb":1}',
            "no key 'task'; name it with --columns task=KEY (keys here: \"a\\nb\")",
        ),  # an error is one line
        ('{"task":"b","rewards":{"a\\nb":"1"}}', 'rewards."a\\nb" is "1"'),
        ('{"task":"b","usage":{"latency_s":"1"}}', 'usage.latency_s is "1"; expected a number or null'),
        ('{"task":"b","sample":-1}', "sample is -1; expected an integer >= 0"),
        ('{"task":"b","sample":1.0}', "sample is 1.0; expected an integer >= 0"),
        ('{"task":"b","sample":null}', "sample is null; expected an integer >= 0"),
        (
            '{"task":"b","sample":9007199254740992}',
            "sample is 9007199254740992",
        ),  # from here on, floats cannot represent every integer
        ('{"task":"b","attempt":0}', "attempt is 0; expected an integer >= 1"),
        ('{"task":"b","outcome":"scord"}', 'outcome is "scord"; expected one of scored, refused, '),
        ('{"task":"b","outcome":"scored"}', "outcome is 'scored' but there is no reward"),
        ('{"task":"b","model":7}', "model is 7; expected text or null"),
        ('{"task":"b","metadata":[1]}', "metadata is [1]; expected an object"),
        ('{"task":"b","answer":{}}', "answer is {}; expected a JSON scalar or a list"),
        ('{"task":"b","reward":1e400}', "a number is out of range"),
        ('{"task":"b","reward":1' + "0" * 400 + "}", "a number is out of range"),
        ('{"task":"b","x":1' + "0" * 5000 + "}", "a number is out of range"),  # beyond what Python parses
        ('{"task":"b","reward":NaN}', "NaN is not JSON; expected a finite number or null"),
        ('{"task":"b","x":-Infinity}', "-Infinity is not JSON"),
        ('{"task":"b","metadata":{"x":NaN}}', "NaN is not JSON"),  # although the value is not read
        ('{"task":"b"}{"task":"c"}', "two values on one line"),
        ('{"task":"b"} {"task":"c"}\n\n', "two values on one line"),  # as many rows as lines
        ('{"task":"b"} xyz', "two values on one line"),
        ('{"task":\n"b"}', "not JSON (Expecting value"),
        ('{"task":"b"}\x0c', "two values on one line"),  # a form feed is no blank in JSON
        ("\x0b", "not JSON (Expecting value"),
        ('{"task":"b","a\\"b":1}', 'key "a\\"b" contains a quote, a backslash or a control character'),
        ('{"task":"b","rewards":{"\\u0007":1}}', 'key "\\u0007" contains a quote, a backslash or a control character'),
        ('{"task":"b","reward":0,"reward":1}', 'key "reward" appears twice; expected it once'),
        ('{"task":"b","reward":1,"rewards":{"reward":0}}', "reward appears twice in one row; expected it once"),
        ('{"task":"b","latency_s":1,"usage":{"latency_s":1}}', "latency_s appears twice in one row"),
        ('{"task":"a","reward":0}', "task 'a' sample 0 attempt 1 appears twice, first at "),
        ('{"task":"b","completion":"\\ud83d"}', "half of a surrogate pair stands alone"),
        ("[1]", "a rollout is a list; expected a JSON object"),
        ("3", "a rollout is a number; expected a JSON object"),
        ("null", "a rollout is null; expected a JSON object"),
        (LIST, "it is nested too deeply"),
        ('{"task":"b","metadata":{"x":' + LIST + "}}", "it is nested too deeply"),
        ('{"task":"b","extra":' + OBJECT + "}", "it is nested too deeply"),
        ("\0", "not JSON (Expecting value"),
    ],
)
def test_a_bad_line_is_named_and_explained(tmp_path, line, expected):
    assert refused(written(tmp_path, GOOD + line)).startswith(f":2: {expected}")


@pytest.mark.parametrize(
    ("line", "byte"),
    [
        ('{"task":"é"}', 10),  # read
        ('{"task":"b","completion":"é"}', 27),  # skipped
        ('{"task":"b","metadata":{"é":1}}', 26),
        ('{"task":"b","é":1}', 14),
    ],
)
def test_latin_1_is_refused_also_in_text_that_is_skipped(tmp_path, line, byte):
    assert refused(written(tmp_path, GOOD.encode() + line.encode("latin-1"))).startswith(f":2: byte {byte} of the line")
    schema_knows_the_line = (line.replace("é", "e") + "\n").encode() + line.encode("latin-1")
    assert refused(written(tmp_path, schema_knows_the_line)).startswith(f":2: byte {byte} of the line")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"task":"b","metadata":{"x":1e400}}', "a number is out of range"),  # read only because it was asked for
        ('{"task":"b","x":1' + "0" * 400 + "}", "a number is out of range"),
        ('{"task":"b","metadata":{"x":' + LIST + "}}", "it is nested too deeply"),
    ],
)
def test_a_bad_label_is_named_too(tmp_path, line, expected):
    assert refused(written(tmp_path, GOOD + line), labels=["x"]).startswith(f":2: {expected}")


@pytest.mark.parametrize("huge", ["1e400", "1" + "0" * 400])
def test_a_number_out_of_range_among_words_is_named_for_a_certificate_too(tmp_path, huge):
    path = written(tmp_path, f'{{"task":"a","x":"t"}}\n{{"task":"b","x":{huge}}}\n')
    assert refused(path, labels=[WORDS]).startswith(":2: a number is out of range")


@pytest.mark.parametrize("depth", range(900, 1000, 9))
def test_nesting_near_the_limit_is_read_or_refused(tmp_path, depth):
    path = written(tmp_path, GOOD + '{"task":"b","metadata":{"x":' + "[" * depth + "]" * depth + "}}")
    with contextlib.suppress(InputError):  # where the limit lies depends on who calls
        assert len(read([path])[0]) == 2


def test_a_line_longer_than_any_rollout_is_refused(tmp_path, shorter_lines):
    line = '{"task":"b","completion":"' + "x" * shorter_lines + '"}\n'
    assert refused(written(tmp_path, GOOD + line)).startswith(":2: a line is longer than 3 MiB")
    assert refused(written(tmp_path, line + GOOD)).startswith(":1: a line is longer than 3 MiB")
    shorter = '{"task":"b","completion":"' + "x" * (shorter_lines - 100) + '"}\n'
    assert len(read([written(tmp_path, GOOD + shorter)])[0]) == len(read([written(tmp_path, shorter + GOOD)])[0]) == 2


def test_ids_used_as_keys_are_refused(tmp_path):
    scores = {f"score of {n}": 1 for n in range(1001)}
    path = written(tmp_path, GOOD + json.dumps({"task": "b", **scores}))
    assert refused(path).startswith(":2: the file has more than 1000 columns of numbers")
    texts = ({f"run {n} {k}": "text" for k in range(100)} for n in range(41))  # some a line: each line is learnt from
    path = written(tmp_path, GOOD + "".join(json.dumps({"task": n, **some}) + "\n" for n, some in enumerate(texts)))
    assert refused(path).startswith(":42: the file has more than 4000 different keys; expected ids as values")


def test_of_a_key_too_many_and_a_bad_line_the_first_is_named(tmp_path):
    """Lines are learnt in groups; the error of an earlier line must not be lost."""
    lines = [json.dumps({"task": n, "reward": 1, f"k{n}": n}) for n in range(1100)]
    for bad in (2, 700, 999):
        broken = [*lines[:bad], '{"task":"x","reward":"high"}', *lines[bad:]]
        assert refused(written(tmp_path, "\n".join(broken))).startswith(f':{bad + 1}: reward is "high"')
    broken = [*lines[:1001], '{"task":"x","reward":"high"}']
    assert refused(written(tmp_path, "\n".join(broken))).startswith(":1001: the file has more than 1000 columns")


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff{"task":"a","reward":1}\n{"task":"b","reward":0}\n',  # a byte order mark
        '{"task":"a","reward":1}\r\n{"task":"b","reward":0}\r\n',
        '\n\n{"task":"a","reward":1}\n \t\r\n{"task":"b","reward":0}\n\n',
        '  {"task":"a","reward":1}  \n{ "task" : "b" , "reward" : 0 }',
        '{"task":"a","reward":true}\n{"task":"b","reward":false,"attempt":1}',
        '{"task":"a","reward":0,"attempt":1}\n{"task":"b","reward":0}\n{"task":"a","reward":1,"attempt":2}',
    ],
)
def test_the_same_rollouts_however_they_are_laid_out(tmp_path, text):
    found, _ = read([written(tmp_path, text)])
    assert [(row["task"], row["reward reward"]) for row in seen(found)] == [("a", 1), ("b", 0)]


@pytest.mark.parametrize("text", ["a\u2028b", "a\u2029b", "a\u0085b", "a\x7fb", "日本", "\U0001f600", 'a"\\\nb'])
def test_what_looks_like_a_line_end_is_none_inside_text(tmp_path, text):
    lines = [json.dumps({"task": text, "sample": sample}, ensure_ascii=False) for sample in (0, 1)]
    assert table(tmp_path, *lines).tasks == [text]
    assert refused(written(tmp_path, "\n".join([*lines, "{"]))).startswith(":3: not JSON")


def test_integers_are_tasks_and_equal_to_their_text(tmp_path):
    found = table(tmp_path, '{"task":7,"sample":0}', '{"task":"7","sample":1}', f'{{"task":{2**70}}}')
    assert list(found.tasks) == ["7", str(2**70)]
    text = refused(written(tmp_path, '{"task":7}\n{"task":"7"}'))
    assert text.startswith(":2: task '7' sample 0 attempt 1 appears twice, first at ")


def test_a_key_may_be_called_anything_plain(tmp_path):
    keys = ["", " ", "f0", "__init__", "é日", "a.b", "class", "'", "x" * 1000]
    line = json.dumps({"task": "a", "rewards": dict.fromkeys(keys, 2), **dict.fromkeys(keys, 1)})
    found = table(tmp_path, line)
    assert sorted(found.columns) == sorted(found.rewards) == sorted(keys)


def test_metadata_may_have_any_keys(tmp_path):
    line = json.dumps({"task": "a", "metadata": {'"': 1, "\\": {"\n": 2}, "k": 3}})
    assert seen(table(tmp_path, line, labels=["k"]))[0]["label metadata.k"] == "3"


def test_labels_that_are_equal_in_python_are_told_apart_as_json_tells_them(tmp_path):
    values = ["1", "1.0", "true", '"1"', "null", "[1]"]
    lines = [f'{{"task":{n},"metadata":{{"x":{value}}}}}' for n, value in enumerate(values)]
    found = table(tmp_path, *lines, '{"task":6}', labels=["x"]).labels["metadata.x"]
    assert [found.values[code] if code >= 0 else "absent" for code in found.code] == [
        1,
        1.0,
        True,
        "1",
        None,
        [1],
        "absent",
    ]


def test_a_column_holds_what_is_a_number_and_a_gap_for_all_else(tmp_path):
    values = ["1", "2.5", "true", "null", '"text"', '{"a":1}', "[1]", "false"]
    found = table(tmp_path, *(f'{{"task":{n},"x":{value}}}' for n, value in enumerate(values)), '{"task":8}').columns[
        "x"
    ]
    assert found.given.tolist() == [True, True, True, False, False, False, False, True, False]
    assert found.kept().tolist() == [1, 2.5, 1, 0]


def test_a_path_leads_into_metadata_and_a_key_stands_beside_it(tmp_path):
    line = '{"task":"a","difficulty":3,"metadata":{"difficulty":"easy","site":{"city":"Oslo"}}}'
    assert seen(table(tmp_path, line, labels=["difficulty", "site.city", "site.none"])) == [
        {
            **{"task": "a", "sample": 0, "outcome": "missing", "difficulty": 3.0},
            **{"label difficulty": "3", "label metadata.difficulty": "easy", "label metadata.site.city": "Oslo"},
        }
    ]


LATE = (
    '{"task":"late","reward":1,"f1":0.5,"outcome":"refused","rewards":{"style":2},"usage":{"cost_usd":3},"model":"m"}'
)


@pytest.mark.parametrize("processes", [1, 3])
def test_nothing_is_lost_that_first_appears_in_the_last_of_100_000_rows(tmp_path, monkeypatch, processes):
    split_up(monkeypatch, processes)
    lines = [f'{{"task":{n // 4},"sample":{n % 4},"reward":{n % 2}}}' for n in range(99_999)]
    found = table(tmp_path, *lines, LATE)
    assert len(found) == 100_000
    numbers = {"reward reward": 1.0, "f1": 0.5, "reward style": 2.0, "cost_usd": 3.0}
    assert (
        seen(found.where(found.task == len(found.tasks) - 1))[0]
        == {"task": "late", "sample": 0, "outcome": "refused", "model": "m"} | numbers
    )
    assert int(found.rewards["reward"].given.sum()) == 100_000


def test_a_file_worth_dividing_is_divided_and_read_whole(tmp_path):
    row = '{"task":%d,"sample":%d,"reward":1,"completion":"' + "x" * 700 + '"}\n'
    rows = lines.WORTH_DIVIDING // len(row) + 1000
    text = "".join(row % (n // 8, n % 8) for n in range(rows))
    told = []
    path = written(tmp_path, text + LATE)
    found, _ = read([path], progress=lambda *so_far: told.append(so_far))
    assert len(found) == rows + 1
    assert seen(found.where(found.task == len(found.tasks) - 1)) == [
        {"task": "late", "sample": 0, "outcome": "refused", "model": "m"}
        | {"reward reward": 1.0, "f1": 0.5, "reward style": 2.0, "cost_usd": 3.0}
    ]
    assert told[-1] == (len(text) + len(LATE), len(text) + len(LATE))


def layout(bad: int, rows: int = 40) -> tuple[str, list[int]]:
    """A file with blank lines here and there, and the line of each row."""
    lines, at = [], []
    for n in range(rows):
        lines += [""] * (n % 3 == 0)
        at.append(len(lines) + 1)
        lines.append('{"task":"bad","sample":-1}' if n == bad else json.dumps({"task": n, "pad": "x" * (n % 7) * 10}))
    return "\n".join(lines), at


@pytest.mark.parametrize("bad", [0, 12, 13, 14, 20, 26, 27, 39])
def test_lines_are_counted_across_the_borders_of_processes(tmp_path, monkeypatch, bad):
    split_up(monkeypatch)
    text, at = layout(bad)
    path = written(tmp_path, "\ufeff" + text)
    assert refused(path).startswith(f":{at[bad]}: sample is -1")


def test_the_first_of_two_bad_lines_is_reported_whichever_process_found_it(tmp_path, monkeypatch):
    split_up(monkeypatch)
    text, at = layout(38)
    lines = text.split("\n")
    lines[at[5] - 1] = "{"
    assert refused(written(tmp_path, "\n".join(lines))).startswith(f":{at[5]}: not JSON")


def test_both_places_of_a_rollout_that_stands_twice_are_right_across_processes(tmp_path, monkeypatch):
    split_up(monkeypatch)
    text, at = layout(-1)
    lines = text.split("\n")
    lines[at[39] - 1] = lines[at[1] - 1]
    path = written(tmp_path, "\n".join(lines))
    assert refused(path).startswith(f":{at[39]}: task '1' sample 0 attempt 1 appears twice, first at {path}:{at[1]};")


def test_processes_do_not_change_what_is_read(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lines = [
        json.dumps(
            {"task": int(n), "reward": float(rng.random()), "metadata": {"k": str(n % 3)}, "pad": "x" * int(n % 50)}
        )
        for n in rng.permutation(500)
    ]
    alone = seen(table(tmp_path, *lines, labels=["k"]))
    split_up(monkeypatch, 5)
    assert seen(table(tmp_path, *lines, labels=["k"])) == alone


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_processes_do_not_change_the_hash_of_what_is_read(tmp_path, monkeypatch, mark):
    split_up(monkeypatch, 3)
    path = written(tmp_path, mark + layout(-1)[0])
    assert read([path])[1][0].sha256 == hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.mark.parametrize("role", ["prompt", "completion"])
@pytest.mark.parametrize("value", ['"a"', '"' + "x" * 99 + '"', "[]", '[{"role":"user"}]', '{"content":"x"}', "null"])
def test_texts_and_messages_are_passed_over(tmp_path, role, value):
    found = table(tmp_path, f'{{"task":"a","{role}":"b"}}', f'{{"task":"b","reward":1,"{role}":{value}}}')
    assert (found.tasks, found.columns) == (["a", "b"], {})


@pytest.mark.parametrize("role", ["prompt", "completion"])
@pytest.mark.parametrize("value", ["5", "-1.5e3", "true", "false"])
def test_a_number_is_no_text(tmp_path, role, value):
    long = '{{"task":"a","{}":"{}"}}\n'.format(role, "x" * 99)
    path = written(tmp_path, long * 2 + f'{{"task":"b","{role}":{value}}}\n')
    assert refused(path) == f":3: {role} is {value}; expected text, a list of messages, or null".replace(
        "-1.5e3", "-1500.0"
    )


def test_a_number_and_its_text_are_one_task(tmp_path):
    found = table(tmp_path, '{"task":7,"reward":1}', '{"task":"7","sample":1,"reward":0}', '{"task":"b","reward":0}')
    assert found.tasks == ["7", "b"]
    assert found.task.tolist() == [0, 0, 1]


def test_more_processes_than_lines(tmp_path, monkeypatch):
    split_up(monkeypatch, 4)
    assert len(table(tmp_path, '{"task":"a"}', '{"task":"b"}')) == 2
