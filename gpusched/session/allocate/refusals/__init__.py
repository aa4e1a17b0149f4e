"""Why does a gang find no place? The reason and the sentence, with numbers."""
