"""Whether this machine gives rooms, and the mark for tests that need one."""

from functools import cache

import pytest

from calipers.isolate.container import Container, ContainerError


@cache
def refusal():
    container = Container()
    try:
        container.start()
    except ContainerError as error:
        return str(error)
    finally:
        container.stop()
    return ""


needs_rooms = pytest.mark.skipif("__import__('rooms').refusal()", reason="this machine gives no namespaces")
