"""Fine-tuning against measured runs: full, with adapters, and with quantised frozen weights."""

from engine.validation.fine_tuning.runs import current_residuals, error_medians, fine_tuning_runs, predict_fine_tuning

__all__ = ["current_residuals", "error_medians", "fine_tuning_runs", "predict_fine_tuning"]
