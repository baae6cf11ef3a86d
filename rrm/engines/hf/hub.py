"""Download and upload repositories of the Hugging Face hub."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Literal

from rrm.errors import DownloadError

log = logging.getLogger(__name__)
# no pickles, no other framework's weights
WANTED = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model", "README.md"]
UNWANTED = ["onnx/*", "runs/*", "checkpoint-*/*"]


def download(
    repo: str, *, revision: str | None = None, token: str | None = None, weights: bool = True, code: bool = False
) -> Path:
    """Folder of a repository's snapshot in the hub's own cache, fetched where it is missing.

    Args:
        token: for private repositories; default: HF_TOKEN or the one of `hf auth login`.
        code: fetch Python too; who loads it trusts it.

    Raises:
        DownloadError: no such repository or revision, no access, or no network and not in the cache.
    """
    from huggingface_hub import snapshot_download

    ignored = UNWANTED if weights else [*UNWANTED, "*.safetensors"]
    patterns = [*WANTED, "*.py"] if code else WANTED
    try:
        return Path(
            snapshot_download(repo, revision=revision, token=token, allow_patterns=patterns, ignore_patterns=ignored)
        )
    except (OSError, ValueError) as error:  # the hub's HTTP, cache and name errors all derive from these
        suffix = f" at {revision}" if revision else ""
        raise DownloadError(f"the hub does not give {repo}{suffix}: {_first_line(error)}") from error


def commit_of(repo: str, *, revision: str | None = None, kind: Literal["model", "dataset"] = "model") -> str | None:
    """Commit of a branch or tag; offline, of a model the cached one; None where unknown."""
    from huggingface_hub import HfApi, constants

    if revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    try:
        return HfApi().repo_info(repo, revision=revision, repo_type=kind, timeout=10).sha
    except Exception as error:  # noqa: BLE001 - without a network it is the HTTP library's own errors, whichever that is
        log.debug("the hub does not say at which commit %s is: %s", repo, _first_line(error))
    if kind == "dataset":  # its rows are streamed, whatever the cache has
        return None
    ref_file = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "refs" / (revision or "main")
    return ref_file.read_text().strip() if ref_file.is_file() else None


def upload(
    folder: Path,
    repo: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    message: str = "Upload a judge",
) -> str:
    """Commit a folder to a repository, created where missing; returns the commit's address.

    Raises DownloadError: no access, no network, or a name that the hub does not take."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repo, folder_path=folder, revision=revision, commit_message=message))
    except (OSError, ValueError) as error:
        raise DownloadError(f"cannot write {repo} on the hub: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
