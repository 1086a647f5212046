"""Models and systems as callers give them: by name, by path, or as objects."""

from __future__ import annotations

import os

import hardware
import models
from hardware import System
from models import Model

__all__ = ["ModelLike", "SystemLike", "model_of", "system_of"]

ModelLike = str | os.PathLike[str] | Model
SystemLike = str | os.PathLike[str] | System


def model_of(model: ModelLike) -> Model:
    """The model itself, or the one of a library name or path. Raises `models.ModelFileError`."""
    return model if isinstance(model, Model) else models.load(model)


def system_of(system: SystemLike) -> System:
    """The system itself, or the one of a library name or path. Raises `hardware.SystemFileError`."""
    return system if isinstance(system, System) else hardware.load(system)
