"""A run folder is tested with runs that are made as a scan makes them."""

from tests.jobs.conftest import model, small_shards, text, undisturbed

__all__ = ["model", "small_shards", "text", "undisturbed"]
