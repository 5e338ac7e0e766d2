import pytest
from systems.nemo_gym.serve.asking import server_file

from calipers.errors import InputError, PluginError
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


@pytest.mark.parametrize(
    "hook",
    [
        "from functools import partial\nclass Server:\n    compute_metrics = partial(lambda tasks: {'n': 1})",
        "class Hook:\n    def __call__(self, tasks):\n        return {'n': 1}\n"
        "class Server:\n    compute_metrics = Hook()",
    ],
)
def test_a_hook_may_be_any_callable(tmp_path, hook):
    """One without a name of its own ended with an internal error."""
    (tmp_path / "app.py").write_text(hook)
    assert load_hooks(f"{tmp_path / 'app.py'}:Server").compute_metrics([]) == {"n": 1}


def test_a_hook_that_cannot_be_called_is_refused(tmp_path):
    (tmp_path / "app.py").write_text(
        "class Server:\n    compute_metrics = 5\n    def get_key_metrics(self, metrics):\n        return {}"
    )
    with pytest.raises(PluginError, match=r"app.py: compute_metrics is int; expected a plain def"):
        load_hooks(f"{tmp_path / 'app.py'}:Server")


@pytest.mark.parametrize("config", ["", "    config: dict\n", "    config: int = 3\n"])
def test_a_class_without_settings_is_no_server(tmp_path, config):
    """It was an internal error."""
    method = "    def setup_webserver(self):\n        1 / 0"
    (tmp_path / "app.py").write_text(f"from pydantic import BaseModel\nclass Server(BaseModel):\n{config}{method}")
    with pytest.raises(InputError, match="Server is not a resources server; expected a subclass of nemo_gym"):
        load_server(f"{tmp_path / 'app.py'}:Server")
