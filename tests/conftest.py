"""Settings shared by all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_PATIENT = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large))
_QUICK = (Phase.explicit, Phase.generate, Phase.shrink)
settings.register_profile(
    "repeatable", _PATIENT, derandomize=True, database=None, max_examples=40, phases=_QUICK
)
settings.register_profile("searching", _PATIENT, max_examples=2_000, print_blob=True)
# The default takes the same examples every time; HYPOTHESIS_PROFILE=searching looks for new ones, for much longer.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
