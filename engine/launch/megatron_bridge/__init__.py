"""Megatron-Bridge, NeMo's way to train with Megatron-Core."""

from engine.launch.megatron_bridge.framework import MEGATRON_BRIDGE

__all__ = ["MEGATRON_BRIDGE"]
