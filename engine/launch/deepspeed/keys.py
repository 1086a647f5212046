"""Keys of DeepSpeed's JSON, as version 0.19.8 has them.

From deepspeed/runtime/constants.py, runtime/config.py, runtime/zero/config.py, zero/offload_config.py and
docs/_pages/config-json.md (Apache-2.0). Unknown keys pass silently at the top and fail inside `zero_optimization`.
"""

from __future__ import annotations

from typing import Final

from engine.launch.key_lists import read_key_lists

__all__ = ["KNOWN", "TELLING", "WITHOUT_EFFECT", "ZERO_KEYS", "ZERO_WITHOUT_EFFECT"]

_LISTS: Final = read_key_lists("deepspeed")
TELLING: Final = frozenset(_LISTS["telling"])
"""Keys by which a JSON file is known as DeepSpeed's."""
KNOWN: Final = TELLING | frozenset(_LISTS["known"])
"""Keys at the top of the file."""
ZERO_KEYS: Final = frozenset(_LISTS["zero"])
"""Keys of `zero_optimization`; others are refused."""
WITHOUT_EFFECT: Final = frozenset(_LISTS["without effect"])
"""Keys at the top that change nothing that is predicted."""
ZERO_WITHOUT_EFFECT: Final = frozenset(_LISTS["zero without effect"])
"""Keys of `zero_optimization` that change nothing that is predicted."""
