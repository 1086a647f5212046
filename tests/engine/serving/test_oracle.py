"""Rows recomputed with plain numbers, formula by formula, without any code of the engine's physics.

Datasheet values are typed in; rates are those of the calibrations, of training for networks, of serving for kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, sqrt
from typing import Any

import pytest

from engine import serving
from engine.cost_models.calibrated import parameters
from hardware import load_calibration

P = parameters()
C = {name: each.value for name, each in load_calibration("serving").parameters.items()}
PEAK16, PEAK8, HBM, NVLINK, NETWORK = 989e12, 1979e12, 3350e9, 450e9, 50e9
DOMAIN, SM, CLOCK, CAPACITY = 8, 132, 1.755e9, 79.6474609375 * 2**30
LATENCY = 5e-6
GENERIC = {name.rsplit(".", 1)[1]: value for name, value in C.items() if name.startswith("engine.generic.")}


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
)


def join(memory: float, compute: float) -> float:
    return (memory**4 + compute**4) ** 0.25


def rates(kind: str, name: str) -> dict[str, float]:
    found = {key.rsplit(".", 1)[1]: value for key, value in C.items() if key.startswith(f"{kind}.hopper.{name}.")}
    assert found
    return found


def gemm(m: float, n: float, k: float, name: str, weight: float, starts: float) -> float:
    r = rates("product", name)
    peak = PEAK8 if name.startswith("float8") else PEAK16
    waves = max(m / 128, 1) * ceil(n / 128) / SM
    compute = 2 * max(m, r["rows"]) * n * k / (r["matrix"] * peak) * min(1 + 0.35 / waves, 6) * (1 + 300 / k)
    memory = (weight * n * k + 2 * m * (n + k)) / (r["memory"] * HBM)
    return starts * r["start"] + 0.2 * r["quantise"] * 2 * m * k / HBM + join(memory, compute)


def wide(m: float, n: float, k: float, starts: float) -> float:
    """A product whose weights have 16 bits in every checkpoint: its inputs are not quantised by a norm before."""
    r = rates("product", "bfloat16")
    return gemm(m, n, k, "bfloat16", 2.0, starts) + 0.8 * r["quantise"] * 2 * m * k / HBM


def exchange_time(size: float, ranks: int, passes: int) -> float:
    """A collective over the scale-up domain, then the network."""
    inside = min(ranks, DOMAIN)
    outside = ranks / inside
    time = passes * (inside - 1) / inside * size / (NVLINK * P.scale_up)
    time += passes / 2 * LATENCY * (1 + 0.1 * (inside - 1)) if inside > 1 else 0
    time += passes * (outside - 1) / outside * size / inside / (NETWORK * P.scale_out)
    return time + (passes / 2 * LATENCY * (1.5 + log2(outside)) if outside > 1 else 0)


def all_reduce(size: float, ranks: int, starts: float) -> float:
    """The engine's kernel in the domain, unless a collective is faster."""
    if ranks == 1:
        return 0.0
    plain, r = exchange_time(size, ranks, 2), rates("all_reduce", "all")
    if ranks > DOMAIN:
        return plain
    one = (ranks - 1) * size / (r["one_step"] * NVLINK)
    two = 2 * (ranks - 1) / ranks * size / (r["two_steps"] * NVLINK) + r["second"]
    return min(plain, starts * r["start"] + r["rank"] * (ranks - 1) + min(one, two))


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
    def weight(self) -> float:
        return {16: 2.0, 8: 1.0, 4: 4.25 / 8}[self.bits]

    def name(self) -> str:
        """Datatype of products: no 4-bit rate on Hopper, whose kernels for weights alone are those of 16 bits."""
        if self.bits == 8:
            return "float8_block" if self.net.experts else "float8"
        return "bfloat16"

    def attend(self, decoding: float, prompts: float, chunks: int, windowed: bool, starts: float) -> float:
        """Seconds of attention of one block."""
        net, t = self.net, self.t
        heads, keys, cache = net.heads / t, max(net.kv / t, 1), self.kv_bits / 8
        name, time = "bfloat16" if self.kv_bits == 16 else "float8", 0.0
        if decoding:
            context = self.prompt + self.output / 2
            context = min(context, net.window) if windowed else context
            r = rates("latent_decode" if net.rank else "decode", name)
            idle = 1 + 0.02 * SM / max(decoding * (1 if net.rank else keys), 1) / max(context / 256, 1)
            if net.rank:
                read, rows = net.rank + net.rope, max(heads, r["heads"])
                done, joined = rows * (2 * net.rank + net.rope), heads * net.rank
            else:
                read = keys * (net.head + net.value)
                done, joined = keys * max(heads / keys, 32) * (net.head + net.value), heads * net.value
            memory = decoding * context * read * cache / (r["memory"] * HBM) * idle
            compute = 2 * decoding * context * done / (r["matrix"] * PEAK16) * idle
            time += starts * r["start"] + r["doubling"] * log2(1 + context / 128) + join(memory, compute)
            time += r["joined"] * 4 * decoding * joined / HBM
        if prompts:
            r = rates("latent_prefill" if net.rank else "prefill", "all")
            seen = min(net.window, self.prompt) if windowed else self.prompt
            keys, cache = (heads, 0) if net.rank else (keys, cache)
            moved = prompts * self.prompt * (2 * (heads + keys) + cache * keys) * (net.head + net.value)
            waves = heads * prompts * max(self.prompt / 128, 1) / SM
            scores = seen * self.prompt - seen**2 / 2
            compute = 2 * prompts * scores * heads * (net.head + net.value) / (r["matrix"] * PEAK16)
            core = join(moved / (r["memory"] * HBM), compute * min(1 + 0.5 / waves, 5))
            time += starts * r["start"] + core / chunks
        return time

    def experts(self, tokens: float, starts: float) -> float:
        """Seconds of the launch over routed experts of one block."""
        net, r = self.net, rates("experts", self.name())
        peak = PEAK8 if self.bits == 8 else PEAK16
        tokens *= max(self.e / self.t, 1)
        width = net.width / max(self.t / self.e, 1)
        visit = 1 - (1 - net.top / net.experts) ** tokens
        touched, each = max(net.experts / self.e * visit, 1), tokens * net.top / net.experts / visit
        weights = 3 * net.h * width
        memory = touched * weights * self.weight / (r["memory"] * HBM)
        memory *= 1 + 0.5 * SM / (touched * 2 * width / 128 + 1)
        waves = touched * max(each / 128, 1) * ceil(2 * width / 128) / SM
        compute = touched * 2 * max(each, 10) * weights / (r["matrix"] * peak) * min(1 + 5 / waves, 8) * 1.25
        time = starts * (r["start"] + r["doubling"] * log2(1 + tokens / 64)) + sqrt(memory**2 + compute**2)
        return time + 8 * tokens * net.top / self.e * net.h / HBM

    def block(
        self,
        decoding: float,
        prompts: float,
        chunks: int,
        windowed: bool,
        sparse: bool,
        start: float,
        starts: float,
    ) -> float:
        """Seconds of one block; `start` of kernels over elements, `starts` times those of the others."""
        net, t, hbm = self.net, self.t, HBM * P.memory
        tokens = decoding + prompts * self.prompt / chunks

        def mm(m: float, n: float, k: float) -> float:
            return gemm(m, n, k, self.name(), self.weight, starts)

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
        time += self.attend(decoding, prompts, chunks, windowed, starts)
        reduce = all_reduce(2 * tokens * net.h, t, starts)
        time += reduce
        if not sparse:
            time += 6 * tokens * net.ffn / t / hbm + 2 * start
            return time + mm(tokens, 2 * net.ffn / t, net.h) + mm(tokens, net.h, net.ffn / t) + reduce
        time += wide(tokens, net.experts, net.h, starts) + start + self.experts(tokens, starts)
        if net.shared:
            width = net.shared * net.width / t
            time += mm(tokens, 2 * width, net.h) + mm(tokens, net.h, width) + 6 * tokens * width / hbm + 2 * start
        if self.e <= t:
            return time + reduce
        inside = min(DOMAIN, self.e)
        nodes = self.e / inside
        sent = 2 * net.h * tokens / t

        def elsewhere(places: float) -> float:
            # An all-to-all sends a copy of a token for each of its experts, some of them to its own place.
            return net.top * (places - 1) / places

        one_way = elsewhere(self.e) * sent / (NVLINK * P.scale_up * min(2.25 * P.exchange_host, 1))
        one_way += elsewhere(nodes) * sent / (NETWORK * P.scale_out * min(1.65 * P.exchange_network, 1)) + LATENCY
        return time + 2 * one_way + reduce / 2

    def through(
        self, decoding: float, prompts: float, chunks: int, start: float, starts: float, host: float
    ) -> tuple[float, float]:
        """Sum and maximum over stages [s]."""
        net, t = self.net, self.t
        tokens, requests = decoding + prompts * self.prompt / chunks, decoding + prompts
        sizes = [net.blocks // self.p + (stage < net.blocks % self.p) for stage in range(self.p)]
        times, block = [], 0
        for stage, size in enumerate(sizes):
            time = floor_time = 0.0
            for _ in range(size):
                windowed = bool(net.window) and (block + 1) % net.every != 0
                sparse = bool(net.experts) and block >= net.leading
                time += self.block(decoding, prompts, chunks, windowed, sparse, start, starts)
                launches = 20 + (t - 1) + (10 if self.bits == 8 else 0) + (15 if sparse else 0)
                floor_time += launches * P.launch * host
                block += 1
            if stage == 0:
                time += 6 * tokens * net.h / (HBM * P.memory) + all_reduce(2 * tokens * net.h, t, starts)
            if stage == self.p - 1:
                time += wide(requests, net.vocab / t, net.h, starts)
                time += 12 * requests * net.vocab / t / (HBM * P.memory)
                time += exchange_time(2 * requests * net.vocab, t, 1) if t > 1 else 0
            times.append(max(time, floor_time))
        return sum(times), max(times)

    def message(self, tokens: float) -> float:
        if self.p == 1:
            return 0.0
        link = NVLINK * P.scale_up if self.t * self.p <= DOMAIN else NETWORK * P.scale_out
        return 2 * tokens * self.net.h / self.t / link + LATENCY

    def figures(self) -> dict[str, float]:
        g, batch, later = GENERIC, self.batch, self.output - 1
        tokens = ceil(batch / self.p)
        start, host = (2e-6, 0.0) if self.graphs else (P.kernel_start, 1.0)
        total, stage = self.through(tokens, 0, 1, start * g["starts"], g["starts"], host)
        cycle = max(total + self.p * self.message(tokens), ceil(batch / tokens) * stage)
        step = cycle + g["step"] + g["step_layer"] * self.net.blocks + g["sequence"] * batch
        chunks = ceil(self.prompt / 8192)
        together = min(max((batch - 1) / later, 1), max(8192 / self.prompt, 1))
        decoding = g["mixed"] * min(tokens, batch - 1, together * later)
        host = P.graphs_launch if self.graphs else 1.0
        total, slowest = self.through(decoding, together, chunks, P.kernel_start, 1.0, host)
        added_host = g["prefill_pass"] + g["prefill_layer"] * self.net.blocks
        one, passes = slowest + added_host, chunks / together
        sent = (self.p - 1) * self.message(decoding + together * self.prompt / chunks)
        own = total + sent + (chunks - 1) * slowest + chunks * added_host
        first = g["first_token"] + (step / 2 if batch > 1 else 0) + own
        first += g["waiting"] * (batch - together) * passes * one if batch > together else 0
        crowded = (1 - g["waiting"]) * max(batch - together, 0) * passes / later
        added = max(one - g["mixed"] * stage, 0)
        per_token = step + g["mixed"] * max(crowded - 1, 0) * cycle + crowded * added
        rate = batch * self.output / (first + later * per_token) / self.t / self.p
        return {
            "decode_step_time": step,
            "time_to_first_token": first,
            "prefill_time": passes * one,
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
