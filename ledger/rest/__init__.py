"""The REST API: the calls over credits, what every call is made of, and the front that serves them."""
