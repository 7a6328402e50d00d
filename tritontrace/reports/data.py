"""A session as JSON-ready data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritontrace.clients.profiling.profile import Profile

if TYPE_CHECKING:
    from tritontrace.reports.text import ReportSource

__all__ = ["REPORT_SCHEMA_VERSION", "as_dict"]

REPORT_SCHEMA_VERSION = 1
"""Version of what `as_dict` returns; raised when a key changes its meaning."""


def as_dict(session: ReportSource) -> dict[str, Any]:
    """``schema_version``, every launch (`Launch.to_dict`, with its findings), all findings in one list, and the
    profiles (`Profile.to_dict`) with the index of their ``launch``."""
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "launches": [launch.to_dict() for launch in session.launches],
        "findings": [finding.to_dict() for finding in session.findings],
        "profiles": [
            {"launch": launch.index, **record.to_dict()}
            for launch in session.launches
            for record in launch.records.get("profiler", ())
            if isinstance(record, Profile)
        ],
    }
