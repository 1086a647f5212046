"""Small random spaces, and a second way of listing their executions: nested loops, one execution at a time.

`listing` follows Calculon's `llm-all-executions` (its own loops and its own rules of what to leave out), so that the
numbering of `engine.space` is checked by something that never numbers anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import pandas as pd

import hardware
import models
from engine import Scenario
from tests import reference
from tests.properties import worlds

FIELDS = reference.golden_fields()
LARGEST = 30_000
"""Executions that listing and evaluating takes a fraction of a second for."""


@dataclass(frozen=True)
class Drawn:
    """A space as a caller asks for it, with the documents that it was drawn as."""

    shape: dict[str, int]
    machine: dict[str, Any]
    num_procs: int
    max_batch_size: int
    datatype: str
    limits: dict[str, Any]

    @cached_property
    def scenario(self) -> Scenario:
        """The same as the engine takes it."""
        return Scenario.of(
            models.load_document(self.shape, "drawn"),
            hardware.load_document(self.machine, "drawn"),
            num_procs=self.num_procs,
            max_batch_size=self.max_batch_size,
            datatype=self.datatype,
            limits=self.limits,
        )

    @cached_property
    def listed(self) -> pd.DataFrame:
        """All its executions, the position being the id."""
        return pd.DataFrame(list(listing(self)), columns=FIELDS)

    def on(self, machine: Mapping[str, Any]) -> hardware.System:
        """The system with some keys of its document replaced."""
        return hardware.load_document({**self.machine, **machine}, "drawn")


def draw(random: Random, largest: int = LARGEST) -> Drawn:
    """A random model on a random system under random limits, cut down until its executions are few; seldom none."""
    while True:
        drawn = _draw(random, largest)
        if drawn.scenario.space.total or random.random() < 0.1:
            return drawn


def _draw(random: Random, largest: int) -> Drawn:
    shape = worlds.model(random)
    heads = shape["attn_heads"]
    shape["hidden"] = random.choice((heads * shape["attn_size"], heads * shape["attn_size"], 1, 7, 24, 4096))
    shape["feedforward"] = random.choice((4 * shape["hidden"], 4 * shape["hidden"], 5461, 1))
    shape["num_blocks"] = random.choice((1, 2, 3, 5, 6, 7, 11, 12, 24))
    machine = worlds.system(random)
    known = sorted(set(machine["matrix"]) & set(worlds.KNOWN_DATATYPES))
    machine["mem1"]["GiB"] = random.choice((1e-5, 1e-3, 0.03, 0.3, 8, 80, 80, 1e6, 1e6, 1e6))
    if machine["mem2"]["GiB"] and random.random() < 0.6:
        machine["mem2"]["GiB"] = random.choice((1e-3, 0.01, 0.1, 1))
    num_procs = random.choice((1, 2, 2, 3, 4, 4, 6, 8, 8, 12, 16, 64, 101))
    largest_batch = random.choice((1, 2, 3, 6, 7, 8, 12, 16, 64))
    limits = _limits(random, len(machine["networks"]))
    narrowing = iter(_narrowing(random, len(machine["networks"])))
    while True:
        drawn = Drawn(shape, machine, num_procs, largest_batch, known[random.randrange(len(known))], dict(limits))
        if drawn.scenario.space.total <= largest:
            return drawn
        name, limit = next(narrowing)
        limits[name] = limit


def _limits(random: Random, tiers: int) -> dict[str, Any]:
    flags = (
        "optimizer_sharding",
        "seq_par_ag_redo",
        "data_par_overlap",
        "weight_offload",
        "activations_offload",
        "optimizer_offload",
    )
    options: dict[str, Sequence[Any]] = {
        "tensor_par": ([1, 2, 4], 2, {"max": 4}, {"min": 2}, [1, 3, 6], (1, 8)),
        "pipeline_par": ({"max": 2}, [1, 2, 3], {"min": 2, "max": 6}),
        "data_par": ({"max": 4}, [1, 2, 4], 1),
        "batch_size": ([4, 8], 6, {"min": 2, "max": 8}, {"max": 6}, [8, 4, 4, 64, 1], {"min": 3}),
        "microbatch_size": ([1, 2], 1, {"max": 4}, 3),
        "pipeline_interleaving": (1, {"max": 2}, [1, 3]),
        "tensor_par_net": (0, list(range(tiers)), tiers - 1, {"max": 1}),
        "pipeline_par_net": (0, [0, 1]),
        "data_par_net": (tiers - 1, {"min": 1}, [0, 7]),
        "fused_activation": ([True, False], False, [False, True]),
        "attention_type": ("multiquery", ["multiquery", "multihead"]),
        "training": (False, [True, False], (False, True)),
        "activation_recompute": ("none", ["none", "full"], {"attn_only"}),
        "tensor_par_comm_type": ("rs_ag", ["p2p_rs_ag", "ar"]),
        "tensor_par_overlap": ("none", ["pipe", "ring"], ("none", "ring")),
        "uneven_pipelines": (True, True, True, False),
        **{name: (True, False, [False, True]) for name in flags},
    }
    chosen = random.sample(sorted(options), random.choice((0, 1, 3, 3, 5)))
    if random.random() < 0.5:  # what widens a space is drawn more often
        chosen += random.sample(("uneven_pipelines", "attention_type", "training", "training", "batch_size"), 2)
    return {name: random.choice(options[name]) for name in chosen}


def _narrowing(random: Random, tiers: int) -> list[tuple[str, Any]]:
    """Limits that make a space smaller, one after the other, down to next to nothing."""
    flags = ["optimizer_offload", "activations_offload", "weight_offload", "data_par_overlap", "seq_par_ag_redo"]
    limits: list[tuple[str, Any]] = [
        ("tensor_par_overlap", random.choice(("none", "ring", "pipe"))),
        ("fused_activation", True),
        ("batch_size", None),
        ("data_par_net", tiers - 1),
        ("training", True),
        ("attention_type", random.choice(("multihead", "multiquery"))),
        ("tensor_par_comm_type", random.choice(("ar", "p2p_rs_ag", "rs_ag"))),
        ("optimizer_sharding", random.random() < 0.5),
    ]
    random.shuffle(limits)
    return [*limits, *((name, False) for name in flags), ("microbatch_size", 1), ("pipeline_interleaving", 1)]


def _allows(limit: Any, value: Any) -> bool:
    if limit is None:
        return True
    if isinstance(limit, dict):
        return bool(limit.get("min", value) <= value <= limit.get("max", value))
    return value in limit if isinstance(limit, list | tuple | set) else bool(value == limit)


def listing(drawn: Drawn) -> Iterator[tuple[Any, ...]]:
    """The executions of a space in enumeration order, each a tuple of the 23 fields."""
    shape, machine, limits = drawn.shape, drawn.machine, drawn.limits
    procs, most, blocks_in_all = drawn.num_procs, drawn.max_batch_size, shape["num_blocks"]
    tiers = range(len(machine["networks"]))
    may_offload = machine["mem2"]["GiB"] > 0

    def some(name: str, values: Any) -> list[Any]:
        return [value for value in values if _allows(limits.get(name), value)]

    def widened(name: str, every: tuple[Any, ...], usual: Any) -> list[Any]:
        return [usual] if limits.get(name) is None else some(name, every)

    def batches(dp: int) -> list[int]:
        if limits.get("batch_size") is None:
            return [most // dp * dp] if most >= dp else []
        return [batch for batch in some("batch_size", range(1, most + 1)) if batch % dp == 0]

    for tp in some("tensor_par", range(1, procs + 1)):
        if procs % tp or shape["hidden"] % tp or shape["attn_heads"] % tp:
            continue
        for pp in some("pipeline_par", range(1, blocks_in_all + 1)):
            if (procs // tp) % pp or (blocks_in_all % pp and not limits.get("uneven_pipelines")):
                continue
            dp = procs // tp // pp
            if not some("data_par", [dp]):
                continue
            blocks = (blocks_in_all + pp - 1) // pp
            interleavings = [v for v in range(1, blocks + 1) if blocks % v == 0] if pp > 1 else [1]
            for batch in batches(dp):
                microbatches = [
                    size
                    for size in some("microbatch_size", range(1, batch // dp + 1))
                    if (batch // dp) % size == 0 and (size * shape["seq_size"]) % tp == 0
                ]
                networks = [
                    (tn, pn, dn)
                    for tn in some("tensor_par_net", tiers if tp > 1 else [0])
                    for pn in some("pipeline_par_net", tiers if pp > 1 else [0])
                    for dn in some("data_par_net", tiers if dp > 1 else [0])
                ]
                for v in some("pipeline_interleaving", interleavings):
                    for mode in _modes(tp, dp, may_offload, some, widened):
                        for size in microbatches:
                            for tn, pn, dn in networks:
                                yield (
                                    procs,
                                    tp,
                                    pp,
                                    dp,
                                    tn,
                                    pn,
                                    dn,
                                    batch,
                                    size,
                                    drawn.datatype,
                                    mode["fused"],
                                    mode["attention"],
                                    mode["recompute"],
                                    v,
                                    mode["sharding"],
                                    mode["comm"],
                                    mode["tp_overlap"],
                                    mode["redo"],
                                    mode["dp_overlap"],
                                    mode["weight"],
                                    mode["activations"],
                                    mode["optimizer"],
                                    mode["training"],
                                )


def _modes(tp: int, dp: int, may_offload: bool, some: Any, widened: Any) -> Iterator[dict[str, Any]]:
    both = [True, False]
    for recompute in some("activation_recompute", ["full", "attn_only", "none"]):
        for sharding in some("optimizer_sharding", both if dp > 1 else [False]):
            for comm in some("tensor_par_comm_type", ["ar", "p2p_rs_ag", "rs_ag"]):
                for redo in some("seq_par_ag_redo", both if comm == "rs_ag" and recompute != "full" else [False]):
                    for dp_overlap in some("data_par_overlap", both if dp > 1 else [False]):
                        for tp_overlap in some("tensor_par_overlap", ["none", "ring", "pipe"] if tp > 1 else ["none"]):
                            for weight in some("weight_offload", both if may_offload else [False]):
                                for activations in some(
                                    "activations_offload", both if may_offload and recompute != "full" else [False]
                                ):
                                    for optimizer in some("optimizer_offload", both if may_offload else [False]):
                                        for fused in widened("fused_activation", (True, False), True):
                                            for attention in widened(
                                                "attention_type", ("multihead", "multiquery"), "multihead"
                                            ):
                                                for training in widened("training", (True, False), True):
                                                    if not training and (
                                                        recompute != "none" or dp_overlap or optimizer
                                                    ):
                                                        continue
                                                    yield {
                                                        "recompute": recompute,
                                                        "sharding": sharding,
                                                        "comm": comm,
                                                        "redo": redo,
                                                        "dp_overlap": dp_overlap,
                                                        "tp_overlap": tp_overlap,
                                                        "weight": weight,
                                                        "activations": activations,
                                                        "optimizer": optimizer,
                                                        "fused": fused,
                                                        "attention": attention,
                                                        "training": training,
                                                    }
