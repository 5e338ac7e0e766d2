"""Cgroups: where they may be made, that their memory limit holds, and that none is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from isolate.captive import captive, said

from calipers.isolate import Limits
from calipers.isolate.limits import SANDBOX, CgroupParent, container_parents, group, sandbox_parents

V1 = "36 24 0:31 {root} /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory"
CPU = "35 24 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
V2 = "36 24 0:31 {root} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
OWN, ABOVE = "/sys/fs/cgroup/user.slice/app.slice/one.scope", "/sys/fs/cgroup/user.slice/app.slice"


@pytest.mark.parametrize(
    ("membership", "mounts", "found"),
    [
        ("4:memory:/\n1:cpu:/x\n", [CPU, V1.format(root="/")], [("/sys/fs/cgroup/memory", 1)]),
        ("4:memory:/a/b", [V1.format(root="/")], [("/sys/fs/cgroup/memory/a/b", 1)]),
        ("4:cpu,memory:/a/b", [V1.format(root="/a")], [("/sys/fs/cgroup/memory/b", 1)]),
        ("4:memory:/a", [V1.format(root="/other")], []),  # another group is mounted here
        ("4:memory:/../b", [V1.format(root="/")], []),  # ours lies outside of what we may see
        ("1:cpu:/", [CPU], []),
        ("0::/", [V2.format(root="/")], [("/sys/fs/cgroup", 2)]),
        ("0::/user.slice/app.slice/one.scope", [V2.format(root="/")], [(OWN, 2), (ABOVE, 2)]),
        ("", [], []),
    ],
)
def test_only_in_our_own_group_or_right_above_it(membership, mounts, found):
    assert [*sandbox_parents(membership, "\n".join(mounts))] == [
        CgroupParent(Path(path), version) for path, version in found
    ]


@pytest.mark.parametrize(
    ("membership", "mounts", "found"),
    [
        (
            "4:memory:/a\n1:cpu,cpuacct:/x",
            [CPU, V1.format(root="/")],
            ["/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/memory/a"],
        ),
        ("4:memory:/a", [V1.format(root="/other")], []),
        ("4:cpu,memory:/a", [f"{CPU},memory"], ["/sys/fs/cgroup/cpu/a"]),  # one folder for two controllers
        ("0::/user.slice/app.slice/one.scope", [V2.format(root="/")], [ABOVE]),  # beside our own, which has processes
        ("0::/", [V2.format(root="/")], ["/sys/fs/cgroup"]),
    ],
)
def test_those_of_a_container_stand_beside_our_own(membership, mounts, found):
    assert [*map(str, container_parents(membership, "\n".join(mounts)))] == found


@pytest.fixture
def found_place():
    """The same, or no test."""
    made = group(64 << 20)
    if made is None:
        pytest.skip("no cgroup can be had here")
    made.close()
    return made.path.parent


BEFORE = set()  # groups of judges that other tests of this process keep: they are not what is left here


@pytest.fixture
def place(found_place):
    """Where groups are made here."""
    BEFORE.clear()
    BEFORE.update(found_place.glob(f"{SANDBOX}{os.getpid()}-*"))
    return found_place


def left(place):
    return [path for path in place.glob(f"{SANDBOX}{os.getpid()}-*") if path not in BEFORE]


def test_the_kernel_keeps_the_limit_and_nothing_is_left(mechanism, place):
    code = """
        import os, time
        for _ in range(6):
            if os.fork() == 0:
                held = bytearray(b"x") * (60 << 20)
                time.sleep(1000)
        time.sleep(1000)
    """
    assert captive(code, mechanism, limits=Limits(memory_mb=128, seconds=60)).stopped == "memory"
    assert left(place) == []


def test_every_process_of_the_sandbox_is_in_it(mechanism, place):
    code = """
        import os
        print({line.split(":", 2)[2] for pid in ("1", "self") for line in open(f"/proc/{pid}/cgroup")
               if ":memory:" in line or line.startswith("0::")})
        print([path for path in ("/sys/fs/cgroup", "/proc/1/fd") if os.access(path, os.R_OK)])
    """
    where, readable = said(code, mechanism)
    assert SANDBOX in where
    assert readable == "[]"
    assert left(place) == []


def test_a_group_that_was_not_exceeded_says_so(place):
    made = group(64 << 20)
    assert made is not None
    try:
        assert not made.exceeded()
    finally:
        made.close()
    assert left(place) == []
