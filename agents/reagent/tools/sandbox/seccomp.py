"""A seccomp filter that refuses system calls to a sandboxed program.

A layer behind namespaces, a user without capabilities and an empty file system. Refused are calls that ask the kernel for more (mounts,
namespaces, tracing, keys, modules, sockets, io_uring), those that hold memory which no limit counts (memfd, System V objects, larger
socket buffers), and PR_SET_DUMPABLE, which hides a process from the counting. Buffers of socket pairs remain, which the supervisor
counts, and of pipes, which the kernel bounds for each user."""

import ctypes
import errno
import os
import struct

# AUDIT_ARCH of seccomp_data.arch
_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "setsockopt": (54, 208), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "unshare": (272, 97), "setns": (308, 268),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180), "personality": (135, 92), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "lookup_dcookie": (212, 18), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "uselib": (134, None), "ustat": (136, None),
}  # fmt: skip
"""Name → its number on (x86_64, aarch64); answered with EPERM."""

_UNKNOWN = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
"""Answered with ENOSYS, so that libraries take another way. A filter cannot see clone3's flags."""

_CLONE = (56, 220)
_SOCKETPAIR = (53, 199)
_PRCTL = (157, 167)
_SET_DUMPABLE = 4
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

# BPF opcodes, and the offsets in seccomp_data
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def supported() -> bool:
    return os.uname().machine in _ARCHES


def program(machine: str) -> list[tuple[int, int, int, int]]:
    """The filter as (opcode, jump if true, jump if false, operand). Raises KeyError: an unknown machine."""
    column = list(_ARCHES).index(machine)
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _ARCHES[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NR)]
    if machine == "x86_64":  # the x32 numbers would slip past the others
        lines += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for calls, code in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | code)]
    lines += [
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _ARG0),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 4, _PRCTL[column]),
        (_LOAD, 0, 0, _ARG0),
        (_EQUAL, 0, 1, _SET_DUMPABLE),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 3, _SOCKETPAIR[column]),
        (_LOAD, 0, 0, _ARG0),
        (_EQUAL, 1, 0, 1),  # AF_UNIX, which event loops use to wake themselves
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return lines


def install(libc: ctypes.CDLL) -> None:
    """Put the filter on this process and all that it starts, for good. Raises OSError."""
    code = b"".join(struct.pack("=HBBI", *line) for line in program(os.uname().machine))
    buffer = ctypes.create_string_buffer(code, len(code))
    fprog = ctypes.create_string_buffer(struct.pack("@HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
    set_seccomp, mode_filter = 22, 2
    if libc.prctl(set_seccomp, ctypes.c_ulong(mode_filter), ctypes.byref(fprog), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
