"""A replay as files of others: events for Chrome's trace viewer and Perfetto, and a schedule that torch loads.

Sources: DistIR (arXiv:2111.05426) for the events' shape; torch.distributed.pipelining, `_load_csv` and `_Action`, for
the names of actions: I is the gradient of the input there and B the whole backward.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final

from engine.simulate.replay import Replay
from engine.simulate.schedules.contract import BACKWARD, FORWARD, INPUT_GRADIENT, KINDS, WEIGHT_GRADIENT, Action, Entry

__all__ = ["chrome_trace", "chrome_trace_json", "torch_csv"]

_TORCH: Final = {FORWARD: "F", INPUT_GRADIENT: "I", WEIGHT_GRADIENT: "W", BACKWARD: "B"}


def chrome_trace(found: Replay) -> list[dict[str, Any]]:
    """Returns one complete event per action: `name`, `ph` "X", `ts` and `dur` [µs], `pid` 0, `tid` the rank.

    Args:
        found: a replayed schedule.
    """
    return [
        {
            "name": f"{task['kind']}{task['microbatch']}.{task['stage']}",
            "ph": "X",
            "ts": float(task["start"]) * 1e6,
            "dur": float(task["end"] - task["start"]) * 1e6,
            "pid": 0,
            "tid": int(task["rank"]),
        }
        for task in found.tasks.to_dict("records")
    ]


def chrome_trace_json(found: Replay) -> str:
    """Returns the events as text, for a file.

    Args:
        found: a replayed schedule.
    """
    return json.dumps(chrome_trace(found))


def torch_csv(found: Replay) -> str:
    """Returns the order as torch's `pipeline_parallel_schedule_csv` has it: a row per rank, an action per cell.

    Args:
        found: a replayed schedule.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for each in found.order.entries:
        writer.writerow([_format_entry(entry) for entry in each])
    return text.getvalue()


def _format_entry(entry: Entry) -> str:
    if len(entry) == 1:
        return _format_action(entry[0])
    return f"({';'.join(_format_action(each) for each in entry)})OVERLAP_F_B"


def _format_action(action: Action) -> str:
    kind, stage, microbatch = action
    return f"{stage}{_TORCH[kind]}{microbatch}"


assert len(KINDS) == len(_TORCH)
