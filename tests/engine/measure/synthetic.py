"""Timings of a machine whose true parameters are known: the model's formulas, written out once more by hand."""

from __future__ import annotations

import math
import random
from typing import Any

from engine.measure import Samples, samples_of

H100: dict[str, Any] = {
    "kind": "cuda",
    "name": "NVIDIA H100 80GB HBM3",
    "generation": "hopper",
    "count": 8,
    "memory_bytes": 85_500_000_000,
    "multiprocessors": 132,
    "clock_hz": 1.755e9,
    "datatype": "bfloat16",
    "software": "PyTorch 2.13.0, CUDA 13.0, driver 580.1",
    "date": "2026-11-21",
}
CPU: dict[str, Any] = {
    "kind": "cpu",
    "name": "Some Processor",
    "generation": "cpu",
    "count": 1,
    "memory_bytes": 32 * 2**30,
    "datatype": "float32",
    "software": "PyTorch 2.13.0, 2 threads",
    "date": "2026-11-21",
}

TRUE: dict[str, float] = {
    "kernel_start": 2.1e-6,
    "launch": 9e-6,
    "memory": 0.9,
    "sustained_hopper": 0.62,
    "wave": 0.95,
    "depth": 470.0,
    "eight_bit": 0.83,
    "attention": 0.53,
    "foreign_kernel": 0.52,
    "scale_up": 0.79,
    "latency": 21e-6,
}
PEAK16, PEAK8, BANDWIDTH, LINK = 989e12, 1979e12, 3350e9, 450e9
PRODUCTS = [
    (2048, 2048, 2048),
    (4096, 4096, 1024),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 8192, 512),
    (8192, 8192, 1024),
    (2048, 8192, 8192),
    (8192, 1024, 8192),
    (1024, 4096, 8192),
]


class Noise:
    """Factors around 1, the same ones every time; some timings are `outliers` times too long."""

    def __init__(self, deviation: float = 0.0, outliers: float = 1.0) -> None:
        self._random = random.Random(7)
        self._deviation, self._outliers, self._count = deviation, outliers, 0

    def timing(self, seconds: float) -> dict[str, Any]:
        self._count += 1
        factor = math.exp(self._random.gauss(0.0, self._deviation))
        factor *= self._outliers if self._count % 7 == 0 else 1.0
        return {"seconds": seconds * factor, "spread": self._deviation, "repeats": 20}


def product(size: tuple[int, int, int], rate: float, sms: int, true: dict[str, float]) -> float:
    m, n, k = size
    waves = math.ceil(m / 128) * math.ceil(n / 128) / sms
    return 2 * m * n * k / rate * (1 + true["wave"] / waves) * (1 + true["depth"] / k) + true["kernel_start"]


def attention(size: tuple[int, int], share: float, true: dict[str, float]) -> tuple[float, float]:
    """Forward and backward pass on the H100, 16 heads of 128."""
    batch, s = size
    scores = 0.5 * s * s * 16 * batch
    operations = 2 * scores * 256
    exponentials = 0.7 * scores / (132 * 16 * 1.755e9)
    tail = 1 + 0.5 * min(132 / (16 * batch * math.ceil(s / 128)), 4)
    rate = share * PEAK16
    forward = (operations / rate + exponentials) * tail + true["kernel_start"]
    backward = 1.1 * (2.5 * operations / rate + exponentials) * tail + 2 * true["kernel_start"]
    return forward, backward


def exchange(kind: str, size: int, ranks: int, bandwidth: float, latency: float) -> float:
    passes = 2 if kind == "all_reduce" else 1
    return passes * (ranks - 1) / ranks * size / bandwidth + passes / 2 * latency * (1 + 0.1 * (ranks - 1))


def h100(noise: Noise | None = None, true: dict[str, float] | None = None, **changes: Any) -> Samples:
    """Timings of eight H100s with the parameters `true`; `changes` replace parts of the document."""
    noise, true = noise or Noise(), true or TRUE
    rate16 = true["sustained_hopper"] * PEAK16
    rate8 = true["sustained_hopper"] * true["eight_bit"] * PEAK8
    rates = {"bfloat16": rate16, "float8": rate8}
    shares = {"native": true["attention"], "flash2": true["attention"] * true["foreign_kernel"]}
    attentions = []
    for kernel, share in shares.items():
        for size in ((8, 2048), (4, 4096), (2, 8192), (1, 16384)):
            forward, backward = attention(size, share, true)
            attentions.append(
                {
                    "kernel": kernel,
                    "heads": 16,
                    "head_size": 128,
                    "batch": size[0],
                    "sequence": size[1],
                    "forward": noise.timing(forward),
                    "both": noise.timing(forward + backward),
                }
            )
    document = {
        "format": "shardscape-samples/1",
        "device": H100,
        "quick": False,
        "products": [
            {
                "datatype": datatype,
                "m": size[0],
                "n": size[1],
                "k": size[2],
                "time": noise.timing(product(size, rates[datatype], 132, true)),
            }
            for datatype in rates
            for size in PRODUCTS
        ],
        "attentions": attentions,
        "transfers": [
            {"kind": kind, "moved": moved, "time": noise.timing(moved / (true["memory"] * BANDWIDTH) + 2e-6)}
            for moved in (10**7, 10**9, 10**11)
            for kind in ("copy", "triad")
        ],
        "exchanges": [
            {
                "kind": kind,
                "ranks": 8,
                "size": size,
                "time": noise.timing(exchange(kind, size, 8, true["scale_up"] * LINK, true["latency"])),
            }
            for size in (2**12, 2**16, 2**20, 2**24, 2**29)
            for kind in ("all_reduce", "all_gather")
        ],
        "launches": [
            {"kind": "kernel", "time": noise.timing(4e-6)},
            {"kind": "graph", "time": noise.timing(true["kernel_start"])},
            {"kind": "block_forward", "time": noise.timing(20 * true["launch"])},
            {"kind": "block", "time": noise.timing(56 * true["launch"])},
        ],
        **changes,
    }
    return samples_of(document)


def cpu(**changes: Any) -> Samples:
    """Timings of a CPU: 100 GFLOP/s for long products, 20 GB/s, two ranks that exchange at 2 GB/s."""
    true = {"wave": 0.6, "depth": 300.0, "kernel_start": 3e-6}
    sizes = [(256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (512, 512, 128)]
    quiet = Noise()
    document = {
        "format": "shardscape-samples/1",
        "device": CPU,
        "quick": True,
        "products": [
            {"datatype": "float32", "m": m, "n": n, "k": k, "time": quiet.timing(product((m, n, k), 100e9, 1, true))}
            for m, n, k in sizes
        ],
        "transfers": [
            {"kind": kind, "moved": 10**8, "time": quiet.timing(10**8 / rate)}
            for kind, rate in (("copy", 18e9), ("triad", 20e9))
        ],
        "exchanges": [
            {"kind": kind, "ranks": 2, "size": size, "time": quiet.timing(exchange(kind, size, 2, 2e9, 1e-4))}
            for size in (2**12, 2**18, 2**22)
            for kind in ("all_reduce", "all_gather")
        ],
        "launches": [
            {"kind": "kernel", "time": quiet.timing(3e-6)},
            {"kind": "block_forward", "time": quiet.timing(20 * 5e-6)},
            {"kind": "block", "time": quiet.timing(56 * 6e-6)},
        ],
        **changes,
    }
    return samples_of(document)
