"""What went wrong, in words that name the file, option or row and say what to do.

The command line prints these without a traceback.
"""

from __future__ import annotations


class RoteError(Exception):
    """Base of every error a user can cause and mend."""


class InputError(RoteError):
    """A text, an example or an option that cannot be used as given."""


class ModelError(RoteError):
    """A model that cannot be loaded, or that returned something no probability can be computed from."""


class RunError(RoteError):
    """A run folder that cannot be written, read or continued."""
