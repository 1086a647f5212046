"""DistIR's GPT-2 inference: parts that its description determines, and its reasons."""

from typing import Any

import pandas as pd
import pytest

from engine.reproductions.distir.gpt2 import GPT_SIZES, GPTSize, gpt2_grid
from engine.reproductions.distir.simulator import ConfigurationError


def test_gpt2_inference_as_far_as_it_is_described() -> None:
    size = GPT_SIZES["gpt3-xl"]

    def of(*degrees: int, **changes: Any) -> pd.Series:
        asked: dict[str, Any] = {"size": size, "batch": 64, "bandwidth_gbps": 25}
        return gpt2_grid([dict(zip("DHPm", degrees, strict=True))], **(asked | changes)).iloc[0]

    alone = of(1, 1, 1, 1)
    parameters = 24 * (12 * 2048**2 + 13 * 2048) + (50_257 + 1_024) * 2048
    assert alone["weights"] == pytest.approx(4 * parameters, rel=1e-3)
    assert of(2, 1, 1, 1)["latency"] < alone["latency"]
    free = of(1, 2, 1, 1, bandwidth_gbps=1e12)["latency"]
    assert alone["latency"] / 2 < free < alone["latency"]
    # 25 pieces over two stages: 13 blocks, 11 blocks and the head; with no time between, the larger sets the pace.
    two, many = (of(1, 1, 2, m, bandwidth_gbps=1e12, launch_overhead=0)["latency"] for m in (2, 64))
    assert many > two / 2
    reasons = {
        (3, 1, 1, 1): "no_such_group",
        (128, 1, 1, 1): "batch_too_small",
        (1, 1, 2, 1): "microbatches_without_stages",
        (1, 1, 2, 128): "too_many_microbatches",
        (1, 32, 1, 1): "heads",
        (1, 1, 32, 2): "too_many_stages",
    }
    for degrees, reason in reasons.items():
        row = of(*degrees)
        assert row["reason"] == reason
        assert "{" not in row["reason_text"]
    assert of(1, 1, 2, 2**20, batch=2**21)["reason"] == "too_long"
    with pytest.raises(ConfigurationError, match="heads do not divide"):
        of(1, 1, 1, 1, size=GPTSize(2, 3, 16))
