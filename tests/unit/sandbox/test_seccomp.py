"""The seccomp filter, run by a BPF interpreter written for the test: call by call, argument by argument."""

import errno
import struct

import pytest

from toolcrib.core.errors import Misconfigured
from toolcrib.sandbox.seccomp import program

ALLOW, DENY, KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
MISSING, NO_MEMORY = 0x00050000 | errno.ENOSYS, 0x00050000 | errno.ENOMEM
NO_ATTRIBUTES = 0x00050000 | errno.EOPNOTSUPP
X86_64, AARCH64 = 0xC000003E, 0xC00000B7


def judged(machine: str, audit: int, number: int, *arguments: int, **options: bool) -> int:
    data = struct.pack("<iIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    code = list(struct.iter_unpack("<HBBI", program(machine, **options)))
    at = value = 0
    while True:
        kind, then, otherwise, operand = code[at]
        at += 1
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                at += then if value == operand else otherwise
            case 0x45:
                at += then if value & operand else otherwise
            case 0x35:
                at += then if value >= operand else otherwise
            case 0x06:
                return int(operand)


@pytest.mark.parametrize(
    ("number", "arguments", "verdict"),
    [
        (0, (), ALLOW),  # read
        (59, (), ALLOW),  # execve
        (101, (), DENY),  # ptrace
        (165, (), DENY),  # mount
        (435, (), MISSING),  # clone3
        (56, (0x11,), ALLOW),  # clone, as fork does it
        (56, (0x3D0F00,), ALLOW),  # clone, as threads do it
        (56, (0x10000011,), DENY),
        (56, (0x20000011,), DENY),
        (56, (0x40000011,), DENY),
        (56, (0x00020011,), DENY),
        (16, (0, 0x5401), ALLOW),  # TCGETS
        (16, (0, 0x5412), DENY),
        (16, (0, 0x5412 | 1 << 32), DENY),
        (16, (0, 0x541C), DENY),
        (41, (1, 1, 0), ALLOW),
        (41, (2, 1, 0), ALLOW),
        (41, (10, 1, 0), ALLOW),
        (41, (16, 3, 0), ALLOW),
        (41, (16, 3, 9), DENY),
        (41, (17, 3, 0), DENY),
        (41, (40, 1, 0), DENY),
        (41, (40 | 1 << 32, 1, 0), DENY),
        (29, (0, 4096), ALLOW),
        (29, (0, 64 << 10), ALLOW),
        (29, (0, (64 << 10) + 1), DENY),
        (29, (0, 1 << 32), DENY),
        (157, (1, 0), 0x00050000),  # prctl PR_SET_PDEATHSIG: reports success, does nothing
        (157, (15, 0), ALLOW),
        (90, (0, 0o755), ALLOW),  # chmod
        (90, (0, 0o1777), ALLOW),
        (90, (0, 0o4755), DENY),
        (91, (0, 0o2755), DENY),  # fchmod
        (268, (0, 0, 0o6755), DENY),  # fchmodat
        (452, (0, 0, 0o4000, 0), DENY),  # fchmodat2
        (85, (0, 0o4755), DENY),  # creat
        (2, (0, 0o101, 0o755), ALLOW),  # open
        (2, (0, 0o101, 0o4755), DENY),
        (2, (0, 0, 0o4755), ALLOW),  # creates nothing, so its mode is ignored
        (257, (0, 0, 0o101, 0o2755), DENY),  # openat
        (257, (0, 0, 0o20200002, 0o4700), DENY),  # O_TMPFILE
        (437, (), MISSING),  # openat2
        (133, (0, 0o100644), ALLOW),  # mknod of a file
        (133, (0, 0o010644), ALLOW),
        (133, (0, 0o140644), ALLOW),
        (133, (0, 0o104755), DENY),
        (133, (0, 0o020644), DENY),
        (259, (0, 0, 0o060644), DENY),  # mknodat
        (188, (), NO_ATTRIBUTES),  # setxattr
        (190, (), NO_ATTRIBUTES),
        (463, (), MISSING),  # setxattrat
        (9, (0, 1 << 40, 3, 0x22), ALLOW),  # mmap, private
        (9, (0, 1 << 40, 3, 0x01), ALLOW),  # of a file
        (9, (0, 16 << 20, 3, 0x21), ALLOW),
        (9, (0, (16 << 20) + 1, 3, 0x21), NO_MEMORY),
        (9, (0, 1 << 32, 3, 0x21), NO_MEMORY),
        (9, (0, 17 << 20, 3, 0x23), NO_MEMORY),  # MAP_SHARED_VALIDATE
        (9, (0, 4096, 3, 0x40022), NO_MEMORY),  # MAP_HUGETLB
        (0x40000000, (), DENY),
        (0x40000000 | 101, (), DENY),
    ],
)
def test_the_filter_on_x86_64(number: int, arguments: tuple[int, ...], verdict: int) -> None:
    assert judged("x86_64", X86_64, number, *arguments) == verdict


@pytest.mark.parametrize(
    ("number", "arguments", "verdict"),
    [
        (63, (), ALLOW),
        (117, (), DENY),
        (220, (0x10000011,), DENY),
        (29, (0, 0x5412), DENY),
        (198, (40,), DENY),
        (52, (0, 0o4755), DENY),
        (53, (0, 0, 0o2755), DENY),
        (56, (0, 0, 0o101, 0o4755), DENY),
        (33, (0, 0, 0o020644), DENY),
        (222, (0, 17 << 20, 3, 0x21), NO_MEMORY),
    ],
)
def test_the_filter_on_aarch64(number: int, arguments: tuple[int, ...], verdict: int) -> None:
    assert judged("aarch64", AARCH64, number, *arguments) == verdict


def test_without_unix_sockets_the_other_families_stay_allowed() -> None:
    verdicts = [judged("x86_64", X86_64, 41, family, 1, 0, unix_sockets=False) for family in (1, 2, 10, 16, 40)]
    assert verdicts == [DENY, ALLOW, ALLOW, ALLOW, DENY]
    assert judged("x86_64", X86_64, 53, 1, 1, 0, unix_sockets=False) == ALLOW  # socketpair


def test_where_the_kernel_counts_memory_shared_mappings_have_any_size() -> None:
    assert judged("x86_64", X86_64, 9, 0, 1 << 32, 3, 0x21, shared_memory=True) == ALLOW


@pytest.mark.parametrize("audit", [0x40000003, AARCH64, 0])
def test_calls_of_another_architecture_kill_the_process(audit: int) -> None:
    assert judged("x86_64", audit, 0) == KILL


def test_an_unknown_machine_is_rejected() -> None:
    with pytest.raises(Misconfigured, match="riscv64"):
        program("riscv64")
