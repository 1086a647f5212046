"""Each term of the calibrated model against arithmetic done by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from engine.cost_models.calibrated import parameters
from engine.cost_models.calibrated.physics.communication.collectives import (
    Tier,
    collective,
    gather_ring_latency,
    network_tiers,
)
from engine.cost_models.calibrated.physics.communication.context_parallel import ring
from engine.cost_models.calibrated.physics.communication.expert_exchange import distinct_destinations, exchange
from engine.cost_models.calibrated.physics.communication.sharding import (
    Gathers,
    data_tiers,
    exposed_exchange,
    gradient_exchange,
    layer_gathers,
    tied_exchange,
)
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, LAUNCHES, RECOMPUTES, Case, Floats
from engine.cost_models.calibrated.physics.layers.attention import attention_core, kernel_rate, window_factor
from engine.cost_models.calibrated.physics.layers.block import BlockTimes, block, tensor_exchange
from engine.cost_models.calibrated.physics.layers.elementwise import activation, casts, norms
from engine.cost_models.calibrated.physics.layers.gemm import MatrixUnit, gemm, linear
from engine.cost_models.calibrated.physics.layers.head import ends
from engine.cost_models.calibrated.physics.layers.launch import block_launches, launch_time
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates, maturity, power_factor, sustained_rates
from engine.cost_models.calibrated.physics.layers.recompute import recomputed
from engine.cost_models.calibrated.physics.pipeline.stages import PLAIN as KINDS
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import (
    Load,
    critical_path,
    message_time,
    messages_time,
)
from tests.engine.cost_models.calibrated.cases import A100, DENSE, EXPERTS, H100, case

P = parameters()
PLAIN, WITH_EXPERTS = KINDS[0], KINDS[2]
close = pytest.approx


def unit(rate: float = 100e12, memory: float = 1e12) -> MatrixUnit:
    return MatrixUnit(np.asarray(rate), np.asarray(memory), np.asarray(100.0), P)


def arrays(*values: float) -> list[np.ndarray]:
    return [np.asarray(value, np.float64) for value in values]


def test_a_large_product_runs_at_its_rate_but_for_waves_and_depth() -> None:
    m, n, k = arrays(8192, 8192, 8192)
    waves = 64 * 64 / 100
    expected = 2 * 8192**3 / 100e12 * (1 + P.wave / waves) * (1 + P.depth / 8192) + P.kernel_start
    assert gemm(m, n, k, unit()) == close(expected)


def test_a_thin_product_is_bound_by_memory() -> None:
    m, n, k = arrays(1, 4096, 4096)
    moved = 2 * (4096 + 4096 * 4096) + 2 * 4096
    assert gemm(m, n, k, unit(rate=1e18)) == close(moved / 1e12 + P.kernel_start)


def test_copies_of_a_product_fill_the_processor_together() -> None:
    m, n, k = arrays(128, 128, 512)
    one = gemm(m, n, k, unit()) - P.kernel_start
    many = gemm(m, n, k, unit(), count=100.0) - P.kernel_start
    assert gemm(m, n, k, unit(), count=100.0, together=False) == close(100.0 * gemm(m, n, k, unit()))
    assert many < 100 * one


def test_misaligned_sizes_are_slower_in_all_three_products() -> None:
    m, n, k = arrays(4096, 1800, 1024)
    odd, slower = linear(m, n, k, unit()), 1 + P.misaligned
    assert odd.forward == close(slower * gemm(m, n, k, unit()))
    assert odd.backward == close(slower * (gemm(m, k, n, unit()) + gemm(n, k, m, unit(), out_bytes=8.0)))
    assert linear(m, *arrays(1792, 1024), unit()).forward == close(gemm(m, *arrays(1792, 1024), unit()))


def test_backward_is_two_products_with_a_32_bit_gradient() -> None:
    m, n, k = arrays(4096, 2048, 1024)
    expected = gemm(m, k, n, unit()) + gemm(n, k, m, unit(), out_bytes=8.0)
    assert linear(m, n, k, unit()).backward == close(expected)


def test_reference_accelerators_have_no_power_penalty_and_less_power_means_less_rate() -> None:
    assert power_factor(case(**A100).accelerator, P) == close(1.0)
    assert power_factor(case().accelerator, P) == close(1.0)
    assert power_factor(case(power=500.0).accelerator, P) == close((500 / 700) ** P.power_exponent)
    assert power_factor(case(power=math.nan).accelerator, P) == 1.0


def test_precisions_without_a_peak_run_at_the_next_wider_rate() -> None:
    a100 = sustained_rates(case(**A100).accelerator, np.asarray(np.inf), P)
    assert a100.matrix8 == a100.matrix16 == a100.matrix4
    h100 = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    assert h100.matrix8 == close(1979e12 * P.sustained_hopper * P.eight_bit)
    assert h100.linear(np.asarray(8.0)) == h100.matrix8


def test_software_matures_until_its_age() -> None:
    ages = np.array([0.0, P.mature_years, 10.0, np.inf])
    assert maturity(ages, P) == close([1 / (1 + P.immaturity * P.mature_years), 1, 1, 1])


def test_fused_attention_counts_half_the_scores() -> None:
    c = case()
    scores = 0.5 * 2048**2 * 32 * 2
    rate = 989e12 * P.attention
    waves = 32 * 2 * 16 / 132
    tail = 1 + 0.5 * min(1 / waves, 4)
    exponentials = P.exponentials * scores / (132 * 16 * 1.755e9)
    expected = (2 * scores * 256 / rate + exponentials) * tail + P.kernel_start
    assert attention_core(c, sustained_rates(c.accelerator, np.asarray(np.inf), P), P).forward == close(expected)


@pytest.mark.parametrize(
    ("kernel", "hardware", "factor"),
    [
        ("native", H100, 1.0),
        ("flash2", H100, P.foreign_kernel),
        ("flash1", H100, P.foreign_kernel * P.flash1),
        ("flash2", A100, 1.0),
        ("flash1", A100, P.flash1),
    ],
)
def test_kernels_of_older_generations_are_slower(kernel: str, hardware: dict[str, float], factor: float) -> None:
    c = case(attention_kernel=float(ATTENTION_KERNELS.index(kernel)), **hardware)
    assert kernel_rate(c, P) == close(hardware["flops16"] * P.attention * factor)


def test_unfused_attention_moves_its_scores() -> None:
    c = case(attention_kernel=0.0)
    found = attention_core(c, sustained_rates(c.accelerator, np.asarray(np.inf), P), P)
    assert found.forward > 9 * 2048**2 * 64 / (3350e9 * P.memory)
    assert found.forward > attention_core(case(), sustained_rates(c.accelerator, np.asarray(np.inf), P), P).forward


def test_windows_leave_the_scores_inside_them() -> None:
    def share(first: Callable[[int], int]) -> float:
        """Scores from the first token that each sees up to itself, as a share of those of a plain causal mask."""
        seen = sum(token - first(token) for token in range(2048))
        return seen / sum(range(2048))

    # To a score of a token with itself, which the formulas count by half.
    assert window_factor(case(window=256.0)) == close(share(lambda token: max(token - 256, 0)), rel=1e-3)
    chunked = window_factor(case(window=256.0, window_chunked=1.0))
    assert chunked == close(share(lambda token: token - token % 256), rel=5e-3)
    assert window_factor(case(window=99999.0)) == 1.0
    assert window_factor(case()) == 1.0


def test_elementwise_traffic_is_bytes_over_bandwidth() -> None:
    c = case()
    rates = sustained_rates(c.accelerator, np.asarray(np.inf), P)
    tokens = 2 * 2048
    bytes_ = 22 * tokens * 4096 + 4 * tokens * 64 * 128
    assert norms(c, rates, P).forward == close(bytes_ / (3350e9 * P.memory) + 6 * P.kernel_start)
    acted = activation(c, np.asarray(16384.0), c.tokens, rates, P)
    assert acted.backward == close(6 * tokens * 16384 / (3350e9 * P.memory) + 2 * P.kernel_start)
    assert casts(c, np.asarray(16384.0), rates).forward == 0
    assert casts(case(linear_bits=8.0), np.asarray(16384.0), rates).forward > 0


def test_eager_frameworks_move_more() -> None:
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    fused, eager, plain = (
        norms(case(unfused_elementwise=level), rates, P).forward - 6 * P.kernel_start for level in (0.0, 1.0, 2.0)
    )
    assert eager == close(fused * P.unfused_elementwise)
    assert plain == close(fused * P.plain_elementwise)


def test_a_collective_in_one_domain_has_one_term() -> None:
    tiers = [Tier(np.asarray(8.0), np.asarray(100e9))]
    assert collective(np.asarray(1e9), tiers, P, passes=1) == close(7 / 8 * 1e9 / 100e9 + P.latency / 2 * 1.7)


def test_outer_tiers_carry_a_shard_per_rank() -> None:
    tiers = [Tier(np.asarray(8.0), np.asarray(100e9)), Tier(np.asarray(4.0), np.asarray(10e9))]
    expected = 2 * 7 / 8 * 1e9 / 100e9 + 2 * 3 / 4 * (1e9 / 8) / 10e9 + P.latency * 1.7 + P.latency * (1.5 + 2)
    assert collective(np.asarray(1e9), tiers, P, passes=2) == close(expected)
    three = [*tiers, Tier(np.asarray(2.0), np.asarray(5e9))]
    # The domain is left once, for twice as many.
    assert collective(np.asarray(1e9), three, P, passes=2) == close(expected + (1e9 / 32) / 5e9 + P.latency)


def test_a_group_of_one_costs_nothing() -> None:
    tiers = [Tier(np.asarray(1.0), np.asarray(1e9)), Tier(np.asarray(1.0), np.asarray(1e9))]
    assert collective(np.asarray(1e9), tiers, P, passes=2) == 0
    assert gather_ring_latency(tiers, P) == 0


def test_groups_are_placed_in_domain_host_and_network() -> None:
    c = case(network_sizes=(4.0, 8.0, 65536.0), network_bandwidths=(300e9, 32e9, 25e9))
    rates = sustained_rates(c.accelerator, np.asarray(np.inf), P)
    assert [float(tier.ranks) for tier in network_tiers(np.asarray(16.0), 1.0, c.accelerator, rates)] == [4, 2, 2]
    assert [float(tier.ranks) for tier in network_tiers(np.asarray(16.0), 2.0, c.accelerator, rates)] == [2, 2, 4]
    assert [float(tier.ranks) for tier in network_tiers(np.asarray(4.0), 16.0, c.accelerator, rates)] == [1, 1, 4]


def test_tensor_exchange_is_an_all_reduce_of_the_activations() -> None:
    c = case(tensor_par=8.0)
    rates = sustained_rates(c.accelerator, np.asarray(np.inf), P)
    expected = 2 * 7 / 8 * 2 * 4096 * 4096 / (450e9 * P.scale_up) + P.latency * 1.7
    assert tensor_exchange(c, rates, P) == close(expected)


def test_distinct_destinations_are_fewer_than_draws() -> None:
    ranks, draws = np.array([1.0, 8.0, 8.0, 1e6]), np.array([8.0, 1.0, 1e6, 8.0])
    assert distinct_destinations(ranks, draws) == close([1, 1, 8, 8], rel=1e-4)


def test_token_exchange_within_a_domain() -> None:
    c = case(EXPERTS, expert_par=8.0)
    rates = sustained_rates(c.accelerator, np.asarray(np.inf), P)
    # A copy for each of a token's experts, at 0.9 of what large collectives sustain.
    expected = 8 * 7 / 8 * 2 * 4096 * 4096 / (450e9 * P.scale_up * 2.25 * P.exchange_host) + P.latency
    assert exchange(c, rates, P) == close(expected)
    assert exchange(case(EXPERTS, expert_par=1.0), rates, P) == 0
    assert exchange(case(EXPERTS, expert_par=8.0, overlap_expert=1.0), rates, P) == close(0.3 * expected)


def test_the_ring_hides_behind_attention() -> None:
    c = case(context_par=4.0)
    rates = sustained_rates(c.accelerator, np.asarray(np.inf), P)
    time = 3 * 2 * 32 * 128 * 1024 * 2 / (450e9 * P.scale_up)
    forward, backward = ring(c, rates, P, np.asarray(0.0), np.asarray(0.0))
    assert forward == close(time + 6 * P.latency)
    assert backward == close(2 * time + 6 * P.latency)
    hidden, _ = ring(c, rates, P, np.asarray(1.0), np.asarray(1.0))
    assert hidden == close(6 * P.latency)
    assert ring(case(), rates, P, np.asarray(0.0), np.asarray(0.0))[0] == 0


def through(c: Case, first: float, last: float, whole: float) -> float:
    """Seconds of a pipeline by its first and its last stage; a third of everything is forward."""
    none = np.zeros(())
    loads = [
        Load(np.asarray(time), np.asarray(time / 3), none, none, np.asarray(before))
        for time, before in ((first, 0.0), (last, whole - last))
    ]
    every = Load(np.asarray(whole), np.asarray(whole / 3), none, none, none)
    positions = [none, c.layout.pipeline_par - 1.0]
    return float(critical_path(c, loads, every, positions, none).seconds)


def test_pipeline_time_by_hand() -> None:
    c = case(pipeline_par=4.0, pipeline_interleaving=2.0, data_par=1.0, microbatch_size=1.0, batch_size=16.0)
    assert through(c, 2.0, 1.0, 7.0) == close(16 * 2 + (7 - 2) / 2)
    assert messages_time(c, np.asarray(0.1)) == close(2 * 3 * 0.1)
    alone = case(pipeline_par=4.0, data_par=1.0, microbatch_size=1.0, batch_size=16.0)
    # The slowest stage is the last; or the first, which works while others fill and drain.
    assert through(alone, 1.0, 4.0, 7.0) == close(16 * 4 + 3)
    assert through(alone, 2.0, 1.0, 5.0) == close(16 * 2 + max(3 - 3 * 2 / 3, 0) + max(3 - 3 * 4 / 3, 0))


def interleaved(stages: int, chunks: int, microbatches: int) -> int:
    """Chunk times until a group-wise interleaved schedule is through, simulated: every chunk waits for the one before
    it in the model, and for its stage, which takes groups of as many microbatches as stages chunk by chunk."""
    order = [
        (chunk, number)
        for first in range(0, microbatches, stages)
        for chunk in range(chunks)
        for number in range(first, min(first + stages, microbatches))
    ]
    free = [0] * stages
    done: dict[tuple[int, int], int] = {}
    waiting = [list(order) for _ in range(stages)]
    while any(waiting):
        for stage in range(stages):
            while waiting[stage]:
                chunk, number = waiting[stage][0]
                place = chunk * stages + stage
                before = 0 if place == 0 else done.get((place - 1, number))
                if before is None:
                    break
                free[stage] = done[place, number] = max(free[stage], before) + 1
                waiting[stage].pop(0)
    return max(free)


def test_a_group_that_is_not_full_waits_at_every_chunk() -> None:
    for stages, chunks, microbatches in product([1, 2, 4, 6], [1, 2, 5], [1, 2, 3, 4, 7, 12, 13]):
        c = case(
            pipeline_par=float(stages),
            pipeline_interleaving=float(chunks),
            data_par=1.0,
            microbatch_size=1.0,
            batch_size=float(microbatches),
        )
        waited = through(c, 1.0, 1.0, stages) * chunks
        assert waited == close(interleaved(stages, chunks, microbatches)), (stages, chunks, microbatches)


def test_messages_split_over_the_tensor_parallel_group() -> None:
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    many = {"pipeline_par": 4.0, "tensor_par": 8.0}
    size = 2 * 4096 * 4096
    assert message_time(case(**many), rates, P) == close(size / 8 / (50e9 * P.scale_out) + P.latency)
    assert message_time(case(split_messages=0.0, **many), rates, P) == close(size / (50e9 * P.scale_out) + P.latency)
    assert message_time(case(), rates, P) == 0


def test_launches_per_block() -> None:
    assert block_launches(case())[0] == 20
    assert block_launches(case(tensor_par=8.0))[0] == 27
    assert block_launches(case(linear_bits=8.0, attention_kernel=0.0))[0] == 36
    assert block_launches(case())[1] == close(36)
    assert launch_time(case(launch=float(LAUNCHES.index("compiled"))), P) == close(P.launch * P.compiled_launch)
    assert launch_time(case(launch=float(LAUNCHES.index("graphs"))), P) == close(P.launch * P.graphs_launch)


def test_a_tiny_block_takes_its_launches() -> None:
    c = case(hidden=256.0, feedforward=1024.0, attn_heads=4.0, key_value_heads=4.0, attn_size=64.0, value_size=64.0)
    tiny = block(c, sustained_rates(c.accelerator, np.asarray(np.inf), P), P, PLAIN)
    assert tiny.forward == close(20 * P.launch)
    assert tiny.backward == close(36 * P.launch)
    assert tiny.launch > 0


def test_blocking_launches_add_up() -> None:
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    plain = block(case(), rates, P, PLAIN)
    blocking = block(case(launch=float(LAUNCHES.index("blocking"))), rates, P, PLAIN)
    assert plain.launch == 0
    assert blocking.forward == close(plain.forward + 20 * P.launch)


@pytest.mark.parametrize(("kind", "unfused", "attention"), [("selective", 1, 1), ("selective", 0, 0), ("full", 0, 1)])
def test_selective_recomputation_does_nothing_for_fused_kernels(kind: str, unfused: int, attention: float) -> None:
    found = recomputed(case(recompute=float(RECOMPUTES.index(kind)), attention_kernel=0.0 if unfused else 3.0))
    assert found.attention == attention
    assert found.linear == (1 if kind == "full" else 0)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("exchanges", [(), ("tensor",), ("context",), ("expert",), ("tensor", "context", "expert")])
def test_full_recomputation_repeats_the_forward_pass(kind: Any, exchanges: tuple[str, ...]) -> None:
    """All of it, whatever is exchanged on the way."""
    base = {**(EXPERTS if kind.experts else DENSE), "window": 512.0 if kind.windowed else 0.0}
    # Large microbatches, so that no pass is bound by its launches.
    changes = {f"{name}_par": 4.0 for name in exchanges}
    changes |= {"expert_tensor_par": 1.0, "data_par": 16.0, "microbatch_size": 8.0}
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)

    def made(name: str, share: float = 1.0) -> BlockTimes:
        recompute = float(RECOMPUTES.index(name))
        return block(case(base, recompute=recompute, recompute_share=share, **changes), rates, P, kind)

    none, full, half = made("none"), made("full"), made("full", 0.5)
    assert full.backward - none.backward == close(none.forward)
    sent = full.repeated_exposed + full.context_exposed + full.expert_exposed
    assert sent - none.context_exposed - none.expert_exposed == close(none.forward - none.computing)
    assert half.backward == close((none.backward + full.backward) / 2)
    assert made("half").backward == close(half.backward)


def test_parts_of_a_block_add_up() -> None:
    for base, kind in ((DENSE, PLAIN), (EXPERTS, WITH_EXPERTS)):
        c = case(base, tensor_par=4.0, context_par=2.0, expert_par=4.0, recompute=2.0, expert_tensor_par=4.0)
        made = block(c, sustained_rates(c.accelerator, np.asarray(np.inf), P), P, kind)
        parts = sum(
            getattr(made, name)
            for name in (
                "linear",
                "attention",
                "elementwise",
                "recompute",
                "tensor_exposed",
                "context_exposed",
                "expert_exposed",
                "launch",
            )
        )
        assert parts == close(float(made.forward + made.backward))


def test_the_head_is_a_product_and_a_loss_in_16_bits() -> None:
    c = case(linear_bits=8.0)
    rates = sustained_rates(c.accelerator, np.asarray(np.inf), P)
    found = ends(c, rates, P)
    sixteen = MatrixUnit(rates.matrix16, rates.memory, c.accelerator.multiprocessors, P)
    product = linear(*arrays(4096, 51200, 4096), sixteen)
    loss = 26 * 4096 * 51200 / (3350e9 * P.memory)
    assert found.head == close(product.forward + product.backward + loss)
    assert found.embedding == close(16 * 4096 * 4096 / (3350e9 * P.memory))


def gathers(of: Case, rates: SustainedRates, weights: Floats, forward: Floats, backward: Floats) -> Gathers:
    none = np.zeros(())
    times = dict.fromkeys(BlockTimes.__dataclass_fields__, none) | {"forward": forward, "backward": backward}
    return layer_gathers(of, rates, P, data_tiers(of, rates), weights, BlockTimes(**times))


def test_gathers_hide_behind_computation() -> None:
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    weights = np.asarray(2e8)
    full = {"fully_sharded": 1.0, "zero_stage": 3.0}
    open_ = gathers(case(**full), rates, weights, np.asarray(1.0), np.asarray(1.0))
    hidden = gathers(case(overlap_data=1.0, **full), rates, weights, np.asarray(1.0), np.asarray(1.0))
    gather = 7 / 8 * 2 * 2e8 / (450e9 * P.scale_up) + P.latency / 2 * 1.7 + 0.7 * P.ring_latency
    assert open_.forward == close(gather)
    assert hidden.forward == close(gather * (1 - P.overlap_data))
    kept = gathers(case(fully_sharded=1.0, zero_stage=2.0), rates, weights, np.asarray(1.0), np.asarray(1.0))
    assert kept.backward == close(float(open_.backward - gather))
    assert gathers(case(), rates, weights, np.asarray(1.0), np.asarray(1.0)).forward == 0


def test_gathers_tensor_by_tensor_pay_every_rank() -> None:
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    full = {"fully_sharded": 1.0, "zero_stage": 3.0, "data_par": 512.0, "batch_size": 4096.0}
    weights, none = np.asarray(2e8), np.asarray(0.0)
    whole = gathers(case(**full), rates, weights, none, none)
    single = gathers(case(gather_calls=12.0, **full), rates, weights, none, none)
    ring_hops = 0.1 * 7 + 63
    assert single.forward - whole.forward == close(12 * 511 * P.tensor_hop - ring_hops * P.ring_latency)


def test_gradients_are_reduced_and_weights_gathered() -> None:
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    weights, none = np.asarray(1e9), np.asarray(0.0)
    reduce = 7 / 8 * 4e9 / (450e9 * P.scale_up) + P.latency / 2 * 1.7
    gather = 7 / 8 * 2e9 / (450e9 * P.scale_up) + P.latency / 2 * 1.7
    full = gradient_exchange(case(), rates, P, weights, none)
    assert full == close(reduce + gather)
    assert gradient_exchange(case(zero_stage=0.0), rates, P, weights, none) == close(2 * reduce)
    assert gradient_exchange(case(data_par=1.0), rates, P, weights, none) == 0
    assert gradient_exchange(case(fully_sharded=1.0), rates, P, weights, none) == 0
    assert exposed_exchange(full, np.asarray(0.0), np.asarray(10.0), P) == close(full)
    on, long = np.asarray(1.0), np.asarray(10.0)
    assert exposed_exchange(full, on, long, P) == close((reduce + gather) * (1 - P.overlap_data))
    assert exposed_exchange(full, on, np.asarray(0.0), P) == close(full)


def test_tied_embeddings_meet_once_per_step() -> None:
    rates = sustained_rates(case().accelerator, np.asarray(np.inf), P)
    assert tied_exchange(case(), rates, P, np.asarray(1e8)) == 0
    assert tied_exchange(case(pipeline_par=4.0, tied_embeddings=0.0), rates, P, np.asarray(1e8)) == 0
    found = tied_exchange(case(pipeline_par=4.0), rates, P, np.asarray(1e8))
    assert found == close(4e8 / (50e9 * P.scale_out) + P.latency * 2.5)
