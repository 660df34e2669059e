"""Text: sources of documents, files, languages, sentences, and the choice of held-out documents."""
