"""Every number format once. A new format is an entry here; CONTRIBUTING.md says what follows from it.

The order is that of the formats on screen where nothing else decides. Sources: OCP, *Microscaling Formats (MX)
Specification* v1.0, 2023 (MXFP8, MXFP4: an E8M0 scale of 8 bits for every 32 elements); NVIDIA, *Pretraining Large
Language Models with NVFP4*, arXiv:2509.25149, section 2 (an E4M3 scale of 8 bits for every 16 elements and one FP32
scale per tensor); DeepSeek-V3, arXiv:2412.19437, section 3.3.2 (FP32 scales for tiles of 1 x 128 of activations and
blocks of 128 x 128 of weights). Which generation Transformer Engine runs a recipe on: its documentation, "Low
precision training", and `transformer_engine/pytorch/quantization.py`, release 2.8.
"""

from __future__ import annotations

from typing import Final

from models.datatypes.entry import Datatype, SustainedRatio

__all__ = ["PROGRAMS", "REGISTER"]

PROGRAMS: Final = (
    "calculon",
    "runs",
    "megatron",
    "megatron_bridge",
    "torchtitan",
    "deepspeed",
    "maxtext",
    "vllm",
    "sglang",
    "tensorrt_llm",
    "hugging_face",
    "torch",
)
"""Programs and documents with words of their own. `runs`: tables of measured runs; `megatron`: flags and values of
--fp8-recipe and --fp4-recipe; `megatron_bridge`: names of mixed-precision recipes, in the order of Megatron's words;
`torchtitan`: parts of converters' names; `maxtext`: values of `quantization`, or of `dtype`; `vllm`, `sglang`,
`tensorrt_llm`: quantization words; `hugging_face`: words of a `quantization_config`; `torch`: `torch_dtype` and
`dtype`."""

REGISTER: Final[tuple[Datatype, ...]] = (
    Datatype(
        "float4",
        "FP4",
        bits=4,
        source="Element of 4 bits (E2M1) whose scales are not counted, as in a system's FP4 peak.",
        measured_as="float4",
        encoding="e2m1",
        words={"runs": ("fp4", "float4", "e2m1"), "maxtext": ("fp4",)},
    ),
    Datatype(
        "float8",
        "FP8",
        bits=8,
        source="Micikevicius et al. 2022, arXiv:2209.05433: E4M3 or E5M2 with one scale per tensor.",
        measured_as="float8",
        encoding="hybrid",
        words={
            "calculon": ("float8",),
            "runs": ("fp8", "float8", "e4m3", "e5m2"),
            "megatron": ("tensorwise", "delayed"),
            "megatron_bridge": ("bf16_with_fp8_current_scaling_mixed", "bf16_with_fp8_delayed_scaling_mixed"),
            "torchtitan": ("float8",),
            # The recipe fp8 keeps a history of maxima, which MaxText does not accumulate gradients with
            # (configs/types.py); the second does.
            "maxtext": (
                "fp8",
                "te_fp8_currentscaling",
                "te_fp8_delayedscaling",
                "nanoo_fp8",
                "fp8_nanoo",
                "fp8_gpu",
                "fp8_full",
                "fp8_e4m3",
                "fp8_e5m2",
            ),
            "vllm": ("fp8", "modelopt"),
            "sglang": ("fp8", "modelopt", "w8a8_fp8"),
            "tensorrt_llm": ("FP8", "FP8_PER_CHANNEL_PER_TOKEN"),
            "hugging_face": ("fp8", "fbgemm_fp8", "float-quantized"),
            "torch": ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8"),
        },
    ),
    Datatype(
        "float16",
        "FP16",
        bits=16,
        source="IEEE 754 binary16.",
        measured_as="float16",
        words={
            "calculon": ("float16",),
            "runs": ("fp16", "float16", "half"),
            "megatron": ("fp16",),
            "megatron_bridge": ("fp16_mixed",),
            "torchtitan": ("float16",),
            "deepspeed": ("fp16",),
            "maxtext": ("float16",),
            "vllm": ("float16", "half"),
            "sglang": ("float16", "half"),
            "tensorrt_llm": ("float16",),
            "torch": ("float16", "half"),
        },
    ),
    Datatype(
        "bfloat16",
        "BF16",
        bits=16,
        source="Kalamkar et al. 2019, arXiv:1905.12322: 8 bits of exponent.",
        measured_as="bfloat16",
        words={
            "calculon": ("bfloat16",),
            "runs": ("bf16", "bfloat16"),
            "megatron": ("bf16",),
            "megatron_bridge": ("bf16_mixed",),
            "torchtitan": ("bfloat16",),
            "deepspeed": ("bf16",),
            "maxtext": ("bfloat16",),
            "vllm": ("bfloat16",),
            "sglang": ("bfloat16",),
            "tensorrt_llm": ("bfloat16",),
            "torch": ("bfloat16",),
        },
    ),
    Datatype(
        "float32",
        "FP32",
        bits=32,
        source="IEEE 754 binary32.",
        gradients=("float32",),
        words={
            "calculon": ("float32",),
            "megatron": ("fp32",),
            "torchtitan": ("float32",),
            "deepspeed": ("fp32",),
            "maxtext": ("float32",),
            "vllm": ("float32", "float"),
            "sglang": ("float32", "float"),
            "tensorrt_llm": ("float32",),
            "torch": ("float32", "float"),
        },
    ),
    Datatype(
        "float64",
        "FP64",
        bits=64,
        source="IEEE 754 binary64.",
        gradients=("float64",),
        master="float64",
        words={"torch": ("float64", "double")},
    ),
    Datatype(
        "tf32",
        "TF32",
        bits=32,
        source="NVIDIA A100 architecture: FP32 in memory, factors rounded to 19 bits in the matrix unit.",
        gradients=("float32",),
    ),
    Datatype(
        "float8_block",
        "FP8 block",
        bits=8,
        source="DeepSeek-V3, section 3.3.2.",
        scale_bits=32,
        block=128,
        weight_block=128 * 128,
        rates_of=("float8",),
        # Transformer Engine: Hopper; on Blackwell it uses MXFP8 with powers of two as scales.
        generations=("hopper", "blackwell"),
        encoding="hybrid",
        words={
            "megatron": ("blockwise",),
            "megatron_bridge": ("bf16_with_fp8_subchannel_scaling_mixed",),
            "tensorrt_llm": ("FP8_BLOCK_SCALES",),
            "vllm": ("fp8_per_block",),
            "hugging_face": ("fp8 128x128", "float-quantized 128x128"),
        },
    ),
    Datatype(
        "mxfp8",
        "MXFP8",
        bits=8,
        source="OCP MX v1.0.",
        scale_bits=8,
        block=32,
        rates_of=("float8",),
        # NVIDIA: Blackwell; AMD CDNA4 white paper; AWS Trainium3: its FP8 peak is that of MXFP8.
        generations=("blackwell", "cdna4", "trainium3"),
        measured_as="float8",
        encoding="e4m3",
        words={
            "runs": ("mxfp8",),
            "megatron": ("mxfp8",),
            "megatron_bridge": ("bf16_with_mxfp8_mixed",),
            "torchtitan": ("mxfp8", "mx"),
            "maxtext": ("te_mxfp8",),
            "vllm": ("mxfp8", "modelopt_mxfp8"),
            "sglang": ("mxfp8",),
            "tensorrt_llm": ("W4A8_MXFP4_MXFP8",),
            "hugging_face": ("mxfp8",),
        },
    ),
    Datatype(
        "mxfp4",
        "MXFP4",
        bits=4,
        source="OCP MX v1.0.",
        scale_bits=8,
        block=32,
        rates_of=("float4",),
        generations=("blackwell", "cdna4", "trainium3"),
        encoding="e2m1",
        words={
            "runs": ("mxfp4",),
            "vllm": ("mxfp4",),
            "sglang": ("mxfp4",),
            "tensorrt_llm": ("MXFP4", "W4A16_MXFP4"),
            "hugging_face": ("mxfp4", "mxfp4-pack-quantized"),
        },
    ),
    Datatype(
        "nvfp4",
        "NVFP4",
        bits=4,
        source="arXiv:2509.25149, section 2.",
        scale_bits=8,
        block=16,
        rates_of=("float4",),
        generations=("blackwell",),
        sustained=SustainedRatio(
            "float8",
            2.0,
            "Training runs in NVFP4 and FP8: whole steps are 1.64 to 1.88 times faster, and unseen halves of 18 NVFP4 "
            "runs on Blackwell are predicted best with 2; the higher FP4 peak of B300 and GB300 is not reached.",
        ),
        measured_as="float4",
        encoding="e2m1",
        words={
            "runs": ("nvfp4",),
            "megatron": ("nvfp4",),
            "megatron_bridge": ("bf16_with_nvfp4_mixed",),
            "torchtitan": ("nvfp4",),
            "maxtext": ("te_nvfp4", "te_nvfp4_no_rht"),
            "vllm": ("modelopt_fp4", "nvfp4"),
            "sglang": ("modelopt_fp4", "nvfp4"),
            "tensorrt_llm": ("NVFP4",),
            "hugging_face": ("nvfp4", "nvfp4-pack-quantized"),
        },
    ),
    Datatype(
        "int8",
        "INT8",
        bits=8,
        source="Jacob et al. 2018, arXiv:1712.05877: whole numbers with one scale per channel.",
        sustained=SustainedRatio(
            "bfloat16",
            1.2,
            "GPT-3 175B with AQT on TPU v6e and v5p: steps 1.1 to 1.25 times as fast as in BF16; the peak, which is "
            "twice that of BF16, is not reached.",
        ),
        words={
            "runs": ("int8",),
            "maxtext": ("int8",),
            "vllm": ("experts_int8", "int8"),
            "sglang": ("w8a8_int8",),
            "tensorrt_llm": ("INT8", "W8A8_SQ_PER_CHANNEL"),
            "hugging_face": ("int-quantized", "gptq 8", "bitsandbytes 8"),
            "torch": ("int8",),
        },
    ),
    Datatype(
        "int4",
        "INT4 weights",
        bits=4,
        source="Frantar et al. 2022, arXiv:2210.17323: whole numbers with a 16-bit scale for every 128 weights.",
        use="weights",
        scale_bits=16,
        block=128,
        words={
            "vllm": ("awq", "gptq", "awq_marlin", "gptq_marlin"),
            "sglang": ("awq", "gptq", "awq_marlin", "gptq_marlin"),
            "tensorrt_llm": ("W4A16_AWQ", "W4A16_GPTQ", "W4A16"),
            "hugging_face": ("awq", "gptq", "pack-quantized"),
        },
    ),
)
"""All number formats."""
