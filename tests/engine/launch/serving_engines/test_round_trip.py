"""A deployment that is written and read back is itself, or its configuration names the fields that it does not say."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import launch
from engine.launch import ENGINES, TARGETS, LaunchError
from engine.serving.deployments import expert_layout

WAYS = [(to, engine) for to in TARGETS for engine in ENGINES if to not in ENGINES or to == engine]
MODELS = {"gpt-oss-120B": True, "llama-3.3-70B": False}
CHOICES = list(itertools.product((16, 8, 4), (16, 8, 4), ("eager", "compiled", "graphs")))
NUMBERS = ("chunk", "max_length", "memory_fraction", "mtp_tokens", "prefix_cache", "lora_adapters", "lora_rank")


def layouts(model: str, gpus: int) -> list[dict[str, Any]]:
    """Return every layout of a model on some GPUs, with the other fields in turn."""
    sizes = [size for size in range(1, gpus + 1) if gpus % size == 0]
    degrees = [
        (tensor, pipeline, expert, gpus // tensor // pipeline)
        for tensor, pipeline in itertools.product(sizes, sizes)
        if gpus % (tensor * pipeline) == 0
        for expert in (sizes if MODELS[model] else [1])
        if expert_layout(tensor, expert, gpus // tensor // pipeline)
    ]
    found = []
    for number, (tensor, pipeline, expert, replicas) in enumerate(degrees):
        weight, cache, how = CHOICES[number % len(CHOICES)]
        fields = {"tensor_par": tensor, "pipeline_par": pipeline, "expert_par": expert, "replicas": replicas}
        chosen = {"batch": 3 * number + 1, "weight_bits": weight, "kv_bits": cache, "launch": how}
        found.append({**fields, **chosen, "prompt": 1000, "output": 200})
    return found


def read_back(made: launch.Written, gpus: int | None) -> launch.EngineReading:
    text = "\n---\n".join(each.text for each in made.files)
    return launch.read_engine_text(text, made.files[0].name, gpus=gpus)


def check_same(deployment: dict[str, Any], model: str, to: str, engine: str, **more: Any) -> bool:
    """Return whether the engine can say a deployment; what it says must be what is read back."""
    try:
        made = launch.write_deployment(deployment, model, to=to, engine=engine, **more)
    except LaunchError:
        return False
    gpus = deployment["tensor_par"] * deployment["pipeline_par"] * deployment["replicas"]
    found = read_back(made, gpus if to in ENGINES else None)
    assert found.deployment == {name: value for name, value in deployment.items() if name not in made.unsaid}
    assert bool(made.not_expressible) == bool(made.unsaid)
    assert found.engine == engine
    assert found.gpus == gpus
    assert not found.unread
    assert not found.not_modelled
    assert found.rejected_by_us is None
    return True


@pytest.mark.parametrize(("to", "engine"), WAYS)
def test_every_deployment_of_eight_gpus_comes_back(to: str, engine: str) -> None:
    said = {model: [check_same(each, model, to, engine) for each in layouts(model, 8)] for model in MODELS}
    assert all(said["llama-3.3-70B"])  # replicas of a dense model: every engine has words for them
    # vLLM has no degree of expert parallelism of its own; TensorRT-LLM no replicas of several ranks that share experts.
    assert all(said["gpt-oss-120B"]) == (engine == "sglang")
    assert sum(said["gpt-oss-120B"]) > len(said["gpt-oss-120B"]) / 2


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_deployments_of_many_gpus_and_settings_come_back(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(list(MODELS)))
    deployment = dict(data.draw(st.sampled_from(layouts(model, data.draw(st.sampled_from((16, 64, 72)))))))
    to, engine = data.draw(st.sampled_from(WAYS))
    own = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "chunk": st.integers(1, 10**6),
                "max_length": st.integers(1, 10**6),
                "memory_fraction": st.sampled_from((0.5, 0.85, 0.9)),
                "mtp_tokens": st.integers(1, 8),
                "prefix_cache": st.booleans(),
            },
        )
    )
    if data.draw(st.booleans()):
        own |= {"lora_adapters": data.draw(st.integers(1, 64)), "lora_rank": data.draw(st.sampled_from((8, 16, 256)))}
    size = data.draw(st.sampled_from((4, 8)))
    try:
        made = launch.write_deployment(deployment, model, to=to, engine=engine, settings=own, gpus_per_node=size)
    except LaunchError:
        return
    gpus = deployment["tensor_par"] * deployment["pipeline_par"] * deployment["replicas"]
    found = read_back(made, gpus if to in ENGINES else None)
    assert found.deployment == {name: value for name, value in deployment.items() if name not in made.unsaid}
    said = {name: getattr(found, name) for name in NUMBERS if getattr(found, name) is not None}
    assert said == {"prefix_cache": True, **own}


@pytest.mark.parametrize(("to", "engine"), WAYS)
def test_two_pools_come_back(to: str, engine: str) -> None:
    prefill = {"tensor_par": 2, "pipeline_par": 1, "expert_par": 1, "replicas": 3, "batch": 8, "kv_bits": 8}
    decode = {"tensor_par": 4, "pipeline_par": 1, "expert_par": 1, "replicas": 1, "batch": 64, "kv_bits": 8}
    how = {"weight_bits": 16, "launch": "graphs"}
    made = launch.write_deployment({**decode, **how}, "llama-3.3-70B", to=to, engine=engine, prefill={**prefill, **how})
    if to in ENGINES:
        assert [each.name for each in made.files] == ["prefill.sh", "decode.sh"]
        text = "\n".join(each.text for each in made.files)
        found = launch.read_engine_text(text, "both.sh")
    else:
        found = read_back(made, None)
    assert found.pools is not None
    expected = {"prefill": {**prefill, **how}, "decode": {**decode, **how}}
    for role, fields in expected.items():
        pool = {name: value for name, value in fields.items() if name not in made.unsaid}
        assert pool.items() <= found.pools[role].items()


@given(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40), st.sampled_from(WAYS))
@settings(max_examples=60, deadline=None)
def test_no_name_of_a_checkpoint_breaks_a_file(name: str, way: tuple[str, str]) -> None:
    to, engine = way
    deployment = layouts("llama-3.3-70B", 8)[0] | {"batch": 4}
    try:
        made = launch.write_deployment(deployment, "llama-3.3-70B", to=to, engine=engine, checkpoint=f"a/{name}'$(x)`")
    except LaunchError:
        return
    found = read_back(made, 8 if to in ENGINES else None)
    assert found.deployment is not None
    assert found.deployment["tensor_par"] == deployment["tensor_par"]
    if found.model and name.isascii():
        assert found.model == f"a/{name}'$(x)`"


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        ({"tensor_par": None}, {}, "does not say tensor_par"),
        ({"tensor_par": 6}, {}, "must divide the 64 query heads"),
        ({"expert_par": 2}, {}, "has no experts"),
        ({"replicas": 0}, {}, "a whole number from 1"),
        ({"kv_bits": 5}, {}, "it must be 16, 8 or 4"),
        ({"launch": "lazy"}, {}, "one of eager, compiled, graphs"),
        ({}, {"to": "kubernetis"}, "did you mean 'kubernetes'"),
        ({}, {"to": "dynamo", "engine": "vlm"}, "did you mean 'vllm'"),
        ({}, {"engine": "sglang"}, "leave the engine out"),
        ({}, {"settings": {"chunks": 4}}, "did you mean 'chunk'"),
        ({}, {"settings": {"memory_fraction": 90}}, "a share above 0"),
        ({}, {"checkpoint": "--help"}, "give a repository"),
        ({}, {"gpus_per_node": 0}, "gpus_per_node"),
    ],
)
def test_an_impossible_deployment_is_one_sentence(changes: dict[str, Any], options: dict[str, Any], told: str) -> None:
    deployment = {**layouts("llama-3.3-70B", 8)[0], **changes}
    with pytest.raises(LaunchError, match=told):
        launch.write_deployment(deployment, "llama-3.3-70B", **{"to": "vllm", **options})
