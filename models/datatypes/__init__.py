"""Number formats: storage with scales, rates, partners, and the words that other programs have for them.

>>> from models import datatypes
>>> datatypes.named("nvfp4").stored_bits
4.5
>>> datatypes.spelled("megatron", "blockwise").name
'float8_block'
"""

from models.datatypes.checkpoints import datatype_of_checkpoint
from models.datatypes.entry import Datatype, SustainedRatio
from models.datatypes.lookup import (
    UnknownDatatypeError,
    explain_refusal,
    for_products,
    is_known,
    label_of,
    named,
    names,
    spelled,
    word_for,
    words_of_program,
)
from models.datatypes.register import PROGRAMS, REGISTER

__all__ = [
    "PROGRAMS",
    "REGISTER",
    "Datatype",
    "SustainedRatio",
    "UnknownDatatypeError",
    "datatype_of_checkpoint",
    "explain_refusal",
    "for_products",
    "is_known",
    "label_of",
    "named",
    "names",
    "spelled",
    "word_for",
    "words_of_program",
]
