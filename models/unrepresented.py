"""Parts of a published model that no figure of this product covers, in the same words on every page."""

from __future__ import annotations

from models.schema import Model

__all__ = ["unrepresented"]


def unrepresented(model: Model) -> tuple[str, ...]:
    """Returns one sentence for each part of a published model that every cost model leaves out or approximates.

    Empty for most models. What one cost model alone leaves out, such as biases, it says itself.

    Args:
        model: one that was read or made.
    """
    found, remarks = model.architecture, _tuning_remarks(model)
    if found is None:
        return (*remarks, *model.left_out)
    if extra := found.prediction_layers - found.trained_prediction_layers:
        what = "The block" if extra == 1 else f"The {extra} blocks"
        remarks.append(f"{what} for multi-token prediction {'is' if extra == 1 else 'are'} left out.")
    return (*remarks, *model.left_out)


def _tuning_remarks(model: Model) -> list[str]:
    tuning = model.tuning
    if tuning is None or tuning.frozen_weight_bits >= 16:
        return []
    return [
        f"Frozen weights in {tuning.frozen_weight_bits} bits count in memory; the time to widen them is not calibrated "
        "and left out."
    ]
