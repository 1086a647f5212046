"""The figures of README and guide that a computation gives, each with the sentence it stands in.

`python -m tests.documented_figures` puts what is computed now into them; `python -m engine.validation refresh` ends
with it. A sentence has `{}` where a figure is; line breaks do not matter. A table that is computed is found by its
header. What comes of timings is measured by `python -m tests.benchmarks` instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import engine
from engine import validation
from engine.cost_models.calibrated import FITTED, library_calibration
from engine.questions import answer
from engine.validation.accepted import stored_errors, stored_left_out_errors, stored_memory_errors
from engine.validation.fine_tuning import current_residuals, error_medians, predict_fine_tuning
from engine.validation.selection import headline
from engine.validation.uncertainty import interval, memory_residuals

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "dashboard" / "guide"
DOCUMENTS = (ROOT / "README.md", *sorted(GUIDE.glob("*.md")), ROOT / "engine" / "validation" / "data" / "SOURCES.md")
FIGURE = r"([+−]?\d(?:[\d,]*\d)?(?:\.\d+)?)"


class Stated(NamedTuple):
    """A sentence of a document with `{}` for each figure, and what these are."""

    sentence: str
    figures: Callable[[], list[str]]


class ComputedTable(NamedTuple):
    """A table of a document: its header line, and a function for the lines below the ruler."""

    header: str
    rows: Callable[[], list[str]]


@cache
def figures_of(stated: Stated) -> list[str]:
    """The figures of a sentence, computed once."""
    return stated.figures()


def found_in(text: str, sentence: str) -> re.Match[str] | None:
    """Where a sentence is in a document, with its figures as groups."""
    words = [re.escape(word).replace(r"\{\}", FIGURE) for word in sentence.split()]
    return re.search(r"\s+".join(words), text)


def table_place(text: str, table: ComputedTable) -> tuple[int, int] | None:
    """Where the rows of a table are in a document."""
    found = re.search(re.escape(table.header) + r"\n\|[-|]+\n((?:\|.*\n)*)", text)
    return None if found is None else found.span(1)


@cache
def table_text(table: ComputedTable) -> str:
    """The rows of a table as they are computed now."""
    return "".join(f"{row}\n" for row in table.rows())


def everything() -> str:
    """All documents, one after the other."""
    return "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)


def outdated(text: str) -> Iterator[tuple[str, str, str]]:
    """Sentences that are missing or have other figures than computed now: (sentence, as it is, as it should be)."""
    for stated in STATED:
        place = found_in(text, stated.sentence)
        should = stated.sentence.format(*figures_of(stated))
        if place is None or " ".join(place[0].split()) != " ".join(should.split()):
            yield stated.sentence, "missing" if place is None else " ".join(place[0].split()), should
    for table in TABLES:
        place = table_place(text, table)
        now = "missing" if place is None else text[slice(*place)]
        if now != table_text(table):
            yield table.header, now, table_text(table)


def updated(text: str) -> str:
    """A document with the figures of now; sentences that it does not have are not its own."""
    for stated in STATED:
        place = found_in(text, stated.sentence)
        if place is not None:
            for number, figure in reversed(list(enumerate(figures_of(stated), 1))):
                text = text[: place.start(number)] + figure + text[place.end(number) :]
    for table in TABLES:
        if span := table_place(text, table):
            text = text[: span[0]] + table_text(table) + text[span[1] :]
    return text


def one(value: float) -> str:
    """With one decimal."""
    return f"{value:.1f}"


def whole(value: float) -> str:
    """Without decimals, thousands apart."""
    return f"{value:,.0f}"


def signed(value: float) -> str:
    """With one decimal and its sign, as the documents write it."""
    text = f"{abs(value):.1f}"
    return text if text == "0.0" else ("−" if value < 0 else "+") + text


def signed_whole(value: float) -> str:
    """Without decimals, with its sign."""
    text = f"{abs(value):,.0f}"
    return text if text == "0" else ("−" if value < 0 else "+") + text


@cache
def errors() -> pd.DataFrame:
    """The table of errors by name."""
    return stored_errors().drop_duplicates("name").set_index("name")


@cache
def predicted() -> pd.DataFrame:
    """Headline rows with a prediction: `error` in percent, and what the runs are."""
    runs = validation.library_runs().table
    table = validation.validate()
    rows = runs.assign(error=100 * table["error"])
    keep = headline(runs) & np.isfinite(table["error"])
    return rows[keep]


def of_set(name: str, *, tau: bool = True, theirs: bool = True, rows: bool = False) -> list[str]:
    """The row of a set in the table of errors."""
    row = errors().loc[name]
    found = [
        whole(row["rows"]),
        one(row["mean"]),
        one(row["median"]),
        one(row["p90"]),
        signed(row["bias"]),
        whole(row["within_10"]),
    ]
    found += [f"{row['tau']:.2f}"] if tau else []
    found += [one(row["calculon_mean"])] if theirs else []
    found += [whole(row["calculon_rows"])] if rows else []
    return found + ([one(row["same_rows_mean"])] if theirs else [])


def unseen(column: str) -> list[str]:
    """Mean errors on halves or sources that the fit did not see: dense, experts, one node, many nodes."""
    names = ("published runs, dense", "published runs, mixtures of experts", "vTrain single node", "vTrain multi node")
    if column == "halves":
        stated = {each.described.split(":")[0]: each.mean_absolute_percent for each in library_calibration().errors}
    else:
        stated = stored_left_out_errors().set_index("name")["mean"].to_dict()
    return [one(stated[name]) for name in names]


def unsupported() -> list[str]:
    """Runs, those not predicted, and why."""
    table = validation.validate()
    counts = table.loc[table["status"] != "predicted", "reason"].value_counts()
    named = [int(counts[name]) for name in ("missing_field", "not_a_transformer")]
    return [whole(each) for each in (len(table), counts.sum(), *named, counts.sum() - sum(named))]


WORST, FEWEST = 8, 3
"""Groups in the table of largest errors, and runs that each has at least."""


def worst_groups() -> list[str]:
    """The sources on an accelerator with the largest mean errors, as rows of a table."""
    table = stored_errors().query("kind == 'source and hardware' and rows >= @FEWEST").nlargest(WORST, "mean")
    return [
        f"| {row['name']} | {whole(row['rows'])} | {one(row['mean'])} | {signed(row['bias'])} |"
        for row in table.to_dict("records")
    ]


def spread_of(keep: Callable[[pd.DataFrame], pd.Series]) -> list[str]:
    """Number of some runs, their mean error, and the smallest and largest signed error [%]."""
    rows = predicted()
    error = rows.loc[keep(rows), "error"]
    return [whole(len(error)), whole(error.abs().mean()), signed_whole(error.min()), signed_whole(error.max())]


def gpt_oss() -> list[str]:
    """Runs of GPT-OSS; see `spread_of`."""
    return spread_of(lambda rows: rows["model"].str.contains("GPT-OSS|GPT_OSS", case=False))


def tensor_two() -> list[str]:
    """vTrain's multi-node runs with tensor parallelism 2; see `spread_of`."""
    return spread_of(lambda rows: rows["source"].str.startswith("vTrain multi") & (rows["tp"] == 2))


def short_errors() -> list[str]:
    """Mean errors of the published runs with their numbers, and those of fits without their source."""
    names = ("published runs, dense", "published runs, mixtures of experts")
    unseen_errors = stored_left_out_errors().set_index("name")["mean"]
    found = [text for name in names for text in (one(errors().loc[name, "mean"]), whole(errors().loc[name, "rows"]))]
    return [*found, *(one(unseen_errors[name]) for name in names)]


def order_of_layouts() -> list[str]:
    """Kendall's tau of dense runs, and the share of pairs in the wrong order that it means [%]."""
    tau = errors().loc["published runs, dense", "tau"]
    return [f"{tau:.2f}", whole(50 * (1 - tau))]


def deepseek() -> list[str]:
    """The published step of DeepSeek-V3, and its prediction: seconds, memory, error."""
    table = validation.validate().set_index("id")
    row = table.loc["deepseekv3-h800"]
    return [
        one(row["measured_step_time_s"]),
        one(row["predicted_step_time_s"]),
        whole(row["predicted_mem_gib"]),
        signed_whole(100 * row["error"]),
    ]


def stage_layouts() -> list[str]:
    """Best throughput of DeepSeek-V3 on 512 H100s with and without uneven stages [samples/s]."""
    found = []
    for limits in (None, {"stage_layout": ["even"]}):
        best = engine.best(
            "deepseek-v3", "h100_80g_sxm", num_procs=512, max_batch_size=1024, datatype="bfloat16", limits=limits
        )
        found.append(one(best.top["sample_rate"].iloc[0]))
    return found


def korthikanti(quantity: str) -> list[str]:
    """Mean and largest error of Calculon's model on a published quantity of Korthikanti et al. [%]."""
    from engine.reproductions.korthikanti.predictions import predicted_values

    rows = predicted_values().query("quantity == @quantity and published_in != 'figure 7'")
    error = 100 * (rows["predicted"] / rows["published"] - 1).abs()
    runs = [whole(len(error))] if quantity == "batch time" else []
    return [*runs, whole(error.mean()), whole(error.max())]


def collected() -> list[str]:
    """Runs of the package by file: collected ones, vTrain's single-node and multi-node ones."""
    source = validation.library_runs().table["source"]
    single, multi = (source.str.startswith(f"vTrain {kind}") for kind in ("single", "multi"))
    return [whole((~single & ~multi).sum()), whole(single.sum()), whole(multi.sum())]


def memory() -> list[str]:
    """Errors of memory by source, with numbers of runs."""
    table = stored_memory_errors().set_index("name")
    names = (
        "SimuMax B200 release v1.2",
        "torchtitan benchmarks",
        "BigScience tr11 prequel",
        "chenyaofo DeepSpeed ZeRO gist",
    )
    forms = (one, one, one, whole)
    return [
        text
        for name, form in zip(names, forms, strict=True)
        for text in (form(table.loc[name, "mean"]), whole(table.loc[name, "rows"]))
    ]


def memory_intervals() -> list[str]:
    """Intervals of predicted memory with what they rest on, and how many of a source left out lie inside."""
    table = memory_residuals()
    found = [str(len(table))]
    for generation in ("hopper", "ampere"):
        one_kind = interval(generation=generation, experts=False, table=table)
        assert one_kind is not None
        found += [f"{one_kind.low:.2f}", f"{one_kind.high:.2f}", str(one_kind.rows), str(one_kind.sources)]
    own = table[table["source"] == "BigScience"]
    others = interval(generation="ampere", experts=False, table=table, without="BigScience")
    assert others is not None
    return [*found, str(len(own)), str(int(own["ratio"].between(others.low, others.high).sum()))]


def coverage() -> list[str]:
    """Share of left-out runs in 80 % intervals, how many, the range over kinds of 20 runs or more, and by source."""
    table = validation.stored_coverage()
    kinds, first = table[1:-1].query("runs >= 20")["covered_80"], table.iloc[0]
    values = (first["covered_80"], first["runs"], kinds.min(), kinds.max(), first["sources_80"])
    return [whole(value) for value in values]


@cache
def explored() -> engine.Exploration:
    """The example of the README."""
    return engine.explore(
        "gpt3-175B", "h100_80g_nvl8", num_procs=512, max_batch_size=512, datatype="float16", cost_model="calculon"
    )


def best_row(rank: int) -> list[str]:
    """Of one of the best three: id, the degrees, and figures as the command prints them."""
    from engine.cli.output import format_quantity
    from engine.columns import by_name
    from engine.economics import derived_columns

    best = explored().top(3)
    row = best.join(derived_columns(explored().scenario, best)).iloc[rank]
    names = (
        "id",
        "tensor_par",
        "pipeline_par",
        "data_par",
        "microbatch_size",
        "pipeline_interleaving",
        "sample_rate",
        "tokens_per_gpu",
        "tflops_per_gpu",
        "mfu",
        "proc_mem_tier1_cap_req",
        "proc_mem_tier2_cap_req",
    )
    return [format_quantity(by_name(name), row[name]) for name in names]


def serving(kind: str) -> list[str]:
    """Modelled against what others say of serving: see `tests/engine/serving/test_published.py`."""
    from tests.engine.serving.test_published import compared, grouped_long

    table = _compared(compared)
    long = grouped_long(table)
    throughput = table[(table["kind"] == "throughput") & ~long]["error"].abs() * 100
    if kind == "throughput":
        return [whole(len(throughput)), whole(throughput.median()), whole(throughput.max())]
    if kind == "long":
        error = 100 * table[long & (table["kind"] == "throughput")]["error"]
        return [whole(len(error)), whole(error.min()), whole(error.max())]
    if kind == "single_user":
        rows = table[table["kind"] == kind]
        said, modelled = rows["value"], rows["value"] * (1 + rows["error"])
        return [*map(one, said), whole(len(rows)), *map(one, modelled)]
    rows = table[(table["kind"] == "first_token") & (table["prompt"] == int(kind))]
    error = 100 * rows["error"].abs()
    return [whole(len(rows)), whole(error.min()), whole(error.max())]


@cache
def _compared(compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    return compute()


def reasons() -> list[str]:
    """Counts of the example by reason, most first."""
    return [whole(number) for number in sorted(explored().infeasible_by_reason.values(), reverse=True)]


BEST = "{} {} {} {} {} {} %s {} {} {} {} ... {} {}"


@cache
def asked() -> dict[str, Any]:
    """What the chapter about programs asks."""
    scenario = {
        "model": "llama-3-70B",
        "system": "h100_80g_sxm",
        "num_procs": 64,
        "max_batch_size": 128,
        "datatype": "bfloat16",
    }
    changed = {"scenario": scenario, "changes": {"hbm_capacity": 141}, "figures_of": "fastest"}
    return answer("best", {"scenario": scenario}) | {"gain": answer("what_if", changed)["gain"]}


def same_answer() -> list[str]:
    """Executions, those that run, the best throughput, those evaluated, and what memory brings."""
    found = asked()
    rate = f"{found['top'][0]['sample_rate']:.2f}"
    return [whole(found["total"]), whole(found["feasible"]), rate, whole(found["evaluated"]), one(100 * found["gain"])]


@cache
def fine_tuned() -> pd.DataFrame:
    """Predictions of the runs of fine-tuning."""
    return predict_fine_tuning()


def fine_tuning_errors() -> list[str]:
    """Median errors with their numbers of runs, and that of the intervals of adapters."""
    medians = error_medians(fine_tuned()).set_index("figure")
    names = ("step, all weights", "step, adapters", "peak memory")
    found = [(whole(medians.loc[name, "median_error"]), whole(medians.loc[name, "runs"])) for name in names]
    return [*(text for pair in found for text in pair), whole(int((current_residuals()["method"] != "full").sum()))]


STATED: tuple[Stated, ...] = (
    Stated("{} runs of full fine-tuning and LoRA were compared", lambda: [whole(len(fine_tuned()))]),
    Stated(
        "Median errors are {} % ({} steps that train all weights), {} % ({} steps with adapters) and {} % ({} peaks of "
        "memory). Intervals of fine-tuning come from these steps, with adapters from their {}.",
        fine_tuning_errors,
    ),
    Stated(
        "of {} executions {} are feasible, and the best reaches {} samples/s, proven after {} were evaluated. "
        "With 141 GiB of memory instead of 80 the best is {} % faster.",
        same_answer,
    ),
    Stated("512 H100s: {} executions, each one either", lambda: [whole(explored().total)]),
    Stated("{} executions, {} of them feasible", lambda: [whole(explored().total), whole(explored().feasible)]),
    Stated("Network tier too small {} Out of HBM {} Out of host memory {}", reasons),
    Stated(BEST % "on on", lambda: best_row(0)),
    Stated(BEST % "on off", lambda: best_row(1)),
    Stated(BEST % "off on", lambda: best_row(2)),
    Stated("120k tokens: {}, {}, {} tokens/s | {} | {}, {}, {} |", lambda: serving("single_user")),
    Stated("output per GPU | {} | median error {} %, at most {} % |", lambda: serving("throughput")),
    Stated("outputs of 2,048 tokens | {} | {} to {} % too fast", lambda: serving("long")),
    Stated("first token of prompts of 2,048 tokens | {} | {} to {} % |", lambda: serving("2048")),
    Stated("first token of prompts of 128 tokens | {} | {} to {} % too slow", lambda: serving("128")),
    Stated(
        "| published, dense | {} | {} | {} | {} | {} | {} % | {} | {} ({} runs) | {} |",
        lambda: of_set("published runs, dense", rows=True),
    ),
    Stated(
        "| published, mixtures of experts | {} | {} | {} | {} | {} | {} % |",
        lambda: of_set("published runs, mixtures of experts", tau=False, theirs=False),
    ),
    Stated(
        "| vTrain, one A100 node | {} | {} | {} | {} | {} | {} % | {} | {} | {} |", lambda: of_set("vTrain single node")
    ),
    Stated("| vTrain, 512 A100s | {} | {} | {} | {} | {} | {} % | {} | {} | {} |", lambda: of_set("vTrain multi node")),
    Stated(
        "defective | {} | {} | {} | {} | {} | {} % | {} | {} ({} runs) | {} |", lambda: of_set("all rows", rows=True)
    ),
    Stated("mean errors are {} (dense), {} (experts), {} (one node) and {} (512 A100s)", lambda: unseen("halves")),
    Stated("on sources that it did not see {}, {}, {} and {}.", lambda: unseen("sources")),
    Stated(
        "Of {} runs in the package {} are not predicted: a field is missing ({}), the model is not a transformer "
        "({}), and {} for other reasons",
        unsupported,
    ),
    Stated(
        "GPT-OSS-120B on all accelerators: {} runs, off by {} %, from {} to {} %",
        gpt_oss,
    ),
    Stated("vTrain on 512 A100s with tensor parallel 2: {} runs, off by {} %, from {} to {} %", tensor_two),
    Stated(
        "off by {} (SimuMax, {} runs), {} (torchtitan, {}), {} (BigScience, {}) and {} (DeepSpeed ZeRO, {} runs", memory
    ),
    Stated("Tau of {} means that about {} % of pairs of layouts are in the wrong order", order_of_layouts),
    Stated("has {} parameters for all accelerators", lambda: [whole(len(FITTED))]),
    Stated(
        "mean error is {} % on {} published runs of dense models and {} % on {} of mixtures of experts; on sources "
        "that a fit did not see {} and {} %",
        short_errors,
    ),
    Stated(
        "DeepSeek-V3's published step, {} s for 15,360 sequences on 2,048 H800 with DualPipe, is a row of the "
        "validation. It is modelled as {} s in {} GiB, an error of {} %.",
        deepseek,
    ),
    Stated(
        "DeepSeek-V3 on 512 H100s with a batch of 1,024 reaches {} samples/s instead of {}.",
        stage_layouts,
    ),
    Stated("| step time, {} runs | {} % | {} % |", lambda: korthikanti("batch time")),
    Stated("| activation memory | {} % | {} % |", lambda: korthikanti("activations")),
    Stated("| memory for parameters and optimizer | {} % | {} % |", lambda: korthikanti("parameters and optimizer")),
    Stated("| {} training runs read in public sources", lambda: collected()[:1]),
    Stated("| {} and {} measured iteration times", lambda: collected()[1:]),
    Stated("torchtitan's is {}.", lambda: [f"{errors().loc['torchtitan benchmarks', 'tau']:.2f}"]),
    Stated(
        "80 % intervals hold {} % of {} runs, between {} and {} % of each kind with at least 20. If every source "
        "counts once, it is {} %",
        coverage,
    ),
    Stated(
        "are not used for intervals; of these, {} % lie inside",
        lambda: [whole(validation.stored_coverage()["covered_80"].iloc[-1])],
    ),
    Stated(
        "from {} runs whose memory was measured. Dense models on Hopper take {} to {} times the memory predicted, "
        "in four fifths of {} dense runs from {} sources on all generations, because those on Hopper alone are "
        "too few; on Ampere {} to {} times, in {} runs from {} sources. These sources are few: of "
        "BigScience's {} runs {} lie",
        memory_intervals,
    ),
)


TABLES: tuple[ComputedTable, ...] = (ComputedTable("| runs | number | mean error | bias |", worst_groups),)


def main() -> None:
    """Rewrite the documents and say what changed."""
    for _, now, should in outdated(everything()):
        print(f"{now}\n  -> {should}")
    for document in DOCUMENTS:
        document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
    if missing := [sentence for sentence, _, _ in outdated(everything())]:
        raise SystemExit("\n".join(["No document has these sentences or tables:", *missing]))


if __name__ == "__main__":
    main()
