"""Two executions side by side, the recommended and the fastest, and a list of reasons, as HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["ExecutionSide", "card_text", "rows_table", "sides"]


class ExecutionSide(NamedTuple):
    """One execution: its role here, its degrees, its throughput, its memory, and a note."""

    name: str
    title: str
    rate: str
    memory: str
    note: str


def sides(shown: Iterable[ExecutionSide]) -> str:
    """Returns executions side by side, one below the other where there is no room."""
    items = "".join(
        f'<div role="listitem"><div class="ss-side-name">{escape(one.name)}</div>'
        f'<div class="ss-side-title">{escape(one.title)} <b>{escape(one.rate)}</b></div>'
        f'<div class="ss-side-note">{escape(one.memory)}</div>'
        f'<div class="ss-side-note">{escape(one.note[:1].upper() + one.note[1:])}</div></div>'
        for one in shown
    )
    return f'<div class="ss-sides" role="list">{items}</div>'


def card_text(name: str, title: str, note: str) -> str:
    """Returns the text of a card: kind, title and note."""
    return (
        f'<div class="ss-side-name">{escape(name)}</div><div class="ss-side-title">{escape(title)}</div>'
        f'<div class="ss-side-note">{escape(note)}</div>'
    )


def rows_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, texts: Collection[int] = (), wraps: bool = False
) -> str:
    """Returns rows of words as a table that scrolls sideways where it is too wide.

    texts: columns that align left. wraps: True for a table as wide as its place, whose words go on in the next line.
    """

    def cells(row: Sequence[str], tag: str) -> str:
        # A column without a name has no header: an empty one is announced for nothing.
        tags = [tag if text else "td" for text in row]
        return "".join(
            f"<{own}{' class=ss-text' if place in texts else ''}>{escape(text)}</{own}>"
            for place, (own, text) in enumerate(zip(tags, row, strict=True))
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    kind = "ss-rows ss-wraps" if wraps else "ss-rows"
    return (
        f'<div class="ss-scroll" tabindex="0"><table class="{kind}"><thead><tr>{cells(headers, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
