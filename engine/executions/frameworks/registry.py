"""Rules of every framework that a scenario can ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.executions.frameworks.contract import FrameworkRules
from engine.executions.frameworks.deepspeed import DEEPSPEED
from engine.executions.frameworks.maxtext import MAXTEXT
from engine.executions.frameworks.megatron import MEGATRON, MEGATRON_BRIDGE
from engine.executions.frameworks.torchtitan import TORCHTITAN

__all__ = ["ANY", "FRAMEWORK_RULES", "FRAMEWORK_WORDS"]

ANY: Final = "any"
"""Word for executions of any framework."""
FRAMEWORK_RULES: Final[Mapping[str, FrameworkRules]] = {
    each.name: each for each in (MEGATRON, MEGATRON_BRIDGE, TORCHTITAN, DEEPSPEED, MAXTEXT)
}
"""Rules by the framework's name, in the order of forms."""
FRAMEWORK_WORDS: Final = (ANY, *FRAMEWORK_RULES)
