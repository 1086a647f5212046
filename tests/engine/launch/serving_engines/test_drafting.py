"""Speculation of launch configurations: draft models of the library, their bits, accepted drafts, and what is open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine import launch, serving
from engine.launch import LaunchError
from engine.questions import answer
from engine.questions.documents.serving import DeploymentImportQuestion
from engine.questions.serving_launch import read_deployment, reading_document

MODEL, DRAFT, SYSTEM = "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", "h200_141g_sxm"
STATED = {"weight_bits": 8, "kv_bits": 8, "batch": 16, "prompt": 1024, "output": 256, "launch": "graphs"}
ROW = {"tensor_par": 4, "pipeline_par": 1, "expert_par": 1, "replicas": 1, **STATED}


def vllm(**speculation: Any) -> str:
    return f"vllm serve {MODEL} --tensor-parallel-size 4 --speculative-config '{json.dumps(speculation)}'"


def read(text: str, **stated: Any) -> dict[str, Any]:
    asked = DeploymentImportQuestion(text=text, name="serve.sh", stated={**STATED, **stated}, system=SYSTEM)
    return reading_document(read_deployment(asked), asked)


@pytest.mark.parametrize("engine", list(launch.ENGINES))
@pytest.mark.parametrize("bits", [16, 8])
def test_a_draft_model_of_the_library_is_read_with_its_bits_and_counts_once_its_acceptance_is_stated(
    engine: str, bits: int
) -> None:
    settings = {"draft_checkpoint": DRAFT, "draft_tokens": 3, "draft_bits": bits}
    made = launch.write_deployment(ROW, "llama-3.3-70B", to=engine, settings=settings)
    text = made.files[0].text
    # TensorRT-LLM has no word for the bits of a draft.
    said = 8 if bits == 8 and engine != "trtllm" else None
    assert any("the 8 bits of the draft model" in each for each in made.remarks) == (bits == 8 and said is None)
    left = read(text)
    expected = {"draft_tokens": 3, "draft_checkpoint": DRAFT, "draft_model": "llama-3.2-1B"}
    assert left["draft"] == expected | ({"draft_bits": 8} if said else {})
    (remark,) = [each for each in left["remarks"] if "Speculation" in each]
    assert remark.endswith("is in no figure: flags do not say how many drafts are accepted. State acceptance_rate.")
    plain = serving.evaluate("llama-3.3-70B", SYSTEM, {**ROW, "engine": engine}).iloc[0]
    assert left["figures"]["deployment"]["tokens_per_s"] == pytest.approx(plain["tokens_per_s"])
    stated = read(text, acceptance_rate=0.7)
    assert not [each for each in stated["remarks"] if "Speculation" in each]
    terms: dict[str, Any] = {"draft_tokens": 3, "acceptance_rate": 0.7, "draft_model": "llama-3.2-1B"}
    limits = {"tensor_par": 4, "replicas": 1, "weight_bits": 8, "kv_bits": 8, "batch": [16], "launch": "graphs"}
    found = answer(
        "find_deployments",
        {
            "model": "llama-3.3-70B",
            "system": SYSTEM,
            "num_procs": 4,
            "prompt": 1024,
            "output": 256,
            "limits": {**limits, "engine": engine},
            **terms,
            "draft_bits": said or 16,
        },
    )
    assert stated["figures"]["deployment"]["tokens_per_s"] == pytest.approx(found["best"]["tokens_per_s"])


@pytest.mark.parametrize(
    ("more", "accepted"),
    [
        ({"synthetic_acceptance_rate": 0.6}, 1.8),
        ({"synthetic_acceptance_rates": [0.9, 0.6, 0.5]}, 2.0),
        ({"synthetic_acceptance_length": 2.5}, 1.5),
    ],
)
def test_accepted_drafts_that_a_flag_imposes_are_read(more: dict[str, Any], accepted: float) -> None:
    drafted = {"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": "synthetic"}
    found = read(vllm(**drafted, **more))
    assert found["draft"] == {"draft_tokens": 3, "accepted_tokens": pytest.approx(accepted)}
    assert not [each for each in found["remarks"] if "Speculation" in each]
    plain = read(vllm(method="mtp", num_speculative_tokens=3))
    assert found["figures"]["deployment"]["tokens_per_s_per_user"] > (
        1.3 * plain["figures"]["deployment"]["tokens_per_s_per_user"]
    )


@pytest.mark.parametrize(
    ("speculation", "sentence"),
    [
        (
            {"method": "draft_model", "model": "a/draft", "num_speculative_tokens": 3},
            "the library has no such draft model. State acceptance_rate and draft_model.",
        ),
        (
            {"method": "eagle3", "model": "a/head", "num_speculative_tokens": 3},
            "its drafting layers are not modelled. State acceptance_rate and a draft_model like them.",
        ),
        ({"method": "ngram", "num_speculative_tokens": 3}, "no model drafts."),
        (
            {"method": "draft_model", "model": DRAFT},
            "flags do not say how many drafts are accepted. State draft_tokens and acceptance_rate.",
        ),
    ],
)
def test_one_sentence_says_what_is_open(speculation: dict[str, Any], sentence: str) -> None:
    found = read(vllm(**speculation))
    assert [each.partition(" is in no figure: ")[2] for each in found["remarks"] if "figure" in each] == [sentence]


def test_stated_values_complete_a_draft_and_bad_ones_get_a_sentence() -> None:
    text = vllm(method="eagle3", model="a/head", num_speculative_tokens=3)
    stated = {"acceptance_rate": 0.8, "draft_model": "llama-3.2-1B"}
    faster, plain = read(text, **stated), read(text)
    assert faster["figures"]["deployment"]["tokens_per_s"] > plain["figures"]["deployment"]["tokens_per_s"]
    with pytest.raises(LaunchError, match=r"acceptance_rate is 'much'; it must be a number"):
        read(text, **{**stated, "acceptance_rate": "much"})
    with pytest.raises(LaunchError, match=r"did you mean .acceptance_rate|There is no field"):
        read(text, acceptance=0.5)
    with pytest.raises(LaunchError, match="draft_bits is 6"):
        launch.write_deployment(
            ROW, "llama-3.3-70B", to="vllm", settings={"draft_checkpoint": DRAFT, "draft_tokens": 3, "draft_bits": 6}
        )
