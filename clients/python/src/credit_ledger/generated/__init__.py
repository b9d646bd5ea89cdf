"""Made from the OpenAPI document by generate.py: types, a function per call, and the methods of both clients."""
