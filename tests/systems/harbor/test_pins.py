import tomllib

from systems.harbor.given import dataset, write

from calipers.systems.harbor.dataset import drift, new_document, read_dataset, refreshed
from calipers.systems.harbor.manifest import file_digest, read_manifest

A, B = (f"sha256:{letter * 64}" for letter in "ab")
TOML = f"""\
# the best dataset
[dataset]
name = "acme/arith"  # ours

[[tasks]]  # first
name = "acme/a"
digest = "{A}"

[[tasks]]
name = "acme/gone"

[[files]]
path = "metric.py"
digest = ""

[metadata]
note = '''
[[not a table]]
'''
"""


def test_where_they_differ(tmp_path):
    place = dataset(tmp_path / "d", "a", "b", toml=TOML)
    metric = write(place / "metric.py", "x")
    found = read_dataset(place)
    true = {found.full_name(task): task.digest for task in found.tasks}
    seen = drift(place, found.manifest, true)
    assert (seen.tasks, seen.new_tasks) == ({"acme/a": true["acme/a"]}, {"acme/b": true["acme/b"]})
    assert (seen.files, seen.new_files) == ({"metric.py": file_digest(metric)}, {})
    assert seen.errors == (f"{place}/dataset.toml:10: {place} contains no valid task 'acme/gone'",)
    assert seen.changes == [
        "the digest of acme/a is computed again",
        "the digest of metric.py is computed again",
        "acme/b is added",
    ]
    metric.unlink()
    assert (
        drift(place, found.manifest, true)
        .errors[1]
        .startswith(f"{place}/dataset.toml:13: there is no file 'metric.py'")
    )
    metric.symlink_to("/etc/passwd")
    assert "points outside" in drift(place, found.manifest, true).errors[1]


def test_a_metric_that_is_not_named(tmp_path):
    place = dataset(tmp_path / "d", "a")
    metric = write(place / "metric.py", "x")
    write(place / "other.py", "x")
    manifest = read_manifest(place)
    assert drift(place, manifest, {}).new_files == {"metric.py": file_digest(metric)}
    metric.unlink()
    metric.symlink_to("/etc/passwd")
    assert drift(place, manifest, {}).new_files == {}


def test_writing_keeps_what_somebody_wrote(tmp_path):
    dataset(tmp_path, toml=TOML)
    text = refreshed(read_manifest(tmp_path), {"acme/a": B, "acme/new": A}, {"metric.py": A, "more.txt": B}, "2")
    before, after = tomllib.loads(TOML), tomllib.loads(text)
    assert after["tasks"] == [
        {"name": "acme/a", "digest": B},
        {"name": "acme/gone"},
        {"name": "acme/new", "digest": A},
    ]
    assert after["files"] == [{"path": "metric.py", "digest": A}, {"path": "more.txt", "digest": B}]
    assert after["metadata"] == before["metadata"]
    assert after["dataset"] == {"name": "acme/arith", "version": "2"}
    assert text.endswith("'\n")
    for line in ("# the best dataset", 'name = "acme/arith"  # ours', "[[tasks]]  # first"):
        assert line in text.splitlines()


def test_entries_after_entries(tmp_path):
    """Tables of one kind stay together, wherever the other kind is; the file ends with a newline."""
    write(tmp_path / "dataset.toml", new_document("acme/arith", "1.0.0"))
    for tasks, files in (({}, {"metric.py": A}), ({"acme/a": A}, {}), ({}, {"x": B}), ({"acme/b": B}, {})):
        write(tmp_path / "dataset.toml", refreshed(read_manifest(tmp_path), tasks, files))
    found = read_manifest(tmp_path)
    assert [one.name for one in found.tasks] == ["acme/a", "acme/b"]
    assert [one.path for one in found.files] == ["metric.py", "x"]
    text = found.source.text
    assert text.endswith(f'digest = "{B}"\n')
    assert text.count("\n\n[[") == text.count("[[") == 4


def test_lists_in_one_line(tmp_path):
    """`files = []` may not be followed by [[files]], nor may a list of inline tables."""
    toml = 'files = []\ntasks = [{name = "a/b", digest = ""}]\n[dataset]\nname = "a/d"\ntasks = []\n'
    dataset(tmp_path, toml=toml)
    text = refreshed(read_manifest(tmp_path), {"a/b": A, "a/c": B}, {"metric.py": A})
    after = tomllib.loads(text)
    assert after["tasks"] == [{"name": "a/b", "digest": A}, {"name": "a/c", "digest": B}]
    assert after["files"] == [{"path": "metric.py", "digest": A}]


def test_a_new_one_and_what_is_added_to_it(tmp_path):
    write(tmp_path / "dataset.toml", new_document("acme/arith", "1.0.0"))
    text = refreshed(read_manifest(tmp_path), {"acme/a": A, "acme/b": B}, {"metric.py": A})
    assert (
        text
        == f"""\
schema_version = "1.0"

[dataset]
name = "acme/arith"
version = "1.0.0"
description = ""
authors = []
keywords = []

[[tasks]]
name = "acme/a"
digest = "{A}"

[[tasks]]
name = "acme/b"
digest = "{B}"

[[files]]
path = "metric.py"
digest = "{A}"
"""
    )
