"""The data types of the model: frozen structs with no behaviour beyond derived values. Imports nothing else of
Mooring."""
