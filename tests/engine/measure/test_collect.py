"""The run as a whole with operations that only pretend, and devices as PyTorch describes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from engine.measure import MeasureError, benchmarks, collect, devices
from engine.measure.collect import MeasurementProgress, measure
from engine.measure.samples import Attention, Device, LaunchSample, Product, SampleTiming, Transfer
from tests.engine.measure.synthetic import H100

QUICKLY = SampleTiming(seconds=1e-3, spread=0.0, repeats=5)


class Pretended:
    """Benchmarks that take no time; 8 bits fail, and products need a second for every 1e9 operations."""

    eight_bit = True
    kernels = ("native", "flash2")
    warm_seconds = 0.25

    def __init__(self, torch: object, device: Device) -> None:
        self.asked: list[tuple[str, float]] = []

    def product(self, datatype: Any, size: tuple[int, int, int], seconds: float) -> Product:
        m, n, k = size
        if datatype == "float8":
            raise RuntimeError("\nno kernel for this device.\nCUDA kernel errors might be reported later")
        time = SampleTiming(seconds=2 * m * n * k / 1e9, spread=0.0, repeats=5)
        return Product(datatype=datatype, m=m, n=n, k=k, time=time)

    def attention(self, kernel: Any, heads: int, head_size: int, size: tuple[int, int], seconds: float) -> Attention:
        shape = {"kernel": kernel, "heads": heads, "head_size": head_size, "batch": size[0], "sequence": size[1]}
        return Attention(**shape, forward=QUICKLY, both=QUICKLY)

    def transfer(self, kind: Any, moved: int, seconds: float) -> Transfer:
        return Transfer(kind=kind, moved=moved, time=QUICKLY)

    def kernel(self, seconds: float) -> LaunchSample:
        return LaunchSample(kind="kernel", time=QUICKLY)

    def graph(self, seconds: float) -> LaunchSample:
        raise NotImplementedError

    def block(self, kind: Any, seconds: float) -> LaunchSample:
        return LaunchSample(kind=kind, time=QUICKLY)

    def release(self) -> None:
        pass


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "Benchmarks", Pretended)
    monkeypatch.setattr(collect, "pytorch", lambda: SimpleNamespace(get_num_threads=lambda: 4))
    monkeypatch.setattr(collect, "described", lambda torch, wanted: Device.model_validate({**H100, "count": 1}))


@pytest.mark.usefixtures("pretended")
def test_what_fails_or_takes_too_long_is_skipped_with_its_reason() -> None:
    told: list[MeasurementProgress] = []
    found = measure(seconds=200.0, progress=told.append)
    reasons = {each.what: each.reason for each in found.skipped}
    assert reasons["collectives"] == "there is one accelerator"
    assert reasons["launches: graph"] == "failed without a message"
    eight = [reason for what, reason in reasons.items() if "float8" in what]
    assert len(eight) == 13
    assert set(eight) == {"no kernel for this device"}
    # 80 s for 2 x 13 products: three shares of 3.1 s do not hold 5 calls of more than 1.85e9 operations. How long the
    # smallest takes is not known before.
    assert [(each.m, each.n, each.k) for each in found.products] == [(1024, 1024, 1024)]
    assert reasons["product in bfloat16, 2048 x 2048 x 2048"].startswith("5 of them would take 85.9 s here")
    # 10 transfers, 4 kinds of launches, 26 products, 10 times attention
    assert [each.done for each in told] == list(range(50))
    assert {each.total for each in told} == {50}
    # 85 % of 200 s, as there are no collectives, and 0.25 s of warming up before 60 timings: attention has two.
    assert told[0].seconds_left == pytest.approx(170.0 + 15.0)


@pytest.mark.usefixtures("pretended")
def test_ranks_are_accelerators_that_are_there() -> None:
    with pytest.raises(MeasureError, match="--ranks is 2; it must be from 1 to 1 on this machine"):
        measure(ranks=2)


@pytest.mark.parametrize(("kind", "least", "most"), [("cpu", 0.0, 0.0), ("cuda", 0.1, 1.0), ("rocm", 0.1, 1.0)])
def test_accelerators_work_before_they_are_timed(
    kind: Any, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is timed: their clocks fall once they have worked for some tenths of a second."""
    asked: list[float] = []

    def timed(call: object, *, warm_seconds: float = 0.0, **_: Any) -> SampleTiming:
        asked.append(warm_seconds)
        return SampleTiming(seconds=1.0, spread=0.0, repeats=5)

    monkeypatch.setattr(benchmarks, "timed", timed)
    device = devices.described(torch_with(major=9, minor=0)).model_copy(update={"kind": kind})
    bench = benchmarks.Benchmarks(MagicMock(), device)
    bench.product(device.datatype, (64, 64, 64), 1.0)
    bench.attention("native", 2, 64, (1, 64), 1.0)
    bench.kernel(1.0)
    bench.block("block", 1.0)
    assert len(asked) == 5
    assert {bench.warm_seconds} == set(asked)
    assert least <= bench.warm_seconds <= most


def torch_with(**facts: Any) -> Any:
    """PyTorch on a machine with one accelerator."""
    hip = facts.pop("hip", None)
    properties = SimpleNamespace(name="Accelerator", total_memory=80 * 2**30, multi_processor_count=132, **facts)
    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(hip=hip, cuda=None if hip else "13.0"),
        cuda=SimpleNamespace(
            is_available=lambda: True,
            get_device_properties=lambda index: properties,
            device_count=lambda: 4,
            is_bf16_supported=lambda including_emulation: facts.get("major", 9) >= 8,
        ),
    )


@pytest.mark.parametrize(
    ("facts", "kind", "generation", "datatype"),
    [
        ({"major": 9, "minor": 0, "clock_rate": 1_980_000}, "cuda", "hopper", "bfloat16"),
        ({"major": 8, "minor": 0}, "cuda", "ampere", "bfloat16"),
        ({"major": 8, "minor": 9}, "cuda", "ada", "bfloat16"),
        ({"major": 10, "minor": 3}, "cuda", "blackwell", "bfloat16"),
        ({"major": 7, "minor": 0}, "cuda", "volta", "float16"),
        ({"hip": "7.1", "gcnArchName": "gfx942:sramecc+:xnack-"}, "rocm", "cdna3", "bfloat16"),
    ],
)
def test_devices_are_what_pytorch_says(facts: dict[str, Any], kind: str, generation: str, datatype: str) -> None:
    found = devices.described(torch_with(**facts))
    assert (found.kind, found.generation, found.datatype, found.count) == (kind, generation, datatype, 4)
    assert found.multiprocessors == 132
    assert found.clock_hz == (1.98e9 if "clock_rate" in facts else None)
    assert "PyTorch 2.13.0" in found.software
