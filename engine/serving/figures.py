"""From deployments to figures: prefill, decode step, and figures of users, processors, cost and energy.

Latencies under load follow from the times of two passes, see `engine.serving.load`.

A pipeline of p stages decodes up to p microbatches in turn: one token for all of them takes as long as one microbatch
takes through all stages, or the slowest stage for all microbatches, whichever is longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

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
from engine.serving.adapters import AdapterTerms, adapter_bytes, add_adapters
from engine.serving.assumptions import Assumptions
from engine.serving.columns import FIGURES
from engine.serving.constants import ENGINES, EngineTerms, ServingConstants
from engine.serving.deployments import LAUNCHES, Deployments
from engine.serving.factors import EngineFactors, LatencyFactors
from engine.serving.load import PassTimes, load_latencies, prompts_per_pass
from engine.serving.memory import ServingMemoryUse, kv_bytes_per_token, memory_use
from engine.serving.passes import Blocks, Pass, PassSetting, PassWork, block_times
from engine.serving.rates import bytes_per_weight, computed_bits, pass_rates
from engine.serving.shapes import BlockPattern, ServingStage, pattern_of, stages
from hardware import GIB, System
from models import Model

__all__ = [
    "CHUNK",
    "ServingSubject",
    "computed_prompt",
    "draft_deployments",
    "figures",
    "grouped",
    "host_bytes",
    "memory_of",
    "pass_times",
]

CHUNK = 8192
"""Rows that are computed together; they stay in cache."""
HOUR = 3600.0
"""Seconds of an hour [s/h]."""
GIGA = 1e9
"""Bytes per second of a GB/s [bytes/s]."""
MILLION = 1e6
"""Tokens that a price refers to [tokens]."""


@dataclass(frozen=True)
class ServingSubject:
    """Model, system and assumptions that all deployments have in common.

    `price` of a processor [USD per hour], not a number where it is not known. `requests_per_slot` of a benchmark that
    sends all requests at once and keeps a number of them in flight; None for a steady load. `output_cv` is the
    coefficient of variation of the output lengths. `factors` on the latencies of engines; None for none.
    """

    model: Model
    system: System
    p: Parameters
    assumptions: Assumptions
    price: float
    constants: ServingConstants
    requests_per_slot: float | None = None
    output_cv: float = 0.0
    factors: EngineFactors | None = None

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

    @cached_property
    def adapters(self) -> AdapterTerms:
        """Adapters of low rank that are served."""
        return AdapterTerms(float(self.assumptions.lora_adapters), float(self.assumptions.lora_rank))

    @cached_property
    def draft(self) -> ServingSubject | None:
        """The draft model on the same system; None without one."""
        if self.assumptions.draft_model is None:
            return None
        without: dict[str, Any] = {"draft_tokens": 0, "accepted_tokens": 0.0, "acceptance_rate": None}
        without |= {"draft_model": None, "draft_bits": 16, "lora_adapters": 0, "host_hit_share": 0.0}
        return replace(self, model=self.assumptions.draft_model, assumptions=replace(self.assumptions, **without))

    @property
    def host_share(self) -> float:
        """Share of a prompt's tokens whose cache is in the memory of the host []."""
        return self.assumptions.prefix_hit_rate * self.assumptions.host_hit_share

    @property
    def host_capacity(self) -> float:
        """Memory of the host for the cache of one processor [bytes]."""
        own = self.assumptions.host_cache_gib
        return GIB * (self.system.mem2.capacity_gib if own is None else own)

    def weight_bytes(self, d: Deployments) -> Floats:
        """Returns the bytes per weight of the linear layers [bytes]."""
        return bytes_per_weight(d.weight_bits, self.assumptions.four_bits)

    def attention_bytes(self, d: Deployments) -> Floats:
        """Returns the bytes per weight of the projections around attention [bytes]."""
        return bytes_per_weight(d.attention_bits, self.assumptions.four_bits)

    def engine(self, d: Deployments) -> EngineTerms:
        """Returns the terms of the engine of deployments with one engine."""
        return self.constants.engine(ENGINES[int(d.engine[0])])

    def latency_factors(self, d: Deployments) -> LatencyFactors:
        """Returns the measured factors on the latencies of deployments with one engine."""
        return LatencyFactors() if self.factors is None else self.factors.find(ENGINES[int(d.engine[0])])


def grouped(d: Deployments) -> Iterator[npt.NDArray[np.intp]]:
    """Yields the rows with the same number of stages, launch mode and engine, at most `CHUNK` at a time.

    Args:
        d: deployments [rows].
    """
    keys = (d.pipeline_par * len(LAUNCHES) + d.launch) * len(ENGINES) + d.engine
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
    found = memory_use(
        subject.shapes,
        subject.accelerator,
        d,
        _pipeline_stages(subject, d),
        subject.weight_bytes(d),
        subject.attention_bytes(d),
        subject.assumptions,
        adapter_bytes(_case_of_pass(subject, d, np.ones(len(d))), subject.adapters) if subject.adapters.number else (),
        None if subject.draft is None else _draft_memory(subject.draft, d, subject.assumptions.draft_bits),
    )
    if not subject.host_share:
        return found
    most = np.floor(subject.host_capacity / host_bytes(subject, d))
    return replace(found, largest_batch=np.minimum(found.largest_batch, most))


def draft_deployments(d: Deployments, bits: int) -> Deployments:
    """Returns the deployments of a draft model next to its model: one stage, in bits of its own.

    Args:
        d: deployments of the model [rows].
        bits: of the draft model's weights and products.
    """
    ones, own = np.ones(len(d)), np.full(len(d), float(bits))
    return replace(d, pipeline_par=ones, expert_par=ones, weight_bits=own, attention_bits=own, compute_bits=own)


def _draft_memory(draft: ServingSubject, d: Deployments, bits: int) -> tuple[Floats, Floats]:
    """Return the weights of a draft model and its cache of a request on a processor of the last stage [bytes]."""
    found = memory_of(draft, replace(draft_deployments(d, bits), batch=np.ones(len(d))))
    return found.weights, found.kv_cache


def host_bytes(subject: ServingSubject, d: Deployments) -> Floats:
    """Returns the cache of a request's prompt in the memory of the host, per processor [rows] [bytes].

    Args:
        subject: with the share of hits that is there.
        d: deployments with one number of stages and one launch mode [rows].
    """
    if not subject.host_share:
        return np.zeros(len(d))
    # What the processor itself would hold of a request of as many tokens.
    terms = replace(subject.assumptions, host_hit_share=0.0)
    alone = replace(d, prompt=subject.host_share * d.prompt, output=np.zeros(len(d)), batch=np.ones(len(d)))
    return memory_of(replace(subject, assumptions=terms), alone).kv_cache


def figures(subject: ServingSubject, d: Deployments) -> dict[str, Floats]:
    """Returns all figures of deployments with one number of stages and one launch mode, by name; arrays [rows].

    Args:
        subject: model, system, price and assumptions.
        d: deployments with one number of stages and one launch mode [rows].
    """
    memory = memory_of(subject, d)
    times, parts = pass_times(subject, d)
    later, blocks = np.maximum(d.output - 1.0, 0.0), float(len(subject.pattern.blocks))
    found = load_latencies(times, subject.engine(d), d.batch, d.output, blocks, subject.requests_per_slot)
    factors = subject.latency_factors(d)
    first_token = factors.time_to_first_token * found.first_token
    per_token = factors.time_per_output_token * found.per_token
    parts["step_host"] = found.step - times.cycle
    # B requests in flight, each of which takes the first token and O - 1 more.
    rate = d.batch * d.output / (first_token + later * per_token)
    processors = d.tensor_par * d.pipeline_par
    per_processor = rate / processors
    values = {
        "tokens_per_s_per_processor": per_processor,
        "tokens_per_s_per_user": 1.0 / per_token,
        "tokens_per_s": rate * d.replicas,
        "requests_per_s": rate * d.replicas / d.output,
        "time_to_first_token": first_token,
        "time_per_output_token": per_token,
        "request_latency": first_token + later * per_token,
        "decode_step_time": found.step,
        "prefill_time": found.prefill,
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
    return {column.name: np.broadcast_to(values[column.name], (len(d),)) for column in FIGURES}


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
            "linear_bits": computed_bits(d.compute_bits, subject.accelerator),
            "launch": LAUNCHES[int(d.launch[0])],
        },
    )
    # Adapters and packed samples of a training step have no part in it.
    return replace(case, model=replace(case.model, seq_size=np.ones(()), tuning=None))


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


def pass_times(subject: ServingSubject, d: Deployments) -> tuple[PassTimes, dict[str, Floats]]:
    """Returns the times of the passes of deployments [s], and the parts of a decode step without the engine's
    overheads [s].

    Args:
        subject: model, system, price and assumptions.
        d: deployments with one number of stages, one launch mode and one engine [rows].
    """
    # A pipeline of p stages decodes up to p microbatches in turn.
    tokens = np.ceil(d.batch / d.pipeline_par)
    microbatches = np.ceil(d.batch / tokens)
    # Mean context over the answer: the prompt and half of the output, which requests in flight have more of.
    context = d.prompt + d.output / 2.0 * (1.0 + subject.output_cv**2)
    drafts, gained = float(subject.assumptions.draft_tokens), subject.assumptions.tokens_per_step
    run, messages = _run_pass(subject, d, Pass(tokens, context, queries=1.0 + drafts), is_step=True)
    draft, spent = subject.draft, np.zeros(())
    if draft is not None:
        run, spent = _add_draft_model(run, draft, d, Pass(tokens, context), drafts, subject.assumptions.draft_bits)
    elif drafts:
        run = _add_drafts(run, _run_pass(subject, d, Pass(tokens, context), is_step=True)[0], drafts, subject)
    # One microbatch through all stages, or all microbatches through the slowest stage.
    cycle = np.maximum(run.total + messages, microbatches * run.slowest)
    parts = {
        "step_linear": run.work.linear,
        "step_attention": run.work.attention,
        "step_elementwise": run.work.elementwise,
        "step_tensor": run.work.tensor,
        "step_experts": run.work.experts,
        "step_ends": run.work.ends,
        "step_launch": run.total - run.work.total,
        "step_pipeline": cycle - run.total,
    }
    chunk, terms = float(subject.assumptions.prefill_chunk), subject.engine(d)
    computed, loaded = computed_prompt(subject, d), _load_seconds(subject, d)
    # A longer prompt passes in equal chunks, which follow each other through the pipeline.
    chunks = np.ceil(computed / chunk)
    together = prompts_per_pass(d.batch, computed, 1.0 + (d.output - 1.0) / gained, chunk)
    # Each prompt of a pass brings O - 1 tokens to decode, in this pass and those that follow.
    decoding = terms.mixed * np.minimum(np.minimum(tokens, d.batch - 1.0), together * (d.output - 1.0) / gained)
    work = Pass(decoding, context, together, d.prompt, chunks, d.prompt - computed, 1.0 + drafts)
    mixed, sent = _run_pass(subject, d, work, is_step=False)
    slowest, through = mixed.slowest, mixed.total + sent
    if draft is not None:
        # The draft model computes the prompt, too, and drafts for requests that decode.
        prompt = replace(work, requests=np.zeros(len(d)))
        own = _run_pass(draft, draft_deployments(d, subject.assumptions.draft_bits), prompt, is_step=False)[0].total
        own = own + np.where(decoding > 0, spent, 0.0)
        slowest, through = slowest + own, through + own
    if subject.host_share:
        # Stages load their parts at the same time, before the pass: its prompts share the link.
        more = np.where(computed < _recomputed_prompt(subject, d), loaded * together / chunks, 0.0)
        slowest, through = slowest + more, through + more
    return PassTimes(cycle, run.slowest, slowest, through, chunks, together, np.full(len(d), gained)), parts


def _add_drafts(run: _Stages, plain: _Stages, drafts: float, subject: ServingSubject) -> _Stages:
    """Return a step with the time in which its drafts are predicted, one after the other: a block and the head each."""
    work, blocks = plain.work, float(len(subject.pattern.blocks))
    share = drafts / blocks
    more = replace(PassWork.of().plus(work, share), ends=drafts * work.ends)
    # The last stage predicts.
    return _Stages(run.slowest + more.total, run.total + more.total, run.work.plus(more))


def _add_draft_model(
    run: _Stages, draft: ServingSubject, d: Deployments, work: Pass, drafts: float, bits: int
) -> tuple[_Stages, Floats]:
    """Return a step with the passes of a draft model, one after the other on the last stage, and their time [s]."""
    there = draft_deployments(d, bits)
    plain = _run_pass(draft, there, work, is_step=True)[0]
    # What an engine's host takes for the layers of a model counts for those of the draft, too.
    host = draft.engine(there).step_layer * float(len(draft.pattern.blocks))
    spent = drafts * (plain.total + host)
    return _Stages(run.slowest + spent, run.total + spent, run.work.plus(plain.work, drafts)), spent


def computed_prompt(subject: ServingSubject, d: Deployments) -> Floats:
    """Returns the prompt tokens of a request that its prefill computes, at least 1 [rows] [tokens].

    Tokens whose cache the host has are among them where a lone prompt takes longer to load them.

    Args:
        subject: with the shares that the prefix cache and the host have.
        d: deployments [rows].
    """
    least = np.maximum(d.prompt * (1.0 - subject.assumptions.prefix_hit_rate), 1.0)
    if not subject.host_share:
        return least
    most, found = _recomputed_prompt(subject, d), least.copy()
    for index in grouped(d):
        part = d.take(index)
        loaded = _lone_prefill(subject, part, least[index]) + _load_seconds(subject, part)
        found[index] = np.where(loaded < _lone_prefill(subject, part, most[index]), least[index], most[index])
    return found


def _recomputed_prompt(subject: ServingSubject, d: Deployments) -> Floats:
    """Return the prompt tokens that are computed where the host's cache is not used [rows]."""
    return np.maximum(d.prompt * (1.0 - subject.assumptions.prefix_hit_rate + subject.host_share), 1.0)


def _load_seconds(subject: ServingSubject, d: Deployments) -> Floats:
    """Return the seconds in which a prompt's cache comes from the host, every processor over its own link [rows]."""
    if not subject.host_share:
        return np.zeros(len(d))
    # The link to the host reaches the share of its rate that offloads of training do.
    rate = subject.system.mem2.bandwidth_gb_per_s * GIGA * subject.p.scale_out
    return host_bytes(subject, d) / rate


def _lone_prefill(subject: ServingSubject, d: Deployments, computed: Floats) -> Floats:
    """Return the seconds that the passes of one prompt alone take the slowest stage [rows]. The way through all stages
    shortens by no less."""
    chunks = np.ceil(computed / float(subject.assumptions.prefill_chunk))
    work = Pass(np.zeros(len(d)), np.ones(len(d)), np.ones(len(d)), d.prompt, chunks, d.prompt - computed)
    return chunks * _run_pass(subject, d, work, is_step=False)[0].slowest


def _run_pass(subject: ServingSubject, d: Deployments, work: Pass, *, is_step: bool) -> tuple[_Stages, Floats]:
    """One pass through all stages, and the messages between them [s]; a step's last goes back to the first stage."""
    captured = is_step and int(d.launch[0]) == LAUNCHES.index("graphs")
    p = subject.assumptions.parameters(subject.p, captured=captured)
    starts = subject.engine(d).starts if is_step else 1.0
    p = p.model_copy(update={"kernel_start": p.kernel_start * starts})
    case = _case_of_pass(subject, d, work.tokens)
    sustained = sustained_rates(case.accelerator, case.software.age_years, p)
    rates = pass_rates(
        d,
        subject.accelerator,
        subject.constants,
        starts,
        has_block_scales=subject.pattern.is_routed,
        four_bits=subject.assumptions.four_bits,
    )
    setting = PassSetting(case, d, work, sustained, p, rates)
    blocks = block_times(setting)
    if subject.adapters.number:
        blocks = add_adapters(blocks, setting, subject.adapters)
    # A captured step is one launch; otherwise the host launches kernel by kernel.
    run = _run_stages(_pipeline_stages(subject, d), blocks, floor=not captured)
    return run, (d.pipeline_par - (0.0 if is_step else 1.0)) * message_time(case, sustained, p)
