"""Import and export of published models: weights, configs and tokenizers, checked strictly."""

MODEL_HELP = (  # help text of --model, the path that `loading.load_any` reads
    'folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with '
    'bert_config.json and a checkpoint such as bert_model.ckpt, or with dict.txt and model.pt; or '
    'ORG/NAME[@REVISION] of the Hugging Face Hub'
)
