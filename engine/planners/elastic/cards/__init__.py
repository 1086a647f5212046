"""Model cards: documents on models for the elastic planner, which people edit and keep."""

from engine.planners.elastic.cards.loader import (
    FORMAT,
    card_names,
    changed_card,
    load_card,
    load_card_document,
    save_card,
    sent_card,
    to_document,
)
from engine.planners.elastic.cards.schema import (
    PARAMETERS,
    AtomBatchLimits,
    CardError,
    Environment,
    ModelCard,
    PerformanceParameters,
)

__all__ = [
    "FORMAT",
    "PARAMETERS",
    "AtomBatchLimits",
    "CardError",
    "Environment",
    "ModelCard",
    "PerformanceParameters",
    "card_names",
    "changed_card",
    "load_card",
    "load_card_document",
    "save_card",
    "sent_card",
    "to_document",
]
