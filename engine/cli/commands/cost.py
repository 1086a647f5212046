"""The command `cost`: what training so many tokens takes in time, processors, money and energy, failures included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import as_json, text_table, write_line
from engine.cli.question_options import asks, name_options
from engine.questions.documents.cost import CostQuestion
from hardware import GIB

if TYPE_CHECKING:
    from engine.economics import RunInputs
    from engine.questions.cost import TrainingCost
    from hardware import System

__all__ = ["estimate_cost"]

DAY: Final = 86_400.0


@asks(CostQuestion, arguments=("model", "system"))
def estimate_cost(
    asked: CostQuestion,
    execution: Annotated[
        Path | None, typer.Option("--execution", metavar="FILE", help="Instead: an execution, which is evaluated.")
    ] = None,
    price: Annotated[
        str, typer.Option("--price", metavar="LOW[:HIGH]", help="Short for --usd-low and --usd-high.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Tell what training so many tokens takes: time, processor-hours, cost, energy, goodput.

    The speed comes from one of --step-time with --batch, --tokens-per-s, --tflops, or --execution. Failures and
    checkpoints follow Young 1974 and Daly 2006. Everything assumed is printed with its source.

    \b
    Examples:
      shardscape cost gpt3-175B a100_80g --procs 1024 --tflops 105 --attention full --tokens 300e9
      shardscape cost llama-3.1-405B h100_80g_sxm --procs 16384 --tflops 400 --attention full --tokens 15.6e12
      shardscape cost gpt3-175B h100_80g_nvl8 --execution execution.json --tokens 1e12 --json

    Exit code 2 for an execution that cannot run, and for failures so frequent that the run would never end.
    """
    from engine.questions.cost import cost_document, find_training_cost
    from engine.questions.scenario_documents import found_model, found_system

    asked = asked.model_copy(update={**_parse_price(price, asked), "execution": _read_execution(execution)})
    model, system = found_model(asked.model), found_system(asked.system)
    with name_options(CostQuestion):
        found = find_training_cost(asked, model, system)
    if json:
        write_line(as_json(cost_document(found)))
        return
    given = {"usd_low": asked.usd_low, "usd_high": asked.usd_high}
    _print_cost(found, {name: _price_source(system, value) for name, value in given.items()})


def _read_execution(path: Path | None) -> dict[str, Any] | None:
    """Return the one execution in a file."""
    from engine.economics import DerivedError
    from engine.executions.files import read_executions

    if path is None:
        return None
    table = next(iter(read_executions(path)))
    if len(table) != 1:
        raise DerivedError(f"{path} has {len(table):,} executions; give a file with one.")
    return {str(name): value for name, value in table.iloc[0].items()}


def _parse_price(text: str, asked: CostQuestion) -> dict[str, float]:
    """Return the prices of "2" or "2:5"; empty for an empty text."""
    from engine.economics import DerivedError
    from models.documents import shown

    if not text:
        return {}
    if asked.usd_low is not None or asked.usd_high is not None:
        raise DerivedError("--price gives both prices; leave out --usd-low and --usd-high.")
    low, _, high = text.partition(":")
    try:
        return {"usd_low": float(low), "usd_high": float(high or low)}
    except ValueError:
        raise DerivedError(f"--price is {shown(text)}; it must look like 2 or 2:5, in USD per hour.") from None


def _price_source(system: System, given: float | None) -> str:
    facts = system.accelerator
    return "given" if given is not None or facts is None or not facts.usd_source else facts.usd_source


def _print_cost(found: TrainingCost, price_sources: Mapping[str, str]) -> None:
    from engine.economics import HFU_FORMULA, INPUTS, MFU_FORMULA, OUTPUTS

    run, used = found.run, found.utilisation

    def line(name: str, text: str) -> tuple[str, str, str]:
        return OUTPUTS[name].label, text, OUTPUTS[name].formula

    usd = "no price recorded; give --price" if run.usd is None else _format_range(*run.usd, "USD")
    energy = "no power recorded; give --power" if run.energy_kwh is None else f"{_format_number(run.energy_kwh)} kWh"
    rows = [
        (
            "Throughput",
            f"{_format_number(run.tokens_per_s)} tokens/s",
            f"{_format_number(run.tokens_per_s_per_proc)} per processor",
        ),
        ("Model-FLOP utilisation", f"{used['mfu']:.1%}", f"{MFU_FORMULA}; {found.convention}"),
        ("Hardware-FLOP utilisation", f"{used['hfu']:.1%}", f"{HFU_FORMULA}: {used['recompute']}"),
        line("compute_s", f"{run.compute_s / DAY:,.4g} days"),
        line("system_mtbf_s", f"{run.system_mtbf_s / 3600:,.4g} h"),
        line("checkpoint_bytes", f"{run.checkpoint_bytes / GIB:,.4g} GiB"),
        line("checkpoint_s", f"{run.checkpoint_s:,.4g} s"),
        line("daly_s", f"{run.daly_s:,.4g} s"),
        line("young_s", f"{run.young_s:,.4g} s"),
        line("interval_s", f"{run.interval_s:,.4g} s"),
        line("failures", f"{run.failures:,.4g}"),
        line("goodput", f"{run.goodput:.1%}"),
        line("wall_s", f"{run.wall_s / DAY:,.4g} days"),
        line("proc_hours", f"{_format_number(run.proc_hours)} h"),
        line("usd", usd),
        line("energy_kwh", energy),
    ]
    write_line(text_table(("Figure", "value", "how"), rows, left=(0, 2)))
    write_line("\nAssumed:")
    write_line(text_table(("Input", "value", "from"), _assumption_rows(run.inputs, price_sources, INPUTS), left=(0, 2)))


def _assumption_rows(inputs: RunInputs, price_sources: Mapping[str, str], known: Any) -> list[tuple[str, str, str]]:
    rows = []
    for name, one in known.items():
        value = getattr(inputs, name)
        if value is None:
            continue
        source = one.source if one.default is None or value == one.default else "given"
        if name in price_sources:
            source = price_sources[name]
        elif name == "interval_s":
            source = "given"
        shown = f"{value:.4g}" if value >= 1e9 else f"{value:,.6g}"
        rows.append((one.label, f"{shown} {one.unit}".rstrip(), source))
    return rows


def _format_range(low: float, high: float, unit: str) -> str:
    return f"{_format_number(low)} {unit}" if low == high else f"{_format_number(low)} to {_format_number(high)} {unit}"


def _format_number(value: float) -> str:
    """Four significant digits, the rest of a large number as zeros: 872,700."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"
