"""The callback inside LiteLLM's proxy: an environment and a configuration of its own."""
