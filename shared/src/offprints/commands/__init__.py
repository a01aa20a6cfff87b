"""The verbs of the command line; `cli` runs them and tells their errors in one line."""

from offprints.claims import MissingResource
from offprints.claims.executors import ExecutorError
from offprints.commands import check, look, measure
from offprints.commands.base import dispatch

EXPECTED = (ValueError, TypeError, OSError, MissingResource, ExecutorError)
"""Errors that are told in one line, without a traceback."""
__all__ = ["EXPECTED", "check", "dispatch", "look", "measure"]
