"""The nouns of the house: frozen structs with no behaviour beyond derived values. Imports nothing of ours."""
