"""What a model's name means: a folder, a GGUF file or a hub id. One that means nothing is refused at once."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rote.errors import InputError, ModelError, argument
from rote.models.base import BUNDLED, BUNDLED_CHAT, LogitModel, ModelOptions

HUB_SECONDS = 5.0
"""How long the hub may take to say that it has a model."""

GIVE = "Give an existing model folder, a .gguf file, a hub id that this machine can reach, or 'bundled'."


@dataclass(frozen=True, slots=True)
class Found:
    """A model's files: what transformers is to be handed, and the names of the files that are there.

    `source` is a folder or a hub id; `given` are the options that say where in it.
    """

    name: str
    source: str
    given: dict[str, Any] = field(default_factory=dict)
    files: frozenset[str] = frozenset()

    @property
    def local(self) -> bool:
        return Path(self.source).is_dir()


@contextmanager
def quietly() -> Iterator[None]:
    """Around what imports tqdm, which warns in a notebook without widgets: no bars are drawn here anyway."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        yield


def load_found(name: str | Path, options: ModelOptions) -> LogitModel:
    """Load a model of transformers, found and looked through first: that takes no time, and importing torch does."""
    found = find(name, options.revision)
    from rote.models.safety import refuse_unsafe

    refuse_unsafe(found, trust=options.trust_remote_code)
    from rote.models.huggingface import load_huggingface

    return load_huggingface(found, options)


def find(name: str | Path, revision: str | None = None, *, download: bool = True) -> Found:
    """Where a model is. Without `download`, a hub id is looked for in this machine's cache alone."""
    found = _on_this_machine(name)
    if found is None:
        return _on_the_hub(str(name), revision, download)
    if revision is not None:
        raise InputError(
            f"{argument('revision')} is for models of the hub, and {name} is on this machine; leave it out."
        )
    return found


def _on_this_machine(name: str | Path) -> Found | None:
    path = {"bundled": BUNDLED, "bundled-chat": BUNDLED_CHAT}.get(str(name), Path(name))
    try:
        path.exists()
    except (OSError, ValueError) as error:  # too long for a name, or with a NUL
        raise ModelError(f"{str(name)[:60]!r} is no name of a model: {error.__class__.__name__}. {GIVE}") from error
    if path.suffix == ".gguf" and path.is_file():
        return Found(str(name), str(path.parent), {"gguf_file": path.name}, _names(path.parent))
    if path.is_dir():
        files = _names(path)
        if "config.json" in files:
            return Found(str(name), str(path), {}, files)
        if "adapter_config.json" in files:
            raise ModelError(
                f"the folder {path} holds an adapter, not a model. Give the model that it was trained on as "
                f"{argument('model')}, and this folder as {argument('adapter')}."
            )
        raise ModelError(f"the folder {path} has no config.json: it is not a Hugging Face model; check the path.")
    if path.exists():
        raise ModelError(f"{path} is a file, not a model: give a model folder, a .gguf file or a hub id.")
    if path.suffix == ".gguf":
        raise ModelError(f"there is no GGUF file at {path}{_instead(path)}")
    if isinstance(name, Path) or _is_path(str(name)):
        raise ModelError(f"there is no model at {name}{_instead(path)}")
    if get_close_matches(str(name).lower(), ["bundled"], cutoff=0.75):
        raise ModelError(f"there is no model {str(name)!r}; did you mean 'bundled'?")
    return None


def find_adapter(name: str, *files: str) -> Path:
    """The folder on this machine that has an adapter's files, from the hub if need be."""
    path = Path(name).expanduser()
    if path.is_dir():
        there, folder = _names(path), path
    elif _is_path(name) or path.exists():
        raise ModelError(f"there is no adapter at {name}: give the folder of one, or a hub id.")
    else:
        found = _on_the_hub(name, None, True, files[0])
        there, folder = found.files, None
    if files[0] not in there:
        raise ModelError(f"{name} has no {files[0]}: it is not a PEFT adapter; check the path.")
    if files[1] not in there:
        pickled = "; its adapter_model.bin is a pickle, which can run any code" if "adapter_model.bin" in there else ""
        raise ModelError(
            f"the adapter {name} has no {files[1]}{pickled}. Save it again from where it was trained: "
            "model.save_pretrained(folder)."
        )
    if folder is not None:
        return folder
    from transformers.utils.hub import cached_file

    try:
        fetched = [Path(str(cached_file(name, file, **found.given))) for file in files]
    except Exception as error:  # of the network, in whatever library asks it
        raise ModelError(f"could not fetch the adapter {name!r}: {error}") from error
    return fetched[0].parent


def _names(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir())


def _is_path(name: str) -> bool:
    """Whether a name can only be that of a folder: no hub id looks like it, or its first part is a folder here."""
    first, slash, _ = name.partition("/")
    by_its_looks = name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1 or name.endswith("/")
    return by_its_looks or re.match(r"[A-Za-z]:", name) is not None or bool(slash and Path(first).is_dir())


def _instead(path: Path) -> str:
    """What is there instead: the names beside the first part of a path that is missing."""
    home = path.expanduser()
    if home.exists():
        return f"; did you mean {str(home)!r}?"
    missing = next((part for part in (*reversed(path.parents), path) if not part.exists()), path)
    if not missing.parent.is_dir():
        return "; check the path."
    close = get_close_matches(missing.name, sorted(_names(missing.parent)))
    instead = " or ".join(repr(str(missing.parent / name / path.relative_to(missing))) for name in close)
    if close:
        return f"; did you mean {instead}?"
    return f": {str(missing.parent.resolve())!r} has no {missing.name!r}; check the path."


# --- the hub


def _on_the_hub(name: str, revision: str | None, download: bool, config: str = "config.json") -> Found:
    with quietly():
        from huggingface_hub import constants
        from huggingface_hub.errors import HFValidationError

    try:
        cached = _cached(name, revision, config)
    except HFValidationError as error:
        raise ModelError(f"{name!r} is no model folder here, and no hub id could be called so. {GIVE}") from error
    given = {} if revision is None else {"revision": revision}
    reason = "HF_HUB_OFFLINE is set, so the hub was not asked" if download else "nothing is downloaded here"
    if download and not constants.HF_HUB_OFFLINE:
        listed, reason = _ask(name, revision)
        if listed is not None:
            return Found(name, name, given, listed)
    if cached is None:
        missing = f"it is not on this machine (in {constants.HF_HUB_CACHE})"
        beside = get_close_matches(name, sorted(path.name for path in Path().iterdir() if path.is_dir()))
        mean = f" Did you mean the folder {beside[0]!r}?" if beside else ""
        raise ModelError(f"could not load the model {name!r}: {reason}, and {missing}.{mean} {GIVE}")
    return Found(name, str(cached), {}, _names(cached))  # as a folder: a library that has the id asks the hub again


def _cached(name: str, revision: str | None, file: str) -> Path | None:
    """The snapshot of a hub model, or of what else has such a file, that this machine has kept."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, file, revision=revision)
    return Path(config).parent if isinstance(config, str) else None


def _ask(name: str, revision: str | None) -> tuple[frozenset[str] | None, str]:
    """The files of a hub model; or None, and why there is no answer. It is asked once: nobody is kept waiting."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    hub = constants.ENDPOINT
    try:
        siblings = HfApi().model_info(name, revision=revision, timeout=HUB_SECONDS).siblings
    except GatedRepoError as error:
        raise ModelError(
            f"{hub} gives {name!r} only to those who have asked for it: ask on its page, then log in (hf auth login)."
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"there is no model {name!r} on {hub}, or it is private. Check the spelling, or log in (hf auth login)."
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(
            f"{name!r} has no {argument('revision', revision)} on {hub}; give one that its page lists."
        ) from error
    except HfHubHTTPError as error:
        return None, f"{hub} answered with an error ({error.response.status_code})"
    except Exception as error:  # of the network, in whatever library asks it
        first = str(error).strip().splitlines()
        return None, f"{hub} cannot be reached from here ({first[0] if first else type(error).__name__})"
    return frozenset(sibling.rfilename for sibling in siblings or ()), ""
