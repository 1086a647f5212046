"""Random models, systems and executions, as Calculon's dictionaries.

`world(random)` draws a model and a system; `execution(random, ...)` an execution that usually runs and sometimes is
broken on purpose. Both take a `random.Random`, so that hypothesis can drive them and shrink what it finds, and a seeded
generator can produce thousands quickly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

Model = dict[str, int]
System = dict[str, Any]
Execution = dict[str, Any]

KNOWN_DATATYPES = ("float8", "float16", "bfloat16", "float32")
INTEGERS = (
    "num_procs",
    "tensor_par",
    "pipeline_par",
    "data_par",
    "tensor_par_net",
    "pipeline_par_net",
    "data_par_net",
    "batch_size",
    "microbatch_size",
    "pipeline_interleaving",
)
WORDS = ("datatype", "attention_type", "activation_recompute", "tensor_par_comm_type", "tensor_par_overlap")


def model(random: Random) -> Model:
    heads = random.choice((1, 2, 4, 6, 8, 12, 16, 24, 32, 96))
    size = random.choice((1, 8, 64, 80, 128))
    hidden = random.choice((heads * size, heads * size, 768, 4096, 12288, 5120, 7))
    return {
        "hidden": hidden,
        "feedforward": random.choice((4 * hidden, 4 * hidden, 5461, 8 * hidden // 3 + 1)),
        "seq_size": random.choice((1, 128, 1000, 2048, 2048, 4097, 8192)),
        "attn_heads": heads,
        "attn_size": size,
        "num_blocks": random.choice((1, 2, 3, 5, 7, 12, 24, 32, 64, 96)),
    }


def _table(random: Random, thresholds: Sequence[float]) -> list[list[float]]:
    kept = sorted(random.sample(thresholds, random.randint(0, len(thresholds))), reverse=True)
    return [[threshold, round(random.uniform(0.05, 1), 3)] for threshold in [*kept, 0]]


def _processor(random: Random, rates: Sequence[float]) -> dict[str, Any]:
    return {"tflops": random.choice(rates), "gflops_efficiency": _table(random, (0.001, 0.5, 1, 16, 128, 1000.5))}


def _memory(random: Random, capacities: Sequence[float], rates: Sequence[float]) -> dict[str, Any]:
    table = _table(random, (0.01, 1, 10, 100, 1234.5))
    if random.random() < 0.1:  # memory tables may come in any order
        random.shuffle(table)
    return {"GiB": random.choice(capacities), "GBps": random.choice(rates), "MB_efficiency": table}


def _network(random: Random) -> dict[str, Any]:
    def operation() -> list[float | None]:
        return [random.choice((1, 1.0, 1.5, 2, 0.7)), random.choice((None, 0, -1, 1, 0.5))]

    return {
        "bandwidth": random.choice((0.5, 12.5, 25, 50, 300, 450, 1800, 1e5)),
        "efficiency": random.choice((0.3, 0.65, 0.9, 1)),
        "size": random.choice((1, 2, 4, 8, 8, 16, 72, 65536, 65536)),
        "latency": random.choice((0, 1e-6, 1e-5, 2e-5, 1e-3)),
        "ops": {
            "p2p": [random.choice((1.0, 0.5)), random.choice((None, 0, 0.5))],
            "reduce_scatter": operation(),
            "all_gather": operation(),
            "all_reduce": operation(),
        },
        "must_be_filled": random.random() < 0.3,
        "processor_usage": random.choice((0, 0.02, 0.15, 0.15, 0.6)),
    }


def system(random: Random, mode: str | None = None) -> System:
    """A system: one to four network tiers, sometimes without a second memory tier, any set of datatypes."""
    datatypes = random.sample(KNOWN_DATATYPES, random.randint(1, 4))
    if random.random() < 0.1:
        datatypes.append("int8")
    mem2 = _memory(random, (64, 512, 1e6), (32, 450, 5000))
    tier2 = random.random()
    if tier2 < 0.15:
        mem2["GiB"] = 0
    elif tier2 < 0.3:
        mem2["GiB"] = mem2["GBps"] = 0
    return {
        "matrix": {name: _processor(random, (10, 312, 1000, 2000.5)) for name in datatypes},
        "vector": {name: _processor(random, (1, 78, 120, 1e5)) for name in datatypes},
        "mem1": _memory(random, (8, 80, 80, 192, 1e6, 1e7), (200, 2048, 3072, 8000)),
        "mem2": mem2,
        "processing_mode": mode or random.choice(("roofline", "no_overlap")),
        "networks": [_network(random) for _ in range(random.choice((1, 2, 2, 3, 3, 4)))],
    }


def execution(random: Random, shape: Model, machine: System, broken: float = 0.1) -> Execution:
    """An execution; with probability `broken` one or two of its fields are replaced by something it may not be."""
    tiers = len(machine["networks"])
    even = random.random() >= broken / 2
    tp = random.choice([degree for degree in (1, 1, 2, 3, 4, 8, 16) if shape["attn_heads"] % degree == 0 or not even])
    pp = random.choice((1, 1, 2, 3, 4, 8, 12, 64))
    dp = random.choice((1, 1, 2, 3, 4, 16, 64))
    microbatch = random.choice((1, 1, 2, 4, 5, 32))
    blocks = -(-shape["num_blocks"] // pp)
    chunks = [count for count in range(1, blocks + 1) if blocks % count == 0 or not even]
    training = random.random() < 0.85
    comm_type = random.choice(("ar", "p2p_rs_ag", "rs_ag"))
    recompute = random.choice(("full", "attn_only", "none")) if training else "none"
    offload = blocks >= 3 and machine["mem2"]["GiB"] > 0
    result: Execution = {
        "num_procs": tp * pp * dp,
        "tensor_par": tp,
        "pipeline_par": pp,
        "data_par": dp,
        "tensor_par_net": random.randrange(tiers),
        "pipeline_par_net": random.randrange(tiers),
        "data_par_net": random.randrange(tiers),
        "batch_size": dp * microbatch * random.choice((1, 1, 2, 3, 4, 7, 16, 100)),
        "microbatch_size": microbatch,
        "datatype": random.choice(sorted(machine["matrix"])),
        "fused_activation": random.random() < 0.5,
        "attention_type": random.choice(("multihead", "multihead", "multiquery")),
        "activation_recompute": recompute,
        "pipeline_interleaving": random.choice(chunks) if pp > 1 else 1,
        "optimizer_sharding": dp > 1 and random.random() < 0.5,
        "tensor_par_comm_type": comm_type,
        "tensor_par_overlap": random.choice(("none", "ring", "pipe")) if tp > 1 else "none",
        "seq_par_ag_redo": comm_type == "rs_ag" and recompute != "full" and random.random() < 0.5,
        "data_par_overlap": training and dp > 1 and random.random() < 0.5,
        "weight_offload": offload and random.random() < 0.3,
        "activations_offload": offload and random.random() < 0.3,
        "optimizer_offload": training and offload and random.random() < 0.3,
        "training": training,
    }
    if random.random() < broken:
        for name in random.sample(sorted(result), random.randint(1, 2)):
            result[name] = _other(random, name, result[name])
    return result


def enlarge(random: Random, shape: Model, machine: System, executions: list[Execution]) -> None:
    """Makes sizes absurd but valid, in place: products far beyond 64-bit integers, on a machine that holds them."""
    shape["seq_size"] = random.choice((2**26, 2**26 - 1, 2**20))
    shape["hidden"] = shape["feedforward"] = random.choice((2**20, 720720))
    shape["num_blocks"] *= random.choice((1, 1000))
    machine["mem1"]["GiB"] = machine["mem2"]["GiB"] = 1e15
    machine["mem2"]["GBps"] = machine["mem2"]["GBps"] or 1
    for each in executions:
        factor = random.choice((1, 2**10, 2**20, 999_983))
        for name in ("microbatch_size", "batch_size"):
            if each["batch_size"] * factor < 2**31:
                each[name] *= factor


def _other(random: Random, name: str, value: Any) -> Any:
    if name in INTEGERS:
        return random.choice((value + 1, value * 2, 0, -1, 3, 2**31 - 1))
    if name in WORDS:
        words = {
            "datatype": (*KNOWN_DATATYPES, "int8", "FLOAT16"),
            "attention_type": ("multiquery", "gqa", ""),
            "activation_recompute": ("full", "attn_only", "none", "partial"),
            "tensor_par_comm_type": ("ar", "p2p_rs_ag", "rs_ag", "foo"),
            "tensor_par_overlap": ("none", "ring", "pipe", "foo"),
        }
        return random.choice(words[name])
    return not value


class Files:
    """Writes models and systems as JSON files, for an engine that takes paths; equal content is one file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, str] = {}

    def path(self, document: Model | System) -> str:
        text = json.dumps(document)
        if text not in self._known:
            path = self._folder / f"drawn_{len(self._known)}.json"
            path.write_text(text, encoding="utf-8")
            self._known[text] = str(path)
        return self._known[text]
