"""The lock of a store: held by one process that writes, or by several that read, for as long as they have it open.

DuckDB locks its file, too, but such a lock (`fcntl`) ends when its process closes any descriptor of the file, for
example after copying it. This one is a `flock` on a separate file next to the store. It belongs to one descriptor,
which is private, and ends with the process in any case; so the lock file of a dead process blocks nothing. Descriptors
are not inherited by programs that are started, and a forked process releases them.

The lock file names the process that holds the store, and the file that is being made, so that the next process can
remove it after a crash. It appears with these words and with its lock, and changes atomically, so that an unfinished
one is never taken for a foreign file. A file that is empty, or has other content, is foreign and is not changed.
"""

import contextlib
import errno
import os
import re
import socket
import stat
from pathlib import Path
from typing import Final

from engine.store.errors import StoreAccessError, StoreLockedError, explain

try:
    import fcntl
except ImportError:  # no such locks on Windows, where DuckDB's own cannot be lost
    fcntl = None  # type: ignore[assignment]

SUFFIX: Final = ".lock"

_MARK: Final = "Held by Shardscape"
_CONTENT: Final = re.compile(rf"{_MARK}(?:, process (\d+) on (\S*))?\n(?:making (.+)\n)?\n*")
_LENGTH: Final = 1024
"""Size of a lock file [bytes], regardless of its content: one write of this length replaces all earlier content."""
_HELD_ELSEWHERE: Final = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
_held: set["StoreLock"] = set()


class StoreLock:
    """The lock of one store, from when it is made until `release`."""

    def __init__(self, store: Path, *, read_only: bool) -> None:
        """Take the lock. Raises StoreLockedError if another process has it, StoreAccessError if the file is not a lock.

        Where locks cannot be had (a folder that may only be read, some network file systems) DuckDB's is the only one.
        """
        self.path: Final = store.with_name(store.name + SUFFIX)
        self.left_half_made = ""
        """Name of a file that a process was making when it died."""
        self._read_only = read_only
        self._descriptor: int | None = None
        self._ours = False  # whether the file may be written to and removed: not if it is a foreign file
        while fcntl is not None and not self._take(store):
            pass
        _held.add(self)

    def release(self) -> None:
        """Release the store. The file is removed, unless another process has the lock or the file is not ours."""
        _held.discard(self)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            if self._read_only:  # perhaps the last who reads
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._ours and not self.left_half_made:
                self.path.unlink()
        os.close(descriptor)

    def making(self, name: str) -> None:
        """Record the file next to the store that is being created; empty for none."""
        if not self._read_only:
            self.left_half_made = ""
        if self._descriptor is None or not self._ours:
            return
        with contextlib.suppress(OSError):  # what cannot be written is missing from a message only
            os.pwrite(self._descriptor, self._words(name), 0)

    def _words(self, making: str = "") -> bytes:
        """Return the text of the lock file. Readers are not named."""
        who = "" if self._read_only else f", process {os.getpid()} on {socket.gethostname()}"
        text = f"{_MARK}{who}\n" + (f"making {making}\n" if making else "")
        return os.fsencode(text).ljust(_LENGTH, b"\n")

    def let_go(self) -> None:
        """Closes, in a forked process, what was inherited, which leaves the lock to the process that took it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _take(self, store: Path) -> bool:
        """Try to take the lock; return False if the previous holder removed the file, which must then be created
        again."""
        descriptor = self._opened()
        if descriptor is None:
            return True
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StoreAccessError(f"The lock {self.path} of the store is not a file: move it away.")
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if self._read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _HELD_ELSEWHERE:
                    raise StoreLockedError(_held_by(store, _parse_lock_file(descriptor))) from error
                os.close(descriptor)  # locks are not to be had here
                return True
            try:
                current = os.path.samestat(os.fstat(descriptor), os.stat(self.path, follow_symlinks=False))
            except FileNotFoundError:
                current = False
            if not current:
                os.close(descriptor)
                return False
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        self._descriptor = descriptor
        found = _parse_lock_file(descriptor)
        if found is not None:
            self._ours = True
        half_made = found[2] if found is not None else ""
        if not half_made or not self._read_only:
            self.making(half_made)
        self.left_half_made = half_made
        return True

    def _opened(self) -> int | None:
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with contextlib.suppress(FileNotFoundError):
                self._ours = False
                return os.open(self.path, os.O_RDWR | flags)
            with contextlib.suppress(FileExistsError):
                descriptor = self._made()
                self._ours = True
                return descriptor
            return os.open(self.path, os.O_RDWR | flags)
        except FileNotFoundError:  # removed in between by who had it
            return self._opened()
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise StoreAccessError(f"The lock {self.path} of the store is not a file: move it away.") from error
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise explain(error, self.path) from error
        try:  # another user's file is also locked by a process that may only read it
            return os.open(self.path, os.O_RDONLY | flags)
        except OSError:
            return None

    def _made(self) -> int:
        """Create the file, with its text and lock from the moment it has a name. Raises FileExistsError, OSError.

        Where files cannot be nameless, it gets its name first; if another process takes the lock in between, the file
        may not be ours and stays.
        """
        try:
            descriptor = os.open(self.path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
            try:
                os.pwrite(descriptor, self._words(), 0)
                fcntl.flock(descriptor, fcntl.LOCK_SH if self._read_only else fcntl.LOCK_EX)
                # Links are only followed where a folder is named, which says nothing of a path from the root.
                os.link(f"/proc/self/fd/{descriptor}", self.path, src_dir_fd=descriptor, follow_symlinks=True)
                return descriptor
            except BaseException:
                os.close(descriptor)
                raise
        except FileExistsError:  # another process may remove its file any moment: an empty one must not follow it
            raise
        except (OSError, AttributeError):
            pass
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _parse_lock_file(descriptor: int) -> tuple[str, str, str] | None:
    """Return process, host and half-made file from the lock file; None for a foreign file."""
    try:
        found = _CONTENT.fullmatch(os.fsdecode(os.pread(descriptor, 4096, 0)))
    except OSError:
        return None
    if found is None:
        return None
    process, host, half_made = found.groups(default="")
    return process, host, half_made


def _held_by(store: Path, content: tuple[str, str, str] | None) -> str:
    process, host, _ = content or ("", "", "")
    who = f"process {process}" if process else "another process"
    if host and host != socket.gethostname():
        who += f" on {host}"
    return f"The store {store} is held by {who}: close it there, wait for it to end, or name another file."


def _after_fork() -> None:
    for lock in _held:
        lock.let_go()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
