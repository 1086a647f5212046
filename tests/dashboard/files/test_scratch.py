"""What exports keep on disk for a moment: gone afterwards, and gone later where the process was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dashboard.files import exports
from dashboard.jobs.scratch_folders import PREFIX, SETTLED, scratch_folder
from engine import Exploration, explore

_KILLED = """
import os, signal
from dashboard.jobs.scratch_folders import scratch_folder
with scratch_folder() as folder:
    (folder / "rows.parquet").write_bytes(b"x" * 1000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def small() -> Exploration:
    return explore("gpt3-6.7B", "h100_80g_nvl8", num_procs=4, max_batch_size=8, datatype="float16")


def age(folder: Path) -> None:
    """Makes a folder look as if nothing had happened in it for long."""
    then = time.time() - SETTLED - 1
    os.utime(folder, (then, then))


def test_what_a_killed_process_left_goes_with_the_next_folder(place: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED], env={**os.environ, "TMPDIR": str(place)}, check=False)
    (left,) = place.iterdir()
    assert left.name.startswith(PREFIX)
    with scratch_folder() as mine:
        assert set(place.iterdir()) == {left, mine}  # it may be about to be locked
    age(left)
    with scratch_folder() as mine:
        assert set(place.iterdir()) == {mine}
    assert list(place.iterdir()) == []


def test_a_folder_in_use_stays_however_old_it_is(place: Path) -> None:
    with scratch_folder() as first:
        age(first)
        with scratch_folder() as second:
            assert set(place.iterdir()) == {first, second}


def test_only_folders_of_this_kind_are_touched(place: Path) -> None:
    other, link = place / "another", place / f"{PREFIX}link"
    other.mkdir()
    link.symlink_to(other)
    for path in (other, link):
        os.utime(path, (0, 0), follow_symlinks=False)
    with scratch_folder():
        assert other.is_dir()
        assert link.is_symlink()


def test_an_export_waits_in_such_a_folder(place: Path, small: Exploration) -> None:
    rows = exports._rows(small, ["id", "total_time"], (), ())
    next(rows)
    (folder,) = place.iterdir()
    assert folder.name.startswith(PREFIX)
    del rows
    assert list(place.iterdir()) == []
