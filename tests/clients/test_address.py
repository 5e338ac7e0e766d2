import asyncio

import pytest
from clients.asking import answer, request, talk
from clients.weather import Server

from calipers.clients import Connection, connect
from calipers.clients.address import OFFICIAL, called, find, is_loopback, without_keys
from calipers.errors import InputError

KEY = "sk-test-0123456789"


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("base", "api", "url"),
    [
        ("http://localhost:8000/v1", "chat", "http://localhost:8000/v1/chat/completions"),
        ("http://localhost:8000/v1/", "completions", "http://localhost:8000/v1/completions"),
        ("http://localhost:8000", "chat", "http://localhost:8000/chat/completions"),
        ("http://[::1]:8000/v1", "chat", "http://[::1]:8000/v1/chat/completions"),
        ("http://localhost/v1/chat/completions", "chat", "http://localhost/v1/chat/completions"),  # as in lm-eval
        ("https://x.example/v1?api-version=2", "chat", "https://x.example/v1/chat/completions?api-version=2"),
    ],
)
def test_the_route_of_a_base_url(base, api, url):
    assert find(Connection(base_url=base, api=api)).url == url


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("HTTP://LocalHost:8000/v1/", "http://localhost:8000/v1"),
        ("http://host:80/v1", "http://host/v1"),
        ("https://host:443", "https://host"),
        ("https://host:80/v1", "https://host:80/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://host/v1/chat/completions", "http://host/v1"),
        ("http://host/v1/completions", "http://host/v1"),
        ("https://me:secret@host/V1", "https://host/V1"),
        ("https://host/v1?api-key=sk-1&api-version=2&sig=x", "https://host/v1?api-version=2"),
        ("https://host/v1?Password=a&passwd=b&auth=c&jwt=d&code=e&mode=f", "https://host/v1?mode=f"),
    ],
)
def test_a_base_url_has_one_spelling_and_no_key(url, plain):
    assert without_keys(url) == plain
    assert without_keys(plain) == plain


def test_a_base_url_that_is_none_is_an_error():
    with pytest.raises(InputError, match="cannot parse the host or port of the URL"):
        without_keys("http://host:port/v1")


def test_which_server_is_called(monkeypatch):
    """The resolved URL counts, not where it was given."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert called(None) == OFFICIAL
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1/")
    assert called(None) == called("http://localhost:1/v1") == "http://localhost:1/v1"
    assert called("http://localhost:2/v1") == "http://localhost:2/v1"


def test_which_base_url(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert find(Connection()).url == f"{OFFICIAL}/chat/completions"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/a")
    assert find(Connection()).url == "http://localhost:1/a/chat/completions"
    assert find(Connection(base_url="http://localhost:1/b")).url == "http://localhost:1/b/chat/completions"


@pytest.mark.parametrize("key", ["", " \n"])
def test_the_official_server_wants_a_key(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    for base in (None, OFFICIAL):
        with pytest.raises(InputError, match=r"^\$OPENAI_API_KEY is not set; set it, or name another server"):
            find(Connection(base_url=base))
    assert "Authorization" not in find(Connection(base_url="http://localhost/v1")).headers


def test_a_key_that_is_set_is_sent_anywhere_and_is_a_secret(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    connection = Connection(base_url="http://localhost/v1")
    found = find(connection)
    assert found.headers["Authorization"] == f"Bearer {KEY}"
    assert connection.secrets.scrub(f"Bearer {KEY}") == "Bearer [secret]"
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("base", "key", "noted"),
    [
        ("http://10.0.0.1:8000/v1", KEY, True),
        ("http://10.0.0.1:8000/v1", "", False),  # without a key
        ("https://10.0.0.1/v1", KEY, False),
        ("http://localhost:8000/v1", KEY, False),
    ],
)
def test_a_key_in_plain_text_is_worth_a_note(monkeypatch, base, key, noted):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    notes = connect("openai/any", Connection(base_url=base)).notes
    expected = ["the API key is sent to 10.0.0.1:8000 unencrypted: the URL is http, not https"]
    assert notes == (expected if noted else [])


@pytest.mark.parametrize("key", ["sk-12345\r\nX-Evil: 1", "sk-schlüssel"])
def test_a_key_that_no_header_can_hold(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match="printable ASCII") as raised:
        find(Connection(base_url="http://localhost/v1"))
    assert key not in str(raised.value)


@pytest.mark.parametrize(
    ("base", "wrong"),
    [
        ("http://me:hunter22@localhost/v1", "the URL contains a user name or a password; put the key in"),
        ("http://hunter22@localhost/v1", "the URL contains a user name or a password"),
        ("localhost:8000/v1", "'localhost:8000/v1' is not a server address; expected http(s)://HOST/PATH"),
        ("ftp://localhost/v1", "'ftp://localhost/v1' is not a server address"),
        ("me:hunter22@localhost/v1", "the URL is not a server address; expected"),
        ("localhost/v1?api-key=hunter22", "the URL is not a server address; expected"),
        ("http://localhost/v1?api-key=hunter22#a", "the URL is not a server address; expected"),
        ("http:///v1", "'http:///v1' is not a server address"),
        ("http://localhost/v1#a", "'http://localhost/v1#a' is not a server address"),
        ("http://localhost:99999/v1", "cannot parse the host or port of the URL"),
        ("http://localhost:0/v1", "'http://localhost:0/v1' is not a server address"),
        (f"http://{'a' * 64}/v1", "cannot parse the host or port of the URL"),  # too long for a host name
        ("http://[::1/v1", "cannot parse the host or port of the URL"),
        ("http://local host/v1", "the URL contains spaces or control characters"),
        ("http://localhost/v1\n", "the URL contains spaces or control characters"),
    ],
)
def test_urls_that_are_refused(monkeypatch, base, wrong):
    with pytest.raises(InputError) as raised:
        find(Connection(base_url=base))
    assert str(raised.value).startswith(f"--base-url: {wrong}")
    assert "hunter22" not in str(raised.value)
    monkeypatch.setenv("OPENAI_BASE_URL", base)
    with pytest.raises(InputError, match=r"^\$OPENAI_BASE_URL: "):
        find(Connection())


@pytest.mark.parametrize("form", ["abc%2Bdef12", "abc%2bdef12"])
@pytest.mark.parametrize("name", ["api-key", "password", "c%6fde"])
def test_a_key_in_the_query_is_a_secret(name, form):
    connection = Connection(base_url=f"https://x.example/v1?{name}={form}&api-version=2024-02-01")
    find(connection)
    assert connection.secrets.scrub("abc+def12 abc%2Bdef12 2024-02-01") == "[secret] [secret] 2024-02-01"
    assert connection.secrets.scrub(form) == "[secret]"


@pytest.mark.parametrize(
    ("host", "here"),
    [("localhost", True), ("a.localhost", True), ("127.0.0.9", True), ("::1", True), ("10.0.0.1", False)],
)
def test_what_this_machine_is(host, here):
    assert is_loopback(host) is here


@pytest.mark.parametrize(
    ("base", "environment", "expected"),
    [
        ("http://x.example/v1", {"http_proxy": "http://127.0.0.1:3128"}, "http://127.0.0.1:3128"),
        ("https://x.example/v1", {"HTTPS_PROXY": "127.0.0.1:3128"}, "http://127.0.0.1:3128"),
        ("https://x.example/v1", {"all_proxy": "http://127.0.0.1:3128"}, "http://127.0.0.1:3128"),
        ("https://x.example/v1", {"http_proxy": "http://127.0.0.1:3128"}, None),
        ("http://x.example/v1", {"http_proxy": "http://127.0.0.1:3128", "no_proxy": "x.example"}, None),
        ("http://localhost/v1", {"http_proxy": "http://127.0.0.1:3128"}, None),  # never for this machine
        ("http://127.0.0.1/v1", {"all_proxy": "http://127.0.0.1:3128"}, None),
    ],
)
def test_the_proxy_on_the_way(monkeypatch, base, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find(Connection(base_url=base)).proxy == expected


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://", "http://127.0.0.1:x"])
def test_a_proxy_that_cannot_be_used(monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(InputError, match=r"^\$http_proxy: the proxy set in the environment is not usable"):
        find(Connection(base_url="http://x.example/v1"))


def test_a_call_through_a_proxy(monkeypatch):
    async def main():
        async with Server() as server:
            monkeypatch.setenv("http_proxy", f"http://me:hunter%2B22@127.0.0.1:{server.port}")
            connection = Connection(base_url="http://model.example/v1")
            client = connect("openai/any", connection)
            ends = [await answer(client, request()) for _ in range(2)]  # the second call uses the same connection
            await client.close()
            return ends, server.calls, connection.secrets

    ends, calls, secrets = asyncio.run(main())
    assert [end.text for end in ends] in (["5", "5"], ["6", "6"])
    assert {call.headers["Host"] for call in calls} == {"model.example"}
    assert all(call.headers["Proxy-Authorization"].startswith("Basic ") for call in calls)
    assert secrets.scrub("hunter%2B22 hunter+22") == "[secret] [secret]"


def test_a_proxy_never_sees_the_key(monkeypatch):
    """aiohttp sends a session's own headers to the proxy when it opens a tunnel."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    heard = []

    async def deny(reader, writer):
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def main():
        proxy = await asyncio.start_server(deny, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        client = connect("openai/any", Connection(base_url="https://model.example/v1"))
        try:
            return await answer(client, request())
        finally:
            await client.close()
            proxy.close()

    end = asyncio.run(main())
    assert str(end) == "cannot connect to model.example: the proxy returned HTTP 407"
    assert (end.kind, end.retry, end.hopeless) == ("connection", True, True)
    assert heard[0].startswith(b"CONNECT model.example:443 ")
    assert KEY.encode() not in heard[0]


def test_a_proxy_that_is_not_there(monkeypatch, unused_port):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port}")

    async def main():
        client = connect("openai/any", Connection(base_url="http://model.example/v1"))
        try:
            return await answer(client, request())
        finally:
            await client.close()

    assert str(asyncio.run(main())) == "cannot connect to model.example: the proxy cannot be reached"


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as held:  # bound and silent
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_credentials_of_netrc_are_not_sent(monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hunter22\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    _, server, _ = talk([request()])
    assert "Authorization" not in server.calls[0].headers
