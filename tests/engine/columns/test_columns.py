"""The register is complete, consistent, and its storage types hold what they must hold."""

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from engine import columns
from engine.columns import ALL, FIELDS, HEADLINE, OUTCOME, STATISTICS, UNITS, Column, stored_of

_FIELD_TEXT = """num_procs tensor_par pipeline_par data_par tensor_par_net pipeline_par_net data_par_net batch_size
microbatch_size datatype fused_activation attention_type activation_recompute pipeline_interleaving optimizer_sharding
tensor_par_comm_type tensor_par_overlap seq_par_ag_redo data_par_overlap weight_offload activations_offload
optimizer_offload training"""

_STATISTIC_TEXT = """block_fw_flops block_fw_flops_time block_fw_mem_accessed block_fw_mem_time block_fw_time
baseblock_fw_tp_time edgeblock_fw_tp_time baseblock_fw_tp_time_exposed edgeblock_fw_tp_time_exposed block_re_flops
block_re_flops_time block_re_mem_accessed block_re_mem_time block_re_time baseblock_recomm_time edgeblock_recomm_time
baseblock_recomm_time_exposed edgeblock_recomm_time_exposed block_agrad_flops block_agrad_flops_time
block_agrad_mem_accessed block_agrad_mem_time block_agrad_time baseblock_agrad_tp_time edgeblock_agrad_tp_time
baseblock_agrad_tp_time_exposed edgeblock_agrad_tp_time_exposed block_wgrad_flops block_wgrad_flops_time
block_wgrad_mem_accessed block_wgrad_mem_time block_wgrad_time block_optim_flops block_optim_flops_time
block_optim_mem_accessed block_optim_mem_time block_optim_time baseblock_fw_tp_size edgeblock_fw_tp_size
baseblock_bw_tp_size edgeblock_bw_tp_size baseblock_recomm_size edgeblock_recomm_size block_fw_pp_size block_bw_pp_size
block_dp_size tp_bw_overlap_req dp_bw_overlap_req_chunk dp_bw_overlap_req_tail block_weight_space
block_act_working_space block_act_storage_space block_act_checkpoint_size block_weight_grad_space
block_weight_grad_space_no_sharding block_act_grad_space block_optimizer_space weight_space_with_offload
act_space_with_offload act_checkpoint_size_with_offload act_grad_space_with_offload weight_grad_space_with_offload
optimizer_space_with_offload weight_space act_space act_checkpoint_size act_grad_space weight_grad_space
optimizer_space fw_time bw_time optim_step_time recompute_time recomm_link_time recomm_exposed_time bubble_time
tp_comm_link_time pp_comm_link_time dp_comm_link_time tp_comm_exposed_time pp_comm_exposed_time dp_comm_exposed_time
fw_offload_exposed_time bw_offload_exposed_time total_time act_offload_bw_req weight_offload_bw_req
optim_offload_bw_req offload_mem_bw_req proc_mem_tier1_cap_req proc_mem_tier2_cap_req useful_flops compute_efficiency
system_efficiency total_efficiency sample_rate"""

FIELD_NAMES = _FIELD_TEXT.split()
STATISTIC_NAMES = _STATISTIC_TEXT.split()


def test_fields_and_statistics_keep_the_order_of_calculon() -> None:
    assert [column.name for column in FIELDS] == FIELD_NAMES
    assert [column.name for column in STATISTICS] == STATISTIC_NAMES
    assert (len(FIELDS), len(STATISTICS)) == (23, 96)
    assert [column.name for column in OUTCOME] == ["status", "reason", "reason_text"]


@pytest.mark.parametrize("attribute", ["name", "label", "short", "description"])
def test_every_column_has_its_own(attribute: str) -> None:
    counts = Counter(getattr(column, attribute) for column in ALL)
    assert "" not in counts
    assert [text for text, count in counts.items() if count > 1 and attribute in ("name", "description")] == []
    statistics = Counter(getattr(column, attribute) for column in STATISTICS)
    assert [text for text, count in statistics.items() if count > 1] == []


def test_units_come_from_the_vocabulary_and_fit_the_name() -> None:
    assert {column.unit for column in ALL} == UNITS
    for column in STATISTICS:
        expected = {
            "_flops": "FLOP",
            "_time": "s",
            "_exposed": "s",
            "_accessed": "bytes",
            "_size": "bytes",
            "_space": "bytes",
            "_offload": "bytes",
            "_sharding": "bytes",
            "_cap_req": "bytes",
            "bw_req": "bytes/s",
            "_req_chunk": "bytes/s",
            "_req_tail": "bytes/s",
            "overlap_req": "bytes/s",
            "_efficiency": "fraction",
            "_rate": "samples/s",
        }
        assert column.unit == next(unit for ending, unit in expected.items() if column.name.endswith(ending)), column


def test_descriptions_are_sentences() -> None:
    for column in ALL:
        assert column.description[0].isupper(), column.name
        assert column.description.endswith("."), column.name
        assert column.group, column.name


def test_direction_of_improvement() -> None:
    for column in STATISTICS:
        if column.unit in ("fraction", "samples/s"):
            assert column.better == "higher", column.name
        elif column.unit in ("s", "bytes", "bytes/s"):
            assert column.better == "lower", column.name
    assert all(column.better is None for column in (*FIELDS, *OUTCOME))


def test_headline_statistics() -> None:
    assert {column.name for column in HEADLINE} == columns.HEADLINE_NAMES
    assert len(HEADLINE) == 19
    assert not any(column.headline for column in (*FIELDS, *OUTCOME))
    # The step time must be explicable from stored columns alone.
    parts = {column.name for column in HEADLINE if column.group == "Time"}
    assert parts == {column.name for column in STATISTICS if column.group == "Time"}


def test_choices_in_enumeration_order() -> None:
    assert columns.by_name("activation_recompute").choices == ("full", "attn_only", "none")
    assert columns.by_name("tensor_par_comm_type").choices == ("ar", "p2p_rs_ag", "rs_ag")
    assert columns.by_name("tensor_par_overlap").choices == ("none", "ring", "pipe")
    assert columns.by_name("attention_type").choices == ("multihead", "multiquery")
    assert columns.by_name("datatype").choices == ()


def test_choice_labels_cover_every_choice() -> None:
    for column in FIELDS:
        labels = [columns.choice_label(column, choice) for choice in column.choices]
        assert len(set(labels)) == len(labels)
        assert not any("_" in label for label in labels)
    assert columns.choice_label("tensor_par_comm_type", "p2p_rs_ag") == "p2p RS+AG"
    assert columns.choice_label("activation_recompute", "attn_only") == "selective"
    assert (columns.choice_label("training", True), columns.choice_label("training", False)) == ("on", "off")
    assert columns.choice_label("tensor_par", 8) == "8"
    assert columns.choice_label("datatype", "posit16") == "posit16"


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(columns.UnknownColumn, match="sample_rate"):
        columns.by_name("sample_rat")
    with pytest.raises(columns.UnknownColumn, match="lists every column"):
        columns.by_name("")
    assert columns.by_name("id") is columns.ID


def _example(column: Column) -> list[object]:
    if column.dtype == "str":
        return list(column.choices) or ["float8", "float16"]
    examples: dict[str, list[object]] = {
        "int64": [0, 2**40 if column.name == "id" else 2**31 - 1],
        "float64": [1.5, float("inf")],
        "bool": [True, False],
    }
    return examples[column.dtype]


def test_stored_rows_go_through_arrow_and_duckdb_unchanged() -> None:
    schema = columns.headline_schema("calculon")
    assert schema.names == ["id", *FIELD_NAMES, *(column.name for column in HEADLINE)]
    table = pa.table(
        {
            column.name: pa.array((_example(column) * 2)[:2], columns.arrow_type(column))
            for column in stored_of("calculon")
        },
        schema=schema,
    )
    with duckdb.connect() as connection:
        connection.execute(columns.ddl('rows "1"', "calculon"))
        connection.register("incoming", table)
        connection.execute('INSERT INTO "rows ""1""" SELECT * FROM incoming')
        back = connection.sql('SELECT * FROM "rows ""1"""').to_arrow_table()
    for column in stored_of("calculon"):
        assert back[column.name].to_pylist() == table[column.name].to_pylist(), column.name


def test_duckdb_refuses_a_choice_that_does_not_exist() -> None:
    kind = columns.duckdb_type(columns.by_name("tensor_par_overlap"))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t (x {kind})")
        with pytest.raises(duckdb.ConversionException):
            connection.execute("INSERT INTO t VALUES ('sideways')")


def test_schema_metadata_carries_units() -> None:
    assert columns.headline_schema("calculon").field("total_time").metadata[b"unit"] == b"s"
