import sys
from types import SimpleNamespace

import pytest

import calipers
from calipers.stores import local


class Web:
    """A web server's files by their addresses, as fsspec hands them out."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.fetched = files, []

    def info(self, address: str) -> dict[str, object]:
        return {"type": "file", "size": len(self.files[address])}

    def get_file(self, address: str, path: str) -> None:
        self.fetched.append(address)
        with open(path, "wb") as file:
            file.write(self.files[address])


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    store = Web({})
    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(filesystem=lambda scheme, **settings: store))
    return store


def test_addresses_that_differ_in_their_queries_alone_are_two_files(web):
    base = "https://files.example.org/download"
    web.files = {f"{base}?id={n}": b'{"task":"%d","reward":%d}\n' % (n, n) for n in (0, 1)}
    result = calipers.score([*web.files])
    assert result["mean_reward"].value == 0.5
    assert [each.path for each in result.inputs] == [base, f"{base} (2)"]
    for address, (name, content) in zip([base, f"{base} (2)"], web.files.items(), strict=True):
        for again in (address, name):  # later commands ask by the address that was shown
            with open(local(again), "rb") as file:
                assert file.read() == content
    assert web.fetched == [*web.files]
