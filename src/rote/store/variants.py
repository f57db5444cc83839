"""What variants.json says: a sample of a scan's windows, tried as they would be after other steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Windows that `steps` change: how many a scan has, how many were tried, and how many of these surely reach tau.

    `before` as they were scored, `after` as they are after the steps, which include those of the scan itself.
    """

    steps: list[str]
    affected: int
    windows: int
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class Variants:
    format: int
    trials: list[Trial]
