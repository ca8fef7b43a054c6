"""One registered part of a client's shared memory object, read and written by copies alone.

The object is never mapped: its owner may shrink it at any moment, and whoever then touches a mapping of it is killed by
SIGBUS. Reading and writing its descriptor tells the same in words. A copy is needed anyway, for its owner may change
what was checked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from service.client_text import name_text
from service.errors import InvalidInput, Overloaded

FOLDER = Path("/dev/shm")
"""Where Linux keeps POSIX shared memory objects, as files."""

MAX_NAME_BYTES = 255

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """What a client registers.

    Attributes:
        name: of the region; requests name it by that.
        key: of the POSIX shared memory object.
        offset: where in the object the region begins, in bytes.
        nbytes: size of the region.
    """

    name: str
    key: str
    offset: int
    nbytes: int


class Identity(NamedTuple):
    """Which object it is, whatever its key means by now.

    Attributes:
        device: number of its file system.
        inode: number of its file.
    """

    device: int
    inode: int


class SharedRegion:
    """A region whose object is open for as long as anybody holds it; whoever makes it is the first. On the event loop.

    Args:
        spec: what was registered.
        fd: descriptor of the object, which is the region's to close.
    """

    __slots__ = ("_holders", "fd", "spec")

    def __init__(self, spec: RegionSpec, fd: int) -> None:
        self.spec = spec
        self.fd = fd
        self._holders = 1

    def __repr__(self) -> str:
        return f"<SharedRegion {self.spec.name} {self.spec.key} holders={self._holders}>"

    @property
    def object_bytes(self) -> int:
        """Size of the whole object now."""
        return os.fstat(self.fd).st_size

    @property
    def identity(self) -> Identity:
        """Which object it is."""
        return _identity(self.fd)

    def retain(self) -> None:
        """One more holds it."""
        self._holders += 1

    def release(self) -> None:
        """One fewer holds it; the last closes the object."""
        self._holders -= 1
        if not self._holders:
            os.close(self.fd)

    def check(self, offset: int, nbytes: int, what: str) -> None:
        """Refuses what lies outside the region.

        Args:
            offset: where it begins, from the beginning of the region; not negative.
            nbytes: its size; not negative.
            what: is there, for the message.

        Raises:
            InvalidInput: names the region, its size and what was asked.
        """
        if offset + nbytes > self.spec.nbytes:
            raise InvalidInput(
                f"{what} takes {nbytes} bytes at offset {offset} of shared memory region {name_text(self.spec.name)}, "
                f"which has {self.spec.nbytes} bytes; name a place inside it, or register a larger region"
            )

    def read_into(self, host_buffer: memoryview, offset: int) -> None:
        """Copies from the region; blocking, as copying is.

        Args:
            host_buffer: uint8, one dimension, writable; filled completely.
            offset: where to begin, from the beginning of the region.

        Raises:
            InvalidInput: the object has shrunk.
        """
        done = 0
        while done < len(host_buffer):
            got = os.preadv(self.fd, [host_buffer[done:]], self.spec.offset + offset + done)
            if not got:
                raise self._shrunk()
            done += got

    def write(self, data: memoryview, offset: int) -> None:
        """Copies into the region, and never makes the object longer; blocking, as copying is.

        Args:
            data: uint8, one dimension.
            offset: where to begin, from the beginning of the region.

        Raises:
            InvalidInput: the object has shrunk.
            Overloaded: the system has no memory left for it.
        """
        start = self.spec.offset + offset
        if start + len(data) > self.object_bytes:
            raise self._shrunk()
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self.fd, data[done:], start + done)
        except OSError as error:
            raise Overloaded(
                f"shared memory region {name_text(self.spec.name)} cannot be written ({error.strerror}); "
                f"make room in {FOLDER}",
                retry_after_s=_RETRY_AFTER_S,
            ) from None

    def _shrunk(self) -> InvalidInput:
        spec = self.spec
        return InvalidInput(
            f"shared memory region {name_text(spec.name)} was registered as {spec.nbytes} bytes at offset "
            f"{spec.offset} of {name_text(spec.key)}, which has {self.object_bytes} bytes by now; do not shrink it "
            "while it is registered"
        )


def open_region(spec: RegionSpec, folder: Path = FOLDER) -> SharedRegion:
    """Opens what a client registers, held once; the object must be a plain file of the folder, and large enough.

    Args:
        spec: what is registered.
        folder: of the objects.

    Raises:
        InvalidInput: the key names no such object, or the region does not fit into it.
    """
    path = _path(spec.key, folder)
    with _told(spec, path):
        fd = os.open(path, _FLAGS)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{_subject(spec)} is no shared memory object; make it by shm_open")
        if spec.offset + spec.nbytes > found.st_size:
            raise InvalidInput(
                f"{_subject(spec)} has {found.st_size} bytes; {spec.nbytes} bytes at offset {spec.offset} do not lie "
                "in it; create it larger (ftruncate), or register less"
            )
    except BaseException:
        os.close(fd)
        raise
    return SharedRegion(spec, fd)


def reopen_region(spec: RegionSpec, path: Path, identity: Identity) -> SharedRegion:
    """Opens what another process has open, held once.

    Args:
        spec: what was registered.
        path: of the other process's descriptor.
        identity: of the object.

    Raises:
        OSError: it is not there, or is another object by now.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    if _identity(fd) != identity:
        os.close(fd)
        raise FileNotFoundError(f"{path} is another object than {spec.key}")
    return SharedRegion(spec, fd)


def _identity(fd: int) -> Identity:
    found = os.fstat(fd)
    return Identity(found.st_dev, found.st_ino)


def _path(key: str, folder: Path) -> Path:
    """Where the object of a key is: as `shm_open` has it, one name, with or without the slash before it.

    Raises:
        InvalidInput: the key leads elsewhere.
    """
    name = key.removeprefix("/")
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(os.fsencode(name)) > MAX_NAME_BYTES:
        raise InvalidInput(
            f"'key' is {name_text(key)}, expected the name of a POSIX shared memory object such as '/frames': at most "
            f"{MAX_NAME_BYTES} bytes, and no slash but the first"
        )
    return folder / name


def _subject(spec: RegionSpec) -> str:
    return f"shared memory object {name_text(spec.key)} of region {name_text(spec.name)}"


@contextmanager
def _told(spec: RegionSpec, path: Path) -> Iterator[None]:
    """Says of what cannot be opened why, and how to mend it."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidInput(
            f"{_subject(spec)} is not in {path.parent}; create it before it is registered, and let containers share "
            f"{path.parent} (--ipc)"
        ) from None
    except PermissionError:
        raise InvalidInput(
            f"{_subject(spec)} may not be read and written by the server's user; run both as one user, or set the "
            "object's mode to 0666"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{_subject(spec)} cannot be opened as a shared memory object: {error}") from None
