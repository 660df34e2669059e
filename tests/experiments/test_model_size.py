"""The study of model size: the keys of both kinds of layers."""

import pytest

from bert_jax import config_keys
from experiments.studies import runner
from experiments.studies.model_size import run
from experiments.studies.novels import config as novels


@pytest.mark.parametrize('block', run.BLOCKS)
def test_runs_of_a_block_differ_in_size_and_have_the_same_steps(block):
    options = run.parse(['--texts=none', f'--block={block}', '--steps=7'])
    sizes, steps = [], set()
    for keys in run.variants(options.block, options.steps).values():
        config = novels.get_config('novels/*.txt').unlock()
        config.update_from_flattened_dict(runner.COMMON | keys)
        config_keys.check_used(config, keys)
        model = config.model
        assert model.hidden_size % model.num_heads == 0
        sizes.append((model.num_layers, model.hidden_size, model.num_heads))
        steps.add(config.training.steps)
    assert len(sizes) == len({*sizes}) == 6
    assert steps == {(7,)}
