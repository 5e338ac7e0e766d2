"""Partials: made anywhere, in any split, merged in any order, they give the score of all files at once."""

import hashlib
import io
import json
import os
import zipfile

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import calipers
from calipers import partials
from calipers.errors import Incomplete, InputError
from calipers.formats import lines, read, tables
from calipers.formats.partial import HEADER, KINDS, ROLLOUTS, TASKS, opened
from calipers.formats.run_folder import RunStop
from calipers.partials import merge_partials, score_cached, write_partial
from calipers.rollouts import packed as packing
from calipers.rollouts.ledger import lost_before_answer

ARITH = os.path.join(os.path.dirname(calipers.__file__), "examples", "arith.jsonl")
METRICS = ["mean_reward", "pass@4", "pass^2", "any_of_first_2", "max@2", "median(column=reward)"]
SETTINGS = {"by": ["difficulty"], "seed": 3}


def worst(rewards):
    """A metric of the user's."""
    return min(min(task) for task in rewards)


def written(folder, shards):
    """A file for each shard of lines."""
    paths = []
    for number, shard in enumerate(shards):
        paths.append(folder / f"part-{number}.jsonl")
        paths[-1].write_text("".join(shard))
    return paths


@pytest.fixture(scope="module")
def rollouts():
    with open(ARITH, encoding="utf-8") as file:
        return file.readlines()


@pytest.fixture
def files(tmp_path, rollouts):
    """The shipped rollouts dealt out to three files."""
    return written(tmp_path, [rollouts[start::3] for start in range(3)])


@pytest.fixture(scope="module")
def parts(tmp_path_factory, rollouts):
    """The same, and a partial of each; tests only read them."""
    return made(tmp_path_factory.mktemp("parts"), rollouts)


@pytest.fixture
def own_parts(tmp_path, rollouts):
    """The same for a test that changes them."""
    return made(tmp_path, rollouts)


def made(folder, rollouts):
    files = written(folder, [rollouts[start::3] for start in range(3)])
    paths = [path.with_suffix(".partial") for path in files]
    for file, partial in zip(files, paths, strict=True):
        write_partial(file, partial, METRICS, **SETTINGS)
    return files, paths


@pytest.fixture(scope="module")
def whole():
    """The score of all rollouts in one file."""
    return calipers.score(ARITH, METRICS, **SETTINGS)


@settings(phases=[Phase.generate], max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_order_and_any_split(tmp_path, rollouts, whole, shards, random):
    some = list(rollouts)
    random.shuffle(some)
    files = written(tmp_path, [some[start::shards] for start in range(shards)])
    paths = []
    for file in files:
        paths.append(file.with_suffix(".partial"))
        write_partial(file, paths[-1], METRICS, **SETTINGS)
    random.shuffle(paths)
    merged = merge_partials(paths)
    assert merged.digest == whole.digest
    assert [group.economics for group in merged.groups] == [group.economics for group in whole.groups]
    assert {each.sha256 for each in merged.inputs} == {each.sha256 for each in calipers.score(files).inputs}


def test_what_was_lost_before_the_model_was_asked_stays_so(tmp_path):
    refused = {"outcome": "client_failed", "error": {"kind": "http_429", "before_answer": True}}
    late = {"outcome": "client_failed", "error": {"kind": "timeout"}}
    rows = [{"task": "a", "reward": 1}, {"task": "b", **refused}, {"task": "c", **late}, {"task": "d", **late}]
    rows.append({"task": "d", "attempt": 2, **refused})  # its first attempt may have had an answer
    files = written(tmp_path, [[json.dumps(row) + "\n"] for row in rows])
    for file in files:
        write_partial(file, file.with_suffix(".partial"), ["mean_reward"])
    expected = [False, True, False, False]
    for paths in (files, [file.with_suffix(".partial") for file in files]):
        assert lost_before_answer(read.read([str(path) for path in paths])[0]).tolist() == expected
    merged = tmp_path / "merged.partial"
    write_partial(files, merged, ["mean_reward"])
    assert lost_before_answer(read.read([str(merged)])[0]).tolist() == expected


def test_metrics_may_be_chosen_when_merging(parts):
    files, paths = parts
    assert (
        merge_partials(paths, ["pass@8", worst]).digest == calipers.score(files, ["pass@8", worst], **SETTINGS).digest
    )


def test_a_partial_is_read_wherever_rollouts_are(parts):
    files, paths = parts
    assert calipers.score(paths, METRICS, **SETTINGS).digest == calipers.score(files, METRICS, **SETTINGS).digest
    of_files, of_partials = (calipers.compare(*two[:2], metrics=["mean_reward"]) for two in (files, paths))
    assert [row["delta"] for row in of_files.rows()] == [row["delta"] for row in of_partials.rows()]


def test_several_groups_share_ids(tmp_path):
    rows = [
        {"task": task, "sample": sample, "model": model, "dataset": "d", "reward": (task * 7 + sample) % 3 / 2}
        for model in ("a", "b")
        for task in range(5)
        for sample in range(3)
    ]
    files = written(tmp_path, [[json.dumps(row) + "\n" for row in rows[start::4]] for start in range(4)])
    for file in files:
        write_partial(file, file.with_suffix(".partial"), ["mean_reward", "pass@2"])
    merged = merge_partials([file.with_suffix(".partial") for file in files])
    assert merged.digest == calipers.score(files, ["mean_reward", "pass@2"]).digest


def test_files_without_sample_numbers_are_numbered_through_all_of_them(tmp_path):
    golden = os.path.join(os.path.dirname(__file__), "golden", "formats", "trl", "completions")
    files = sorted(os.path.join(golden, name) for name in os.listdir(golden) if name.endswith(".parquet"))
    assert len(files) > 1
    paths = [tmp_path / f"{number}.partial" for number in range(len(files))]
    for file, partial in zip(files, paths, strict=True):
        write_partial(file, partial)
    merged = merge_partials(paths[::-1])
    assert merged.digest == calipers.score(files).digest


class TestRefused:
    def test_a_part_given_twice(self, parts):
        _, paths = parts
        with pytest.raises(InputError, match="appears twice; expected each input once"):
            merge_partials([paths[0], paths[0]])

    def test_an_input_in_two_parts(self, parts, tmp_path):
        files, paths = parts
        both = tmp_path / "both.partial"
        write_partial(files[:2], both, METRICS, **SETTINGS)
        with pytest.raises(InputError, match=r"part-1\.partial: has .*part-1\.jsonl, which .*both\.partial has, too"):
            merge_partials([both, paths[1]])

    def test_rollouts_that_overlap(self, parts, tmp_path, rollouts):
        _, paths = parts
        other = tmp_path / "other.jsonl"
        other.write_text(rollouts[0])
        write_partial(other, tmp_path / "other.partial", METRICS, **SETTINGS)
        with pytest.raises(InputError, match=r"task '.*' sample \d+ attempt 1 appears twice, also in"):
            merge_partials([*paths, tmp_path / "other.partial"])

    def test_another_score(self, parts, tmp_path):
        files, paths = parts
        write_partial(files[1], tmp_path / "other.partial", ["pass@4"], **SETTINGS)
        with pytest.raises(
            InputError, match=r"other\.partial: was made with metrics pass@4, and .*part-0\.partial with"
        ):
            merge_partials([paths[0], tmp_path / "other.partial"])

    def test_other_definitions(self, own_parts):
        _, paths = own_parts
        changed(paths[1], definitions=1)
        with pytest.raises(InputError, match=r"part-1\.partial: was made with definitions 1, and this version has"):
            merge_partials(paths)

    @pytest.mark.parametrize(
        "setting", [{"metrics": 5}, {"range": [1]}, {"reward": 3}, {"labels": None}, {"seed": "x"}, {"exclude": {}}]
    )
    def test_a_setting_of_another_kind(self, own_parts, setting):
        _, paths = own_parts
        changed(paths[0], settings={**opened(str(paths[0])).header.settings, **setting})
        for reading in (merge_partials, calipers.score):
            with pytest.raises(InputError, match=rf"is damaged, or is no partial \(.*\.{next(iter(setting))}"):
                reading(paths[0])

    def test_another_schema(self, own_parts):
        _, paths = own_parts
        changed(paths[1], schema="calipers.partial/9")
        with pytest.raises(InputError, match=r"part-1\.partial: is of schema 'calipers\.partial/9'; expected"):
            merge_partials(paths)

    def test_one_that_is_missing(self, parts, tmp_path):
        files, paths = parts
        listed = tmp_path / "inputs.txt"
        listed.write_text("".join(f"{path}\n" for path in files))
        assert merge_partials(paths, expect=listed).digest == calipers.score(files, METRICS, **SETTINGS).digest
        with pytest.raises(Incomplete, match=r"in no partial: .*part-2\.jsonl"):
            merge_partials(paths[:2], expect=listed)

    def test_a_list_of_files_that_is_not_there(self, tmp_path, parts):
        _, paths = parts
        with pytest.raises(InputError, match=r"gone: cannot be read \(No such file or directory\); expected a file"):
            merge_partials(paths, expect=tmp_path / "gone")

    def test_labels_that_it_does_not_have(self, parts):
        _, paths = parts
        with pytest.raises(InputError, match="the partial does not have 'level' of its rollouts"):
            calipers.score(paths, by="level")

    def test_code_that_it_names_is_never_run(self, tmp_path, parts):
        files, _ = parts
        code = tmp_path / "mine.py"
        code.write_text("def worst(rewards):\n    return min(min(task) for task in rewards)\n")
        write_partial(files[0], tmp_path / "mine.partial", f"{code}:worst")
        with pytest.raises(InputError, match="is your own code, which a partial does not have; give it again"):
            merge_partials(tmp_path / "mine.partial")
        assert merge_partials(tmp_path / "mine.partial", f"{code}:worst").groups

    @pytest.mark.parametrize("name", ["{code}:worst()", " {code}:worst", "{code}:worst(reward=1)"])
    def test_code_is_not_run_however_its_name_is_written(self, tmp_path, own_parts, name):
        code, traces = tmp_path / "mine.py", tmp_path / "traces"
        code.write_text(f"open({str(traces)!r}, 'w').close()\ndef worst(rewards):\n    return 0.0\n")
        _, paths = own_parts
        changed(paths[0], settings={"metrics": [name.format(code=code)]})
        with pytest.raises(InputError, match=r"metric .*mine\.py:worst"):
            merge_partials(paths[0])
        assert not traces.exists()

    @pytest.mark.parametrize("reading", [write_partial, lambda run, folder: score_cached(run, cache=folder)])
    def test_a_stopped_run_whose_interval_a_partial_cannot_have(self, tmp_path, reading):
        plan = {"schema": "calipers.plan/1", "dataset": "d", "model": "m", "samples": 1}
        stop = RunStop(rule="lower(pass@1) > 0.6", metric="pass@1", side="lower", tasks=1, planned_tasks=2)
        (tmp_path / "plan.json").write_text(json.dumps({**plan, "tasks": [{"task": "a"}, {"task": "b"}]}))
        (tmp_path / "rollouts.jsonl").write_text('{"task": "a", "reward": 1, "dataset": "d", "model": "m"}\n')
        (tmp_path / "stopped.json").write_bytes(msgspec.json.encode(stop))
        with pytest.raises(InputError, match="expected calipers score without --partial, --cache and --engine"):
            reading(tmp_path, tmp_path / "out")

    @settings(phases=[Phase.generate], max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_damage(self, own_parts, data):
        _, paths = own_parts
        whole = paths[0].read_bytes()
        damaged = paths[0].with_name("damaged.partial")
        if data.draw(st.booleans()):
            damaged.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        else:
            at = data.draw(st.integers(0, len(whole) - 1))
            damaged.write_bytes(whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :])
        problem = ""
        try:
            merged = merge_partials([damaged])
        except (InputError, Incomplete) as error:
            problem = str(error)
        # a bit that nothing depends on, such as a date in the archive, changes nothing
        assert "damaged.partial" in problem if problem else merged.groups == merge_partials([paths[0]]).groups

    def test_damage_to_one_that_was_packed_once_more(self, own_parts):
        _, paths = own_parts
        packed = paths[0].with_name("packed.partial")
        with zipfile.ZipFile(paths[0]) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as again:
            for name in archive.namelist():
                again.writestr(name, archive.read(name))
        assert merge_partials([packed]).groups == merge_partials([paths[0]]).groups
        whole = packed.read_bytes()
        packed.write_bytes(whole[:80] + b"\xff" * 20 + whole[100:])
        with pytest.raises(
            InputError, match=r"packed.partial: is damaged, or is no partial \(Error -3 while decompressing"
        ):
            merge_partials([packed])

    @pytest.mark.parametrize(
        ("table", "column", "value"),
        [
            (TASKS, "task", None),
            (TASKS, "task", 5),
            (TASKS, "rollouts", None),
            (ROLLOUTS, "kind", "x"),
            (ROLLOUTS, "kind", [1]),
            (ROLLOUTS, "kind", float("inf")),
            (KINDS, "attempt", None),
            (KINDS, "outcome", 3),
            (KINDS, "reward:reward", {"a": 1}),
            (KINDS, "label:model", 1),
        ],
    )
    def test_a_column_of_another_type(self, own_parts, table, column, value):
        """The hashes of a file that another program wrote are right."""
        _, paths = own_parts
        with zipfile.ZipFile(paths[0]) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        frame = pl.read_parquet(members[table])
        frame.with_columns(pl.Series(column, [value] * frame.height)).write_parquet(buffer := io.BytesIO())
        header = json.loads(members[HEADER])
        header["members"][table] = hashlib.sha256(buffer.getvalue()).hexdigest()
        members |= {HEADER: json.dumps(header).encode(), table: buffer.getvalue()}
        with zipfile.ZipFile(paths[0], "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        problem = rf"is damaged, or is no partial \(its column '{column}' is .*, or has gaps\)"
        with pytest.raises(InputError, match=problem):
            merge_partials([paths[0]])


def changed(path, **values):
    """Write a partial again with another header."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[HEADER] = json.dumps({**json.loads(members[HEADER]), **values}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


class TestCache:
    def test_it_gives_the_same_score_and_reads_new_files_only(self, files, tmp_path, monkeypatch):
        expected = calipers.score(files, METRICS, **SETTINGS).digest
        assert score_cached(files[:2], METRICS, cache=tmp_path / "kept", **SETTINGS).digest != expected
        read_again = []
        made = partials._planned_partial
        monkeypatch.setattr(
            partials, "_planned_partial", lambda paths, *rest: read_again.extend(paths) or made(paths, *rest)
        )
        assert score_cached(files, METRICS, cache=tmp_path / "kept", **SETTINGS).digest == expected
        assert read_again == [str(files[2])]

    def test_a_changed_file_is_read_again(self, files, tmp_path, rollouts):
        score_cached(files, METRICS, cache=tmp_path / "kept")
        files[2].write_text(
            files[2].read_text().replace('"reward": 1', '"reward": 0').replace('"reward":1', '"reward":0')
        )
        again = score_cached(files, METRICS, cache=tmp_path / "kept")
        assert again.digest == calipers.score(files, METRICS).digest

    def test_size_and_time_are_trusted_unless_it_is_told_to_check(self, files, tmp_path):
        before = score_cached(files, METRICS, cache=tmp_path / "kept").digest
        status = files[0].stat()
        text = files[0].read_text()
        one = text.index('"reward": 1') if '"reward": 1' in text else text.index('"reward":1')
        at = text.index("1", one)
        files[0].write_text(text[:at] + "0" + text[at + 1 :])
        os.utime(files[0], ns=(status.st_atime_ns, status.st_mtime_ns))
        assert score_cached(files, METRICS, cache=tmp_path / "kept").digest == before
        checked = score_cached(files, METRICS, cache=tmp_path / "kept", check=True)
        assert checked.digest == calipers.score(files, METRICS).digest != before

    def test_a_damaged_partial_is_made_again(self, files, tmp_path):
        kept = tmp_path / "kept"
        before = score_cached(files, METRICS, cache=kept).digest
        for name in os.listdir(kept):
            (kept / name).write_bytes(b"PK")
        assert score_cached(files, METRICS, cache=kept).digest == before

    def test_other_labels_have_partials_of_their_own(self, files, tmp_path):
        score_cached(files, METRICS, cache=tmp_path / "kept")
        cut = score_cached(files, METRICS, cache=tmp_path / "kept", by="difficulty")
        assert cut.digest == calipers.score(files, METRICS, by="difficulty").digest


class TestManyRollouts:
    """What is done only with millions of rollouts, with few of them."""

    @pytest.fixture(autouse=True)
    def _few_are_many(self, monkeypatch):
        monkeypatch.setattr(read, "PACKED_BYTES", 1)
        monkeypatch.setattr(read, "PACKED_ROWS", 1)
        monkeypatch.setattr(read, "SMALL", 0)
        monkeypatch.setattr(tables, "PACKED_BATCH", 50)
        monkeypatch.setattr(lines, "PIECE", 30)
        monkeypatch.setattr(packing, "AT_A_TIME", 40)

    @pytest.fixture
    def plain(self, monkeypatch):
        """A score of the same that packs nothing."""

        def score(*args, **kwargs):
            with monkeypatch.context() as patch:
                patch.setattr(read, "PACKED_BYTES", 1 << 60)
                patch.setattr(read, "PACKED_ROWS", 1 << 60)
                return calipers.score(*args, **kwargs)

        return score

    @pytest.fixture
    def packs(self, monkeypatch):
        """How often rollouts were packed."""
        seen = []
        merge = packing.merge
        monkeypatch.setattr("calipers.pipeline.merge", lambda packs: seen.append(len(packs)) or merge(packs))
        return seen

    def test_json_lines(self, plain, packs):
        assert calipers.score(ARITH, METRICS, **SETTINGS).digest == plain(ARITH, METRICS, **SETTINGS).digest
        assert packs

    @pytest.mark.parametrize("ids", ["number", "text", "sparse", "mixed"])
    def test_parquet(self, tmp_path, ids, plain, packs):
        import polars as pl

        rng = np.random.default_rng(1)
        number = rng.permutation(np.repeat(np.arange(40), 8))
        sample = np.zeros(len(number), dtype=int)
        for task in range(40):
            sample[number == task] = rng.permutation(8)
        made = {
            "number": number,
            "text": [f"task-{task:03}" for task in number],
            "sparse": number.astype(np.int64) * 10**15,
            "mixed": [str(task) if task % 2 else f"ü{task}" for task in number],
        }[ids]
        reward = rng.integers(0, 2, len(number)).astype(float)
        table = pl.DataFrame({"task": made, "sample": sample, "reward": reward, "level": rng.integers(0, 3, 320)})
        table = table.with_columns(reward=pl.when(pl.col("sample") == 7).then(None).otherwise(pl.col("reward")))
        table.write_parquet(tmp_path / "rows.parquet")
        for by in ((), ("level",)):
            expected = plain(tmp_path / "rows.parquet", METRICS, by=by).digest
            assert calipers.score(tmp_path / "rows.parquet", METRICS, by=by).digest == expected
        assert packs

    @pytest.mark.parametrize("datasets", [(None, "d"), ("d", None), (None, None)])
    def test_notes(self, tmp_path, plain, packs, datasets):
        keys = [{"dataset": name, "sample": n} for name in dict.fromkeys(datasets) for n in range(20)]
        rows = [{"task": "a", "reward": 1, **key} for key in keys]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        expected = plain(tmp_path / "rows.jsonl", by="dataset").notes
        assert calipers.score(tmp_path / "rows.jsonl", by="dataset").notes == expected
        assert packs
        assert bool(expected) == (not any(datasets))

    def test_the_ledger_is_of_the_same_of_several_rewards(self, tmp_path, plain, packs):
        """It was of the first in the file, in small files of the first by name."""
        rows = [{"task": n, "rewards": {"style": 0.5, "acc": n % 2}} for n in range(6)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        expected = plain(tmp_path / "rows.jsonl", "max(column=style)").groups[0].ledger
        assert calipers.score(tmp_path / "rows.jsonl", "max(column=style)").groups[0].ledger == expected
        assert packs
        assert expected.passed == 3

    @pytest.mark.parametrize("packing_name", ["gz", "zst"])
    def test_compressed_lines(self, tmp_path, plain, packs, packing_name):
        import gzip

        import zstandard

        with open(ARITH, "rb") as file:
            text = file.read()
        path = tmp_path / f"rows.jsonl.{packing_name}"
        path.write_bytes(gzip.compress(text) if packing_name == "gz" else zstandard.compress(text))
        assert calipers.score(path, METRICS, **SETTINGS).digest == plain(path, METRICS, **SETTINGS).digest
        assert packs

    @pytest.mark.parametrize(
        "line",
        [
            '{"task": "a", "sample": 0, "reward": "high"}',
            '{"task": "a", "outcome": "scored"}',
            '{"task": "add-00", "sample": 0, "dataset": "arith", "model": "tiny-calculator", "reward": 1}',
            "{",
        ],
    )
    def test_errors_name_the_line(self, tmp_path, rollouts, line, plain):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join([*rollouts[:100], line + "\n", *rollouts[100:]]))
        with pytest.raises(InputError) as packed_error:
            calipers.score(path)
        with pytest.raises(InputError) as plain_error:
            plain(path)
        assert str(packed_error.value) == str(plain_error.value)
        assert "rows.jsonl:" in str(plain_error.value)

    def test_two_hashes_that_agree_in_one_half_are_not_one_id(self):
        import polars as pl

        ids = tables.TextIds(4)
        ids.take(0, pl.Series(["a", "b", "a", "b"]))
        ids._hash[:] = 7
        with pytest.raises(lines.NotPackable, match="the same hash"):
            ids.codes()


def test_a_partial_opens_with_what_it_says(parts):
    files, paths = parts
    header = opened(str(paths[0])).header
    assert [each.path for each in header.inputs] == [str(files[0])]
    assert (header.rollouts, header.settings["metrics"]) == (107, METRICS)
