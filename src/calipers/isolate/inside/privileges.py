"""How process 1 gives up every right it has: nobody, in a user namespace of its own, without a way back."""

from __future__ import annotations

import ctypes
import os

NOBODY = 65534
NEWUSER = 0x10000000  # unshare(2)
PDEATHSIG, DUMPABLE, CAPBSET_DROP, SECCOMP, NO_NEW_PRIVS, CAP_AMBIENT = 1, 4, 24, 22, 38, 47  # prctl(2)
AMBIENT_CLEAR_ALL, MODE_FILTER = 4, 2
CAPABILITY_VERSION = 0x20080522
SIGKILL = 9

LIBC = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """A filter of system calls, as prctl(2) wants it."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def give_up(proc: int, root: bool, filter: bytes) -> None:
    """Become nobody, who can get no rights, make no namespaces and call little; ``proc`` is the host's /proc.

    ``root``, the host's own, becomes another user first: it would be beyond every limit on processes.
    """
    _write(proc, "self/oom_score_adj", "1000")  # when memory runs out, the kernel takes this first
    if root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _prctl(DUMPABLE, 1)  # else the maps below belong to root
    user, group = os.geteuid(), os.getegid()
    _call("unshare", LIBC.unshare(NEWUSER))
    _write(proc, "self/setgroups", "deny")
    _write(proc, "self/uid_map", f"{NOBODY} {user} 1")
    _write(proc, "self/gid_map", f"{NOBODY} {group} 1")
    _write(proc, "sys/user/max_user_namespaces", "0")
    _prctl(DUMPABLE, 0)  # so that the program can neither trace process 1 nor open its pipes
    _prctl(CAP_AMBIENT, AMBIENT_CLEAR_ALL)
    for capability in range(64):
        if LIBC.prctl(CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # the kernel knows no more of them
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _call("capset", LIBC.capset(header, none))
    _prctl(NO_NEW_PRIVS, 1)
    _prctl(PDEATHSIG, SIGKILL)  # a change of user has cleared it
    program = Program(len(filter) // 8, filter)
    _call("prctl seccomp", LIBC.prctl(SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0))


def _write(proc: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY, dir_fd=proc)
    try:
        os.write(file, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{name}: {error.strerror}") from error
    finally:
        os.close(file)


def _prctl(option: int, value: int) -> None:
    _call(f"prctl {option}", LIBC.prctl(option, value, 0, 0, 0))


def _call(what: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
