"""Comments at the top of files that start reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.launch.launchers import comment_text
from engine.launch.post_training.contract import RunOrder

__all__ = ["header_lines"]


def header_lines(
    title: str, version: str, order: RunOrder, lists: Mapping[str, Sequence[str]], start: str
) -> list[str]:
    """Return the lines of comment at the top of a file: the run, how to start it, and remarks.

    Args:
        title: name of the framework.
        version: of it.
        order: run that is written.
        lists: sentences by heading; empty ones are left out.
        start: how to start.
    """
    model = order.layout.model
    pools = (
        f"{order.gpus_train} shared GPUs"
        if order.is_colocated
        else f"{order.gpus_train} GPUs train, {order.gpus_rollout} generate"
    )
    method, network = str(order.settings["method"]).upper(), comment_text(model.title or model.name)
    lines = [
        f"{title} {version}: {method} of {network}, {pools}.",
        f"Start: {start}.",
    ]
    if order.note:
        lines.append(comment_text(order.note))
    for heading, sentences in lists.items():
        if sentences:
            lines += ["", f"{heading}:", *(f"- {comment_text(each)}" for each in sentences)]
    return [f"# {line}".rstrip() for line in lines]
