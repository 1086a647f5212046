"""Scenarios as documents: whole, comparable by content, and safe to read from anybody."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardware
import models
from engine import LimitError, Scenario, ScenarioError, SpaceError
from tests.engine.small_spaces import draw

ASKED: dict[str, Any] = {"num_procs": 8, "max_batch_size": 16, "datatype": "float16"}
LIMITS: dict[str, Any] = {"tensor_par": [1, 2], "pipeline_par": {"max": 4}, "uneven_pipelines": True}


def scenario(**changes: Any) -> Scenario:
    asked = {"model": "gpt3-13B", "system": "h100_80g_nvl8", **ASKED, "limits": LIMITS} | changes
    return Scenario.of(asked.pop("model"), asked.pop("system"), **asked)


@given(random=st.randoms(use_true_random=False))
def test_documents_bring_back_the_scenario(random: Random) -> None:
    drawn = draw(random, largest=50_000).scenario
    document = json.loads(json.dumps(drawn.to_document(), allow_nan=False))
    again = Scenario.from_document(document)
    assert again == drawn
    assert (again.key, hash(again)) == (drawn.key, hash(drawn))
    assert again.space.total == drawn.space.total
    assert again.to_document() == drawn.to_document()


@pytest.mark.parametrize("system", ["a100_80g", *[name for name in hardware.names() if "nvl72" in name.lower()][:1]])
def test_library_entries_stay_whole_in_documents(system: str) -> None:
    for name in models.plain_names()[::4]:
        one = scenario(model=name, system=system)
        again = Scenario.from_document(json.loads(json.dumps(one.to_document())))
        assert again.model == models.load(name)
        assert again.system == hardware.load(system)


def test_the_key_is_the_same_in_every_process_and_version() -> None:
    """Stored explorations are found by it: where it changes on purpose, so does `CostModel.version`."""
    assert scenario().key == "074ed6b9d96b310edf0019b5a5aee932"


def test_the_key_depends_on_nothing_but_content() -> None:
    model, system = models.load("gpt3-13B"), hardware.load("h100_80g_nvl8")
    renamed = {"name": "x", "title": "X", "source": "y"}
    same = [
        scenario(model=model.model_copy(update={**renamed, "family": "z", "notes": ("n",)})),
        scenario(system=system.model_copy(update={**renamed, "notes": ("n",)})),
        scenario(num_procs=np.int64(8), max_batch_size=np.int32(16)),
        scenario(limits={"uneven_pipelines": True, "pipeline_par": {"min": 0, "max": 4}, "tensor_par": (2, 1, 1)}),
        scenario(model=models.load_document(models.to_calculon(model), "plain")),
        scenario(system=hardware.load_document(hardware.to_calculon(system), "plain")),
    ]
    assert {each.key for each in same} == {scenario().key}


def test_the_key_depends_on_everything_in_it() -> None:
    model, system = models.to_calculon(models.load("gpt3-13B")), hardware.to_calculon(hardware.load("h100_80g_nvl8"))
    keys = [scenario().key]
    keys += [scenario(model=models.load_document({**model, name: model[name] * 2}, "m")).key for name in model]
    for path in paths(system):
        changed = copy.deepcopy(system)
        place = changed
        for step in path[:-1]:
            place = place[step]
        value = place[path[-1]]
        if isinstance(value, str):
            value = "no_overlap" if value == "roofline" else "roofline"
        elif isinstance(value, bool):
            value = not value
        elif value is None:
            value = 1.0
        else:
            value = value * 0.5 if path[-1] != "size" and value else value + 1
        place[path[-1]] = value
        try:
            keys.append(scenario(system=hardware.load_document(changed, "s")).key)
        except hardware.SystemFileError:  # not every value may be changed by itself
            continue
    assert len(keys) > 60
    keys += [scenario(num_procs=16).key, scenario(max_batch_size=8).key, scenario(datatype="float8").key]
    keys += [scenario(limits=limits).key for limits in (None, {"tensor_par": 1}, {"tensor_par": {"max": 2}})]
    assert len(set(keys)) == len(keys)


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the scalars of a document are."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path for key, inner in items for path in paths(inner, (*before, key))]
    return found if isinstance(value, dict | list) else [before]


def deep(levels: int) -> Any:
    nested: Any = 1
    for number in range(levels):
        nested = [nested] if number % 2 else {"a": nested}
    return nested


FORMAT = "it must be 'shardscape-scenario/1' for a scenario."
KEYS = (
    "its keys are format, model, system, num_procs, max_batch_size, datatype, limits, cost_model, calibration, "
    "attention, framework, adapter_rank, adapter_targets, frozen_weight_bits, loss_chunk, sample_lengths."
)
SIZE = "it must be a whole number from 1 to 2,147,483,647."
RANGE = "a range has min, max or both, for a number."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "shardscape-scenario/2"},
            " is in scenario format 2, written by a newer Shardscape; this one reads format 1.",
        ),
        ({"format": None}, f": 'format' is null; {FORMAT}"),
        ({"format": "shardscape-model/1"}, f": 'format' is 'shardscape-model/1'; {FORMAT}"),
        ({"format": deep(9)}, f": 'format' is {{'a': [{{...}}]}}; {FORMAT}"),
        ({"procs": 8}, f" has unknown key 'procs'; {KEYS}"),
        ({str(n): n for n in range(9)}, f" has unknown keys '0', '1', '2' and 6 more; {KEYS}"),
        ({"num_procs": 0}, f": The number of GPUs (num_procs) is 0; {SIZE}"),
        ({"num_procs": "8"}, f": The number of GPUs (num_procs) is '8'; {SIZE}"),
        ({"max_batch_size": 1e3}, f": The largest batch (max_batch_size) is 1000.0; {SIZE}"),
        ({"max_batch_size": None}, f": The largest batch (max_batch_size) is null; {SIZE}"),
        ({"datatype": ["float16"]}, ": The datatype is ['float16']; it must be a text such as float16."),
        ({"limits": []}, ": Limits must map field names to values, not be list."),
        (
            {"limits": {"tensor_par": deep(5)}},
            f": Tensor parallel (tensor_par) cannot be limited to {{'a': [{{...}}]}}; {RANGE}",
        ),
        (
            {"limits": {"tensor_par": "2"}},
            ": Tensor parallel (tensor_par) cannot be '2'; it is a whole number from 1 to 2,147,483,647.",
        ),
    ],
    ids=str,
)
def test_faults_of_a_document_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        Scenario.from_document({**scenario().to_document(), **changes}, "the file")
    assert str(refusal.value) == f"the file{message}"


@pytest.mark.parametrize("document", [None, 3, "text", [], [1], ScenarioError], ids=repr)
def test_anything_but_an_object_is_refused(document: Any) -> None:
    with pytest.raises(ScenarioError, match=r"^the file must be a JSON object, not \w+\.$"):
        Scenario.from_document(document, "the file")


@pytest.mark.parametrize("key", ["model", "system", "num_procs", "max_batch_size", "datatype", "limits"])
def test_missing_keys_are_named(key: str) -> None:
    document = scenario().to_document()
    del document[key]
    with pytest.raises(ScenarioError, match=rf"^the scenario has no {key}; its keys are .*\.$"):
        Scenario.from_document(document)


RUBBISH: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**400,
    10**5000,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 10**5,
    "\ud800",
    "\n\n",
    [],
    {},
    [[]],
    {"": {}},
    deep(50),
    deep(40_000),
    [1] * 10_000,
    {str(n): n for n in range(3000)},
]


@settings(max_examples=6 * settings.default.max_examples)
@given(data=st.data())
def test_hostile_documents_raise_what_is_documented(data: st.DataObject) -> None:
    """One or two places of a good document are replaced by rubbish; whatever it says then, it says in a sentence."""
    document = scenario(limits={**LIMITS, "training": True}).to_document()
    places = st.sampled_from(paths(document))
    for whole in data.draw(st.lists(places, min_size=1, max_size=2)):
        path = whole[: data.draw(st.integers(1, len(whole)))]
        rubbish, add = data.draw(st.sampled_from(RUBBISH)), data.draw(st.integers(0, 4)) == 0
        place: Any = document
        with suppress(LookupError, TypeError):  # the way there is rubbish by now
            for step in path[:-1]:
                place = place[step]
            place["added" if add else path[-1]] = copy.copy(rubbish)
    try:
        read = Scenario.from_document(document, "the file")
    except (ScenarioError, models.ModelFileError, hardware.SystemFileError) as refusal:
        text = str(refusal)
    else:
        assert len(read.key) == 32
        try:
            assert read.space.total >= 0
            return
        except (SpaceError, LimitError, models.ModelFileError) as refusal:
            text = str(refusal)
    assert len(text) < 1500
    assert text.endswith(".")
    assert "\n" not in text


def test_a_model_without_block_numbers_is_refused_by_name() -> None:
    name = next(name for name in models.plain_names() if models.load(name).block is None)
    one = scenario(model=name)
    for ask in (lambda: one.key, lambda: one.space):
        with pytest.raises(models.ModelFileError):
            ask()
