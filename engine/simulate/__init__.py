"""Schedules of pipelines as events: what every stage does when."""

from engine.simulate.replay import Replay, replay
from engine.simulate.schedules.contract import ScheduleError
from engine.simulate.schedules.registry import NAMES

__all__ = ["NAMES", "Replay", "ScheduleError", "replay"]
