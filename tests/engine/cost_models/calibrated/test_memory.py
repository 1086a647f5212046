"""Memory per stage against arithmetic done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engine.cost_models.calibrated import memory_use
from engine.cost_models.calibrated.physics.communication.sharding import gathered_bytes
from engine.cost_models.calibrated.physics.formats import DATATYPES, LINEAR_BITS, LINEAR_FORMATS
from engine.cost_models.calibrated.physics.inputs import GENERATIONS, LAUNCHES, RECOMPUTES
from engine.cost_models.calibrated.physics.memory import ProcessorMemory, activation_bytes, in_flight
from tests.engine.cost_models.calibrated.cases import DENSE, EXPERTS, case

BLOCK = 4 * 4096**2 + 2 * 4096 * 16384
WORDS = 51200 * 4096
TOKENS = 2 * 2048
close = pytest.approx


def test_weights_gradients_and_sharded_optimizer() -> None:
    found = memory_use(case())
    held = 32 * BLOCK + WORDS
    assert found.weights == close(2 * held)
    assert found.gradients == close(4 * held)
    assert found.optimizer == close(12 * held / 8)
    assert memory_use(case(zero_stage=0.0)).optimizer == close(12 * held)
    assert memory_use(case(moment_bytes=2.0)).optimizer == close(8 * held / 8)
    assert memory_use(case(tied_embeddings=0.0)).weights == close(2 * (held + WORDS))


def test_an_uneven_pipeline_is_as_full_as_its_fullest_stage() -> None:
    # 32 blocks over 5 stages: 6, 6, 7, 7, 6; the third holds 7 blocks of 3 microbatches, the first 6 of 5.
    layout = {"pipeline_par": 5.0, "data_par": 1.0, "microbatch_size": 1.0}
    even = memory_use(case(pipeline_par=4.0, data_par=1.0, microbatch_size=1.0, batch_size=64.0))
    assert even.activations / (8 * 4) == close(activation_bytes(case(**layout, batch_size=64.0)).kept[0])
    found = memory_use(case(**layout, batch_size=64.0))
    assert found.activations / activation_bytes(case(**layout)).kept[0] == close(max(6 * 5, 7 * 3))
    # 32 over 12: 2 on the first three and the last, 3 between them.
    long = memory_use(case(pipeline_par=12.0, data_par=1.0, microbatch_size=1.0, batch_size=64.0))
    assert long.activations / activation_bytes(case(**layout)).kept[0] == close(max(2 * 12, 3 * 9))


def test_key_and_value_heads_are_repeated_where_there_are_more_ranks() -> None:
    """8 heads of keys and values: over 8 ranks one each, over 32 ranks again one each."""
    grouped = {**DENSE, "key_value_heads": 8.0}
    for ranks, local in ((4, 2), (8, 1), (32, 1)):
        found = memory_use(case(grouped, tensor_par=float(ranks)))
        projections = 2 * 4096 * 128 * (32 / ranks + local)
        held = 32 * (projections + 2 * 4096 * 16384 / ranks) + WORDS / ranks
        assert found.weights == close(2 * held), ranks
        kept = activation_bytes(case(grouped, tensor_par=float(ranks))).kept[0]
        attention = 2 * TOKENS * 2 * 128 * (32 / ranks + local) + 4 * TOKENS * 32 / ranks
        assert kept == close(8 * TOKENS * 4096 + attention + 2 * TOKENS * 2 * 16384 / ranks), ranks


def test_fully_sharded_training_divides_everything() -> None:
    found = memory_use(case(fully_sharded=1.0, zero_stage=3.0))
    held = 32 * BLOCK + WORDS
    assert found.weights + found.gradients + found.optimizer == close(16 * held / 8)
    assert found.temporaries == close(4 * BLOCK + 2 * WORDS)


@pytest.mark.parametrize(
    ("generation", "datatype", "copied", "held", "gathered"),
    [
        ("hopper", "bfloat16", 2, 2, 2),
        ("hopper", "float8", 2 + 2 * 1, 2 * 1, 1),
        # Products of Blackwell read 8 bits with one scale along either axis.
        ("blackwell", "float8", 2 + 1, 1, 1),
        # Scales of blocks differ by axis: two copies, gathered in 16 bits and converted.
        ("blackwell", "mxfp8", 2 + 2 * 8.25 / 8, 2 * 8.25 / 8, 2),
        # No parameters in 4 bits.
        ("blackwell", "nvfp4", 2 + 2 * 4.5 / 8, 2 + 2 * 4.5 / 8, 2),
    ],
)
def test_weights_of_narrow_products(
    generation: str, datatype: str, copied: float, held: float, gathered: float
) -> None:
    """Bytes per weight of blocks without and with 8-bit parameters; vocabulary matrices stay in 16 bits."""
    position = DATATYPES.index(datatype)
    changes = {
        "generation": float(GENERATIONS.index(generation)),
        "linear_bits": LINEAR_BITS[position],
        "linear_format": LINEAR_FORMATS[position],
    }
    plain, narrow = case(**changes), case(**changes, fp8_parameters=1.0)
    assert memory_use(plain).weights == close(copied * 32 * BLOCK + 2 * WORDS)
    assert memory_use(narrow).weights == close(held * 32 * BLOCK + 2 * WORDS)
    assert (gathered_bytes(plain), gathered_bytes(narrow)) == (2, close(gathered))
    # PyTorch casts weights for every product and keeps no copies.
    assert memory_use(case(**changes, pytorch_native=1.0)).weights == close(2 * (32 * BLOCK + WORDS))


def test_activations_of_a_block() -> None:
    norm, attention, feed = 8 * TOKENS * 4096, 2 * TOKENS * 4 * 4096 + 4 * TOKENS * 32, 2 * TOKENS * 2 * 16384
    assert activation_bytes(case()).kept[0] == close(norm + attention + feed)
    split = activation_bytes(case(tensor_par=4.0, sequence_par=1.0)).kept[0]
    assert split == close((norm + attention + feed) / 4)
    full = activation_bytes(case(recompute=float(RECOMPUTES.index("full"))))
    assert full.kept[0] == close(2 * TOKENS * 4096)
    assert full.working[0] == close(norm + attention + feed)


def test_pytorchs_compiler_does_not_keep_outputs_of_norms_and_activations() -> None:
    """Per block: of 8 T h around norms half, of inputs and output of the gated activation, 3 T F, two thirds."""
    gated = {**DENSE, "gated": 1.0}
    plain, compiled = (
        {
            kind: activation_bytes(
                case(gated, pytorch_native=1.0, launch=float(LAUNCHES.index(launch)), recompute=RECOMPUTES.index(kind))
            ).kept[0]
            for kind in RECOMPUTES
        }
        for launch in ("fused", "compiled")
    )
    saved = 4 * TOKENS * 4096 + 2 * TOKENS * 16384
    assert plain["none"] - compiled["none"] == close(saved)
    assert plain["half"] - compiled["half"] == close(saved / 2)
    assert compiled["full"] == plain["full"]
    assert all(kept <= compiled["none"] for kept in compiled.values())


def test_unfused_attention_keeps_scores_unless_they_are_recomputed() -> None:
    kept = activation_bytes(case(attention_kernel=0.0)).kept[0]
    redone = activation_bytes(case(attention_kernel=0.0, recompute=float(RECOMPUTES.index("selective")))).kept[0]
    assert kept == close(TOKENS * 4096 * 34 + 5 * 32 * 2048**2 * 2)
    assert redone == close(TOKENS * 4096 * 34)


@pytest.mark.parametrize(
    ("stages", "interleaving", "batch", "expected"),
    [(1, 1, 64, (1, 1)), (4, 1, 64, (4, 1)), (8, 5, 640, (9.4, 6.6)), (4, 1, 2, (2, 1))],
)
def test_microbatches_in_flight(stages: int, interleaving: int, batch: int, expected: tuple[float, float]) -> None:
    c = case(
        pipeline_par=float(stages),
        pipeline_interleaving=float(interleaving),
        data_par=1.0,
        microbatch_size=1.0,
        batch_size=float(batch),
    )
    assert [float(in_flight(c, position)) for position in (0.0, stages - 1.0)] == close(list(expected))


def test_first_stage_holds_most_activations_and_the_last_the_logits() -> None:
    deep = memory_use(case(pipeline_par=8.0, vocabulary=1024.0, batch_size=512.0))
    assert deep.logits == 0
    assert deep.activations == close(8 * 4 * float(activation_bytes(case()).kept[0]))
    wide = memory_use(case(pipeline_par=2.0, vocabulary=1e6, num_blocks=2.0))
    assert wide.logits == close(8 * TOKENS * 1e6)


@pytest.mark.parametrize("base", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_parts_add_up(base: dict[str, float]) -> None:
    found = memory_use(case(base, pipeline_par=4.0, tensor_par=2.0, expert_par=4.0, expert_tensor_par=2.0))
    parts = [getattr(found, name) for name in ProcessorMemory.__dataclass_fields__ if name != "peak"]
    assert sum(parts) == close(float(found.peak))


def test_expert_parallelism_divides_experts() -> None:
    weights = memory_use(case(EXPERTS, expert_par=np.array([1.0, 2.0, 8.0]))).weights
    experts = 31 * 64 * 3 * 4096 * 1024
    assert weights[0] - weights[1] == close(2 * experts / 2)
    assert weights[0] - weights[2] == close(2 * experts * 7 / 8)


@pytest.mark.parametrize("kind", RECOMPUTES)
def test_recomputation_never_keeps_more(kind: str) -> None:
    assert memory_use(case(recompute=float(RECOMPUTES.index(kind)))).activations <= memory_use(case()).activations * 1.2
    assert activation_bytes(case(recompute=float(RECOMPUTES.index(kind)))).kept[0] <= activation_bytes(case()).kept[0]
