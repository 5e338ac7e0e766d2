"""Files that are not logs, damaged logs, and zip bombs."""

import gzip
import io
import json
import struct
import zipfile

import pytest
from systems.inspect.made import LOGS, archive, header, sample, whole

import calipers
from calipers.errors import InputError
from calipers.systems import inspect


def refused(path, **more):
    with pytest.raises(InputError) as caught:
        calipers.score(path, **more)
    return str(caught.value)


def test_a_zip_of_something_else(tmp_path):
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("photo.json", "{}")
    assert "is a zip archive, but not a log of inspect; expected header.json" in refused(path)


def test_an_archive_that_is_cut_off(tmp_path):
    path = tmp_path / "a.eval"
    path.write_bytes((LOGS / "one_scorer.eval").read_bytes()[:-100])
    assert "is not a complete zip archive" in refused(path)
    path.write_bytes(b"PK\x03\x04rest")
    assert "is not a complete zip archive" in refused(path)


@pytest.mark.parametrize("where", [0.2, 0.5])
def test_a_member_with_a_flipped_bit(tmp_path, where):
    """Some damage is found by zstd, the rest by the checksum."""
    data = bytearray((LOGS / "one_scorer.eval").read_bytes())
    member = zipfile.ZipFile(io.BytesIO(bytes(data))).getinfo("samples/s1_epoch_1.json")
    data[member.header_offset + 80 + int(where * member.compress_size)] ^= 0x10
    path = tmp_path / "a.eval"
    path.write_bytes(data)
    assert "samples/s1_epoch_1.json: cannot be unpacked" in refused(path)


def test_a_member_whose_place_is_a_lie(tmp_path):
    data = bytearray((LOGS / "one_scorer.eval").read_bytes())
    # the last occurrence is in the directory at the end of the archive
    entry = data.rindex(b"samples/s1_epoch_1.json") - 46
    data[entry + 42 : entry + 46] = struct.pack("<I", 7)  # the offset of its header
    path = tmp_path / "a.eval"
    path.write_bytes(data)
    assert "samples/s1_epoch_1.json: cannot be unpacked (no member starts at the expected position)" in refused(path)


def test_an_archive_in_an_archive(tmp_path):
    path = tmp_path / "a.eval.gz"
    path.write_bytes(gzip.compress((LOGS / "one_scorer.eval").read_bytes()))
    assert "is a zip archive that is compressed again, or comes through a pipe" in refused(path)


def test_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(inspect, "FREE_UNPACKED", 1 << 16)
    monkeypatch.setattr(inspect, "MOST_RATIO", 10)
    path = archive(tmp_path, header(["a"]), sample("a", "C", metadata={"x": "0" * (1 << 20)}))
    assert "expected a log, not a zip bomb" in refused(path)


def test_another_version(tmp_path):
    assert "is an inspect log of version 3; expected version 2" in refused(
        whole(tmp_path, {**header(["a"]), "version": 3}, sample("a", "C"))
    )


def test_a_log_without_samples(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(header(["a"])))
    assert "contains numbers but no samples" in refused(path)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"id": None, "epoch": 1}, "is not as inspect writes it"),
        ({"id": "a", "epoch": 0}, "expected epochs from 1"),
        ({"id": "a", "epoch": "one"}, "is not as inspect writes it"),
        ({"id": "a", "epoch": 1, "scores": [1]}, "is not as inspect writes it"),
        ({"id": "a", "epoch": 1, "scores": {'m"x': {"value": 1}}}, "contains a quote"),
    ],
)
def test_a_sample_that_is_none(tmp_path, broken, said):
    assert said in refused(whole(tmp_path, header(["a"]), broken))


def test_a_sample_that_is_no_json(tmp_path):
    path = archive(tmp_path, header(["a"]))
    with zipfile.ZipFile(path, "a") as made:
        made.writestr("samples/a_epoch_1.json", '{"id": "a", ')
    assert "samples/a_epoch_1.json: is not JSON" in refused(path)


def test_a_plan_of_too_much(tmp_path):
    assert "samples are planned" in refused(archive(tmp_path, header(["a"], epochs=10**9), sample("a", "C")))


def test_names_of_its_own():
    assert "a log of inspect has its own field names" in refused(LOGS / "one_scorer.eval", columns={"task": "id"})


def test_text_that_is_half_a_character_is_no_obstacle(tmp_path):
    path = tmp_path / "log.json"
    log = {**header(["a"]), "samples": [sample("a", "C", metadata={"x": "\ud800"})]}
    path.write_text(json.dumps(log))
    assert calipers.score(path, by="x")["mean_reward"].value == 1.0


@pytest.mark.parametrize("depth", [100, 700, 5000])
@pytest.mark.parametrize("by", [(), "x"])
def test_metadata_as_deep_as_can_be(tmp_path, depth, by):
    """A log is read, or refused with a message, but never ends with a crash."""
    path = tmp_path / "log.json"
    text = json.dumps({**header(["a", "b"]), "samples": [sample("a", "C", metadata={"x": 0}), sample("b", "I")]})
    path.write_text(text.replace('{"x": 0}', '{"x": ' + "[" * depth + "]" * depth + "}"))
    if depth > 1000:
        assert refused(path, by=by)
    else:
        assert calipers.score(path, by=by)["mean_reward"].value == 0.5
