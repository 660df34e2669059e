"""Models and data of the Hugging Face Hub: names hf://… stand for a copy on this machine.

    hf://ORG/NAME[@REVISION]                  a model; of models also ORG/NAME
    hf://datasets/ORG/NAME[@REVISION]/PATH    files of a data set; PATH may be a glob

A revision is a branch, a tag or a commit; only a commit is always the same. Its slashes may be
written %2F, as for HfFileSystem: @refs%2Fconvert%2Fparquet, which @~parquet is too. Files are
downloaded by huggingface_hub to its cache, whose variables (HF_TOKEN, HF_HOME, HF_ENDPOINT,
HF_HUB_OFFLINE) hold here too. The rest of the project sees folders on a disk.
"""

import concurrent.futures
import contextlib
import fnmatch
import functools
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from bert_jax import limits
from bert_jax.errors import UserError
from bert_jax.storage import names
from bert_jax.storage.disk_folder import DiskFolder
from bert_jax.storage.path import is_on_hub

if TYPE_CHECKING:
    import huggingface_hub

SCHEME = 'hf'
_REPOSITORY = r'(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/\w+/[^/@]+|[^/@]+))?'
_NAME = re.compile(rf'hf://(?P<kind>datasets/)?{_REPOSITORY}(?:/(?P<path>.+))?')
_COMMIT = r'[0-9a-f]{40}'
_SETTINGS = ('*.json', '*.txt', '*.model', '*.md')
_WEIGHTS = (('*.safetensors',), ('*.bin', '*.pt', '*.ckpt*'))  # the second if there are none
_DOWNLOADS = 8  # at a time
_LEFT_OUT = ('*.onnx*', 'onnx/*', 'openvino/*', 'coreml/*', '*/checkpoint-*')


class _Name(NamedTuple):
    """The parts of a name; `path` is '' for a whole model."""

    is_dataset: bool
    repository: str
    revision: str | None
    path: str

    @property
    def kind(self) -> Literal['dataset', 'model']:
        return 'dataset' if self.is_dataset else 'model'

    @property
    def branch(self) -> str:
        """The revision that is asked for."""
        return self.revision or 'main'


def model_name(name: str | os.PathLike[str]) -> str:
    """Return the name of a model; ORG/NAME becomes hf://ORG/NAME if there is no folder ORG."""
    text = os.fspath(name)
    is_model = re.fullmatch(_REPOSITORY, text) and not text.startswith(('.', '~'))
    return f'{SCHEME}://{text}' if is_model and not pathlib.Path(text).parent.exists() else text


def repository(name: str) -> str:
    """Return ORG/NAME of a name, or the last part of any other path."""
    return _parse(name).repository if is_on_hub(name) else pathlib.PurePath(name).name


def check_not_written(name: str | os.PathLike[str], option: str) -> None:
    """Raise UserError for an output hf://…."""
    if is_on_hub(name):
        raise UserError(
            f'{option} is {os.fspath(name)!r}, but outputs are written to disks and buckets; '
            'upload a model with export --push'
        )


@functools.cache  # one request for each name and process
def fetch(name: str, with_weights: bool = True) -> pathlib.Path:
    """Download what is not in the cache yet; return the folder, or the file or glob in it.

    Args:
        name: hf://….
        with_weights: whether the weights of a model are needed.

    Raises:
        UserError: the name is not valid, or the files are neither in the cache nor reachable.
    """
    own = _parse(name)
    if own.is_dataset:
        return _download(name, own, (own.path,)) / own.path
    below = f'{own.path}/' * bool(own.path)
    allowed = [f'{below}{pattern}' for pattern in _SETTINGS]
    safe, others = ([f'{below}{pattern}' for pattern in patterns] for patterns in _WEIGHTS)
    folder = _download(name, own, (*allowed, *safe * with_weights)) / own.path
    if with_weights and not any(folder.rglob('*.safetensors')):
        _download(name, own, (*allowed, *others))
    return folder


def check_can_push(repository: str) -> None:
    """Raise UserError unless a name is ORG/NAME and a token is set."""
    if not re.fullmatch(r'[\w.-]+/[\w.-]+', repository):
        raise UserError(f'--push={repository}: the name must be ORG/NAME')
    import huggingface_hub

    if not huggingface_hub.get_token():
        raise UserError('--push needs a token with write access: set HF_TOKEN, or `hf auth login`')


def push(folder: pathlib.Path, repository: str) -> str:
    """Upload a folder as a commit of a model, which is created if necessary; return its address.

    Raises:
        UserError: the upload was refused or failed.
    """
    with _requests(f'{folder} cannot be uploaded to {repository}', 'check HF_TOKEN'):
        api = _api()
        api.create_repo(repository, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder)
    return str(commit.commit_url)


def _parse(name: str) -> _Name:
    match = _NAME.fullmatch(name)
    if not match or (match['kind'] and not match['path']):
        raise UserError(
            f'{name!r} is not a name of the Hugging Face Hub; write hf://ORG/NAME for a model, '
            'hf://datasets/ORG/NAME/FILES for data, with @REVISION after NAME if needed'
        )
    revision = match['revision'] and urllib.parse.unquote(match['revision'])
    if revision and revision.startswith('~'):  # of the Hub's own conversions
        revision = f'refs/convert/{revision[1:]}'
    return _Name(bool(match['kind']), match['repository'], revision, match['path'] or '')


def _download(name: str, own: _Name, patterns: tuple[str, ...]) -> pathlib.Path:
    """Download files; return the folder of the commit in the cache, with nothing outside it."""
    from huggingface_hub import constants
    from huggingface_hub.errors import RevisionNotFoundError

    advice = (
        'check the name and the network, and HF_TOKEN for a private one; or download it with '
        f'`hf download {own.repository} --local-dir FOLDER` and name that folder'
    )
    with _requests(f'{name} cannot be downloaded', advice):
        try:
            commit = _commit(own)
            files = _list_files(own, commit, patterns)
        except (UserError, RevisionNotFoundError):
            raise
        except Exception:  # the server cannot be asked, or does not answer
            if (folder := _cached(own, patterns)) is None:
                raise
        else:
            folder = _download_files(own, commit, files)
    return _check_inside(folder, pathlib.Path(constants.HF_HUB_CACHE), name)


def _api() -> 'huggingface_hub.HfApi':
    import huggingface_hub
    from huggingface_hub import constants

    return huggingface_hub.HfApi(endpoint=constants.ENDPOINT)


def _commit(own: _Name) -> str:
    """Return the commit of a name.

    The name of a folder in the cache is made from what the server answers, so that must be a hash.
    """
    if own.revision and re.fullmatch(_COMMIT, own.revision):
        return own.revision
    info = _api().repo_info(own.repository, revision=own.branch, repo_type=own.kind)
    if not re.fullmatch(_COMMIT, commit := str(info.sha)):
        raise UserError(f'the server names {commit!r:.60} as a commit, which is not a hash')
    return commit


def _list_files(own: _Name, commit: str, patterns: tuple[str, ...]) -> list[str]:
    """Return the files of a commit that match; a server may list any number under any name."""
    listing = _api().list_repo_tree(
        own.repository, recursive=True, revision=commit, repo_type=own.kind
    )
    left_out = () if own.is_dataset else _LEFT_OUT
    found: list[str] = []
    for number, entry in enumerate(listing, 1):
        if number > limits.LISTED_FILES:
            raise UserError(
                f'it lists more than {limits.LISTED_FILES:,} files (LISTED_FILES in '
                'bert_jax/limits.py)'
            )
        is_file = hasattr(entry, 'size')  # folders are listed too
        if is_file and _matches(entry.path, patterns) and not _matches(entry.path, left_out):
            found.append(names.check(entry.path, own.repository))
    if not found:
        raise UserError(f'no file matches {", ".join(patterns)}')
    return found


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path matches a pattern, whose * also stands for parts with slashes."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _download_files(own: _Name, commit: str, files: list[str]) -> pathlib.Path:
    """Download what is not in the cache yet; return the folder of the commit."""
    import huggingface_hub
    from huggingface_hub import constants

    def download(file: str) -> str:
        return str(
            huggingface_hub.hf_hub_download(
                own.repository,
                file,
                repo_type=own.kind,
                revision=commit,
                endpoint=constants.ENDPOINT,
            )
        )

    with concurrent.futures.ThreadPoolExecutor(_DOWNLOADS) as pool:
        downloaded = list(pool.map(download, files))
    folder = pathlib.Path(downloaded[0].removesuffix(files[0]))
    # The library looks here for the commit of a branch when the server cannot be asked.
    branch = folder.parents[1] / 'refs' / names.check(own.branch, own.repository)
    branch.parent.mkdir(parents=True, exist_ok=True)
    DiskFolder(branch).write(commit.encode())
    return folder


def _cached(own: _Name, patterns: tuple[str, ...]) -> pathlib.Path | None:
    """Return the folder in the cache; None if there is none."""
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                own.repository,
                repo_type=own.kind,
                revision=own.branch,
                allow_patterns=list(patterns),
                local_files_only=True,
            )
        )
    except LocalEntryNotFoundError:
        return None


def _check_inside(folder: pathlib.Path, cache: pathlib.Path, name: str) -> pathlib.Path:
    """Return the folder. Raises UserError if a file of it is outside the cache."""
    root = os.path.realpath(cache)
    for path in (folder, *folder.rglob('*')):
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise UserError(f'{name}: the download names a file outside {cache}: {path.name:.80}')
    return folder


@contextlib.contextmanager
def _requests(what: str, advice: str) -> Iterator[None]:
    """Turn the errors of huggingface_hub, which have several lines, into a UserError.

    Time-outs, cut connections and endless redirects are neither OSError nor ValueError.
    """
    try:
        yield
    except UserError as error:
        raise UserError(f'{what}: {error}') from None
    except Exception as error:
        first, _, _ = str(error).partition('. ')
        reason = ' '.join(first.split())[:200] or 'without a message'
        again = '' if isinstance(error, OSError | ValueError) else 'try again, or '
        raise UserError(f'{what}: {type(error).__name__}: {reason}; {again}{advice}') from error
