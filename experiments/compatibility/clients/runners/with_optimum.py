"""optimum-onnx: the class of a task, on the text that the folder's tokenizer encodes."""

import shared
import torch
from optimum import onnxruntime
from transformers import AutoTokenizer

CLASSES = {
    'embed': 'ORTModelForFeatureExtraction',
    'fill_mask': 'ORTModelForMaskedLM',
    'classify': 'ORTModelForSequenceClassification',
    'rerank': 'ORTModelForSequenceClassification',
    'tag': 'ORTModelForTokenClassification',
    'answer': 'ORTModelForQuestionAnswering',
}
path, signature, _ = shared.folder()
model = getattr(onnxruntime, CLASSES[signature['task']]).from_pretrained(path)
tokenizer = AutoTokenizer.from_pretrained(path)
texts = list(zip(*shared.pairs(signature), strict=True))
encoded = tokenizer(*map(list, texts), padding=True, return_tensors='pt')
with torch.inference_mode():
    outputs = model(**encoded)
shared.answer({n: outputs[n].numpy() for n in signature['outputs'] if outputs.get(n) is not None})
