"""Choice in the link of the execution whose figures all pages show, terms of the recommendation, tokens to train."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from engine.questions.documents.explorations import FiguresQuestion, RecommendationTermsQuestion
from engine.questions.fields import Asked
from engine.questions.verb import Document
from engine.recommendation.shown import FIGURES_OF, FiguresOf
from models.documents import Number

__all__ = ["PARAMETER", "FiguresLink", "FiguresView", "parse_figures"]

PARAMETER: Final = "figures"
"""Parameter of links, common to all pages."""
_NUMBER: Final = re.compile(r"|\d{1,3}(\.\d{1,3})?")


class FiguresLink(Document):
    """Parameters that all pages share."""

    figures: Annotated[FiguresOf, Asked("Figures of", words=FIGURES_OF)] = "recommended"
    tokens: Annotated[float, Number(1e-3, 9_999_999), Asked("Tokens to train, bn")] = 1_000.0


@dataclass(frozen=True, slots=True)
class FiguresView:
    """Choice of the execution whose figures are shown."""

    question: FiguresQuestion
    choice: LinkField
    """Recommended or fastest."""
    offload: LinkField
    unmeasured: LinkField
    tokens: LinkField
    """Tokens of the training run [1e9 tokens]."""

    @property
    def tokens_to_train(self) -> float:
        """Tokens of the training run."""
        return float(self.tokens.value) * 1e9


def parse_figures() -> FiguresView:
    """Parse the choice, and the terms of the recommendation."""
    choice = LinkReader(FiguresLink, "")
    choice.read("figures")
    choice.read("tokens")
    reader = LinkReader(RecommendationTermsQuestion, "recommended")
    for name in ("offload", "unmeasured"):
        reader.read(name)
    text = state.url_value("recommended_headroom", "", _NUMBER)
    terms = reader.build(headroom=float(text) / 100.0 if text else None)
    question = FiguresQuestion(**terms.model_dump(), figures_of=choice.fields["figures"].value)
    offload, unmeasured = (reader.fields[name] for name in ("offload", "unmeasured"))
    return FiguresView(question, choice.fields["figures"], offload, unmeasured, choice.fields["tokens"])
