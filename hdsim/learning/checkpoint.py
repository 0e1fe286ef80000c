"""Checkpoints: trees of arrays and plain values in one safetensors file, which cannot hold executable code.

The arrays are tensors of the file, named by their path in the tree; all other values and the shape of the tree are one
JSON text in its header. `torch.load` with ``weights_only=True`` would need a list of harmless classes; this format
needs none, and other languages can read it without torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.util.files import replacing
from hdsim.util.inputs import parse_json
from hdsim.util.resources import bundled

#: Keys in the JSON text: an array outside of it, and a mapping with keys that are not texts.
_ARRAY, _PAIRS = "$array", "$pairs"
_HEADER, _TREE, _DIGEST = "hdsim", "tree", "sha256"


def save(path: Path, tree: Mapping[str, Any]) -> None:
    """Writes a checkpoint atomically; equal trees give equal bytes.

    Args:
        path: The file.
        tree: Mappings, lists and tuples (read back as lists) of arrays, tensors, numbers, texts, flags and None.
    """
    from safetensors.numpy import save as pack

    arrays: dict[str, np.ndarray] = {}
    encoded = _encode(tree, "", arrays)
    # One entry only: safetensors writes several in any order.
    text = json.dumps({_TREE: encoded, _DIGEST: _digest(encoded, arrays)}, separators=(",", ":"))
    with replacing(path, binary=True) as file:
        file.write(pack(arrays, {_HEADER: text}))
        # The file is on disk before the rename: a power cut leaves the old or the new checkpoint.
        file.flush()
        os.fsync(file.fileno())


def load(path: str | Path, where: str = "checkpoint", *, signed: bool = False) -> dict[str, Any]:
    """Reads a checkpoint; arrays come back as NumPy arrays.

    Args:
        path: A file that `save` wrote, or the name of a bundled one.
        where: Configuration key the path comes from, for the error message.
        signed: Whether the digest must be there; files of hdsim 0.1.0 have none.

    Raises:
        ConfigError: The file is missing, damaged, or not a checkpoint of hdsim.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        path = bundled("checkpoints").get(str(path), path)
    if not path.is_file():
        raise ConfigError(
            f"expected a checkpoint, found no file '{path}'; bundled: {', '.join(sorted(bundled('checkpoints')))}",
            where=where,
        )
    with usable(path, where):
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: np.require(file.get_tensor(name), None, "W") for name in file.keys()}  # noqa: SIM118 - no mapping
        except (SafetensorError, OSError) as error:
            raise ValueError(str(error)) from None
        header = parse_json(metadata.get(_HEADER, "null"), path, ConfigError)
        encoded = header.get(_TREE, header) if isinstance(header, dict) else None
        tree, digest = _decode(encoded, arrays), _digest(encoded, arrays)
    if not isinstance(tree, dict):
        raise ConfigError(
            f"expected a checkpoint of hdsim, '{path}' is a safetensors file of other origin", where=where
        )
    if header.get(_DIGEST, None if signed else digest) != digest:
        raise ConfigError(f"expected a checkpoint as hdsim wrote it, '{path}' has been changed since", where=where)
    return tree


@contextmanager
def usable(path: str | Path, where: str) -> Iterator[None]:
    """Converts errors caused by wrong contents of a checkpoint to messages.

    Raises:
        ConfigError: Its content is wrong.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"expected a usable checkpoint; '{path}' says {error}", where=where) from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, MemoryError) as error:
        told = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise ConfigError(f"expected a usable checkpoint; '{path}' does not fit: {told}", where=where) from None


def _digest(encoded: Any, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(encoded).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _encode(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if hasattr(value, "detach"):  # a tensor, without importing torch to ask
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        arrays[path] = np.asarray(value, order="C")
        return {_ARRAY: path}
    if isinstance(value, Mapping):
        encoded = {
            str(key): _encode(child, f"{path}.{key}" if path else str(key), arrays) for key, child in value.items()
        }
        if all(isinstance(key, str) for key in value):
            return encoded
        return {_PAIRS: [[key, child] for key, child in zip(value, encoded.values(), strict=True)]}
    if isinstance(value, list | tuple):
        return [_encode(child, f"{path}.{index}", arrays) for index, child in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(child, arrays) for child in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    if _PAIRS in value:
        return {key: _decode(child, arrays) for key, child in value[_PAIRS]}
    return {key: _decode(child, arrays) for key, child in value.items()}
