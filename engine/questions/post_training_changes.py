"""Single changes of a question about reinforcement learning, and the step of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.post_training.search import ModeStep, PostTrainingGoal, PostTrainingPlan, find_post_training, split_unit
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.verb import QuestionError

__all__ = ["AskedChange", "find_changes", "list_changes"]

LARGEST_TENSOR_PAR: Final = 64
"""Largest tensor-parallel degree of a rollout replica that is tried."""
STEADIER: Final = 0.5
"""Factor on the spread of lengths. Source: stated by us."""
GoalOf = Callable[[PostTrainingQuestion], PostTrainingGoal]


@dataclass(frozen=True, slots=True)
class AskedChange:
    """One change: in words, and new values of fields by their path, such as "rollout.datatype"."""

    words: str
    fields: Mapping[str, Any]

    def applied(self, asked: PostTrainingQuestion) -> PostTrainingQuestion:
        """Return the question with the change.

        Args:
            asked: the question.

        Raises `ValueError` where a value is out of range.
        """
        document = asked.model_dump()
        for path, value in self.fields.items():
            *outer, name = path.split(".")
            place = document
            for each in outer:
                place = place[each]
            place[name] = value
        return type(asked).model_validate(document)


def list_changes(asked: PostTrainingQuestion, best: ModeStep, unit: int, staleness: int) -> list[AskedChange]:
    """Return the changes that the mode of a step allows.

    Args:
        asked: the question.
        best: fastest step.
        unit: GPUs that move from one side to the other together.
        staleness: steps that a sample may be old in asynchronous mode.
    """
    mode, degree = best.step.mode, int(best.deployment["tensor_par"])
    slots = asked.rollout.max_sequences
    found = [
        AskedChange(f"Rollout with TP {other}", {"rollout.tensor_par": [other]})
        for other in (degree // 2, degree * 2)
        if 1 <= other <= min(LARGEST_TENSOR_PAR, best.gpus_rollout)
    ]
    if asked.rollout.datatype != "float8":
        found.append(AskedChange("Rollout weights of 8 bits", {"rollout.datatype": "float8"}))
    found += [
        AskedChange(f"At most {other:,} requests at once", {"rollout.max_sequences": other})
        for other in (slots // 2, slots * 2)
        if other >= 1
    ]
    if asked.response.lengths is None and asked.response.cv > 0:
        cv = round(asked.response.cv * STEADIER, 4)
        found.append(AskedChange(f"Spread of lengths {cv:g}", {"response.cv": cv}))
    if mode == "asynchronous":
        own = staleness
        found += [
            AskedChange(f"Samples up to {other:,} steps old", {"mode": mode, "staleness": other})
            for other in (own // 2, own * 2)
            if other >= 1
        ]
    if mode != "colocated":
        for step, words in ((unit, "generate that train"), (-unit, "train that generate")):
            split = [best.gpus_train - step, best.gpus_rollout + step]
            if min(split) > 0:
                moved = f"{unit:,} {'GPU' if unit == 1 else 'GPUs'} {words} now"
                found.append(AskedChange(f"Let {moved}", {"mode": mode, "split": split}))
        if not asked.helping:
            found.append(AskedChange("Training GPUs help to generate", {"helping": True}))
    return found


def find_changes(
    asked: PostTrainingQuestion, plan: PostTrainingPlan, goal_of: GoalOf, cancel: Callable[[], bool]
) -> list[dict[str, Any]]:
    """Return the step of each change in the fastest mode and, unless GPUs move, at its split; the fastest first.

    Args:
        asked: the question.
        plan: its answer.
        goal_of: returns the goal of a question.
        cancel: returns whether to stop.
    """
    best = plan.chosen
    if best is None:
        return []
    mode, rows = best.step.mode, []
    split = None if mode == "colocated" else (best.gpus_train, best.gpus_rollout)
    for change in list_changes(asked, best, split_unit(plan.goal.system), plan.goal.staleness):
        try:
            goal = goal_of(change.applied(asked))
        except QuestionError:
            continue  # such as a longer sum than the model has positions for
        goal = replace(goal, modes=(mode,), split=goal.split or split, software=plan.goal.software)
        found = find_post_training(goal, cancel=cancel, with_change=False).best.get(mode)
        seconds = None if found is None else found.step.seconds
        rows.append(
            {
                "change": change.words,
                "fields": dict(change.fields),
                "step_s": seconds,
                "ratio": None if seconds is None else seconds / best.step.seconds,
            }
        )
    return sorted(rows, key=lambda row: (row["step_s"] is None, row["step_s"] or 0.0))
