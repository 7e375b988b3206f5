"""The file of a saved object: a line with a digest, and arrays as safetensors, one of them its structure as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pyrofair._files import write_whole
from pyrofair.exceptions import DataError

__all__ = ["FORMAT", "Content", "from_bytes", "read_file", "require_free", "to_bytes", "write_file"]

FORMAT = 2
"""The version of the format; it grows with each change of what a file means."""
LINE = re.compile(rb"pyrofair ([0-9]+) ([0-9a-f]{64})\n")
"""The first line of a file: its format, and the digest of what follows, which is a file of safetensors."""
STRUCTURE = "structure.json"
"""The array of bytes that holds the structure, beside those named ``0``, ``1``, ..."""


@dataclass(frozen=True, eq=False)
class Content:
    """What a file of ``size`` bytes holds: a structure of JSON values, and the arrays that it refers to by name."""

    structure: dict[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    size: int = 0


def require_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a path at which no file can be written, or at which one stands that is not to be replaced."""
    if path.is_dir():
        raise DataError(f"path={str(path)!r} is a folder; name a file in it, such as {str(path / 'model.pyrofair')!r}.")
    if not path.parent.is_dir():
        raise DataError(f"The folder {str(path.parent)!r} does not exist; make it first, or name another.")
    if path.exists() and not overwrite:
        raise DataError(f"The file {str(path)!r} exists. Pass overwrite=True to replace it, or name another.")


def to_bytes(content: Content) -> bytes:
    """Return the bytes of a file; equal contents have equal bytes."""
    text = json.dumps(content.structure, allow_nan=False, separators=(",", ":")).encode("ascii")
    body = bytes(save_arrays({**content.arrays, STRUCTURE: np.frombuffer(text, dtype=np.uint8)}))
    return f"pyrofair {FORMAT} {_digest(body)}\n".encode() + body


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=32).hexdigest()


def write_file(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write a file whole, or not at all; one that is there is replaced only with ``overwrite``."""
    try:
        write_whole(path, content, replace=overwrite)
    except FileExistsError:
        require_free(path, overwrite=overwrite)
    except OSError as error:
        raise DataError(f"The file {str(path)!r} cannot be written: {error.strerror}. Name another.") from error


def read_file(path: Path) -> Content:
    """Return what a file holds, after its digest was compared; a DataError if there is none, or for its bytes."""
    try:
        return from_bytes(path.read_bytes(), f"The file {str(path)!r}")
    except OSError as error:
        raise DataError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error


def from_bytes(data: bytes, name: str) -> Content:
    """Return what a file of some name holds by its bytes; a DataError if they are not whole, or of another format."""
    if (line := LINE.match(data)) is None:
        what = "is empty" if not data else "is not a file that pyrofair.save wrote, or its first bytes are damaged"
        raise DataError(f"{name} {what}.")
    written, digest = (each.decode("ascii") for each in line.groups())
    if written != str(FORMAT):
        what = f"{name} has the format {written}, and this version of the package reads the format {FORMAT}"
        raise DataError(f"{what}. Read it with the version that wrote it.")
    body = data[line.end() :]
    try:
        if digest != _digest(body):
            raise ValueError("its digest is not that of its content")
        arrays: dict[str, NDArray[Any]] = load_arrays(body)  # compares all sizes with the length of the file
        structure = json.loads(bytes(arrays.pop(STRUCTURE)))
    except (SafetensorError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise DataError(f"{name} is damaged or cut off ({error}). Take a whole copy of it, or save again.") from error
    return Content(structure, arrays, len(data))
