"""Rows recomputed with plain numbers, formula by formula, without any code of the engine's physics.

Hopper's sustained rates, serving's stated numbers and datasheet values are typed in or read from the calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2
from typing import Any

import pytest

from engine import serving
from engine.cost_models.calibrated import parameters

P = parameters()
PEAK16, PEAK8, HBM, NVLINK, NETWORK = 989e12, 1979e12, 3350e9, 450e9, 50e9
DOMAIN, SM, CLOCK, CAPACITY = 8, 132, 1.755e9, 79.6474609375 * 2**30
LATENCY = 5e-6


@dataclass
class Net:
    """A model, typed in from its publication."""

    h: int
    ffn: int
    blocks: int
    heads: int
    kv: int
    head: int
    vocab: int
    window: int = 0
    every: int = 1
    q_rank: int = 0
    rank: int = 0
    rope: int = 0
    value: int = 0
    experts: int = 0
    top: int = 0
    width: int = 0
    shared: int = 0
    leading: int = 0
    groups: int = 1
    chosen: int = 1


LLAMA = Net(8192, 28672, 80, 64, 8, 128, 128256, value=128)
GPT_OSS = Net(2880, 2880, 36, 64, 8, 64, 201088, value=64, window=128, every=2, experts=128, top=4, width=2880)
DEEPSEEK = Net(
    7168,
    18432,
    61,
    128,
    128,
    192,
    129280,
    q_rank=1536,
    rank=512,
    rope=64,
    value=128,
    experts=256,
    top=8,
    width=2048,
    shared=1,
    leading=3,
    groups=8,
    chosen=4,
)


def gemm(m: float, n: float, k: float, count: float, low: bool, weight: float, start: float) -> float:
    rate = (PEAK8 * P.eight_bit if low else PEAK16) * P.sustained_hopper
    if n % 64 or k % 64:
        rate /= 1 + P.misaligned
    moved = count * (weight * k * n + 2 * m * (k + n)) / (HBM * P.memory)

    def computed(parts: int) -> float:
        waves = ceil(n / 128) * count * m / 128 * parts / SM
        return 2 * m * n * k * count / rate * (1 + P.wave / waves) * (1 + P.depth / (k / parts))

    whole = max(computed(1), moved)
    split = max(computed(8), moved + 8 * 8 * count * m * n / (HBM * P.memory))
    return min(whole, split) + start


def exchange_time(size: float, ranks: int, passes: int) -> float:
    """A collective over the scale-up domain, then the network."""
    inside = min(ranks, DOMAIN)
    outside = ranks / inside
    time = passes * (inside - 1) / inside * size / (NVLINK * P.scale_up)
    time += passes / 2 * LATENCY * (1 + 0.1 * (inside - 1)) if inside > 1 else 0
    time += passes * (outside - 1) / outside * size / inside / (NETWORK * P.scale_out)
    return time + (passes / 2 * LATENCY * (1.5 + log2(outside)) if outside > 1 else 0)


@dataclass
class Run:
    """One deployment."""

    net: Net
    t: int
    p: int
    e: int
    batch: int
    bits: int
    kv_bits: int
    graphs: bool
    prompt: int
    output: int

    @property
    def low(self) -> bool:
        return self.bits == 8

    @property
    def weight(self) -> float:
        return {16: 2.0, 8: 1.0, 4: 4.25 / 8}[self.bits]

    def block(
        self,
        tokens: float,
        prompts: float,
        start: float,
        windowed: bool,
        sparse: bool,
        context: float | None,
        chunks: int,
    ) -> float:
        """Seconds of one block."""
        net, t, hbm = self.net, self.t, HBM * P.memory

        def mm(m: float, n: float, k: float, count: float = 1) -> float:
            return gemm(m, n, k, count, self.low, self.weight, start)

        local = max(net.kv / t, 1)
        if net.rank:
            time = mm(tokens, net.q_rank, net.h) + mm(tokens, net.heads * net.head / t, net.q_rank)
            time += mm(tokens, net.rank + net.rope, net.h)
            time += mm(tokens, net.heads * (net.head - net.rope + net.value) / t, net.rank)
        else:
            time = mm(tokens, net.heads * net.head / t + local * (net.head + net.value), net.h)
        time += mm(tokens, net.h, net.heads * net.value / t)
        # Norms, residuals, positions.
        time += (22 * tokens * net.h + 4 * tokens * (net.heads / t + local) * net.head) / hbm + 6 * start
        rate = PEAK16 * P.attention
        if context is None:
            seen = ceil(self.prompt / 128) * 128
            windows = min(net.window / seen, 1)
            share = windows * (2 - windows) if windowed else 1
            scores = 0.5 * seen**2 * net.heads / t * prompts * share
            waves = net.heads / t * prompts * ceil(seen / 128) / SM
            core = 2 * scores * (net.head + net.value) / rate + P.exponentials * scores / (SM * 16 * CLOCK)
            time += (core * (1 + 0.5 * min(1 / waves, 4)) + start) / chunks
        else:
            seen = min(context, net.window) if windowed else context
            elements = net.rank + net.rope if net.rank else local * (net.head + net.value)
            read = prompts * seen * elements * self.kv_bits / 8 / hbm
            if net.rank:
                done = 2 * prompts * seen * max(net.heads / t, 16) * (2 * net.rank + net.rope) / rate
            else:
                rows = local * max(net.heads / t / local, 16)
                done = 2 * prompts * seen * max(rows, 16) * (net.head + net.value) / rate
            time += max(read, done) + 2 * start
        reduce = exchange_time(2 * tokens * net.h, t, 2) if t > 1 else 0
        time += reduce
        cast = 0.0
        width = (net.top + net.shared) * net.width if sparse else net.ffn
        if self.low:
            cast = 4 * (2 * net.h * tokens + (net.heads * net.value + width) * tokens / t) / hbm
        time += 6 * tokens * width / t / hbm + 2 * start + cast
        if not sparse:
            return time + mm(tokens, 2 * net.ffn / t, net.h) + mm(tokens, net.h, net.ffn / t) + reduce
        together, slices = max(self.e / t, 1), max(t / self.e, 1)
        visit = 1 - (1 - net.top / net.experts) ** (tokens * together)
        touched = net.experts / self.e * visit
        each = tokens * together * net.top / net.experts / visit
        time += gemm(tokens, net.experts, net.h, 1, False, 2.0, start)
        time += mm(each, 2 * net.width / slices, net.h, touched) + mm(each, net.h, net.width / slices, touched)
        if net.shared:
            time += mm(tokens, 2 * net.shared * net.width / t, net.h) + mm(tokens, net.h, net.shared * net.width / t)
        time += 16 * tokens * together * net.top / self.e * net.h / hbm
        if self.e <= t:
            return time + reduce
        inside = min(DOMAIN, self.e)
        nodes = self.e / inside
        sent = 2 * net.h * tokens / t

        def hit(ranks: float) -> float:
            # All experts of a token stand in `chosen` of the groups, each on its own share of the ranks.
            reached = ranks * net.chosen / net.groups
            return reached * (1 - (1 - 1 / reached) ** net.top) * (ranks - 1) / ranks

        one_way = hit(self.e) * sent / (NVLINK * P.scale_up * P.exchange_host)
        one_way += hit(nodes) * sent / (NETWORK * P.scale_out * P.exchange_network) + LATENCY
        return time + 2 * one_way + reduce / 2

    def through(
        self, tokens: float, prompts: float, start: float, context: float | None, chunks: int, host: float
    ) -> tuple[float, float]:
        """Sum and maximum over stages [s]."""
        net, t = self.net, self.t
        sizes = [net.blocks // self.p + (stage < net.blocks % self.p) for stage in range(self.p)]
        times, block = [], 0
        for stage, size in enumerate(sizes):
            time = floor_time = 0.0
            for _ in range(size):
                windowed = bool(net.window) and (block + 1) % net.every != 0
                sparse = bool(net.experts) and block >= net.leading
                time += self.block(tokens, prompts, start, windowed, sparse, context, chunks)
                launches = 20 + (t - 1) + (10 if self.low else 0) + (15 if sparse else 0)
                floor_time += launches * P.launch * host
                block += 1
            if stage == 0:
                time += 6 * tokens * net.h / (HBM * P.memory)
                time += exchange_time(2 * tokens * net.h, t, 2) if t > 1 else 0
            if stage == self.p - 1:
                time += gemm(prompts, net.vocab / t, net.h, 1, False, 2.0, start)
                time += 12 * prompts * net.vocab / t / (HBM * P.memory)
                time += exchange_time(2 * prompts * net.vocab, t, 1) if t > 1 else 0
            times.append(max(time, floor_time))
        return sum(times), max(times)

    def message(self, tokens: float) -> float:
        if self.p == 1:
            return 0.0
        link = NVLINK * P.scale_up if self.t * self.p <= DOMAIN else NETWORK * P.scale_out
        return 2 * tokens * self.net.h / self.t / link + LATENCY

    def figures(self) -> dict[str, float]:
        tokens = ceil(self.batch / self.p)
        start, host = (2e-6, 0.0) if self.graphs else (P.kernel_start, 1.0)
        total, slowest = self.through(tokens, tokens, start, self.prompt + self.output / 2, 1, host)
        step = max(total + self.p * self.message(tokens), ceil(self.batch / tokens) * slowest) + 0.5e-3
        chunks = ceil(self.prompt / 8192)
        host = P.graphs_launch if self.graphs else 1.0
        total, slowest = self.through(self.prompt / chunks, 1, P.kernel_start, None, chunks, host)
        first = total + (chunks - 1) * slowest + (self.p - 1) * self.message(self.prompt / chunks) + 0.5e-3
        together = min(max(floor(8192 / self.prompt), 1), self.batch)
        _, slowest = self.through(together * self.prompt / chunks, together, P.kernel_start, None, chunks, host)
        prefill = chunks * slowest / together
        per_token = step + (self.batch - 1) * prefill / (self.output - 1)
        rate = self.batch * self.output / (self.batch * prefill + (self.output - 1) * step) / self.t / self.p
        return {
            "decode_step_time": step,
            "time_to_first_token": first,
            "prefill_time": prefill,
            "time_per_output_token": per_token,
            "tokens_per_s_per_processor": rate,
            "energy_per_token": 700 / rate,
            "cost_per_million_tokens": 2.5 / 3600 / rate * 1e6,
        }


ROWS = (
    Run(LLAMA, 8, 1, 1, 1, 16, 16, True, 1024, 256),
    Run(LLAMA, 8, 1, 1, 200, 8, 8, True, 300, 256),
    Run(LLAMA, 4, 3, 1, 50, 8, 16, True, 5000, 64),
    Run(LLAMA, 2, 2, 1, 33, 4, 8, False, 700, 900),
    Run(LLAMA, 16, 1, 1, 7, 16, 16, True, 100, 20),
    Run(GPT_OSS, 2, 2, 1, 24, 16, 16, True, 3000, 1000),
    Run(GPT_OSS, 1, 1, 8, 64, 8, 8, False, 60, 100),
    Run(GPT_OSS, 4, 1, 2, 64, 4, 4, True, 100_000, 100),
    Run(DEEPSEEK, 2, 1, 64, 16, 8, 16, True, 2000, 500),
    Run(DEEPSEEK, 8, 4, 8, 100, 8, 8, True, 20_000, 500),
)


@pytest.mark.parametrize("run", ROWS, ids=range(len(ROWS)))
def test_rows_by_hand(run: Run):
    name = {id(LLAMA): "llama-3.1-70B", id(GPT_OSS): "gpt-oss-120B", id(DEEPSEEK): "deepseek-v3"}[id(run.net)]
    table: dict[str, Any] = {
        "tensor_par": [run.t],
        "pipeline_par": [run.p],
        "expert_par": [run.e],
        "batch": [run.batch],
        "replicas": [max(run.e // run.t, 1)],
        "weight_bits": [run.bits],
        "kv_bits": [run.kv_bits],
        "launch": ["graphs" if run.graphs else "eager"],
        "prompt": [run.prompt],
        "output": [run.output],
    }
    found = serving.evaluate(name, "h100_80g_sxm", table, price=2.5).iloc[0]
    assert found["status"] == "ok", found["reason_text"]
    for figure, value in run.figures().items():
        assert found[figure] == pytest.approx(value, rel=1e-9), figure
