"""Helpers for tests of text sources."""

from bert_jax.text.sources import open_source


def write(path, text, encoding='utf-8'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def read(spec, max_bad_share=0.0):
    """The source of a spec and its documents."""
    source = open_source(str(spec))
    source.max_bad_share = max_bad_share
    return source, list(source.documents())


def texts(spec):
    return [document.text for document in read(spec)[1]]
