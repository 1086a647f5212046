"""What limits may say, and the one sentence that refuses what they may not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from engine import LimitError
from engine.columns import ALL_FIELDS, FIELDS, Column
from engine.executions.limits import normalise as normalise_of
from engine.executions.limits import permits
from models.documents import shown

DEEP: Any = []
for _ in range(50_000):
    DEEP = [DEEP]

WHOLE = "it is a whole number from 1 to 2,147,483,647."
TENSOR = "Tensor parallel (tensor_par)"
NEAR = "did you mean 'tensor_par' or 'tensor_par_comm_type' or 'tensor_par_net'"
ACCEPTED = ", ".join(sorted({column.name for column in FIELDS} - {"num_procs", "datatype"} | {"uneven_pipelines"}))


def normalise(limits: Any) -> dict[str, Any]:
    return normalise_of(limits, "calculon")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ([], "Limits must map field names to values, not be list."),
        ("tensor_par=1", "Limits must map field names to values, not be str."),
        ({"tensor_pa": 1}, f"There is no limit on 'tensor_pa'; {NEAR}; limits can be set on {ACCEPTED}."),
        ({"zzz": 1}, f"There is no limit on 'zzz'; limits can be set on {ACCEPTED}."),
        ({"num_procs": 8}, "GPUs (num_procs) cannot be limited; it is chosen for the whole scenario."),
        ({"datatype": "float16"}, "Datatype (datatype) cannot be limited; it is chosen for the whole scenario."),
        (
            {"sample_rate": {"min": 1}},
            f"Throughput (sample_rate) cannot be limited, because it is a result; limits can be set on {ACCEPTED}.",
        ),
        (
            {"expert_par": 2},
            "Expert parallel (expert_par) cannot be limited here; only the calibrated cost model knows it.",
        ),
        ({3: 1}, f"There is no limit on 3; limits can be set on {ACCEPTED}."),
        ({None: 1}, f"There is no limit on null; limits can be set on {ACCEPTED}."),
        ({"uneven_pipelines": 1}, "Uneven pipelines (uneven_pipelines) is 1; it must be true or false."),
        ({"uneven_pipelines": None}, "Uneven pipelines (uneven_pipelines) is null; it must be true or false."),
        ({"tensor_par": []}, f"{TENSOR} is limited to an empty list; leave it out to allow everything."),
        ({"tensor_par": set()}, f"{TENSOR} is limited to an empty list; leave it out to allow everything."),
        ({"tensor_par": {}}, f"{TENSOR} cannot be limited to {{}}; a range has min, max or both, for a number."),
        (
            {"tensor_par": {"from": 1}},
            f"{TENSOR} cannot be limited to {{'from': 1}}; a range has min, max or both, for a number.",
        ),
        (
            {"training": {"min": 0}},
            "Training (training) cannot be limited to {'min': 0}; a range has min, max or both, for a number.",
        ),
        ({"tensor_par": {"min": 4, "max": 2}}, f"{TENSOR} is limited from 4 to 2; min must not exceed max."),
        ({"tensor_par": 2.0}, f"{TENSOR} cannot be 2.0; {WHOLE}"),
        ({"tensor_par": True}, f"{TENSOR} cannot be true; {WHOLE}"),
        ({"tensor_par": -1}, f"{TENSOR} cannot be -1; {WHOLE}"),
        ({"tensor_par": 2**31}, f"{TENSOR} cannot be 2147483648; {WHOLE}"),
        ({"tensor_par": "2"}, f"{TENSOR} cannot be '2'; {WHOLE}"),
        ({"tensor_par": [1, None]}, f"{TENSOR} cannot be null; {WHOLE}"),
        ({"tensor_par": {"min": "1"}}, f"{TENSOR} cannot be '1'; {WHOLE}"),
        ({"tensor_par": {"max": float("inf")}}, f"{TENSOR} cannot be inf; {WHOLE}"),
        ({"training": 1}, "Training (training) cannot be 1; it is true or false."),
        ({"training": "yes"}, "Training (training) cannot be 'yes'; it is true or false."),
        ({"training": [True, "false"]}, "Training (training) cannot be 'false'; it is true or false."),
        (
            {"activation_recompute": "half"},
            "Recompute (activation_recompute) cannot be 'half'; it is one of full, attn_only, none.",
        ),
        (
            {"activation_recompute": [["full"]]},
            "Recompute (activation_recompute) cannot be ['full']; it is one of full, attn_only, none.",
        ),
        ({"training": None, "x": None}, f"There is no limit on 'x'; limits can be set on {ACCEPTED}."),
    ],
    ids=lambda value: shown(value) if not isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_in_a_sentence(limits: Any, message: str) -> None:
    with pytest.raises(LimitError) as refusal:
        normalise(limits)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "value",
    [10**5000, DEEP, "x" * 10**6, np.array(["none"]), object(), b"none", 1e400, (DEEP,)],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("name", ["tensor_par", "training", "tensor_par_overlap", "uneven_pipelines"])
def test_rubbish_is_refused_briefly(name: str, value: Any) -> None:
    for limit in (value, [value], {"min": value}, {value if isinstance(value, str) else "max": value}):
        with pytest.raises(LimitError, match=r"^[^\n]{10,400}\.$"):
            normalise({name: limit})
    with pytest.raises(LimitError, match=r"^[^\n]{10,900}\.$"):
        normalise({shown(value) * 2: 1})


@pytest.mark.parametrize("column", [each for each in ALL_FIELDS if not each.of_scenario], ids=lambda each: each.name)
def test_every_limit_refuses_every_value_that_its_field_cannot_have(column: Column) -> None:
    ends = {"bool": (True, False), "int64": (column.least, 2**31 - 1)}
    right = column.choices or column.numbers or ends[column.dtype]
    wrong: list[Any] = [-1, -(2**63), 2**31, 1.5, 2.0, None, "", "nothing", [1], {}, float("nan"), float("inf")]
    wrong += [True, False] if column.dtype != "bool" else [0, 1]
    wrong += [column.least - 1, *([4] if column.numbers else [])] if column.dtype == "int64" else []
    for value in wrong:
        alone = [value] if value not in ({}, [1], None) else []
        for limit in ([value], [right[0], value], [value, right[-1]], *alone):
            with pytest.raises(LimitError):
                normalise_of({column.name: limit}, "calibrated")
        if column.dtype == "int64" and (value, type(value)) != (0, int):  # 0 is how an open end is written
            for end in ("min", "max"):
                with pytest.raises(LimitError):
                    normalise_of({column.name: {end: value}}, "calibrated")
    assert normalise_of({column.name: list(right)}, "calibrated") == {column.name: sorted(right)}
    if column.dtype == "int64":
        every = {"min": 0, "max": 2**31 - 1}
        assert normalise_of({column.name: every}, "calibrated") == {column.name: every}


def test_equal_limits_become_equal() -> None:
    one = {
        "tensor_par": [4, 1, 2, 2],
        "training": True,
        "activation_recompute": ("none", "full"),
        "pipeline_par": {"max": 8},
        "uneven_pipelines": False,
        "data_par": None,
    }
    other = {
        "pipeline_par": {"min": 0, "max": 8},
        "activation_recompute": {"full", "none"},
        "training": [True],
        "tensor_par": np.array([1, 2, 4], np.int8).tolist(),
    }
    assert normalise(one) == normalise(other)
    assert json.dumps(normalise(one)) == json.dumps(normalise(other))
    assert normalise(normalise(one)) == normalise(one)
    assert normalise({"tensor_par": np.int64(3), "training": np.bool_(True)}) == {"tensor_par": [3], "training": [True]}
    assert normalise({"uneven_pipelines": np.bool_(True)}) == {"uneven_pipelines": True}
    assert normalise(None) == normalise({}) == {}
    assert list(normalise({"training": True, "data_par": 1})) == ["data_par", "training"]


def test_permitted_values() -> None:
    limits = normalise({"tensor_par": [1, 4], "pipeline_par": {"min": 2, "max": 8}, "training": False})
    assert [value for value in range(10) if permits(limits, "tensor_par")(value)] == [1, 4]
    assert [value for value in range(10) if permits(limits, "pipeline_par")(value)] == list(range(2, 9))
    assert [value for value in (True, False) if permits(limits, "training")(value)] == [False]
    assert all(permits(limits, "data_par")(value) for value in range(10))
