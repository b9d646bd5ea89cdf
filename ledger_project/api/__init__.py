"""The API as a whole: its OpenAPI document, its list of paths, and its answers where no call is found."""
