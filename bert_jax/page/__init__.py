"""A page that computes: a model, its tokenizer and its weights in one HTML file.

contents.py describes a model for the page, tokenizers.py its tokenizer; weights.py packs its
parameters; bundle.py writes the file. `assets` holds the page itself, in HTML, CSS and JavaScript.
"""
