"""The register of number formats: what each entry says, and what is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hardware
import models
from models import datatypes


@pytest.mark.parametrize(
    ("name", "activation", "weight"),
    # bits with scales, by hand: OCP MX v1.0; arXiv:2509.25149, section 2; arXiv:2412.19437, section 3.3.2
    [
        ("bfloat16", 16, 16),
        ("float8", 8, 8),
        ("float8_block", 8 + 32 / 128, 8 + 32 / 16384),
        ("mxfp8", 8.25, 8.25),
        ("mxfp4", 4.25, 4.25),
        ("nvfp4", 4.5, 4.5),
        ("int4", 4.125, 4.125),
    ],
)
def test_bits_count_scales(name: str, activation: float, weight: float) -> None:
    entry = datatypes.named(name)
    assert (entry.stored_bits, entry.weight_bits) == (activation, weight)
    assert entry.num_bytes == activation / 8


def test_names_labels_and_words_are_of_one_datatype_each() -> None:
    entries = datatypes.REGISTER
    assert len({each.name for each in entries}) == len({each.label for each in entries}) == len(entries)
    for program in datatypes.PROGRAMS:
        said = [word.lower() for each in entries for word in each.words.get(program, ())]
        assert sorted(set(said)) == sorted(said), program
        for each in entries:
            word = datatypes.word_for(program, each.name)
            assert word is None or datatypes.spelled(program, word) is each
    for each in entries:
        assert each.source
        assert set(each.words) <= set(datatypes.PROGRAMS)
        partners = {*each.rates_of, *each.gradients, each.master, each.measured_as or each.name}
        assert partners <= set(datatypes.names())
        assert bool(each.rates_of) == bool(each.generations)


def test_an_unknown_name_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(datatypes.UnknownDatatypeError, match=r"'posit16' is unknown; there are float4, .*nvfp4"):
        datatypes.named("posit16")
    assert datatypes.spelled("megatron", "custom") is None
    with pytest.raises(ValueError, match=r"'fortran' is no program"):
        datatypes.spelled("fortran", "real")
    assert "stores weights only" in datatypes.explain_refusal("int4", ["bfloat16"], "It")


def test_a_system_computes_at_its_own_peak_or_at_the_one_that_the_register_names() -> None:
    blackwell, hopper, ampere = map(hardware.load, ("gb300_279g_nvl72", "h100_80g_sxm", "a100_80g_sxm"))
    assert [blackwell.rate_name(each) for each in ("nvfp4", "mxfp4", "mxfp8")] == ["nvfp4", "float4", "float8"]
    assert blackwell.peak_tflops("mxfp8") == blackwell.matrix["float8"].tflops
    assert {"mxfp8", "mxfp4", "nvfp4", "float8_block"} <= set(blackwell.offered_datatypes)
    assert hopper.rate_name("float8_block") == "float8"
    assert [hopper.has_rate(each) for each in ("mxfp8", "nvfp4", "mxfp4", "posit16")] == [False] * 4
    assert set(ampere.offered_datatypes) == set(ampere.datatypes)
    assert (ampere.peak_tflops("tf32"), ampere.peak_tflops("float8")) == (156, 0)


def test_a_document_without_a_generation_computes_in_what_it_states() -> None:
    document = hardware.to_document(hardware.load("gb300_279g_nvl72"))
    bare = hardware.load_document({key: value for key, value in document.items() if key != "accelerator"})
    assert bare.offered_datatypes == bare.datatypes
    for engine in ("matrix", "vector"):
        document[engine].pop("nvfp4")
    older = hardware.load_document(document)  # as documents were before NVFP4 had a peak of its own
    assert older.rate_name("nvfp4") == "float4"


@pytest.mark.parametrize(
    ("config", "name"),
    # the shapes of quantization_config in published checkpoints
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({}, None),
        # DeepSeek-V3; a checkpoint with one scale per tensor; gpt-oss; Llama 4 Maverick
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "float8_block"),
        ({"quantization_config": {"quant_method": "fp8"}, "torch_dtype": "bfloat16"}, "float8"),
        ({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}, "mxfp4"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "format": "float-quantized",
                    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
                }
            },
            "float8",
        ),
        # Kimi K2 Thinking; TensorRT Model Optimizer; AutoAWQ; GPTQ in 8 bits
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "format": "pack-quantized",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "type": "int"}}},
                }
            },
            "int4",
        ),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "int4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "int8"),
    ],
)
def test_checkpoints_say_the_datatype_of_their_weights(config: dict[str, object], name: str | None) -> None:
    found = datatypes.datatype_of_checkpoint(config)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quantization_config": {"quant_method": "hqq"}}, r"'hqq', which is unknown; known are .*awq"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, r"'gptq' with 3 bits, which is unknown"),
        ({"dtype": "posit16"}, r"dtype says 'posit16', which is unknown; known are float8_e4m3fn"),
    ],
)
def test_an_unknown_format_of_a_checkpoint_is_never_another_one(config: dict[str, object], said: str) -> None:
    with pytest.raises(datatypes.UnknownDatatypeError, match=said):
        datatypes.datatype_of_checkpoint(config)


def test_an_imported_model_says_the_format_of_its_published_weights() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    }
    for quantized, said in (
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "Published weights are FP8 block, 8.002 bits each"),
        ({"quant_method": "hqq"}, "quantization_config says 'hqq', which is unknown"),
    ):
        found = models.from_hugging_face(config | {"quantization_config": quantized})
        assert any(note.startswith(said) for note in found.notes)
        assert found.parameters == models.from_hugging_face(config).parameters


TABLES = {
    "engine/cost_models/calibrated/fields.py",
    "engine/cost_models/calibrated/physics/formats.py",
    "engine/measure/samples.py",
    "engine/questions/documents/post_training.py",
    "engine/launch/serving_engines/words.py",
    "engine/serving/constants.py",
    "engine/validation/serving/operations.py",
}
"""Files that list datatypes: formats of tokens on their way to experts, the plain formats of the fitted rates, those
that kernels are measured in, for training and for serving, words of serving engines for caches, and formats in which
reinforcement learning generates."""


def test_no_other_file_has_a_table_of_datatypes() -> None:
    root = Path(__file__).parents[2]
    narrow = {each.name for each in datatypes.REGISTER if each.bits < 16}
    found = set()
    for room in ("engine", "dashboard", "hardware", "models"):
        for file in (root / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Dict | ast.Set | ast.List | ast.Tuple):
                    continue
                values = node.keys if isinstance(node, ast.Dict) else node.elts
                listed = {each.value for each in values if isinstance(each, ast.Constant)} & set(datatypes.names())
                if len(listed) > 1 and listed & narrow:
                    found.add(file.relative_to(root).as_posix())
    register = {name for name in found if name.startswith("models/datatypes/")}
    assert found - register == TABLES
