"""The file of a saved object: a safetensors file of arrays, one of them its structure as JSON, with a digest."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pyrofair._cells import write_whole
from pyrofair._validation import shown
from pyrofair.exceptions import DataError

__all__ = ["FORMAT", "MARK", "Content", "read_file", "require_free", "require_path", "to_bytes", "write_file"]

FORMAT = 2
"""The version of the format; it grows with each change of what a file means."""
STRUCTURE = "structure.json"
"""The array of bytes that holds the structure, beside those named ``0``, ``1``, ..."""
MARK = "pyrofair"
"""The one entry of the metadata, format and digest: safetensors writes several in any order."""


@dataclass(frozen=True, eq=False)
class Content:
    """What a file holds: a structure of JSON values, and the arrays that it refers to by name."""

    structure: dict[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def require_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a file; anything else is a DataError."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or isinstance(os.fspath(path), bytes):
        raise DataError(f"path={shown(path)} must be the path of a file, such as 'model.pyrofair'.")
    return Path(path).absolute()


def require_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a path at which no file can be written, or at which one stands that is not to be replaced."""
    if path.is_dir():
        raise DataError(f"path={str(path)!r} is a folder; name a file in it, such as {str(path / 'model.pyrofair')!r}.")
    if not path.parent.is_dir():
        raise DataError(f"The folder {str(path.parent)!r} does not exist; make it first, or name another.")
    if path.exists() and not overwrite:
        raise _exists(path)


def _exists(path: Path) -> DataError:
    return DataError(f"The file {str(path)!r} exists. Pass overwrite=True to replace it, or name another.")


def to_bytes(content: Content) -> bytes:
    """Return the bytes of a file; equal contents have equal bytes."""
    text = json.dumps(content.structure, allow_nan=False, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    arrays = {**content.arrays, STRUCTURE: np.frombuffer(text, dtype=np.uint8)}
    return bytes(save_arrays(arrays, metadata={MARK: f"{FORMAT} {_digest(arrays)}"}))


def write_file(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write a file whole, or not at all; one that is there is replaced only with ``overwrite``."""
    require_free(path, overwrite=overwrite)
    try:
        write_whole(path, content, replace=overwrite)
    except OSError as error:
        if overwrite or error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EXDEV):
            raise DataError(f"The file {str(path)!r} cannot be written: {error}. Name another.") from error
        write_whole(path, content)  # a file system without hard links
    if path.read_bytes() != content:
        raise _exists(path)


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a digest of the format, and of the names, types, shapes and bytes of arrays."""
    digest = hashlib.blake2b(f"pyrofair {FORMAT}".encode(), digest_size=32)
    for name in sorted(arrays):
        each = np.ascontiguousarray(arrays[name])
        about = json.dumps([name, each.dtype.name, list(each.shape)]).encode()
        digest.update(struct.pack("<Q", len(about)) + about)
        digest.update(each.tobytes())
    return digest.hexdigest()


def read_file(path: Path) -> Content:
    """Return what a file holds, after its digest was compared.

    Raises
    ------
    DataError
        If there is no such file; if it is empty, cut off, damaged, no file of this package, or of another format.
    """
    name = f"The file {str(path)!r}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}.") from error
    try:
        (size,) = struct.unpack("<Q", data[:8])
        written, _, digest = json.loads(data[8 : 8 + size])["__metadata__"][MARK].partition(" ")
    except (struct.error, OverflowError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        what = "is empty" if not data else "is not a file that pyrofair.save wrote, or its first bytes are damaged"
        raise DataError(f"{name} {what}.") from None
    if written != str(FORMAT):
        raise DataError(
            f"{name} has the format {shown(written)}, and this version of the package reads the format {FORMAT}. Read "
            "it with the version that wrote it."
        )
    try:
        arrays: dict[str, NDArray[Any]] = load_arrays(data)  # compares all sizes with the length of the file
        if digest != _digest(arrays):
            raise ValueError("its digest is not that of its content")
        structure = json.loads(bytes(arrays.pop(STRUCTURE)), parse_constant=_refuse_constant)
        if not isinstance(structure, dict):
            raise TypeError("its structure is not an object")
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{name} is damaged or cut off ({error}). Nothing was loaded; take a whole copy of it, or save the object "
            "again."
        ) from error
    return Content(structure, arrays)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")
