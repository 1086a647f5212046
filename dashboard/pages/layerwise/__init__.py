"""Layer-wise: layers of a profile or a model divided into pipeline stages with replicas on the devices of a cluster."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="layerwise",
    title="Layer-wise",
    group=NavigationGroup.PLAN,
    place=2,
    help="Layers divided into pipeline stages with replicas, each on its devices, by DAPPLE's planner.",
    needs=Needs.NOTHING,
    guide="layer-wise",
    parameters={
        "layerwise_from": "source of the layers",
        "layerwise_profile": "profile",
        "layerwise_model": "model",
        "layerwise_system": "system",
        "layerwise_second": "second system",
        "layerwise_gpus": "number of GPUs",
        "layerwise_tensor": "tensor parallel degree",
        "layerwise_cluster": "cluster",
        "layerwise_machines": "machines",
        "layerwise_devices": "devices per machine",
        "layerwise_inside": "rate inside a machine",
        "layerwise_reduce": "rate of all-reduces",
        "layerwise_transfer": "rate of transfers",
        "layerwise_memory": "memory of a device",
        "layerwise_optimizer": "optimizer factor",
        "layerwise_taken": "batch of the profile",
        "layerwise_batch": "global batch",
        "layerwise_microbatch": "microbatch",
        "layerwise_mode": "search",
    },
)
