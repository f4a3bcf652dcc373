"""System calls, sockets and files that a command must not get, each with the errors that count as denied."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Arguments of a system call: a number, a text, a count of zero bytes, or bytes.
Argument = int | str | dict[str, Any]

DENIED = frozenset({"EPERM", "ENOSYS", "EACCES"})
ABSENT = frozenset({"ENOENT", "ENXIO", "ENODEV", "ENOTDIR"})
NO_SUCH_SOCKET = frozenset({"EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"})
READ_ONLY = frozenset({"EROFS"})
UNREACHED = frozenset({"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH"})

CLONE_NEW = {
    "CLONE_NEWTIME": 0x80,
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
SIGCHLD = 17
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED, MS_MOVE = 1, 32, 4096, 16384, 1 << 18, 1 << 20, 8192
MNT_FORCE, MNT_DETACH = 1, 2
S_IFCHR, S_IFBLK = 0o020000, 0o060000

# Those of x86_64.
NUMBERS = {
    "socket": 41, "clone": 56, "setuid": 105, "setgid": 106, "setreuid": 113,
    "setgroups": 116, "setresuid": 117, "setresgid": 119, "capset": 126, "mknod": 133,
    "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "sysctl": 156,
    "adjtimex": 159, "setrlimit": 160, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "create_module": 174, "init_module": 175, "delete_module": 176, "query_module": 178, "quotactl": 179,
    "nfsservctl": 180, "uselib": 134, "lookup_dcookie": 212, "clock_settime": 227, "mbind": 237, "set_mempolicy": 238,
    "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251, "migrate_pages": 256,
    "mknodat": 259, "unshare": 272, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "kexec_file_load": 320,
    "bpf": 321, "userfaultfd": 323, "pidfd_open": 434, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "memfd_secret": 447, "ptrace": 101, "syslog": 103, "open_tree_attr": 467,
}  # fmt: skip


DEVICES = """
mem kmem port kmsg fuse kvm loop-control loop0 net/tun vhost-net sda vda nvme0n1 mapper/control uinput input/event0
dri/card0 cpu/0/msr vsock userfaultfd console tty0
"""
SECRETS = """
/proc/1/root/etc/shadow /proc/1/root/root/.bashrc /proc/1/cwd/.env /proc/kcore /proc/self/root/root/.bashrc
/etc/shadow /etc/sudoers /sys/kernel/debug /sys/firmware/efi /sys/kernel/security/lockdown /run/docker.sock
/run/containerd/containerd.sock /var/run/dbus/system_bus_socket /run/systemd/private
"""
SETTINGS = """
/proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hostname
/proc/sys/kernel/yama/ptrace_scope /proc/sys/kernel/randomize_va_space /proc/sys/kernel/unprivileged_bpf_disabled
/proc/sys/vm/overcommit_memory /proc/sys/vm/drop_caches /proc/sys/fs/protected_symlinks /proc/sys/fs/suid_dumpable
/proc/sys/fs/binfmt_misc/register /proc/sys/net/ipv4/ip_forward /proc/irq/0/smp_affinity /sys/kernel/uevent_helper
/sys/power/state /sys/fs/cgroup/release_agent /sys/fs/cgroup/cgroup.procs /sys/module/kernel/parameters/panic
/etc/ld.so.preload /mnt/pkg/owned /owned
"""


@dataclass(frozen=True)
class Probe:
    """One attempt inside the sandbox. ``kind``: a system call, opening a file, entering a namespace, or connecting."""

    name: str
    kind: str
    arguments: tuple[Argument, ...]
    refused: frozenset[str]

    def held(self, answer: str) -> bool:
        """Return whether the kernel denied it. Being killed for it (``SIGSYS``) counts too."""
        return answer in self.refused or answer == "SIGSYS"


def probes(port: int) -> list[Probe]:
    """Return all probes. ``port`` is a listening port of the host."""
    every = [*_namespaces(), *_mounts(), *_kernel(), *_other_processes(), *_powers(), *_sockets(port), *_files()]
    assert len({probe.name for probe in every}) == len(every), "two probes of one name"
    return every


def _call(name: str, *arguments: Argument, also: frozenset[str] = frozenset(), label: str = "") -> Probe:
    return Probe(f"{name} {label}".strip(), "syscall", (NUMBERS[name], *arguments), DENIED | also)


def _opened(path: str, mode: str = "r") -> Probe:
    return Probe(f"open {path} for {mode}", "open", (path, mode), DENIED | ABSENT | READ_ONLY)


def _zeros(count: int) -> dict[str, Any]:
    return {"zeros": count}


def _hex(value: bytes) -> dict[str, Any]:
    return {"hex": value.hex()}


def _namespaces() -> Iterator[Probe]:
    for flag, value in CLONE_NEW.items():
        yield _call("unshare", value, label=flag)
        if flag != "CLONE_NEWTIME":
            yield _call("clone", value | SIGCHLD, 0, 0, 0, 0, label=flag)
    yield _call("unshare", CLONE_NEW["CLONE_NEWUSER"] | CLONE_NEW["CLONE_NEWNS"], label="user and mount")
    yield _call("unshare", CLONE_NEW["CLONE_NEWUSER"] | 1 << 32, label="with high bits")
    arguments = CLONE_NEW["CLONE_NEWUSER"].to_bytes(8, "little") + bytes(24) + SIGCHLD.to_bytes(8, "little") + bytes(48)
    yield _call("clone3", _hex(arguments), len(arguments), label="CLONE_NEWUSER")
    for kind in ("user", "mnt", "net", "pid", "uts", "ipc", "cgroup"):
        yield Probe(f"setns /proc/1/ns/{kind}", "setns", (f"/proc/1/ns/{kind}",), DENIED | ABSENT)


def _mounts() -> Iterator[Probe]:
    yield _call("mount", "none", "/tmp", "tmpfs", 0, 0, label="tmpfs")
    yield _call("mount", "none", "/proc", "proc", 0, 0, label="proc")
    yield _call("mount", "none", "/tmp", "sysfs", 0, 0, label="sysfs")
    yield _call("mount", "/proc/1/root", "/tmp", 0, MS_BIND | MS_REC, 0, label="bind")
    yield _call("mount", "none", "/usr", 0, MS_REMOUNT | MS_BIND, 0, label="remount /usr for writing")
    yield _call("mount", "none", "/", 0, MS_REC | MS_SHARED, 0, label="shared")
    yield _call("mount", "/tmp", "/usr", 0, MS_MOVE, 0, label="move")
    yield _call("mount", "none", "/tmp", "overlay", 0, "lowerdir=/usr,upperdir=/tmp,workdir=/tmp", label="overlay")
    yield _call("umount2", "/proc", MNT_DETACH, label="/proc")
    yield _call("umount2", ".", MNT_FORCE, label="the tree")
    yield _call("pivot_root", "/tmp", "/tmp")
    yield _call("chroot", "/tmp")
    yield _call("fsopen", "tmpfs", 0)
    yield _call("fsconfig", 0, 6, 0, 0, 0)
    yield _call("fsmount", 0, 0, 0)
    yield _call("fspick", AT_FDCWD, "/usr", 0)
    yield _call("open_tree", AT_FDCWD, "/", 1 | 0x8000)
    yield _call("open_tree_attr", AT_FDCWD, "/", 1, _zeros(32), 32)
    yield _call("move_mount", AT_FDCWD, "/tmp", AT_FDCWD, "/usr", 0)
    yield _call("mount_setattr", AT_FDCWD, "/usr", 0, _zeros(32), 32)
    yield _call("quotactl", 0x800002, "/dev/sda1", 0, 0, also=ABSENT)
    yield _call("quotactl_fd", 0, 0x800002, 0, 0)
    yield _call("swapon", "/tmp/swap", 0)
    yield _call("swapoff", "/tmp/swap")


def _kernel() -> Iterator[Probe]:
    yield _call("init_module", _zeros(64), 64, "")
    yield _call("finit_module", 0, "", 0)
    yield _call("delete_module", "ext4", 0)
    yield _call("create_module", "x", 4096)
    yield _call("query_module", 0, 1, _zeros(64), 64, _zeros(8))
    yield _call("kexec_load", 0, 0, 0, 0)
    yield _call("kexec_file_load", 0, 0, 0, 0, 0)
    yield _call("reboot", 0xFEE1DEAD, 672274793, 0, 0)
    yield _call("syslog", 3, _zeros(64), 64, label="read")
    yield _call("syslog", 10, 0, 0, label="size")
    yield _call("acct", "/tmp/acct")
    yield _call("sysctl", _zeros(128))
    yield _call("sethostname", "owned", 5)
    yield _call("setdomainname", "owned", 5)
    yield _call("settimeofday", _zeros(16), 0)
    yield _call("clock_settime", 0, _zeros(16))
    yield _call("adjtimex", _hex(b"\x01" + bytes(207)))
    yield _call("clock_adjtime", 0, _hex(b"\x01" + bytes(207)))
    yield _call("iopl", 3)
    yield _call("ioperm", 0x80, 1, 1)
    yield _call("vhangup")
    yield _call("nfsservctl", 0, 0, 0)
    yield _call("uselib", "/usr/lib/x")
    yield _call("lookup_dcookie", 0, _zeros(8), 8)
    yield _call("modify_ldt", 1, _zeros(16), 16)
    yield _call("bpf", 0, _hex(bytes([1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]) + bytes(56)), 72, label="map")
    yield _call("bpf", 5, _zeros(72), 72, label="program")
    yield _call("perf_event_open", _hex(bytes([1, 0, 0, 0, 112]) + bytes(107)), 0, -1, -1, 0)
    yield _call("userfaultfd", 1, label="user mode")
    yield _call("io_uring_setup", 8, _zeros(120))
    yield _call("io_uring_enter", 0, 1, 0, 0, 0, 0)
    yield _call("io_uring_register", 0, 0, 0, 0)
    yield _call("memfd_secret", 0)
    yield _call("fanotify_init", 0, 0)
    yield _call("keyctl", 0, -3, 0, 0, 0, label="the session's keyring")
    yield _call("keyctl", 1, "owned", 0, 0, 0, label="join a session")
    yield _call("add_key", "user", "owned", "x", 1, -3)
    yield _call("request_key", "user", "owned", 0, -3)
    yield _call("name_to_handle_at", AT_FDCWD, "/", _zeros(136), _zeros(4), 0)
    yield _call("open_by_handle_at", AT_FDCWD, _hex(b"\x08\0\0\0\x01\0\0\0\x02" + bytes(7)), 0)


def _other_processes() -> Iterator[Probe]:
    yield _call("ptrace", 16, 1, 0, 0, label="PTRACE_ATTACH")
    yield _call("ptrace", 0x4206, 1, 0, 0, label="PTRACE_SEIZE")
    yield _call("ptrace", 0, 0, 0, 0, label="PTRACE_TRACEME")
    yield _call("process_vm_readv", 1, _zeros(16), 1, _zeros(16), 1, 0)
    yield _call("process_vm_writev", 1, _zeros(16), 1, _zeros(16), 1, 0)
    yield _call("process_madvise", 0, 0, 0, 4, 0)
    yield _call("pidfd_getfd", 0, 0, 0)
    yield _call("kcmp", 1, 1, 0, 0, 0)
    yield _call("move_pages", 1, 0, 0, 0, 0, 0)
    yield _call("migrate_pages", 1, 0, 0, 0)
    yield _call("prlimit64", 1, 7, _hex(b"\xff" * 16), 0, label="of the first process, without end")


def _powers() -> Iterator[Probe]:
    unmapped = frozenset({"EINVAL"})
    for name, arguments in {
        "setuid": (0,), "setgid": (0,), "setreuid": (0, 0), "setresuid": (0, 0, 0), "setresgid": (0, 0, 0),
        "setgroups": (1, {"zeros": 4}),
    }.items():  # fmt: skip
        yield _call(name, *arguments, also=unmapped, label="to root")
    # Version 3 of the kernel's capabilities, and all of them.
    header = _hex((0x20080522).to_bytes(4, "little") + bytes(4))
    yield _call("capset", header, _hex(b"\xff" * 24), label="all")
    yield _call("mknod", "/tmp/null", S_IFCHR | 0o666, 1 << 8 | 3, label="a character device")
    yield _call("mknod", "disk", S_IFBLK | 0o666, 8 << 8, label="a block device in the tree")
    yield _call("mknodat", AT_FDCWD, "/tmp/mem", S_IFCHR | 0o666, 1 << 8 | 1, label="/dev/mem")
    yield _call("sched_setscheduler", 0, 1, _hex(b"\x01\0\0\0"), label="SCHED_FIFO")
    yield _call("sched_setattr", 0, _hex((48).to_bytes(4, "little") + (6).to_bytes(4, "little") + bytes(40)), 0,
                also=unmapped)  # fmt: skip
    yield _call("ioprio_set", 1, 0, 1 << 13, label="real time")
    yield _call("setrlimit", 7, _hex(b"\xff" * 16), label="RLIMIT_NOFILE without end")
    yield _call("setrlimit", 6, _hex(b"\xff" * 16), label="RLIMIT_NPROC without end")


def _sockets(port: int) -> Iterator[Probe]:
    families = {
        "AF_AX25": 3, "AF_IPX": 4, "AF_APPLETALK": 5, "AF_X25": 9, "AF_KEY": 15, "AF_RDS": 21, "AF_PPPOX": 24,
        "AF_LLC": 26, "AF_CAN": 29, "AF_TIPC": 30, "AF_IEEE802154": 36, "AF_CAIF": 37, "AF_NFC": 39, "AF_KCM": 41,
        "AF_QIPCRTR": 42, "AF_SMC": 43, "AF_XDP": 44, "AF_MCTP": 45,
    }  # fmt: skip
    for name, number in families.items():
        for kind in (1, 2, 3, 5):
            yield _call("socket", number, kind, 0, also=NO_SUCH_SOCKET, label=f"{name} of type {kind}")
    netlinks = {"NETLINK_XFRM": 6, "NETLINK_NETFILTER": 12, "NETLINK_KOBJECT_UEVENT": 15, "NETLINK_CRYPTO": 21}
    for name, number in netlinks.items():
        yield _call("socket", 16, 3, number, also=NO_SUCH_SOCKET, label=name)
    yield _call("socket", 40, 2, 0, also=NO_SUCH_SOCKET, label="AF_VSOCK datagrams")
    yield _call("socket", 17, 2, 0x0300, also=NO_SUCH_SOCKET, label="AF_PACKET datagrams")
    yield _call("socket", 2, 3, 255, also=NO_SUCH_SOCKET, label="raw IPv4")
    yield _call("socket", 10, 3, 58, also=NO_SUCH_SOCKET, label="raw IPv6")
    for address in ("127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "10.0.0.1", "1.1.1.1"):
        yield Probe(f"connect to {address}", "connect", (address, port), UNREACHED | DENIED)


def _files() -> Iterator[Probe]:
    for name in DEVICES.split():
        yield _opened(f"/dev/{name}", "r+")
    for path in SECRETS.split():
        yield _opened(path)
    for path in SETTINGS.split():
        yield _opened(path, "w")
    for path in ("/usr/bin/env", "/etc/passwd"):
        yield _opened(path, "r+")
    maps = {"uid_map": "0 0 1", "gid_map": "0 0 1", "setgroups": "allow", "oom_score_adj": "-1000"}
    for process in ("self", "1"):
        for name, value in maps.items():
            path = f"/proc/{process}/{name}"
            yield Probe(f"write {value!r} to {path}", "write", (path, value), DENIED | READ_ONLY)


# Runs inside, each probe in its own process, and prints the kernel's results.
PROGRAM = """
import ctypes, errno, json, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def value(given):
    if isinstance(given, int): return ctypes.c_long(given)
    if isinstance(given, str): return ctypes.create_string_buffer(given.encode())
    if "zeros" in given: return ctypes.create_string_buffer(given["zeros"])
    return ctypes.create_string_buffer(bytes.fromhex(given["hex"]))

def tried(kind, arguments):
    if kind == "syscall":
        number, *rest = arguments
        ctypes.set_errno(0)
        if libc.syscall(ctypes.c_long(number), *map(value, rest)) != -1: return "done"
        return errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))
    try:
        if kind == "open":
            path, mode = arguments
            os.open(path, {"r": os.O_RDONLY, "r+": os.O_RDWR, "w": os.O_WRONLY | os.O_CREAT}[mode] | os.O_NONBLOCK)
        elif kind == "write":
            with open(arguments[0], "w") as file: file.write(arguments[1])
        elif kind == "setns":
            if libc.setns(os.open(arguments[0], os.O_RDONLY), 0) == -1:
                return errno.errorcode[ctypes.get_errno()]
        elif kind == "connect":
            with socket.socket(socket.AF_INET6 if ":" in arguments[0] else socket.AF_INET) as link:
                link.settimeout(5)
                link.connect(tuple(arguments))
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
    return "done"

for name, kind, arguments in json.load(open("probes.json")):
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, tried(kind, arguments).encode())
        os._exit(0)
    os.close(writing)
    said = os.read(reading, 100).decode()
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status): said = signal.Signals(os.WTERMSIG(status)).name
    print(json.dumps([name, said]))
"""
