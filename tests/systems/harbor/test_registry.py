import json
import shutil

import pytest
from systems.harbor.given import dataset, task, write

from calipers.errors import InputError, UnknownName
from calipers.systems.harbor.registry import is_spec, pick_version, publish_dataset, resolve


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["1.0", "head", "9.9"], "head"),
        (["1.9", "1.10", "1.10rc1", "junk"], "1.10"),
        (["alpha", "zeta", "beta"], "zeta"),
        (["1.0rc1"], "1.0rc1"),
        (["2024-01-01", "v2"], "v2"),  # a leading v is PEP 440's too
        (["1!0.1", "9"], "1!0.1"),  # an epoch comes first
    ],
)
def test_pick_version(versions, expected):
    assert pick_version(versions) == expected


def test_no_version_at_all():
    with pytest.raises(InputError, match="there is no version to pick"):
        pick_version([])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("acme/arith", True),
        ("acme/arith@1.0", True),
        ("arith", False),
        ("./a/b", False),
        ("/a/b", False),
        ("a/b@", False),
        ("../b", False),
    ],
)
def test_specs(text, answer):
    assert is_spec(text) is answer


@pytest.fixture
def reg(tmp_path):
    place = dataset(tmp_path / "d", "a", "b", toml='[dataset]\nname = "acme/d"\nversion = "1"\n')
    write(place / "metric.py", "x")
    with open(place / "dataset.toml", "a") as file:
        file.write('[[tasks]]\nname = "acme/a"\n[[tasks]]\nname = "acme/b"\n')
    publish_dataset(place, tmp_path / "reg")
    return tmp_path / "reg"


def edit(reg, change):
    entries = json.loads((reg / "registry.json").read_text())
    change(entries)
    write(reg / "registry.json", json.dumps(entries))


def stored(reg, name):
    return next(reg.glob(f"objects/*/{name}"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda reg: write(stored(reg, "a") / "instruction.md", "x"), "objects/{hex}/a: its digest is"),
        (lambda reg: write(stored(reg, "a") / "tests" / "more", "x"), "it was changed after it was published"),
        (lambda reg: write(reg / "datasets/acme/d/1/metric.py", "y"), "metric.py: its digest is"),
        (lambda reg: (stored(reg, "a") / "tests" / "leak").symlink_to("/etc/passwd"), "is a link out of"),
        (lambda reg: shutil.rmtree(stored(reg, "a")), "is not a task"),
        (lambda reg: (reg / "datasets/acme/d/1/dataset.toml").unlink(), "contains no dataset.toml for it"),
        (lambda reg: edit(reg, lambda e: e[0].update(digest="0" * 64)), "its digest is 000"),
        (lambda reg: edit(reg, lambda e: e[0]["tasks"].pop()), "its tasks differ from those of its dataset.toml"),
        (lambda reg: edit(reg, lambda e: e[0].update(version="2")), "acme/d@2: "),
        (lambda reg: edit(reg, lambda e: e[0].update(files="../d")), "the path '../d' points outside"),
        (lambda reg: edit(reg, lambda e: e[0]["tasks"][0].update(path="/etc")), "the path '/etc' points outside"),
        (
            lambda reg: edit(reg, lambda e: e[0]["tasks"][0].update(path=e[0]["tasks"][1]["path"])),
            "its digest is",  # another task's content under this one's name
        ),
        (
            lambda reg: edit(reg, lambda e: e[0]["metrics"][0]["kwargs"].update(script_path="registry.json")),
            "expected the metric.py that its dataset.toml names",
        ),
        (lambda reg: edit(reg, lambda e: e.append(e[0])), "acme/d@1 appears twice"),
        (lambda reg: write(reg / "registry.json", "{"), "cannot be read"),
        (lambda reg: write(reg / "registry.json", "[{}]"), "missing required field `name`"),
        (lambda reg: (reg / "registry.json").unlink(), "is not a registry; expected a directory with registry.json"),
    ],
)
def test_what_was_changed_after_publication_is_refused(reg, spoil, said):
    digits = stored(reg, "a").parent.name
    spoil(reg)
    with pytest.raises(InputError) as error:
        resolve("acme/d", reg)
    assert said.replace("{hex}", digits) in str(error.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("acme/dd", "no dataset in {reg} named 'acme/dd'; did you mean 'acme/d'?"),
        ("acme/d@9", "no version of acme/d named '9'; its versions are 1"),
    ],
)
def test_unknown_names(reg, spec, said):
    with pytest.raises(UnknownName) as error:
        resolve(spec, reg)
    assert str(error.value) == said.replace("{reg}", str(reg))


def test_a_name_of_no_dataset(reg):
    with pytest.raises(InputError, match="'d': does not name a dataset; expected org/name or org/name@version"):
        resolve("d", reg)


def test_a_registry_that_is_nested_too_deeply(tmp_path):
    (tmp_path / "registry.json").write_text('[{"name": "a/b", "version": "1", "metrics": [{"x": ' + "[" * 100_000)
    with pytest.raises(InputError, match=r"registry\.json: cannot be read \(.*; expected Harbor's list of datasets"):
        resolve("a/b", tmp_path)


def test_a_registry_by_other_hands(tmp_path):
    """Local paths are relative to it, a repository is not fetched, and there are no digests."""
    task(tmp_path / "tasks" / "one")
    write(tmp_path / "m.py", "x")
    metrics = [{"type": "sum"}, {"type": "uv-script", "kwargs": {"script_path": "m.py"}}]
    entry = {"name": "o/d", "version": "1.0", "description": "d", "tasks": [{"name": "one", "path": "tasks/one"}]}
    remote = {"name": "r", "path": "t", "git_url": "https://example.org/r.git", "git_commit_id": "abc"}
    entries = [{**entry, "metrics": metrics}, {"name": "o/far", "version": "1", "tasks": [remote]}]
    path = write(tmp_path / "registry.json", json.dumps(entries))
    found = resolve("o/d", path)  # the file itself, as Harbor's --registry-path takes it
    assert [one.path for one in found.tasks] == [tmp_path / "tasks" / "one"]
    assert (found.metric_script, found.metrics, found.digest) == (tmp_path / "m.py", ({"type": "sum"},), "")
    with pytest.raises(InputError, match=r"is in the repository https://example\.org/r\.git; clone it"):
        resolve("o/far", path)


def test_a_name_that_is_too_long_is_no_registry():
    with pytest.raises(InputError, match=r"x: is not a registry; expected a directory with registry\.json"):
        resolve("acme/d", "x" * 300)
