"""The command `servers`: a deployment next to results of one's own benchmarks and the nearest measured servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.question_options import UnfinishedQuestion, asks, name_options
from engine.cli.table_files import check_place, write_document
from engine.questions.documents.serving import ServersQuestion

if TYPE_CHECKING:
    from engine.questions.servers import ComparedServers

__all__ = ["show_servers"]

_LARGEST_FILE: Final = 20_000_000
_FIGURES: Final = {
    "time_to_first_token": ("first token [ms]", 1e3),
    "time_per_output_token": ("per token [ms]", 1e3),
    "tokens_per_s": ("output [tokens/s]", 1.0),
}


@asks(ServersQuestion, arguments=("model", "system"), leave_out=("results",), optional=("deployment",))
def show_servers(
    asked: UnfinishedQuestion[ServersQuestion],
    results: Annotated[
        list[Path] | None, typer.Argument(metavar="RESULTS", help="Result files of benchmarks of this deployment.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--deployment",
            metavar="FILE",
            help="Command or manifest of the engine, or JSON of `inference`; --set counts more.",
        ),
    ] = None,
    row: Annotated[
        int | None, typer.Option("--row", metavar="N", min=0, help="Which deployment of the file, counted from 0.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the measured factors (.json).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare a deployment with your own benchmark results and the nearest measured servers; measure factors.

    RESULTS are files of `vllm bench serve --save-result`, `sglang.bench_serving --output-file`, AIPerf, genai-perf or
    GuideLLM. Batch, prompt and output are the result's. The factor of an engine is the mean of measured over
    predicted; --out writes it, and `inference --factors` uses it.

    \b
    Examples:
      shardscape servers llama-3.1-70B h100_80g_sxm --set tensor_par=8 --set engine=vllm --set weight_bits=8 \\
          --set batch=32 --set prompt=1024 --set output=512
      shardscape servers llama-3.1-70B h100_80g_sxm result.json --deployment serve.sh --out ours.json
      shardscape inference llama-3.1-70B h100_80g_sxm --num-procs 8 --prompt 1024 --output 512 \\
          --limit engine=vllm --factors ours.json

    JSON is the answer to the question compare_servers: deployment, results, calibration, nearest, weights.

    Exit code 1 when the deployment does not run, 3 when --out cannot be written.
    """
    import hardware
    from engine.questions.servers import compare_servers

    if out is not None:
        check_place(out)
    stated = asked.said["deployment"] or []
    texts = {str(each): _read_result(each) for each in results or []}
    question = asked.finish(deployment=stated, results=texts or None)
    if file is not None:
        merged = {**_deployment_in(file, row), **question.deployment}
        question = question.model_copy(update={"deployment": merged})
    with name_options(ServersQuestion):
        found = compare_servers(question)
    if json:
        write_line(as_json(found.document()))
    else:
        _print_servers(found)
    if found.row["status"] != "ok":
        raise typer.Exit(ExitCode.NOTHING)
    if out is not None:
        if found.calibration is None:
            from engine.validation.serving.benchmark_files import BenchmarkFileError

            raise BenchmarkFileError("No factors to write: give result files of benchmarks without speculation.")
        write_document(hardware.calibration_document(found.calibration), out)
        if not json:
            write_line(f"The factors are in {out}.")


def _read_result(file: Path) -> str:
    from engine.validation.serving.benchmark_files import BenchmarkFileError

    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise BenchmarkFileError(
                f"{file} has more than {_LARGEST_FILE // 1_000_000} MB; save results without details per request."
            )
        return file.read_text("utf-8-sig")
    except OSError as problem:
        raise BenchmarkFileError(f"{file} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise BenchmarkFileError(f"{file} is not text in UTF-8; it must be a JSON result of a benchmark.") from None


def _deployment_in(file: Path, row: int | None) -> dict[str, Any]:
    """Return the fields of a deployment in a file."""
    from engine.cli.commands.launch import execution_in
    from engine.cli.commands.serving_launch import read_serving_file
    from engine.launch import LaunchError, read_engine_text
    from engine.questions.plain import plain
    from engine.questions.serving_launch import deployment_rows
    from engine.serving import FIELDS

    text = read_serving_file(file)
    if text is None:
        fields, _, _ = execution_in(file, row)
        return dict(plain(fields))
    reading = read_engine_text(text, file.name)
    if reading.pools is not None or reading.rejected_by_us is not None:
        raise LaunchError(f"{file} has {reading.rejected_by_us or 'two pools'}; state one deployment by --set.")
    (fields,) = deployment_rows(reading, {}).values()
    return {column.name: fields[column.name] for column in FIELDS if column.name in fields}


def _print_servers(found: ComparedServers) -> None:
    from engine.questions.servers import SERVERS_NOTE
    from engine.serving import not_represented
    from engine.validation.serving.nearest_servers import SERVER_SOURCE

    title = f"{found.model.title or found.model.name} on {found.system.title or found.system.name}"
    write_line(f"{title}: {_layout(found.row)}")
    for sentence in not_represented(found.model):
        write_line(sentence)
    if found.factors is not None:
        write_line(found.factors.describe())
    write_line()
    if found.compared:
        _print_results(found)
    elif found.row["status"] != "ok":
        write_line(f"It does not run there. {found.row['reason_text']}")
    else:
        write_line("Predicted")
        rows = [(label, f"{factor * found.row[name]:.4g}") for name, (label, factor) in _FIGURES.items()]
        write_line(text_table(("figure", "value"), rows, left=(0,)))
    if found.calibration is not None:
        write_line()
        write_line(f"Factors measured by these results, as calibration {found.calibration.name!r}")
        cells = [
            (name.removeprefix("factor."), f"{each.value:.3f}", f"{each.low:.3f} to {each.high:.3f}")
            for name, each in found.calibration.parameters.items()
        ]
        write_line(text_table(("factor", "measured / predicted", "range"), cells, left=(0,)))
    if found.nearest:
        write_line()
        write_line("Nearest measured servers")
        headers = ("distance", "model", "engine", "layout", "bits", "tokens", *_pair_headers())
        write_line(text_table(headers, [_server_cells(each) for each in found.nearest], left=(1, 2, 3, 4, 5)))
        write_line()
        write_line(f"Source: {SERVER_SOURCE}.")
        write_line(SERVERS_NOTE)


def _print_results(found: ComparedServers) -> None:
    rows: list[tuple[str, ...]] = []
    for each in found.compared:
        load = f"{each.row['batch']:,} per replica, {each.row['prompt']:,} + {each.row['output']:,} tokens"
        if not each.figures:
            rows.append((each.benchmark.label, load, "does not run", "", "", "", "", str(each.row["reason_text"])))
        for name, figure in each.figures.items():
            label, factor = _FIGURES[name]
            between = "-" if figure.low is None or figure.high is None else _between(figure.low, figure.high, factor)
            rows.append(
                (
                    each.benchmark.label,
                    load,
                    label,
                    f"{factor * figure.measured:.4g}",
                    f"{factor * figure.predicted:.4g}",
                    f"{figure.ratio:.3f}",
                    between,
                    figure.verdict,
                )
            )
    headers = ("result", "load", "figure", "measured", "predicted", "ratio", "range", "")
    write_line(text_table(headers, rows, left=(0, 1, 2, 7)))
    for each in found.compared:
        for remark in each.benchmark.remarks:
            write_line(f"{each.benchmark.label}: {remark}")


def _between(low: float, high: float, factor: float) -> str:
    return f"{factor * low:.4g} to {factor * high:.4g}"


def _pair_headers() -> list[str]:
    return [word for label, _ in _FIGURES.values() for word in (label, "predicted")]


def _layout(row: Any) -> str:
    experts = f" x EP {row['expert_par']}" if row["expert_par"] > 1 else ""
    replicas = f"{row['replicas']} x " if row["replicas"] > 1 else ""
    return f"{replicas}TP {row['tensor_par']}{experts}, batch {row['batch']:,}"


def _server_cells(server: Any) -> tuple[str, ...]:
    figures = [
        f"{factor * server[kind][name]:.4g}"
        for name, (_, factor) in _FIGURES.items()
        for kind in ("measured", "predicted")
    ]
    version = f" {server['engine_version']}" if server["engine_version"] else ""
    return (
        f"{server['distance']:.2f}",
        f"{server['library_model']} on {server['gpu']}",
        f"{server['engine']}{version}",
        _layout(server),
        f"{server['weight_bits']}, KV {server['kv_bits']}",
        f"{server['prompt']:,} + {server['output']:,}",
        *figures,
    )
