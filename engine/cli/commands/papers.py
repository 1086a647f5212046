"""The command `papers`: papers whose figures are reproduced, one paper's figures, one figure beside its values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import as_json, text_table, write_line
from engine.cli.table_files import check_export, write_table_file
from engine.cli.text_tables import write_table

if TYPE_CHECKING:
    from engine.reproductions import Paper, PaperFigure

__all__ = ["show_papers"]


def show_papers(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A paper, such as rubick.")] = None,
    figure: Annotated[str | None, typer.Argument(metavar="FIGURE", help="One of its figures.")] = None,
    json: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the figure's table (.csv or .parquet).")
    ] = None,
) -> None:
    """Reproduce a figure of a paper: our values, the published ones, and the deviation.

    Without NAME the papers are listed; with NAME alone, its figures.

    \b
    Examples:
      shardscape papers
      shardscape papers korthikanti
      shardscape papers korthikanti table-5
      shardscape papers rubick figure-7 --out rubick-figure-7.csv
    """
    from engine.reproductions import PAPERS, PaperError, find_figure, find_paper

    if out is not None:
        if figure is None:
            raise PaperError("--out writes the table of one figure; name a paper and a figure before it.")
        check_export(out)
    if name is None:
        _write_list([_paper_row(each) for each in PAPERS.values()], json=json, csv=csv)
        return
    paper = find_paper(name)
    if figure is None:
        _write_list([_figure_row(each) for each in paper.figures], json=json, csv=csv)
        if not (json or csv):
            write_line(f"{paper.title}. {paper.short_citation}, {paper.url}", stream=sys.stderr)
        return
    _write_figure(paper, find_figure(paper, figure), out, json=json, csv=csv)


def _paper_row(paper: Paper) -> dict[str, Any]:
    return {
        "name": paper.name,
        "title": paper.title,
        "authors": paper.authors,
        "venue": paper.venue,
        "year": paper.year,
        "figures": ", ".join(each.name for each in paper.figures),
        "url": paper.url,
    }


def _figure_row(figure: PaperFigure) -> dict[str, Any]:
    return {"name": figure.name, "title": figure.title, "summary": figure.summary, "unit": figure.unit}


def _write_list(rows: list[dict[str, Any]], *, json: bool, csv: bool) -> None:
    """Print rows as JSON, as CSV, or as aligned text without addresses and titles of papers."""
    if json:
        write_line(as_json(rows))
    elif csv:
        import pandas as pd

        write_table(pd.DataFrame(rows), json=False, csv=True)
    else:
        hidden = {"url", "title", "unit"} if "url" in rows[0] else {"unit"}
        headers = [name for name in rows[0] if name not in hidden]
        write_line(
            text_table(headers, [[str(row[name]) for name in headers] for row in rows], left=range(len(headers)))
        )


def _write_figure(paper: Paper, figure: PaperFigure, out: Path | None, *, json: bool, csv: bool) -> None:
    table = figure.compare_values()
    if out is not None:
        write_table_file(table, out)
        write_line(f"{figure.title} of {paper.short_citation} is in {out}.", stream=sys.stderr)
        return
    if json:
        about = {**_figure_row(figure), "paper": paper.name, "source": figure.source, "note": figure.note}
        write_line(as_json({**about, "rows": table.to_dict("records")}))
        return
    unit = f" [{figure.unit}]" if figure.unit else ""
    headers = {"ours": f"ours{unit}", "published": f"published{unit}", "deviation_percent": "deviation [%]"}
    write_table(table if csv else table.rename(columns=headers), json=False, csv=csv)
    if not csv:
        for line in (f"{figure.title}: {figure.summary}", figure.note, f"Published values: {figure.source}."):
            if line:
                write_line(line, stream=sys.stderr)
