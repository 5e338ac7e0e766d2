"""Commands on objects of a real S3 server: the same numbers as on files, and no key anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from object_stores.conftest import KEY, SECRET, Proxy
from waiting import PATIENCE

import calipers
from calipers.errors import InputError

ARITH = Path(calipers.__file__).parent / "examples" / "arith.jsonl"
NEXT = ARITH.with_name("arith_next.jsonl")


def command(*arguments: object, folder: Path | None = None, **more: str) -> tuple[int, str, str]:
    """The command as a user starts it."""
    asked = [sys.executable, "-m", "calipers", *map(str, arguments)]
    environment = {**os.environ, **more}
    done = subprocess.run(
        asked, capture_output=True, text=True, timeout=PATIENCE, env=environment, cwd=folder, check=False
    )
    assert not {KEY, SECRET} & set(done.stdout.split() + done.stderr.split())
    assert KEY not in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


def digest(text: bytes) -> str:
    return str(json.loads(text)["digest"])


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_an_object_is_scored_as_its_file_is(bucket, tmp_path, name):
    code, out, _ = command("convert", ARITH, f"s3://{bucket.name}/in/{name}")
    assert (code, out) == (0, f"s3://{bucket.name}/in/{name}: 320 rollouts, converted from native\n")
    code, _, err = command("score", f"s3://{bucket.name}/in/{name}", "--out", f"s3://{bucket.name}/out.json")
    assert (code, err) == (0, command("score", ARITH)[2])
    written = bucket.Object("out.json").get()["Body"].read()
    assert digest(written) == calipers.score(ARITH).digest
    [read] = json.loads(written)["inputs"]
    assert read["path"] == f"s3://{bucket.name}/in/{name}"
    assert read["sha256"].startswith("etag:") is name.endswith(".parquet")  # of which not every byte was read


def test_of_parquet_only_the_columns_that_count_are_read(bucket, proxy: Proxy, tmp_path):
    rows = [{"task": f"t{n}", "reward": n % 2, "completion": os.urandom(20_000).hex()} for n in range(200)]
    lines = tmp_path / "long.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    calipers.convert(lines, tmp_path / "long.parquet")
    size = (tmp_path / "long.parquet").stat().st_size
    bucket.upload_file(str(tmp_path / "long.parquet"), "long.parquet")
    before = proxy.received
    found = calipers.score(f"s3://{bucket.name}/long.parquet")
    assert found.digest == calipers.score(lines).digest
    assert proxy.received - before < size / 10


def test_several_objects_are_one_set_and_two_are_compared(bucket):
    lines = ARITH.read_text().splitlines(keepends=True)
    for number, start in enumerate((0, 160)):
        bucket.put_object(Key=f"part-{number}.jsonl", Body="".join(lines[start : start + 160]).encode())
    both = [f"s3://{bucket.name}/part-{number}.jsonl" for number in (0, 1)]
    assert calipers.score(both).digest == calipers.score(ARITH).digest
    bucket.upload_file(str(ARITH), "a.jsonl")
    bucket.upload_file(str(NEXT), "b.jsonl")
    code, out, err = command("compare", f"s3://{bucket.name}/a.jsonl", f"s3://{bucket.name}/b.jsonl", "--format", "md")
    _, out_here, err_here = command("compare", ARITH, NEXT, "--format", "md")
    assert (code, err) == (0, err_here)
    assert out == out_here.replace("arith.jsonl", "a.jsonl").replace("arith_next.jsonl", "b.jsonl")


def test_a_folder_is_an_address_with_a_slash(bucket, tmp_path):
    for path in (ARITH, NEXT):
        bucket.upload_file(str(path), f"runs/{path.name}")
        (tmp_path / path.name).write_bytes(path.read_bytes())
    code, out, _ = command("score", f"s3://{bucket.name}/runs/")
    assert code == 0
    assert out.replace(f"s3://{bucket.name}/runs", str(tmp_path)) == command("score", tmp_path)[1]
    code, _, err = command("score", f"s3://{bucket.name}/runs")
    assert code == 2
    assert err == f"s3://{bucket.name}/runs: is a folder; write it with a slash at the end: s3://{bucket.name}/runs/\n"


def test_broken_connections_are_tried_again(bucket, proxy: Proxy):
    bucket.upload_file(str(ARITH), "a.jsonl")
    proxy.breaks = 2
    assert calipers.score(f"s3://{bucket.name}/a.jsonl").digest == calipers.score(ARITH).digest
    assert proxy.breaks == 0


@pytest.mark.parametrize(
    ("key", "text"),
    [("none.jsonl", "no such object; expected the address of a file"), ("bad.jsonl", ":1: not JSON")],
)
def test_an_error_names_the_object(bucket, key, text):
    bucket.put_object(Key="bad.jsonl", Body=b"{nonsense\n")
    code, out, err = command("score", f"s3://{bucket.name}/{key}")
    assert (code, out) == (2, "")
    assert err.startswith(f"s3://{bucket.name}/{key}")
    assert text in err
    assert err.count("\n") == 1


def test_without_credentials_one_line_says_so(bucket):
    bucket.upload_file(str(ARITH), "a.jsonl")
    code, _, err = command(
        *("score", f"s3://{bucket.name}/a.jsonl"),
        **{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"},
    )
    assert code == 2
    assert "Unable to locate credentials" in err
    assert err.count("\n") == 1


def test_a_document_is_replaced_and_rollouts_only_with_force(bucket):
    bucket.upload_file(str(ARITH), "a.jsonl")
    for _ in range(2):
        assert command("report", ARITH, "-o", f"s3://{bucket.name}/report.html")[0] == 0
    assert bucket.Object("report.html").get()["Body"].read().startswith(b"<!doctype html>")
    with pytest.raises(InputError, match="already exists; --force replaces it"):
        calipers.convert(ARITH, f"s3://{bucket.name}/a.jsonl")
    assert calipers.convert(ARITH, f"s3://{bucket.name}/a.jsonl", force=True).rollouts == 320


def test_the_log_of_a_run_is_refused_before_anything_is_asked(bucket, tmp_path):
    code, _, err = command("run", "none.jsonl", "--model", "openai/x", "--out", f"s3://{bucket.name}/run")
    assert (code, err.count("\n")) == (2, 1)
    assert "the log of a run needs a local folder" in err


def test_copies_do_not_outlive_the_command(bucket, tmp_path):
    bucket.upload_file(str(ARITH), "a.jsonl")
    assert command("score", f"s3://{bucket.name}/a.jsonl", TMPDIR=str(tmp_path))[0] == 0
    assert list(tmp_path.iterdir()) == []
