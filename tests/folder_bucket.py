"""A folder on this machine that holds all buckets of gs://, for tests that need no server."""

import datetime

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem


class _Files(LocalFileSystem):
    """Files on this machine, with times as of gcsfs."""

    cachable = False

    def info(self, path, **more):
        found = super().info(path, **more)
        return found | {'mtime': datetime.datetime.fromtimestamp(found['mtime'])}


class Buckets:
    """The file system in which gs://NAME/PATH is FOLDER/NAME/PATH."""

    def __init__(self, folder):
        self._files = DirFileSystem(str(folder), _Files(auto_mkdir=True))

    def __getattr__(self, method):
        def call(*args, **more):
            names = (arg.removeprefix('gs://') if isinstance(arg, str) else arg for arg in args)
            return getattr(self._files, method)(*names, **more)

        return call
