"""Calibrations as documents: what they hold, and a sentence for whatever is wrong."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import hardware

DOCUMENT: dict[str, Any] = {
    "format": "shardscape-calibration/1",
    "name": "lab",
    "title": "Our cluster, November",
    "system": "h100_80g_sxm@200g",
    "fitted_on": "40 runs of Llama 3 8B and 70B, half of them held out",
    "date": "2026-11-20",
    "errors": [
        {"rows": 20, "described": "step time", "held_out": True, "mean_absolute_percent": 4.2, "bias_percent": -1.0}
    ],
    "parameters": {
        "sustained_bfloat16": {
            "value": 641,
            "unit": "TFLOP/s",
            "kind": "fitted",
            "source": "the 20 fitted runs",
            "low": 620,
            "high": 660,
        },
        "launch": {"value": 2.7e-5, "unit": "s", "kind": "stated", "source": "the shipped calibration"},
    },
    "derived_from": "global",
}


def changed(path: str, value: object) -> dict[str, Any]:
    document: Any = copy.deepcopy(DOCUMENT)
    place = document
    *parents, last = path.split(".")
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return dict(document)


def test_a_calibration_round_trips(tmp_path: Path) -> None:
    calibration = hardware.load_calibration_document(DOCUMENT)
    assert calibration.parameters["sustained_bfloat16"].value == 641
    assert calibration.errors[0].held_out
    file = tmp_path / "lab.json"
    file.write_text(json.dumps(hardware.calibration_document(calibration)))
    assert hardware.load_calibration(file) == calibration
    assert pickle.loads(pickle.dumps(calibration)) == calibration
    assert len({calibration, hardware.load_calibration(file)}) == 1


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "shardscape-system/1", "it must be 'shardscape-calibration/1' for a calibration"),
        ("format", "shardscape-calibration/2", "written by a newer Shardscape"),
        ("date", "yesterday", "'date' is 'yesterday'; it must be a day such as 2026-11-20"),
        ("fitted_on", ..., "key 'fitted_on' is missing"),
        ("parameters", {}, "'parameters' has no parameter"),
        ("parameters.launch.kind", "guessed", "it must be 'fitted', 'measured' or 'stated'"),
        ("parameters.launch.value", float("nan"), "'parameters.launch.value' is nan"),
        ("parameters.launch.value", "fast", "'parameters.launch.value' is 'fast'"),
        ("parameters.launch.source", "", "it must be text of 1 to"),
        ("parameters.sustained_bfloat16.low", 650, "has value 641 outside its range from 650 to 660"),
        ("errors.0.rows", 0, "'errors[0].rows' is 0"),
        ("errors.0.mean_absolute_percent", -1, "'errors[0].mean_absolute_percent' is -1"),
        ("fit", 1, "unknown key 'fit'; did you mean 'fitted_on'"),
    ],
)
def test_each_fault_gets_its_sentence(path: str, value: object, words: str) -> None:
    with pytest.raises(hardware.CalibrationFileError) as caught:
        hardware.load_calibration_document(changed(path, value), "lab.json")
    message = str(caught.value)
    assert message.startswith("lab.json")
    assert words in message
    assert message.endswith(".")


@pytest.mark.parametrize("value", [None, 5, [], "text"])
def test_a_document_that_is_no_object(value: object) -> None:
    with pytest.raises(hardware.CalibrationFileError, match="a calibration must be an object"):
        hardware.load_calibration_document(value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(hardware.CalibrationFileError, match="There is no file"):
        hardware.load_calibration(tmp_path / "none.json")


def test_the_library_is_listed_and_loaded_by_name() -> None:
    assert hardware.calibration_names() == ["global"]
    assert hardware.calibration_names("serving") == ["serving"]
    found = hardware.load_calibration("global")
    assert (found.name, found.system) == ("global", "")
    assert {value.kind for value in found.parameters.values()} == {"fitted", "stated"}
    assert found.fitted_on
    assert all(error.held_out and error.rows > 0 for error in found.errors)
    assert found is hardware.load_calibration("global")
    assert hardware.load_calibration_document(hardware.calibration_document(found)) == found


def test_an_unknown_name_gets_a_near_one() -> None:
    with pytest.raises(hardware.CalibrationFileError, match=r"no calibration named 'globl'.*did you mean 'global'"):
        hardware.load_calibration("globl")


def test_errors_by_accelerator_name_accelerators_of_the_library() -> None:
    makers = {system.accelerator.name for name in hardware.names() if (system := hardware.load(name)).accelerator}
    named = [error.accelerator for error in hardware.load_calibration("global").errors if error.accelerator]
    assert len(named) == len(set(named)) >= 8
    assert set(named) <= makers


def test_fitted_values_lie_in_the_range_of_the_halves() -> None:
    for value in hardware.load_calibration("global").parameters.values():
        if value.kind == "fitted":
            assert value.low is not None
            assert value.high is not None
            assert value.low < value.high
