"""Threads of the server share a few parts of the heap; counted by the C library itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library has arenas")

_THREADS = """
import ctypes, threading
from dashboard.compat.memory_allocator import few_arenas
few_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.open_memstream.restype = ctypes.c_void_p
together = threading.Barrier(8)

def allocate():
    together.wait()
    kept = [libc.malloc(ctypes.c_size_t(5_000)) for _ in range(200)]
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
text, size = ctypes.c_char_p(), ctypes.c_size_t()
stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
libc.malloc_info(0, stream)
libc.fclose(stream)
print(text.value.count(b"<heap nr"))
"""


def _arenas(**more: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], env={**environment, **more}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_threads_share_two_arenas() -> None:
    assert _arenas() <= 2


def test_who_sets_another_number_is_left_alone() -> None:
    assert 2 < _arenas(MALLOC_ARENA_MAX="5") <= 5
