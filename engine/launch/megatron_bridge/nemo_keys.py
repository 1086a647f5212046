"""Keys of NeMo 1 and 2 by the key of Megatron-Bridge that says the same, and the words that mean something else there.

Source: NVIDIA/NeMo 1.23, examples/nlp/language_modeling/conf/megatron_gpt_config.yaml; NeMo 2, nemo/lightning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import Origin, UnknownValue
from engine.launch.megatron_bridge.keys import KEYS, PRECISIONS

__all__ = ["NEMO_PRECISIONS", "is_nemo", "known_nemo_key", "with_keys_of_bridge"]

_NEMO: Final = {
    "data.global_batch_size": "train.global_batch_size",
    "data.micro_batch_size": "train.micro_batch_size",
    "data.seq_length": "dataset.seq_length",
    "model.global_batch_size": "train.global_batch_size",
    "model.micro_batch_size": "train.micro_batch_size",
    "model.encoder_seq_length": "model.seq_length",
    "model.rampup_batch_size": "train.rampup_batch_size",
    "model.activations_checkpoint_granularity": "model.recompute_granularity",
    "model.activations_checkpoint_method": "model.recompute_method",
    "model.activations_checkpoint_num_layers": "model.recompute_num_layers",
    "model.ub_tp_comm_overlap": "comm_overlap.tp_comm_overlap",
    "model.bias": "model.add_bias_linear",
    "model.activation": "model.gated_linear_unit",
    "model.fp8_params": "model.fp8_param_gather",
    "model.optim.overlap_grad_sync": "ddp.overlap_grad_reduce",
    "optim.overlap_grad_sync": "ddp.overlap_grad_reduce",
    "model.optim.overlap_param_sync": "ddp.overlap_param_gather",
    "optim.overlap_param_sync": "ddp.overlap_param_gather",
    "model.optim.name": "ddp.use_distributed_optimizer",
    "optim.name": "ddp.use_distributed_optimizer",
    "model.optim.grad_sync_dtype": "mixed_precision.grad_reduce_in_fp32",
    "trainer.devices": "--gpus_per_node",
    "trainer.num_nodes": "--nodes",
    "trainer.precision": "mixed_precision",
    "trainer.plugins": "mixed_precision",
    "optimizer.use_distributed_optimizer": "ddp.use_distributed_optimizer",
}
NEMO_PRECISIONS: Final = {
    "bf16": "bf16_mixed",
    "bf16-mixed": "bf16_mixed",
    "bf16-true": "bf16_mixed",
    "16": "fp16_mixed",
    "16-mixed": "fp16_mixed",
    "16-true": "fp16_mixed",
    "fp16": "fp16_mixed",
    "32": "fp32",
    "32-true": "fp32",
    "fp32": "fp32",
    "bf16_with_fp8_mixed": "bf16_with_fp8_delayed_scaling_mixed",
}
"""Words of NeMo for a precision, by the recipe of mixed precision that is the same."""
_GATED: Final = frozenset({"geglu", "swiglu", "reglu", "fast-geglu", "fast-swiglu", "fast-reglu"})
_PLAIN: Final = frozenset(
    {"gelu", "approx-gelu", "openai-gelu", "openai_gelu", "quick-gelu", "relu", "squared-relu", "squared_relu", "silu"}
)
_OWN: Final = frozenset(
    {
        "model.encoder_seq_length",
        "model.mcore_gpt",
        "model.activation",
        "model.bias",
        "model.micro_batch_size",
        "model.global_batch_size",
        "model.activations_checkpoint_granularity",
        "model.megatron_amp_O2",
        "model.optim.name",
        "model.tensor_model_parallel_size",
        "model.pipeline_model_parallel_size",
        "model.num_layers",
    }
)
"""Keys of `model` that a configuration of NeMo 1 has."""


def is_nemo(values: Mapping[str, Any]) -> bool:
    """Return whether keys belong to a configuration of NeMo 1 or 2.

    Args:
        values: by key.
    """
    trainer = any(key in values for key in ("trainer.devices", "trainer.num_nodes", "trainer.precision"))
    strategy = any(key.startswith("trainer.strategy.") for key in values)
    return strategy or (trainer and bool(_OWN & {*values}))


def known_nemo_key(key: str) -> bool:
    """Returns whether a key, of NeMo or of Megatron-Bridge, states something that is read.

    Args:
        key: any.
    """
    renamed = _rename_key(key)
    return renamed in KEYS.values() or renamed != key or key.startswith(("--", "mixed_precision"))


def _rename_key(key: str) -> str:
    inner = key.removeprefix("trainer.strategy.")
    found = key if inner == key else inner if inner.startswith("ddp.") else f"model.{inner}"
    return _NEMO.get(found, found)


def with_keys_of_bridge(
    values: Mapping[str, Any], origins: Mapping[str, Origin]
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Return values and origins with NeMo's keys renamed to Megatron-Bridge's; a key that is written out counts more.

    Args:
        values: by key.
        origins: by key.
    """
    kept: dict[str, Any] = {}
    places: dict[str, Origin] = {}
    for key, value in values.items():
        renamed = _rename_key(key)
        if renamed != key and renamed in values:
            continue
        kept[renamed] = _convert_value(key, value)
        if key in origins:
            places[renamed] = origins[key]
    return kept, places


def _convert_value(key: str, value: Any) -> Any:
    """A value as Megatron-Bridge has it; unknown where NeMo has no such word."""
    if isinstance(value, UnknownValue) or value is None:
        return value
    word = str(value).strip().lower()
    if key in ("trainer.precision", "trainer.plugins"):
        found = NEMO_PRECISIONS.get(word, word)
        return found if found in PRECISIONS or found == "fp32" else UnknownValue(str(value)[:80])
    if key in ("model.optim.name", "optim.name"):
        return word.startswith(("distributed", "mcore_distributed"))
    if key == "model.activation":
        return True if word in _GATED else False if word in _PLAIN else UnknownValue(str(value)[:80])
    if key.endswith("grad_sync_dtype"):
        return word in ("fp32", "float32", "torch.float32")
    return value
