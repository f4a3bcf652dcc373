"""The filter, judged by an interpreter of BPF written for the test: call by call, argument by argument."""

import errno
import struct

import pytest

from toolcrib.domain.errors import Misconfigured
from toolcrib.sandbox.seccomp import program

ALLOW, DENY, KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
X86_64, AARCH64 = 0xC000003E, 0xC00000B7


def judged(machine: str, audit: int, number: int, *arguments: int) -> int:
    data = struct.pack("<iIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    code = list(struct.iter_unpack("<HBBI", program(machine)))
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
        (435, (), 0x00050000 | errno.ENOSYS),  # clone3
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
        (157, (1, 0), 0x00050000),  # prctl PR_SET_PDEATHSIG: told done, not done
        (157, (15, 0), ALLOW),
        (0x40000000, (), DENY),
        (0x40000000 | 101, (), DENY),
    ],
)
def test_calls_of_x86_64_are_judged(number: int, arguments: tuple[int, ...], verdict: int) -> None:
    assert judged("x86_64", X86_64, number, *arguments) == verdict


@pytest.mark.parametrize(
    ("number", "arguments", "verdict"),
    [(63, (), ALLOW), (117, (), DENY), (220, (0x10000011,), DENY), (29, (0, 0x5412), DENY), (198, (40,), DENY)],
)
def test_calls_of_aarch64_are_judged(number: int, arguments: tuple[int, ...], verdict: int) -> None:
    assert judged("aarch64", AARCH64, number, *arguments) == verdict


@pytest.mark.parametrize("audit", [0x40000003, AARCH64, 0])
def test_calls_of_another_architecture_end_the_process(audit: int) -> None:
    assert judged("x86_64", audit, 0) == KILL


def test_unknown_machine_is_refused() -> None:
    with pytest.raises(Misconfigured, match="riscv64"):
        program("riscv64")
