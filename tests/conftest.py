"""Settings shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings

_PATIENT = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large))
_QUICK = (Phase.explicit, Phase.generate, Phase.shrink)
settings.register_profile(
    "repeatable", _PATIENT, derandomize=True, database=None, max_examples=40, phases=_QUICK
)
settings.register_profile("searching", _PATIENT, max_examples=2_000, print_blob=True)
# The default takes the same examples every time; HYPOTHESIS_PROFILE=searching looks for new ones, for much longer.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture
def shardscape(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process; returns exit code, standard output and standard error."""
    from engine.command_line import main

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
