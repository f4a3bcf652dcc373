"""System calls that Python does not offer: openat2, renameat2 and syncfs."""

import ctypes
import errno
import os
import platform
from functools import cache

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

RENAME_NOREPLACE = 0x01

_SYS_OPENAT2 = 437
_SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}

# The kernel returns EAGAIN during a concurrent rename and EINTR on a signal. Both are temporary.
_PASSING = (errno.EAGAIN, errno.EINTR)
_MOST_TRIES = 128


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)

_openat2 = _libc["syscall"]
_openat2.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(_OpenHow),
    ctypes.c_size_t,
)
_openat2.restype = ctypes.c_long

_renameat2 = _libc["syscall"]
_renameat2.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_uint,
)
_renameat2.restype = ctypes.c_long


def openat2(folder: int, path: str, *, flags: int, resolve: int) -> int:
    """Open ``path`` relative to the descriptor ``folder``, under the restrictions of ``resolve``."""
    how = _how(flags, resolve)
    name = os.fsencode(path)
    for _ in range(_MOST_TRIES):
        opened: int = _openat2(_SYS_OPENAT2, folder, name, how, _SIZE_OF_HOW)
        if opened >= 0:
            return opened
        if ctypes.get_errno() not in _PASSING:
            break
    raise _failure(path)


def renameat2(folder: int, name: str, to_folder: int, to_name: str, *, flags: int) -> None:
    """Rename between two folders given by their descriptors."""
    number = _SYS_RENAMEAT2.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"The syscall number of renameat2 on {platform.machine()} is unknown")
    source, destination = os.fsencode(name), os.fsencode(to_name)
    for _ in range(_MOST_TRIES):
        if _renameat2(number, folder, source, to_folder, destination, flags) == 0:
            return
        if ctypes.get_errno() not in _PASSING:
            break
    raise _failure(name)


def syncfs(descriptor: int) -> None:
    """Flush the file system of ``descriptor`` to disk."""
    if _libc.syncfs(descriptor) != 0:
        raise _failure("")


@cache
def has_openat2() -> bool:
    """Whether the kernel (5.6 and later) and an outer seccomp filter allow openat2."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(openat2(root, ".", flags=os.O_PATH | os.O_CLOEXEC, resolve=RESOLVE_BENEATH))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


@cache
def _how(flags: int, resolve: int) -> _OpenHow:
    """Build the struct once per combination. The kernel only reads it, so that threads can share it."""
    return _OpenHow(flags, 0, resolve)


_SIZE_OF_HOW = ctypes.sizeof(_OpenHow)


def _failure(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
