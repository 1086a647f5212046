"""A scenario may try 2,000 batch sizes, whichever door it comes through: each is a cell of the space of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

import engine
from dashboard.link import document_validation
from engine.questions import Bounds, QuestionError, answer
from engine.questions.bounds import Context

SMALL: dict[str, Any] = {
    "format": "shardscape-scenario/1",
    "model": "megatron-126M",
    "system": "a100_80g",
    "num_procs": 1,
    "max_batch_size": 5_000,
    "datatype": "float16",
}
REFUSED = "The limits ask for 2,001 batch sizes; up to 2,000 can be tried"


@pytest.mark.parametrize("number", [2_000, 2_001])
@pytest.mark.parametrize("way", ["range", "open range", "list"])
def test_up_to_two_thousand_batch_sizes_are_tried(way: str, number: int) -> None:
    batches: Any = {
        "range": {"min": 7, "max": 6 + number},
        "open range": {"min": 5_001 - number},
        "list": [*range(1, number + 1)],
    }[way]
    limits: dict[str, Any] = {"batch_size": batches, "microbatch_size": 1, "activation_recompute": "none"}
    document = {**SMALL, "limits": limits}
    # Spaces are bounded as well: what gets as far as that has passed the bound of batch sizes.
    bounds = Context(Bounds(largest_space=1))
    with pytest.raises(QuestionError) as refused:
        answer("best", {"scenario": document}, bounds)
    scenario = engine.Scenario.from_document(json.loads(json.dumps(document)))
    if number > 2_000:
        assert str(refused.value).startswith(REFUSED)
        with pytest.raises(document_validation.Refused, match=REFUSED):
            document_validation.checked(scenario)
    else:
        assert str(refused.value).startswith("The space has ")
        assert document_validation.checked(scenario) == scenario
        assert len({cell.batch_size for cell in scenario.space.cells}) == number
