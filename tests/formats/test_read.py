import gc
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import polars as pl
import pytest
import zstandard
from formats.given import refused, seen, written
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError, UnknownName
from calipers.formats.read import Input, begin, read
from calipers.names import FORMATS


def parquet(frame) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(frame).write_parquet(file)
    return file.getvalue()


EXAMPLES = {
    "native": b'{"task":"a","reward":1}\n',
    "jsonl": b'{"id":"a","score":1}\n',
    "evsys_predictions": b'{"task_id":"a","reward":1}\n',
    "json_array": b'[{"task":"a","reward":1}]',
    "evsys_rewards": b"[[1]]",
    "csv": b"task,reward\na,1\n",
    "parquet": parquet({"task": ["a"], "reward": [1]}),
    "nemo_gym": b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1}\n',
    "lm_eval_samples": b'{"doc_id":0,"doc":{},"resps":[["x"]],"filtered_resps":["x"],"reward":1.0}\n',
}


def test_every_format_has_an_example():
    # tested elsewhere: a results file stands for others, a run and a job are directories, a log names its reward, a
    # partial is made from other files; the files of the systems below were made by the systems themselves
    others = ("lm_eval_results", "run", "harbor", "inspect", "partial")
    systems = ("verl", "trl", "verifiers", "verifiers_v0", "skyrl", "nemo_rl", "open_instruct", "tinker_eval")
    systems += ("tinker_rl", "promptfoo", "openai_evals", "every_eval_ever")
    assert (*EXAMPLES, *others, *systems) == tuple(FORMATS.entries)


ODD = [b"", b"\n", b"{}", b"[]", b"[1]", b'{"a":1}\n', b"a,b\n1,2\n", b"PAR1", parquet({"a": [1, 2]}), b"\xff"]


@pytest.mark.parametrize("kind", FORMATS.entries)
@pytest.mark.parametrize("content", ODD)
def test_a_file_of_another_format_than_the_given_one_is_read_or_refused(tmp_path, kind, content):
    path = written(tmp_path, content, "rollouts.xls")
    with suppress(InputError):
        calipers.score(path, input_format=kind)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("kind", EXAMPLES)
def test_content_says_what_a_file_is_and_its_name_does_not(tmp_path, kind, pack):
    content = pack(EXAMPLES[kind])
    path = written(tmp_path, content, "rollouts.xls")
    columns = {"task": "id", "reward": "score"} if kind == "jsonl" else {}
    table, inputs = read([path], columns=columns)
    assert inputs == [Input(path, kind, hashlib.sha256(content).hexdigest(), 1)]
    assert [row["reward reward"] for row in seen(table)] == [1.0]


@pytest.mark.parametrize(
    ("line", "columns", "expected"),
    [
        ('{"task":1,"task_id":2}', {}, "native"),
        ('{"task":1,"task_id":2}', {"reward": "task_id"}, "native"),
        ('{"task":1,"task_id":2}', {"task": "task_id"}, "jsonl"),  # said aloud, so not guessed
        ('{"task_id":2,"task":1}', {}, "native"),
    ],
)
def test_which_json_lines_they_are(tmp_path, line, columns, expected):
    assert read([written(tmp_path, line)], columns=columns)[1][0].format == expected


def test_any_name_of_a_file_has_its_place_in_the_order_of_a_folder(tmp_path):
    names = ["²1.jsonl", "b.jsonl", "a10.jsonl", "a9.jsonl", "10.jsonl", "9.jsonl"]  # ² is a digit, and no number
    for at, name in enumerate(names):
        written(tmp_path, json.dumps({"input": name, "output": "", "gts": "", "score": at, "step": 1}) + "\n", name)
    _, inputs = read([str(tmp_path)])
    assert [os.path.basename(each.path) for each in inputs] == [*names[:3:-1], *names[3:0:-1], names[0]]


@pytest.mark.skipif(not os.path.isfile("/proc/self/mem"), reason="needs a file that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_refused_in_words():
    with pytest.raises(InputError, match="/proc/self/mem: cannot be read"):
        calipers.score("/proc/self/mem")


def test_a_path_with_a_nul_in_it_is_no_file():
    assert refused("a\0b") == ": cannot be read (embedded null byte)"


def test_the_first_line_decides_however_far_down_and_however_long(tmp_path):
    row = json.dumps({"prompt": "x" * 500_000, "task_id": "a", "reward": 1})
    path = written(tmp_path, "\ufeff" + "\n" * 300_000 + row + "\n{")
    assert refused(path).startswith(":300002: not JSON")
    assert read([written(tmp_path, row)])[1][0].format == "evsys_predictions"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b" \t\r\n\n", b"\xef\xbb\xbf", b"\n" * 1_000_000, gzip.compress(b"", mtime=0)]
)
def test_nothing_is_no_set_of_rollouts(tmp_path, content):
    assert refused(written(tmp_path, content)) == ": no rollouts; expected at least one"


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"\x7fELF\x02\x01\x01\0",
        b"\0",
        '{"task":1}\n'.encode("utf-16"),
        '{"task":1}\n'.encode("utf-32-le"),
        "task,reward\n".encode("utf-16-le"),
        b"PARE" + b"\0" * 20,
    ],
)
def test_what_is_no_text_is_refused_as_a_whole(tmp_path, content):
    right = "expected JSON Lines, a JSON list, CSV or Parquet"
    assert refused(written(tmp_path, content)) == f": is not a file of rollouts; {right}"


def test_paths_that_hold_no_file(tmp_path):
    assert refused(str(tmp_path / "none")).startswith(": no such file")
    assert refused(str(tmp_path)).startswith(": is a directory")
    with pytest.raises(InputError, match="no files"):
        read([])


def test_a_first_line_longer_than_any_rollout(tmp_path, shorter_lines):
    path = written(tmp_path, '{"task":"' + "x" * (shorter_lines + 1) + '"}')
    assert refused(path).startswith(":1: a line is longer than 3 MiB")
    assert len(read([written(tmp_path, '{"reward":1,"task":"' + "x" * (shorter_lines - 100) + '"}')])[0]) == 1


def test_several_files_are_one_set(tmp_path):
    paths = [
        written(tmp_path, content, kind) for kind, content in EXAMPLES.items() if kind in ("native", "evsys_rewards")
    ]
    paths.append(written(tmp_path, "task,reward,model\na,0,m\n", "csv"))
    table, inputs = read(paths)
    assert [row["task"] for row in seen(table)] == ["0", "a", "a"]
    assert [(one.format, one.rollouts) for one in inputs] == [("native", 1), ("evsys_rewards", 1), ("csv", 1)]


@pytest.mark.parametrize("kind", ["native", "csv", "parquet", "evsys_predictions", "evsys_rewards"])
def test_the_same_file_twice_is_refused_and_both_places_named(tmp_path, kind):
    first, second = (written(tmp_path, EXAMPLES[kind], name) for name in ("one", "two"))
    for twice in ([first, first], [first, second]):
        with pytest.raises(InputError, match="appears twice, first at ") as caught:
            read(twice)
        assert str(caught.value).startswith(twice[1])
        assert f"first at {first}:" in str(caught.value)


def test_an_unknown_role_names_the_nearest(tmp_path):
    path = written(tmp_path, EXAMPLES["native"])
    with pytest.raises(UnknownName, match=r"^no role for --columns named 'rewrd'; did you mean 'reward'"):
        read([path], columns={"rewrd": "score"})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"task": "id", "reward": "id"}, "--columns: task and reward are both 'id'; expected a key for each"),
        ({"sample": "task"}, "--columns: sample uses the key 'task'; name another with task=KEY"),
    ],
)
def test_roles_that_cannot_be_told_apart(tmp_path, columns, expected):
    with pytest.raises(InputError) as caught:
        read([written(tmp_path, EXAMPLES["native"])], columns=columns)
    assert str(caught.value) == expected


@pytest.mark.parametrize("kind", ["native", "csv", "parquet", "evsys_predictions", "evsys_rewards"])
def test_a_name_that_no_row_has_is_refused(tmp_path, kind):
    for role in ("sample", "prompt", "output_tokens"):
        text = refused(written(tmp_path, EXAMPLES[kind]), columns={role: "nobody"})
        assert text == f": no row has 'nobody'; expected it as {role} (--columns {role}=nobody)"


def test_a_name_that_one_of_the_files_has_is_enough(tmp_path):
    paths = [written(tmp_path, '{"task":"a","n":3}', "one"), written(tmp_path, "task\nb\n", "two")]
    assert [(row["task"], row["sample"]) for row in seen(read(paths, columns={"sample": "n"})[0])] == [
        ("a", 3),
        ("b", 0),
    ]
    assert refused(*paths, columns={"sample": "m"}).startswith(
        ": no row has 'm', and neither has a row of 1 more files"
    )


def test_a_key_that_no_reader_can_look_for_is_refused(tmp_path):
    for asked in ({"labels": ['a"b']}, {"columns": {"reward": "a\\b"}}):
        with pytest.raises(InputError, match="contains a quote, a backslash or a control character"):
            read([written(tmp_path, EXAMPLES["native"])], **asked)


def test_a_key_given_away_means_nothing_else(tmp_path):
    path = written(tmp_path, '{"prompt":"a","score":1,"task":5,"reward":7}')
    table, _ = read([path], columns={"task": "prompt", "reward": "score"})
    assert table.tasks == ["a"]
    assert table.rewards["reward"].values.tolist() == [1]
    assert {key: column.values.tolist() for key, column in table.columns.items()} == {"task": [5], "reward": [7]}
    bad = written(tmp_path, '{"prompt":3,"score":"x"}')  # an integer is no prompt, but a fine task
    assert refused(bad, columns={"task": "prompt", "reward": "score"}).startswith(':1: score is "x"')


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(EXAMPLES["native"]))))
    table, inputs = read(["-"])
    assert inputs == [Input("-", "native", hashlib.sha256(EXAMPLES["native"]).hexdigest(), 1)]
    assert len(table) == 1


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_left_as_it_was(tmp_path, enabled):
    was = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        read([written(tmp_path, EXAMPLES["native"])])
        assert gc.isenabled() == enabled
        refused(written(tmp_path, "{"))
        assert gc.isenabled() == enabled
    finally:
        gc.enable() if was else gc.disable()


def test_progress_rises_to_the_size_of_all_files(tmp_path):
    paths = [written(tmp_path, content, kind) for kind, content in EXAMPLES.items() if kind in ("native", "csv")]
    paths[1] = written(tmp_path, gzip.compress(b"task\nb\n"), "csv.gz")
    told = []
    read(paths, progress=lambda *so_far: told.append(so_far))
    total = sum(map(os.path.getsize, paths))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (total, total)


def test_json_is_read_without_the_library_for_tables(tmp_path):
    path = written(tmp_path, EXAMPLES["native"])
    code = "import sys; from calipers.formats.read import read; read([sys.argv[1]]); print('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True).stdout == b"False\n"


def records():
    """Random rollouts with distinct (task, sample) and optional keys, as files contain them."""
    number = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.booleans() | st.integers(-5, 5)
    optional = {
        "reward": number,
        "rewards": st.dictionaries(st.sampled_from(["style", "length"]), number, max_size=2),
        "usage": st.dictionaries(st.sampled_from(["latency_s", "cost_usd"]), number, max_size=2),
        "model": st.sampled_from(["m1", "m2"]) | st.none(),
        "outcome": st.sampled_from(["refused", "client_failed", None]),
        "metadata": st.fixed_dictionaries({}, optional={"k": st.sampled_from([1, 1.5, True, "1", None, [1]])}),
        "x": number | st.text(max_size=3) | st.none(),
    }
    one = st.fixed_dictionaries({"task": st.integers(0, 6) | st.text("ab", max_size=2)}, optional=optional)
    return st.lists(one, min_size=1, max_size=12).map(
        lambda rows: [{**row, "sample": sample} for sample, row in enumerate(rows)]
    )


def text_of(rows) -> str:
    return "\n".join(json.dumps(row) for row in rows)


@given(records(), st.data())
def test_order_and_split_of_files_do_not_matter(tmp_path_factory, rows, data):
    folder = tmp_path_factory.getbasetemp()
    whole = read([written(folder, text_of(rows), "whole")], labels=["k", "x"])[0]
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [part for part in (shuffled[:cut], shuffled[cut:]) if part]
    paths = [written(folder, text_of(part), f"part {n}") for n, part in enumerate(parts)]
    split = read(paths, labels=["k", "x"])[0]
    assert (list(split.keys), list(split.tasks)) == (list(whole.keys), list(whole.tasks))
    assert seen(split) == seen(whole)


@settings(max_examples=60)
@given(records())
def test_the_same_rollouts_in_every_format(tmp_path_factory, rows):
    folder = tmp_path_factory.getbasetemp()
    flat = [
        {
            **{key: row.get(key) for key in ("task", "sample", "reward", "model", "outcome")},
            **{f"rewards.{key}": row.get("rewards", {}).get(key) for key in ("style", "length")},
            **{f"usage.{key}": row.get("usage", {}).get(key) for key in ("latency_s", "cost_usd")},
            "metadata.k": str(row["metadata"]["k"]) if row.get("metadata", {}).get("k") is not None else None,
            "filled": 1,  # a record of nothing but gaps is a blank line
        }
        for row in rows
        if row["task"] != ""  # an empty cell is no task
    ]
    if not flat:
        return
    native = [
        {
            **{key: row[key] for key in ("task", "sample", "reward", "model", "outcome", "filled")},
            "rewards": {key: row[f"rewards.{key}"] for key in ("style", "length")},
            "usage": {key: row[f"usage.{key}"] for key in ("latency_s", "cost_usd")},
            "metadata": {"k": row["metadata.k"]} if row["metadata.k"] is not None else {},
        }
        for row in flat
    ]
    frame = pl.DataFrame([{**row, "task": str(row["task"])} for row in flat], strict=False, infer_schema_length=None)
    nested = frame.select(
        pl.exclude("^rewards.*$", "^usage.*$", "metadata.k"),
        *(
            pl.struct(pl.col(f"^{name}\\..*$").name.map(lambda key: key.split(".")[1])).alias(name)
            for name in ("rewards", "usage", "metadata")
        ),
    )
    contents = [text_of(native).encode(), frame.write_csv().encode(), parquet(frame), parquet(nested)]
    tables = [seen(read([written(folder, content, "same")], labels=["k"])[0]) for content in contents]
    assert tables[0] == tables[1] == tables[2] == tables[3]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = written(tmp_path, '{"task": "a", "reward": 1}\n')
    _, inputs = begin([path])
    with open(path, "a") as file:
        file.write('{"task": "b", "reward": 1}\n')
    with pytest.raises(InputError, match="changed while it was read"):
        inputs()


@pytest.mark.parametrize("text", ["<!doctype html>\n<title>a</title>", "<html>\n", '<?xml version="1.0"?>\n'])
def test_a_page_is_no_table(tmp_path, text):
    path = tmp_path / "report.html"
    path.write_text(text)
    with pytest.raises(InputError, match=r"report\.html: is an HTML or XML page, not a file of rollouts; expected"):
        read([str(path)])


def test_a_document_of_calipers_is_named(tmp_path):
    """``calipers score result.json`` was told to put the result on one line."""
    path = tmp_path / "result.json"
    path.write_text(calipers.score([[1, 0]]).to_json())
    with pytest.raises(InputError) as error:
        calipers.score(path)
    right = "expected the rollouts that it is of"
    assert str(error.value) == f"{path}: is a document of Calipers (calipers.result/1); {right}"


@pytest.mark.parametrize("name", ["harbor", "run"])
def test_a_file_is_no_format_of_folders(tmp_path, name):
    """``--input-format harbor`` for a file ended with a traceback."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"task": "a", "reward": 1}\n')
    with pytest.raises(InputError) as error:
        calipers.score(path, input_format=name)
    assert str(error.value) == f"{path}: is a file, and {name} is a format of folders; expected a folder"


@pytest.mark.parametrize("kind", ["native", "verl", "tinker_rl"])
@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_without_rows_of_the_given_format_has_no_rollouts(tmp_path, kind, content):
    path = written(tmp_path, content)
    with pytest.raises(InputError, match="no rollouts; expected at least one"):
        calipers.score(path, input_format=kind)
    assert calipers.score(written(tmp_path, "[[], []]"), input_format="evsys_rewards").groups[0].ledger.tasks == 2
