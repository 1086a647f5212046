"""A server of the person's own on the Serving page: read, asked for open fields, and evaluated."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from dashboard.words.numbers import format_value
from engine import serving
from engine.serving import by_name
from tests.dashboard.page_runs import html, page_alone

LINK = {
    "serving_model": "llama-3-8B",
    "serving_system": "h100_80g_sxm",
    "serving_procs": "2",
    "serving_prompt": "1000",
    "serving_output": "200",
}
COMMAND = "vllm serve meta-llama/Meta-Llama-3-8B-Instruct -tp 2 --kv-cache-dtype fp8 --enable-dbo --max-num-seq 16"


def run(text: str) -> AppTest:
    app = page_alone("serving")
    app.session_state["_url"] = dict(LINK)
    app.run()
    app.text_area(key="serving_own_text").set_value(text).run()
    assert not app.exception
    return app


def test_a_pasted_command_is_evaluated_once_its_open_fields_are_stated() -> None:
    app = run(COMMAND)
    assert "Tensor parallel <b>2</b>" in " ".join(each.body for each in app.get("html"))
    assert any("State weight bits" in each.value for each in app.info)
    app.selectbox(key="serving_own_weight_bits").set_value(16).run()
    assert not app.exception
    row = {"tensor_par": 2, "pipeline_par": 1, "batch": 16, "weight_bits": 16, "kv_bits": 8, "launch": "graphs"}
    has_engine = any(column.name == "engine" for column in serving.FIELDS)
    fields = {**row, "prompt": 1000, "output": 200, **({"engine": "vllm"} if has_engine else {})}
    table = {name: [value] for name, value in fields.items()}
    (figures,) = serving.evaluate("llama-3-8B", "h100_80g_sxm", table).to_dict("records")
    shown = html(app)
    for name in ("tokens_per_s_per_processor", "time_per_output_token"):
        assert format_value(by_name(name), figures[name]) in shown
    assert "--enable-dbo" in " ".join(each.value for each in app.caption).replace("\\", "")


def test_an_open_acceptance_is_asked_for_and_counts() -> None:
    app = run(f'{COMMAND} --speculative-config \'{{"model": "meta-llama/Llama-3.2-1B", "num_speculative_tokens": 3}}\'')
    app.selectbox(key="serving_own_weight_bits").set_value(16).run()
    plain = html(app)
    assert "State acceptance" in captions(app)
    app.number_input(key="serving_own_acceptance").set_value(0.8).run()
    assert not app.exception
    assert html(app) != plain
    assert "State acceptance" not in captions(app)


def captions(app: AppTest) -> str:
    return " ".join(each.value for each in app.caption).replace("\\", "")


def test_what_cannot_be_read_is_one_sentence() -> None:
    assert "starts no server" in run("echo hello").error[0].value
    sliced = run("vllm serve mistralai/Mixtral-8x7B-Instruct-v0.1 --data-parallel-size 8")
    assert any("experts are sliced over 8 ranks" in each.value for each in sliced.warning)
