"""Number formats of the linear layers, from the register of datatypes.

Three plain ones have a peak of their own width in every system: 16, 8 and 4 bits. All others have scales that take
traffic, or a peak of their own; they are `SCALED`, and a layout's `linear_format` is 1 + a position there.

Source: the entries of `models.datatypes.register`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from engine.executions.arrays import Floats
from models import datatypes
from models.datatypes import Datatype

__all__ = [
    "COPIES",
    "COPIES_BLACKWELL",
    "DATATYPES",
    "FORMATS",
    "GATHERED_WIDE",
    "LINEAR_BITS",
    "LINEAR_FORMATS",
    "PLAIN",
    "SCALED",
    "SCALED_NAMES",
]

FORMATS: Final[tuple[Datatype, ...]] = datatypes.for_products(16)
"""Datatypes of the linear layers; attention, head, optimizer and communication stay in 16 or 32 bits."""
DATATYPES: Final[tuple[str, ...]] = tuple(each.name for each in FORMATS)
"""Their names."""
PLAIN: Final[Mapping[str, float]] = {"float4": 4.0, "float8": 8.0, "float16": 16.0, "bfloat16": 16.0}
"""Plain datatypes, with their width [bits]."""
COPIES: Final = 2.0
"""Copies of a weight in fewer than 16 bits [copies]: products of the forward and of the backward pass read it along
different axes. Source: TransformerEngine, `module/base.py`, `get_weight_workspace`: kept between microbatches."""
COPIES_BLACKWELL: Final = 1.0
"""Copies of a weight with one scale per tensor on Blackwell, whose products read 8-bit operands along either axis
[copies]. Source: TransformerEngine, `csrc/quantizer.cpp`: no transpose where `nvte_is_non_tn_fp8_gemm_supported`."""
SCALED: Final[tuple[Datatype, ...]] = tuple(each for each in FORMATS if each.name not in PLAIN)
"""Datatypes with scales or a peak of their own."""
SCALED_NAMES: Final[frozenset[str]] = frozenset(each.name for each in SCALED)
LINEAR_BITS: Final[Floats] = np.array([each.stored_bits for each in FORMATS])
"""Width of an element with its part of the scale, by position in `DATATYPES` [bits]."""
LINEAR_FORMATS: Final[Floats] = np.array([1.0 + SCALED.index(each) if each in SCALED else 0.0 for each in FORMATS])
"""`linear_format` of a layout, by position in `DATATYPES`."""
GATHERED_WIDE: Final[Floats] = np.array([1.0 + SCALED.index(each) for each in SCALED if each.name == "mxfp8"])
"""`linear_format` of 8-bit parameters that are gathered in 16 bits and then converted, since their two copies have
scales along different axes. Source: Megatron-Core, `param_and_grad_buffer.py`, `shared_buffer`."""
