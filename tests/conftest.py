"""Settings shared by all tests."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

_PATIENT = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large))
_QUICK = (Phase.explicit, Phase.generate, Phase.shrink)
settings.register_profile("repeatable", _PATIENT, derandomize=True, database=None, max_examples=15, phases=_QUICK)
settings.register_profile("nightly", _PATIENT, max_examples=150, print_blob=True)
settings.register_profile("searching", _PATIENT, max_examples=2_000, print_blob=True)
# HYPOTHESIS_PROFILE: the default takes the same examples every time, `nightly` ten times as many new ones, `searching`
# many more.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
# Servers that tests start explore what a test asks for, and nothing ahead of it.
os.environ.setdefault("SHARDSCAPE_AHEAD", "off")


def pytest_configure(config: pytest.Config) -> None:
    """Lets processes that tests start share the bytecode of what they load, also where none is to be kept in the tree.

    Containers often set PYTHONDONTWRITEBYTECODE. Every one of a hundred processes would then compile the engine anew,
    which takes longer than what most of them are asked to do. It goes to pytest's cache instead. The process that only
    hands out tests leaves it to those that run them, which find what they load compiled beside it.
    """
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    cache = getattr(config, "cache", None)
    if sys.dont_write_bytecode and cache is not None and "PYTHONPYCACHEPREFIX" not in os.environ:
        os.environ["PYTHONPYCACHEPREFIX"] = str(cache.mkdir("bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Spares tests and modules the search for garbage: while they are collected, which it takes half as long again,
    and later, as they stay until the process ends."""
    gc.disable()
    try:
        _from_the_other_end(session)
        return (yield)
    finally:
        gc.freeze()
        # DuckDB reports objects that are never freed when the process ends, which frozen ones are not.
        atexit.register(gc.unfreeze)
        gc.enable()


def _from_the_other_end(session: pytest.Session) -> None:
    """Lets every other process of `-n` import the test modules from the last to the first before it collects them.

    Where nothing is compiled yet, as in a fresh clone, pytest rewrites the assertions of each module that it imports
    and leaves the result beside it. Processes that go through the modules in the same order do that at the same time,
    each for all of them; from both ends, each does half and finds the other half done.
    """
    if int(getattr(session.config, "workerinput", {"workerid": "gw0"})["workerid"].removeprefix("gw")) % 2 == 0:
        return
    folders = [path for each in session.config.args if (path := session.config.invocation_params.dir / each).is_dir()]
    for path in sorted({path for folder in folders for path in folder.rglob("test_*.py")}, reverse=True):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # which collecting meets again, and tells
            importlib.import_module(".".join(path.relative_to(session.config.rootpath).with_suffix("").parts))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, every file goes to one process, which explores once for all its tests."""
    if config.option.dist != "load":
        return None  # --dist asks for something else
    from tests.scheduling import BrowserBesideTheRest

    # In the order of the folders: files with few tests, which would be last, are among the longest here.
    config.option.loadscopereorder = False
    return BrowserBesideTheRest(config, log)


@pytest.fixture
def shardscape(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process; returns exit code, standard output and standard error."""
    from engine.cli.main import main

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
