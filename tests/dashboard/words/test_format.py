"""Numbers read the same everywhere, and nothing that a result can hold breaks them."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.words import numbers
from engine.columns import ALL, Column

GIB = 2.0**30


def unbroken(expected: str) -> str:
    """The text with spaces at which no line ends: a number and its unit stay together."""
    return expected.replace(" ", numbers.SPACE)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("total_time", 1.8714, "1.87 s"),
        ("total_time", 0.61449, "614 ms"),
        ("total_time", 0.0999951, "100 ms"),
        ("total_time", 0.9996, "1.00 s"),
        ("total_time", 3.2e-6, "3.20 µs"),
        ("total_time", 5e-10, "500 ps"),
        ("total_time", 1234.5, "1,234 s"),
        ("total_time", 0, "0 s"),
        ("total_time", 2, "2 s"),
        ("proc_mem_tier1_cap_req", 51.4 * GIB, "51.4 GiB"),
        ("proc_mem_tier1_cap_req", 80 * GIB, "80 GiB"),
        ("proc_mem_tier1_cap_req", 1536 * GIB, "1.50 TiB"),
        ("proc_mem_tier1_cap_req", 1023 * GIB, "1,023 GiB"),
        ("proc_mem_tier2_cap_req", 0.0, "0 GiB"),
        ("block_fw_pp_size", 134217728.0, "128 MiB"),
        ("block_fw_flops", 13365401354240.0, "13.4 TFLOP"),
        ("offload_mem_bw_req", 11967875231.73, "12.0 GB/s"),
        ("offload_mem_bw_req", 427e9, "427 GB/s"),
        ("offload_mem_bw_req", 3.07e12, "3.07 TB/s"),
        ("offload_mem_bw_req", math.inf, "∞"),
        ("offload_mem_bw_req", 0.0, "0 GB/s"),
        ("total_efficiency", 0.58712, "58.7 %"),
        ("total_efficiency", 0.0, "0.0 %"),
        ("sample_rate", 820.4, "820 samples/s"),
        ("sample_rate", 1234.56, "1,235 samples/s"),
        ("sample_rate", 54.94, "54.9 samples/s"),
        ("sample_rate", 1.68e6, "1.68 M samples/s"),
        ("sample_rate", math.nan, "–"),
        ("sample_rate", None, "–"),
        ("sample_rate", pd.NA, "–"),
        ("num_procs", 1536, "1,536"),
        ("tensor_par", np.int32(8), "8"),
        ("optimizer_sharding", np.bool_(True), "on"),
        ("optimizer_sharding", False, "off"),
        ("tensor_par_comm_type", "rs_ag", "RS+AG"),
        ("datatype", "float8", "FP8"),
        ("datatype", None, "–"),
        ("total_time", 1e300, "1.00 × 10³⁰⁰ s"),
        ("total_time", 1e-20, "1.00 × 10⁻⁸ ps"),
        ("bubble_time", -0.25, "−250 ms"),
    ],
)
def test_value(column: str, value: object, expected: str) -> None:
    assert numbers.format_value(column, value) == unbroken(expected)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0"),
        (33866, "33,866"),
        (999_999, "999,999"),
        (3_141_592, "3.14 M"),
        (7_000_000, "7.00 M"),
        (7_126_368, "7.13 M"),
        (1_200_000_000, "1.20 bn"),
        (999_999_999, "1.00 bn"),
        (math.nan, "–"),
        (-1200, "−1,200"),
    ],
)
def test_count(number: float, expected: str) -> None:
    assert numbers.count(number) == unbroken(expected)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (3_310_000, "38.3 days"),
        (86_400, "1.0 days"),
        (25_920, "7.2 h"),
        (1_178, "20 min"),
        (42, "0.70 min"),
        (0, "0.0 days"),
        (math.inf, "∞"),
        (math.nan, "–"),
    ],
)
def test_days(seconds: float, expected: str) -> None:
    assert numbers.days(seconds) == unbroken(expected)


def test_counted() -> None:
    assert [numbers.counted(number, "sequence") for number in (0, 1, 3072)] == [
        "0 sequences",
        "1 sequence",
        "3,072 sequences",
    ]
    assert numbers.counted(16, "microbatch") == "16 microbatches"


@pytest.mark.parametrize(
    ("column", "change", "expected"),
    [
        ("total_time", 0.0329, "+32.9 ms"),
        ("total_time", -0.477, "−477 ms"),
        ("total_time", 0.0, "±0"),
        ("total_efficiency", 0.027, "+2.7 points"),
        ("total_efficiency", -0.0001, "±0"),
        ("proc_mem_tier1_cap_req", -3.5 * GIB, "−3.50 GiB"),
        ("total_time", math.nan, "–"),
        ("total_time", -math.inf, "−∞"),
    ],
)
def test_delta(column: str, change: float, expected: str) -> None:
    assert numbers.format_delta(column, change) == unbroken(expected)


@pytest.mark.parametrize(
    ("new", "base", "expected"),
    [
        (859, 820, "+4.8 %"),
        (820, 820, "±0"),
        (819.7, 820, "±0"),
        (600, 820, "−26.8 %"),
        (1, 0, "–"),
        (math.nan, 1, "–"),
        (math.inf, 1, "–"),
        (100, 1, "+9,900 %"),
    ],
)
def test_relative(new: float, base: float, expected: str) -> None:
    assert numbers.relative(new, base) == unbroken(expected)


def test_a_shared_scale_suits_the_largest_value() -> None:
    scale = numbers.scale_for("total_time", [0.02, 1.9, math.nan, math.inf])
    assert (scale.unit, scale.number(0.02), scale.number(1.9)) == ("s", "0.0200", "1.90")
    assert numbers.scale_for("total_time", [0.002]).title("Step time") == "Step time, ms"
    assert numbers.scale_for("num_procs", [8]).title("GPUs") == "GPUs"
    assert numbers.scale_for("proc_mem_tier1_cap_req", []).unit == "GiB"
    scale = numbers.scale_for("proc_mem_tier1_cap_req", [9 * GIB])
    assert numbers.header("proc_mem_tier1_cap_req", scale) == "HBM, GiB"


def test_table_decimals() -> None:
    seconds = numbers.Scale(1.0, "s")
    assert numbers.decimals_for([1.943, 2.2], seconds) == 2
    assert numbers.decimals_for([54.1, 820], seconds) == 0
    assert numbers.decimals_for([0.000012], seconds) == 3
    assert numbers.decimals_for([], seconds) == 0


NUMERIC = [column for column in ALL if column.dtype in ("int64", "float64")]


@given(st.sampled_from(NUMERIC), st.one_of(st.floats(), st.integers(), st.none()))
def test_every_number_of_every_column_becomes_short_text(column: Column, value: float | int | None) -> None:
    shown = numbers.format_value(column, value)
    assert shown
    assert "nan" not in shown.lower()
    assert "inf" not in shown.lower()
    assert "-" not in shown


@given(st.floats(min_value=1e-4, max_value=999_999))
def test_plain_numbers_keep_three_digits(value: float) -> None:
    shown = float(numbers.plain(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=5.01e-3)
    assert len(numbers.plain(value)) <= 8


def test_a_memory_beyond_all_needs_is_called_unlimited() -> None:
    # The capacity that Calculon's a100_80e has, and the largest that a machine of the library has.
    assert numbers.gibibytes(80e9 * GIB) == numbers.capacity_words(80e9) == "unlimited"
    assert numbers.share_of(102 * GIB, 80e9 * GIB) == "of unlimited memory"
    for gib in (0.5, 79.6498, 1023.4, 1024, 2268, 4.5e6):
        assert numbers.capacity_words(gib) == numbers.gibibytes(gib * GIB)
    assert numbers.capacity_words(2268) == unbroken("2.21 TiB")
    assert numbers.gibibytes(288 * GIB) == numbers.capacity_words(288) == unbroken("288 GiB")
    assert numbers.share_of(33.2 * GIB, 80 * GIB) == f"{unbroken('42 %')} of {unbroken('80 GiB')}"
