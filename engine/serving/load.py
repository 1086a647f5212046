"""Latencies under a steady load, from the times of a decode step and of a prefill pass.

A replica serves B requests of O tokens each; whenever one ends, the next takes its place ("continuous batching"). Work
is conserved: while a request is served, the other B - 1 are prefilled once each. An engine decides which share of these
prefills the request waits for before its first token; the others hold up its steps:

    first token = c + step / 2 + own passes + share (B - 1) passes of others
    time per output token = step + (1 - share) (B - 1) / (O - 1) x what the passes of one prompt add

Requests end one by one, so B / O of them end in a step and as many prompts share the next pass, up to a chunk: passes
are full in bursts only. Where an engine mixes, a pass decodes as well: it takes the place of a step, and adds its own
time less that of the step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.executions.arrays import Floats
from engine.serving.constants import EngineTerms

__all__ = ["Latencies", "PassTimes", "load_latencies", "prompts_per_pass"]


class PassTimes(NamedTuple):
    """Times of passes [rows] [s]: one token for every request; the slowest stage of that, for one microbatch; the
    slowest stage of a prefill pass; and its way through all stages. `chunks` passes make a prompt, `together` prompts
    share one. A step gives each request `gained` tokens."""

    cycle: Floats
    step_stage: Floats
    pass_stage: Floats
    pass_through: Floats
    chunks: Floats
    together: Floats
    gained: Floats


class Latencies(NamedTuple):
    """Results [rows] [s]: time to the first token, per output token after it, of a decode step with the engine's
    overheads, and of the passes that the prompt of one request takes, alone or with others; of the own passes of a
    request, with request and reply; and what the prompt of one request adds to the steps of others."""

    first_token: Floats
    per_token: Floats
    step: Floats
    prefill: Floats
    alone: Floats
    added: Floats


def prompts_per_pass(batch: Floats, prompt: Floats, output: Floats, chunk: float) -> Floats:
    """Returns the prompts that share a prefill pass in a steady load on average [rows].

    Args:
        batch: requests of a replica [rows].
        prompt, output: tokens of each [rows].
        chunk: most prompt tokens of a pass [tokens].
    """
    # B - 1 others begin in O - 1 steps.
    begun = (batch - 1.0) / np.maximum(output - 1.0, 1.0)
    return np.clip(begun, 1.0, np.maximum(chunk / prompt, 1.0))


def load_latencies(
    times: PassTimes,
    terms: EngineTerms,
    batch: Floats,
    output: Floats,
    blocks: float,
    requests_per_slot: float | None,
) -> Latencies:
    """Returns the latencies of a replica with `batch` requests in flight.

    Args:
        times: of its passes.
        terms: of the engine.
        batch: requests [rows].
        output: tokens that each generates [rows].
        blocks: of the model.
        requests_per_slot: of a client that sends all its requests at once; None for a steady load.
    """
    step = times.cycle + terms.step + terms.step_layer * blocks + terms.sequence * batch
    host = terms.prefill_pass + terms.prefill_layer * blocks
    each, passes = times.pass_stage + host, times.chunks / times.together
    # A mixed pass decodes as well: what it adds to a step counts.
    added = np.maximum(each - terms.mixed * times.step_stage, 0.0)
    later, others = np.maximum(output - 1.0, 0.0), batch - 1.0
    # Half of the prefills of a burst are before one's own, once in as many rounds.
    burst = 0.0 if requests_per_slot is None else 0.5 / requests_per_slot
    # Without further tokens there is nothing else that prefills could hold up.
    share = np.where(later > 0, np.minimum(terms.waiting + burst, 1.0), 1.0)
    own = times.pass_through + (times.chunks - 1.0) * times.pass_stage + times.chunks * host
    # The others that share its own pass hold up neither its first token nor its steps.
    apart = np.maximum(batch - times.together, 0.0)
    before = share * apart
    first = terms.first_token + np.where((others > 0) & (later > 0), step / 2.0, 0.0) + own + before * passes * each
    # So many of O - 1 steps have prompts in them; beyond all of them, passes take the place of no step.
    crowded = (1.0 - share) * apart * passes / np.maximum(later / times.gained, 1.0)
    longer = terms.mixed * np.maximum(crowded - 1.0, 0.0) * times.cycle
    per_token = (step + longer + crowded * added) / times.gained
    return Latencies(first, per_token, step, passes * each, terms.first_token + own, passes * added)
