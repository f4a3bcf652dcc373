"""The system calls that a command may not make, as a BPF program for bubblewrap. Needs no library."""

import errno
import platform
import stat
import struct
from functools import cache
from typing import Final

from toolcrib.core.errors import Misconfigured

BPF_LD_W_ABS, BPF_JEQ_K, BPF_JSET_K, BPF_JGE_K, BPF_RET_K = 0x20, 0x15, 0x45, 0x35, 0x06
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
SECCOMP_RET_EPERM = SECCOMP_RET_ERRNO | errno.EPERM
SECCOMP_RET_ENOSYS = SECCOMP_RET_ERRNO | errno.ENOSYS

# Offsets in struct seccomp_data: the call's number, its architecture and the low half of its arguments. Where the
# argument is an int, the kernel acts on the low half only: a filter that compares all 64 bits can be bypassed.
SECCOMP_DATA_NR, SECCOMP_DATA_ARCH = 0, 4
SECCOMP_DATA_ARGS = (16, 24, 32, 40)

X32_SYSCALL_BIT = 0x40000000
# Every CLONE_NEW… flag except CLONE_NEWTIME, which is in the byte of the exit signal, where clone reads no flags.
CLONE_NEW_MASK = 0x7E020000
TERMINAL_INJECTION_IOCTLS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
PR_SET_PDEATHSIG = 1
ALLOWED_ADDRESS_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
AF_NETLINK, NETLINK_ROUTE = 16, 0  # getifaddrs needs it; other netlink families reach into the kernel

# Memory that no process maps is accounted to no process. So memory files are denied, and System V segments are so small
# that all of them together take at most 256 MiB.
MAX_SHM_BYTES = 64 << 10
# A shared mapping keeps its pages when every process drops them, or unmaps all but one page. So an anonymous one is
# limited to this size where only a watcher counts memory, and counted in full.
LARGEST_SHARED_MAPPING: Final = 16 << 20
MAP_SHARED, MAP_ANONYMOUS, MAP_HUGETLB = 0x01, 0x20, 0x40000

SET_ID: Final = stat.S_ISUID | stat.S_ISGID
# Set in the types of both kinds of devices (and of links, which mknod does not create), and in no other.
_DEVICE: Final = stat.S_IFCHR & stat.S_IFBLK
O_CREAT, __O_TMPFILE = 0o100, 0o20000000
# Calls newer than this list fail as on an older kernel, because they are not reviewed yet.
_FIRST_UNKNOWN: Final = 463  # setxattrat

AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# fmt: off
DENIED_SYSCALLS: Final = {
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
FILTERED_SYSCALLS: Final = {
    "x86_64": {"clone": 56, "ioctl": 16, "socket": 41, "shmget": 29, "prctl": 157, "mmap": 9},
    "aarch64": {"clone": 220, "ioctl": 29, "socket": 198, "shmget": 194, "prctl": 167, "mmap": 222},
}
# Not EPERM: after ENOSYS, callers fall back to a call whose arguments can be inspected, instead of a structure behind a
# pointer. openat2 could create a file with any mode.
_MISSING: Final = {"clone3": 435, "openat2": 437}
# Fail as on a file system without attributes, which every program handles. Attributes include capabilities, ACLs and
# the marks that hide entries in overlayfs.
_ATTRIBUTES: Final = {
    "x86_64": {"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190},
    "aarch64": {"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7},
}
# Calls that set a file's mode, and the index of that argument. Not mkdir: the kernel ignores these bits there.
_MODES: Final = {
    "x86_64": {
        "chmod": (90, 1), "fchmod": (91, 1), "fchmodat": (268, 2), "fchmodat2": (452, 2), "creat": (85, 1),
        "mknod": (133, 1), "mknodat": (259, 2),
    },
    "aarch64": {"fchmod": (52, 1), "fchmodat": (53, 2), "fchmodat2": (452, 2), "mknodat": (33, 2)},
}
# Calls that set a mode if they create a file, which the argument before says.
_OPENS: Final = {"x86_64": {"open": (2, 2), "openat": (257, 3)}, "aarch64": {"openat": (56, 3)}}
# fmt: on


@cache
def program(machine: str | None = None, *, unix_sockets: bool = True, shared_memory: bool = False) -> bytes:
    """Build the filter for this machine, or for another.

    Args:
        unix_sockets: Without it, only socket pairs can be created: on a live tree, daemons of the host may listen.
        shared_memory: The kernel itself counts shared memory, so that a shared mapping may have any size.
    """
    machine = machine or platform.machine()
    if machine not in AUDIT_ARCH:
        raise Misconfigured(f"No seccomp filter is known for {machine}. Commands need x86_64 or aarch64.")
    calls = FILTERED_SYSCALLS[machine]
    code = [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARCH),
        _step(BPF_JEQ_K, AUDIT_ARCH[machine], then=1),
        _step(BPF_RET_K, SECCOMP_RET_KILL_PROCESS),
        _step(BPF_LD_W_ABS, SECCOMP_DATA_NR),
    ]
    if machine == "x86_64":
        code += [_step(BPF_JGE_K, X32_SYSCALL_BIT, otherwise=1), _step(BPF_RET_K, SECCOMP_RET_EPERM)]
    code += [_step(BPF_JGE_K, _FIRST_UNKNOWN, otherwise=1), _step(BPF_RET_K, SECCOMP_RET_ENOSYS)]
    for number in sorted(DENIED_SYSCALLS[machine].values()):
        code += _rule(number, [_step(BPF_RET_K, SECCOMP_RET_EPERM)])
    for number in _MISSING.values():
        code += _rule(number, [_step(BPF_RET_K, SECCOMP_RET_ENOSYS)])
    for number in _ATTRIBUTES[machine].values():
        code += _rule(number, [_step(BPF_RET_K, SECCOMP_RET_ERRNO | errno.EOPNOTSUPP)])
    for name, (number, argument) in _MODES[machine].items():
        denied = SET_ID | _DEVICE if name.startswith("mknod") else SET_ID
        code += _rule(number, _bits_denied(argument, denied))
    for number, argument in _OPENS[machine].values():
        code += _rule(number, _set_id_files_denied(argument))
    code += _rule(calls["clone"], _bits_denied(0, CLONE_NEW_MASK))
    code += _rule(calls["ioctl"], _terminal_injection_denied())
    code += _rule(calls["socket"], _families_allowed(unix=unix_sockets))
    code += _rule(calls["shmget"], _large_segments_denied())
    code += _rule(calls["prctl"], _death_signal_kept())
    if not shared_memory:
        code += _rule(calls["mmap"], _large_shared_mappings_denied())
    code.append(_step(BPF_RET_K, SECCOMP_RET_ALLOW))
    return b"".join(code)


def _rule(number: int, body: list[bytes]) -> list[bytes]:
    return [_step(BPF_JEQ_K, number, otherwise=len(body)), *body]


def _bits_denied(argument: int, bits: int) -> list[bytes]:
    return [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[argument]),
        _step(BPF_JSET_K, bits, otherwise=1),
        _step(BPF_RET_K, SECCOMP_RET_EPERM),
        _step(BPF_RET_K, SECCOMP_RET_ALLOW),
    ]


def _set_id_files_denied(argument: int) -> list[bytes]:
    """Deny set-id bits when a file is created. Otherwise the mode argument is undefined."""
    return [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[argument - 1]),
        _step(BPF_JSET_K, O_CREAT | __O_TMPFILE, otherwise=3),
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[argument]),
        _step(BPF_JSET_K, SET_ID, otherwise=1),
        _step(BPF_RET_K, SECCOMP_RET_EPERM),
        _step(BPF_RET_K, SECCOMP_RET_ALLOW),
    ]


def _terminal_injection_denied() -> list[bytes]:
    first, second = TERMINAL_INJECTION_IOCTLS
    return [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[1]),
        _step(BPF_JEQ_K, first, then=1),
        _step(BPF_JEQ_K, second, otherwise=1),
        _step(BPF_RET_K, SECCOMP_RET_EPERM),
        _step(BPF_RET_K, SECCOMP_RET_ALLOW),
    ]


def _families_allowed(*, unix: bool) -> list[bytes]:
    af_unix, *internet = ALLOWED_ADDRESS_FAMILIES
    first, second = (af_unix if unix else internet[0], internet[0])
    return [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[0]),
        _step(BPF_JEQ_K, first, then=6),
        _step(BPF_JEQ_K, second, then=5),
        _step(BPF_JEQ_K, internet[1], then=4),
        _step(BPF_JEQ_K, AF_NETLINK, otherwise=2),
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[2]),
        _step(BPF_JEQ_K, NETLINK_ROUTE, then=1),
        _step(BPF_RET_K, SECCOMP_RET_EPERM),
        _step(BPF_RET_K, SECCOMP_RET_ALLOW),
    ]


def _large_shared_mappings_denied() -> list[bytes]:
    return [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[3]),
        _step(BPF_JSET_K, MAP_ANONYMOUS, otherwise=7),
        _step(BPF_JSET_K, MAP_HUGETLB, then=5),
        _step(BPF_JSET_K, MAP_SHARED, otherwise=5),
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[1] + 4),
        _step(BPF_JEQ_K, 0, otherwise=2),
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[1]),
        _step(BPF_JGE_K, LARGEST_SHARED_MAPPING + 1, otherwise=1),
        _step(BPF_RET_K, SECCOMP_RET_ERRNO | errno.ENOMEM),
        _step(BPF_RET_K, SECCOMP_RET_ALLOW),
    ]


def _large_segments_denied() -> list[bytes]:
    return [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[1] + 4),
        _step(BPF_JEQ_K, 0, otherwise=2),
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[1]),
        _step(BPF_JGE_K, MAX_SHM_BYTES + 1, otherwise=1),
        _step(BPF_RET_K, SECCOMP_RET_EPERM),
        _step(BPF_RET_K, SECCOMP_RET_ALLOW),
    ]


def _death_signal_kept() -> list[bytes]:
    """Ignore PR_SET_PDEATHSIG.

    A command can modify the sandbox's first process, which must still die with the server.
    """
    return [
        _step(BPF_LD_W_ABS, SECCOMP_DATA_ARGS[0]),
        _step(BPF_JEQ_K, PR_SET_PDEATHSIG, otherwise=1),
        _step(BPF_RET_K, SECCOMP_RET_ERRNO),  # Report success without doing anything: some runtimes require it.
        _step(BPF_RET_K, SECCOMP_RET_ALLOW),
    ]


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, then, otherwise, value & 0xFFFFFFFF)
