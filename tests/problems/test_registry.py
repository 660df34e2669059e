"""The table of fine-tuning problems: what every entry needs."""

import subprocess
import sys

import pytest

from bert_jax.errors import UserError
from bert_jax.problems import PROBLEMS, find
from configs import finetune


def test_configs_of_all_kinds_are_read_without_jax():
    code = (
        'import sys; from configs import finetune; from bert_jax.problems import PROBLEMS;'
        '[finetune.get_config(kind) for kind in PROBLEMS]; print("jax" in sys.modules)'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'False\n'


@pytest.mark.parametrize('kind', PROBLEMS)
def test_settings_of_a_kind_are_the_problem_of_its_config(kind):
    assert finetune.get_config(kind).problem.to_dict() == dict(PROBLEMS[kind].settings)
    assert PROBLEMS[kind].load().loss.weights


@pytest.mark.parametrize(
    ('kind', 'name'),
    [
        ('classification', 'class_weights'),
        ('tagging', 'label_pieces'),
        ('tagging', 'decode_pieces'),
        ('spans', 'summary'),
        ('spans', 'boundary'),
        ('prompt', 'decoding'),
        ('prompt', 'calibration'),
    ],
)
def test_unknown_choices_are_refused(kind, name):
    declared = PROBLEMS[kind].keys[name].declaration
    with pytest.raises(UserError, match=rf"problem.{name} 'odd'; known: .*{declared.default}"):
        declared.check(f'problem.{name}', 'odd')


# Tasks of the Hugging Face Hub (huggingface.js, packages/tasks).
TAGS = {
    *('text-classification', 'token-classification', 'question-answering', 'multiple-choice'),
    *('text-generation', 'text2text-generation', 'sentence-similarity', 'feature-extraction'),
    'text-ranking',
}


def test_every_kind_has_a_task_of_the_hub_for_its_card():
    tags = {kind: PROBLEMS[kind].pipeline_tag for kind in PROBLEMS}
    assert {*tags.values()} <= TAGS
    assert tags['embedding'] == 'sentence-similarity'
    assert tags['sparse_embedding'] == 'feature-extraction'
    assert tags['reranking'] == 'text-ranking'


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match=r"kind of problem 'sorting'; known: .*tagging"):
        find('sorting')
