"""Files that commands write, tables and documents, each complete or absent; and CSV tables that they read."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.output import as_json

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_export", "check_place", "read_csv_text", "write_document", "write_table_file"]


def check_export(path: Path) -> None:
    """Refuse a table's file that could not be written after the work.

    Raises TableFileError for a name that tables cannot have, and as `check_place` does.
    """
    from engine.executions.files import WRITABLE, TableFileError

    if path.suffix.lower() not in WRITABLE:
        raise TableFileError(f"{path} cannot be written; its name must end in {' or '.join(WRITABLE)}.")
    check_place(path)


def check_place(path: Path) -> None:
    """Refuse a file that could not be written after the work. Raises TableWriteError."""
    from engine.executions.files import TableWriteError

    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise TableWriteError(f"{path} cannot be written; name a file in a folder that exists and may be written to.")


def read_csv_text(path: Path, what: str, longest: int | None = None) -> str:
    """Return the text of a CSV file.

    Args:
        path: of the file.
        what: its subject with an article, such as "a trace".
        longest: characters that it may have; None for any number.

    Raises `QuestionError` with a sentence if it cannot be read, or is empty or longer where a bound is given.
    """
    from engine.questions.errors import QuestionError

    wanted = f"{path} must be a CSV table of 1 to {longest or 0:,} characters."
    try:
        if not path.is_file():
            raise QuestionError(f"There is no file {path} to read {what} from.")
        # A character has up to four bytes in UTF-8.
        if longest is not None and not 0 < path.stat().st_size <= 4 * longest:
            raise QuestionError(wanted)
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise QuestionError(f"{path} is not text in UTF-8; it must be a CSV table.") from None
    except OSError as problem:
        raise QuestionError(f"{path} cannot be read: {problem.strerror}.") from None
    if longest is not None and not 0 < len(text) <= longest:
        raise QuestionError(wanted)
    return text


def write_table_file(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV or Parquet. Raises TableWriteError if that fails, and leaves nothing behind then."""
    with _replace_file(path) as temporary:
        if path.suffix.lower() == ".csv":
            table.to_csv(temporary, index=False, encoding="utf-8")
        else:
            table.to_parquet(temporary, index=False)


def write_document(document: Any, path: Path) -> None:
    """Write a JSON document. Raises TableWriteError if that fails, and leaves nothing behind then."""
    with _replace_file(path) as temporary:
        temporary.write_text(as_json(document) + "\n", encoding="utf-8")


@contextmanager
def _replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside the path, which takes its place once it is complete."""
    from engine.executions.files import TableWriteError

    temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
        raise TableWriteError(f"{path} cannot be written: {reason}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
