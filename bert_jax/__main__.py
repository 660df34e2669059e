"""One entry to all commands: bert-jax COMMAND, or python -m bert_jax COMMAND."""

import sys
from typing import NamedTuple

from bert_jax import errors, lazy_table, progress
from bert_jax.training import interruption


class Command(NamedTuple):
    """A command.

    Attributes:
        module: what `python -m` runs; it has the function `main`.
        request: the dataclass of its flags.
        summary: what it does.
        is_resumable: a signal ends it with the status that means "rerun".
    """

    module: str
    request: str
    summary: str
    is_resumable: bool = False


COMMANDS = {
    'prepare': Command(
        'bert_jax.prepare',
        'bert_jax.prepare:PreparationRequest',
        'text → a tokenized corpus',
    ),
    'train': Command(
        'bert_jax.main',
        'bert_jax.cli.command_line:Request',
        'a config → a pretrained or fine-tuned model, or a sweep',
        is_resumable=True,
    ),
    'predict': Command(
        'bert_jax.predict',
        'bert_jax.answers.base:Question',
        'a model, texts → tokens, vectors, labels, answers',
    ),
    'evaluate': Command(
        'bert_jax.evaluate',
        'bert_jax.evaluate:EvaluationRequest',
        'a fine-tuned model, labeled files → scores and a report',
    ),
    'analyze': Command(
        'bert_jax.analyze.__main__',
        'bert_jax.analyze.plan:AnalysisPlan',
        'a model, texts → probes, attention heads, senses, harms',
    ),
    'export': Command(
        'bert_jax.export',
        'bert_jax.export:Request',
        'a model → a folder for transformers, ONNX, TensorFlow and others',
    ),
    'page': Command(
        'bert_jax.page.__main__',
        'bert_jax.page.__main__:PageRequest',
        'a model → one HTML file that computes in a browser',
    ),
}
_HELP = """\
bert-jax COMMAND [flags]

commands:
{commands}

flags that mean the same in every command:
  --model=…      a folder: a run, a checkpoint, or a published model
  --input=…      the data: files, globs, or - for stdin; of prepare: sources; of train: labeled
                 files, or for pretraining a corpus
  --output=…     what is written: a file or a folder
  --overwrite    replace it if it exists

bert-jax COMMAND --help describes the flags of a command. bert-jax train takes any key of its
config as --config.KEY=VALUE: docs/configs.md. For example:

  bert-jax train --config=configs/tiny.py
  bert-jax predict --model=runs/tiny --task=fill_mask --input=texts.txt --output=-
  bert-jax train --config=configs/finetune.py:classification --model=runs/tiny \\
      --input=train.tsv --output=runs/mine"""


@errors.exit_cleanly
def main() -> None:
    """Run the command that sys.argv names."""
    name = ''.join(sys.argv[1:2])
    if name in ('', '-h', '--help'):
        rows = [f'  {name:10} {command.summary}' for name, command in COMMANDS.items()]
        progress.say(_HELP.format(commands='\n'.join(rows)))
        return
    command = errors.look_up('command', name, COMMANDS)
    if command.is_resumable:
        interruption.exit_on_signals()  # before imports that take seconds
    del sys.argv[1]
    lazy_table.load(f'{command.module}:main')()


if __name__ == '__main__':
    main()
