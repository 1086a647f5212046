"""Megatron-LM, and the arguments of Megatron-Core that others state by names of their own."""

from engine.launch.megatron.framework import MEGATRON
from engine.launch.megatron.printed import read_printed

__all__ = ["MEGATRON", "read_printed"]
