"""The command `shardscape`.

A command is loaded when it is asked for, and imports what takes long to load when it runs: help and lists come at once.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, NoReturn

import typer

from engine.cli import compat
from engine.cli.command_table import COMMANDS
from engine.cli.output import ExitCode, write_line

__all__ = ["app", "main"]

EXIT_CODES: Final = """\b
Exit codes:
  0    done
  1    done, but nothing can run or be predicted: no execution is feasible
  2    the command, a model, a system, executions or measured runs are not understood
  3    a store or a file of results cannot be used or written
  4    a fault in Shardscape itself; SHARDSCAPE_TRACEBACK=1 shows where
  130  interrupted; nothing was stored, but what a study has written stays
"""

OVERVIEW: Final = f"""Every way to run a large language model on a cluster: evaluated exactly, stored, shown.

\b
Examples:
  shardscape serve
  shardscape explore gpt3-175B h100_80g_nvl8 --procs 512 --max-batch 512 --datatype float16
  shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 128 --datatype bfloat16
  shardscape recommend llama-3.1-70B h100_80g_sxm --procs 512 --max-batch 512 --datatype bfloat16
  shardscape compare today.json more_memory.json
  shardscape what-if --scenario scenario.json --change hbm_bandwidth=6700
  shardscape evaluate gpt3-175B a100_80g executions.csv --out results.parquet
  shardscape layers megatron-1T a100_80g execution.json
  shardscape standing h100_80g_sxm execution.json --model llama-3-70B
  shardscape export execution.json --model llama-3-70B --to megatron
  shardscape import pretrain_gpt.sh
  shardscape trace rank0.pt.trace.json.gz
  shardscape inference llama-3-70B h100_80g_sxm --num-procs 8 --prompt 1024 --output 256 --tpot 0.03
  shardscape codesign study.json --count
  shardscape simulate schedule interleaved --stages 4 --microbatches 8 --chunks 2
  shardscape validate --runs measured.csv
  shardscape calibrate measured.csv --system h100_80g_sxm --out ours.json
  shardscape measure --quick
  shardscape models list
  shardscape store check results.duckdb
  shardscape plan layers bert_48 --batch 64
  shardscape papers korthikanti table-5
  shardscape mcp

MODEL and SYSTEM are library names or paths of JSON files, in our format or Calculon's.

{EXIT_CODES}"""


LONGEST_WORD: Final = 1_024
"""Characters without a space from which a sentence shows the beginning only."""

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Error codes of writing to a full file or device."""


class Reporting(compat.LazyGroup):
    """Group of all commands: an error in one becomes one sentence and an exit code."""

    _handler: Any = None
    """Handler of Ctrl-C before the command has begun."""

    def load_command(self, name: str) -> Any:
        """Import a command."""
        return COMMANDS[name].load()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command; from then on Ctrl-C is an exception, so that a command can clean up."""
        resolved = super().resolve_command(ctx, args)
        self._handler = _set_interrupt(signal.default_int_handler)
        return resolved

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _set_interrupt(self._handler)
            self._stop("Interrupted.", ExitCode.INTERRUPTED)
        except BrokenPipeError:
            raise  # `shardscape models list | head`: Typer ends quietly
        except Exception as error:
            # Typer's own exceptions end the command or tell how it is used.
            if compat.is_typers(error) or os.environ.get("SHARDSCAPE_TRACEBACK"):
                raise
            self._stop(*_describe_error(error))
        finally:
            _set_interrupt(self._handler)

    @staticmethod
    def _stop(sentence: str, code: ExitCode) -> NoReturn:
        # Paths are told whole; whatever is longer than one can be was no path.
        write_line(re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][:60]}...", sentence), stream=sys.stderr)
        raise typer.Exit(code)


def _set_interrupt(handler: Any) -> Any:
    """Set the handler of Ctrl-C and return the earlier one; None if this thread or process may not set it."""
    if handler is None or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        return None
    with suppress(ValueError):  # only the main thread may, and only it is interrupted
        return signal.signal(signal.SIGINT, handler)
    return None


def _describe_error(error: BaseException) -> tuple[str, ExitCode]:
    """The sentence and the exit code of an error."""
    text = str(error).strip()
    ours = type(error).__module__.split(".")[0] in ("engine", "models", "hardware")
    if ours and isinstance(error, ValueError):
        from engine.executions.files import TableWriteError
        from engine.store.errors import StoreError

        return text, ExitCode.STORE if isinstance(error, StoreError | TableWriteError) else ExitCode.INPUT
    if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
        return f"The output cannot be written: {os.strerror(error.errno).lower()}.", ExitCode.STORE
    if isinstance(error, MemoryError):
        return "There is not enough memory for this; limit some fields, or give a store.", ExitCode.FAULT
    shown = f"{type(error).__name__}: {text}".split("\n", 1)[0].rstrip(".")
    return f"Shardscape failed ({shown}); this is a fault of its own, please report it.", ExitCode.FAULT


app = typer.Typer(
    cls=Reporting,
    help=OVERVIEW,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        try:
            number = metadata.version("shardscape")
        except metadata.PackageNotFoundError:
            number = "(not installed)"
        write_line(f"shardscape {number}")
        raise typer.Exit


@app.callback(help=OVERVIEW)
def _take_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before any command."""


for _name, _entry in COMMANDS.items():
    app.command(_name, help=_entry.summary)(compat.unloaded_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    compat.run_app(app, arguments, "shardscape")
    raise SystemExit(0)


if __name__ == "__main__":
    main()
