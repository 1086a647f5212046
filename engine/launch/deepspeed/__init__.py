"""DeepSpeed: its JSON, which is one half of a configuration; the other half is the training code."""

from engine.launch.deepspeed.framework import DEEPSPEED

__all__ = ["DEEPSPEED"]
