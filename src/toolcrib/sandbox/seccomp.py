"""The system calls that a command may not make, as a BPF program for bubblewrap. Written here: no library needed."""

import errno
import os
import platform
import struct
from functools import cache
from typing import Final

from toolcrib.domain.errors import Misconfigured

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_DENY = _ERRNO | errno.EPERM

# Where struct seccomp_data holds the call's number, its architecture and the low half of its arguments. The low half
# is what the kernel acts on where the argument is an int: a filter that compares all 64 bits can be passed by.
_NUMBER, _ARCHITECTURE = 0, 4
_ARGUMENTS = (16, 24, 32)

_X32 = 0x40000000
# Every CLONE_NEW… flag but that of time, which lies in the byte of the exit signal, where clone reads no flags.
_NEW_NAMESPACES = 0x7E020000
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_SET_DEATH_SIGNAL = 1
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NETLINK, _NETLINK_ROUTE = 16, 0  # what getifaddrs asks; the other netlinks reach into the kernel

# Memory that no process maps is in no process's account: files in memory are denied, System V segments kept small
# enough that all that may exist come to 256 MiB.
_LARGEST_SEGMENT = 64 << 10

_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# fmt: off
_DENIED: Final = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438,
        "process_madvise": 440, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "open_tree": 428, "move_mount": 429,
        "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "unshare": 272,
        "setns": 308, "keyctl": 250, "add_key": 248, "request_key": 249, "bpf": 321, "perf_event_open": 298,
        "userfaultfd": 323, "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313,
        "delete_module": 176, "reboot": 169, "swapon": 167, "swapoff": 168, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "quotactl": 179, "quotactl_fd": 443, "acct": 163, "settimeofday": 164,
        "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "iopl": 172, "ioperm": 173, "syslog": 103,
        "vhangup": 153, "nfsservctl": 180, "memfd_secret": 447, "memfd_create": 319, "fanotify_init": 300,
        "lookup_dcookie": 212,
        "move_pages": 279, "migrate_pages": 256, "modify_ldt": 154, "uselib": 134, "ustat": 136, "sysfs": 139,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "pidfd_getfd": 438,
        "process_madvise": 440, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "open_tree": 428, "move_mount": 429,
        "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "unshare": 97,
        "setns": 268, "keyctl": 219, "add_key": 217, "request_key": 218, "bpf": 280, "perf_event_open": 241,
        "userfaultfd": 282, "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273,
        "delete_module": 106, "reboot": 142, "swapon": 224, "swapoff": 225, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "quotactl": 60, "quotactl_fd": 443, "acct": 89, "settimeofday": 170,
        "clock_settime": 112, "clock_adjtime": 266, "adjtimex": 171, "syslog": 116, "vhangup": 58,
        "nfsservctl": 42, "memfd_secret": 447, "memfd_create": 279, "fanotify_init": 262,
        "lookup_dcookie": 18, "move_pages": 239,
        "migrate_pages": 238,
    },
}
_JUDGED: Final = {
    "x86_64": {"clone": 56, "clone3": 435, "ioctl": 16, "socket": 41, "shmget": 29, "prctl": 157},
    "aarch64": {"clone": 220, "clone3": 435, "ioctl": 29, "socket": 198, "shmget": 194, "prctl": 167},
}
# fmt: on


def filter_file() -> int:
    """A descriptor from which bubblewrap reads the program. Made per command: reading moves its offset."""
    file = os.memfd_create("seccomp", 0)
    os.write(file, program())
    os.lseek(file, 0, os.SEEK_SET)
    return file


@cache
def program(machine: str | None = None) -> bytes:
    """The filter for this machine, or for another."""
    machine = machine or platform.machine()
    if machine not in _AUDIT:
        raise Misconfigured(f"No seccomp filter is known for {machine}. Commands need x86_64 or aarch64.")
    calls = _JUDGED[machine]
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, _AUDIT[machine], then=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_step(_AT_LEAST, _X32, otherwise=1), _step(_RETURN, _DENY)]
    for number in sorted(_DENIED[machine].values()):
        code += [_step(_EQUAL, number, otherwise=1), _step(_RETURN, _DENY)]
    # Not EPERM: the C library falls back to clone, whose flags can be looked at.
    code += [_step(_EQUAL, calls["clone3"], otherwise=1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    code += _judge(calls["clone"], _new_namespaces_denied())
    code += _judge(calls["ioctl"], _terminal_injection_denied())
    code += _judge(calls["socket"], _families_allowed())
    code += _judge(calls["shmget"], _large_segments_denied())
    code += _judge(calls["prctl"], _death_signal_kept())
    code.append(_step(_RETURN, _ALLOW))
    return b"".join(code)


def _judge(number: int, body: list[bytes]) -> list[bytes]:
    return [_step(_EQUAL, number, otherwise=len(body)), *body]


def _new_namespaces_denied() -> list[bytes]:
    return [
        _step(_LOAD, _ARGUMENTS[0]),
        _step(_ANY_BIT, _NEW_NAMESPACES, otherwise=1),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]


def _terminal_injection_denied() -> list[bytes]:
    first, second = _TERMINAL_INJECTION
    return [
        _step(_LOAD, _ARGUMENTS[1]),
        _step(_EQUAL, first, then=1),
        _step(_EQUAL, second, otherwise=1),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]


def _families_allowed() -> list[bytes]:
    unix, inet, inet6 = _FAMILIES
    return [
        _step(_LOAD, _ARGUMENTS[0]),
        _step(_EQUAL, unix, then=6),
        _step(_EQUAL, inet, then=5),
        _step(_EQUAL, inet6, then=4),
        _step(_EQUAL, _NETLINK, otherwise=2),
        _step(_LOAD, _ARGUMENTS[2]),
        _step(_EQUAL, _NETLINK_ROUTE, then=1),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]


def _large_segments_denied() -> list[bytes]:
    return [
        _step(_LOAD, _ARGUMENTS[1] + 4),
        _step(_EQUAL, 0, otherwise=2),
        _step(_LOAD, _ARGUMENTS[1]),
        _step(_AT_LEAST, _LARGEST_SEGMENT + 1, otherwise=1),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]


def _death_signal_kept() -> list[bytes]:
    """The first process of the sandbox can be rewritten by a command, and must still die with the server."""
    return [
        _step(_LOAD, _ARGUMENTS[0]),
        _step(_EQUAL, _SET_DEATH_SIGNAL, otherwise=1),
        _step(_RETURN, _ERRNO),  # nothing is done, and success is told: some runtimes insist on it
        _step(_RETURN, _ALLOW),
    ]


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, then, otherwise, value & 0xFFFFFFFF)
