"""The system calls a program in the sandbox may not make, as the filter the kernel runs.

Namespaces already keep a program in; this narrows what it can try on the kernel, and closes what no namespace
covers: sockets to the machine's own host, and memory that belongs to no process and so escapes every limit.
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
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: all three end at the network namespace; AF_VSOCK does not
FOREIGN_ABI = 0x40000000  # x32's numbers, on x86_64

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data; little-endian on both
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000


@cache
def call_filter() -> bytes:
    """The filter for this machine's architecture, ready for prctl(2)."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        known = " and ".join(sorted(ARCHITECTURES))
        raise SandboxError(f"the sandbox knows the system calls of {known}, and this machine is {machine}")
    column, architecture = ARCHITECTURES[machine]
    steps = [
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
    steps += [
        (JUMP_EQUAL, 0, 3, CLONE[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_BITS, 0, 7, NEW_NAMESPACES),
        (RETURN, 0, 0, FAIL | errno.EPERM),
        (JUMP_EQUAL, 0, 5, SOCKET[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        *((JUMP_EQUAL, 4 - place, 0, family) for place, family in enumerate(FAMILIES, 1)),
        (RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
