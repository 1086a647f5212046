"""Neural networks as data: schema, loaders, and a library of published models.

    >>> import models
    >>> models.load("gpt3-175B").hidden
    12288
"""

from models.loader import ModelFileError, load, load_document, names, to_calculon, to_document
from models.schema import Architecture, BlockShape, Model

__all__ = [
    "Architecture",
    "BlockShape",
    "Model",
    "ModelFileError",
    "load",
    "load_document",
    "names",
    "to_calculon",
    "to_document",
]
