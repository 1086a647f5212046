"""All statistics of executions whose block figures, stages and memory are known: the batch level, assembled.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_batch_stats`, `get_stats_values`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.cost_models.calculon.physics.batch import batch_times
from engine.cost_models.calculon.physics.block import BlockTable
from engine.cost_models.calculon.physics.memory import MemoryByKind
from engine.cost_models.calculon.physics.optimizer import OptimizerTable
from engine.cost_models.calculon.physics.pipeline import PipelineShape
from engine.cost_models.calculon.physics.rates import SystemRates
from engine.executions.arrays import Floats
from engine.executions.table import Executions

__all__ = ["statistics"]


def statistics(
    rate: SystemRates,
    e: Executions,
    s: PipelineShape,
    block: BlockTable,
    optimizer: OptimizerTable,
    use: MemoryByKind,
    first_tier: Floats,
    second_tier: Floats,
) -> Mapping[str, Floats]:
    """Returns the 96 statistics by name, each an array [rows] (see `engine.columns.STATISTICS` for units).

    Args:
        rate: rates of the system.
        e: the executions [rows].
        s: how their blocks and microbatches fall on pipelines [rows].
        block: figures of their blocks, each [rows].
        optimizer: the optimizer's step on one block, each [rows].
        use: memory by kind, each [rows].
        first_tier: memory of the first tier [bytes] [rows].
        second_tier: memory of the second tier [bytes] [rows].
    """
    t = batch_times(rate, e, s, block, optimizer)
    inference = ~e.training
    block_figures = {
        "block_fw_flops": block.fw_flops,
        "block_fw_flops_time": block.fw_flops_time,
        "block_fw_mem_accessed": block.fw_mem_accessed,
        "block_fw_mem_time": block.fw_mem_time,
        "block_fw_time": block.fw_time,
        "baseblock_fw_tp_time": block.base_fw_tp_time,
        "edgeblock_fw_tp_time": block.edge_fw_tp_time,
        "baseblock_fw_tp_time_exposed": block.base_fw_tp_exposed,
        "edgeblock_fw_tp_time_exposed": block.edge_fw_tp_exposed,
        "block_re_flops": block.re_flops,
        "block_re_flops_time": block.re_flops_time,
        "block_re_mem_accessed": block.re_mem_accessed,
        "block_re_mem_time": block.re_mem_time,
        "block_re_time": block.re_time,
        "baseblock_recomm_time": block.base_recomm_time,
        "edgeblock_recomm_time": block.edge_recomm_time,
        "baseblock_recomm_time_exposed": block.base_recomm_exposed,
        "edgeblock_recomm_time_exposed": block.edge_recomm_exposed,
        "block_agrad_flops": block.agrad_flops,
        "block_agrad_flops_time": block.agrad_flops_time,
        "block_agrad_mem_accessed": block.agrad_mem_accessed,
        "block_agrad_mem_time": block.agrad_mem_time,
        "block_agrad_time": block.agrad_time,
        "baseblock_agrad_tp_time": block.base_bw_tp_time,
        "edgeblock_agrad_tp_time": block.edge_bw_tp_time,
        "baseblock_agrad_tp_time_exposed": block.base_bw_tp_exposed,
        "edgeblock_agrad_tp_time_exposed": block.edge_bw_tp_exposed,
        "block_wgrad_flops": block.wgrad_flops,
        "block_wgrad_flops_time": block.wgrad_flops_time,
        "block_wgrad_mem_accessed": block.wgrad_mem_accessed,
        "block_wgrad_mem_time": block.wgrad_mem_time,
        "block_wgrad_time": block.wgrad_time,
        "block_optim_flops": optimizer.flops,
        "block_optim_flops_time": optimizer.flops_time,
        "block_optim_mem_accessed": optimizer.mem_accessed,
        "block_optim_mem_time": optimizer.mem_time,
        "block_optim_time": optimizer.time,
        "baseblock_fw_tp_size": block.base_fw_tp_size,
        "edgeblock_fw_tp_size": block.edge_fw_tp_size,
        "baseblock_bw_tp_size": block.base_bw_tp_size,
        "edgeblock_bw_tp_size": block.edge_bw_tp_size,
        "baseblock_recomm_size": block.base_recomm_size,
        "edgeblock_recomm_size": block.edge_recomm_size,
        "block_fw_pp_size": t.fw_p2p_bytes,
        "block_bw_pp_size": t.bw_p2p_bytes,
        "block_dp_size": np.where((e.data_par > 1) & e.training, block.weights, 0.0),
        "tp_bw_overlap_req": block.tp_bw_overlap_req,
        "block_weight_space": block.weights,
        "block_act_working_space": block.act_working,
        "block_act_storage_space": block.act_storage,
        "block_act_checkpoint_size": block.act_checkpoint,
        "block_weight_grad_space": optimizer.weight_grads,
        "block_weight_grad_space_no_sharding": block.weight_grads_unsharded,
        "block_act_grad_space": block.act_grads,
        "block_optimizer_space": optimizer.state,
    }
    memory_figures = {
        "weight_space_with_offload": use.staged_weights,
        "act_space_with_offload": use.staged_activations,
        # The reference has no value here in inference.
        "act_checkpoint_size_with_offload": np.where(inference, np.nan, use.staged_checkpoints),
        "act_grad_space_with_offload": use.staged_act_grads,
        "weight_grad_space_with_offload": use.staged_weight_grads,
        "optimizer_space_with_offload": use.staged_optimizer,
        "weight_space": use.weights,
        "act_space": use.activations,
        "act_checkpoint_size": use.checkpoints,
        "act_grad_space": use.act_grads,
        "weight_grad_space": use.weight_grads,
        "optimizer_space": use.optimizer,
        "proc_mem_tier1_cap_req": first_tier,
        "proc_mem_tier2_cap_req": second_tier,
    }
    time_figures = {
        "dp_bw_overlap_req_chunk": t.dp_bw_overlap_req_chunk,
        "dp_bw_overlap_req_tail": t.dp_bw_overlap_req_tail,
        "fw_time": t.fw_time,
        "bw_time": t.bw_time,
        "optim_step_time": t.optim_step_time,
        "recompute_time": t.recompute_time,
        "recomm_link_time": t.recomm_link_time,
        "recomm_exposed_time": t.recomm_exposed_time,
        "bubble_time": t.bubble_time,
        "tp_comm_link_time": t.tp_comm_link_time,
        "pp_comm_link_time": t.pp_comm_link_time,
        "dp_comm_link_time": t.dp_comm_link_time,
        "tp_comm_exposed_time": t.tp_comm_exposed_time,
        "pp_comm_exposed_time": t.pp_comm_exposed_time,
        "dp_comm_exposed_time": t.dp_comm_exposed_time,
        "fw_offload_exposed_time": t.fw_offload_exposed_time,
        "bw_offload_exposed_time": t.bw_offload_exposed_time,
        "total_time": t.total_time,
        "act_offload_bw_req": t.act_offload_bw_req,
        "weight_offload_bw_req": t.weight_offload_bw_req,
        "optim_offload_bw_req": t.optim_offload_bw_req,
        "offload_mem_bw_req": t.offload_mem_bw_req,
        "useful_flops": t.useful_flops,
        "compute_efficiency": t.compute_efficiency,
        "system_efficiency": t.system_efficiency,
        "total_efficiency": t.total_efficiency,
        "sample_rate": t.sample_rate,
    }
    return block_figures | memory_figures | time_figures
