"""The lock of a store: held by one process that writes, or by several that read, for as long as they have it open.

DuckDB locks its file, too, but such a lock (`fcntl`) ends with any descriptor of the file that its process closes: of a
copy that somebody makes, for example. This one is a `flock` on a file of its own beside the store. It belongs to one
descriptor that nobody else has, and ends with the process whatever becomes of that; so a lock file that a dead process
left holds nothing up. Descriptors are not inherited by programs that are started, and a forked process lets go of them.

The lock file says who holds the store, and which file is being made, so that whoever comes after a death can remove it.
It appears with these words and with its lock, and changes in one piece, so that nobody takes one that is being written
for a file of somebody else's. What is empty, or says something else, is such a file and stays as it is.
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
"""What a lock file has [bytes], whatever it says: one write of as many replaces all that it said before."""
_HELD_ELSEWHERE: Final = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
_held: set["StoreLock"] = set()


class StoreLock:
    """The lock of one store, from when it is made until `release`."""

    def __init__(self, store: Path, *, read_only: bool) -> None:
        """Take the lock. Raises StoreLockedError when another process has it, StoreAccessError for what is no lock.

        Where locks cannot be had (a folder that may only be read, some network file systems) DuckDB's is the only one.
        """
        self.path: Final = store.with_name(store.name + SUFFIX)
        self.left_half_made = ""
        """Name of a file that a process was making when it died."""
        self._read_only = read_only
        self._descriptor: int | None = None
        self._ours = False  # whether the file may be written to and removed: not if somebody else put it there
        while fcntl is not None and not self._take(store):
            pass
        _held.add(self)

    def release(self) -> None:
        """Lets others have the store. The file goes, unless somebody else has the lock or it is nobody's."""
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
        """Takes note that a file of this name, beside the store, is being made; none when empty."""
        if not self._read_only:
            self.left_half_made = ""
        if self._descriptor is None or not self._ours:
            return
        with contextlib.suppress(OSError):  # what cannot be written is missing from a message only
            os.pwrite(self._descriptor, self._words(name), 0)

    def _words(self, making: str = "") -> bytes:
        """What the file says. Of several that read, none is named."""
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
        """Tries to take the lock; returns False when whoever had it removed the file, so that a new one has to be
        made."""
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
                    raise StoreLockedError(_held_by(store, _content(descriptor))) from error
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
        found = _content(descriptor)
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
        try:  # one that somebody else has made is locked as well by who may only read it
            return os.open(self.path, os.O_RDONLY | flags)
        except OSError:
            return None

    def _made(self) -> int:
        """Make the file, with its words and its lock from when it has a name. Raises FileExistsError, OSError.

        Where files cannot be without a name, it has one first; should somebody else take the lock in between, the file
        is not known to be ours and stays.
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
        except FileExistsError:  # somebody else's, who may remove it any moment: an empty one must not follow it
            raise
        except (OSError, AttributeError):
            pass
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _content(descriptor: int) -> tuple[str, str, str] | None:
    """Return process, host and half-made file as the lock file has them; None when it is a file of somebody else."""
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
