"""`rote.index`: exact search over a corpus. One module for each command."""

from rote.jobs.index.build import build
from rote.jobs.index.count import count
from rote.jobs.index.find import find
from rote.jobs.index.next import next
from rote.jobs.index.trace import trace

__all__ = ["build", "count", "find", "next", "trace"]
