"""Schedules of pipelines as events: what every stage does when."""

from engine.simulate.many import Many, replay_many
from engine.simulate.replay import Replay, replay
from engine.simulate.schedules.contract import ScheduleError
from engine.simulate.schedules.registry import NAMES

__all__ = ["NAMES", "Many", "Replay", "ScheduleError", "replay", "replay_many"]
