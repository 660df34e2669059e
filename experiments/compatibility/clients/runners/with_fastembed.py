"""fastembed: the first output or the named output of a custom model; and a custom reranker."""

import shared
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from fastembed.rerank.cross_encoder import TextCrossEncoder

path, signature, _ = shared.folder()
source = {'sources': ModelSource(hf='local/model'), 'model_file': 'onnx/model.onnx'}
if 'sentence_embedding' in signature['outputs']:
    TextEmbedding.add_custom_model(
        model='local/model',
        pooling=PoolingType.DISABLED,
        normalization=False,
        dim=1,
        output_name='sentence_embedding',
        **source,
    )
    model = TextEmbedding('local/model', specific_model_path=str(path))
    shared.answer({'sentence_embedding': list(model.embed(signature['texts']))})
elif 'score' in signature['outputs']:
    TextCrossEncoder.add_custom_model(model='local/model', **source)
    model = TextCrossEncoder('local/model', specific_model_path=str(path))
    shared.answer({'logits': [[score] for score in model.rerank_pairs(shared.pairs(signature))]})
else:
    raise SystemExit('fastembed has embedding models and rerankers only')
