"""Changes as people write them: values, amounts, shares and factors, in units."""

from __future__ import annotations

from functools import cache

import pytest

from engine import Scenario, whatif
from engine.whatif import ChangeError, Parameter, parse_amount


@cache
def parameters() -> dict[str, Parameter]:
    scenario = Scenario.of("llama-3-8B", "h100_80g_sxm", num_procs=8, max_batch_size=8, datatype="bfloat16")
    return {which.name: which for which in whatif.parameters(scenario)}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("hbm_bandwidth", "6700", lambda now: 6700.0),
        ("hbm_bandwidth", "6.7 TB/s", lambda now: 6700.0),
        ("hbm_bandwidth", "+1TB/s", lambda now: now + 1000.0),
        ("net1_bandwidth", "+400 Gbit/s", lambda now: now + 50.0),
        ("hbm_capacity", "+32 GB", lambda now: now + 32e9 / 2**30),
        ("hbm_capacity", "- 8 GiB", lambda now: now - 8.0),
        ("compute", "+100 TFLOP/s", lambda now: now + 100.0),
        ("compute", "1 PFLOP/s", lambda now: 1000.0),
        ("net1_latency", "\u22121 µs", lambda now: now - 1.0),
        ("power", "+0.1 kW", lambda now: now + 100.0),
        ("hbm_bandwidth", "+10 %", lambda now: 1.1 * now),
        ("hbm_bandwidth", "-10%", lambda now: 0.9 * now),
        ("net0_size", "x2", lambda now: 2 * now),
        ("net0_size", "+8 GPUs", lambda now: now + 8),
        ("procs", "/2", lambda now: now / 2),
    ],
)
def test_the_new_value_of_a_parameter(name: str, text: str, expected: object) -> None:
    if name not in parameters():
        pytest.skip("not a parameter of this system")
    which = parameters()[name]
    assert parse_amount(which, text) == pytest.approx(expected(which.value), rel=1e-12)  # type: ignore[operator]


@pytest.mark.parametrize(
    "text", ["", "much", "+", "x", "1 2", "10 %", "x2 GB/s", "x0", "+1 GiB", "1,000", "nan", "inf", "+1" * 40, "١"]
)
def test_what_is_no_change_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ChangeError) as refused:
        parse_amount(parameters()["hbm_bandwidth"], text)
    assert str(refused.value).startswith("HBM bandwidth ")
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 250
