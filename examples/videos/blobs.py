"""A blob store on disk: a path, its bytes, and what they are. Behind these four verbs could be S3."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

_TYPE = ".content-type"


class Blobs:
    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, source: Path, content_type: str) -> None:
        """Store a file's bytes. Whoever is killed meanwhile leaves no half of a blob under its name."""
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f"{place.name}.{uuid4().hex}.part")
        try:
            part.write_text(content_type)
            os.replace(part, place.with_name(place.name + _TYPE))
            shutil.copyfile(source, part)
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)

    def get(self, path: str, target: Path) -> None:
        """Copy a blob's bytes to a file."""
        place = self._place(path)
        if not place.is_file():
            raise FileNotFoundError(
                f"source blob not found: {path}; put it back and retry the job, or delete its media"
            )
        shutil.copyfile(place, target)

    def find(self, path: str) -> tuple[Path, str] | None:
        """Where it is, and its content type; None: there is none."""
        place = self._place(path)
        if not place.is_file():
            return None
        return place, place.with_name(place.name + _TYPE).read_text()

    def delete(self, path: str) -> None:
        """Remove it. One that is gone already is no error: who deletes may be asked twice."""
        place = self._place(path)
        place.unlink(missing_ok=True)
        place.with_name(place.name + _TYPE).unlink(missing_ok=True)

    def _place(self, path: str) -> Path:
        place = (self.root / path).resolve()
        if not place.is_relative_to(self.root.resolve()):
            raise ValueError(f"blob path {path!r} leads out of the store: give one inside it")
        return place
