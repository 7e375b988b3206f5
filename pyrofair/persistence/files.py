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

__all__ = ["FORMAT", "Content", "read_file", "require_free", "require_path", "to_bytes", "write_file"]

FORMAT = 1
"""The version of the format; it grows with each change of what a file means."""
STRUCTURE = "structure.json"
"""The array of bytes that holds the structure, beside those named ``0``, ``1``, ..."""
MARK = "pyrofair"
"""The one entry of the metadata, format and digest, for safetensors writes several in any order."""
MOST_HEADER = 100_000_000
"""The most bytes of the header that safetensors reads."""
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Content:
    """What a file holds: a structure of JSON values, and the arrays that it refers to by name."""

    structure: dict[str, Any]
    arrays: Mapping[str, Array]


def require_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a file; what is no path is a DataError."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or isinstance(os.fspath(path), bytes):
        raise DataError(f"path={shown(path)} must be the path of a file, such as 'model.pyrofair'.")
    return Path(path).absolute()


def require_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a path at which no file can be written, or at which one is that is not to be replaced."""
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


def _digest(arrays: Mapping[str, Array]) -> str:
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
    except FileNotFoundError:
        raise DataError(f"There is no file {str(path)!r}.") from None
    except IsADirectoryError:
        raise DataError(f"{str(path)!r} is a folder, not a file that pyrofair.save wrote.") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error}.") from error
    written, _, digest = _mark(name, data).partition(" ")
    if written != str(FORMAT):
        raise DataError(
            f"{name} has the format {shown(written)}, and this version of the package reads the format {FORMAT}. Read "
            "it with the version that wrote it, or a later one."
        )
    try:
        arrays: dict[str, Array] = load_arrays(data)
        right = digest == _digest(arrays)
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise _damaged(name, f"{type(error).__name__}: {error}") from error
    if not right:
        raise _damaged(name, "its digest is not that of its content")
    try:
        structure = json.loads(bytes(arrays.pop(STRUCTURE)), parse_constant=_refuse_constant)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise _damaged(name, f"its structure cannot be read, {type(error).__name__}") from error
    if not isinstance(structure, dict):
        raise _damaged(name, "its structure is no object")
    return Content(structure, arrays)


def _damaged(name: str, why: str) -> DataError:
    return DataError(
        f"{name} is damaged ({why}). Nothing was loaded; take a whole copy of it, or save the object again."
    )


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _mark(name: str, data: bytes) -> str:
    """Return format and digest as the header names them, after the sizes in it were compared with that of the file."""
    if not data:
        raise DataError(f"{name} is empty.")
    foreign = DataError(f"{name} is no file that pyrofair.save wrote, or its first bytes are damaged.")
    if len(data) < 8:
        raise foreign
    (size,) = struct.unpack("<Q", data[:8])
    if data[8:9] != b"{" or size > MOST_HEADER:
        raise foreign
    if 8 + size > len(data):
        raise _damaged(name, f"it is cut off: its header alone takes {size} bytes, and {len(data) - 8} are there")
    try:
        header = json.loads(data[8 : 8 + size])
        about = header.get("__metadata__", {})
    except (ValueError, AttributeError, RecursionError):
        raise foreign from None
    if not isinstance(about, dict) or not isinstance(about.get(MARK), str):
        raise foreign
    try:
        ends = [int(each["data_offsets"][1]) for key, each in header.items() if key != "__metadata__"]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise _damaged(name, "its header does not describe its arrays") from error
    if 8 + size + max(ends, default=0) != len(data):
        raise _damaged(
            name,
            f"it is cut off or has more than was written: {len(data)} bytes, {8 + size + max(ends, default=0)} "
            "by its header",
        )
    return str(about[MARK])
