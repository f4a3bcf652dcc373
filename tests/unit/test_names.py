"""Rules for names: one name, one meaning; modules are nouns; kernel constants have the kernel's names."""

import ast
import collections
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import toolcrib
from toolcrib.sandbox import escape_attempts, fork_server, seccomp

ROOT = Path(toolcrib.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
# From the kernel's headers: sched.h, mount.h, fcntl.h, prctl.h, securebits.h, filter.h, seccomp.h, audit.h, socket.h.
KERNEL = {
    "CLONE_PARENT": 0x8000,
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWUSER": 0x10000000,
    "MS_RDONLY": 1,
    "MS_REC": 0x4000,
    "MS_PRIVATE": 1 << 18,
    "AT_FDCWD": -100,
    "AT_EMPTY_PATH": 0x1000,
    "OPEN_TREE_CLONE": 1,
    "MOVE_MOUNT_F_EMPTY_PATH": 4,
    "MOUNT_ATTR_IDMAP": 0x00100000,
    "PR_SET_PDEATHSIG": 1,
    "PR_SET_SECUREBITS": 28,
    "SECBIT_NO_SETUID_FIXUP": 1 << 2,
    "BPF_LD_W_ABS": 0x20,
    "BPF_JEQ_K": 0x15,
    "BPF_JSET_K": 0x45,
    "BPF_JGE_K": 0x35,
    "BPF_RET_K": 0x06,
    "SECCOMP_RET_ALLOW": 0x7FFF0000,
    "SECCOMP_RET_ERRNO": 0x00050000,
    "SECCOMP_RET_KILL_PROCESS": 0x80000000,
    "SECCOMP_DATA_NR": 0,
    "SECCOMP_DATA_ARCH": 4,
    "X32_SYSCALL_BIT": 0x40000000,
    "AF_NETLINK": 16,
    "AF_VSOCK": 40,
    "NETLINK_ROUTE": 0,
    "TIOCSTI": 0x5412,
    "MAP_SHARED": 1,
    "MAP_ANONYMOUS": 0x20,
    "MAP_HUGETLB": 0x40000,
    "O_CREAT": 0o100,
    "SYS_open_tree": 428,
    "SYS_move_mount": 429,
    "SYS_mount_setattr": 442,
}
# Counters of these modules themselves, in no kernel header.
OURS = {
    "fork_server": {"EXIT_SETUP_FAILED", "MAX_DESCRIPTORS", "SYS_clone"},
    "seccomp": {
        "CLONE_NEW_MASK",
        "LARGEST_SHARED_MAPPING",
        "MAX_SHM_BYTES",
        "SET_ID",
        "SECCOMP_RET_EPERM",
        "SECCOMP_RET_ENOSYS",
    },
    "escape_attempts": set[str](),
}


def test_no_two_classes_have_one_name() -> None:
    found = collections.defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))

    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_no_module_is_named_by_a_bare_gerund() -> None:
    gerunds = [path.stem for path in MODULES if path.stem.endswith("ing")]

    assert gerunds == []


@pytest.mark.parametrize("module", [fork_server, seccomp, escape_attempts], ids=lambda module: module.__name__)
def test_kernel_constants_have_the_kernels_names(module: ModuleType) -> None:
    ours = OURS[module.__name__.rpartition(".")[2]]
    numbers = {name: value for name, value in _numbers(module) if name not in ours}

    assert numbers
    assert {name: value for name, value in numbers.items() if KERNEL.get(name) != value} == {}


def _numbers(module: ModuleType) -> Iterator[tuple[str, int]]:
    """The public numeric constants of a module. Private ones need no kernel name."""
    for name, value in vars(module).items():
        is_constant = name.upper() == name and name[0] != "_"
        if isinstance(value, int) and not isinstance(value, bool) and (is_constant or name.startswith("SYS_")):
            yield name, value
