"""Text processing: a word tokeniser shared by all models, vocabulary, token ids, tf-idf, subwords, word vectors."""
