"""Whether this machine gives rooms, and the mark for tests that need one."""

from functools import cache

import pytest

from calipers.systems.harbor.lent.container import Room, RoomError


@cache
def refusal():
    room = Room()
    try:
        room.start()
    except RoomError as error:
        return str(error)
    finally:
        room.stop()
    return ""


needs_rooms = pytest.mark.skipif("__import__('rooms').refusal()", reason="this machine gives no namespaces")
