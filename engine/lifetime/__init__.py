"""The life of a model as phases in order, on one system: GPUs of each phase, days, cost, and what binds, proven."""

from engine.lifetime.chain import (
    Chain,
    ChainChange,
    ChainGoal,
    ChainsOnSystem,
    ChainTerms,
    PhaseCurve,
    PhaseSize,
    ServiceShare,
    chains_on_system,
    explain_chains,
)
from engine.lifetime.curves import StepFound, curve_of_steps, curve_of_training, least_gpus, phase_sizes

__all__ = [
    "Chain",
    "ChainChange",
    "ChainGoal",
    "ChainTerms",
    "ChainsOnSystem",
    "PhaseCurve",
    "PhaseSize",
    "ServiceShare",
    "StepFound",
    "chains_on_system",
    "curve_of_steps",
    "curve_of_training",
    "explain_chains",
    "least_gpus",
    "phase_sizes",
]
