"""DPR and LUKE, which hold BERT and RoBERTa, and model types that are not read."""

import json

import numpy as np
import pytest
import torch
import transformers

from bert_jax import load
from bert_jax.errors import UserError
from bert_jax.interop import families, huggingface, huggingface_export
from tests.interop import published
from tests.parity.agreement import agree, agree_trees


@pytest.mark.parametrize('name', ['DPRQuestionEncoder', 'DPRContextEncoder'])
def test_a_vector_of_dpr_is_the_state_of_cls(name, tmp_path):
    kind = getattr(transformers, name)
    made = kind(kind.config_class(**published.SIZES, attn_implementation='eager')).eval()
    published.randomize(made, 0, 0.2)
    made.save_pretrained(tmp_path / 'in')
    (tmp_path / 'in/vocab.txt').write_text('\n'.join(published.vocabulary()) + '\n')
    loaded = huggingface.load(tmp_path / 'in')
    assert (loaded.family, loaded.heads) == ('bert', ())
    assert loaded.sentence_modules.similarity == 'dot'
    text = 'the ocean and the ship'
    tokenizer = transformers.BertTokenizer(str(tmp_path / 'in/vocab.txt'))
    with torch.no_grad():
        expected = made(**tokenizer(text, return_tensors='pt')).pooler_output.numpy()
    agree(load(tmp_path / 'in').embed([text]), expected)
    huggingface_export.save(loaded, tmp_path / 'out')
    agree(load(tmp_path / 'out').embed([text]), expected)


def test_luke_without_entities_is_roberta(tmp_path, capsys):
    sizes = published.SIZES | {'entity_vocab_size': 9, 'entity_emb_size': 8}
    config = transformers.LukeConfig(**sizes, attn_implementation='eager')
    made = transformers.LukeForMaskedLM(config).eval()
    published.randomize(made, 0, 0.2)
    # Published files have equal tables, although transformers 5 does not tie them.
    made.lm_head.decoder.weight.data = made.luke.embeddings.word_embeddings.weight.data.clone()
    made.save_pretrained(tmp_path / 'in')
    loaded = huggingface.load(tmp_path / 'in')
    assert (loaded.family, loaded.heads) == ('roberta', ('mlm',))
    assert 'not computed here: ' in capsys.readouterr().err
    given = published.batch_for(loaded.architecture)
    ids, mask, types = (torch.from_numpy(np.array(values, np.int64)) for values in given)
    with torch.no_grad():
        output = made(
            input_ids=ids, attention_mask=mask, token_type_ids=types, output_hidden_states=True
        )
    expected = {
        'all_hidden': torch.stack(output.hidden_states).numpy(),
        'mlm_logits': output.logits.numpy(),
    }
    agree_trees(published.ours(loaded), expected)


@pytest.mark.parametrize(
    ('model_type', 'nearest'),
    [('longformer', 'modernbert'), ('mobilebert', 'distilbert'), ('qwen3', 'modernbert-decoder')],
)
def test_a_refused_model_type_names_the_nearest(model_type, nearest, tmp_path):
    (tmp_path / 'config.json').write_text(json.dumps({'model_type': model_type}))
    with pytest.raises(UserError, match=f"'{model_type}' is not supported; .*: {nearest}"):
        huggingface.load(tmp_path)


def test_the_nearest_model_types_are_read():
    for model_type, nearest in families._NEAREST.items():
        assert nearest.partition(' ')[0].rstrip(',') in families.FAMILIES, model_type
        assert model_type not in families.FAMILIES
