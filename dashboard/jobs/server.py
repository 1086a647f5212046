"""Shared objects of all sessions of a server: the board, the workers, and the services that use them."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Final

import streamlit as st

from dashboard.jobs.board import JobBoard
from dashboard.jobs.codesign_studies import codesign_studies, study_times
from dashboard.jobs.design_sensitivity import design_sensitivity
from dashboard.jobs.elastic_plans import elastic_plans
from dashboard.jobs.explorations import Explorations
from dashboard.jobs.fine_tuning import fine_tuning_plans
from dashboard.jobs.fleet_plans import fleet_plans
from dashboard.jobs.layer_plans import layer_plans
from dashboard.jobs.operator_plans import operator_plans
from dashboard.jobs.paper_figures import paper_figures
from dashboard.jobs.post_training import post_training_plans
from dashboard.jobs.questions import Questions
from dashboard.jobs.recommendations import Recommendations
from dashboard.jobs.run_plans import run_plans
from dashboard.jobs.studies import Studies
from dashboard.jobs.unstored_statistics import UnstoredStatistics
from dashboard.jobs.uploads import UploadReader
from dashboard.jobs.worker import Workers
from dashboard.settings import Settings, settings_from

__all__ = ["Server", "explorations", "questions", "server", "studies", "unstored_statistics"]

TURN: Final = 0.001
"""Time that a thread computes while others wait [s]."""


class Server:
    """One of each."""

    def __init__(self, settings: Settings) -> None:
        """Start the workers in advance, so that the first visitor does not wait, unless switched off."""
        self.workers = Workers(apart=settings.process)
        self.workers.start()
        self.board = JobBoard(settings.patience)
        self.explorations = Explorations(settings, self.board, self.workers)
        self.recommendations = Recommendations(self.board, self.workers.answers)
        self.unstored_statistics = UnstoredStatistics(self.board, self.workers.answers)
        self.questions = Questions(self.board, self.workers.answers)
        self.studies = Studies(self.board, self.workers.answers, self.questions.kind)
        self.layer_plans = layer_plans(self.workers.answers)
        self.run_plans = run_plans(self.workers.answers)
        self.fleet_plans = fleet_plans(self.workers.answers)
        self.fine_tuning_plans = fine_tuning_plans(self.workers.answers)
        self.post_training_plans = post_training_plans(self.workers.answers)
        self.elastic_plans = elastic_plans(self.workers.answers)
        self.codesign_studies = codesign_studies(self.workers.answers)
        self.study_times = study_times(self.workers.answers)
        self.design_sensitivity = design_sensitivity(self.workers.answers)
        self.operator_plans = operator_plans(self.workers.answers)
        self.paper_figures = paper_figures(self.workers.answers)
        self.uploads = UploadReader(apart=self.workers.answers.apart)
        self.settings = settings

    def close(self) -> None:
        """Stops everything and gives the store back."""
        self.workers.close()
        self.uploads.close()
        self.board.close()
        self.explorations.close()


@st.cache_resource(show_spinner=False, on_release=Server.close, max_entries=1)
def server() -> Server:
    """Returns what the server's sessions share."""
    # Threads take turns of 5 ms by default: one that is needed for an instant waits as long for every page at work.
    sys.setswitchinterval(TURN)
    made = Server(settings_from(os.environ))
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made


def explorations() -> Explorations:
    """Returns the explorations of the server."""
    return server().explorations


def questions() -> Questions:
    """Returns what answers What-if's questions."""
    return server().questions


def studies() -> Studies:
    """Returns What-if's studies."""
    return server().studies


def unstored_statistics() -> UnstoredStatistics:
    """Returns what evaluates statistics that are not stored."""
    return server().unstored_statistics
