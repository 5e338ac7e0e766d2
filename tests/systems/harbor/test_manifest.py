import pytest
from systems.harbor.given import write

from calipers.errors import InputError
from calipers.systems.harbor.manifest import Author, Pinned, PinnedFile, manifest_digest, read_manifest

A, B = (f"sha256:{letter * 64}" for letter in "ab")
HEAD = '[dataset]\nname = "acme/arith"\n'


def test_every_key(tmp_path):
    text = f"""
    schema_version = "1.0"
    [dataset]
    name = "acme/arith"
    version = "1.0.0"
    description = "d"
    authors = [{{name = "A"}}]
    keywords = ["k"]
    [metadata]
    free = 1
    [[tasks]]
    name = "acme/x"
    digest = "{A}"
    [[files]]
    path = "metric.py"
    digest = "{B}"
    """
    write(tmp_path / "dataset.toml", text)
    found = read_manifest(tmp_path)
    assert (found.name, found.org, found.version, found.description) == ("acme/arith", "acme", "1.0.0", "d")
    assert (found.authors, found.keywords, found.metadata) == ((Author("A"),), ("k",), {"free": 1})
    assert (found.tasks, found.files) == ((Pinned("acme/x", A),), (PinnedFile("metric.py", B),))
    assert found.digest == manifest_digest([A], {"metric.py": B})
    assert found.unknown == []


def test_what_harbor_itself_writes(tmp_path):
    """No schema_version, and an empty list of tasks that ends up inside [dataset]."""
    write(
        tmp_path / "dataset.toml", '[dataset]\nname = "o/n"\ntasks = []\n[[files]]\npath = "metric.py"\ndigest = ""\n'
    )
    found = read_manifest(tmp_path)
    assert (found.tasks, found.files, found.version, found.unknown) == ((), (PinnedFile("metric.py"),), None, [])


def test_metrics_do_not_belong_here(tmp_path):
    """Harbor ignores [[metrics]] silently."""
    write(tmp_path / "dataset.toml", HEAD + '[[metrics]]\ntype = "mean"\n')
    assert [note.removeprefix(str(tmp_path)) for note in read_manifest(tmp_path).unknown] == [
        "/dataset.toml:3: the key 'metrics' is unknown and ignored"
    ]


def test_none(tmp_path):
    assert read_manifest(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 0, "it has no dataset"),
        ("[dataset]\nversion = '1'", 1, "dataset: it has no name"),
        ("[dataset]\nname = 'arith'", 2, "the name is 'arith'; expected org/name"),
        ("[dataset]\nname = 'a/../b'", 2, "the name is"),
        ("[dataset]\nname = 'a/b'\nversion = ''", 3, "the version is empty"),
        ("[dataset]\nname = 'a/b'\nversion = 1.0", 3, "dataset.version: expected text, got a number"),
        (HEAD + "[[tasks]]\nname = 'x'", 4, "the name is 'x'; expected org/name"),
        (HEAD + "[[tasks]]\nname = 'a/x'\ndigest = 'md5:1'", 5, "the digest of a/x is 'md5:1'"),
        (HEAD + "[[tasks]]\nname = 'a/x'\n" * 2, 6, "'a/x' appears twice, first at line 3"),
        (HEAD + "[[files]]\npath = '../metric.py'", 4, "the path is '../metric.py'; expected the bare name"),
        (HEAD + "[[files]]\npath = '/metric.py'", 4, "the path is '/metric.py'"),
        (HEAD + "[[files]]\npath = '..'", 4, "the path is '..'"),
        (HEAD + "[[files]]\npath = 'dataset.toml'", 4, "the path is 'dataset.toml'"),
        (HEAD + "[[files]]\ndigest = ''", 3, "files[0]: it has no path"),
    ],
)
def test_what_is_wrong(tmp_path, text, line, said):
    write(tmp_path / "dataset.toml", text)
    with pytest.raises(InputError) as error:
        read_manifest(tmp_path)
    place = f"dataset.toml:{line}: " if line else "dataset.toml: "
    assert str(error.value).startswith(f"{tmp_path}/{place}{said}")
