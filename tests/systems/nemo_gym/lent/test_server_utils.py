import pytest
from systems.nemo_gym.serve.asking import asking, server_file

COUNTING = """seen: dict = {}

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/count")(self.count)
        return app

    async def count(self, request: Request) -> dict:
        session = request.session[SESSION_ID_KEY]
        self.seen[session] = self.seen.get(session, 0) + 1
        return {"count": self.seen[session], "session": session}
"""
IMPORTS = "from fastapi import Request\nfrom nemo_gym.server_utils import SESSION_ID_KEY"


@pytest.fixture
def ask(tmp_path):
    with asking(server_file(tmp_path, COUNTING, hooks=IMPORTS)) as found:
        yield found


def test_cookies_keep_clients_apart(ask):
    one, other = (ask.post("/seed_session", {}).headers["set-cookie"] for _ in range(2))
    assert one.startswith("Server___Server=")
    counts = [ask.post("/count", cookie=cookie.partition(";")[0]).json["count"] for cookie in (one, one, other)]
    assert counts == [1, 2, 1]


@pytest.mark.parametrize("cookie", ["Server___Server=../../x", "Server___Server=", "other=1", "\x01;;=", "a=b; [=]"])
def test_a_cookie_of_somebody_else_begins_a_session(ask, cookie):
    found = ask.post("/count", cookie=cookie)
    assert (found.status, found.json["count"], len(found.json["session"])) == (200, 1, 32)
