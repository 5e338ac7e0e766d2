"""A server's own folder and the root of its tree are importable, as when NeMo Gym starts it."""

import sys

import pytest
from systems.nemo_gym.serve.asking import SERVER

from calipers.errors import InputError, PluginError
from calipers.systems.nemo_gym import hooks
from calipers.systems.nemo_gym.hooks import load_hooks, server_class


@pytest.fixture(autouse=True)
def _path_as_it_was(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(hooks, "_added", set())


def server(root, name, lines, body=""):
    folder = root / "resources_servers" / name
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(SERVER.format(hooks=lines, body=body))
    return folder


def value_of(folder):
    return load_hooks(f"{folder / 'app.py'}:Server").compute_metrics([])["value"]


HOOK = "def compute_metrics(self, tasks):\n        return {'value': "


def test_modules_beside_it_each_its_own(tmp_path):
    folders = []
    for name in ("one_server", "two_server"):
        folder = server(tmp_path, name, "import beside_it", HOOK + "beside_it.VALUE}")
        (folder / "beside_it.py").write_text(f"VALUE = {name!r}\n")
        folders.append(folder)
    assert [value_of(folder) for folder in folders] == ["one_server", "two_server"]


def test_modules_of_the_tree(tmp_path):
    base = server(tmp_path, "base_server", "VALUE = 7")
    (base / "more.py").write_text("LATER = 8\n")
    later = HOOK + "_later()}\n\n\ndef _later():\n    from resources_servers.base_server.more import LATER\n"
    folder = server(tmp_path, "mine", "from resources_servers.base_server.app import VALUE", later + "    return LATER")
    assert value_of(folder) == 8  # imported in the hook, after the file was loaded


def test_two_trees(tmp_path):
    values = []
    for tree in ("first", "second"):
        server(tmp_path / tree, "base_server", f"VALUE = {tree!r}")
        line = "from resources_servers.base_server.app import VALUE"
        values.append(value_of(server(tmp_path / tree, "mine", line, HOOK + "VALUE}")))
    assert values == ["first", "second"]


def test_the_path_of_others_stays_as_it_is(tmp_path, monkeypatch):
    folder = server(tmp_path, "mine", "import sys; sys.path.insert(0, '/put/by/the/server')", HOOK + "1}")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    for _ in range(2):
        assert value_of(folder) == 1
        assert sys.path[:2] == ["/put/by/the/server", str(folder)]
        assert (sys.path.count(str(folder)), sys.path.count(str(tmp_path))) == (1, 1)
        sys.path.pop(0)


def test_what_is_lent_wins_over_the_tree(tmp_path):
    """The tree's own nemo_gym needs packages that a server does not need."""
    (tmp_path / "nemo_gym").mkdir()
    (tmp_path / "nemo_gym" / "__init__.py").write_text("raise ImportError('omegaconf')\n")
    assert value_of(server(tmp_path, "mine", "from nemo_gym import PARENT_DIR", HOOK + "1}")) == 1


def test_a_module_that_is_not_there(tmp_path):
    folder = server(tmp_path, "mine", "import nowhere_to_be_seen")
    with pytest.raises(PluginError, match=r"app.py:\d+: ModuleNotFoundError: No module named 'nowhere_to_be_seen'"):
        value_of(folder)


def test_the_class_that_a_file_starts(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("if __name__ == '__main__':\n    Mine.run_webserver()\n")
    assert server_class(str(app)) == "Mine"
    app.write_text("A.run_webserver()\nB.run_webserver()\n")
    with pytest.raises(InputError, match="it starts A, B; expected FILE:CLASS"):
        server_class(str(app))
    app.write_text("pass\n")
    with pytest.raises(InputError, match="it starts no server"):
        server_class(str(app))
