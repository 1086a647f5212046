"""Figures that people ask for and that follow from a rate: utilisation, time, money, energy, goodput.

Every formula stands here once, with its unit and its source; pages and commands only show them.
"""

from engine.economics.checkpoints import daly_interval, expected_seconds, young_interval
from engine.economics.derived import TRILLION, Derived, cost_of_difference, derived_columns, derived_of, flops_of
from engine.economics.inputs import INPUTS, DerivedError, RunInput, RunInputs
from engine.economics.quantities import (
    HFU_FORMULA,
    MFU_FORMULA,
    energy_kwh,
    processor_hours,
    seconds_for_tokens,
    tokens_per_second,
    tokens_per_second_at,
    utilisation,
)
from engine.economics.run import OUTPUTS, Output, TrainingRun, training_run
from models.token_flops import (
    BLOCK_FORMULA,
    CAUSAL_TERM,
    CONVENTIONS,
    PUBLISHED_FORMULA,
    TokenFlops,
    architecture_flops,
    block_flops,
    parameter_count,
    token_flops,
)

__all__ = [
    "BLOCK_FORMULA",
    "CAUSAL_TERM",
    "CONVENTIONS",
    "HFU_FORMULA",
    "INPUTS",
    "MFU_FORMULA",
    "OUTPUTS",
    "PUBLISHED_FORMULA",
    "TRILLION",
    "Derived",
    "DerivedError",
    "Output",
    "RunInput",
    "RunInputs",
    "TokenFlops",
    "TrainingRun",
    "architecture_flops",
    "block_flops",
    "cost_of_difference",
    "daly_interval",
    "derived_columns",
    "derived_of",
    "energy_kwh",
    "expected_seconds",
    "flops_of",
    "parameter_count",
    "processor_hours",
    "seconds_for_tokens",
    "token_flops",
    "tokens_per_second",
    "tokens_per_second_at",
    "training_run",
    "utilisation",
    "young_interval",
]
