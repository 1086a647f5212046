"""The command `cost`: what training so many tokens takes in time, processors, money and energy, failures included."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from engine.cli.options import JsonOption, ModelArgument, SystemArgument
from engine.cli.output import as_json, text_table, write_line
from hardware import GIB

if TYPE_CHECKING:
    from engine.economics import RunInputs, TrainingRun
    from hardware import System
    from models import Model

__all__ = ["estimate_cost"]

DAY: Final = 86_400.0

Attention = Literal["full", "causal"]
Recompute = Literal["none", "attn_only", "full"]


def estimate_cost(
    model: ModelArgument,
    system: SystemArgument,
    procs: Annotated[
        int | None, typer.Option("--procs", metavar="N", min=1, help="Processors; those of --execution.")
    ] = None,
    step_time: Annotated[
        float | None, typer.Option("--step-time", metavar="S", help="Time of a step [s]; needs --batch.")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", metavar="B", min=1, help="Sequences of a step.")] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option("--tokens-per-s", metavar="R", help="Instead: rate of the whole system [tokens/s].")
    ] = None,
    tflops: Annotated[
        float | None,
        typer.Option("--tflops", metavar="X", help="Instead: rate of one processor on model arithmetic [TFLOP/s]."),
    ] = None,
    execution: Annotated[
        Path | None, typer.Option("--execution", metavar="FILE", help="Instead: an execution, which is evaluated.")
    ] = None,
    tokens: Annotated[float | None, typer.Option("--tokens", metavar="T", help="Tokens to train; 1e12.")] = None,
    price: Annotated[
        str, typer.Option("--price", metavar="LOW[:HIGH]", help="USD per processor-hour; the system's.")
    ] = "",
    power: Annotated[float | None, typer.Option("--power", metavar="W", help="Design power; the system's [W].")] = None,
    power_share: Annotated[
        float | None, typer.Option("--power-share", metavar="F", help="Draw, server included, over design power; 1.5.")
    ] = None,
    pue: Annotated[float | None, typer.Option("--pue", metavar="F", help="Power usage effectiveness; 1.1.")] = None,
    mtbf: Annotated[
        float | None, typer.Option("--mtbf", metavar="H", help="Time between failures of one processor [h]; Llama 3's.")
    ] = None,
    checkpoint: Annotated[
        float | None, typer.Option("--checkpoint", metavar="BYTES", help="Checkpoint per parameter [bytes]; 14.")
    ] = None,
    storage: Annotated[
        float | None, typer.Option("--storage", metavar="GB/S", help="Storage bandwidth per processor [GB/s]; 0.083.")
    ] = None,
    restart: Annotated[
        float | None, typer.Option("--restart", metavar="S", help="Time from a failure to computing again [s]; 600.")
    ] = None,
    interval: Annotated[
        float | None, typer.Option("--interval", metavar="S", help="Time between checkpoints [s]; the optimum.")
    ] = None,
    datatype: Annotated[
        str, typer.Option("--datatype", metavar="D", help="Whose peak utilisation counts; bfloat16 or float16.")
    ] = "",
    attention: Annotated[
        Attention, typer.Option("--attention", help="Whether utilisation counts attention in full or without the mask.")
    ] = "full",
    recompute: Annotated[
        Recompute | None, typer.Option("--recompute", help="What is recomputed, for hardware utilisation.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Tell what training so many tokens takes: time, processor-hours, cost, energy, goodput.

    The speed comes from one of --step-time with --batch, --tokens-per-s, --tflops, or --execution. Failures and
    checkpoints follow Young 1974 and Daly 2006. Everything assumed is printed with its source.

    \b
    Examples:
      shardscape cost gpt3-175B a100_80g --procs 1024 --tflops 105 --tokens 300e9
      shardscape cost llama-3.1-405B h100_80g_sxm --procs 16384 --tflops 400 --tokens 15.6e12 --price 2:3
      shardscape cost gpt3-175B h100_80g_nvl8 --execution execution.json --tokens 1e12 --json

    Exit code 2 for an execution that cannot run, and for failures so frequent that the run would never end.
    """
    import hardware
    import models
    from engine.economics import CONVENTIONS, RunInputs, parameter_count, token_flops, training_run, utilisation

    network, machine = models.load(model), hardware.load(system)
    flops = token_flops(network)
    speed = _training_speed(
        network,
        machine,
        procs,
        step_time=step_time,
        batch=batch,
        tokens_per_s=tokens_per_s,
        tflops=tflops,
        execution=execution,
        flops=flops.model(attention),
    )
    count, rate = int(speed["procs"]), float(speed["tokens_per_s"])
    recomputed: Recompute = recompute or speed.get("recompute", "none")
    low, high = _parse_price(price)
    inputs = RunInputs.of(
        machine,
        tokens=tokens,
        usd_low=low,
        usd_high=high,
        power_w=power,
        power_share=power_share,
        pue=pue,
        mtbf_h=mtbf,
        bytes_per_parameter=checkpoint,
        storage_gb_per_s=storage,
        restart_s=restart,
        interval_s=interval,
    )
    run = training_run(inputs, tokens_per_s=rate, num_procs=count, parameters=float(parameter_count(network)))
    kind = _choose_datatype(machine, datatype or speed.get("datatype", ""))
    peak = machine.matrix[kind].tflops * 1e12
    used = {
        "mfu": utilisation(flops.model(attention), rate, float(count), peak),
        "hfu": utilisation(flops.hardware(recomputed, attention), rate, float(count), peak),
        "attention": attention,
        "recompute": recomputed,
        "datatype": kind,
        "peak_flops_per_s": peak,
        "model_flops_per_token": flops.model(attention),
    }
    if json:
        write_line(as_json({**_cost_document(run), "utilisation": used}))
        return
    _print_cost(run, used, CONVENTIONS[attention], _price_source(machine, given=bool(price)))


def _training_speed(
    model: Model,
    system: System,
    procs: int | None,
    *,
    step_time: float | None,
    batch: int | None,
    tokens_per_s: float | None,
    tflops: float | None,
    execution: Path | None,
    flops: float,
) -> dict[str, Any]:
    """Return processors and rate [tokens/s] from any of the options for speed."""
    from engine.economics import DerivedError, tokens_per_second, tokens_per_second_at

    ways = {"--step-time": step_time, "--tokens-per-s": tokens_per_s, "--tflops": tflops, "--execution": execution}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        told = " and ".join(given) or "nothing"
        raise DerivedError(f"The speed comes from {told}; give exactly one of {', '.join(ways)}.")
    if execution is not None:
        return _of_execution(model, system, execution, procs)
    if procs is None:
        raise DerivedError("--procs is missing; give the number of processors.")
    value = next(float(one) for one in (step_time, tokens_per_s, tflops) if one is not None)
    if not 0 < value <= 1e18:
        raise DerivedError(f"{given[0]} is {value:g}; it must be a number above 0 and at most 1e+18.")
    if step_time is not None:
        if batch is None:
            raise DerivedError("--step-time needs --batch, the sequences of a step.")
        return {"procs": procs, "tokens_per_s": tokens_per_second(float(batch * model.seq_size), value)}
    if tflops is not None:
        return {"procs": procs, "tokens_per_s": tokens_per_second_at(flops, float(procs), value * 1e12)}
    return {"procs": procs, "tokens_per_s": value}


def _of_execution(model: Model, system: System, path: Path, procs: int | None) -> dict[str, Any]:
    import engine
    from engine.economics import DerivedError
    from engine.executions.files import read_executions

    table = next(iter(read_executions(path)))
    if len(table) != 1:
        raise DerivedError(f"{path} has {len(table):,} executions; give a file with one.")
    row = engine.evaluate(model, system, table).iloc[0]
    if row["status"] != "ok":
        raise DerivedError(f"{path} cannot run: {row['reason_text']}")
    if not row["training"]:
        raise DerivedError(f"{path} does not train; give an execution with training on.")
    if procs is not None and procs != int(row["num_procs"]):
        raise DerivedError(f"--procs is {procs:,} but {path} has {int(row['num_procs']):,}; leave --procs out.")
    return {
        "procs": int(row["num_procs"]),
        "tokens_per_s": float(row["sample_rate"]) * model.seq_size,
        "recompute": str(row["activation_recompute"]),
        "datatype": str(row["datatype"]),
    }


def _parse_price(text: str) -> tuple[float | None, float | None]:
    """(lowest, highest) price of "2" or "2:5"; none for an empty text."""
    from engine.economics import DerivedError
    from models.documents import shown

    if not text:
        return None, None
    low, _, high = text.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise DerivedError(f"--price is {shown(text)}; it must look like 2 or 2:5, in USD per hour.") from None


def _price_source(system: System, *, given: bool) -> str:
    facts = system.accelerator
    return "given" if given or facts is None or not facts.usd_source else facts.usd_source


def _choose_datatype(system: System, wanted: str) -> str:
    from engine.economics import DerivedError
    from models.documents import shown

    if not wanted:
        return next((name for name in ("bfloat16", "float16") if name in system.matrix), system.datatypes[0])
    if wanted not in system.matrix:
        raise DerivedError(f"--datatype is {shown(wanted)}; {system.name} has {', '.join(system.datatypes)}.")
    return wanted


def _cost_document(run: TrainingRun) -> dict[str, Any]:
    """Everything as JSON: inputs, figures, and the units and sources of both."""
    from engine.economics import INPUTS, OUTPUTS

    figures = {name: getattr(run, name) for name in OUTPUTS}
    return {
        "procs": run.num_procs,
        "parameters": run.parameters,
        "tokens_per_s": run.tokens_per_s,
        "tokens_per_s_per_proc": run.tokens_per_s_per_proc,
        **figures,
        "time_parts_s": {name: value for name, value in run.parts._asdict().items() if name != "failures"},
        "usd_per_billion_tokens": run.usd_per_billion,
        "kwh_per_billion_tokens": run.kwh_per_billion,
        "inputs": asdict(run.inputs),
        "units": {name: one.unit for name, one in OUTPUTS.items()} | {name: one.unit for name, one in INPUTS.items()},
        "formulas": {name: one.formula for name, one in OUTPUTS.items()},
    }


def _print_cost(run: TrainingRun, used: dict[str, Any], convention: str, price_source: str) -> None:
    from engine.economics import HFU_FORMULA, INPUTS, MFU_FORMULA, OUTPUTS

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
        ("Model-FLOP utilisation", f"{used['mfu']:.1%}", f"{MFU_FORMULA}; {convention}"),
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
    write_line(text_table(("Input", "value", "from"), _assumption_rows(run.inputs, price_source, INPUTS), left=(0, 2)))


def _assumption_rows(inputs: RunInputs, price_source: str, known: Any) -> list[tuple[str, str, str]]:
    rows = []
    for name, one in known.items():
        value = getattr(inputs, name)
        if value is None:
            continue
        source = one.source if one.default is None or value == one.default else "given"
        if name in ("usd_low", "usd_high"):
            source = price_source
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
