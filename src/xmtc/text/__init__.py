"""Text to numbers: one word tokeniser for all models, vocabulary, token ids, tf-idf, subwords and word vectors."""
