"""The seccomp filter: the system calls that a program in the sandbox may not make.

Namespaces already keep a program in; this narrows what it can try on the kernel, and closes what no namespace
covers: sockets to the machine's own host, memory that belongs to no process and so escapes every limit, and the
limits and priorities of others. Process 1 has the program's user, so only the filter keeps these two apart.
"""

from __future__ import annotations

import errno
import os
import struct
from functools import cache

from calipers.errors import SandboxError

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column below, AUDIT_ARCH

REFUSED = {  # x86_64, aarch64
    # looking into, or writing to, other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_mrelease": (448, 448),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # memory that no limit sees
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    # other namespaces, other roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # parts of the kernel that were a way out before
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    # the machine itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
}
CLONE3 = (435, 435)
NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: all three end at the network namespace; AF_VSOCK does not
FOREIGN_ABI = 0x40000000  # x32's numbers, on x86_64
ALL = 0xFFFFFFFF
MYSELF = ((0, ALL, (0,)),)  # as the kernel reads it: a process's number is 32 bits wide

# Allowed only where every argument named here, seen through a mask, has one of these values; else this error.
BOUNDED: dict[str, tuple[tuple[int, int], tuple[tuple[int, int, tuple[int, ...]], ...], int]] = {
    "clone": ((56, 220), ((0, NEW_NAMESPACES, (0,)),), errno.EPERM),
    "socket": ((41, 198), ((0, ALL, FAMILIES),), errno.EAFNOSUPPORT),
    # limits and priorities are a process's own: those of process 1 are not the program's to take
    "prlimit64": ((302, 261), MYSELF, errno.EPERM),
    "sched_setparam": ((142, 118), MYSELF, errno.EPERM),
    "sched_setscheduler": ((144, 119), MYSELF, errno.EPERM),
    "sched_setaffinity": ((203, 122), MYSELF, errno.EPERM),
    "sched_setattr": ((314, 274), MYSELF, errno.EPERM),
    "setpriority": ((141, 140), ((0, ALL, (0,)), (1, ALL, (0,))), errno.EPERM),  # PRIO_PROCESS
    "ioprio_set": ((251, 30), ((0, ALL, (1,)), (1, ALL, (0,))), errno.EPERM),  # IOPRIO_WHO_PROCESS
    # Shared memory without a file outlives its place in the address space: nothing but a cgroup could count it.
    "mmap": ((9, 222), ((3, 0x21, (0, 0x01, 0x20)),), errno.ENOMEM),  # MAP_SHARED 1, MAP_ANONYMOUS 0x20
}

LOAD, AND, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # classic BPF
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data; little-endian on both
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000

Step = tuple[int, int, int, int]
"""One instruction: code, how far to jump if true, and if false, and its number."""


@cache
def call_filter() -> bytes:
    """The filter for this machine's architecture, ready for prctl(2)."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        known = " and ".join(sorted(ARCHITECTURES))
        raise SandboxError(f"the sandbox supports only {known}, but this machine is {machine}")
    column, architecture = ARCHITECTURES[machine]
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (JUMP_AT_LEAST, 0, 1, FOREIGN_ABI),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),
        (JUMP_EQUAL, 0, 1, CLONE3[column]),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),  # its flags cannot be seen from here; libc then calls clone
    ]
    for numbers in REFUSED.values():
        steps += [(JUMP_EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, FAIL | errno.EPERM)]
    for numbers, conditions, error in BOUNDED.values():
        steps += _bounded(numbers[column], conditions, error)
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _bounded(number: int, conditions: tuple[tuple[int, int, tuple[int, ...]], ...], error: int) -> list[Step]:
    """The steps for one call that is allowed with some arguments only; any other call passes them by."""
    steps: list[Step] = [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | error)]
    for argument, mask, values in reversed(conditions):
        last = len(values) - 1
        tests = [(JUMP_EQUAL, last - position, 0, value) for position, value in enumerate(values[:-1])]
        tests.append((JUMP_EQUAL, 0, len(steps) - 1, values[-1]))  # to the error, which is the last of all
        steps = [(LOAD, 0, 0, FIRST_ARGUMENT + 8 * argument), (AND, 0, 0, mask), *tests, *steps]
    return [(JUMP_EQUAL, 0, len(steps), number), *steps]
