import pytest
from systems.harbor.given import write

from calipers.errors import InputError
from calipers.systems.harbor.manifest import below, within


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "..", "a/../../b", "../root2/x", "a\\..\\b", "x\0", "out/x", "out", "hop/x"]
)
def test_names_that_lead_elsewhere(tmp_path, name):
    root = tmp_path / "root"
    root.mkdir()
    write(tmp_path / "root2" / "x", "")  # a sibling whose path starts alike
    (root / "out").symlink_to("../root2")
    (root / "hop").symlink_to("out")
    with pytest.raises(InputError, match=r"registry: the path .* points outside; expected a path inside"):
        below(root, name, "registry")


def test_names_that_stay(tmp_path):
    write(tmp_path / "a" / "b", "")
    (tmp_path / "link").symlink_to("a")
    assert below(tmp_path, "a/b") == tmp_path / "a" / "b"
    assert below(tmp_path, "link/b").exists()
    assert below(tmp_path, "a/not-there") == tmp_path / "a" / "not-there"
    assert within(tmp_path, tmp_path)
    assert not within(tmp_path, tmp_path.parent)
