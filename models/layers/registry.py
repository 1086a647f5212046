"""Every kind of layer: a new one is a file and a line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.layers.attention import AttentionLayer
from models.layers.compressed_attention import CompressedAttentionLayer
from models.layers.experts import ExpertsLayer
from models.layers.feedforward import FeedForwardLayer
from models.layers.latent_attention import LatentAttentionLayer
from models.layers.linear_attention import GatedDeltaNetLayer, KimiDeltaLayer, LightningLayer
from models.layers.recurrence import GatedRecurrenceLayer, ShortConvolutionLayer
from models.layers.residual import AlternatingUpdates, HyperConnections, ResidualAttention
from models.layers.state_space import Mamba1Layer, Mamba2Layer

__all__ = ["Addition", "FeedForward", "Mixer"]

Mixer = Annotated[
    AttentionLayer
    | LatentAttentionLayer
    | CompressedAttentionLayer
    | GatedDeltaNetLayer
    | KimiDeltaLayer
    | LightningLayer
    | Mamba1Layer
    | Mamba2Layer
    | ShortConvolutionLayer
    | GatedRecurrenceLayer,
    Field(discriminator="kind"),
]
"""A layer that mixes tokens."""

FeedForward = Annotated[FeedForwardLayer | ExpertsLayer, Field(discriminator="kind")]
"""A layer that works on each token alone."""

Addition = Annotated[HyperConnections | ResidualAttention | AlternatingUpdates, Field(discriminator="kind")]
"""A part of a block besides mixers and feedforward layers."""
