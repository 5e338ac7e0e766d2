import pytest

from bench.gym_servers import LOADED, LoadResult, reason_of, table, tried

SERVER = """
from nemo_gym.base_resources_server import *
{line}
class Server(SimpleResourcesServer):
    pass
if __name__ == "__main__":
    Server.run_webserver()
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", LOADED),
        ("import package_of_nobody", "needs the package package_of_nobody"),
        ("from nemo_gym.sandbox import x", "needs nemo_gym.sandbox, which is not provided"),
        ("import urllib.request; urllib.request.urlopen('http://example.invalid/')", "needs a download"),
        ("import os; os._exit(3)", "ended with 3"),
        ("raise ValueError('no')", "fails"),
    ],
)
def test_a_server_is_tried(tmp_path, line, reason):
    app = tmp_path / "resources_servers" / "mine" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(SERVER.format(line=line))
    result = tried(app)
    assert (result.name, result.reason) == ("mine", reason)


def test_one_that_does_not_end(tmp_path):
    (tmp_path / "app.py").write_text(SERVER.format(line="import time; time.sleep(1000)"))
    assert tried(tmp_path / "app.py", seconds=0.5).reason == "takes more than 0 s"


def test_reasons():
    assert reason_of("RuntimeError: no NVIDIA driver on your system") == "needs a GPU"


def test_the_table():
    results = {"needs a GPU": [LoadResult("b", "needs a GPU")], LOADED: [LoadResult("a", LOADED)]}
    assert table(results, 2) == "1 of 2 resources servers load\n   1 loaded: a\n   1 needs a GPU: b"
