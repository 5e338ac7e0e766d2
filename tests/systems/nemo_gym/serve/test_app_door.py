import socket

import pytest

from calipers.systems.nemo_gym.serve.app import Door

HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "header", "known"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1:8000", True),
        ("127.0.0.1", "LocalHost:8000", True),
        ("127.0.0.1", "[::1]:8000", True),
        ("127.0.0.1", "127.9.9.9", True),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example:8000", False),  # a name whose owner may point it at this machine
        ("127.0.0.1", "10.0.0.1", False),
        ("127.0.0.1", f"not-{HERE}", False),
        ("0.0.0.0", "10.0.0.1:8000", True),  # an IP address cannot be pointed elsewhere
        ("0.0.0.0", HERE, True),
        ("0.0.0.0", "evil.example", False),
        ("box.example", "box.example:1", True),
        ("box.example", "evil.example", False),
    ],
)
def test_who_is_meant(host, header, known):
    assert Door(host).knows(header) is known


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)]
)
def test_who_can_reach_it(host, local):
    assert Door(host).local is local
