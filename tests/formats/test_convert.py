"""Converting keeps every number of a score, and its digest, for every format."""

import gzip
import json
import math
import os
import tracemalloc
from contextlib import suppress
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from formats.given import seen, written
from formats.test_read import EXAMPLES
from formats.test_run_folder import record, run
from gym import put, row
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.errors import CalipersError, InputError
from calipers.formats.read import read
from calipers.formats.source_facts import FACTS
from calipers.rollouts.ledger import lost_before_answer
from calipers.rollouts.record import OUTCOMES
from examples import examples

HERE = Path(__file__).parents[1]
SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
LOGS = HERE / "systems" / "inspect" / "logs"


@cache
def readable(root: Path) -> dict[str, str]:
    """The files and folders below a folder that can be scored, with the digests of their scores."""
    found = {}
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in files if not name.endswith((".py", ".md")))):
            with suppress(CalipersError):
                found[path] = calipers.score(path).digest
    return dict(sorted(found.items()))


def digests(path, out, **settings):
    calipers.convert(path, out)
    return calipers.score(path, **settings).digest, calipers.score(out, **settings).digest


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_of_every_format_keeps_its_digest(tmp_path, kind, suffix):
    path = written(tmp_path, EXAMPLES[kind], "rollouts.xls")
    columns = {"task": "id", "reward": "score"} if kind == "jsonl" else {}
    out = str(tmp_path / f"out{suffix}")
    done = calipers.convert(path, out, columns=columns)
    assert (done.path, done.format, done.rollouts) == (out, kind, 1)
    assert calipers.score(out).digest == calipers.score(path, columns=columns).digest


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("part", ["formats", "harbor", "lm_eval"])
def test_everything_of_other_systems_keeps_its_digest(tmp_path, part, suffix):
    paths = readable(HERE / "golden" / part)
    assert len(paths) >= 8
    for number, (path, before) in enumerate(paths.items()):
        out = str(tmp_path / f"{number}{suffix}")
        calipers.convert(path, out)
        assert calipers.score(out).digest == before, path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_usage_at_the_top_of_a_row_is_written_once(tmp_path, kind, suffix):
    rows = [{"task": "a", "reward": 1, "latency_s": 1.5, "input_tokens": 3}, {"task": "b", "reward": 0, "latency_s": 2}]
    path, out = str(tmp_path / f"in.{kind}"), str(tmp_path / f"out{suffix}")
    if kind == "json":
        written(tmp_path, json.dumps(rows), "in.json")
    else:
        frame = pl.DataFrame(rows)
        frame.write_parquet(path) if kind == "parquet" else frame.write_csv(path)
    calipers.convert(path, out)
    assert seen(read([out])[0]) == seen(read([path])[0])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_with_usage_and_no_reward_are_missing_before_and_after(tmp_path, suffix):
    path = written(tmp_path, '{"task": "a", "usage": {"output_tokens": 5}}\n')
    before, after = digests(path, str(tmp_path / f"out{suffix}"))
    assert before == after


SYSTEMS = (
    *("verl", "verl/validation", "trl", "skyrl", "nemo_rl", "open_instruct", "prime_rl", "promptfoo/results.json"),
    *("verifiers_v0", "verifiers_v0_old", "verifiers_v1", "tinker_cookbook/eval", "tinker_cookbook/iteration_000001"),
    *("openai_evals", "every_eval_ever", "inspect/chunked_a.eval"),
)


TEXTLESS = ("open_instruct", "tinker_cookbook/iteration_000001")  # these write no texts


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_rollouts_of_training_systems_keep_their_steps_and_their_headline(tmp_path, name, suffix):
    out, again = tmp_path / f"out{suffix}", tmp_path / f"again{suffix}"
    before, after = digests(HERE / "golden" / "formats" / name, out)
    assert after == before
    assert digests(out, again) == (before, before)
    rows = [json.loads(line) for line in again.read_text().splitlines()] if suffix == ".jsonl" else []
    without = [row for row in rows if "prompt" not in row and row.get("outcome", "scored") == "scored"]
    assert not without or name in TEXTLESS, without[:1]


def test_the_texts_of_a_step_are_those_of_its_own_file(tmp_path):
    folder = HERE / "golden" / "formats" / "verl" / "validation"
    calipers.convert(folder, tmp_path / "out.jsonl")
    written_rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    own = [json.loads(line) for step in (0, 20, 40) for line in (folder / f"{step}.jsonl").read_text().splitlines()]
    kept = [
        (row["step"], row["prompt"], row["completion"], row["rewards"]["score"], row["pred"]) for row in written_rows
    ]
    assert kept == [tuple(row[key] for key in ("step", "input", "output", "score", "pred")) for row in own]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("name", ["one_scorer.eval", "three_scorers.eval", "three_scorers.json"])
def test_a_log_of_inspect_keeps_its_plan_its_errors_and_its_slices(tmp_path, name, suffix):
    before, after = digests(LOGS / name, tmp_path / f"out{suffix}", by="level", reward="match")
    assert after == before
    (group,) = calipers.score(tmp_path / f"out{suffix}").groups
    assert (group.ledger.planned, group.ledger.planned_from) == (10, "plan")
    assert group.ledger.exceptions == {"RuntimeError": 1}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_job_of_harbor_has_the_numbers_of_its_dialect(tmp_path, suffix):
    before, after = digests(HERE / "golden" / "harbor" / "job_small", tmp_path / f"out{suffix}", dialect="harbor")
    assert after == before


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rollouts_of_nemo_gym_keep_failures_and_what_was_planned(tmp_path, suffix):
    path = put(tmp_path / "r.jsonl", row(0, 0, 1.0, level="easy"), row(1, 0, 0.0, level="hard", n=math.nan))
    put(tmp_path / "r_failures.jsonl", row(0, 1, None, _ng_failure_class="judge"))
    put(tmp_path / "r_materialized_inputs.jsonl", *(row(task, sample) for task in (0, 1, 2) for sample in (0, 1)))
    before, after = digests(path, tmp_path / f"out{suffix}", by="level")
    assert after == before
    ledger = calipers.score(tmp_path / f"out{suffix}").groups[0].ledger
    assert (ledger.planned, ledger.planned_from) == (6, "materialized_inputs")
    assert ledger.outcomes == {"scored": 2, "judge_failed": 1, "not_run": 3}


STOPPED = {
    "schema": "calipers.stopped/1",
    "rule": "lower(pass@1) > 0.5",
    "metric": "pass@1",
    "side": "lower",
    "tasks": 2,
    "planned_tasks": 4,
    "rollouts": 2,
    "planned_rollouts": 4,
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("stopped", [None, STOPPED, {**STOPPED, "continued": True}])
def test_a_run_keeps_its_plan_its_order_and_its_stop(tmp_path, suffix, stopped):
    folder = tmp_path / "run"
    folder.mkdir()
    tasks = [
        {"task": task, "metadata": {"level": level}, "target": f"hash-{task}"} for task, level in zip("dbca", "xyxy")
    ]
    records = [record("b", metadata={"level": "y"}), record("d", reward=0, metadata={"level": "x"}, attempt=2)]
    path = run(folder, tasks, *records)
    if stopped:
        (folder / "stopped.json").write_text(json.dumps(stopped))
    out = str(tmp_path / f"out{suffix}")
    before, after = digests(path, out, by="level")
    assert after == before
    tables = [read([each])[0] for each in (path, out)]
    assert [seen(table) for table in tables] == [seen(tables[0])] * 2
    assert tables[1].stops == tables[0].stops
    assert tables[1].turn.argsort(kind="stable").tolist() == tables[0].turn.argsort(kind="stable").tolist()
    again = str(tmp_path / "again.jsonl")
    assert digests(out, again, by="level") == (before, before)  # a converted file can be converted


@pytest.mark.parametrize(
    "settings",
    [{"by": "metadata.level"}, {"by": ["level", "metadata.level"]}, {"cluster": "metadata.level"},
     {"exclude": "metadata.level=y"}],
)  # fmt: skip
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_label_may_be_named_by_its_full_path(tmp_path, suffix, settings):
    records = [record(task, metadata={"level": level}) for task, level in zip("abcd", "xyxx", strict=True)]
    path = written(tmp_path, "".join(json.dumps(each) + "\n" for each in records))
    before, after = digests(path, tmp_path / f"out{suffix}", **settings)
    assert after == before


def test_the_tasks_without_rollouts_of_a_list_of_rewards_are_counted(tmp_path):
    path = written(tmp_path, "[[], [1, 0], []]", "rewards.json")
    before, after = digests(path, tmp_path / "out.jsonl")
    assert after == before
    assert calipers.score(tmp_path / "out.jsonl").groups[0].ledger.tasks == 3


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("of_a_run", [True, False])
def test_what_was_lost_before_the_model_was_asked_stays_so(tmp_path, suffix, of_a_run):
    refused = {"outcome": "client_failed", "error": {"kind": "connection", "message": "no", "before_answer": True}}
    late = {"outcome": "client_failed", "error": {"kind": "timeout", "message": "late"}}
    records = [record("a"), record("b", reward=None, **refused), record("c", reward=None, **late)]
    if of_a_run:
        (tmp_path / "run").mkdir()
        path = run(tmp_path / "run", "abcd", *records)
    else:
        path = written(tmp_path, "".join(json.dumps(each) + "\n" for each in records))
    out, again = str(tmp_path / f"out{suffix}"), str(tmp_path / "again.jsonl")
    calipers.convert(path, out)
    calipers.convert(out, again)
    tables = [read([each])[0] for each in (path, out, again)]
    lost = [lost_before_answer(table).tolist() for table in tables]
    assert lost == [[False, True, False, True] if of_a_run else [False, True, False]] * 3
    assert [table.tasks for table in tables] == [tables[0].tasks] * 3


NAMES = st.sampled_from(["reward", "accuracy", "rewards.x", "usage.y", "metadata.z", "task", "ü", "a.b"])
EXTRAS = st.sampled_from(["level", "rewards.x", "usage.y", "metadata.z", "a.b", "target", "ü", "note"])
NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53), st.booleans())
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
JSON = st.recursive(st.one_of(st.none(), NUMBERS, TEXT), lambda inner: st.lists(inner, max_size=2), max_leaves=3)
ROWS = st.fixed_dictionaries(
    {"task": st.one_of(TEXT, st.integers(0, 9)), "reward": st.one_of(st.none(), NUMBERS)},
    optional={
        "outcome": st.sampled_from([word for word in OUTCOMES if word not in ("scored", "stopped_early")]),
        "attempt": st.integers(1, 3),
        "rewards": st.dictionaries(NAMES.filter(lambda name: name != "reward"), NUMBERS, max_size=2),
        "usage": st.dictionaries(st.sampled_from(["input_tokens", "cost_usd", "other"]), NUMBERS, max_size=2),
        "answer": st.one_of(st.none(), NUMBERS, TEXT, st.lists(NUMBERS, max_size=2)),
        "prompt": st.one_of(
            st.none(), TEXT, st.lists(st.fixed_dictionaries({"role": TEXT, "content": TEXT}), max_size=2)
        ),
        "completion": st.one_of(st.none(), TEXT),
        "error": st.one_of(
            st.none(), TEXT, st.fixed_dictionaries({"kind": TEXT}, optional={"before_answer": st.booleans()})
        ),
        "metadata": st.one_of(st.none(), st.dictionaries(TEXT, JSON, max_size=2)),
        "model": st.one_of(st.none(), st.sampled_from(["m", "n"])),
    },
)


@examples(60)
@given(rows=st.lists(st.tuples(ROWS, st.dictionaries(EXTRAS, JSON, max_size=2)), min_size=1, max_size=6))
def test_generated_records_come_back_as_they_were(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("generated")
    records = [{**extra, **known, "sample": number} for number, (known, extra) in enumerate(rows)]
    records.append({"task": "a", "sample": len(rows), "reward": 1})
    path = written(folder, "".join(json.dumps(record) + "\n" for record in records))
    table, back = str(folder / "a.parquet"), str(folder / "b.jsonl")
    calipers.convert(path, table)
    calipers.convert(table, back)
    tables = [seen(read([each], labels=["answer"])[0]) for each in (path, table, back)]
    for rollout in (rollout for each in tables for rollout in each):
        rollout.pop("answer", None)  # a number requested as a label is also a column, but only in JSON Lines
    assert tables == [tables[0]] * 3
    assert calipers.score(path).digest == calipers.score(table).digest == calipers.score(back).digest
    texts = ("prompt", "completion", "error", "metadata", "answer")
    returned = [json.loads(line) for line in Path(back).read_text().split("\n") if line]
    for before, after in zip(records, returned, strict=True):
        assert {key: before[key] for key in texts if before.get(key) is not None} == {
            key: after[key] for key in texts if key in after
        }


def test_records_in_json_lines_pass_as_they_are(tmp_path):
    lines = ['{"task":"a","reward":1.0,"metadata":{"n":1e3,"ü":[1,{"b":null}]},"note":"x"}', '{"task":7,"reward":null}']
    path = written(tmp_path, "\ufeff" + lines[0] + "\r\n\n" + lines[1])
    calipers.convert(path, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text().splitlines() == lines


def test_without_texts_prompts_and_completions_are_gone_and_answers_stay(tmp_path):
    path = written(tmp_path, '{"task":"a","reward":1,"prompt":"p","completion":"c","answer":"x","metadata":{"k":1}}\n')
    calipers.convert(path, tmp_path / "out.jsonl", texts=False)
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {
        "task": "a",
        "reward": 1,
        "answer": "x",
        "metadata": {"k": 1},
    }


def test_the_columns_of_a_table_are_those_that_others_expect(tmp_path):
    rows = [
        {"task": "a", "reward": 1, "usage": {"input_tokens": 3}, "metadata": {"k": 1}, "prompt": [{"role": "user"}]},
        {"task": "b", "rewards": {"format": 0.5}, "prompt": "p", "level": 2, "odd": "x"},
        {"task": "c", "reward": 0, "odd": 4},
    ]
    path = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    calipers.convert(path, tmp_path / "out.parquet")
    frame = pl.read_parquet(tmp_path / "out.parquet")
    assert dict(frame.schema) == {
        "task": pl.String,
        "reward": pl.Float64,
        "usage.input_tokens": pl.Float64,
        "metadata": pl.String,
        "prompt": pl.String,
        "rewards.format": pl.Float64,
        "level": pl.Int64,
        "odd": pl.Int64,
        FACTS: pl.String,
    }
    assert frame["odd"].to_list() == [None, None, 4]  # a column of numbers, as for a score
    assert frame["metadata"].to_list() == ['{"k":1}', None, None]
    calipers.convert(tmp_path / "out.parquet", tmp_path / "back.jsonl")
    back = [json.loads(line) for line in (tmp_path / "back.jsonl").read_text().splitlines()]
    assert back[1]["odd"] == "x"
    assert back[0]["prompt"] == [{"role": "user"}]


def test_a_key_of_the_users_own_that_has_our_name_is_kept(tmp_path):
    values = [5, "x", {"turn": "x"}]
    rows = [{"task": task, "reward": 1, "_calipers": value} for task, value in zip("abc", values, strict=True)]
    path = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    calipers.convert(path, tmp_path / "out.parquet")
    calipers.convert(tmp_path / "out.parquet", tmp_path / "back.jsonl")
    assert calipers.score(tmp_path / "back.jsonl").digest == calipers.score(path).digest
    back = [json.loads(line) for line in (tmp_path / "back.jsonl").read_text().splitlines()]
    assert [row["_calipers"] for row in back] == values


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("metadata", "easy", {"metadata": {"metadata": "easy"}}),
        ("metadata", '{"level": 1}', {"metadata": {"level": 1}}),  # as --by reads it
        ("metadata", [1, 2], {"metadata": {"metadata": [1, 2]}}),
        ("metadata", 3, {"metadata": {"metadata": 3}}),
        ("error", 2, {"error": "2"}),
        ("answer", {"x": 1}, {"answer": '{"x":1}'}),
        ("prompt", 1.5, {"prompt": "1.5"}),
        ("completion", True, {"completion": "true"}),
    ],
)
def test_a_cell_that_a_record_cannot_have_is_one_that_it_can_have(tmp_path, column, cell, expected, suffix):
    path, out = str(tmp_path / "in.parquet"), str(tmp_path / f"out{suffix}")
    pl.DataFrame({"task": ["a", "b"], "reward": [1, 0], column: [cell, cell]}).write_parquet(path)
    before, after = digests(path, out)
    assert before == after
    calipers.convert(out, records := str(tmp_path / "records.jsonl"))
    assert {"task": "a", "sample": 0, "reward": 1.0, **expected} == json.loads(Path(records).read_text().split("\n")[0])


def test_metadata_as_text_and_as_columns_of_its_own_is_one_object(tmp_path):
    path = written(tmp_path, "task,reward,metadata.level,metadata,metadata.kind\na,1,hard,note,k\n", "in.csv")
    calipers.convert(path, out := str(tmp_path / "out.jsonl"))
    assert json.loads(Path(out).read_text())["metadata"] == {"metadata": "note", "level": "hard", "kind": "k"}


@pytest.mark.parametrize("huge", ["1e999", "1" + "0" * 5000])
def test_a_number_out_of_range_that_no_score_reads_is_in_no_table(tmp_path, huge):
    path = written(tmp_path, f'{{"task": "a", "reward": 1, "metadata": {{"x": {huge}}}}}\n')
    before, after = digests(path, str(tmp_path / "out.jsonl"))
    assert before == after
    with pytest.raises(InputError) as error:
        calipers.convert(path, str(tmp_path / "out.parquet"))
    assert str(error.value) == "task 'a', sample 0: a number is out of range; expected at most 1.8e308 in size"


def test_a_table_has_nan_and_json_lines_have_not(tmp_path):
    path = str(tmp_path / "in.parquet")
    pl.DataFrame({"task": ["a", "b"], "reward": [1.0, math.nan]}).write_parquet(path)
    calipers.convert(path, tmp_path / "out.parquet")
    assert math.isnan(read([str(tmp_path / "out.parquet")])[0].rewards["reward"].values[1])
    with pytest.raises(InputError, match=r"in.parquet:row 2: reward is nan; JSON has no such number; convert to .parq"):
        calipers.convert(path, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"task":"b","reward":"high"}', 'reward is "high"'),
        ('{"reward":1}', "no key 'task'"),
        ("{", "not JSON"),
        ('{"task":"b","_calipers":{"planned_from":"[x](http://e)"}}', "_calipers is not as calipers convert writes it"),
        ('{"task":"b","reward":1,"_calipers":{"stop":{"rule":"r"}}}', "it is of another run"),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_bad_line_is_refused_where_it_stands_and_nothing_is_written(tmp_path, line, wrong, suffix):
    path = written(tmp_path, '{"task":"a","reward":1}\n' + line + "\n")
    with pytest.raises(InputError) as caught:
        calipers.convert(path, tmp_path / f"out{suffix}")
    assert str(caught.value).startswith(f"{path}:2: {wrong}")
    assert [each.name for each in tmp_path.iterdir()] == ["rollouts.jsonl"]


def test_an_existing_file_is_replaced_only_if_asked_and_only_by_a_whole_one(tmp_path):
    path, out = written(tmp_path, '{"task":"a","reward":1}\n{\n'), tmp_path / "out.jsonl"
    out.write_text("before")
    with pytest.raises(InputError, match="already exists; --force replaces it"):
        calipers.convert(path, out)
    with pytest.raises(InputError, match="not JSON"):
        calipers.convert(path, out, force=True)
    assert out.read_text() == "before"
    written(tmp_path, '{"task":"a","reward":1}\n')
    calipers.convert(path, out, force=True)
    assert out.read_text() == '{"task":"a","reward":1}\n'


@pytest.mark.parametrize(
    ("source", "target", "wrong"),
    [
        ("rollouts.jsonl", "out.xlsx", "out.xlsx: its ending names no format; expected .jsonl, .jsonl.gz"),
        ("rollouts.jsonl", "no/out.jsonl", "there is no folder"),
        ("rollouts.jsonl", "rollouts.jsonl", "is the file to be converted"),
        ("none.jsonl", "out.jsonl", "no such file"),
        ("-", "out.jsonl", "standard input passes only once"),
    ],
)
def test_what_cannot_be_converted(tmp_path, monkeypatch, source, target, wrong):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, '{"task":"a","reward":1}\n')
    with pytest.raises(InputError) as caught:
        calipers.convert(source, target)
    assert wrong in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["rollouts.jsonl"]


def test_a_file_of_nothing_is_none_of_rollouts(tmp_path):
    with pytest.raises(InputError, match="no rollouts"):
        calipers.convert(written(tmp_path, "\n\n"), tmp_path / "out.jsonl")


def test_the_same_input_gives_the_same_bytes(tmp_path):
    path = written(tmp_path, '{"task":"a","reward":1}\n' * 1)
    for suffix in SUFFIXES:
        outs = [tmp_path / f"{name}{suffix}" for name in "ab"]
        for out in outs:
            calipers.convert(path, out)
        assert outs[0].read_bytes() == outs[1].read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == b'{"task":"a","reward":1}\n'


def test_memory_follows_a_batch_and_not_the_file(tmp_path):
    text = "x" * 2000
    with open(tmp_path / "large.jsonl", "w") as file:
        for number in range(30_000):
            file.write(f'{{"task":"t{number}","reward":1,"completion":"{text}"}}\n')
    tracemalloc.start()
    calipers.convert(tmp_path / "large.jsonl", tmp_path / "out.jsonl")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "out.jsonl").stat().st_size > 60_000_000
    assert peak < 25_000_000
