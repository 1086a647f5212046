"""A study of 16 designs for a mix of two models, each point a fraction of a second."""

from __future__ import annotations

from typing import Any

from engine import codesign

SMALL: dict[str, Any] = {
    "format": codesign.FORMAT,
    "name": "small",
    "models": [{"model": "megatron-126M", "weight": 3}, {"model": "gpt3-13B"}],
    "systems": ["h100_80g_nvl8"],
    "edits": [{"parameter": "net0_size", "values": [4, 8]}, {"parameter": "hbm_capacity", "values": [20, 80]}],
    "follow": [{"parameter": "hbm_bandwidth", "follows": "hbm_capacity", "exponent": 0.5}],
    "sizes": [8, 16],
    "datatypes": ["float16"],
    "batches": [16, {"per_processor": 4}],
    "costs": {"preset": "h100_2024"},
}
ONE_POINT = 1e-6
"""How long a task may take [s] so that, after the first, each has one point on a machine of any speed. A task skips the
designs that are known to lose when it goes out, so tests of what is skipped need many small ones."""


def study(**changes: Any) -> codesign.Study:
    """The study, with other values of some of its keys."""
    return codesign.Study.from_document({**SMALL, **changes})
