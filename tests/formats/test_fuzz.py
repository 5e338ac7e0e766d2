"""Any file content is either read, or refused with an InputError that names the place; there is no other outcome."""

from __future__ import annotations

import contextlib
import gzip
import io
import json

import polars as pl
import pytest
import zstandard
from formats.given import written
from hypothesis import example, given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.formats import jsonl, rewards, tables
from calipers.formats.read import read
from calipers.formats.source import Source
from calipers.rollouts.table import assemble
from calipers.systems.evsys import predictions as evsys
from examples import examples

LABELS = ("k", "x", "answer", "a.b")
ROWS = [
    {"task": "a", "sample": 0, "reward": 1, "x": 1, "metadata": {"k": "é", "a": {"b": 1}}},
    {"task": 7, "sample": 1, "attempt": 2, "rewards": {"style": 0.5}, "outcome": "refused", "x": "text"},
    {"task": "b", "usage": {"latency_s": 1e-3}, "model": "m", "answer": [1], "error": {"kind": "e"}, "x": None},
    {"task": "c", "prompt": "p\u2028", "completion": [{"role": "user"}], "flag": True, "reward": None},
]
PREDICTIONS = [
    {"task_id": "a", "sample_idx": 0, "reward": 1.0, "step": 3, "metadata": {"latency_s": 1, "k": "v"}},
    {"task_id": "b", "instruction": "i", "output": "o", "reward": 0.5, "eval_id": "e", "metadata": {}},
]
CSV = 'task,sample,reward,x,metadata.k,outcome\na,0,1,1.5,"é, ""q""\n",\nb,1,true,,,refused\r\n\nc,2,,-3e5,z,\n'


def parquet() -> bytes:
    file = io.BytesIO()
    frame = {"task": ["a", "b", "c"], "reward": [1.0, None, 0.5], "x": [1, 2, None], "rewards": [{"style": 1.0}] * 3}
    pl.DataFrame({**frame, "metadata": [{"k": "v"}] * 3, "outcome": [None, "refused", None]}).write_parquet(file)
    return file.getvalue()


JSONL = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
GOOD = {
    "native": JSONL,
    "evsys_predictions": "\n".join(map(json.dumps, PREDICTIONS)).encode(),
    "evsys_rewards": b"[[1, 0, null], [], [true, NaN, -0.5e3]]",
    "csv": CSV.encode(),
    "parquet": parquet(),
    "gzip": gzip.compress(JSONL, mtime=0),
    "zstd": zstandard.compress(JSONL),
}
READERS = {
    "native": jsonl.read,
    "evsys_predictions": evsys.PREDICTIONS.read,
    "evsys_rewards": rewards.read_rewards,
    "csv": tables.read_csv,
    "parquet": tables.read_parquet,
}
TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r", b"\r\n", b" ", b"\x0c", b"\0", b"\xff", b"\xef\xbb\xbf"),
    *(b"\\", b"\\u", b"\\ud800", b"null", b"true", b"NaN", b"-Infinity", b"1e400", b"-1", b"1" * 400, b'"task"', b'""'),
)
ANY_BYTES = st.binary(max_size=200) | st.lists(st.sampled_from(TOKENS), max_size=20).map(b"".join)
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 6), st.sampled_from(TOKENS) | st.binary(max_size=4))
NAMES = st.dictionaries(
    st.sampled_from(["task", "reward", "sample", "model", "rewards", "usage", "output_tokens"]),
    st.sampled_from(["task", "reward", "x", "metadata.k", "metadata", "prompt", "rewards"]),
)


def mutated(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    """The content with some bytes taken out and others put in."""
    for where, length, put in changes:
        at = int(where * len(content))
        content = content[:at] + put + content[at + length :]
    return content


def test_what_is_mutated_is_good(tmp_path):
    for name, content in GOOD.items():
        assert len(read([written(tmp_path, content)], labels=LABELS)[0]) > 1, name


@pytest.mark.parametrize("name", GOOD)
@examples(100)
@given(changes=st.lists(EDIT, min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused(tmp_path_factory, name, changes):
    path = written(tmp_path_factory.getbasetemp(), mutated(GOOD[name], changes), "damaged")
    try:
        read([path], labels=LABELS)
    except InputError as error:
        assert str(error).startswith(f"{path}:")  # noqa: PT017


@pytest.mark.parametrize("name", READERS)
@examples(75)
@given(content=ANY_BYTES)
@example(content=b"")
@example(content=b"\n\n")
def test_each_reader_reads_or_refuses_any_bytes(tmp_path_factory, name, content):
    path = written(tmp_path_factory.getbasetemp(), content, "any")
    with contextlib.suppress(InputError), Source(path) as source:
        parts = READERS[name](source, {}, LABELS, lambda _: None)
        assemble(parts) if parts else None


@examples(75)
@given(content=ANY_BYTES)
def test_the_door_reads_or_refuses_any_bytes(tmp_path_factory, content):
    path = written(tmp_path_factory.getbasetemp(), content, "any")
    with contextlib.suppress(InputError):
        read([path], labels=LABELS)


@pytest.mark.parametrize("name", ["native", "csv", "parquet", "evsys_predictions"])
@examples(60)
@given(columns=NAMES)
def test_any_names_for_the_roles_are_taken_or_refused(tmp_path_factory, name, columns):
    path = written(tmp_path_factory.getbasetemp(), GOOD[name], "named")
    with contextlib.suppress(InputError):
        read([path], columns=columns, labels=LABELS)
