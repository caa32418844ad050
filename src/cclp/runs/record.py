"""The only reader of a run directory."""

from cclp.runs.directory import read_json
from cclp.runs.directory import read_run as read_config

__all__ = ["read_config", "read_json"]
