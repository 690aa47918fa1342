"""The nouns of the model: frozen structs with no behaviour beyond derived values. Imports nothing of ours."""
