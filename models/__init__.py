"""Neural networks as data: schema, loaders, and a library of published models.

>>> import models
>>> models.load("gpt3-175B").hidden
12288
"""

from models.architecture import Architecture, Experts, LatentAttention, SparseAttention
from models.dimensions import Dimensions, dimensions
from models.documents import Change
from models.hugging_face import from_hugging_face, hugging_face_types
from models.layers import LayerPattern, ParameterCounts
from models.loader import (
    ModelLike,
    edited,
    load,
    load_document,
    model_of,
    names,
    parameter_counts,
    plain_names,
    to_calculon,
    to_document,
    tuned,
)
from models.schema import BlockShape, Model, ModelFileError
from models.tuning import ModelTuning, PackedSamples, pack_samples
from models.unrepresented import unrepresented

__all__ = [
    "Architecture",
    "BlockShape",
    "Change",
    "Dimensions",
    "Experts",
    "LatentAttention",
    "LayerPattern",
    "Model",
    "ModelFileError",
    "ModelLike",
    "ModelTuning",
    "PackedSamples",
    "ParameterCounts",
    "SparseAttention",
    "dimensions",
    "edited",
    "from_hugging_face",
    "hugging_face_types",
    "load",
    "load_document",
    "model_of",
    "names",
    "pack_samples",
    "parameter_counts",
    "plain_names",
    "to_calculon",
    "to_document",
    "tuned",
    "unrepresented",
]
