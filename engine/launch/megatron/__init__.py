"""Megatron-LM, and the arguments of Megatron-Core that others state by names of their own."""

from engine.launch.megatron.framework import MEGATRON

__all__ = ["MEGATRON"]
