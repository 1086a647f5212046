"""Tables that commands write to files: CSV or Parquet, and the file appears when it is whole."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_export", "write_table_file"]


def check_export(path: Path) -> None:
    """Says so before the work where the export could only fail after it.

    Raises TableFileError for a name that tables cannot have, TableWriteError for a place that cannot be written to.
    """
    from engine.executions.files import WRITABLE, TableFileError, TableWriteError

    if path.suffix.lower() not in WRITABLE:
        raise TableFileError(f"{path} cannot be written; its name must end in {' or '.join(WRITABLE)}.")
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise TableWriteError(f"{path} cannot be written; name a file in a folder that exists and may be written to.")


def write_table_file(table: pd.DataFrame, path: Path) -> None:
    """Writes a table. Raises TableWriteError where that fails, and leaves nothing behind then."""
    from engine.executions.files import TableWriteError

    temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}.tmp")
    try:
        if path.suffix.lower() == ".csv":
            table.to_csv(temporary, index=False, encoding="utf-8")
        else:
            table.to_parquet(temporary, index=False)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
        raise TableWriteError(f"{path} cannot be written: {told}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
