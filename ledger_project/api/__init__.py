"""The API as a whole: its OpenAPI document, its list of paths, and its responses for unknown paths."""
