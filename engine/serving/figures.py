"""From deployments to figures: prefill, decode step, and figures of users, processors, cost and energy.

A replica serves `batch` requests without a break: whenever one ends, the prefill of the next takes its place and holds
up the others ("continuous batching"). While a request of o tokens generates, batch - 1 others start, so that

    time per output token = step + (batch - 1) prefill / (o - 1)
    throughput of a replica = batch o / (batch prefill + (o - 1) step)

A pipeline of p stages decodes up to p microbatches in turn: one token for all of them takes as long as one microbatch
takes through all stages, or the slowest stage for all microbatches, whichever is longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated import (
    Accelerators,
    Case,
    ModelShapes,
    Parameters,
    accelerator_of,
    case_of,
    message_time,
    model_shapes,
    sustained_rates,
)
from engine.executions.arrays import Floats
from engine.serving.assumptions import Assumptions
from engine.serving.columns import FIGURES
from engine.serving.deployments import LAUNCHES, Deployments
from engine.serving.memory import ServingMemoryUse, kv_bytes_per_token, memory_use
from engine.serving.passes import Blocks, Pass, PassWork, block_times
from engine.serving.shapes import BlockPattern, ServingStage, pattern_of, stages
from hardware import System
from models import Model

__all__ = ["CHUNK", "ServingSubject", "figures", "grouped"]

CHUNK = 8192
"""Rows that are computed together; they stay in cache."""
HOUR = 3600.0
"""Seconds of an hour [s/h]."""
MILLION = 1e6
"""Tokens that a price refers to [tokens]."""


@dataclass(frozen=True)
class ServingSubject:
    """Model, system and assumptions that all deployments have in common.

    `price` of a processor [USD per hour], not a number where it is not known.
    """

    model: Model
    system: System
    p: Parameters
    assumptions: Assumptions
    price: float

    @cached_property
    def shapes(self) -> ModelShapes:
        """The model as the cost model reads it."""
        return model_shapes(self.model)

    @cached_property
    def accelerator(self) -> Accelerators:
        """The accelerator as the cost model reads it."""
        return Accelerators.of(accelerator_of(self.system))

    @cached_property
    def pattern(self) -> BlockPattern:
        """The kinds of the model's blocks."""
        return pattern_of(self.model)

    def weight_bytes(self, d: Deployments) -> Floats:
        """Returns the bytes per weight of the linear layers [bytes]."""
        known = (16.0, 8.0, 4.0)
        return np.select([d.weight_bits == bits for bits in known], [self.assumptions.weight_bytes(b) for b in known])

    def product_bits(self, d: Deployments) -> Floats:
        """Returns the precision of the products: that of the weights where the system has it, else 16 bits."""
        eight = float(self.accelerator.flops8) > 0
        four = float(self.accelerator.flops4) > 0
        return np.select([(d.weight_bits == 8) & eight, (d.weight_bits == 4) & four], [8.0, 4.0], 16.0)


def grouped(d: Deployments) -> Iterator[npt.NDArray[np.intp]]:
    """Yields the rows with the same number of stages and launch mode, at most `CHUNK` at a time.

    Args:
        d: deployments [rows].
    """
    keys = d.pipeline_par * len(LAUNCHES) + d.launch
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=np.nan) != 0)
    for start, end in zip(starts, np.append(starts, len(order))[1:], strict=True):
        for first in range(int(start), int(end), CHUNK):
            yield order[first : min(first + CHUNK, int(end))]


def memory_of(subject: ServingSubject, d: Deployments) -> ServingMemoryUse:
    """Returns the memory of deployments with one number of stages and one launch mode [bytes].

    Args:
        subject: model, system, price and assumptions.
        d: deployments with one number of stages and one launch mode [rows].
    """
    return memory_use(
        subject.shapes,
        subject.accelerator,
        d,
        _pipeline_stages(subject, d),
        subject.weight_bytes(d),
        subject.assumptions,
    )


def figures(subject: ServingSubject, d: Deployments) -> dict[str, Floats]:
    """Returns all figures of deployments with one number of stages and one launch mode, by name; arrays [rows].

    Args:
        subject: model, system, price and assumptions.
        d: deployments with one number of stages and one launch mode [rows].
    """
    memory = memory_of(subject, d)
    step, parts = _decode_step(subject, d)
    first_token, prefill = _prefill_of_distinct(subject, d)
    later = np.maximum(d.output - 1.0, 0.0)
    # Between two tokens of a request its B - 1 neighbours start once in O - 1 steps.
    per_token = step + np.where(later > 0, (d.batch - 1.0) * prefill / np.maximum(later, 1.0), 0.0)
    # B requests of O tokens take B prefills and O - 1 steps; the prefill gives the first token.
    rate = d.batch * d.output / (d.batch * prefill + later * step)
    processors = d.tensor_par * d.pipeline_par
    per_processor = rate / processors
    found = {
        "tokens_per_s_per_processor": per_processor,
        "tokens_per_s_per_user": 1.0 / per_token,
        "tokens_per_s": rate * d.replicas,
        "requests_per_s": rate * d.replicas / d.output,
        "time_to_first_token": first_token,
        "time_per_output_token": per_token,
        "request_latency": first_token + later * per_token,
        "decode_step_time": step,
        "prefill_time": prefill,
        "memory_total": memory.total,
        "memory_weights": memory.weights,
        "memory_kv_cache": memory.kv_cache,
        "memory_activations": memory.activations,
        "memory_reserve": memory.reserve,
        "memory_capacity": subject.accelerator.capacity,
        "largest_batch": memory.largest_batch,
        "kv_bytes_per_token": kv_bytes_per_token(subject.shapes, len(subject.pattern.blocks), d.kv_bits),
        # USD/h over seconds per hour, over tokens/s of a processor.
        "cost_per_million_tokens": subject.price / HOUR / per_processor * MILLION,
        "energy_per_token": subject.accelerator.power / per_processor,
        **parts,
    }
    return {column.name: np.broadcast_to(found[column.name], (len(d),)) for column in FIGURES}


def _pipeline_stages(subject: ServingSubject, d: Deployments) -> tuple[ServingStage, ...]:
    return stages(subject.pattern, int(d.pipeline_par[0]))


def _case_of_pass(subject: ServingSubject, d: Deployments, tokens: Floats) -> Case:
    """The case of a pass: one "sequence" of one token for every token."""
    case = case_of(
        subject.model,
        subject.system,
        {
            "tensor_par": d.tensor_par,
            "pipeline_par": d.pipeline_par,
            "data_par": 1.0,
            "microbatch_size": tokens,
            "batch_size": tokens,
            "expert_par": d.expert_par,
            "expert_tensor_par": d.slices,
            "sequence_par": 0.0,
            "linear_bits": subject.product_bits(d),
            "launch": LAUNCHES[int(d.launch[0])],
        },
    )
    return replace(case, model=replace(case.model, seq_size=np.ones(())))


@dataclass(frozen=True, slots=True)
class _Stages:
    """Seconds of a pass through the stages [s]: the slowest, the sum, and the parts of the sum."""

    slowest: Floats
    total: Floats
    work: PassWork


def _run_stages(layout: tuple[ServingStage, ...], blocks: Blocks, *, floor: bool) -> _Stages:
    """A pass through all stages; with `floor`, no stage is faster than its launches."""
    slowest: Floats = np.zeros(())
    total: Floats = np.zeros(())
    everything = PassWork.of()
    for stage in layout:
        work = PassWork.of()
        for number, part in zip(stage.parts, blocks.parts, strict=True):
            if number:
                work = work.plus(part, number)
        work = work.plus(blocks.embedding, float(stage.embedding)).plus(blocks.head, float(stage.head))
        time = work.total
        if floor:
            floors = (number * each for number, each in zip(stage.parts, blocks.launches, strict=True))
            time = np.maximum(time, sum(floors, start=np.zeros(())))
        slowest = np.maximum(slowest, time)
        total = total + stage.stages * time
        everything = everything.plus(work, stage.stages)
    return _Stages(slowest, total, everything)


def _decode_step(subject: ServingSubject, d: Deployments) -> tuple[Floats, dict[str, Floats]]:
    """Seconds of a decode step [s], and its parts."""
    captured = int(d.launch[0]) == LAUNCHES.index("graphs")
    p = subject.assumptions.parameters(subject.p, captured=captured)
    tokens = np.ceil(d.batch / d.pipeline_par)
    microbatches = np.ceil(d.batch / tokens)
    case = _case_of_pass(subject, d, tokens)
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    # Mean context over the answer: the prompt and half of the output.
    work = Pass(tokens, tokens, context=d.prompt + d.output / 2.0)
    blocks = block_times(case, d, work, rates, p, subject.weight_bytes(d))
    # A captured step is one launch; otherwise the host launches kernel by kernel.
    run = _run_stages(_pipeline_stages(subject, d), blocks, floor=not captured)
    # A token passes p - 1 hops and goes back to the first stage.
    messages = d.pipeline_par * message_time(case, rates, p)
    # One microbatch through all stages, or all microbatches through the slowest stage.
    cycle = np.maximum(run.total + messages, microbatches * run.slowest)
    host = np.asarray(subject.assumptions.step_host)
    parts = {
        "step_linear": run.work.linear,
        "step_attention": run.work.attention,
        "step_elementwise": run.work.elementwise,
        "step_tensor": run.work.tensor,
        "step_experts": run.work.experts,
        "step_ends": run.work.ends,
        "step_launch": run.total - run.work.total,
        "step_pipeline": cycle - run.total,
        "step_host": host,
    }
    return cycle + host, parts


def _prefill_of_distinct(subject: ServingSubject, d: Deployments) -> tuple[Floats, Floats]:
    """Return `_prefill_times`, computed once for equal inputs: most deployments differ in batch or KV cache only."""
    together = np.clip(np.floor(subject.assumptions.prefill_chunk / d.prompt), 1.0, d.batch)
    keys = np.stack([d.tensor_par, d.expert_par, d.weight_bits, d.prompt, together])
    _, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    if len(first) == len(d):
        return _prefill_times(subject, d)
    alone, packed = _prefill_times(subject, d.take(first))
    return np.broadcast_to(alone, first.shape)[inverse], np.broadcast_to(packed, first.shape)[inverse]


def _prefill_times(subject: ServingSubject, d: Deployments) -> tuple[Floats, Floats]:
    """Seconds until the first token of a request, and for which its prompt keeps the replica busy [s].

    A prompt longer than a chunk passes in equal chunks, which follow each other through the pipeline. Shorter prompts
    that wait share a pass of up to a chunk; the first token is that of a prompt that came alone.
    """
    chunk = subject.assumptions.prefill_chunk
    chunks = np.ceil(d.prompt / chunk)
    run, messages = _prefill_pass(subject, d, chunks, np.ones(()))
    # Chunks follow each other at the pace of the slowest stage.
    first = run.total + (chunks - 1.0) * run.slowest + messages + subject.assumptions.step_host
    together = np.clip(np.floor(chunk / d.prompt), 1.0, d.batch)
    if np.all(together == 1.0):
        return first, chunks * run.slowest
    packed, _ = _prefill_pass(subject, d, chunks, together)
    return first, chunks * packed.slowest / together


def _prefill_pass(subject: ServingSubject, d: Deployments, chunks: Floats, prompts: Floats) -> tuple[_Stages, Floats]:
    """One pass of `prompts` prompts, or of one chunk of a long one; and the messages between its stages [s]."""
    p = subject.assumptions.parameters(subject.p, captured=False)
    tokens = prompts * d.prompt / chunks
    case = _case_of_pass(subject, d, tokens)
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    work = Pass(tokens, prompts, prompt=d.prompt, chunks=chunks)
    blocks = block_times(case, d, work, rates, p, subject.weight_bytes(d))
    run = _run_stages(_pipeline_stages(subject, d), blocks, floor=True)
    return run, (d.pipeline_par - 1.0) * message_time(case, rates, p)
