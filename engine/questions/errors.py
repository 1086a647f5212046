"""Error of a question that cannot be answered."""

__all__ = ["QuestionError"]


class QuestionError(ValueError):
    """A question that cannot be answered; the message is one sentence for the caller."""
