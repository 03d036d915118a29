"""Text to numbers: one word tokeniser for all models, vocabulary, token ids and tf-idf."""
