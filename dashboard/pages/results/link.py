"""Parameters of the Results page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["ResultsLink"]


class ResultsLink(Document):
    """Filters, order, pages and columns of the table."""

    where: Annotated[str, Asked("Filters")] = ""
    sort: Annotated[str, Asked("Column to sort by")] = "sample_rate"
    order: Annotated[Literal["best", "worst"], Asked("Direction")] = "best"
    size: Annotated[
        Literal["100", "250", "1000"],
        Asked("Rows per page", words={"100": "100 rows", "250": "250 rows", "1000": "1,000 rows"}),
    ] = "100"
    page: Annotated[str, Asked("Page")] = "1"
    columns: Annotated[str, Asked("Columns")] = ""
    cell: Annotated[str, Asked("Cell that does not filter")] = ""
