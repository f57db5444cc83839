"""The extraction benchmark: public as `rote.bench`."""

from rote.jobs.bench.attack import attack

__all__ = ["attack"]
