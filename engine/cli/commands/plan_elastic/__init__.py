"""The commands `plan elastic ...`: one module for the longer ones, `commands` for the others."""

from engine.cli.commands.plan_elastic.commands import elastic_app

__all__ = ["elastic_app"]
