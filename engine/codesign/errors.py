"""Errors of a study, its folder or the machines that it runs on."""

from __future__ import annotations

from models.documents import DocumentError

__all__ = ["ClusterError", "FolderError", "StudyCancelled", "StudyError"]


class StudyError(DocumentError):
    """Study that cannot be run or queried; the message is one sentence with a valid form."""


class FolderError(StudyError):
    """A folder of results that cannot be read or written, or that holds another study."""


class ClusterError(StudyError):
    """Workers that are gone, or that run another version of Shardscape; results in the folder stay valid."""


class StudyCancelled(Exception):  # noqa: N818 - not an error of anyone's
    """Run stopped by the caller; written parts stay, and the next run continues from them."""
