import pytest
from systems.nemo_gym.serve.asking import server_file

from calipers.errors import PluginError
from calipers.systems.nemo_gym.hooks import load_hooks, load_server


def test_a_server_knows_its_place(tmp_path):
    hosted = load_server(server_file(tmp_path), "127.0.0.1", 8123)
    config = hosted.server.config
    assert (config.name, config.host, config.port, config.entrypoint) == ("Server", "127.0.0.1", 8123, "my_server.py")
    assert not hosted.aggregates_itself
    # the class does not override them
    assert (hosted.hooks.compute_metrics, hosted.hooks.get_key_metrics) == (None, None)


def test_state_of_its_own(tmp_path):
    state = "def model_post_init(self, context):\n        self._seen = [self.config.name]\n\n    _seen: list"
    state += "\n\n    def compute_metrics(self, tasks):\n        return {'seen': self._seen}"
    assert load_server(server_file(tmp_path, state)).hooks.compute_metrics([]) == {"seen": ["Server"]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def setup_webserver(self):\n        1 / 0", "my_server.py:11: setup_webserver failed: ZeroDivisionError"),
        ("def setup_webserver(self):\n        pass", "setup_webserver returned NoneType; expected the FastAPI"),
    ],
)
def test_a_web_application_that_is_none(tmp_path, body, said):
    with pytest.raises(PluginError) as caught:
        load_server(server_file(tmp_path, body)).web()
    assert said in str(caught.value)


def test_a_server_that_cannot_be_made(tmp_path):
    with pytest.raises(PluginError, match=r"my_server.py:11: Server cannot be created: KeyError: 'x'"):
        load_server(server_file(tmp_path, "def model_post_init(self, context):\n        {}['x']"))


def test_hooks_without_a_server(tmp_path):
    """To score a file, nothing is configured; a class that cannot be instantiated still has its hooks."""
    hook = "def compute_metrics(self, tasks):\n        return {'n': len(tasks)}"
    hook += "\n\n    def model_post_init(self, context):\n        1 / 0"
    assert load_hooks(server_file(tmp_path, hook)).compute_metrics([[]]) == {"n": 1}


def test_hooks_without_a_server_see_defaults_and_settings(tmp_path):
    body = "_seen: int = PrivateAttr(default=3)\n    more: int = 5"
    body += "\n\n    def compute_metrics(self, tasks):\n        return {'n': [self._seen, self.more, self.config.name]}"
    body += "\n\n    def __init__(self, **given):\n        raise RuntimeError('it would ask the network')"
    spec = server_file(tmp_path, body, "from pydantic import PrivateAttr")
    assert load_hooks(spec).compute_metrics([]) == {"n": [3, 5, "Server"]}


@pytest.mark.parametrize("load", [load_hooks, load_server])
def test_an_async_hook_is_refused(tmp_path, load):
    with pytest.raises(PluginError, match=r"my_server.py: compute_metrics is async; expected a plain def"):
        load(server_file(tmp_path, "async def compute_metrics(self, tasks):\n        return {}"))
