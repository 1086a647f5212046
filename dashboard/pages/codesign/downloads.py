"""Files of the Co-design page: designs and front as tables, the study, and a report."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import streamlit as st

from dashboard.files import codesign_report, exports
from dashboard.files.codesign_report import DesignReportQuestion
from dashboard.files.excel import MOST_ROWS, write_excel
from dashboard.pages.codesign.studies import document_of, link
from dashboard.widgets.share import LONGEST
from engine.codesign import QUANTITIES, Results, Study

__all__ = ["downloads", "table_file"]

ENDINGS: Final = {"csv": ".csv", "parquet": ".parquet", "excel": ".xlsx"}
MIMES: Final = {"csv": "text/csv", "parquet": exports.FORMATS["parquet"].mime, "excel": exports.FORMATS["excel"].mime}


def downloads(
    study: Study,
    found: Results,
    asked: DesignReportQuestion,
    sentence: str,
    chosen: int | None,
    parameters: Mapping[str, str],
) -> None:
    """Draws the menu of files.

    Args:
        study: the study, with its models and systems by name.
        found: the computed points.
        asked: the question about them.
        sentence: the study as a sentence.
        chosen: number of the design shown.
        parameters: of the page in the link.
    """
    how: dict[str, Any] = {"on_click": "ignore", "icon": ":material/download:", "type": "tertiary"}
    with st.popover("Download", icon=":material/download:", help="Designs, the front, a report, and the study."):
        if asked.stretches:
            st.caption("Tables contain the filtered designs.")
        for title, part in (("All designs", "all_designs"), ("Front", "front")):
            for kind, ending in ENDINGS.items():
                st.download_button(
                    f"{title} ({exports.FORMATS[kind].label})",
                    partial(_designs_file, found, asked, part, kind),
                    f"codesign_{part}{ending}",
                    MIMES[kind],
                    key=f"codesign_{part}_{kind}",
                    **how,
                )
        address = link(study, parameters) or ""  # from this session: the file is made in another thread
        address = address if len(address) <= LONGEST else ""
        st.download_button(
            "Report",
            partial(codesign_report.build, found, asked, sentence, chosen, address),
            "codesign.html",
            "text/html",
            key="codesign_report",
            help="Figures, tables, prices with their sources and the study in one HTML file that opens offline.",
            **how,
        )
        st.download_button(
            "Study (JSON)", document_of(study), "study.json", "application/json", key="codesign_study_json", **how
        )


def _designs_file(found: Results, asked: DesignReportQuestion, part: str, kind: str) -> bytes:
    table = asked.front(found) if part == "front" else asked.designs(found)
    return table_file(found, asked.kept(found.study, table), kind)


def table_file(found: Results, table: pd.DataFrame, kind: str) -> bytes:
    """Returns a table of designs as a CSV, Parquet or Excel file; Excel has the study on a second sheet.

    Raises ValueError for more rows than a sheet holds.

    Args:
        found: the results that the table is from.
        table: designs.
        kind: "csv", "parquet" or "excel".
    """
    if kind == "csv":
        return table.to_csv(index=False).encode()
    if kind == "parquet":
        content: bytes = table.to_parquet(index=False)
        return content
    if len(table) > MOST_ROWS:
        raise ValueError(f"An Excel sheet holds {MOST_ROWS:,} rows; choose CSV or Parquet for more.")
    known = [one for name, one in QUANTITIES.items() if name in table]
    account = {
        "software": f"shardscape {exports.version()}",
        "columns": [
            {"name": one.name, "unit": one.unit, "label": one.label, "description": one.description} for one in known
        ],
        "study": found.study.to_document(),
    }
    target = io.BytesIO()
    # A workbook has only one type of text.
    texts = {name: "string[pyarrow]" for name in table if table[name].dtype.kind not in "iufb"}
    rows = pa.Table.from_pandas(table.astype(texts), preserve_index=False)
    rows = rows.cast(pa.schema([(each.name, pa.string() if each.name in texts else each.type) for each in rows.schema]))
    write_excel(target, [rows], list(table.columns), account, title="Designs")
    return target.getvalue()
